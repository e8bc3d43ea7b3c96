"""What a server learns in strict mode, from real secure sums."""

import numpy as np
import pytest

from fedmmf.attacks import rating_attacks
from fedmmf.attacks.gradients import GRADIENTS, to_exposed
from fedmmf.attacks.membership import MEMBERSHIP
from fedmmf.attacks.ranking import RANKING
from fedmmf.audit import readings
from fedmmf.audit.exposure import restrict
from fedmmf.sums.rare import raters_needed

from .conftest import record_plain

ON_RATINGS = rating_attacks("lr")


def named(attack):
    return getattr(attack, "name", None)


@pytest.mark.parametrize(
    ("as_updates", "attack"),
    [
        *((readings.vectors_as_updates, attack) for attack in (*ON_RATINGS, RANKING)),
        *((readings.sums_as_updates, attack) for attack in ON_RATINGS),
    ],
    ids=named,
)
def test_no_attack_beats_the_prior(small, strict_small, attack, as_updates):
    seen, _, known = strict_small
    view = to_exposed(as_updates(seen, known), known)
    truth = small.values[known.rows_of(np.isin(known.users, view.users))]
    assert attack.run(view, truth).advantage_interval[0] <= 0


def test_gradients_of_masked_vectors_give_no_masked_rating(strict_small):
    seen, masked, known = strict_small
    result = GRADIENTS.run(readings.vectors_as_updates(seen, known), masked)
    assert result.mean < 0.01
    assert result.advantage_interval[0] <= 0


def test_masked_vectors_name_no_item(strict_small, rated_small):
    seen, _, known = strict_small
    view = readings.vectors_as_members(seen, known, rated_small.mean(axis=0))
    result = MEMBERSHIP.run(view, rated_small)
    assert result.mean == pytest.approx(0.5, abs=0.05)  # six standard errors


def test_the_sum_gives_the_counts_and_that_is_all_it_names(strict_small, rated_small):
    seen, _, known = strict_small
    counts = rated_small.sum(axis=0)
    shown = np.where(counts < raters_needed(3), 0, counts)  # rare items are left out
    assert np.array_equal(seen.sums[0].n_raters, shown)
    view = readings.sums_as_members(seen, known, shown / len(rated_small))
    result = MEMBERSHIP.run(view, rated_small)
    np.testing.assert_allclose(result.success, result.baseline)


def gain_of_taking_part(ratings, n_users):
    """How much better a sum ranks a user's items if the user is in it."""
    some = restrict(ratings, np.arange(n_users))
    uploads, _, known = record_plain(some, "lr")
    hits = []
    for with_own in (True, False):
        view = to_exposed(readings.twin_sums(uploads, with_own=with_own), known)
        truth = some.values[uploads.rows_of(np.isin(uploads.users, view.users))]
        hits.append(RANKING.run(view, truth).mean)
    return hits[0] - hits[1]


def test_a_sum_says_something_of_who_is_in_it_and_less_in_a_larger_cohort(ml_100k):
    """What strict mode does not hide: 0.11 with 40 parties, 0.004 with all 943."""
    few, many = gain_of_taking_part(ml_100k, 40), gain_of_taking_part(ml_100k, 400)
    assert few > 0.03
    assert many < 0.5 * few
