"""Interactions against slow sums, and what they are worth: masks that are what they are called."""

from hashlib import sha256

import numpy as np
import pytest

from fedmmf.masks import FAMILIES
from fedmmf.masks.feature_maps import (
    HIDDEN_GAIN,
    HIDDEN_SCALE,
    N_COLUMNS,
    PRODUCT_SCALE,
    expand,
)

X = np.random.default_rng(3).standard_normal((7, 5))


def drawn(text):
    """What is written in spec/solvers.md: six bytes of a hash, in [-1, 1)."""
    return int(sha256(text.encode()).hexdigest()[:12], 16) / 2**47 - 1


@pytest.mark.parametrize("mask", ["none", "mean", "lr"])
def test_other_masks_see_features_as_they_are(mask):
    assert expand(mask, X) is X


@pytest.mark.parametrize("mask", FAMILIES.names())
def test_of_no_features_there_are_no_interactions(mask):
    assert expand(mask, X[:, :0]).shape == (7, 0)


def test_products_are_sums_over_pairs_of_features():
    found = expand("fm", X)
    assert found.shape == (7, 5 + N_COLUMNS)
    assert np.array_equal(found[:, :5], X)
    for column in (0, 17, 63):
        v = [np.sqrt(3) * drawn(f"fm {column} {feature}") for feature in range(5)]
        for row, x in enumerate(X):
            pairs = [v[i] * v[j] * x[i] * x[j] for i in range(5) for j in range(i)]
            assert found[row, 5 + column] == pytest.approx(PRODUCT_SCALE * sum(pairs))


def test_hidden_units_are_those_of_a_network():
    found = expand("nn", X)
    for column in (0, 40):
        w = [np.sqrt(3) * drawn(f"nn {column} {feature}") for feature in range(5)]
        unit = np.tanh(HIDDEN_GAIN * (X @ w + drawn(f"nn offset {column} 0")))
        np.testing.assert_allclose(found[:, 5 + column], HIDDEN_SCALE * unit)
