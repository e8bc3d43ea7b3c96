import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from fedmmf.attacks.membership import MEMBERSHIP, CohortView, area_under_curve, from_updates


def released(counts, min_raters):
    """What a sum shows of its counts: items with fewer raters are left out."""
    return np.where(counts >= min_raters, counts, 0).astype(np.float64)


def from_sum(rated, popularity, users, min_raters=1):
    """One sum over the cohort."""
    shown = released(rated.sum(axis=0), min_raters)
    return CohortView(users, popularity, shown[np.newaxis])


def from_two_sums(rated, popularity, users, min_raters=1):
    """Sums over the cohort with and without each of its users in turn."""
    counts = rated.sum(axis=0)
    without = released(counts - rated, min_raters)  # (n_users, n_items)
    return CohortView(users, popularity, released(counts, min_raters) - without)


@pytest.fixture
def cohort(rated_small):
    """(rated by ten users, popularity among the others, their codes)."""
    return rated_small[:10], rated_small[10:].mean(axis=0), np.arange(10)


def test_the_area_is_that_of_scikit_learn(cohort):
    rated, popularity, users = cohort
    view = from_updates(rated, popularity, users)
    scores = np.random.default_rng(0).integers(0, 4, rated.shape)  # with ties
    expected = [roc_auc_score(r, s) for r, s in zip(rated, scores, strict=True)]
    np.testing.assert_allclose(area_under_curve(view, scores, rated), expected)


def test_an_update_names_its_items(cohort):
    rated, popularity, users = cohort
    assert MEMBERSHIP.run(from_updates(rated, popularity, users), rated).mean == 1


def test_a_larger_cohort_says_less(rated_small):
    popularity = rated_small[30:].mean(axis=0)
    advantages = []
    for size in (1, 4, 30):
        rated = rated_small[:size]
        view = from_sum(rated, popularity, np.arange(size))
        result = MEMBERSHIP.run(view, rated)
        advantages.append(result.mean - result.baseline_mean)
    assert advantages == sorted(advantages, reverse=True)


def test_two_sums_that_differ_by_one_party_name_its_items(cohort):
    rated, popularity, users = cohort
    assert MEMBERSHIP.run(from_two_sums(rated, popularity, users), rated).mean == 1


def test_leaving_out_rare_items_hides_them_alone(cohort):
    rated, popularity, users = cohort
    counts = rated.sum(axis=0)
    view = from_two_sums(rated, popularity, users, min_raters=3)
    shown = view.scores > 0
    assert not shown[:, counts < 3].any()
    assert np.array_equal(shown[:, counts >= 3], rated[:, counts >= 3])
    alone = from_sum(rated, popularity, users, min_raters=3)
    assert not alone.scores[0, counts < 3].any()
