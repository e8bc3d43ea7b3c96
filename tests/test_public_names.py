import fedmmf


def test_public_names_are_these():
    assert fedmmf.__all__ == [
        "FedMMF",
        "FedMMFError",
        "ItemFeatures",
        "RatingScale",
        "Ratings",
        "Settings",
        "UserProfiles",
        "load",
        "load_split",
    ]


def test_every_public_name_is_there():
    for name in fedmmf.__all__:
        assert getattr(fedmmf, name).__name__ == name
    assert set(fedmmf.__all__) < set(dir(fedmmf))
