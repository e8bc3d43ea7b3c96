"""The contract of an aggregation scheme: two sides that exchange messages, and their simulation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedmmf.arrays import Array
from fedmmf.errors import WireError
from fedmmf.masks.population import MAX_LINE_COLUMNS, TOTAL_BOUND, Population, n_totals
from fedmmf.solvers.contract import Bounds, Solver, UpdateShape
from fedmmf.wire import Catalogue, Layout, Round, Survey
from fedmmf.wire.messages import Expected

if TYPE_CHECKING:
    from fedmmf.aggregation.party_side import PartyContext, PartySide
    from fedmmf.aggregation.server_side import ServerContext, ServerSide
    from fedmmf.aggregation.simulated import Cost, CostInput, Group, Simulated

CORRUPT, DROPOUT = 0.05, 0.05  # shares of the parties that may be corrupt, or drop out
_SPARE = 100  # rounds beyond twice the requested number, for repeating rounds that failed
HELD_OUT_TOTALS = 2  # each update's totals begin with the held-out count and squared error
Work = Survey | Round
"""What is summed: a broadcast."""


@dataclass(frozen=True, eq=False)
class Census:
    """The result of a survey: raters per item, and what users have in common."""

    n_raters: Array  # (n_items,) of the whole catalogue
    population: Population  # what users have in common

    @classmethod
    def unknown(cls, catalogue: Catalogue) -> "Census":
        """Return a census without raters, for runs in which no survey is allowed."""
        nobody = np.zeros(catalogue.n_items, np.int64)
        return cls(nobody, Population.unknown(catalogue.scale))


def last_number(settings: Any) -> int:
    """Highest round number of a run: each attempt takes a number, and numbers only increase.

    With a privacy budget there are no spare rounds: each attempt costs as much as a round.
    """
    wanted = int(settings.max_rounds)
    return wanted if settings.scheme.has_budget else 2 * wanted + _SPARE


def lost_share(batch: int) -> float:
    """Share of the parties that a round loses when each drop-out takes its whole batch along."""
    return round(1 - (1 - DROPOUT) ** batch, 9)  # rounded: a share of parties needs no more digits


def columns_of(settings: Any, n_features: int) -> int:
    """Number of columns of the population's line, where masks see `n_features` features.

    The line is a constant where surveys are in the clear, since moments of ratings and features
    would reveal ratings. It is a constant also where masks decide what leaves, and the middle of
    the scale where there is no survey.
    """
    is_told = settings.is_strict and not settings.scheme.has_budget
    return 1 + n_features if is_told and n_features < MAX_LINE_COLUMNS else 1


def survey_sizes(n_catalogue: int, n_rows: int, n_columns: int = 0) -> Expected:
    """Sizes of the answers to a survey.

    Args:
        n_catalogue: all items.
        n_rows: all items where raters are counted, those of the layout where ratings are summed.
        n_columns: of moments, which have no rows; 0: there are no totals.
    """
    return _sizes_of(n_catalogue, n_rows, n_totals(n_columns) if n_columns else 0)


def _sizes_of(n_catalogue: int, n_rows: int, size: int) -> Expected:
    """Sizes of answers with rows of one column, and so many totals."""
    update_shape = UpdateShape(rank=1, width=1, broadcast_width=1, n_parameters=0, n_totals=size)
    return Expected(n_catalogue, n_rows, update_shape, size)


def round_sizes(n_catalogue: int, layout: Layout, update_shape: UpdateShape) -> Expected:
    """Sizes of a round's broadcast, and of the answers to it."""
    return Expected(
        n_catalogue, len(layout.items), update_shape, HELD_OUT_TOTALS + update_shape.n_totals
    )


