"""Scales with many levels: attacked in coarser steps, and said so."""

from dataclasses import replace

import numpy as np
import pytest

from fedmmf.attacks.grouping import OFF_SCALE_COST, People, place, user_kinds
from fedmmf.audit.run import coarser
from fedmmf.data.scales import RatingScale


@pytest.mark.parametrize(
    ("scale", "n_levels"),
    [((1, 5, 1), 5), ((0, 20, 0.1), 201), ((-10, 10, 0.01), 201), ((1, 100_000, 1), 201)],
)
def test_a_scale_is_made_coarser_only_where_it_has_to_be(small, scale, n_levels):
    ratings = replace(small, scale=RatingScale(*scale)) if scale != (1, 5, 1) else small
    found, note = coarser(ratings)
    assert found.scale.n_levels == n_levels
    assert (found.scale.min, found.scale.max) == (ratings.scale.min, ratings.scale.max)
    np.testing.assert_array_equal(found.values, ratings.values)
    assert bool(note) == (ratings.scale.n_levels > n_levels)
    if note:
        assert f"has {ratings.scale.n_levels:,} levels" in note[0]


def test_kinds_of_people_are_weighed_as_the_formula_says():
    """One kind after the other, one rating after the other, each with its own sum to 1."""
    generator = np.random.default_rng(0)
    prior = generator.dirichlet(np.ones(4), 6)
    variants, log_weights = user_kinds(4)
    for levels in ([0, 1, 2, 3, 1, 1], [-1, 0, 5, 2, 2, 3]):
        total, off = 0.0, 0
        for variant, log_weight in zip(variants, log_weights, strict=True):
            probability = np.exp(log_weight)
            for row, level in zip(prior, levels, strict=True):
                tilted = row * np.exp(variant)
                probability *= tilted[np.clip(level, 0, 3)] / tilted.sum()
            total += probability
        off = sum(abs(level - np.clip(level, 0, 3)) for level in levels)
        wanted = np.log(total) - OFF_SCALE_COST * off
        assert People.meeting(prior).score(np.array(levels)) == pytest.approx(wanted)


def test_a_thousand_levels_are_placed():
    prior = np.full((5, 1000), 1e-3)
    prior[:, 600] += 1.0
    prior /= prior.sum(axis=1, keepdims=True)
    assert place(np.zeros(5, np.int64), prior).tolist() == [600] * 5
