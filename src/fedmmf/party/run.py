"""One run of a federation, as a party goes through it."""

from collections.abc import Mapping

import numpy as np

from fedmmf.aggregation import AGGREGATIONS
from fedmmf.aggregation.contract import Contribution, Shapes, Work, asked_by
from fedmmf.aggregation.party_side import PartySide, Rounding
from fedmmf.arrays import Array
from fedmmf.data.rated_items import RatedItems
from fedmmf.engines.contract import Cohort, CrowdUpdate
from fedmmf.errors import WireError
from fedmmf.party.expectation import Expectation
from fedmmf.party.policy import Policy
from fedmmf.party.users import PartyData, Users
from fedmmf.solvers import SOLVERS
from fedmmf.wire import (
    PUBLICATIONS,
    Catalogue,
    Invitation,
    Layout,
    Round,
    Survey,
    read,
)
from fedmmf.wire.frames import kind_of
from fedmmf.wire.messages import Expected

_REFUSALS = (WireError, np.linalg.LinAlgError)  # of a broadcast, whoever rated what
_HELD = 2  # broadcasts that are kept: of this round, and of the last


class WantedError(WireError):
    """A broadcast is named that this party does not hold."""

    def __init__(self, name: bytes) -> None:
        super().__init__("a broadcast of that name is not here")
        self.name = name


