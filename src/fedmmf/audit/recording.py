"""Two rounds among real parties, in the clear and with secure sums, as the server records them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fedmmf.aggregation.contract import round_sizes
from fedmmf.aggregation.secure.agreed import agreed_setup
from fedmmf.aggregation.secure.messages import SecureSetup, SecureTrip
from fedmmf.aggregation.vector import SumCodec, codec_of
from fedmmf.arrays import Array
from fedmmf.attacks.gradients import Uploads
from fedmmf.attacks.view import View
from fedmmf.data.rated_items import RatedItems
from fedmmf.errors import WireError
from fedmmf.party import Party
from fedmmf.secagg.messages import Masked
from fedmmf.secagg.session import Trip, setup_of
from fedmmf.secagg.setup import Setup
from fedmmf.server import ServerPlan
from fedmmf.simulation import LocalFederation
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import Broadcast, ItemSums
from fedmmf.solvers.sgd import SgdPlan
from fedmmf.transports.in_process import InProcess
from fedmmf.transports.wrappers import Recorded
from fedmmf.wire import Invitation, Layout, Round, Update, read, split_parcel

ROUNDS = 2  # as many as the attacks on uploads need
Tell = Callable[[str], None]
"""Called with the name of what begins."""


class Listening:
    """A federation whose server records its messages, one round at a time.

    Args:
        plan: what the server knows.
        parties: by name, in the order of their users.
        tell: called before each step.
    """

    def __init__(self, plan: ServerPlan, parties: Mapping[str, Party], tell: Tell) -> None:
        self.plan, self._names, self._tell = plan, sorted(parties), tell
        tell("secure sums are prepared")
        self._transport = Recorded(InProcess(parties))
        self._federation = LocalFederation.among(plan, parties, self._transport)
        self._federation.prepare_sums()
        self.setups: dict[str, SecureSetup] = {}  # of the latest secure session, by party

    @property
    def invitation(self) -> Invitation:
        """Invitation that all parties of the run accepted."""
        return self._federation.server.side.context.invitation

    def one_round(self) -> tuple[Broadcast, ItemSums]:
        """Run one round; return its broadcast as it was sent, and the server's sums."""
        self._tell("a round between real parties")
        self._transport.seen.clear()  # vectors of a thousand parties are hundreds of megabytes
        coordinator, side = self._federation.server.coordinator, self._federation.server.side
        round_ = coordinator.next_round()
        public = Round.decode(round_.encode()).public  # the server goes on to change its own
        sums = side.sums(round_)
        coordinator.advance(round_, sums)
        public, sums = self._of_all_items(public, sums)
        for exchange in self._transport.seen:
            if exchange.stage == "set-up":
                self.setups = {name: _setup(exchange.sent[name]) for name in exchange.sent}
        return public, sums

    @property
    def layout(self) -> Layout:
        """Layout of the run: the items that are summed."""
        return self._federation.server.side.require_layout()

    def _of_all_items(self, public: Broadcast, sums: ItemSums) -> tuple[Broadcast, ItemSums]:
        """Expand to the whole catalogue, with zeros where nothing is summed."""
        rows, summed = (self.spread(array) for array in (public.item_rows, sums.rows))
        counts = self.spread(np.asarray(sums.n_raters))
        whole = Broadcast(public.rank, public.parameters, rows)
        return whole, ItemSums(summed, counts, sums.totals)

    def spread(self, values: Array) -> Array:
        """Put rows of the layout at their items' positions in the catalogue. (n_catalogue, ...)."""
        items = self.layout.items
        whole = np.zeros((self.plan.catalogue.n_items, *values.shape[1:]), values.dtype)
        whole[items] = values
        return whole

    def received(self, stage: str) -> list[bytes]:
        """Messages of every party in the latest exchange of a stage, in the order of the users."""
        replies = self._transport.last(stage).received
        missing = sorted(set(self._names).difference(replies))
        if missing:
            raise WireError(f"an audit attacks every party; {len(missing)} did not answer {stage}")
        return [replies[name] for name in self._names]


def _setup(parcel: bytes) -> SecureSetup:
    return SecureSetup.decode(split_parcel(parcel)[1])


