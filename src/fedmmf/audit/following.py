"""A training as its server sees it: all planned rounds, in which parties now and then stay away.

The sums are those of the run's aggregation scheme, noise included, since they are made by the
user group and the scheme's own simulation. Who stays away adds nothing and learns nothing.
"""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from fedmmf import rng
from fedmmf.aggregation.contract import DROPOUT
from fedmmf.aggregation.simulated import Group
from fedmmf.arrays import Array
from fedmmf.audit.dropouts import DropOuts
from fedmmf.party import UserGroup
from fedmmf.settings import Settings
from fedmmf.simulation import Prepared
from fedmmf.solvers.contract import ItemSums, added
from fedmmf.wire import Round

MAX_ROUNDS = 400  # that are followed; sums of more rounds are too much for a laptop's memory


@dataclass(frozen=True, eq=False)
class SeenRound:
    """One round as the server sees it."""

    round: Round  # its number and the broadcast
    sums: ItemSums  # over those who hide in a sum
    present: Array  # who of them took part. (n_users,) bool


def planned_rounds(settings: Settings) -> int:
    """Number of rounds that an audit follows: all that are planned, up to `MAX_ROUNDS`."""
    return min(settings.max_rounds, MAX_ROUNDS)


def planned_presence(settings: Settings, n_users: int) -> Array:
    """Draw who takes part in each planned round. (rounds, n_users) bool.

    As many stay away as a federation has to bear, one in twenty, each with its batch. In round 1
    everybody is there. Under a privacy budget a sum with more drop-outs than that does not exist.
    """
    rounds = planned_rounds(settings)
    stream = rng.stream(settings.seed, "drop-outs", n_users, settings.batch)
    present = DropOuts.drawn(n_users, rounds, DROPOUT, settings.batch, stream).present
    present[0] = True
    if settings.scheme.has_budget:
        for here in present:
            here[np.flatnonzero(~here)[int(DROPOUT * n_users) :]] = True
    return present


def hidden_group(run: Prepared) -> Group | None:
    """The users of a run whose updates leave in sums alone; None: nobody's do."""
    hidden = (group for group in run.groups if not (group.is_clear or group.is_collected))
    return next(hidden, None)


def follow(run: Prepared, present: Array) -> Iterator[SeenRound]:
    """Train; yield each round that gives a sum.

    Args:
        run: the cohort, as its training is prepared.
        present: who takes part in each round. (rounds, n_users) bool
    """
    users, coordinator = copy(run.users), run.coordinator()
    users.begin_with(run.training_input, run.layout)
    hidden = hidden_group(run)
    if hidden is None:
        return
    for here in present:
        is_enough = (here & hidden.members).sum() >= run.settings.smallest_cohort
        if coordinator.is_finished or not is_enough:
            continue
        round_ = coordinator.next_round()
        groups = [_among(group, here) for group in run.groups]
        parts = _sums(run, users, round_, groups)
        yield SeenRound(round_, parts[run.groups.index(hidden)], here & hidden.members)
        coordinator.advance(round_, added(parts))


def _among(group: Group, here: Array) -> Group:
    """Return the group of those who are present, with the noise that they bring."""
    members = group.members & here
    share = members.sum() / max(int(group.members.sum()), 1)
    return replace(group, members=members, noise_std=group.noise_std * float(np.sqrt(share)))


def _sums(
    run: Prepared, users: UserGroup, round_: Round, groups: Sequence[Group]
) -> list[ItemSums]:
    """Sum each group over who is present; the others' factors stay as they were."""
    is_away = ~np.any([group.members for group in groups], axis=0)
    before = users.state()
    cohorts = [replace(group.cohort, members=group.members) for group in groups]
    found = users.update(round_.broadcast, round_.round, cohorts)
    after = users.state()
    for name, values in after.items():
        values[is_away] = before[name][is_away]
    users.restore(after)
    nothing = np.zeros((users.n_users, 2))  # an audit holds nothing out
    noise = rng.stream(run.settings.seed, "noise", 0, round_.round)
    return [
        group.sums(rows, totals, nothing, noise)
        for group, rows, totals in zip(groups, found.rows, found.totals, strict=True)
    ]
