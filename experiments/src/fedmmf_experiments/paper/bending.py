"""Nonlinearity of masks: the share of a mask that no linear function of the features has."""

from dataclasses import dataclass

import numpy as np

from fedmmf.arrays import Array
from fedmmf.masks.lines import lines_of
from fedmmf.simulation import Prepared
from fedmmf.solvers.contract import design_of


@dataclass(frozen=True, eq=False)
class BentShares:
    """For each user, the share of the variance of f_u over the catalogue that is not linear."""

    whole: Array  # (n_users,) with what users have in common
    private: Array  # (n_users,) without


def bent_shares(run: Prepared) -> BentShares:
    """Compute the shares for a run's masks, over all items."""
    design = design_of(run.seen, sees_features=True)  # (n_items, m)
    lines = lines_of(run.masks, run.features, design, run.engine.mask_runner())
    common = np.zeros(design.shape[1])
    common[: len(run.masks.population.line)] = run.masks.population.line
    plain = design_of(run.content, sees_features=True)
    rest = design - plain @ np.linalg.lstsq(plain, design)[0]  # what no line has (n_items, m)
    return BentShares(*(_share(weights, design, rest) for weights in (lines, lines - common)))


def _share(lines: Array, design: Array, rest: Array) -> Array:
    """Variance of the residuals divided by that of all values. (n_users,)."""
    whole = np.var(lines @ design.T, axis=1)
    return np.asarray(np.var(lines @ rest.T, axis=1) / np.maximum(whole, 1e-12))