def record_plain(
    plan: ServerPlan, parties: Mapping[str, Party], known: View, tell: Tell = lambda what: None
) -> Uploads:
    """Record two rounds in the clear; `known` has the parties' users and public knowledge."""
    listening, published, updates = Listening(plan, parties, tell), [], []
    for _ in range(ROUNDS):
        published.append(listening.one_round()[0])
        sent = [read(data, (Update,), None) for data in listening.received("round")]
        updates.append(sent)
    lengths = [len(update.items) for update in updates[0]]
    items = np.concatenate([update.items for update in updates[0]])
    first, second = (np.concatenate([update.rows for update in sent]) for sent in updates)
    return Uploads(
        users=known.users,
        lists=RatedItems(np.concatenate(([0], np.cumsum(lengths))), items),
        scale=known.scale,
        prior=known.prior,
        plan=SgdPlan.of(published[0]),
        item_factors=(published[0].item_factors, published[1].item_factors),
        updates=(first, second),
    )


@dataclass(frozen=True, eq=False)
class Transcript:
    """The server's record of two secure rounds.

    Attributes:
        plan: the run's public plan.
        item_factors: q of the two rounds. (n_items, k) each
        rows: each party's masked vector read as an update of the items that it rated. (n, k) each
        counts: the same of round 1, for who rated each item. (n_users, n_items)
        sums: what the protocol gives the server.
    """

    plan: SgdPlan
    item_factors: tuple[Array, Array]
    rows: tuple[Array, Array]
    counts: Array
    sums: tuple[ItemSums, ItemSums]


def record_strict(
    plan: ServerPlan, parties: Mapping[str, Party], known: View, tell: Tell = lambda what: None
) -> Transcript:
    """Record two rounds of secure aggregation; `known` says who rated what."""
    listening = Listening(plan, parties, tell)
    published, sums, rows, counts = [], [], [], []
    for _ in range(ROUNDS):
        public, total = listening.one_round()
        read_rows, read_counts = _read_vectors(listening, known)
        published.append(public)
        sums.append(total)
        rows.append(read_rows)
        counts.append(read_counts)
    return Transcript(
        plan=SgdPlan.of(published[0]),
        item_factors=(published[0].item_factors, published[1].item_factors),
        rows=(rows[0], rows[1]),
        counts=counts[0],
        sums=(sums[0], sums[1]),
    )


def _read_vectors(listening: Listening, known: View) -> tuple[Array, Array]:
    """Read every party's masked vector as if it had no mask: (n, k) and (n_users, n_items)."""
    setups = [listening.setups[name] for name in sorted(listening.setups)]
    codec = _codec(listening, setups[0])
    n_items, width = codec.sizes.n_items, codec.sizes.update_shape.width
    rows, counts = [], np.empty((len(setups), listening.plan.catalogue.n_items))
    trips = listening.received("trip 1")
    for user, (setup, trip, mine) in enumerate(zip(setups, trips, known.ranges, strict=True)):
        session = agreed_setup(setup, codec, listening.invitation)
        integers = _masked_vector(session, setup.party, trip)  # (length,)
        dense = listening.spread(integers[: n_items * width].reshape(n_items, width))
        rows.append(dense[known.lists.items[mine]] / codec.rows.scale)
        counts[user] = np.abs(dense).max(axis=1) / codec.rows.scale  # not zero: rated, if unmasked
    return np.concatenate(rows), counts


def _codec(listening: Listening, setup: SecureSetup) -> SumCodec:
    """Return the fixed point that all parties agreed on."""
    plan = listening.plan
    solver = SOLVERS[plan.settings.solver]
    sizes = round_sizes(plan.catalogue.n_items, listening.layout, plan.update_shape)
    return codec_of(sizes, solver.bounds(plan.catalogue.scale.span), setup.n_users, solver.ring)


def _masked_vector(session: Setup, number: int, trip: bytes) -> Array:
    """One party's answer to the first trip, as integers, also such as no sum could have."""
    part = Trip.decode(session, number, SecureTrip.decode(trip).data)
    masked = Masked.decode(setup_of(session, part.number), number, part.current)
    return session.ring.lift(masked.vector)
