"""The server's side of secure aggregation.

A trip is one message to each party and its reply. A round has trips 1 and 3, with fresh keys
(`secagg.session`), and trip 2 between them where parties sign what they see, against a server that
lies. A party that misses a trip has dropped out of that round; one that sends something wrong is
treated the same. A round that falls below its threshold gives no sum, and the next one begins a new
session among those who are left.
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from random import SystemRandom

import numpy as np

from fedmmf.aggregation.contract import Work, asked_by, bounds_of
from fedmmf.aggregation.rare_items import HidingServer
from fedmmf.aggregation.secure.messages import (
    SESSION_BYTES,
    SecureAgreed,
    SecureSetup,
    SecureTrip,
    agreed_setup,
)
from fedmmf.aggregation.server_side import ServerContext
from fedmmf.aggregation.vector import SumCodec, as_flags, codec_of
from fedmmf.arrays import Array
from fedmmf.errors import DataError, ExcludedError, WireError
from fedmmf.secagg import MINIMUM_COHORT, BelowThresholdError, SecAggError, SessionServer, Setup
from fedmmf.solvers.contract import Bounds, ItemSums
from fedmmf.wire import Round, Survey, name_of
from fedmmf.wire.frames import NO_NAME

_ATTEMPTS = 3  # at a survey


@dataclass(frozen=True)
class SecureOptions:
    """Parameters of sums that depend on how many parties there are, and not on settings alone."""

    bounds: Bounds | None = None  # of one user's numbers; None: what the solver calls for
    minimum: int = MINIMUM_COHORT  # the fewest parties that may be in a sum


class Session:
    """A series of rounds among parties that have agreed to it."""

    def __init__(
        self, names: Sequence[str], setup: SecureSetup, codec: SumCodec, agreed: Setup
    ) -> None:
        self.names, self.setup, self.codec = list(names), setup, codec
        self.numbers = {name: number for number, name in enumerate(names)}
        self.protocol = SessionServer(agreed)
        self.improper: set[str] = set()  # who did not answer as they should have

    def named(self, numbers: Iterable[int]) -> set[str]:
        """Return the names of parties."""
        return {self.names[number] for number in numbers}

    def holders(self, number: int) -> set[int]:
        """Return who else holds shares of a party's secrets, and so can accuse it."""
        return set(self.protocol.setup.holders(number)) - {number}

    def n_to_fail(self, number: int) -> int:
        """Return how many holders have to miss a party's shares for a sum to fail; two at least."""
        setup = self.protocol.setup
        return max(2, len(setup.holders(number)) - setup.threshold + 1)

    def disputed(self, error: Exception) -> set[str]:
        """Return both sides of a dispute that made a sum fail; nobody knows which side lies.

        One side is the party whose secret could not be recovered. The other is the holders who say
        that it gave them no right shares.
        """
        owner = error.owner if isinstance(error, BelowThresholdError) else None
        accusers = set() if owner is None else self.protocol.complaints.get(owner, set())
        return self.named({owner, *accusers}) if owner is not None and accusers else set()


