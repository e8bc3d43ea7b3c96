"""What a server learns in strict mode, from real secure sums."""

import numpy as np
import pytest

from fedmmf import simulation
from fedmmf.attacks import strict
from fedmmf.attacks.gradients import GRADIENTS, to_exposed
from fedmmf.attacks.membership import MEMBERSHIP
from fedmmf.attacks.ranking import ranking
from fedmmf.attacks.self_audit import rating_attacks
from fedmmf.attacks.view import restrict

from .conftest import record_plain

ON_RATINGS = rating_attacks("lr")


def named(attack):
    return getattr(attack, "name", None)


@pytest.mark.parametrize(
    ("as_updates", "attack"),
    [
        *((strict.vectors_as_updates, attack) for attack in (*ON_RATINGS, ranking())),
        *((strict.sums_as_updates, attack) for attack in ON_RATINGS),
    ],
    ids=named,
)
def test_no_attack_beats_the_prior(small, strict_small, attack, as_updates):
    seen, known, _, settings = strict_small
    features = simulation.feature_matrix(small, settings)
    view = to_exposed(as_updates(seen, known), features, settings)
    truth = small.values[known.rows_of(np.isin(known.users, view.users))]
    assert attack.run(view, truth).advantage_interval[0] <= 0


def test_gradients_of_masked_vectors_give_no_masked_rating(strict_small):
    seen, known, masked, _ = strict_small
    result = GRADIENTS.run(strict.vectors_as_updates(seen, known), masked)
    assert result.mean < 0.01
    assert result.advantage_interval[0] <= 0


def test_masked_vectors_name_no_item(strict_small, rated_small):
    seen, known, _, _ = strict_small
    view = strict.vectors_as_members(seen, known, rated_small.mean(axis=0))
    result = MEMBERSHIP.run(view, rated_small)
    assert result.mean == pytest.approx(0.5, abs=0.05)  # six standard errors


def test_the_sum_gives_the_counts_and_that_is_all_it_names(strict_small, rated_small):
    seen, known, _, _ = strict_small
    counts = rated_small.sum(axis=0)
    shown = np.where(counts < 3, 0, counts)  # rare items are left out
    assert np.array_equal(seen.sums[0].n_raters, shown)
    view = strict.sums_as_members(seen, known, shown / len(rated_small))
    result = MEMBERSHIP.run(view, rated_small)
    np.testing.assert_allclose(result.success, result.baseline)


def gain_of_taking_part(ratings, n_users):
    """How much better a sum ranks a user's items if the user is in it."""
    some = restrict(ratings, np.arange(n_users))
    uploads, _, settings = record_plain(some, "lr")
    features = simulation.feature_matrix(some, settings)
    hits = []
    for with_own in (True, False):
        view = to_exposed(strict.twin_sums(uploads, with_own=with_own), features, settings)
        truth = some.values[uploads.rows_of(np.isin(uploads.users, view.users))]
        hits.append(ranking().run(view, truth).mean)
    return hits[0] - hits[1]


def test_a_sum_says_something_of_who_is_in_it_and_less_in_a_larger_cohort(ml_100k):
    """What strict mode does not hide: 0.11 with 40 parties, 0.004 with all 943."""
    few, many = gain_of_taking_part(ml_100k, 40), gain_of_taking_part(ml_100k, 400)
    assert few > 0.03
    assert many < 0.5 * few
