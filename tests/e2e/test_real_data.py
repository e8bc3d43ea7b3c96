"""Accuracy on the published sets, with the default settings, as a user would get it."""

import pytest

from fedmmf import FedMMF, load


@pytest.mark.parametrize(
    ("mask", "limit"),
    [("none", 0.955), ("mean", 0.934), ("lr", 0.934), ("fm", 0.934), ("nn", 0.934)],
)
def test_ml_100k(public_data, mask, limit):
    train, test = load("ml-100k").split(test=0.2, seed=0)
    assert FedMMF(mask=mask, seed=0).fit(train).evaluate(test)["rmse"] <= limit


def test_lastfm(public_data):
    train, test = load("lastfm").split(test=0.2, seed=0)
    assert FedMMF(mask="fm", seed=0).fit(train).evaluate(test)["rmse"] <= 1.084


def test_ml_1m(public_data):
    train, test = load("ml-1m").split(test=0.1, seed=0)
    assert FedMMF(mask="lr", seed=0).fit(train).evaluate(test)["rmse"] <= 0.870


@pytest.mark.parametrize(
    ("data", "share", "limit"),
    [("ml-100k", 0.2, 0.883), ("lastfm", 0.2, 1.005), ("ml-1m", 0.1, 0.830)],
)
def test_the_variational_solver(public_data, data, share, limit):
    train, test = load(data).split(test=share, seed=0)
    assert FedMMF(mask="mean", solver="vb").fit(train).evaluate(test)["rmse"] <= limit


def test_item_statistics_help_a_mask(public_data):
    train, test = load("ml-100k").split(test=0.2, seed=0)
    plain, informed = (
        FedMMF(mask="lr", item_statistics=wanted).fit(train).evaluate(test)["rmse"]
        for wanted in (False, True)
    )
    assert informed < plain - 0.005


def test_the_papers_plain_rule_learns_too(public_data):
    """`--step sum --user-prior 0` is Algorithm 1 with errata 2 and 3 and nothing of ours."""
    train, test = load("ml-100k").split(test=0.2, seed=0)
    paper = FedMMF(mask="lr", step="sum", user_prior=0.0, rounds=400).fit(train)
    alone = FedMMF(mask="lr", rounds=1, factors=1, learning_rate=1e-9).fit(train)
    assert paper.evaluate(test)["rmse"] < 0.95 < alone.evaluate(test)["rmse"]


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_a_mask_helps_under_differential_privacy(public_data, epsilon):
    pytest.importorskip("dp_accounting", reason="the extra `dp`")
    train, test = load("ml-100k").split(test=0.2, seed=0)
    none, lr = (
        FedMMF(mask=mask, aggregation="dp", dp_epsilon=epsilon, factors=1)
        .fit(train)
        .evaluate(test)["rmse"]
        for mask in ("none", "lr")
    )
    assert lr < none - 0.02
