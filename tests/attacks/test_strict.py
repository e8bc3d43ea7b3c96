"""What a server learns in strict mode, from real secure sums."""

from dataclasses import replace

import numpy as np
import pytest

from fedmmf.aggregation.rare_items import raters_needed
from fedmmf.attacks import rating_attacks
from fedmmf.attacks.calibrated import CALIBRATED, trusting
from fedmmf.attacks.gradients import GRADIENTS, to_exposed
from fedmmf.attacks.membership import MEMBERSHIP, CohortView
from fedmmf.attacks.paper import RANKING
from fedmmf.attacks.unmixing import UNMIXING
from fedmmf.audit import recording
from fedmmf.audit.cohorts import weighed
from fedmmf.audit.exposure import prior_parts, restrict

from .conftest import first_rounds, record_plain

ON_RATINGS = rating_attacks("lr")


def named(attack):
    return getattr(attack, "name", None)


@pytest.mark.parametrize("attack", [*ON_RATINGS, RANKING], ids=named)
def test_masked_vectors_help_no_attack(small, strict_small, attack):
    """`test_contract` shows that each of these attacks works where there is something to find."""
    seen, _, known = strict_small
    view = to_exposed(recording.vectors_as_updates(seen, known), known)
    truth = small.values[known.rows_of(np.isin(known.users, view.users))]
    assert attack.run(view, truth).advantage_interval[0] <= 0


def test_gradients_of_masked_vectors_give_no_masked_rating(strict_small):
    seen, masked, known = strict_small
    result = GRADIENTS.run(recording.vectors_as_updates(seen, known), masked)
    assert result.mean < 0.01
    assert result.advantage_interval[0] <= 0


def test_masked_vectors_name_no_item(strict_small, rated_small):
    seen, _, known = strict_small
    view = recording.vectors_as_members(seen, known, rated_small.mean(axis=0))
    is_summed = seen.sums[0].n_raters > 0  # public: of the others nothing is sent at all
    assert not view.scores[:, ~is_summed].any()
    part = CohortView(view.users, view.popularity[is_summed], view.scores[:, is_summed])
    result = MEMBERSHIP.run(part, rated_small[:, is_summed])
    assert result.mean == pytest.approx(0.5, abs=0.05)  # six standard errors


def test_the_sum_gives_the_counts_and_that_is_all_it_names(strict_small, rated_small):
    seen, _, known = strict_small
    counts = rated_small.sum(axis=0)
    shown = np.where(counts < raters_needed(3), 0, counts)  # rare items are left out
    assert np.array_equal(seen.sums[0].n_raters, shown)
    view = recording.sums_as_members(seen, known, shown / len(rated_small))
    result = MEMBERSHIP.run(view, rated_small)
    np.testing.assert_allclose(result.success, result.baseline)


def gain_of_taking_part(ratings, n_users):
    """How much better a sum ranks a user's items if the user is in it."""
    some = restrict(ratings, np.arange(n_users))
    uploads, _, known = record_plain(some, "lr")
    hits = []
    for with_own in (True, False):
        view = to_exposed(recording.twin_sums(uploads, with_own=with_own), known)
        truth = some.values[uploads.rows_of(np.isin(uploads.users, view.users))]
        hits.append(RANKING.run(view, truth).mean)
    return hits[0] - hits[1]


def test_a_sum_says_something_of_who_is_in_it_and_less_in_a_larger_cohort(ml_100k):
    """What strict mode does not hide: 0.11 with 40 parties, 0.004 with all 943."""
    few, many = gain_of_taking_part(ml_100k, 40), gain_of_taking_part(ml_100k, 400)
    assert few > 0.03
    assert many < 0.5 * few


@pytest.mark.parametrize("attack", [CALIBRATED, UNMIXING], ids=named)
def test_an_attack_on_sums_needs_the_sums(summed_sparse, attack):
    """Whoever ignored the sums would pass neither half of this."""
    view, _, _ = summed_sparse
    assert not np.array_equal(attack.guess(view), view.prior_guess)
    nothing = replace(view, rows=np.zeros_like(view.rows), beliefs={})
    assert np.array_equal(attack.guess(nothing), view.prior_guess)
    assert np.array_equal(attack.guess(trusting(view, 0.0)), view.prior_guess)


def lied_about(first, users):
    """The same run, in which some users rated the other way round."""
    training = first.run.training
    mirrored = training.scale.min + training.scale.max - training.values
    values = np.where(np.isin(training.user_codes, users), mirrored, training.values)
    lied = replace(training, values=values.astype(training.values.dtype))
    return replace(first, run=replace(first.run, training=lied))


@pytest.mark.parametrize("size", [20, 100])
def test_a_weight_knows_nothing_of_those_whom_it_is_used_on(sparse, size):
    """With people outside the cohort, and without: then each part's weight is from the others."""
    first, _ = first_rounds(sparse, "mean", min_raters=1)
    view, _ = first.summed(np.arange(size))
    weights = weighed(first, CALIBRATED, view).weights
    assert weights.max() > 0
    parts = prior_parts(sparse, first.run.settings.seed) if size == 100 else np.zeros(100, int)
    for part in np.unique(parts[:size]).tolist():
        mine = np.flatnonzero(parts[:size] == part)
        again = weighed(lied_about(first, mine), CALIBRATED, view).weights
        assert np.array_equal(again[mine], weights[mine])
    others = np.setdiff1d(np.arange(100), mine)
    again = weighed(lied_about(first, others), CALIBRATED, view).weights
    assert not np.array_equal(again[mine], weights[mine])  # whom it was chosen on decides
