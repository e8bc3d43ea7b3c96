"""Masks as linear functions of public item features, where sums over a whole catalogue are needed.

Where unrated items count, every party needs the sum of f_u(i) q_i over all items, and the server
the sum of f_u(i) p_u over all users. With f_u(i) = x_i . w_u both go through small matrices. The
masks of this package are linear in what they see; of any other, and of what only masks are given,
this is the line that is nearest over the catalogue, used for unrated items alone.
"""

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data.rated_items import RatedItems
from fedmmf.masks.fitting import Applicable, Runner, apply_mask

PROBES = 1024  # items at most that a line is fitted to
BLOCK = 4096  # users whose masks are applied at once


def lines_of(masks: Applicable, features: Array, design: Array, runner: Runner) -> Array:
    """Weights of the design that give f_u(i) on the rating scale. (n_users, m)."""
    n_users, m = len(masks.theta), design.shape[1]
    if masks.family.is_linear and masks.theta.shape[1] in (0, m):
        lines = np.zeros((n_users, m))
        lines[:, : masks.theta.shape[1]] = masks.scale.span * masks.theta
        line = masks.population.line if masks.family.is_centred else np.zeros(1)
        lines[:, : len(line)] += line
        return lines
    return _fitted(masks, features, design, runner)


def _fitted(masks: Applicable, features: Array, design: Array, runner: Runner) -> Array:
    """Fit by least squares over the catalogue, or over evenly spread items. (n_users, m)."""
    probes = np.unique(np.linspace(0, len(design) - 1, PROBES).astype(np.int32))
    solve = np.linalg.pinv(design[probes])  # (m, n_probes)
    lines = np.empty((len(masks.theta), design.shape[1]))
    for start in range(0, len(lines), BLOCK):
        part = _Some(masks, slice(start, start + BLOCK))
        n = len(part.theta)
        lists = RatedItems(len(probes) * np.arange(n + 1), np.tile(probes, n))
        values = apply_mask(part, lists, features, runner).reshape(n, len(probes))
        lines[start : start + BLOCK] = values @ solve.T
    return lines


class _Some:
    """Masks of some of the users."""

    def __init__(self, masks: Applicable, users: slice) -> None:
        self.family, self.scale = masks.family, masks.scale
        self.population = masks.population
        self.theta = masks.theta[users]