class PartyRun:
    """The context of a party's side of an aggregation scheme: see `aggregation.party_side`.

    Attributes are replaced, never changed in place, so that `Party` can go back.

    Args:
        data: of the party.
        users: behind it.
        policy: of its owner.
        expectation: what the charter says of any run.
        invitation: what was agreed on, once it is checked here.
    """

    def __init__(
        self,
        data: PartyData,
        users: Users,
        policy: Policy,
        expectation: Expectation,
        invitation: Invitation,
    ) -> None:
        check_agreement(invitation, data.catalogue)
        expectation.check(invitation)
        self.expectation = expectation
        policy.check_rank(invitation.rank)
        self.catalogue: Catalogue = data.catalogue
        self.users, self.invitation = users, invitation
        self.policy = policy
        self.solver = SOLVERS[invitation.solver]
        self.update_shape = self.solver.update_shape(invitation.rank, invitation.variant)
        users.check_form(self.update_shape)
        self.n_users = users.n_users
        self.layout: Layout | None = None  # once it is adopted
        self._moments_of: Array | None = None  # items whose moments it has added up, once it has
        self._works: dict[bytes, Work | Layout] = {}
        self._last_round, self._is_finished = 0, False
        self._best: Array | None = None  # p_u of the best round that it took part in
        self._best_round = 0
        self.undo: dict[str, Array] | None = None  # the users' state before this answer
        way = AGGREGATIONS[invitation.sums]
        policy.check_way(way, invitation.minimum)
        users.check_columns(invitation.columns, way, policy)
        self.side: PartySide = way.party(self)

    @property
    def has_summed_moments(self) -> bool:
        """Whether it has answered a survey of moments, which it does over one list of items."""
        return self._moments_of is not None

    @property
    def place(self) -> tuple[int, int, bool]:
        """Last round and best round that the party took part in, and whether training is over."""
        return self._last_round, self._best_round, self._is_finished

    @property
    def in_clear(self) -> bool:
        """Whether its owner lets updates leave outside sums; known once it has masks."""
        return self.users.are_in_clear(self.policy)

    def adopt(self, name: bytes) -> None:
        """Adopt a layout: fit masks around its mean, and send rows of its items only."""
        layout = self._published(name)
        if not isinstance(layout, Layout):
            raise WireError("what is published under that name is no layout")
        self._take_layout(layout)

    def _take_layout(self, layout: Layout) -> None:
        if self.layout is not None:
            if layout.encode() != self.layout.encode():
                raise WireError("this party has adopted another layout for this run")
            return
        self._require_same_items(layout.items)
        self.users.begin(self.invitation.solver, self.update_shape, layout, self.policy)
        self.layout = layout

    def progress(self) -> dict[str, Array]:
        """Return the state of the run, for a checkpoint."""
        found = {"rounds": np.array(self.place, np.int64)}
        if self.layout is not None:
            found["layout"] = np.frombuffer(self.layout.encode(), np.uint8)
        if self._moments_of is not None:
            found["moments_of"] = self._moments_of
        return found if self._best is None else found | {"best": self._best}

    def resume(self, state: Mapping[str, Array]) -> None:
        """Continue from the state that `progress` returned."""
        self._moments_of = state.get("moments_of")
        if "layout" in state:
            known = self._shapes.known(None)
            self._take_layout(Layout.decode(state["layout"].tobytes(), known))
        last, best, is_finished = map(int, state["rounds"].tolist())
        self._last_round, self._best_round, self._is_finished = last, best, bool(is_finished)
        self._best = state.get("best")

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
        if name not in self._works:
            kept = list(self._works.items())[1 - _HELD :]
            self._works = dict([*kept, (name, self.side.read(frame))])

    def work(self, name: bytes) -> Work:
        """Return a broadcast that was taken and asks for a sum."""
        found = self._published(name)
        if isinstance(found, Layout):
            raise WireError("a layout is nothing to sum")
        return found

    def _published(self, name: bytes) -> Work | Layout:
        if name not in self._works:
            raise WantedError(name)
        return self._works[name]

    def read_work(self, frame: bytes) -> Work | Layout:
        """Read a broadcast against what was agreed on."""
        if self.layout is None and kind_of(frame) == Round.kind:
            raise WireError("a round needs a layout first; this party has adopted none")
        work = read(frame, PUBLICATIONS, self._shapes.known(self.layout))
        if isinstance(work, Round):
            self.solver.check(self.update_shape, work.public)
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
        self, work: Work, rounding: Rounding | None, left_out: Array | None, n_parties: int
    ) -> Contribution:
        """Compute the users' update to a broadcast; in a round, p_u changes too."""
        cohort = Cohort(left_out=left_out) if rounding is None else rounding.cohort(left_out)
        if isinstance(work, Survey):
            self._check_survey(work)
            return self._moments(work, cohort) if len(work.items) else self._rows(work, cohort)
        self._begin_round(work)
        if self.policy.noise is not None:
            return self._noisy(work, rounding, n_parties)
        found = self._update(work, cohort)
        items, counts = _counted(self.users.counts, left_out)
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
        self.undo = self.users.state()
        self._remember_best(work)
        self._is_finished = True
        if self._best is not None and self._best_round == work.best_round:
            self.users.user_factors = self._best
        elif work.best_round or self._last_round == 0:
            self._settle(work)
        if (self.users.summed_lists.lengths == 0).any():  # these had no part in any round
            self._settle(work, np.flatnonzero(self.users.summed_lists.lengths == 0))
        return work

    def _settle(self, work: Round, users: Array | None = None) -> None:
        """Solve p_u; keep it silently where the server's matrices have no inverse.

        Users whose own numbers overflow stay too, each for itself: the engine sees to that.
        """
        if self.layout is None:
            return
        try:
            self.users.settle(work.public.take(self.layout.items), users)
        except _REFUSALS:
            self._stay()

    def _stay(self) -> None:
        """Restore p_u from before this answer."""
        if self.undo is not None:
            self.users.restore(self.undo)

    def _update(self, work: Round, cohort: Cohort) -> CrowdUpdate:
        """Compute the users' update; where the broadcast is refused, zeros and the old p_u.

        Refused are matrices without an inverse and membership rounds beyond the most: public
        numbers, whoever rated what. A user whose own numbers overflow adds zeros alone, which is
        the engine's contract: were it the whole party, that user's ratings would decide what the
        party says about all others.
        """
        try:
            return self.users.update(work.public, work.round, cohort)
        except _REFUSALS:
            self._stay()
        sizes = self.sizes(work)
        shape = (sizes.n_items, self.update_shape.width)
        rows = np.zeros(shape, np.int64 if cohort.is_fixed else np.float32)
        return CrowdUpdate([rows], [np.zeros(sizes.n_totals)])

    def _begin_round(self, work: Round) -> None:
        if work.is_last or self._is_finished:
            raise WireError("training is over; the last round only hands out the result")
        if work.round > self.invitation.rounds:
            raise WireError(f"{self.invitation.rounds} rounds were agreed on; got {work.round}")
        if work.round <= self._last_round:
            last = self._last_round
            raise WireError(f"rounds must increase: round {last} is over; got round {work.round}")
        self.undo = self.users.state()
        self._remember_best(work)
        self._last_round = work.round

    def _remember_best(self, work: Round) -> None:
        if 0 < work.best_round == self._last_round:  # it has not moved since
            self._best, self._best_round = self.users.user_factors.copy(), work.best_round

    def _noisy(self, work: Round, rounding: Rounding | None, n_parties: int) -> Contribution:
        """Clip rows of the whole catalogue and add noise; drop the totals, which have none.

        Each user's rows are rounded for themselves, and nothing is cut off after the noise: an
        entry beyond the bounds is an element of the ring like any other.
        """
        noise = self.policy.noise
        if noise is None or self.users.n_noisy >= noise.rounds:
            raise WireError(f"this party's privacy budget, {self.users.n_noisy} rounds, is spent")
        self.users.n_noisy += 1
        scale = noise.own_scale if rounding is None else rounding.cohort(None).scale
        n_items = self.sizes(work).n_items
        n_entries = n_items * self.update_shape.width
        grid = noise.grid(scale, n_parties, n_entries)
        found = self._update(work, grid.cohort)
        steps = grid.add(found.rows[0])  # (n_items, width) int64
        items = np.arange(n_items, dtype=np.int32)
        counts, totals = np.full(len(items), self.n_users), np.zeros_like(found.totals[0])
        if rounding is None:
            return Contribution(items, counts, (steps / scale).astype(np.float32), totals)
        return Contribution(items, counts, steps, totals.astype(np.int64))

    def _check_survey(self, work: Survey) -> None:
        """Refuse a survey that its owner does not allow, or that comes at the wrong time."""
        if self.policy.noise is not None:
            raise WireError("this party adds noise to what it says; a survey has none")
        if work.with_ratings and not self.policy.survey_ratings:
            raise WireError("this party's owner lets no ratings out, not even in a survey's sums")
        if work.with_ratings and self.layout is None:
            raise WireError("a survey of ratings needs a layout first; this party has adopted none")
        if self._last_round:
            raise WireError("a survey comes before the first round")

    def _rows(self, work: Survey, cohort: Cohort) -> Contribution:
        """Return which items are rated or, if allowed, the ratings around the scale's middle."""
        lists, values = self._described(work)
        rows = np.asarray(values, np.float32)[:, np.newaxis]
        rows = cohort.in_steps(rows) if cohort.is_fixed else rows
        n_items = self.sizes(work).n_items
        total = np.zeros((n_items, 1), rows.dtype)
        np.add.at(total, lists.items, rows)
        items, counts = _counted(lists.counts(n_items), cohort.left_out)
        return Contribution(items, counts, total[items], cohort.totals_in_steps(np.zeros(0)))

    def _described(self, work: Survey) -> tuple[RatedItems, Array]:
        """Return items, and a value for each. (n,)."""
        users, scale = self.users, self.catalogue.scale
        if work.with_ratings:
            return users.summed_lists, scale.to_unit(users.summed_values) - 0.5
        return users.lists, np.ones(len(users.ratings))

    def _moments(self, work: Survey, cohort: Cohort) -> Contribution:
        """Compute the users' part of the population statistics, over one layout's items alone.

        Moments over two lists of items differ by what few items add, and who is in the clear has
        chosen by then: so there is one list in a run, before the layout.
        """
        if self.layout is not None:
            raise WireError("moments are summed before there is a layout; this party has one")
        self._require_same_items(work.items)
        self._moments_of = work.items
        columns, min_raters = self.invitation.columns, self.expectation.min_raters
        nothing = cohort.totals_in_steps(np.zeros(self.sizes(work).n_totals))
        added = self.users.totals(work.items, columns, min_raters)
        totals = sum((cohort.totals_in_steps(some).sum(axis=0) for some in added), nothing)
        none, rows = np.zeros(0, np.int32), np.zeros((0, 1), np.float32)
        return Contribution(none, np.zeros(0, np.int64), rows, np.asarray(totals))

    def _require_same_items(self, items: Array) -> None:
        """Refuse other items than those whose moments were summed."""
        if self._moments_of is not None and not np.array_equal(self._moments_of, items):
            raise WireError(
                f"moments were summed over {len(self._moments_of)} items, and the layout has the "
                f"same; the server names {len(items)}, which are others"
            )


