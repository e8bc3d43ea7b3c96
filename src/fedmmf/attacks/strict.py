"""What the server learns in strict mode: the other attacks on a transcript of secure sums.

The server tries what it can. It reads each party's masked vector as if it were an update, in the
same fixed point; and it reads the sum over all parties as if it were one party's update. It is even
told which items each party rated, except where that is what it wants to know.

Masked vectors are noise. A sum is not: it gives item means, and in a small cohort each user is a
good part of them. `twin_sums` measures that part; only a larger cohort makes it smaller.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedmmf import wire
from fedmmf.aggregation.layout import Bounds, Layout
from fedmmf.aggregation.secure_party import agreed_setup
from fedmmf.arrays import Array
from fedmmf.attacks.gradients import Uploads
from fedmmf.attacks.membership import CohortView
from fedmmf.attacks.transcript import Exchange, Recording
from fedmmf.attacks.view import View
from fedmmf.config import Settings
from fedmmf.coordinator import Server
from fedmmf.factorization.contract import ItemSums
from fedmmf.factorization.sgd import Plan
from fedmmf.federation import make_participants
from fedmmf.party import Party
from fedmmf.secagg.messages import Masked
from fedmmf.secagg.session import Trip, setup_of


@dataclass(frozen=True, eq=False)
class Transcript:
    """What the server has after two secure rounds.

    Attributes:
        plan: the run's public plan.
        item_factors: q of the two rounds. (n_items, k) each
        vectors: each party's masked vector, read as an update; a list over parties per round.
        sums: what the protocol gives the server.
    """

    plan: Plan
    item_factors: tuple[Array, Array]
    vectors: tuple[list[ItemSums], list[ItemSums]]
    sums: tuple[ItemSums, ItemSums]


def record_strict(
    parties: Mapping[str, Party], server: Server, settings: Settings, span: float
) -> Transcript:
    """Run two rounds of strict mode between real parties and keep what the server sees."""
    transport = Recording(parties)
    participants = make_participants(parties, transport, settings, span)
    messages, vectors, sums = [], [], []
    for _ in range(2):
        message = server.next_message()
        messages.append(wire.Round.decode(message.encode()))  # the server moves on in place
        sums.append(participants.sums(message))
        vectors.append(_vectors(transport.last("setup"), transport.last("trip 1")))
        server.advance(message, sums[-1])
    return Transcript(
        plan=Plan.of(messages[0].public),
        item_factors=(messages[0].public.item_factors, messages[1].public.item_factors),
        vectors=(vectors[0], vectors[1]),
        sums=(sums[0], sums[1]),
    )


def _vectors(setup: Exchange, trip: Exchange) -> list[ItemSums]:
    """Every party's masked vector, decoded as if no mask were on it."""
    found = []
    for number, party in enumerate(sorted(trip.received)):
        agreed = wire.SecureSetup.decode(setup.sent[party])
        layout = Layout(agreed.n_items, agreed.width, agreed.n_totals)
        bounds = Bounds(agreed.row_bound, agreed.total_bound)
        codec = bounds.codec(layout, agreed.solver, agreed.n_parties)
        session = agreed_setup(agreed)
        part = Trip.decode(session, number, wire.SecureTrip.decode(trip.received[party]).data)
        masked = Masked.decode(setup_of(session, part.number), number, part.current)
        integers = codec.ring.lift(masked.vector)  # `codec.decode` refuses what no sum can be
        found.append(layout.unpack(integers / codec.scale))
    return found


def vectors_as_updates(transcript: Transcript, known: View) -> Uploads:
    """Masked vectors in the place of updates; `known` says who rated what."""
    first, second = (
        np.concatenate(
            [one.rows[known.items[rows]] for one, rows in zip(vectors, known.ranges, strict=True)]
        )
        for vectors in transcript.vectors
    )
    return _uploads(transcript, known, (first, second))


def sums_as_updates(transcript: Transcript, known: View) -> Uploads:
    """The sum over all parties in the place of each party's update."""
    first, second = (sums.rows[known.items] for sums in transcript.sums)
    return _uploads(transcript, known, (first, second))


def twin_sums(uploads: Uploads, *, with_own: bool) -> Uploads:
    """The sums of a cohort's plain updates, with or without the update of the attacked user.

    No server has the second. The difference between the two is what a user's taking part adds to
    what the sum says about everybody.
    """
    summed = []
    for update in uploads.updates:
        total = np.zeros((int(uploads.items.max()) + 1, update.shape[1]))
        np.add.at(total, uploads.items, update)
        own = 0.0 if with_own else update
        summed.append(np.asarray(total[uploads.items] - own, np.float32))
    return replace(uploads, updates=(summed[0], summed[1]))


def vectors_as_members(transcript: Transcript, known: View, popularity: Array) -> CohortView:
    """Masked counts in the place of the items that a party names."""
    scores = np.array([one.n_raters for one in transcript.vectors[0]], np.float64)
    return CohortView(known.users, popularity, scores)


def sums_as_members(transcript: Transcript, known: View, popularity: Array) -> CohortView:
    """The sum's counts, which are the same for everybody."""
    return CohortView(known.users, popularity, transcript.sums[0].n_raters[np.newaxis] + 0.0)


def _uploads(transcript: Transcript, known: View, updates: tuple[Array, Array]) -> Uploads:
    return Uploads(
        users=known.users,
        indptr=known.indptr,
        items=known.items,
        scale=known.scale,
        prior=known.prior,
        plan=transcript.plan,
        item_factors=transcript.item_factors,
        updates=updates,
    )
