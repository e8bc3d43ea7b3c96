"""Two rounds among real parties, in the clear and in secure sums, as a server records them.

Readings of a transcript of secure sums let the other attacks be tried on it. They try what they
can: each party's masked vector as if it were an update, in the same fixed point; and the sum over
all parties as if it were one party's update. They even know which items each party rated, except
where that is attacked.

Masked vectors are noise. A sum is not: it gives item means, and in a small cohort each user is a
good part of them. `twin_sums` measures that part; only a larger cohort makes it smaller.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedmmf.aggregation.contract import round_sizes
from fedmmf.aggregation.secure.messages import SecureSetup, SecureTrip, agreed_setup
from fedmmf.aggregation.vector import SumCodec, codec_of
from fedmmf.arrays import Array
from fedmmf.attacks.calibrated import SummedView
from fedmmf.attacks.gradients import Uploads
from fedmmf.attacks.known_masks import KnownMasks
from fedmmf.attacks.membership import CohortView
from fedmmf.attacks.view import Exposed, View
from fedmmf.data.rated_items import RatedItems
from fedmmf.errors import WireError
from fedmmf.federation.local import LocalFederation
from fedmmf.party import Party
from fedmmf.secagg.messages import Masked
from fedmmf.secagg.session import Trip, setup_of
from fedmmf.secagg.setup import Setup
from fedmmf.server import ServerPlan
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
    """A federation whose server records its messages; parties are in the order of their users."""

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
        broadcast = Round.decode(round_.encode()).broadcast  # the server goes on to change its own
        sums = side.sums(round_)
        coordinator.advance(round_, sums)
        broadcast, sums = self._of_all_items(broadcast, sums)
        for exchange in self._transport.seen:
            if exchange.stage == "set-up":
                self.setups = {name: _setup(exchange.sent[name]) for name in exchange.sent}
        return broadcast, sums

    @property
    def layout(self) -> Layout:
        """Layout of the run: the items that are summed."""
        return self._federation.server.side.require_layout()

    def _of_all_items(self, broadcast: Broadcast, sums: ItemSums) -> tuple[Broadcast, ItemSums]:
        """Expand to the whole catalogue, with zeros where nothing is summed."""
        rows, summed = (self.spread(array) for array in (broadcast.item_rows, sums.rows))
        counts = self.spread(np.asarray(sums.n_raters))
        whole = Broadcast(broadcast.rank, broadcast.parameters, rows)
        return whole, replace(sums, rows=summed, n_raters=counts)

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
        **known.facts | {"lists": RatedItems(np.concatenate(([0], np.cumsum(lengths))), items)},
        plan=SgdPlan.of(published[0]),
        item_factors=(published[0].item_factors, published[1].item_factors),
        updates=(first, second),
    )


@dataclass(frozen=True, eq=False)
class Transcript:
    """The server's record of two secure rounds."""

    plan: SgdPlan  # the run's public plan
    item_factors: tuple[Array, Array]  # q of the two rounds. (n_items, k) each
    # each party's masked vector read as an update of the items that it rated. (n, k) each
    rows: tuple[Array, Array]
    counts: Array  # the same of round 1, for who rated each item. (n_users, n_items)
    sums: tuple[ItemSums, ItemSums]  # what the protocol gives the server


def record_strict(
    plan: ServerPlan, parties: Mapping[str, Party], known: View, tell: Tell = lambda what: None
) -> Transcript:
    """Record two rounds of secure aggregation; `known` says who rated what."""
    listening = Listening(plan, parties, tell)
    published, sums, rows, counts = [], [], [], []
    for _ in range(ROUNDS):
        broadcast, total = listening.one_round()
        read_rows, read_counts = _read_vectors(listening, known)
        published.append(broadcast)
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


def vectors_as_updates(transcript: Transcript, known: View) -> Uploads:
    """Read masked vectors as updates; `known` says who rated what."""
    return _uploads(transcript, known, transcript.rows)


def sums_as_updates(transcript: Transcript, known: View) -> Uploads:
    """Read the sum over all parties as each party's update."""
    return _uploads(transcript, known, [sums.rows[known.lists.items] for sums in transcript.sums])


def sums_as_they_are(transcript: Transcript, known: Exposed) -> SummedView:
    """Return the sum of round 1 for attacks that weigh it, before weights are chosen."""
    return SummedView(
        **known.facts,
        plan=transcript.plan,
        item_factors=transcript.item_factors[0],
        rows=transcript.sums[0].rows,
        masks=KnownMasks(known.plan, known.population, known.features, known.scale),
        weights=np.ones(len(known.users)),
    )


def twin_sums(uploads: Uploads, *, with_own: bool) -> Uploads:
    """Sum a cohort's plain updates, with or without the update of the attacked user.

    No server has the second. The difference between the two is what a user's taking part adds to
    what the sum says about everybody.
    """
    summed, items = [], uploads.lists.items
    for update, factors in zip(uploads.updates, uploads.item_factors, strict=True):
        total = np.zeros((len(factors), update.shape[1]))  # (n_items, k)
        np.add.at(total, items, update)
        own = 0.0 if with_own else update
        summed.append(np.asarray(total[items] - own, np.float32))
    return replace(uploads, updates=(summed[0], summed[1]))


def vectors_as_members(transcript: Transcript, known: View, popularity: Array) -> CohortView:
    """Read masked counts as the items that a party rated."""
    return CohortView(known.users, popularity, transcript.counts)


def sums_as_members(transcript: Transcript, known: View, popularity: Array) -> CohortView:
    """Read the sum's counts, which are the same for all users."""
    return CohortView(known.users, popularity, transcript.sums[0].n_raters[np.newaxis] + 0.0)


def _uploads(transcript: Transcript, known: View, updates: Sequence[Array]) -> Uploads:
    return Uploads(
        **known.facts,
        plan=transcript.plan,
        item_factors=transcript.item_factors,
        updates=(updates[0], updates[1]),
    )
