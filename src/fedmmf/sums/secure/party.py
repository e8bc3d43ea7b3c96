"""A party's side of secure sums: its update, in fixed point, under masks that cancel."""

from dataclasses import dataclass, replace

import numpy as np

from fedmmf.arrays import Array
from fedmmf.errors import WireError
from fedmmf.secagg import SessionClient, Setup, public_identity
from fedmmf.secagg.session import Trip
from fedmmf.secagg.setup import SERVER
from fedmmf.solvers.contract import Bounds
from fedmmf.sums.contract import sizes_of
from fedmmf.sums.party_side import PartyDesk, PartySide
from fedmmf.sums.secure.messages import SecureAgreed, SecureSetup, SecureTrip
from fedmmf.sums.vector import SumCodec, as_flags, codec_of
from fedmmf.wire import Invitation, Message, Survey, name_of
from fedmmf.wire.frames import NO_NAME

MOST_NEIGHBOURS = 600  # sharing secrets takes time with the square of their number


def agreed_setup(message: SecureSetup, codec: SumCodec, invitation: Invitation) -> Setup:
    """The session's setup; raises where a condition of the protocol fails.

    Keys and masks depend on all that was agreed on, of the run and of these sums: bounds, layout,
    items left out, users. Parties that were told different things have no masks in common.
    """
    told = invitation.encode() + replace(message, party=0).encode()
    return Setup(
        round_id=message.session,
        parties=tuple(range(message.n_parties)),
        threshold=message.threshold,
        length=codec.length,
        ring=codec.ring,
        neighbours=message.neighbours or None,
        graph_seed=message.graph_seed,
        minimum=message.minimum,
        active=bool(message.identities),
        identities=message.identities,
        binding=name_of(told),
    )


@dataclass(frozen=True, eq=False)
class Agreement:
    """One series of rounds that a party has agreed to."""

    setup: SecureSetup
    codec: SumCodec
    left_out: Array | None  # (n_items,) bool
    session: SessionClient


class SecureParty(PartySide):
    """Takes part in sums that its owner's policy finds large and safe enough."""

    answers: tuple[type[Message], ...] = (SecureSetup, SecureTrip)

    def __init__(self, desk: PartyDesk) -> None:
        super().__init__(desk)
        self._agreed: Agreement | None = None
        self._about = NO_NAME  # what the round at hand sums
        self._sessions: tuple[bytes, ...] = ()  # names of set-ups of this run

    def answer(self, message: SecureSetup | SecureTrip) -> Message:
        """Agree to a series of rounds, or take a trip of one."""
        if isinstance(message, SecureSetup):
            name = name_of(message.encode())
            if name in self._sessions:
                raise WireError("that session has begun before, and another since")
            self._agreed = self._agree(message)
            self._sessions = (*self._sessions, name)
            return SecureAgreed()
        return self._take_trip(message)

    def _agree(self, message: SecureSetup) -> Agreement:
        """Check whatever can be checked; nothing the server says is believed otherwise."""
        self._check_cohort(message)
        self._check_identities(message)
        desk = self.desk
        sizes = sizes_of(desk.catalogue, desk.solver, desk.invitation.rank, message.for_survey)
        codec = codec_of(sizes, self._bounds(message), message.n_users, desk.solver.ring)
        if desk.policy.noise is not None:
            n_entries = sizes.catalogue.n_items * sizes.width
            desk.policy.noise.grid(float(codec.rows.scale), message.n_parties, n_entries)
        identity = desk.policy.identity
        setup = agreed_setup(message, codec, desk.invitation)
        session = SessionClient(setup, message.party, identity=identity)
        left_out = as_flags(message.left_out, desk.catalogue.n_items)
        return Agreement(message, codec, left_out, session)

    def _bounds(self, message: SecureSetup) -> Bounds:
        noise = self.desk.policy.noise
        if noise is None:
            return self.desk.solver.bounds(self.desk.catalogue.scale.span)
        bounds: Bounds = noise.bounds(message.n_parties)
        return bounds

    def _check_cohort(self, message: SecureSetup) -> None:
        """Refuse a crowd that is too small to hide in."""
        smallest = self.desk.policy.smallest_cohort
        if min(message.n_parties, message.minimum) < smallest:
            raise WireError(
                f"this party takes part in sums of at least {smallest} parties; the server sums "
                f"{message.n_parties}, and as few as {message.minimum}"
            )
        degree = message.neighbours or message.n_parties - 1
        if degree > MOST_NEIGHBOURS:
            raise WireError(
                f"this party shares secrets with {MOST_NEIGHBOURS} neighbours at most; got {degree}"
            )
        if self.desk.policy.noise is not None:
            self.desk.policy.noise.check_sum(message.n_parties, message.minimum)

    def _check_identities(self, message: SecureSetup) -> None:
        """Refuse strangers: a server could make up as many parties as it likes."""
        identity = self.desk.policy.identity
        if identity is None:
            if message.identities:
                raise WireError("this party has no identity to sign with")
            return
        if not message.identities:
            raise WireError("this party takes part only in sums whose parties all sign")
        if message.identities[message.party] != public_identity(identity):
            raise WireError("the server gives this party's number another identity")
        strangers = len(set(message.identities) - self.desk.policy.trusted)
        if strangers:
            raise WireError(f"{strangers} of the identities belong to nobody that this party knows")

    def _take_trip(self, message: SecureTrip) -> SecureTrip:
        """One trip of a securely summed round; the update leaves only under its masks."""
        agreed = self._agreed
        if agreed is None:
            raise WireError("a secure round needs a SecureSetup first")
        if message.trip == 1:
            values = self._values(agreed, message)
            data = agreed.session.first(message.data, values, message.about)
            self._about = message.about
            return SecureTrip(1, message.about, data)
        if message.about != self._about:
            raise WireError("the trips of a round have to be about the same")
        answer = agreed.session.check if message.trip == 2 else agreed.session.second
        return SecureTrip(message.trip, message.about, answer(message.data))

    def _values(self, agreed: Agreement, message: SecureTrip) -> Array:
        """This party's part of the sum, as elements of the ring. (length,)."""
        codec, setup = agreed.codec, agreed.session.setup
        work = None if message.about == NO_NAME else self.desk.work(message.about)
        if not Trip.decode(setup, SERVER, message.data).current:
            return np.zeros(0, codec.ring.dtype)  # it only makes keys for the next round
        if work is None:
            raise WireError("a trip that sums has to say what is summed")
        if isinstance(work, Survey) != agreed.setup.for_survey:
            raise WireError("these sums were agreed on for something else than what is published")
        n_parties = agreed.setup.n_parties
        part = self.desk.contribute(work, codec, agreed.left_out, n_parties)
        return codec.ring.lower(codec.vector(part))
