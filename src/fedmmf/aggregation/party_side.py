"""A party's side of an aggregation scheme, and the context that the party lends to it."""

from typing import Any, Protocol

from fedmmf.aggregation.contract import Contribution, Work
from fedmmf.aggregation.vector import SumCodec
from fedmmf.arrays import Array
from fedmmf.errors import WireError
from fedmmf.solvers.contract import Solver, UpdateShape
from fedmmf.wire import Catalogue, Invitation, Layout, Message
from fedmmf.wire.messages import Expected


class Permissions(Protocol):
    """Permissions of a party's owner; `party.policy.Policy`."""

    @property
    def sharing(self) -> str:
        """Which sharing the owner allows: strict, adaptive or plain."""

    @property
    def identity(self) -> bytes | None:
        """Ed25519 secret that the party signs with; None: it does not sign."""

    @property
    def trusted(self) -> frozenset[bytes]:
        """Ed25519 public keys of the parties whose signatures it accepts."""

    @property
    def share_of_trusted(self) -> float:
        """Smallest share of trusted parties in a sum."""

    @property
    def smallest_cohort(self) -> int:
        """Smallest number of parties in a sum that the party takes part in."""

    @property
    def smallest_batch(self) -> int:
        """Smallest number of parties in a batch, which is summed whole or not at all."""

    @property
    def max_parties(self) -> int | None:
        """Largest number of parties that all sites together bring; None: any number."""

    @property
    def corrupt(self) -> int:
        """Number of parties that corrupt sites may bring, if more than 5 % of a sum."""

    @property
    def takes_thin_sums(self) -> bool:
        """Whether the party takes part in sums over no more users than there are factors."""

    @property
    def noise(self) -> Any:
        """The `dp.guarantee.Guarantee` that every update must have; None: no noise."""


class RunTerms(Protocol):
    """Terms of a run in a party's charter; `party.expectation.Expectation`."""

    def check_users(self, n_parties: int, n_users: int) -> None:
        """Raise `WireError` if the charter gives so many parties another number of users."""


class PartyContext(Protocol):
    """Everything that a party lends to its side of an aggregation scheme, for one run."""

    catalogue: Catalogue
    invitation: Invitation
    solver: Solver
    update_shape: UpdateShape
    n_users: int
    mates: tuple[bytes, ...]  # identities of its batch, in this run and in all before
    surveyed: set[tuple[str, frozenset[bytes]]]  # what was asked, among whom; in all runs
    side_state: Any  # what its side keeps: one immutable object, which is replaced

    @property
    def layout(self) -> Layout | None:
        """Layout that says what is summed, once it is adopted."""

    @property
    def in_clear(self) -> bool:
        """Whether updates may leave outside secure sums; known once there is a layout."""

    @property
    def policy(self) -> Permissions:
        """Permissions that the party's owner set."""

    @property
    def expectation(self) -> RunTerms:
        """Terms that the party's charter sets for the run."""

    def work(self, name: bytes) -> Work:
        """Return the broadcast of that name; raise `WantedError` if the party does not hold it."""

    def read_work(self, frame: bytes) -> Work | Layout:
        """Read a broadcast against what was agreed on."""

    def sizes(self, work: Work) -> Expected:
        """Sizes of the answer to a broadcast."""

    def contribute(
        self, work: Work, rounding: SumCodec | None, left_out: Array | None, n_parties: int
    ) -> Contribution:
        """Take part in a round; p_u moves, and moves back if the answer fails.

        Args:
            work: what is summed.
            rounding: to fixed point; None: floating point.
            left_out: rows of the layout that are not summed. (n_items,) bool
            n_parties: in the sum, who share the noise.
        """

    def collect(self) -> tuple[Array, Array]:
        """Return items and masked ratings of a single user; raise where the policy forbids it."""


class PartySide:
    """A party's side of an aggregation scheme, for one run.

    What changes with an answer it keeps in `context.side_state`: a refusal puts that back.
    """

    answers: tuple[type[Message], ...] = ()

    def __init__(self, context: PartyContext) -> None:
        self.context = context

    def answer(self, message: Any) -> Message:
        """Answer one of `answers`, or raise a `FedMMFError`."""
        raise WireError(f"nothing answers a {type(message).__name__}")

    def read(self, frame: bytes) -> Work | Layout:
        """Decode a broadcast in the form in which this scheme sends it."""
        return self.context.read_work(frame)

    def hold(self, secret: bytes) -> None:
        """Take the key that the keeper gives every party over a channel without the server."""
        raise WireError("this aggregation scheme has no secret that somebody else could know")
