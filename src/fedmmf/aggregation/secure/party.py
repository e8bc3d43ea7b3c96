"""A party's side of secure aggregation: its update, in fixed point, under masks that cancel."""

from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np

from fedmmf.aggregation.contract import Shapes, Work, asked_by, bounds_of
from fedmmf.aggregation.party_side import PartyContext, PartySide
from fedmmf.aggregation.secure.messages import (
    SecureAgreed,
    SecureSetup,
    SecureTrip,
    agreed_setup,
    graph_of,
)
from fedmmf.aggregation.vector import SumCodec, as_flags, codec_of
from fedmmf.arrays import Array
from fedmmf.errors import WireError
from fedmmf.secagg import SessionClient, Setup, public_identity
from fedmmf.secagg.messages import Survivors
from fedmmf.secagg.session import Trip, setup_of
from fedmmf.secagg.setup import SERVER
from fedmmf.solvers.contract import Bounds
from fedmmf.wire import Message, Survey, name_of
from fedmmf.wire.frames import NO_NAME
from fedmmf.wire.messages import Expected, require_items

MAX_NEIGHBOURS = 600  # the time to share secrets grows with the square of their number


@dataclass(frozen=True, eq=False)
class Agreement:
    """A series of rounds that a party has agreed to."""

    setup: SecureSetup
    codec: SumCodec
    left_out: Array | None  # (n_items,) bool
    session: SessionClient


@dataclass(frozen=True, eq=False)
class SecureState:
    """What a party remembers of the sessions of a run.

    Attributes:
        agreed: the session at hand.
        about: name of the broadcast that its current round answers.
        sessions: names of all set-ups of this run.
        survivors: identities of those in the current survey, where parties sign.
    """

    agreed: Agreement | None = None
    about: bytes = NO_NAME
    sessions: tuple[bytes, ...] = ()
    survivors: frozenset[bytes] = frozenset()


