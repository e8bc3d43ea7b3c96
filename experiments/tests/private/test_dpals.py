"""DPALS is alternating least squares under noise, and no user moves its statistics further."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmmf.data.synthetic import synthetic
from fedmmf_experiments.private.dpals import (
    DpalsItems,
    DpalsSettings,
    fit,
    item_statistics,
    pack,
    solve_items,
    solve_users,
    unpack,
)
from fedmmf_experiments.private.noise import Privacy
from fedmmf_experiments.private.pairs import Pairs, adaptive_weights, noisy_counts

NOTHING = Privacy(math.inf, 1e-5)
LOOSE = DpalsSettings(factors=2, max_user=1e6, max_error=1e6)


@pytest.fixture(scope="module")
def ratings():
    return synthetic(40, 30, 700, seed=1, min_per_user=5)


def ridge(x, y, weights, strength, prior):
    """Weighted ridge regression around a prior, by least squares on a stacked system."""
    root = np.sqrt(weights)[:, np.newaxis]
    k = x.shape[1]
    left = np.vstack((root * x, math.sqrt(strength) * np.eye(k)))
    right = np.concatenate((root[:, 0] * y, math.sqrt(strength) * prior))
    return np.linalg.lstsq(left, right, rcond=None)[0]


@pytest.mark.parametrize("bias", [False, True])
def test_without_noise_both_halves_are_weighted_ridge_regressions(ratings, bias):
    settings = replace(LOOSE, bias=bias)
    pairs, stream = Pairs.of(ratings), np.random.default_rng(0)
    weights = adaptive_weights(pairs, noisy_counts(pairs, 0.0, stream), 0.4)
    items = stream.standard_normal((30, settings.width))
    users = solve_users(pairs, items, settings)
    for user in range(40):
        rated = pairs.items[pairs.users == user]
        y = pairs.values[pairs.users == user] - bias * items[rated, 0]
        x = items[rated, int(bias) :]
        found = ridge(x, y, np.ones(len(y)), settings.user_strength, np.zeros(2))
        assert users[user, int(bias) :] == pytest.approx(found)
    assert np.all(users[:, : int(bias)] == 1.0)
    before = DpalsItems(items, np.ones((30, 1)))
    solved = solve_items(item_statistics(pairs, weights, users, settings), before, settings)
    for item in range(30):
        mine = pairs.items == item
        x, y = users[pairs.users[mine]], pairs.values[mine]
        zero = np.zeros(settings.width)
        found = ridge(x, y, weights[mine], settings.item_strength, zero)
        assert solved.values[item] == pytest.approx(found)


def test_without_noise_and_clipping_the_training_error_falls_with_rounds(ratings):
    settings = replace(LOOSE, user_strength=1.0, item_strength=0.5, mean_strength=1.0, bias=True)
    errors = [
        fit(ratings, replace(settings, rounds=rounds), NOTHING, 0).rmse(ratings)
        for rounds in (1, 2, 8)
    ]
    assert errors[0] > errors[1] > errors[2]


def test_noise_costs_accuracy_and_features_help_where_items_share_them():
    ratings = synthetic(300, 200, 9000, seed=2)
    train, test = ratings.split(0.2, seed=0)
    settings = DpalsSettings(factors=2, rounds=2, mean_strength=2.0, bias=True, item_strength=5.0)

    def error(epsilon, **changes):
        found = replace(settings, **changes)
        runs = [fit(train, found, Privacy(epsilon, 1e-5), seed).rmse(test) for seed in range(5)]
        return np.mean(runs)

    assert error(math.inf) < error(8.0) < error(2.0)
    few = {"factors": 0, "item_strength": 20.0, "prior_ridge": 3.0}
    assert error(4.0, features=True, **few) < error(4.0, **few)


@given(
    seed=st.integers(0, 10_000),
    size=st.floats(1e-3, 1e3),
    bias=st.booleans(),
    gamma=st.sampled_from([0.0, 0.5]),
)
def test_one_user_moves_the_statistics_by_their_bounds_at_most(seed, size, bias, gamma):
    """Whatever its ratings and factors are, and whatever counts were released."""
    stream = np.random.default_rng(seed)
    users, items = np.divmod(np.sort(stream.choice(54, 40, replace=False)), 9)
    pairs = Pairs(users, items, size * stream.standard_normal(40), 6, 9)
    settings = DpalsSettings(factors=3, bias=bias, max_user=0.7, max_error=0.9)
    weights = adaptive_weights(pairs, np.exp(3 * stream.standard_normal(9)), gamma)
    factors = size * stream.standard_normal((6, settings.width))
    factors[:, : int(bias)] = 1.0
    whole = item_statistics(pairs, weights, factors, settings)
    keep = users != 2
    fewer = replace(pairs, users=users[keep], items=items[keep], values=pairs.values[keep])
    rest = item_statistics(fewer, weights[keep], factors, settings)
    for with_user, without, bound in zip(whole, rest, settings.bounds, strict=True):
        assert np.linalg.norm(with_user - without) <= bound * (1 + 1e-9)


def test_the_bound_is_reached_so_that_no_noise_is_wasted():
    settings = DpalsSettings(factors=2, max_user=0.5, max_error=0.8)
    pairs = Pairs(np.zeros(4, int), np.arange(4), np.full(4, 9.0), 1, 4)
    weights = adaptive_weights(pairs, np.ones(4), 0.0)
    found = item_statistics(pairs, weights, np.full((1, 2), 7.0), settings)
    lengths = [np.linalg.norm(entries) for entries in found]
    assert lengths == pytest.approx(list(settings.bounds))


def test_packed_outer_products_keep_their_length_and_come_back():
    vectors = np.random.default_rng(0).standard_normal((5, 3))
    outer = np.einsum("ni,nj->nij", vectors, vectors)
    assert unpack(pack(vectors), 3) == pytest.approx(outer)
    lengths = np.linalg.norm(pack(vectors), axis=1)
    assert lengths == pytest.approx(np.linalg.norm(outer, axis=(1, 2)))


def test_noise_has_the_size_that_the_budget_says():
    """The spread of solved items is that of the noise: five users can add little to it."""
    ratings = synthetic(5, 400, 700, seed=1, min_per_user=5)
    settings = DpalsSettings(factors=0, rounds=1, bias=True, item_strength=1e9, max_error=1.0)
    privacy = Privacy(4.0, 1e-5)
    budget = privacy.budget()
    for share in (0.01, settings.counts_share):
        budget.std(share, 1.0)
    std = budget.std(budget.left * (1 - settings.curvature_share), settings.bounds[1])
    found = np.concatenate([fit(ratings, settings, privacy, seed).items for seed in range(5)])
    assert np.std(found) * 1e9 == pytest.approx(std, rel=0.06)
