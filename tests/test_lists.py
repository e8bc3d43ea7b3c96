"""The best of some scores, against sorting all of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmmf.lists import best_first

SEEDS = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@given(seed=SEEDS, size=st.integers(0, 500), n=st.integers(1, 30), n_levels=st.integers(1, 600))
def test_the_best_are_those_of_a_full_sort_and_ties_go_by_position(kind, seed, size, n, n_levels):
    rng = np.random.default_rng(seed)
    values = rng.integers(n_levels, size=size).astype(kind) - 3
    values[rng.random(size) < rng.choice([0, 0.3, 0.99, 1])] = -np.inf
    places = np.flatnonzero(values > -np.inf).tolist()
    expected = sorted(places, key=lambda at: (-values[at], at))[:n]
    assert best_first(values, n).tolist() == expected


def test_the_scores_are_left_as_they_are():
    scores = np.array([1.0, 3.0, 2.0])
    assert best_first(scores, 2).tolist() == [1, 2]
    assert scores.tolist() == [1.0, 3.0, 2.0]
