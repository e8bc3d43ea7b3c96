"""How much of a mask no line over the item features has."""

import numpy as np
import pytest

from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf_experiments.paper.strengths import bent_shares


@pytest.mark.parametrize("mask", ["fm", "nn"])
def test_masks_bend_by_a_twentieth_of_their_variance_at_least(ml_100k, mask):
    """Of the median user; of the whole mask, and of what is private in it."""
    train, _ = ml_100k.split(0.2, seed=0)
    shares = bent_shares(prepare(train, Settings(mask=mask)))
    assert np.median(shares.whole) > 0.05
    assert np.median(shares.private) > 0.05


def test_a_line_does_not_bend(small):
    shares = bent_shares(prepare(small, Settings(mask="lr")))
    np.testing.assert_allclose(shares.private, 0.0, atol=1e-9)
