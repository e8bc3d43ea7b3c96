"""Masks as linear functions of public features."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from fedmmf.data.rated_items import RatedItems
from fedmmf.data.scales import RatingScale
from fedmmf.masks import FAMILIES, MaskFamily, MaskPlan, fit_masks, lines
from fedmmf.masks.feature_maps import design_of
from fedmmf.masks.fitting import MaskInput, OneByOne, apply_mask
from fedmmf.masks.lines import lines_of
from fedmmf.masks.population import Population

N_USERS, N_ITEMS, D = 9, 31, 3
SCALE = RatingScale(1, 5, 1)
FEATURES = np.random.default_rng(1).standard_normal((N_ITEMS, D))
EVERYTHING = RatedItems(N_ITEMS * np.arange(N_USERS + 1), np.tile(np.arange(N_ITEMS), N_USERS))


POPULATIONS = {
    "nothing": None,
    "a level": Population.at(3.6),
    "a line": Population(np.array([3.1, 0.3, -0.2, 0.1]), 4.0),  # which leads nowhere off the scale
}


def fitted(kind, common="a level"):
    """Masks of users with few ratings, and of one with none."""
    generator, plan = np.random.default_rng(2), MaskPlan(kind, strength=2.0)
    parts = [np.sort(generator.permutation(N_ITEMS)[: 2 * user]) for user in range(N_USERS)]
    indptr = np.concatenate(([0], np.cumsum([len(part) for part in parts])))
    lists = RatedItems(indptr, np.concatenate(parts).astype(np.int32))
    ratings = generator.integers(1, 6, len(lists.items)).astype(np.float32)
    given = MaskInput(lists, ratings, SCALE, FEATURES, POPULATIONS[common])
    return fit_masks(plan, given, OneByOne())


def everywhere(masks):
    """f_u(i) of every user and item. (n_users, n_items)."""
    return apply_mask(masks, EVERYTHING, FEATURES, OneByOne()).reshape(N_USERS, N_ITEMS)


@pytest.mark.parametrize("common", POPULATIONS)
@pytest.mark.parametrize("kind", ["none", "mean", "lr"])
def test_the_line_of_a_linear_mask_is_the_mask(kind, common):
    masks = fitted(kind, common)
    sees_features = FAMILIES[kind].needs_features or common == "a line"
    design = design_of(FEATURES, sees_features=sees_features)
    found = lines_of(masks, FEATURES, design, OneByOne())
    assert found.shape == (N_USERS, design.shape[1])
    np.testing.assert_allclose(found @ design.T, everywhere(masks), rtol=1e-6, atol=1e-6)
    assert found.any() == (kind != "none")
    known = masks.population.line
    if kind != "none":  # who has rated nothing has the line of all
        np.testing.assert_allclose(found[0], np.resize([*known, 0, 0, 0], len(found[0])), atol=1e-5)


@pytest.mark.parametrize("kind", ["none", "mean"])
def test_a_constant_is_a_line_of_a_wider_design_as_well(kind):
    masks, design = fitted(kind), design_of(FEATURES, sees_features=True)
    found = lines_of(masks, FEATURES, design, OneByOne())
    np.testing.assert_allclose(found @ design.T, everywhere(masks), atol=1e-5)
    np.testing.assert_allclose(found[:, 1:], 0.0, atol=1e-5)


def test_features_that_masks_alone_are_given_are_averaged_out():
    """Where the design has fewer columns than a linear mask sees: least squares."""
    masks, design = fitted("lr", "a line"), design_of(FEATURES[:, :1], sees_features=True)
    found = lines_of(masks, FEATURES, design, OneByOne())
    expected = np.linalg.lstsq(design, everywhere(masks).T)[0].T
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def bent(common="a level"):
    """Masks of a family from elsewhere, that is no line."""
    family = replace(
        FAMILIES["lr"], predict=lambda x, theta: theta[0] + x**2 @ theta[1:], is_linear=False
    )
    masks = fitted("lr", common)
    return Bent(family, masks.scale, masks.population, masks.theta)


@dataclass
class Bent:
    family: MaskFamily
    scale: RatingScale
    population: Population
    theta: Any


@pytest.mark.parametrize("common", POPULATIONS)
def test_the_line_of_any_other_mask_is_that_of_least_squares(common):
    masks, design = bent(common), design_of(FEATURES, sees_features=True)
    values = everywhere(masks)
    found = lines_of(masks, FEATURES, design, OneByOne())
    expected = np.linalg.lstsq(design, values.T)[0].T
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    rest = found @ design.T - values
    assert np.abs(rest).max() > 1e-3  # it is no line
    np.testing.assert_allclose(rest @ design, 0.0, atol=1e-4)  # and nothing linear is left


def test_blocks_of_users_are_fitted_as_all_at_once(monkeypatch):
    masks, design = bent("a line"), design_of(FEATURES, sees_features=True)
    at_once = lines_of(masks, FEATURES, design, OneByOne())
    monkeypatch.setattr(lines, "BLOCK", 4)
    in_blocks = lines_of(masks, FEATURES, design, OneByOne())
    np.testing.assert_allclose(in_blocks, at_once, rtol=1e-9, atol=1e-12)


def test_a_large_catalogue_is_probed_evenly(monkeypatch):
    masks, design = bent(), design_of(FEATURES, sees_features=True)
    monkeypatch.setattr(lines, "PROBES", 11)
    probes = np.arange(0, N_ITEMS, 3)
    assert len(probes) == 11
    expected = np.linalg.lstsq(design[probes], everywhere(masks)[:, probes].T)[0].T
    found = lines_of(masks, FEATURES, design, OneByOne())
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_all_families_are_linear_in_what_they_see():
    assert all(FAMILIES[name].is_linear for name in ("none", "mean", "lr", "fm", "nn"))


@dataclass
class Given:
    """Masks that came from elsewhere, as a file of a model holds them."""

    family: MaskFamily
    scale: RatingScale
    population: Population
    theta: Any


def test_whatever_has_parameters_will_do():
    theta = np.array([[0.1, 0.2, 0.0, -0.1], [0.0, 0.0, 0.5, 0.0]])
    design = design_of(FEATURES, sees_features=True)
    masks = Given(FAMILIES["lr"], SCALE, Population.at(3.5), theta)
    found = lines_of(masks, FEATURES, design, OneByOne())
    np.testing.assert_allclose(found, [[3.9, 0.8, 0.0, -0.4], [3.5, 0.0, 2.0, 0.0]])
    masks.population = Population(np.array([3.5, -1.0, 0.25, 0.0]), 2.0)
    found = lines_of(masks, FEATURES, design, OneByOne())
    np.testing.assert_allclose(found, [[3.9, -0.2, 0.25, -0.4], [3.5, -1.0, 2.25, 0.0]])
