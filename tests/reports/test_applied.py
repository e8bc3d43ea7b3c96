"""A page lists the settings that had a say: the others can be changed, and nothing changes."""

import numpy as np
import pytest
import samples

from fedmmf import FedMMF
from fedmmf.data import load
from fedmmf.reports.applied import applied
from fedmmf.settings import Settings

OTHER = {  # for each setting that may have no say, another value
    "mask_strength": 3.0,
    "cross_fit": True,
    "folds": 3,
    "item_statistics": True,
    "aggregation": "secure",
    "smallest_cohort": 4,
    "min_raters": 2,
    "signed": False,
    "batch": 1,
    "dp_epsilon": 8.0,
    "dp_delta": 1e-3,
    "dp_clip": 0.5,
    "dp_noise": "local",
    "grouping": "audit",
    "collect_masked": False,
    "audit_limit": 0.9,
    "step": "sum",
    "learning_rate": 0.3,
    "regularization": 0.7,
    "user_prior": 0.2,
    "biases": True,
    "item_prior": False,
    "profile_prior": False,
    "implicit_prior": "none",
    "mask_fit": "alone",
    "likelihood": "gaussian",
    "unrated_weight": 0.4,
    "unrated_value": 2.0,
    "patience": 1,
    "device": "cuda",
    "pieces": 1,
}
RUNS = [
    {},
    {"mask": "none"},
    {"sharing": "plain"},
    {"sharing": "adaptive"},
    {"solver": "vb", "rounds": 2},
    {"held_out": 0.0},
]


@pytest.fixture(scope="module")
def ratings():
    whole = load("synthetic")
    return whole.select(np.asarray(whole.user_codes) < 40)


def outcome(ratings, **settings):
    """What settings decide: factors, which show in predictions, masks and who is in the clear."""
    model = FedMMF(**{"rounds": 3, "factors": 3} | settings).fit(ratings)
    learned = model.learned
    predicted = model.predict(
        ratings.user_ids[ratings.user_codes], ratings.item_ids[ratings.item_codes]
    )
    return np.concatenate([predicted, learned.j_train, learned.in_clear])


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_what_is_not_listed_had_no_say(ratings, run):
    settings = Settings.checked(**run).model_dump()
    silent = settings.keys() - applied(samples.train(settings=settings)).keys()
    assert silent
    found = outcome(ratings, **run)
    for name in sorted(silent):
        np.testing.assert_array_equal(outcome(ratings, **run | {name: OTHER[name]}), found, name)


@pytest.mark.parametrize(
    ("chosen", "listed", "left_out"),
    [
        ({}, "aggregation min_raters step patience", "dp_epsilon grouping item_prior"),
        ({"aggregation": "dp"}, "dp_epsilon dp_delta dp_clip dp_noise", "patience grouping"),
        ({"sharing": "adaptive"}, "grouping threshold_j", "audit_limit dp_epsilon"),
        ({"sharing": "adaptive", "grouping": "audit"}, "audit_limit", "dp_epsilon"),
        ({"solver": "vb"}, "item_prior mask_fit likelihood", "step learning_rate patience"),
        ({"objective": "ranking"}, "unrated_weight item_prior", "step likelihood"),
        ({"mask": "none"}, "mask", "mask_strength folds"),
    ],
    ids=str,
)
def test_what_applies_is_listed(chosen, listed, left_out):
    settings = Settings.checked(**chosen).model_dump()
    found = applied(samples.train(settings=settings))
    assert set(listed.split()) <= found.keys()
    assert not set(left_out.split()) & found.keys()


def test_an_audit_lists_its_limit_and_its_rounds():
    settings = Settings.checked().model_dump()
    found = applied(samples.audit(settings=settings))
    assert {"audit_limit", "grouping", "mask", "rounds", "solver"} <= found.keys()
    assert not {"ensemble", "patience", "dp_epsilon"} & found.keys()


def test_real_parties_have_no_engine_and_strange_settings_are_kept():
    settings = {"engine": "numba", "weather": "fine"}
    assert applied(samples.train(settings=settings)) == settings
    assert applied(samples.train(settings=settings, simulated=False)) == {"weather": "fine"}