class SecureParty(PartySide):
    """Takes part in sums that its owner's policy finds large and safe enough."""

    answers: tuple[type[Message], ...] = (SecureSetup, SecureTrip)

    def __init__(self, context: PartyContext) -> None:
        super().__init__(context)
        context.side_state = SecureState()

    @property
    def agreed(self) -> Agreement | None:
        """Series of rounds at hand."""
        return self._state.agreed

    @property
    def _state(self) -> SecureState:
        state: SecureState = self.context.side_state
        return state

    def _change(self, **changes: Any) -> None:
        self.context.side_state = replace(self._state, **changes)

    def answer(self, message: SecureSetup | SecureTrip) -> Message:
        """Agree to a session, or answer one trip of its rounds."""
        if isinstance(message, SecureSetup):
            name = name_of(message.encode())
            sessions = self._state.sessions
            if name in sessions:
                raise WireError("that session has begun before, and another since")
            self._change(agreed=self._agree(message), sessions=(*sessions, name))
            return SecureAgreed()
        return self._take_trip(message)

    def _agree(self, message: SecureSetup) -> Agreement:
        """Check a set-up by all that this party knows itself, and make its side of the session."""
        self._check_cohort(message)
        self._check_identities(message)
        context = self.context
        sizes = self._sizes(message)
        codec = codec_of(sizes, self._bounds(message), message.n_users, context.solver.ring)
        if context.policy.noise is not None:
            shape = sizes.update_shape
            about = (message.n_parties, sizes.n_items * shape.width, shape.n_noisy_totals)
            # Raises where steps are too large; the grid itself is made anew in each round.
            context.policy.noise.grid(float(codec.rows.scale), *about)
        identity = context.policy.identity
        setup = agreed_setup(message, codec, context.invitation, context.policy.corrupt)
        session = SessionClient(setup, message.party, identity=identity)
        self._check_batch(setup, message.party)
        left_out = as_flags(message.left_out, sizes.n_items) if len(message.left_out) else None
        return Agreement(message, codec, left_out, session)

    def _sizes(self, message: SecureSetup) -> Expected:
        """Sizes of the update, by the layout that this party has adopted."""
        context, is_survey = self.context, message.for_survey
        layout = b"" if context.layout is None else name_of(context.layout.encode())
        if message.layout == layout:
            asks = "ratings" if is_survey else "updates"
        elif is_survey and not layout:
            asks = "counts" if message.layout == NO_NAME else "moments"
        elif is_survey and message.layout == NO_NAME:
            asks = "counts"
        elif not is_survey and layout and context.update_shape.n_newcomer:
            asks = "newcomers"  # of the last round of that name, as `_is_agreed` checks
        else:
            raise WireError("these sums are of a layout that this party has not adopted")
        sizes = Shapes(
            context.catalogue.n_items, context.invitation.columns, context.update_shape
        ).of(asks, context.layout)
        require_items(message.left_out, sizes.n_items)
        return sizes

    def _bounds(self, message: SecureSetup) -> Bounds:
        noise = self.context.policy.noise
        if noise is None:
            return bounds_of(self.context.catalogue, self.context.solver, message.for_survey)
        bounds: Bounds = noise.bounds(message.n_parties)
        return bounds

    def _check_batch(self, setup: Setup, party: int) -> None:
        """Refuse small or changed batches: sums over changed ones differ by less than a batch."""
        smallest = self.context.policy.smallest_batch
        if setup.batch < smallest:
            raise WireError(
                f"this party is summed in batches of at least {smallest}; the server's have "
                f"{setup.batch}"
            )
        mates = tuple(sorted(map(setup.identity, setup.mates(party)))) if setup.active else ()
        if self.context.mates and mates != self.context.mates:
            raise WireError("this party's batch had other members in an earlier session or run")
        if setup.batch > 1:
            self.context.mates = mates

    def _check_cohort(self, message: SecureSetup) -> None:
        """Refuse a cohort that is too small to hide in."""
        smallest = self.context.policy.smallest_cohort
        if min(message.n_parties, message.minimum) < smallest:
            raise WireError(
                f"this party takes part in sums of at least {smallest} parties; the server sums "
                f"{message.n_parties}, and as few as {message.minimum}"
            )
        most = self.context.policy.max_parties
        if most is not None and message.n_parties > most:
            raise WireError(
                f"the sites of this federation bring {most:,} parties at most; the server sums "
                f"{message.n_parties:,}"
            )
        self._check_factors(message)
        active = bool(message.identities)
        batch, corrupt = message.batch, self.context.policy.corrupt
        degree, _ = graph_of(message.n_parties, active=active, batch=batch, corrupt=corrupt)
        if degree > MAX_NEIGHBOURS:
            raise WireError(
                f"this party shares secrets with {MAX_NEIGHBOURS} neighbours at most; got {degree}"
            )
        if self.context.policy.noise is not None:
            self.context.policy.noise.check_sum(message.n_parties, message.minimum)

    def _check_factors(self, message: SecureSetup) -> None:
        """Refuse sums with as many columns as users: they can be solved for single updates."""
        rank, policy = self.context.invitation.rank, self.context.policy
        is_exempt = policy.takes_thin_sums or policy.noise is not None or message.for_survey
        n_users = self._known_users(message)
        if n_users <= rank and not is_exempt:
            raise WireError(
                f"a sum over {n_users} users of rows with {rank} numbers shows each of them; this "
                f"party takes part with fewer factors, or among more than {rank} users. It counts "
                f"its own users and one for each of the {message.n_parties - 1} other parties, "
                "since it has nothing but the server's word for more"
            )

    def _known_users(self, message: SecureSetup) -> int:
        """Return the fewest users that this party knows of by itself; refuse a smaller number.

        It counts one user for every other party: that one has more is the server's word.
        """
        n_users = message.n_parties - 1 + self.context.n_users
        if message.n_users < n_users:
            raise WireError(
                f"{message.n_parties} parties have at least {n_users} users, of whom this party "
                f"has {self.context.n_users}; the server's set-up says {message.n_users}"
            )
        self.context.expectation.check_users(message.n_parties, message.n_users)
        return n_users

    def _check_identities(self, message: SecureSetup) -> None:
        """Refuse identities that it does not know: a server could invent any number of parties."""
        identity = self.context.policy.identity
        if identity is None:
            if message.identities:
                raise WireError("this party has no identity to sign with")
            return
        if not message.identities:
            raise WireError("this party takes part only in sums whose parties all sign")
        if message.identities[message.party] != public_identity(identity):
            raise WireError("the server gives this party's number another identity")
        policy = self.context.policy
        needed = ceil(policy.share_of_trusted * len(policy.trusted))
        if len(message.identities) < needed:
            raise WireError(
                f"this party takes part where at least {needed} of the {len(policy.trusted)} that "
                f"it trusts do; got {len(message.identities)}"
            )
        strangers = len(set(message.identities) - policy.trusted)
        if strangers:
            raise WireError(f"{strangers} of the identities belong to nobody that this party knows")

    def _take_trip(self, message: SecureTrip) -> SecureTrip:
        """Answer one trip of a secure round; the update leaves only under its masks."""
        agreed = self.agreed
        if agreed is None:
            raise WireError("a secure round needs a SecureSetup first")
        if message.trip == 1:
            values = self._values(agreed, message)
            data = agreed.session.first(message.data, values, message.about)
            self._change(about=message.about)
            return SecureTrip(1, message.about, data)
        if message.about != self._state.about:
            raise WireError("the trips of a round have to be about the same")
        if message.trip == 2 and not agreed.setup.identities:
            raise WireError("only parties that sign have a second trip")
        if message.trip == 2:
            self._check_survivors(agreed, message)
        work = self._work(message)  # before the session changes: the broadcast may be missing
        answer = agreed.session.check if message.trip == 2 else agreed.session.second
        data = answer(message.data)
        if message.trip == 3 and Trip.decode(agreed.session.setup, SERVER, message.data).current:
            self._note_survey(work)  # without `current` the trip only prepares the next round
        return SecureTrip(message.trip, message.about, data)

    def _check_survivors(self, agreed: Agreement, message: SecureTrip) -> None:
        """Refuse a second survey among nearly the same parties: the difference shows the others.

        A survey that failed may be made again once, if `smallest_cohort` parties or more differ:
        then the two surveys show nothing of fewer. In batches of that size there is no limit. A
        party that does not sign has to believe the server anyway.
        """
        setup = agreed.session.setup
        trip, work = Trip.decode(setup, SERVER, message.data), self._work(message)
        if not isinstance(work, Survey) or not trip.current:
            return
        shown = Survivors.decode(setup_of(setup, trip.number), SERVER, trip.current).members
        survivors = frozenset(map(setup.identity, shown))
        self._change(survivors=survivors)
        smallest = self.context.policy.smallest_cohort
        earlier = [who for asked, who in self.context.surveyed if asked == work.asks]
        if survivors in earlier or not earlier or setup.batch >= smallest:
            return
        differ = min(len(who ^ survivors) for who in earlier)
        if differ < smallest or len(earlier) > 1:
            raise WireError(
                f"a survey among others than before differs by {differ} parties; this party takes "
                f"part where that is none or, once, at least {smallest}. In batches of {smallest} "
                "it always does"
            )

    def _note_survey(self, work: Work | None) -> None:
        """Note a survey as done when it is unmasked."""
        if isinstance(work, Survey):
            self.context.surveyed = {*self.context.surveyed, (work.asks, self._state.survivors)}

    def _work(self, message: SecureTrip) -> Work | None:
        """Return the broadcast that a trip names."""
        return None if message.about == NO_NAME else self.context.work(message.about)

    def _values(self, agreed: Agreement, message: SecureTrip) -> Array:
        """Encode this party's contribution as ring elements. (length,)."""
        codec, setup = agreed.codec, agreed.session.setup
        work = self._work(message)
        if not Trip.decode(setup, SERVER, message.data).current:
            return np.zeros(0, codec.ring.dtype)  # this trip only makes keys for the next round
        if work is None:
            raise WireError("a trip that sums has to say what is summed")
        if not self._is_agreed(work, message.about, agreed.setup):
            raise WireError("these sums were agreed on for something else than what is published")
        n_parties = agreed.setup.n_parties
        part = self.context.contribute(work, codec, agreed.left_out, n_parties)
        return codec.ring.lower(codec.vector(part))

    def _is_agreed(self, work: Work, about: bytes, setup: SecureSetup) -> bool:
        """Whether these sums were agreed on for this broadcast."""
        asks, layout = asked_by(work), self.context.layout
        # as the set-up has to give it
        layout_name = {"counts": NO_NAME, "moments": about, "newcomers": about}
        if layout is not None and asks in ("ratings", "updates"):
            layout_name[asks] = name_of(layout.encode())
        is_survey = isinstance(work, Survey)
        return setup.for_survey == is_survey and setup.layout == layout_name.get(asks)
