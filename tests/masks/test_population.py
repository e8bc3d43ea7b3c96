"""What users have in common: both halves, on their own and against oracles."""

import numpy as np
import pytest

from fedmmf.aggregation.contract import columns_of
from fedmmf.data.rated_items import RatedItems
from fedmmf.data.scales import RatingScale
from fedmmf.masks import population
from fedmmf.masks.population import Population, everybodys_totals, n_totals, user_totals
from fedmmf.settings import Settings

SCALE = RatingScale(1, 5, 1)
N_ITEMS, N_USERS, D = 40, 300, 3


def crowd(within=0.5, between=0.7, seed=0, lengths=None):
    """Users with levels of their own around one line, and features beyond the bound."""
    draw = np.random.default_rng(seed)
    features = draw.standard_normal((N_ITEMS, D))
    features[0, 0] = 9.0  # counts as 4
    lengths = draw.integers(0, 30, N_USERS) if lengths is None else np.asarray(lengths)
    items = [np.sort(draw.permutation(N_ITEMS)[:n]) for n in lengths]
    lists = RatedItems(np.concatenate(([0], np.cumsum(lengths))), np.concatenate(items))
    known = np.clip(features, -4, 4)[lists.items] @ np.array([0.4, -0.2, 0.0])
    levels = 3.2 + between * draw.standard_normal(N_USERS)[: len(lengths)]
    noise = within * draw.standard_normal(len(lists.items))
    return lists, (levels[lists.users] + known + noise).astype(np.float64), features


@pytest.mark.parametrize("n_seen", [0, D])
@pytest.mark.parametrize("block", [1, 50, 1 << 15])
def test_the_sum_is_that_of_what_users_add(monkeypatch, n_seen, block):
    monkeypatch.setattr(population, "_BLOCK", block)
    lists, ratings, features = crowd()
    given = (lists, ratings, features[:, :n_seen], SCALE)
    parts = np.vstack(list(user_totals(*given)))
    assert parts.shape == (N_USERS, n_totals(1 + n_seen))
    np.testing.assert_allclose(everybodys_totals(*given), parts.sum(axis=0), rtol=1e-10)
    assert not parts[lists.lengths == 0].any()
    on_scale = np.clip(ratings, 1, 5)
    most = np.vstack(list(user_totals(lists, on_scale, features, SCALE)))
    assert np.abs(most).max() <= population.TOTAL_BOUND


def test_a_user_adds_means_and_variances():
    lists, ratings, features = crowd(lengths=[4, 1])
    first, second = np.vstack(list(user_totals(lists, ratings, features, SCALE)))
    y, x = (ratings[:4] - 1) / 4 - 0.5, np.clip(features, -4, 4)[lists.items[:4]]
    mean, spread = y.mean(), y.var(ddof=1)
    np.testing.assert_allclose(first[:6], [1, mean, mean**2, 1, spread, spread / 4])
    np.testing.assert_allclose(first[6:], [y.sum(), *(y @ x)])
    assert not second[3:6].any()  # of a single rating nobody knows how it varies
    lone = (ratings[4] - 1) / 4 - 0.5
    np.testing.assert_allclose(second[[0, 1, 2, 6]], [1, lone, lone**2, lone])


def learned(n_seen=D, **about):
    lists, ratings, features = crowd(**about)
    seen, counts = features[:, :n_seen], lists.counts(N_ITEMS)
    totals = everybodys_totals(lists, ratings, seen, SCALE)
    return Population.of_totals(totals, counts, seen, SCALE), features


def test_the_line_is_found_and_is_the_mean_of_means_without_features():
    found, features = learned()
    np.testing.assert_allclose(found.line, [3.2, 0.4, -0.2, 0.0], atol=0.1)
    base = found.base(features, SCALE)
    assert base[0] == pytest.approx(np.clip(found.line @ [1, 4, *features[0, 1:]], 1, 5))
    alone, _ = learned(n_seen=0)
    lists, ratings, _ = crowd()
    assert alone.line == pytest.approx(lists.means(ratings)[lists.lengths > 0].mean(), rel=1e-9)
    assert alone.base(features, SCALE).tolist() == alone.line.tolist() * N_ITEMS


