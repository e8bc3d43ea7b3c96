"""Lists in blocks and their means, and the best of some scores against sorting all of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmmf.data.rated_items import RatedItems, top_n

SEEDS = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@given(seed=SEEDS, size=st.integers(0, 500), n=st.integers(1, 30), n_levels=st.integers(1, 600))
def test_the_best_are_those_of_a_full_sort_and_ties_go_by_position(kind, seed, size, n, n_levels):
    rng = np.random.default_rng(seed)
    values = rng.integers(n_levels, size=size).astype(kind) - 3
    values[rng.random(size) < rng.choice([0, 0.3, 0.99, 1])] = -np.inf
    places = np.flatnonzero(values > -np.inf).tolist()
    expected = sorted(places, key=lambda at: (-values[at], at))[:n]
    assert top_n(values, n).tolist() == expected


def test_the_scores_are_left_as_they_are():
    scores = np.array([1.0, 3.0, 2.0])
    assert top_n(scores, 2).tolist() == [1, 2]
    assert scores.tolist() == [1.0, 3.0, 2.0]


LENGTHS = st.lists(st.integers(0, 6), min_size=1, max_size=12)


def lists_of(lengths):
    """Users with so many items each, and some columns of values for each entry."""
    items = np.concatenate([np.arange(n) for n in lengths]).astype(np.int32)
    values = np.random.default_rng(len(items)).standard_normal((len(items), 2))
    return RatedItems(np.concatenate(([0], np.cumsum(lengths))), items), values


@given(lengths=LENGTHS, size=st.integers(1, 20))
def test_blocks_are_all_users_in_turn_and_no_longer_than_they_must_be(lengths, size):
    whole, values = lists_of(lengths)
    blocks = list(whole.blocks(size))
    assert np.concatenate([block.lengths for block in blocks]).tolist() == lengths
    parts = [values[block.entries] for block in blocks]
    assert np.array_equal(np.concatenate(parts), values)
    for block, part in zip(blocks, parts, strict=True):
        assert block.items is whole.items  # nothing is copied
        assert len(part) == block.lengths.sum()
        assert len(part) <= size or block.n_users == 1
    assert len(list(whole.blocks())) == 1


@given(lengths=LENGTHS, size=st.integers(1, 20))
def test_means_are_those_of_each_users_entries_and_zero_of_none(lengths, size):
    whole, values = lists_of(lengths)
    own = np.split(values, np.cumsum(lengths)[:-1])
    expected = np.array([part.mean(axis=0) if len(part) else np.zeros(2) for part in own])
    found = [block.means(values[block.entries]) for block in whole.blocks(size)]
    np.testing.assert_allclose(np.concatenate(found), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(whole.means(values[:, 0]), expected[:, 0], rtol=1e-12, atol=1e-12)
