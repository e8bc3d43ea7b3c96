"""Simulated sums against the obvious sum over parties, one by one."""

import numpy as np
import pytest

from fedmmf import simulation
from fedmmf.aggregation.dp import clipped
from fedmmf.config import Settings
from fedmmf.factorization.sgd import Factors, Plan, party_update, start_user_factors
from fedmmf.factorization.sides import Cohort
from fedmmf.groups import make_groups


def obvious_sum(ratings, masked, public, cohort):
    """Each party's rows, clipped and rounded as it would do it itself, then added."""
    plan, q = Plan.of(public), public.item_factors
    total = np.zeros(q.shape, np.int64)
    for begin, end in zip(ratings.by_user[:-1], ratings.by_user[1:], strict=True):
        items = ratings.item_codes[begin:end]
        p = Factors.starting_at(start_user_factors(1, q.shape[1])[0])
        rows = clipped(party_update(masked[begin:end], q[items], p, plan, 1), cohort.clip)
        rows = np.clip(rows, -cohort.bound, cohort.bound)
        total[items] += np.rint(rows * cohort.scale).astype(np.int64)
    return total / cohort.scale


@pytest.mark.parametrize(
    ("bound", "clip"), [(16.0, np.inf), (0.25, np.inf), (16.0, 0.5), (0.05, 0.5)]
)
def test_a_fixed_point_sum_is_that_of_the_parties(small, bound, clip):
    settings = Settings(mask="mean", factors=5, held_out=0.0)
    features = simulation.feature_matrix(small, settings)
    masks = simulation.fit_all_masks(small, features, settings)
    server = simulation.make_server(small, settings)
    nobody = np.zeros(small.n_users, bool)
    crowd = simulation.make_crowd(small, settings, masks, 5, nobody)
    sides = simulation.both_sides(small)
    cohort = Cohort(sides.raters, bound, 2.0**14, clip)
    (rows,), _ = crowd._solver.update(server.result, 1, [cohort])
    expected = obvious_sum(small, masks.masked_ratings(False), server.result, cohort)
    assert expected.any()
    # float32 rounds a few entries the other way: one step of fixed point, of one party or two
    assert np.abs(rows - expected).max() <= 2 * 2.0**-14
    assert np.mean(rows == expected) > 0.9


def test_rare_items_are_left_out_of_hidden_sums_and_stay_in_plain_ones(small):
    sides = simulation.both_sides(small)
    counts = sides.raters.counts
    limit = int(np.sort(counts)[5]) + 1
    everybody, nobody = np.ones(small.n_users, bool), np.zeros(small.n_users, bool)
    strict = Settings(min_raters=limit)
    (hidden,) = make_groups(sides, strict, 4.0, nobody)
    (plain,) = make_groups(sides, strict.changed(sharing="plain"), 4.0, everybody)
    assert np.array_equal(hidden.counts, np.where(counts < limit, 0, counts))
    assert np.array_equal(plain.counts, counts)
    assert (hidden.cohort.scale > 0, plain.cohort.scale) == (True, 0)