def test_the_line_and_the_pull_are_those_of_the_formulas():
    """A ridge of five users' worth on the features, and twice the quotient of variances."""
    found, features = learned()
    lists, ratings, _ = crowd()
    x = np.clip(features, -4, 4)[lists.items]
    n_users = int((lists.lengths > 0).sum())
    centred, ridge = x - x.mean(axis=0), 5.0 * len(ratings) / n_users * np.eye(D)
    slopes = np.linalg.solve(centred.T @ centred + ridge, centred.T @ ratings)
    np.testing.assert_allclose(found.line[1:], slopes, rtol=1e-9)
    each = [ratings[lists.of(user)] for user in range(N_USERS) if lists.lengths[user] > 1]
    within = np.mean([some.var(ddof=1) for some in each])
    rated = lists.lengths[lists.lengths > 0]
    chances = [some.var(ddof=1) / len(some) for some in each] + [within] * int((rated == 1).sum())
    between = np.var(lists.means(ratings)[lists.lengths > 0]) - np.mean(chances)
    assert found.shrinkage == pytest.approx(2 * within / between, rel=1e-9)


def test_numbers_that_nobody_can_have_break_nothing():
    """One party may add what it likes within the bounds: a level off the scale is its end."""
    draw, bound = np.random.default_rng(3), population.TOTAL_BOUND
    features, counts = draw.standard_normal((N_ITEMS, D)), np.full(N_ITEMS, 7)
    features[:, 1] = 0.0  # a constant column
    for totals in bound * draw.uniform(-1, 1, (50, n_totals(1 + D))):
        found = Population.of_totals(totals, counts, features, SCALE)
        assert np.isfinite(found.line).all()
        assert population.MIN_SHRINKAGE <= found.shrinkage <= population.MAX_SHRINKAGE
        none = Population.of_totals(totals, 0 * counts, features, SCALE)
        assert np.isfinite(none.line).all()
        alone = Population.of_totals(totals[: n_totals(1)], counts, features[:, :0], SCALE)
        assert 1.0 <= alone.line[0] <= 5.0


@pytest.mark.parametrize(("within", "between"), [(0.5, 0.7), (0.8, 0.4)])
def test_the_pull_is_twice_what_variances_call_for(within, between):
    """Without features: what the line explains varies within users."""
    found, features = learned(n_seen=0, within=within, between=between)
    explain_errors = np.var(np.clip(features, -4, 4) @ [0.4, -0.2, 0.0])
    expected = 2 * (within**2 + explain_errors) / between**2
    assert found.shrinkage == pytest.approx(expected, rel=0.3)


def test_the_pull_has_limits():
    assert learned(n_seen=0, between=0.0)[0].shrinkage == population.MAX_SHRINKAGE
    assert learned(n_seen=0, within=0.01, between=3.0)[0].shrinkage == population.MIN_SHRINKAGE


@pytest.mark.parametrize("lengths", [[0, 0], [1, 1, 1]])
def test_of_few_ratings_little_is_known(lengths):
    found, features = learned(lengths=lengths)
    assert found.shrinkage == population.ASSUMED_PULL
    if not any(lengths):
        assert found.is_like(Population.unknown(SCALE))
        assert (found.base(features, SCALE) == 3.0).all()


def test_no_line_leads_off_the_scale():
    wild = Population(np.array([1e9, -1e12, 0.0, 5.0]), 1.0)
    features = np.random.default_rng(0).standard_normal((20, 3))
    assert set(wild.base(features, SCALE).tolist()) <= {1.0, 5.0}


@pytest.mark.parametrize(
    ("changes", "n_features", "n_columns"),
    [
        ({}, 0, 1),
        ({}, 3, 4),
        ({"sharing": "plain"}, 3, 1),  # what users say is in the clear
        ({"sharing": "adaptive"}, 3, 1),  # masks decide what leaves
        ({"aggregation": "dp", "step": "sum"}, 3, 1),  # nobody is asked
        ({}, 127, 128),
        ({}, 128, 1),
    ],
)
def test_features_count_where_all_are_asked_and_features_are_few(changes, n_features, n_columns):
    assert columns_of(Settings(**changes), n_features) == n_columns
