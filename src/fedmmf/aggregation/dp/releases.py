"""The table of a run's releases: all that may leave a party under a privacy budget, in order.

A party works the table out from its charter, as the server does. Round t of a run is entry t of the
table and nothing else, so that a server can ask for no other release, for none twice, and for none
in another order. A round that gave no sum is spent all the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fedmmf.aggregation.dp import accounting
from fedmmf.errors import WireError
from fedmmf.solvers.contract import UPDATES, RequestedRelease


@dataclass(frozen=True)
class TableEntry:
    """One kind of release, as a line of the table.

    Attributes:
        name: what is released.
        rounds: that release it, in all runs of an ensemble.
        sensitivity: how far one user can move a sum: the largest length of what one user adds.
        multiplier: standard deviation of the noise over the sensitivity.
    """

    name: str
    rounds: int
    sensitivity: float
    multiplier: float

    @property
    def rho(self) -> float:
        """Cost of all its rounds, in concentrated differential privacy."""
        return self.rounds * accounting.concentrated(self.multiplier)


def in_order(settings: Any) -> tuple[tuple[str, int], ...]:
    """Names of the releases of one run and their rounds, in order, as the solver declares them."""
    rounds = int(settings.max_rounds)
    of_solver = getattr(settings.chosen_solver, "releases", None)
    return (
        ((UPDATES, rounds),) if of_solver is None else tuple(of_solver(rounds, settings.objective))
    )


def due(order: tuple[tuple[str, int], ...], number: int) -> str | None:
    """Name of the release that a round may ask for; None: the table ends before that round."""
    last = 0
    for name, rounds in order:
        last += rounds
        if number <= last:
            return name
    return None


def check(
    order: tuple[tuple[str, int], ...], clip: float, number: int, requested: RequestedRelease
) -> None:
    """Refuse a release that is not the one due in a round, or that names another clip.

    Args:
        order: names of the releases of one run and their rounds.
        clip: largest length of a user's update, by the charter.
        number: of the round.
        requested: what the broadcast asks for.

    Raises:
        WireError: it is not in the table at that place.
    """
    wanted = due(order, number)
    if wanted is None:
        paid = sum(rounds for _, rounds in order)
        raise WireError(
            f"this party's privacy budget pays for {paid} releases in a run; got round {number}. "
            "Give server and party the same charter"
        )
    if requested.name != wanted:
        raise WireError(
            f"in round {number} this party releases {wanted!r}, by its table of releases; the "
            f"server asks for {requested.name[:40]!r}. A release comes in its own round, once: "
            "give server and party the same charter and version"
        )
    if requested.clip is not None and requested.clip != clip:
        raise WireError(
            f"this party clips updates to {clip:g} by its charter (dp_clip); the server's "
            f"broadcast says {requested.clip:g}. Give server and party the same charter"
        )


def entries(releases: tuple[TableEntry, ...], delta: float) -> Iterator[dict[str, Any]]:
    """Yield the table for people: each release, its share, and epsilon up to and with it."""
    whole = sum(one.rho for one in releases)
    for number, one in enumerate(releases, start=1):
        so_far = tuple((each.multiplier, each.rounds) for each in releases[:number])
        yield {
            "name": one.name,
            "rounds": one.rounds,
            "sensitivity": one.sensitivity,
            "share": one.rho / whole,
            "epsilon_so_far": accounting.composed(so_far, delta),
        }
