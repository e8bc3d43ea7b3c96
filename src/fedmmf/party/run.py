"""One run of a federation, as a party goes through it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedmmf.aggregation import AGGREGATIONS
from fedmmf.aggregation.contract import HELD_OUT_TOTALS, Contribution, Shapes, Work, asked_by
from fedmmf.aggregation.party_side import PartySide
from fedmmf.aggregation.vector import SumCodec
from fedmmf.arrays import Array
from fedmmf.engines.contract import Cohort, CohortSums
from fedmmf.errors import WireError
from fedmmf.party.expectation import Expectation, check_agreement
from fedmmf.party.policy import Policy
from fedmmf.party.state import RunState, StateHolder
from fedmmf.party.surveys import REFUSALS, answer_last_round, answer_survey, counted
from fedmmf.party.user_group import PartyData, UserGroup
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import RequestedRelease
from fedmmf.wire import (
    BROADCASTS,
    Catalogue,
    Invitation,
    Layout,
    Round,
    Survey,
    read,
)
from fedmmf.wire.frames import kind_of
from fedmmf.wire.messages import Expected

_HELD = 2  # broadcasts that are kept: of this round, and of the last


class WantedError(WireError):
    """A broadcast is named that this party does not hold."""

    def __init__(self, name: bytes) -> None:
        super().__init__("a broadcast of that name is not here")
        self.name = name


class PartyRun:
    """One run: the `PartyContext` that the party's side of an aggregation scheme works with.

    All that changes is in `current`, so that `Party` can undo an answer.

    Args:
        data: of the party.
        current: its state.
        policy: of its owner.
        expectation: what the charter says of any run.
        invitation: what was agreed on, once it is checked here.
    """

    def __init__(
        self,
        data: PartyData,
        current: StateHolder,
        policy: Policy,
        expectation: Expectation,
        invitation: Invitation,
    ) -> None:
        check_agreement(invitation, data.catalogue)
        expectation.check(invitation)
        self.expectation = expectation
        policy.check_rank(invitation.rank)
        self.catalogue: Catalogue = data.catalogue
        self.current, self.invitation = current, invitation
        self.policy = policy
        self.solver = SOLVERS[invitation.solver]
        self.update_shape = self.solver.update_shape(invitation.rank, invitation.variant)
        self.users.check_variant(self.update_shape)
        self.n_users = self.users.n_users
        scheme = AGGREGATIONS[invitation.sums]
        policy.check_scheme(scheme, invitation.minimum)
        self.users.check_columns(invitation.columns, scheme, policy)
        current.change(at=RunState())
        self.side: PartySide = scheme.party(self)

    @property
    def users(self) -> UserGroup:
        """Users behind the party."""
        return self.current.state.users

    @property
    def _at(self) -> RunState:
        return self.current.state.at

    @property
    def layout(self) -> Layout | None:
        """Layout of the run, once it is adopted."""
        return self._at.layout

    @property
    def side_state(self) -> Any:
        """State of the party's side of the aggregation scheme: one immutable object."""
        return self._at.side

    @side_state.setter
    def side_state(self, state: Any) -> None:
        self.current.move(side=state)

    @property
    def has_summed_moments(self) -> bool:
        """Whether it has answered a survey of moments, whose items are fixed from then on."""
        return self._at.moments_of is not None

    @property
    def place(self) -> tuple[int, int, bool]:
        """Last round and best round that the party took part in, and whether training is over."""
        return self._at.last_round, self._at.best_round, self._at.is_finished

    @property
    def in_clear(self) -> bool:
        """Whether its owner lets updates leave outside sums; known once it has masks."""
        return self.users.are_in_clear(self.policy)

    def adopt(self, name: bytes) -> None:
        """Adopt a layout: fit masks around its line, and send rows of its items only."""
        layout = self._held(name)
        if not isinstance(layout, Layout):
            raise WireError("what is published under that name is no layout")
        self._take_layout(layout)

    def _take_layout(self, layout: Layout) -> None:
        if self.layout is not None:
            if layout.encode() != self.layout.encode():
                raise WireError("this party has adopted another layout for this run")
            return
        self.require_same_items(layout.items)
        self.users.fit_masks(self.policy.population(layout.population, self.catalogue.scale))
        self.users.begin(self.invitation.solver, self.update_shape, layout)
        self.current.move(layout=layout)

    def progress(self) -> dict[str, Array]:
        """Return the state of the run, for a checkpoint."""
        found = {"rounds": np.array(self.place, np.int64)}
        if self.layout is not None:
            found["layout"] = np.frombuffer(self.layout.encode(), np.uint8)
        if self._at.moments_of is not None:
            found["moments_of"] = self._at.moments_of
        if self._at.has_told_newcomers:
            found["newcomers"] = np.ones((), bool)
        return found if self._at.best is None else found | {"best": self._at.best}

    def resume(self, state: Mapping[str, Array]) -> None:
        """Continue from the state that `progress` returned."""
        self.current.move(moments_of=state.get("moments_of"))
        if "layout" in state:
            known = self._shapes.known(None)
            self._take_layout(Layout.decode(state["layout"].tobytes(), known))
        last, best, is_finished = map(int, state["rounds"].tolist())
        place = {"last_round": last, "best_round": best, "is_finished": bool(is_finished)}
        told = "newcomers" in state
        self.current.move(best=state.get("best"), has_told_newcomers=told, **place)

    @property
    def mates(self) -> tuple[bytes, ...]:
        """Identities of its batch, in this run and in all before."""
        return self.users.mates

    @mates.setter
    def mates(self, identities: tuple[bytes, ...]) -> None:
        self.users.mates = identities

    @property
    def surveyed(self) -> set[tuple[str, frozenset[bytes]]]:
        """Surveys that it has unmasked, in this run and in all before."""
        return self.users.surveyed

    @surveyed.setter
    def surveyed(self, surveys: set[tuple[str, frozenset[bytes]]]) -> None:
        self.users.surveyed = surveys

    def take(self, name: bytes, frame: bytes) -> None:
        """Decode a broadcast once, and keep it."""
        works = self._at.works
        if name not in works:
            kept = list(works.items())[1 - _HELD :]
            self.current.move(works=dict([*kept, (name, self.side.read(frame))]))

    def work(self, name: bytes) -> Work:
        """Return a broadcast that was taken and asks for a sum."""
        found = self._held(name)
        if isinstance(found, Layout):
            raise WireError("a layout is nothing to sum")
        return found

    def _held(self, name: bytes) -> Work | Layout:
        if name not in self._at.works:
            raise WantedError(name)
        return self._at.works[name]

    def read_work(self, frame: bytes) -> Work | Layout:
        """Read a broadcast against what was agreed on."""
        if self.layout is None and kind_of(frame) == Round.kind:
            raise WireError("a round needs a layout first; this party has adopted none")
        work = read(frame, BROADCASTS, self._shapes.known(self.layout))
        if isinstance(work, Round):
            self.solver.check(self.update_shape, work.broadcast)
            return work
        if isinstance(work, Layout):
            check_line(work, self.invitation)
            return work
        if isinstance(work, Survey):
            return work
        raise WireError("only surveys, layouts and rounds are published")

    def sizes(self, work: Work) -> Expected:
        """Sizes of the answer to a broadcast."""
        return self._shapes.of(asked_by(work), self.layout)

    @property
    def _shapes(self) -> Shapes:
        return Shapes(self.catalogue.n_items, self.invitation.columns, self.update_shape)

    def contribute(
        self, work: Work, rounding: SumCodec | None, left_out: Array | None, n_parties: int
    ) -> Contribution:
        """Compute the users' update to a broadcast; in a round, p_u changes too."""
        cohort = Cohort(left_out=left_out) if rounding is None else rounding.cohort(left_out)
        if isinstance(work, Survey):
            return answer_survey(self, work, cohort)
        if work.is_last:
            return answer_last_round(self, work, cohort)
        self._begin_round(work)
        if self.policy.noise is not None:
            return self._noisy(work, rounding, n_parties)
        found = self._update(work, cohort)
        items, counts = counted(self.users.counts, left_out)
        return Contribution(items, counts, found.rows[0][items], found.totals[0])

    def collect(self) -> tuple[Array, Array]:
        """Return items and masked ratings, which are shared on purpose."""
        if self.n_users > 1 or self.policy.noise is not None:
            raise WireError("only a single user without noise hands over masked ratings")
        return self.users.summed_ratings

    def finish(self, name: bytes) -> Round:
        """Take the final factors; users who missed their round solve p_u for them now."""
        work = self.work(name)
        if not isinstance(work, Round) or not work.is_last:
            raise WireError("what is published under that name is not the end of training")
        self.current.move(moved=self.users.state())
        self.remember_best(work)
        self.current.move(is_finished=True)
        at = self._at
        if at.best is not None and at.best_round == work.best_round:
            self.users.user_factors = at.best
        elif work.best_round or at.last_round == 0 or self.update_shape.solves_last:
            self._solve_users(work)
        if (self.users.summed_lists.lengths == 0).any():  # these had no part in any round
            self._solve_users(work, np.flatnonzero(self.users.summed_lists.lengths == 0))
        return work

    def _solve_users(self, work: Round, users: Array | None = None) -> None:
        """Solve p_u; keep the old p_u, silently, where the server's matrices have no inverse.

        A user whose own numbers overflow keeps the old p_u too: the engine sees to that.
        """
        if self.layout is None:
            return
        try:
            self.users.solve_users(work.broadcast.take(self.layout.items), users)
        except REFUSALS:
            self._stay()

    def _stay(self) -> None:
        """Restore p_u from before this answer."""
        if self._at.moved is not None:
            self.users.restore(self._at.moved)

    def _update(self, work: Round, cohort: Cohort) -> CohortSums:
        """Compute the users' update; where the broadcast is refused, zeros and the old p_u.

        Refused are matrices without an inverse and more membership rounds than allowed: public
        numbers, whatever users rated. Where one user's own numbers overflow, the engine adds zeros
        for that user alone: zeros for the whole party would let one user's ratings decide what it
        says of all others.
        """
        try:
            found = self.users.update(work.broadcast, work.round, [cohort])
            held_out = self.users.held_out_totals(work.broadcast)  # (n_users, 2)
            totals = (cohort.totals_in_steps(held_out).sum(axis=0), found.totals[0])
            return CohortSums(found.rows, [np.concatenate(totals)])
        except REFUSALS:
            self._stay()
        sizes = self.sizes(work)
        shape = (sizes.n_items, self.update_shape.width)
        rows = np.zeros(shape, np.int64 if cohort.is_fixed else np.float32)
        return CohortSums([rows], [np.zeros(sizes.n_totals)])

    def _begin_round(self, work: Round) -> None:
        last = self._at.last_round
        if self._at.is_finished or self._at.has_told_newcomers:
            raise WireError("training is over; the last round only hands out the result")
        if work.round > self.invitation.rounds:
            raise WireError(f"{self.invitation.rounds} rounds were agreed on; got {work.round}")
        if work.round <= last:
            raise WireError(f"rounds must increase: round {last} is over; got round {work.round}")
        self.current.move(moved=self.users.state())
        self.remember_best(work)
        self.current.move(last_round=work.round)

    def remember_best(self, work: Round) -> None:
        """Keep p_u of the last round, if the broadcast calls that one the best."""
        if 0 < work.best_round == self._at.last_round:  # p_u has not moved since
            best = self.users.user_factors.copy()
            self.current.move(best=best, best_round=work.best_round)

    def _noisy(self, work: Round, rounding: SumCodec | None, n_parties: int) -> Contribution:
        """Return clipped rows of the whole catalogue, and totals clipped with them, with noise.

        The engine clips and rounds each user (`Cohort.both_clipped`); other totals are zeros.
        Nothing is cut off after the noise: an entry beyond the bounds is an element of the ring.
        """
        noise, users = self.policy.noise, self.users
        if noise is None or not noise.pays_after(users.rho_spent):
            raise WireError(f"this party's privacy budget, {users.n_noisy} rounds, is spent")
        noise.check_release(work.round, self._requested_release(work))
        users.n_noisy, users.rho_spent = users.n_noisy + 1, users.rho_spent + noise.rho
        scale = noise.own_scale if rounding is None else float(rounding.rows.scale)
        n_items, shape = self.sizes(work).n_items, self.update_shape
        grid = noise.grid(scale, n_parties, n_items * shape.width, shape.n_noisy_totals)
        found = self._update(work, grid.cohort)
        steps, told = grid.add(found.rows[0]), grid.add_to_totals(found.totals[0])
        told[:HELD_OUT_TOTALS] = 0
        who = (np.arange(n_items, dtype=np.int32), np.full(n_items, self.n_users))
        if rounding is not None:
            return Contribution(*who, steps, told)
        return Contribution(*who, (steps / scale).astype(np.float32), told / scale)

    def _requested_release(self, work: Round) -> RequestedRelease:
        """Return the release that a round asks for, as its solver reads the broadcast."""
        reads = getattr(self.solver, "requested_release", None)
        return RequestedRelease() if reads is None else reads(self.update_shape, work.broadcast)

    def require_same_items(self, items: Array) -> None:
        """Refuse other items than those whose moments were summed."""
        known = self._at.moments_of
        if known is not None and not np.array_equal(known, items):
            raise WireError(
                f"moments were summed over {len(known)} items, and the layout has the "
                f"same; the server names {len(items)}, which are others"
            )


def check_line(layout: Layout, invitation: Invitation) -> None:
    """Refuse a population line of another size; its values are clipped to the scale."""
    if len(layout.line) != invitation.columns:
        raise WireError(
            f"what users have in common has {invitation.columns} columns; got {len(layout.line)}"
        )