class SecureServer(HidingServer):
    """Runs the secure aggregation protocol over some parties of the roster, or over all."""

    def __init__(self, context: ServerContext, names: Sequence[str] | None = None) -> None:
        super().__init__(context)
        self.names = names
        # Positions in the layout that too few of the summed users rated.
        self.left_out = np.zeros(0, np.int32)
        self.session: Session | None = None
        self._resting: set[str] = set()  # who sits out a survey that is made again
        self.excluded: set[str] = set()  # who broke the protocol
        self._doubtful: set[str] = set()  # who sits out the next session, since the last one failed

    def options_among(self, n_parties: int) -> SecureOptions:
        """Parameters of sums over so many parties."""
        return SecureOptions()

    def survey(self, work: Survey) -> ItemSums:
        """Run a survey; on failure repeat it without those who made it fail, and some more.

        Some more, because parties that sign refuse a second survey among nearly the same parties.
        """
        n_failed = 0
        try:
            while True:
                try:
                    return super().survey(work)
                except (WireError, DataError) as error:
                    n_failed += not isinstance(error, ExcludedError)
                    if n_failed == _ATTEMPTS:
                        raise
                    self._rest_some()
        finally:
            self._resting = set()

    def _rest_some(self) -> None:
        """Let so many parties sit out that the next survey is among `smallest_cohort` others."""
        settings, names = self.context.settings, self._eligible()
        fewest = settings.smallest_cohort
        must_differ = settings.signed and settings.batch < fewest
        n_more = fewest - len(self.excluded | self._doubtful)  # these sit out already
        if must_differ and 0 < n_more <= len(names) - fewest:
            self._resting = set(SystemRandom().sample(names, n_more))

    def finish(self, round_: Round) -> None:
        """Send the final factors to all parties."""
        names = self.context.roster.joined if self.names is None else self.names
        self.hand_out(round_, names)

    def sum(self, stage: str, work: Work) -> ItemSums:
        """Sum the answers to a broadcast, in one round of the protocol."""
        self.survivors = ()
        try:
            session = self._fit_session(work) or self.start(work)
            frame = self.broadcast(work)
            total = self._round(session, "trip" if stage == "round" else stage, frame)
            if total is None:
                raise WireError("the session gave no sum for this round")
            survivors = [session.names[number] for number in session.protocol.survivors]
            has_raters = asked_by(work) in ("ratings", "updates")
            n_raters = self.n_raters_among(survivors) if has_raters else None
            sums = session.codec.sums(session.codec.ring.lift(total), n_raters)
        except (WireError, DataError) as error:
            if self._give_up(error):
                raise ExcludedError(str(error)) from None
            raise
        self.survivors, self.summed_with = survivors, session.names
        self._end_if_guilty(session)
        return sums

    def n_raters_among(self, survivors: Sequence[str]) -> Array:
        """Known numbers of raters in a sum over these parties. (n_items,)."""
        known = self.known_raters()
        return np.where(as_flags(self.left_out, len(known)), 0, known)

    def _fit_session(self, work: Work) -> Session | None:
        """Return the current session if it fits such sums of the same items, else None."""
        session = self.session
        if session is None or session.setup.for_survey != isinstance(work, Survey):
            return None
        is_same = session.setup.layout == self._layout_name(work)
        is_same &= np.array_equal(session.setup.left_out, self.left_out)
        return session if is_same else None

    def _layout_name(self, work: Work) -> bytes:
        """What a set-up names as its layout: nothing, what asks for totals alone, or the layout."""
        asks = asked_by(work)
        if asks == "counts":
            return NO_NAME
        has_rows = asks in ("ratings", "updates")
        return name_of((self.require_layout() if has_rows else work).encode())

    def start(self, work: Work) -> Session:
        """Start a session among those who agree, and fill its pipeline."""
        session = self._propose(self._in_batches(self._eligible()), work)
        while len(willing := self._invite(session)) < len(session.names):
            session = self._propose(self._in_batches(willing), work)
        self.session = session
        self._round(session, "fill", b"")
        return session

    def _give_up(self, error: Exception) -> bool:
        """End a session that failed; return whether somebody is excluded for it."""
        session, self.session = self.session, None
        if session is None:
            return False
        proven = error.blamed if isinstance(error, SecAggError) else None
        guilty = self.guilty(session) | session.named(() if proven is None else (proven,))
        self._exclude(guilty, f"made a session fail: {error}")
        # Where most stayed away the network failed: the cohort must not shrink for that.
        is_network = 2 * len(session.improper) > len(session.names)
        doubtful = session.improper | session.disputed(error)
        self._doubtful = set() if guilty or is_network else doubtful
        return bool(guilty)

    def _end_if_guilty(self, session: Session) -> None:
        """End the session if somebody broke the protocol, even where the sum could be recovered."""
        guilty = self.guilty(session)
        self._exclude(guilty, "sent others than its own shares, or shares that nobody can use")
        if guilty:
            self.session = None

    def _exclude(self, names: set[str], reason: str) -> None:
        for name in sorted(names):
            self.context.roster.refuse(name, reason)
            self.excluded.add(name)

    def guilty(self, session: Session) -> set[str]:
        """Return who revealed wrong shares, or is accused by enough holders of enough sites."""
        accusers = self._accusers(session)
        accused = [number for number in accusers if self._is_convicted(session, number, accusers)]
        return session.named({*session.protocol.wrong, *accused})

    def _accusers(self, session: Session) -> dict[int, set[int]]:
        """Return the accusers of each party: holders who miss its shares, or refused its message.

        Others than its holders get nothing from a party, so what they say of it does not count.
        """
        found = {owner: set(by) for owner, by in session.protocol.complaints.items()}
        blames = self.context.roster.accused
        for name in session.improper & blames.keys():
            if blames[name] in session.protocol.setup.index:
                found.setdefault(blames[name], set()).add(session.numbers[name])
        return {number: by & session.holders(number) for number, by in found.items()}

    def _is_convicted(
        self, session: Session, number: int, accusers: Mapping[int, set[int]]
    ) -> bool:
        """Return whether a party's accusers are enough to make every sum with it fail.

        Fewer could be liars who get one honest party after the other excluded, and a sum can do
        without their shares. A site has one voice, however many parties it has: the same share of
        sites is needed as of holders. In a dispute among fewer, both sides sit out a session.
        """
        holders, needed = session.holders(number), session.n_to_fail(number)
        site_of = self.context.site_of
        accusing = {site_of(name) for name in session.named(accusers[number])}
        n_sites = len({site_of(name) for name in session.named(holders)})
        sites_needed = max(2, math.ceil(needed * n_sites / len(holders)))
        return len(accusers[number]) >= needed and len(accusing) >= sites_needed

    def _eligible(self) -> list[str]:
        """Names for the next session: joined, not excluded, and not doubtful if enough are left."""
        joined, fewest = self.context.roster.joined, self.context.settings.smallest_cohort
        asked = joined.keys() if self.names is None else joined.keys() & self.names
        names = asked - self.excluded - self._resting
        proper = names - self._doubtful
        return self._identified(sorted(proper if len(proper) >= fewest else names))

    def _in_batches(self, names: Sequence[str]) -> list[str]:
        """Names whose whole batch is present, batch after batch; batches never change."""
        size = self.context.settings.batch
        if size == 1:
            return list(names)
        everybody = self.context.roster.names if self.names is None else sorted(self.names)
        whole = [batch for batch in batches_of(everybody, size) if set(batch).issubset(names)]
        return [name for batch in whole for name in batch]

    def _identified(self, names: list[str]) -> list[str]:
        """Names with an identity that nobody else has claimed, where parties sign."""
        joined, claimed = self.context.roster.joined, {b""}
        if not self.context.settings.signed:
            return names
        fit = []
        for name in names:
            if joined[name].identity in claimed:
                self.context.roster.refuse(
                    name, "joined without an identity of its own to sign with"
                )
            else:
                fit.append(name)
            claimed.add(joined[name].identity)
        return fit

    def _propose(self, names: Sequence[str], work: Work) -> Session:
        context, joined = self.context, self.context.roster.joined
        signed = bool(context.settings.signed)
        if len(names) < context.settings.smallest_cohort:
            raise BelowThresholdError("set-up", len(names), context.settings.smallest_cohort)
        options, for_survey = self.options_among(len(names)), isinstance(work, Survey)
        bounds = options.bounds or bounds_of(context.catalogue, context.solver, for_survey)
        n_users = sum(joined[name].n_users for name in names)
        setup = SecureSetup(
            session=os.urandom(SESSION_BYTES),
            for_survey=for_survey,
            layout=self._layout_name(work),
            party=0,
            n_parties=len(names),
            n_users=n_users,
            minimum=max(options.minimum, context.settings.smallest_cohort),
            batch=context.settings.batch,
            left_out=self.left_out if asked_by(work) == "updates" else self.left_out[:0],
            identities=tuple(joined[name].identity for name in names) if signed else (),
        )
        codec = codec_of(self.expected(work), bounds, n_users, context.solver.ring)
        agreed = agreed_setup(setup, codec, context.invitation, context.corrupt)
        return Session(names, setup, codec, agreed)

    def _invite(self, session: Session) -> list[str]:
        """Send the set-up to all parties; return the sorted names of those who agree."""
        setups = {
            name: replace(session.setup, party=number) for name, number in session.numbers.items()
        }
        return sorted(self.context.roster.ask("set-up", setups, SecureAgreed))

    def _round(self, session: Session, stage: str, frame: bytes) -> Array | None:
        """Run every trip of a round; an empty frame fills the pipeline and sums nothing."""
        protocol, about = session.protocol, name_of(frame) if frame else NO_NAME
        trips: list[tuple[int, Callable[[], dict[int, bytes]]]] = [
            (1, partial(protocol.first, about)),
            (2, protocol.check),
            (3, protocol.second),
        ]
        for trip, outgoing in trips:
            if trip == 2 and not session.setup.identities:
                continue
            questions = {
                session.names[number]: SecureTrip(trip, about, data)
                for number, data in outgoing().items()
            }
            where, broadcast = f"{stage} {trip}", frame if trip == 1 else b""
            replies = self.context.roster.ask(where, questions, SecureTrip, broadcast=broadcast)
            session.improper |= questions.keys() - replies.keys()
            self._receive(session, replies)
        return protocol.result()

    def _receive(self, session: Session, replies: Mapping[str, SecureTrip]) -> None:
        for name, reply in replies.items():
            try:
                session.protocol.receive(session.numbers[name], reply.data)
            except WireError as error:
                session.improper.add(name)
                self.context.roster.refuse(name, str(error))


def batches_of(names: Sequence[str], size: int) -> list[Sequence[str]]:
    """Batches of all who may take part, by their order; the same in every session and run.

    The last, which is the only one of another size, has the rest.
    """
    n_batches = max(1, len(names) // size)
    cuts = [*range(0, n_batches * size, size), len(names)]
    return [names[start:end] for start, end in pairwise(cuts)]
