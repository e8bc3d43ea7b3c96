"""A charter that people have edited: what is wrong is said by name, in our words."""

import pytest

from fedmmf.errors import SettingsError
from fedmmf.federation.charter import Charter, unused_settings
from fedmmf.settings import Settings

USUAL = {"name": "f", "sites": ("a", "b", "c")}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"network": {"port": "http"}}, "network.port: should be a whole number; got 'http'"),
        ({"network": {"port": 99999}}, "network.port: should be at most 65535; got 99999"),
        ({"nets": 3}, "there is no nets; leave it out, or correct its name"),
        ({"deadlines": {"wait": 3}}, "there is no deadlines.wait; leave it out"),
        ({"party": "people"}, "party: should be 'site' or 'user'; got 'people'"),
        ({"sites": "abc"}, "sites: should be a list; got 'abc'"),
        ({"scale": (1, 5)}, "scale.2: should be given"),
        ({"scale": (5, 1, 1)}, "scale: A rating scale needs min < max; got 5 and 1"),
        ({"scale": (1, 5, 0)}, "scale: A rating scale needs a step in (0, max - min = 4]; got 0"),
        ({"scale": (1, float("inf"), 1)}, "scale: A rating scale needs finite numbers"),
        ({"training": {"factors": 0}}, "factors should be at least 1; got 0 (latent factors k)"),
        ({"training": {"ensemble": 2}}, "training.ensemble has no meaning in a federation across"),
        (
            {"training": {"aggregation": "homomorphic-ckks"}},
            "sums across machines are plain, adaptive, secure, dp; got homomorphic-ckks",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place_and_rule(values, said):
    with pytest.raises(SettingsError) as refused:
        Charter.checked(**{**USUAL, **values})
    assert str(refused.value).startswith(said)


def test_a_charter_lists_every_setting_that_has_a_meaning_there():
    text = Charter.checked(**USUAL).text()
    for name in Settings.model_fields:
        assert (f"\n{name} =" in text or f"\n# {name} =" in text) == (name not in unused_settings())