def _counted(counts: Array, left_out: Array | None) -> tuple[Array, Array]:
    """Items that are summed, and how many users rated each."""
    if left_out is not None:
        counts = np.where(left_out, 0, counts)
    items = np.flatnonzero(counts).astype(np.int32)
    return items, counts[items]


def check_line(layout: Layout, invitation: Invitation) -> None:
    """Refuse a population line of another size; its values are clipped to the scale."""
    if len(layout.line) != invitation.columns:
        raise WireError(
            f"what users have in common has {invitation.columns} columns; got {len(layout.line)}"
        )


def check_agreement(invitation: Invitation, catalogue: Catalogue) -> None:
    """Refuse a run that this party cannot take part in."""
    scale = catalogue.scale
    theirs = (invitation.scale_min, invitation.scale_max, invitation.scale_step)
    if theirs != (scale.min, scale.max, scale.step):
        raise WireError(f"this party rates {scale}; the server's scale is {theirs}")
    if invitation.catalogue != catalogue.digest:
        raise WireError("the server's catalogue is not this party's: other items or features")
    for kind, name in ((SOLVERS, invitation.solver), (AGGREGATIONS, invitation.sums)):
        if name not in kind:
            known = ", ".join(kind.names())
            raise WireError(f"this party knows no {kind.kind} {name[:40]!r}; it knows {known}")
    bounds = SOLVERS[invitation.solver].bounds(scale.span)
    if (invitation.row_bound, invitation.total_bound) != (bounds.row, bounds.total):
        raise WireError("the server's bounds are not those of the solver on this scale")
