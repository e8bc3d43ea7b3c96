"""Items with too few raters: how many it takes, by counting what can happen to them."""

from itertools import product

import numpy as np
import pytest

from fedmmf.aggregation.contract import DROPOUT
from fedmmf.aggregation.rare_items import MAX_OFTEN, are_rare, few_stay, raters_needed


def by_enumeration(n_raters, min_raters):
    """Every way in which raters stay or drop out, and how likely it is."""
    chance = 0.0
    for stays in product((False, True), repeat=n_raters):
        if 0 < sum(stays) < min_raters:
            chance += np.prod([1 - DROPOUT if stay else DROPOUT for stay in stays])
    return chance


@pytest.mark.parametrize("min_raters", [1, 2, 3, 4, 6, 9])
def test_few_stay_as_often_as_all_that_can_happen_says(min_raters):
    for n_raters in range(1, 11):
        expected = by_enumeration(n_raters, min_raters)
        assert few_stay(n_raters, min_raters) == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_few_stay_as_often_as_in_a_simulation():
    """Also where there are too many raters to go through everything."""
    stay = np.random.default_rng(1).binomial(30, 1 - DROPOUT, 200_000)
    for min_raters in (26, 28, 30):
        often = np.mean((stay > 0) & (stay < min_raters))
        assert few_stay(30, min_raters) == pytest.approx(often, rel=0.05)


@pytest.mark.parametrize(("min_raters", "needed"), [(1, 1), (2, 3), (3, 5)])
def test_a_few_more_raters_are_needed_than_have_to_stay(min_raters, needed):
    assert raters_needed(min_raters) == needed


@pytest.mark.parametrize("min_raters", [1, 2, 3, 4, 10, 50, 1000])
def test_as_many_are_needed_as_make_it_rare_that_few_stay_and_not_one_more(min_raters):
    needed = raters_needed(min_raters)
    assert needed >= min_raters
    assert few_stay(needed, min_raters) <= MAX_OFTEN
    assert needed == min_raters or few_stay(needed - 1, min_raters) > MAX_OFTEN


def test_items_are_rare_below_what_is_needed_those_that_nobody_rated_too():
    """Of none, somebody may come back who missed the survey, and be the only one."""
    counts = np.array([0, 1, 2, 3, 4, 5, 9])
    assert np.array_equal(np.flatnonzero(are_rare(counts, 3)), [0, 1, 2, 3, 4])
    assert np.array_equal(np.flatnonzero(are_rare(counts, 2)), [0, 1, 2])
    assert np.array_equal(np.flatnonzero(are_rare(counts, 1)), [0])
