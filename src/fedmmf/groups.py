"""Simulated sums: who is summed with whom, in fixed point or not, with how much noise.

What `aggregation` does with real messages, this says to the kernels. A secure sum is the exact sum
of fixed-point updates, so the simulation makes that sum and leaves the masks out that would cancel.
"""

from dataclasses import dataclass

import numpy as np

from fedmmf.aggregation.accounting import multiplier
from fedmmf.aggregation.dp import Guarantee
from fedmmf.aggregation.layout import Bounds, ring_of
from fedmmf.arrays import Array
from fedmmf.config import Settings
from fedmmf.errors import SettingsError
from fedmmf.factorization.contract import ItemSums
from fedmmf.factorization.sides import Cohort, Raters, Sides
from fedmmf.secagg import FixedPoint, least_cohort


@dataclass(frozen=True, eq=False)
class Group:
    """Parties that are summed together."""

    cohort: Cohort
    is_member: Array  # (n_users,) bool
    counts: Array  # (n_items,) raters as the sum shows them
    totals: FixedPoint | None = None  # None: floating point
    noise_std: float = 0.0  # of each entry of the sum; such a sum has no totals
    is_collected: bool = False  # its masked ratings are with the server; it holds nothing out

    def sums(self, rows: Array, totals: Array, noise: np.random.Generator) -> ItemSums:
        """What the server gets: rows of this cohort, totals of its members.

        Args:
            rows: summed over the cohort. (n_items, width)
            totals: of every user. (n_users, n_totals)
            noise: where simulated noise comes from.
        """
        if self.noise_std:
            rows = rows + self.noise_std * noise.standard_normal(rows.shape, np.float32)
        mine = totals[self.is_member]
        if self.noise_std or self.is_collected:
            mine = np.zeros_like(mine)
        if self.totals is None:
            return ItemSums(rows, self.counts, mine.sum(axis=0))
        total = self.totals.quantize(mine).sum(axis=0) / self.totals.scale
        return ItemSums(rows, self.counts, total)


def make_groups(sides: Sides, settings: Settings, span: float, in_clear: Array) -> list[Group]:
    """The groups of a run.

    Args:
        sides: what the parties train on.
        settings: of the run.
        span: of the rating scale.
        in_clear: who shares updates in the clear. (n_users,) bool
    """
    if settings.aggregation == "dp":
        return [_noisy(sides, guarantee_of(settings))]
    groups = []
    if in_clear.any():
        raters = sides.raters.select(in_clear[sides.raters.users])
        groups.append(_plain(raters, in_clear, is_collected=settings.collect_masked))
    least = least_cohort(active=settings.signed)
    if np.count_nonzero(~in_clear) >= least:
        others = sides.raters.select(~in_clear[sides.raters.users])
        groups.append(_summed(others, ~in_clear, settings, span))
    if not groups:
        raise SettingsError(
            f"a sum that hides its summands needs at least {least} users; got "
            f"{sides.n_users}. Add users, or simulate without protection: --sharing plain"
        )
    return groups


def guarantee_of(settings: Settings) -> Guarantee:
    """What every party demands of its updates under `dp`."""
    rounds = settings.ensemble * settings.max_rounds
    noise = multiplier(settings.dp_epsilon, rounds, settings.dp_delta)
    return Guarantee(settings.dp_clip, noise, settings.dp_noise, rounds)


def _plain(raters: Raters, is_member: Array, *, is_collected: bool = False) -> Group:
    return Group(Cohort(raters), is_member, raters.counts, is_collected=is_collected)


def _summed(raters: Raters, is_member: Array, settings: Settings, span: float) -> Group:
    """A sum that hides its summands, without the items that too few of its members rated."""
    is_common = raters.counts >= settings.min_raters
    raters = raters.select(np.repeat(is_common, raters.counts))
    bounds, ring = Bounds.of(settings.solver, span), ring_of(settings.solver)
    n_parties = int(is_member.sum())
    rows, totals = (FixedPoint(n_parties, bound, ring) for bound in (bounds.row, bounds.total))
    cohort = Cohort(raters, bounds.row, float(rows.scale))
    return Group(cohort, is_member, raters.counts, totals)


def _noisy(sides: Sides, guarantee: Guarantee) -> Group:
    """Every party's rows are bounded, and everybody seems to have rated everything."""
    n = sides.n_users
    bounds = guarantee.bounds(n)
    scale = FixedPoint(n, bounds.row, ring_of("sgd")).scale
    cohort = Cohort(sides.raters, bounds.row, float(scale), guarantee.clip)
    counts = np.full(len(sides.raters.counts), n)
    noise_std = guarantee.noise_std(n) * float(np.sqrt(n))
    everybody = np.ones(n, bool)
    return Group(cohort, everybody, counts, noise_std=noise_std)
