"""Sums of many rounds, taken apart; on updates that do not change, and on a training that does."""

from dataclasses import replace

import numpy as np
import pytest

from fedmmf import rng
from fedmmf.attacks.disaggregation import RoundSums, item_scores, residuals_of_raters
from fedmmf.attacks.membership import CohortView, area_under_curve
from fedmmf.audit.dropouts import DropOuts

N_USERS, N_ITEMS, ROUNDS = 20, 60, 120


def made(batch=1):
    """(sums of updates that stay as they are, who rated what, the updates)."""
    draw = rng.stream(0, "rounds")
    rated = draw.random((N_USERS, N_ITEMS)) < 0.3
    updates = np.where(rated, draw.standard_normal(rated.shape), 0.0)
    present = DropOuts.drawn(N_USERS, ROUNDS, 0.05, batch, draw).present
    level = present @ updates + 1e-3 * draw.standard_normal((ROUNDS, N_ITEMS))
    popularity = np.full(rated.shape, 0.3)
    return RoundSums(level, present, rated.sum(axis=0), popularity, 1.0), rated, updates


def area(sums, rated):
    view = CohortView(np.arange(N_USERS), sums.popularity, rated + 0.0)
    return float(np.mean(area_under_curve(view, item_scores(sums), rated)))


def test_drop_outs_name_items_and_residuals():
    sums, rated, updates = made()
    assert area(sums, rated) > 0.95
    users, items = np.nonzero(rated)
    belief = residuals_of_raters(sums, users, items)
    assert np.corrcoef(-belief.deviation, updates[rated])[0, 1] > 0.95


def test_with_names_exchanged_they_name_nothing():
    sums, rated, _ = made()
    exchanged = replace(sums, present=np.roll(sums.present, 1, axis=1))
    assert area(exchanged, rated) < 0.65


@pytest.mark.parametrize("batch", [5, 10])
def test_in_batches_a_party_is_told_apart_from_other_batches_alone(batch):
    sums, rated, updates = made(batch)
    users, items = np.nonzero(rated)
    belief = residuals_of_raters(sums, users, items)
    assert np.corrcoef(-belief.deviation, updates[rated])[0, 1] < 0.9
    assert area(sums, rated) < area(made()[0], made()[1]) - 0.1


def test_nobody_who_stays_away_means_nothing_to_compare():
    sums, rated, _ = made()
    always = replace(
        sums, present=np.ones_like(sums.present), level=sums.level[:1].repeat(ROUNDS, 0)
    )
    view = CohortView(np.arange(N_USERS), sums.popularity, rated + 0.0)
    counts_alone = area_under_curve(view, always.odds, rated)
    np.testing.assert_allclose(area_under_curve(view, item_scores(always), rated), counts_alone)
    belief = residuals_of_raters(always, *np.nonzero(rated))
    assert not belief.deviation.any()
