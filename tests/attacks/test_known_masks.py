"""What the server knows of masks, and what it makes of it."""

from dataclasses import replace

import numpy as np
import pytest

from fedmmf.attacks.calibrated import Belief, most_probable
from fedmmf.attacks.view import nearest_level

from .conftest import first_rounds

MASKS = ("none", "mean", "lr", "fm", "nn")


def whole_view(ratings, mask, **changes):
    """Round 1 of everybody in one sum, with every item in it."""
    first, _ = first_rounds(ratings, mask, min_raters=1, **changes)
    view, truth = first.summed(np.arange(ratings.n_users))
    return first, view, truth


@pytest.mark.parametrize("mask", MASKS)
def test_expected_residuals_are_those_of_masks_around_the_published_line(small, mask):
    """Whoever expects the true ratings expects the true masked ratings."""
    first, view, truth = whole_view(small, mask)
    known = np.eye(view.prior.shape[1])[nearest_level(truth, view.scale)]
    expected = replace(view, prior=known).expected
    masked = first.run.masks.masked_ratings - view.item_factors[view.lists.items, 0]
    np.testing.assert_allclose(expected, masked, atol=1e-4)


@pytest.mark.parametrize("mask", MASKS)
def test_exact_residuals_give_every_rating(small, mask):
    """Where nothing is in doubt, it is the inversion of a ridge mask."""
    first, view, truth = whole_view(small, mask)
    masked = first.run.masks.masked_ratings - view.item_factors[view.lists.items, 0]
    belief = Belief(masked - view.expected, np.zeros(len(truth)), spread=1.0)
    assert np.mean(most_probable(view, belief) == truth) > 0.98


def test_masks_that_are_estimated_with_the_factors_are_the_line(small):
    _, view, _ = whole_view(small, "lr")
    joint = replace(view.masks, plan=replace(view.masks.plan, joint=True))
    values = view.public_mean
    np.testing.assert_allclose(
        joint.expected(values, view.lists), values - view.masks.line[view.lists.items]
    )
    assert not joint.is_private
