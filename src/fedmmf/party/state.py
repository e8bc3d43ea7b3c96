"""A party's state: one immutable object. An answer replaces it; a refusal leaves it as it was."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fedmmf.aggregation.contract import Work
from fedmmf.arrays import Array
from fedmmf.party.user_group import UserGroup
from fedmmf.solvers.contract import Broadcast
from fedmmf.wire import Layout

if TYPE_CHECKING:
    from fedmmf.party.run import PartyRun


@dataclass(frozen=True, eq=False)
class RunState:
    """Where a party is in its run.

    Attributes:
        layout: once it is adopted.
        moments_of: items whose moments it has added up, once it has.
        works: broadcasts that it holds, by name.
        last_round: the last round that it answered.
        best_round: the best round that it took part in; 0: none.
        best: p_u of that round.
        is_finished: whether it has the final factors.
        has_told_newcomers: whether it was in the sum after the last round.
        side: what its side of the aggregation scheme keeps; immutable.
        moved: the users' factors from before this answer, where it may move them; to go back to.
    """

    layout: Layout | None = None
    moments_of: Array | None = None
    works: Mapping[bytes, Work | Layout] = field(default_factory=dict)
    last_round: int = 0
    best_round: int = 0
    best: Array | None = None
    is_finished: bool = False
    has_told_newcomers: bool = False
    side: Any = None
    moved: Mapping[str, Array] | None = None


@dataclass(frozen=True, eq=False)
class PartyState:
    """All that changes in a party.

    Attributes:
        users: behind it. An answer works with a shallow copy: only factors change in place, and
            `RunState.moved` has those from before.
        runs: names of the runs that it has joined.
        answers: the last ones, by the name of the parcel that each answers.
        result: the final broadcast, once it is there.
        run: the one that it joined last.
        at: where it is in that run.
    """

    users: UserGroup
    runs: tuple[bytes, ...] = ()
    answers: Mapping[bytes, bytes] = field(default_factory=dict)
    result: Broadcast | None = None
    run: "PartyRun | None" = None
    at: RunState = field(default_factory=RunState)


class StateHolder:
    """Holds the state of a party; `Party` and its run share this object, and replace the state."""

    def __init__(self, state: PartyState) -> None:
        self.state = state

    def change(self, **changes: Any) -> None:
        """Replace the state by one with these fields."""
        self.state = replace(self.state, **changes)

    def move(self, **changes: Any) -> None:
        """Replace `at`, where the party is in its run, by one with these fields."""
        self.change(at=replace(self.state.at, **changes))

    def go_back(self, before: PartyState) -> None:
        """Return to an earlier state, with the factors that it had."""
        moved = self.state.at.moved
        self.state = before
        if moved is not None:
            before.users.restore(moved)
