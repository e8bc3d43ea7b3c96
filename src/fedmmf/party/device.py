"""A party: it computes each answer once, and is as before where it refuses."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from threading import Lock
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data.rated_items import RatedItems
from fedmmf.engines.contract import Engine
from fedmmf.engines.reference import NUMPY
from fedmmf.errors import CheckpointError, DataError, FedMMFError, NotFittedError, WireError
from fedmmf.masks.feature_maps import FeatureViews
from fedmmf.masks.fitting import FittedMasks, MaskPlan
from fedmmf.masks.population import Population
from fedmmf.party.expectation import Expectation
from fedmmf.party.guards import Guards
from fedmmf.party.policy import Policy
from fedmmf.party.run import PartyRun, WantedError
from fedmmf.party.state import PartyState, StateHolder
from fedmmf.party.user_group import PartyData, UserGroup
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
        self._data, self.policy, self.expectation = data, policy, expectation
        self._lock = Lock()  # one answer at a time: undoing one would undo the other too
        self.current = StateHolder(PartyState(UserGroup(data, mask, engine)))

    @property
    def n_users(self) -> int:
        """How many users are behind it."""
        return self.users.n_users

    @property
    def users(self) -> UserGroup:
        """Its users: their ratings, masks and p_u; private."""
        return self.current.state.users

    @property
    def run(self) -> PartyRun | None:
        """The run that it joined last; None before the first."""
        return self.current.state.run

    @property
    def invitation(self) -> Invitation | None:
        """Invitation to the run that it joined last."""
        return None if self.run is None else self.run.invitation

    @property
    def mark(self) -> tuple[Any, ...]:
        """Changes whenever `state()` does, which most answers leave alone: a checkpoint is due."""
        users, run = self.users, self.run
        kept = (users.n_noisy, users.mates, len(users.surveyed), len(self.current.state.runs))
        if run is None:
            return kept, None
        begun = (run.has_summed_moments, run.layout is not None)
        return kept, run.invitation.run, begun, run.place

    @property
    def guards(self) -> Guards:
        """Counters of its answers. Its owner keeps them where nobody puts an older copy back."""
        users, run = self.users, self.run
        return Guards(
            n_noisy=users.n_noisy,
            rho_spent=users.rho_spent,
            runs=self.current.state.runs,
            last_round=0 if run is None else run.place[0],
            surveyed=frozenset(users.surveyed),
            mates=users.mates,
        )

    def keep_to(self, guards: Guards) -> None:
        """Raise the counters to those that the owner kept, even where the state is older.

        A run whose state is lost is not joined again: its rounds would be answered twice.
        """
        raised, users = guards.raised(self.guards), self.users
        users.n_noisy, users.rho_spent, users.mates = raised.n_noisy, raised.rho_spent, raised.mates
        users.surveyed = set(raised.surveyed)
        self.current.change(runs=raised.runs)

    @property
    def is_finished(self) -> bool:
        """Whether it has final item factors."""
        return self.current.state.result is not None

    @property
    def masks(self) -> FittedMasks:
        """The private models; they never leave."""
        return self.users.masks

    @property
    def features(self) -> FeatureViews:
        """Public item features, as its masks see them."""
        return self._data.features

    @property
    def in_clear(self) -> bool:
        """Whether its own policy lets its updates leave outside sums."""
        return self.users.are_in_clear(self.policy)

    @property
    def user_factors(self) -> Array:
        """p_u of its users; private. (n_users, k)."""
        return self.users.user_factors

    def answer(self, data: bytes) -> bytes:
        """Answer one parcel; a repeated one gets its first answer again.

        Where it will not do what is asked, it answers `Refused` and is as it was before.
        """
        try:
            broadcasts, frame = named_parcel(data)
        except WireError as error:
            return _refusal(error)
        name = name_of(b"".join((*broadcasts, frame)))
        with self._lock:
            known = self.current.state.answers
            return known[name] if name in known else self._first_answer(name, broadcasts, frame)

    def _first_answer(self, name: bytes, broadcasts: Mapping[bytes, bytes], frame: bytes) -> bytes:
        try:
            # The server's numbers may overflow; what comes of them is checked.
            with self._changing(), np.errstate(all="ignore"):
                reply = self._reply(broadcasts, frame).encode()
        except WantedError as wanted:
            return Wanted(wanted.name).encode()
        except (FedMMFError, np.linalg.LinAlgError, ArithmeticError, MemoryError) as error:
            return _refusal(error)
        self.current.move(moved=None)
        kept = list(self.current.state.answers.items())[1 - _REMEMBERED :]
        self.current.change(answers=dict([*kept, (name, reply)]))
        return reply

    @contextmanager
    def _changing(self, factors: Mapping[str, Array] | None = None) -> Iterator[None]:
        """Work with a copy of the users; whatever fails, the state of before is put back.

        Args:
            factors: of the users, if they may move without a note of it in the state.
        """
        before = self.current.state
        self.current.change(users=copy(before.users))
        try:
            yield
        except BaseException:  # also a fault of ours, or an interruption
            self.current.go_back(before)
            if factors:
                before.users.restore(factors)
            raise

    def hold(self, secret: bytes) -> None:
        """Take what the keeper hands out, over a channel that the server cannot read."""
        self._running().side.hold(secret)

    def _reply(self, broadcasts: Mapping[bytes, bytes], frame: bytes) -> Message:
        table = self._table()
        message: Message = read(frame, tuple(table), self._data.catalogue)
        for name, broadcast in broadcasts.items():
            self._running().take(name, broadcast)
        return table[type(message)](message)

    def _table(self) -> dict[type[Message], Callable[[Any], Message]]:
        """Handlers of the messages that are accepted now."""
        table: dict[type[Message], Callable[[Any], Message]] = {Invitation: self._join}
        if self.run is not None:
            table[Adopt] = self._adopt
            table[Finish] = self._finish
            table |= dict.fromkeys(self.run.side.answers, self.run.side.answer)
        return table

    def _join(self, invitation: Invitation) -> Joined:
        """Begin a run; the same invitation again changes nothing."""
        if self.run is None or invitation != self.run.invitation:
            name = name_of(invitation.encode())
            runs = self.current.state.runs
            if name in runs:
                raise WireError(
                    "this party had a part in that training before, and cannot go on with it: "
                    "another has begun since, or where it was is lost"
                )
            if self.expectation is None:
                raise WireError(
                    "this party has no charter that says what is trained: it joins none"
                )
            run = PartyRun(self._data, self.current, self.policy, self.expectation, invitation)
            # Answers were of the run before; a broadcast may be the same again.
            self.current.change(run=run, runs=(*runs[-_RUNS:], name), answers={})
        return Joined(self.n_users, self.policy.public_identity)

    def _adopt(self, message: Adopt) -> Adopted:
        """Fit masks, and train with this layout from now on."""
        self._running().adopt(message.about)
        return Adopted(self.in_clear)

    def _finish(self, message: Finish) -> Finished:
        self.current.change(result=self._running().finish(message.about).broadcast)
        return Finished()

    def join_late(
        self, solver: str, variant: str, broadcast: Broadcast, population: Population
    ) -> None:
        """Take finished item factors and solve p_u for them, without any federation.

        Args:
            solver: its name.
            variant: of the solver.
            broadcast: the final broadcast, of the whole catalogue.
            population: what users have in common.
        """
        update_shape = SOLVERS[solver].update_shape(broadcast.rank, variant)
        self.users.check_variant(update_shape)
        everything = np.arange(self._data.catalogue.n_items, dtype=np.int32)
        layout = Layout(everything, population.line, population.shrinkage)
        known = self.policy.population(population, self._data.catalogue.scale)
        with self._lock, self._changing():
            self.users.fit_masks(known)
            self.users.begin(solver, update_shape, layout)
            self.users.solve_users(broadcast)
            self.current.change(result=broadcast)

    def predict(self, items: Array, user: int = 0) -> Array:
        """Predicted ratings of items by one of its users, from their scores. (n,)."""
        return self.users.ratings_of(self.rating_scores(items, user), self._finished())

    def predict_all(self, lists: RatedItems) -> Array:
        """Predicted ratings of some items by each of its users, at once. (n,)."""
        result = self._finished()
        return self.users.ratings_of(self.users.scores(lists, result, are_rated=True), result)

    def scores(self, items: Array, user: int = 0) -> Array:
        """q_i . p_u + f_u(i) for one of its users, for rankings: may be off the scale. (n,)."""
        return self.users.scores(self._list_of(items, user), self._finished())

    def rating_scores(self, items: Array, user: int = 0) -> Array:
        """Return the same, given that the user rates the items: what ratings are predicted by."""
        lists = self._list_of(items, user)
        return self.users.scores(lists, self._finished(), are_rated=True)

    def _list_of(self, items: Array, user: int) -> RatedItems:
        """Items of one user, and none of the others."""
        lengths = np.zeros(self.n_users, np.int64)
        lengths[user] = len(items)
        return RatedItems(np.concatenate(([0], np.cumsum(lengths))), items)

    def _finished(self) -> Broadcast:
        result = self.current.state.result
        if result is None:
            raise NotFittedError("a party predicts after its federation has finished training")
        return result

    def state(self) -> dict[str, Array]:
        """Return all that changes from round to round, for a checkpoint on this device."""
        run = self._running()
        return {
            "invitation": np.frombuffer(run.invitation.encode(), np.uint8),
            "n_noisy": np.array(self.users.n_noisy),
            "rho_spent": np.array(self.users.rho_spent),
            "mates": _as_rows(self.users.mates),
            "runs": _as_rows(self.current.state.runs),
            **_surveys_as_arrays(self.users.surveyed),
            **run.progress(),
            **{f"users/{name}": value for name, value in self._factors().items()},
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a checkpoint; a secure session has to be set up anew."""
        with self._lock, self._changing(self.users.state()):
            try:
                self._restore(state)
            except (FedMMFError, KeyError, TypeError, ValueError, OverflowError) as error:
                raise CheckpointError(f"this is no checkpoint of this party: {error}") from None

    def _restore(self, state: Mapping[str, Array]) -> None:
        known = self.guards
        self.current.change(runs=())
        self._join(Invitation.decode(state["invitation"].tobytes()))
        self.current.change(runs=_from_rows(state["runs"]))
        self.users.surveyed = _surveys_from_arrays(state)
        self._running().resume(state)
        self.users.n_noisy = int(state["n_noisy"])
        self.users.rho_spent = float(state["rho_spent"])
        self.users.mates = _from_rows(state["mates"])
        self.keep_to(known)
        factors, fresh = part_of(state, "users/"), self._factors()
        shapes, wanted = ({n: v.shape for n, v in part.items()} for part in (factors, fresh))
        if shapes != wanted:
            raise ValueError(f"its factors have the shapes {shapes}; {wanted} are due")
        if factors:
            self.users.restore(factors)

    def _factors(self) -> dict[str, Array]:
        """State of the users' factors in this run; empty before there is a layout."""
        return {} if self._running().layout is None else self.users.state()

    def _running(self) -> PartyRun:
        if self.run is None:
            raise WireError("this party has not joined a federation yet")
        return self.run


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
