"""A party's side of an aggregation scheme, and what the party lends to it."""

from collections.abc import Mapping
from typing import Any, Protocol

from fedmmf.aggregation.contract import Contribution, Work
from fedmmf.arrays import Array
from fedmmf.engines.contract import Cohort
from fedmmf.errors import WireError
from fedmmf.secagg.codec import FixedPoint
from fedmmf.solvers.contract import Bounds, Solver, UpdateShape
from fedmmf.wire import Catalogue, Invitation, Layout, Message
from fedmmf.wire.messages import Expected


class Rounding(Protocol):
    """How each user's numbers are bounded and rounded before they are added."""

    @property
    def totals(self) -> FixedPoint:
        """Of the totals."""

    def cohort(self, left_out: Array | None) -> Cohort:
        """The same as an engine takes it."""


class Grid(Protocol):
    """How users' rows become integers, and noise among them."""

    @property
    def cohort(self) -> Cohort:
        """How an engine shrinks and rounds each user's rows."""

    def add(self, steps: Array) -> Array:
        """Rows over the whole catalogue, in steps, with the noise of one party."""


class Noise(Protocol):
    """What a party demands of every update that leaves it: bounded length, and noise."""

    @property
    def rounds(self) -> int:
        """How many updates the noise pays for."""

    @property
    def own_scale(self) -> float:
        """Steps per unit where nobody sums in a ring."""

    def grid(self, scale: float, n_parties: int, n_entries: int) -> Grid:
        """Rows and noise of one party out of so many; `WireError` where steps are too large."""

    def check_sum(self, n_parties: int, minimum: int) -> None:
        """Raise `WireError` where a sum could end with less noise than is due."""

    def bounds(self, n_parties: int) -> Bounds:
        """Of one user's numbers, with room for the noise."""


class Permissions(Protocol):
    """What a party's owner allows; `party.policy.Policy`."""

    @property
    def sharing(self) -> str:
        """Strict, adaptive or plain."""

    @property
    def identity(self) -> bytes | None:
        """What it signs with."""

    @property
    def trusted(self) -> frozenset[bytes]:
        """Whose signatures it accepts."""

    @property
    def share_of_trusted(self) -> float:
        """The least share of them that may be in a sum."""

    @property
    def smallest_cohort(self) -> int:
        """The fewest parties that it hides among."""

    @property
    def smallest_batch(self) -> int:
        """The fewest parties that it is summed with or not at all."""

    @property
    def max_parties(self) -> int | None:
        """The most parties that all sites together bring; None: any number."""

    @property
    def corrupt(self) -> int:
        """Parties that corrupt sites may bring, where that is more than 5 % of a sum."""

    @property
    def takes_thin_sums(self) -> bool:
        """Whether it takes part in sums over no more users than there are factors."""

    @property
    def noise(self) -> Any:
        """A `Noise`, or None."""


class RunTerms(Protocol):
    """What a party's charter says of a run; `party.expectation.Expectation`."""

    def check_users(self, n_parties: int, n_users: int) -> None:
        """Raise `WireError` where so many parties have another number of users."""


class PartyContext(Protocol):
    """What a party lends to its side of an aggregation scheme, for one run."""

    catalogue: Catalogue
    invitation: Invitation
    solver: Solver
    update_shape: UpdateShape
    layout: Layout | None  # what is summed, once it is adopted
    n_users: int
    mates: tuple[bytes, ...]  # identities of its batch, in this run and in all before
    surveyed: set[tuple[str, frozenset[bytes]]]  # what was asked, among whom; in all runs

    @property
    def in_clear(self) -> bool:
        """Whether its updates may leave outside sums; known once there is a layout."""

    @property
    def policy(self) -> Permissions:
        """What its owner allows."""

    @property
    def expectation(self) -> RunTerms:
        """What its charter says of the run."""

    def work(self, name: bytes) -> Work:
        """What is summed, read and checked once; where it is not held, the party asks for it."""

    def read_work(self, frame: bytes) -> Work | Layout:
        """Read a broadcast against what was agreed on."""

    def sizes(self, work: Work) -> Expected:
        """Of the answer to what is summed."""

    def contribute(
        self, work: Work, rounding: Rounding | None, left_out: Array | None, n_parties: int
    ) -> Contribution:
        """Take part: p_u moves with it, and moves back if the answer fails.

        Args:
            work: what is summed.
            rounding: to fixed point; None: floating point.
            left_out: rows of the layout that are not summed. (n_items,) bool
            n_parties: in the sum, who share the noise.
        """

    def collect(self) -> tuple[Array, Array]:
        """Items and masked ratings of a single user; refused where the policy forbids it."""


class PartySide:
    """A party's side of an aggregation scheme, for one run."""

    answers: tuple[type[Message], ...] = ()

    def __init__(self, context: PartyContext) -> None:
        self.context = context

    def answer(self, message: Any) -> Message:
        """Answer one of `answers`; raises a `FedMMFError` and then is as it was."""
        raise WireError(f"nothing answers a {type(message).__name__}")

    def read(self, frame: bytes) -> Work | Layout:
        """A broadcast, as this way sends it."""
        return self.context.read_work(frame)

    def hold(self, secret: bytes) -> None:
        """Take what the keeper hands to every party over a channel of its own."""
        raise WireError("this aggregation scheme has no secret that somebody else could know")

    def state(self) -> dict[str, Any]:
        """What `restore` goes back to; attributes are replaced, never changed in place."""
        return dict(vars(self))

    def restore(self, state: Mapping[str, Any]) -> None:
        """Be as before."""
        vars(self).clear()
        vars(self).update(state)
