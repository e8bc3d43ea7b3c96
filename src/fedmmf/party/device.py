"""A party: answers each message once, and restores its state where it refuses one."""

from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data.rated_items import RatedItems
from fedmmf.engines.contract import Engine
from fedmmf.engines.reference import NUMPY
from fedmmf.errors import CheckpointError, DataError, FedMMFError, NotFittedError, WireError
from fedmmf.masks.fitting import FittedMasks, MaskPlan
from fedmmf.masks.population import Population
from fedmmf.party.expectation import Expectation
from fedmmf.party.guards import Guards
from fedmmf.party.policy import Policy
from fedmmf.party.run import PartyRun, WantedError
from fedmmf.party.users import PartyData, Users
from fedmmf.secagg.keys import KEY_BYTES
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import Broadcast, part_of
from fedmmf.wire import (
    Adopt,
    Adopted,
    Finish,
    Finished,
    Invitation,
    Joined,
    Layout,
    Message,
    Refused,
    Wanted,
    name_of,
    named_parcel,
    read,
)
from fedmmf.wire.messages import MAX_WORDS, NO_PARTY

_REMEMBERED = 2  # answers that are kept, for a network that repeats a message
_RUNS = 1000  # names of runs that are kept


class Party:
    """One party's side of a federation.

    Args:
        data: its ratings, and the catalogue as it knows it.
        mask: what private model to fit.
        policy: what its owner allows.
        expectation: what it expects of a run, by its charter; None: it has none, and takes part in
            no run. It may still take finished factors (`join_late`).
        engine: what computes its users' halves; numpy for a device, another for many users.
    """

    def __init__(
        self,
        data: PartyData,
        mask: MaskPlan,
        policy: Policy,
        expectation: Expectation | None,
        engine: Engine = NUMPY,
    ) -> None:
        if data.lists.n_users < 1:
            raise DataError("a party has at least one user; got none")
        self._data, self.policy, self._expectation = data, policy, expectation
        self._lock = Lock()  # one answer at a time: undoing another would undo it too
        self._users = Users(data, mask, engine)
        self._run: PartyRun | None = None
        self._result: Broadcast | None = None
        self._answers: dict[bytes, bytes] = {}
        self._runs: tuple[bytes, ...] = ()  # names of the runs that it has joined

    @property
    def n_users(self) -> int:
        """How many users are behind it."""
        return self._users.n_users

    @property
    def invitation(self) -> Invitation | None:
        """Invitation to the run that it joined last."""
        return None if self._run is None else self._run.invitation

    @property
    def mark(self) -> tuple[Any, ...]:
        """Something that changes whenever `state` does: most answers move keys and nothing else."""
        users, run = self._users, self._run
        kept = (users.n_noisy, users.mates, len(users.surveyed), len(self._runs))
        if run is None:
            return kept, None
        begun = (run.has_summed_moments, run.layout is not None)
        return kept, run.invitation.run, begun, run.place

    @property
    def guards(self) -> Guards:
        """Counters of its answers, for its owner to keep where no older copy is ever restored."""
        users, run = self._users, self._run
        return Guards(
            n_noisy=users.n_noisy,
            runs=self._runs,
            last_round=0 if run is None else run.place[0],
            surveyed=frozenset(users.surveyed),
            mates=users.mates,
        )

    def keep_to(self, guards: Guards) -> None:
        """Raise the counters to those of earlier answers, though their state may be lost.

        A run whose state is lost is not joined again, since its rounds would be answered twice.
        """
        raised, users = guards.raised(self.guards), self._users
        users.n_noisy, users.mates = raised.n_noisy, raised.mates
        users.surveyed, self._runs = set(raised.surveyed), raised.runs

    @property
    def is_finished(self) -> bool:
        """Whether it has final item factors."""
        return self._result is not None

    @property
    def masks(self) -> FittedMasks:
        """The private models; they never leave."""
        return self._users.masks

    @property
    def in_clear(self) -> bool:
        """Whether its own policy lets its updates leave outside sums."""
        return self._users.are_in_clear(self.policy)

    @property
    def user_factors(self) -> Array:
        """p_u of its users; private. (n_users, k)."""
        return self._users.user_factors

    def answer(self, data: bytes) -> bytes:
        """Answer one parcel; a repeated one gets its first answer again.

        What it will not do it says in a `Refused`, and is as it was before.
        """
        try:
            published, frame = named_parcel(data)
        except WireError as error:
            return _refusal(error)
        name = name_of(b"".join((*published, frame)))
        with self._lock:
            if name not in self._answers:
                return self._first_answer(name, published, frame)
            return self._answers[name]

    def _first_answer(self, name: bytes, published: Mapping[bytes, bytes], frame: bytes) -> bytes:
        before = _Before(self)
        try:
            with np.errstate(all="ignore"):  # the server's numbers; what comes of them is checked
                reply = self._reply(published, frame).encode()
        except WantedError as wanted:
            before.go_back(self)
            return Wanted(wanted.name).encode()
        except (FedMMFError, np.linalg.LinAlgError, ArithmeticError, MemoryError) as error:
            before.go_back(self)
            return _refusal(error)
        except BaseException:  # a fault of ours, or an interruption
            before.go_back(self)
            raise
        if self._run is not None:
            self._run.undo = None
        kept = list(self._answers.items())[1 - _REMEMBERED :]
        self._answers = dict([*kept, (name, reply)])
        return reply

    def hold(self, secret: bytes) -> None:
        """Take what the keeper hands out, over a channel that the server cannot read."""
        self._running().side.hold(secret)

    def _reply(self, published: Mapping[bytes, bytes], frame: bytes) -> Message:
        table = self._table()
        message: Message = read(frame, tuple(table), self._data.catalogue)
        for name, broadcast in published.items():
            self._running().take(name, broadcast)
        return table[type(message)](message)

    def _table(self) -> dict[type[Message], Callable[[Any], Message]]:
        """Handlers of the messages that are accepted now."""
        table: dict[type[Message], Callable[[Any], Message]] = {Invitation: self._join}
        if self._run is not None:
            table[Adopt] = self._adopt
            table[Finish] = self._finish
            table |= dict.fromkeys(self._run.side.answers, self._run.side.answer)
        return table

    def _join(self, invitation: Invitation) -> Joined:
        """Begin a run; a running one continues, and a finished one stays finished."""
        if self._run is None or invitation != self._run.invitation:
            name = name_of(invitation.encode())
            if name in self._runs:
                raise WireError(
                    "this party had a part in that training before, and cannot go on with it: "
                    "another has begun since, or where it was is lost"
                )
            if self._expectation is None:
                raise WireError(
                    "this party has no charter that says what is trained: it joins none"
                )
            run = PartyRun(self._data, self._users, self.policy, self._expectation, invitation)
            self._run, self._runs = run, (*self._runs[-_RUNS:], name)
            self._answers = {}  # of the run before; what is published may be the same again
        return Joined(self.n_users, self.policy.public_identity)

    def _adopt(self, message: Adopt) -> Adopted:
        """Fit masks, and train with this layout from now on."""
        self._running().adopt(message.about)
        return Adopted(self.in_clear)

    def _finish(self, message: Finish) -> Finished:
        self._result = self._running().finish(message.about).public
        return Finished()

    def join_late(
        self, solver: str, variant: str, public: Broadcast, population: Population
    ) -> None:
        """Take finished item factors and solve p_u for them, without any federation.

        Args:
            solver: its name.
            variant: of the solver.
            public: the final broadcast, of the whole catalogue.
            population: what users have in common.
        """
        update_shape = SOLVERS[solver].update_shape(public.rank, variant)
        self._users.check_form(update_shape)
        everything = np.arange(self._data.catalogue.n_items, dtype=np.int32)
        layout = Layout(everything, population.line, population.pull)
        self._users.begin(solver, update_shape, layout, self.policy)
        self._users.settle(public)
        self._result = public

    def predict(self, items: Array, user: int = 0) -> Array:
        """Predicted ratings of items by one of its users: what scores say of them. (n,)."""
        return self._users.ratings_of(self.scores(items, user), self._finished())

    def predict_all(self, lists: RatedItems) -> Array:
        """Predicted ratings of some items by each of its users, at once. (n,)."""
        result = self._finished()
        return self._users.ratings_of(self._users.scores(lists, result), result)

    def scores(self, items: Array, user: int = 0) -> Array:
        """q_i . p_u + f_u(i) for one of its users, for rankings: may be off the scale. (n,)."""
        result = self._finished()
        lengths = np.zeros(self.n_users, np.int64)
        lengths[user] = len(items)
        lists = RatedItems(np.concatenate(([0], np.cumsum(lengths))), items)
        return self._users.scores(lists, result)

    def _finished(self) -> Broadcast:
        if self._result is None:
            raise NotFittedError("a party predicts after its federation has finished training")
        return self._result

    def state(self) -> dict[str, Array]:
        """Return all that changes from round to round, for a checkpoint on this device."""
        run = self._running()
        return {
            "invitation": np.frombuffer(run.invitation.encode(), np.uint8),
            "n_noisy": np.array(self._users.n_noisy),
            "mates": _as_rows(self._users.mates),
            "runs": _as_rows(self._runs),
            **_surveys_as_arrays(self._users.surveyed),
            **run.progress(),
            **{f"users/{name}": value for name, value in self._factors().items()},
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a checkpoint; a secure session has to be set up anew."""
        before = _Before(self)
        try:
            self._restore(state)
        except (FedMMFError, KeyError, TypeError, ValueError, OverflowError) as error:
            before.go_back(self)
            raise CheckpointError(f"this is no checkpoint of this party: {error}") from None

    def _restore(self, state: Mapping[str, Array]) -> None:
        known = self.guards
        self._runs = ()
        self._join(Invitation.decode(state["invitation"].tobytes()))
        self._runs = _from_rows(state["runs"])
        self._users.surveyed = _surveys_from_arrays(state)
        self._running().resume(state)
        self._users.n_noisy = int(state["n_noisy"])
        self._users.mates = _from_rows(state["mates"])
        self.keep_to(known)
        factors, fresh = part_of(state, "users/"), self._factors()
        shapes, wanted = ({n: v.shape for n, v in part.items()} for part in (factors, fresh))
        if shapes != wanted:
            raise ValueError(f"its factors have the shapes {shapes}; {wanted} are due")
        if factors:
            self._users.restore(factors)

    def _factors(self) -> dict[str, Array]:
        """State of the users' factors in this run; empty before there is a layout."""
        return {} if self._running().layout is None else self._users.state()

    def _running(self) -> PartyRun:
        if self._run is None:
            raise WireError("this party has not joined a federation yet")
        return self._run


def _as_rows(names: Iterable[bytes]) -> Array:
    """Names or keys of 32 bytes as rows. (n, 32) uint8."""
    return np.frombuffer(b"".join(names), np.uint8).reshape(-1, KEY_BYTES)


def _from_rows(rows: Array) -> tuple[bytes, ...]:
    return tuple(row.tobytes() for row in rows)


def _surveys_as_arrays(surveys: Iterable[tuple[str, frozenset[bytes]]]) -> dict[str, Array]:
    """Surveys that were unmasked: `survey<n>/<what was asked>`, among whom."""
    return {
        f"survey{number}/{asked}": _as_rows(sorted(identities))
        for number, (asked, identities) in enumerate(surveys)
    }


def _surveys_from_arrays(state: Mapping[str, Array]) -> set[tuple[str, frozenset[bytes]]]:
    return {
        (name.partition("/")[2], frozenset(_from_rows(rows)))
        for name, rows in state.items()
        if name.startswith("survey")
    }


def _refusal(error: Exception) -> bytes:
    blamed = error.blamed if isinstance(error, WireError) else None
    return Refused(str(error)[:MAX_WORDS], NO_PARTY if blamed is None else blamed).encode()


class _Before:
    """The state of a party before an answer, for undoing the answer.

    Attributes of a party, its run and its side are replaced, never changed in place; only the
    users' factors move where they are, and the run keeps a copy of them first.
    """

    def __init__(self, party: Party) -> None:
        run = party._run
        self._party, self._users = dict(vars(party)), dict(vars(party._users))
        self._run = None if run is None else dict(vars(run))
        self._side = None if run is None else run.side.state()

    def go_back(self, party: Party) -> None:
        """Undo all changes that the answer made."""
        moved = None if party._run is None else party._run.undo
        replaced = [(party, self._party), (self._party["_users"], self._users)]
        if self._run is not None and self._side is not None:
            run = self._party["_run"]
            replaced.append((run, self._run))
            self._run["side"].restore(self._side)
        for thing, attributes in replaced:
            vars(thing).clear()
            vars(thing).update(attributes)
        if moved is not None:
            party._users.restore(moved)