@dataclass(frozen=True)
class Shapes:
    """Sizes that both sides know, from which the sizes of every sum in the run follow."""

    n_catalogue: int
    columns: int  # of what users have in common
    update_shape: UpdateShape  # of the solver

    def known(self, layout: Layout | None) -> Expected:
        """Return the sizes that broadcasts are checked against, before and after the layout."""
        if layout is None:
            return survey_sizes(self.n_catalogue, self.n_catalogue)
        return round_sizes(self.n_catalogue, layout, self.update_shape)

    def of(self, asks: str, layout: Layout | None) -> Expected:
        """Return the sizes of answers; `asks` is what `asked_by` returns.

        Raises:
            WireError: ratings, updates or newcomers are asked for, and there is no layout.
        """
        if asks == "counts":
            return survey_sizes(self.n_catalogue, self.n_catalogue)
        if asks == "moments":
            return survey_sizes(self.n_catalogue, 0, self.columns)
        if layout is None:
            raise WireError(f"a sum of {asks} needs a layout first; none was adopted")
        if asks == "ratings":
            return survey_sizes(self.n_catalogue, len(layout.items))
        if asks == "newcomers":
            return _sizes_of(self.n_catalogue, 0, self.update_shape.n_newcomer)
        return round_sizes(self.n_catalogue, layout, self.update_shape)


def asked_by(work: Work) -> str:
    """Return what a broadcast asks for: counts, moments, ratings, updates or newcomers.

    The last round, which hands out the final factors, asks for what the prior of newcomers is made
    from.
    """
    if isinstance(work, Survey):
        return work.asks
    return "newcomers" if work.is_last else "updates"


def bounds_of(catalogue: Catalogue, solver: Solver, for_survey: bool) -> Bounds:
    """Bounds of one user's numbers: the solver's, or those of a survey's counts and moments."""
    return Bounds(1.0, TOTAL_BOUND) if for_survey else solver.bounds(catalogue.scale.span)


@dataclass(frozen=True, eq=False)
class Contribution:
    """The rows, counts and totals that the users of one party add to a sum."""

    items: Array  # (n,) increasing
    counts: Array  # (n,) users who rated each
    rows: Array  # (n, width) float32, or int64 steps of fixed point
    totals: Array  # (n_totals,) float64, or int64 steps of fixed point


def _never(settings: Any) -> bool:
    return False


@dataclass(frozen=True)
class AggregationScheme:
    """One aggregation scheme.

    Its settings and their rules are a group of their own, registered in `fedmmf.settings`.
    """

    name: str  # what the settings call it
    hides: bool  # whether a party that sends updates only in sums may take part
    party: Callable[["PartyContext"], "PartySide"]  # a `PartySide` for a `PartyContext`
    server: Callable[["ServerContext"], "ServerSide"]  # a `ServerSide` for a `ServerContext`
    # the `Group`s of a `Simulated` user group; their sums are added
    simulate: Callable[["Simulated"], "list[Group]"]
    cost: Callable[["CostInput"], "Cost"]  # the `Cost` of a `CostInput`
    # for settings, sentences for people: what is hidden from whom
    disclosure: Callable[[Any], tuple[str, ...]]
    # for settings and rounds used, a `PrivacySpent`; None: there is no budget
    spent: Callable[[Any, int], dict[str, Any]] | None = None
    # for settings and the number of corrupt parties, the noise that a party adds and counts; None:
    # there is none
    guarantee: Callable[[Any, int], Any] | None = None
    default_rounds: int | None = None  # rounds where nobody asks for a number; None: the solver's
    # whose updates leave outside sums: nobody's, those of users whom the rule of the scheme picks,
    # or everybody's
    in_clear: Literal["nobody", "some", "everybody"] = "nobody"
    # for settings, whether sums are made by `secagg`, so that parties can sign and be in batches
    is_secagg: Callable[[Any], bool] = _never
    across_machines: bool = True  # whether it needs no channel that the server cannot read

    @property
    def has_budget(self) -> bool:
        """Whether each round costs privacy: then nothing is surveyed, held out or repeated."""
        return self.spent is not None
