import numpy as np

from fedmmf import rng


def test_a_stream_depends_on_its_name_alone():
    before = rng.stream(1, "party", 7).random(4)
    rng.stream(1, "party", 8).random(1000)
    assert np.array_equal(before, rng.stream(1, "party", 7).random(4))


def test_names_and_seeds_do_not_collide():
    names = [
        (0, "ab", "c"),
        (0, "a", "bc"),
        (0, "abc"),
        (1, "ab", "c"),
        (0, "party", 11),
        (0, "party", 1, 1),
    ]
    draws = {tuple(rng.stream(*name).random(2)) for name in names}
    assert len(draws) == len(names)
