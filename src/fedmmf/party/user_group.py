"""A user group: the ratings, masks and factors p_u of one user or of many, behind an engine.

A device, a site and the simulation run on the same class.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedmmf.aggregation.contract import AggregationScheme
from fedmmf.arrays import Array
from fedmmf.data.rated_items import RatedItems
from fedmmf.engines.contract import Cohort, CohortSums, Engine, TrainingInput, UserHalves
from fedmmf.engines.reference import NUMPY
from fedmmf.errors import NotFittedError, WireError
from fedmmf.masks.feature_maps import FeatureViews
from fedmmf.masks.fitting import FittedMasks, MaskInput, MaskPlan, fit_masks
from fedmmf.masks.lines import lines_of
from fedmmf.masks.population import MAX_LINE_COLUMNS, CommonItems, Population, user_totals
from fedmmf.party.policy import Policy, Private
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import MAX_TOTAL, Broadcast, UpdateShape, whole_factors
from fedmmf.wire import Catalogue, Layout

EVERYBODY = (Cohort(),)


@dataclass(frozen=True, eq=False)
class PartyData:
    """Ratings of one user or of many, with the catalogue that they are about.

    Attributes:
        catalogue: as this party knows it.
        features: public item features of the whole catalogue.
        lists: the rated items of each user, strictly increasing.
        ratings: of these items, on the catalogue's scale. (n,)
        held_out: which ratings to keep for early stopping instead of training. (n,) bool
        profiles: what is known of each user; private like the ratings. (n_users, d)
    """

    catalogue: Catalogue
    features: FeatureViews
    lists: RatedItems
    ratings: Array
    held_out: Array | None = None
    profiles: Array = field(default_factory=lambda: np.zeros((0, 0)))

    def __post_init__(self) -> None:
        if len(self.profiles) == 0:
            object.__setattr__(self, "profiles", np.zeros((self.lists.n_users, 0)))

    def part(self, *, held_out: bool) -> tuple[RatedItems, Array]:
        """Return lists and ratings of the held-out part, or of the rest."""
        if self.held_out is None and not held_out:
            return self.lists, self.ratings
        nothing = np.zeros(len(self.ratings), bool)
        is_held_out = nothing if self.held_out is None else self.held_out
        keep = is_held_out == held_out
        kept_before = np.concatenate(([0], np.cumsum(keep)))
        lists = RatedItems(kept_before[self.lists.indptr], self.lists.items[keep])
        return lists, self.ratings[keep]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out ratings of items that are summed."""

    lists: RatedItems  # of each user, as positions in the layout
    ratings: Array  # (n,)
    mask: Array  # f_u(i) of these (n,)


class UserGroup:
    """Ratings, masks and factors p_u of one user or of many.

    Masks are fitted once there is a layout: they shrink towards its line, the population's.

    Args:
        data: the ratings.
        plan: what masks to fit.
        engine: what computes the users' halves.
    """

    def __init__(self, data: PartyData, plan: MaskPlan, engine: Engine) -> None:
        plan.check_features(data.features.seen)
        self._data, self._plan, self._engine = data, plan, engine
        self.features = data.features
        self.lists, self.ratings = data.part(held_out=False)
        self._masks: FittedMasks | None = None
        self._halves: UserHalves | None = None
        self._given: TrainingInput | None = None
        self._items = np.zeros(0, np.int32)  # of the layout (n_items,)
        self._held_out: HeldOut | None = None
        self._counts: Array | None = None
        self._in_clear: bool | None = None  # once it is known
        self.n_noisy = 0  # updates with noise that have left
        self.rho_spent = 0.0  # what they cost, in concentrated differential privacy
        self.surveyed: set[tuple[str, frozenset[bytes]]] = set()  # what was asked, among whom
        self.mates: tuple[bytes, ...] = ()  # identities of its batch, summed together

    @property
    def n_users(self) -> int:
        """Number of users of the group."""
        return self.lists.n_users

    # Masks

    @property
    def masks(self) -> FittedMasks:
        """Fitted masks of the users; raises `NotFittedError` before there is a layout."""
        if self._masks is None:
            raise NotFittedError("a party has masks after it has adopted a layout")
        return self._masks

    def fit_masks(
        self, population: Population, progress: Callable[[int], None] | None = None
    ) -> None:
        """Fit masks around the population statistics; keep masks that exist already.

        Args:
            population: which masks shrink towards.
            progress: called with the number of users whose masks are ready.
        """
        if self._masks is not None and self._masks.population.is_like(population):
            return
        scale, seen = self._data.catalogue.scale, self.features.seen
        given = MaskInput(self.lists, self.ratings, scale, seen, population)
        self._masks = fit_masks(self._plan, given, self._engine.mask_runner(progress))
        self._in_clear = None

    @property
    def private(self) -> Private:
        """What the owner's policy decides by; it never leaves."""
        return Private(self.lists, self.ratings, self.masks, self.features.seen)

    def are_in_clear(self, policy: Policy) -> bool:
        """Whether the owner's policy lets their updates leave outside sums."""
        if self._in_clear is None:
            self._in_clear = bool(policy.in_clear(self.private).all())
        return self._in_clear

    def totals(self, items: Array, n_columns: int, min_raters: int) -> Iterator[Array]:
        """Yield each user's part of the population statistics, block by block. (n_some, n_totals).

        Args:
            items: of the layout. (n,)
            n_columns: of what users have in common.
            min_raters: the fewest raters of an item that is summed.
        """
        catalogue, seen = self._data.catalogue, self.features.expanded[:, : n_columns - 1]
        common = CommonItems.of(items, seen, min_raters)
        lists, is_common = self.lists.within(common.items, catalogue.n_items)
        return user_totals(lists, self.ratings[is_common], common.features, catalogue.scale)

    # Preconditions

    def check_variant(self, update_shape: UpdateShape) -> None:
        """Refuse a solver's variant that needs other columns or levels than this party has.

        Users without a profile may take part: they count as a mean one.
        """
        n_profile, levels = self._data.profiles.shape[1], self._data.catalogue.scale.n_levels
        wanted = (
            update_shape.n_profile,
            update_shape.n_design,
            update_shape.n_levels,
            update_shape.n_joint,
        )
        n_columns = self.features.n_columns
        joint = n_columns if self._plan.is_joint(n_columns - 1) else 0
        allowed = ({0, n_profile}, {0, n_columns}, {0, levels}, {joint})
        if n_profile == 0:
            allowed = (set(wanted[:1]), *allowed[1:])
        if not all(number in some for number, some in zip(wanted, allowed, strict=True)):
            raise WireError(
                f"this party has {n_profile} columns of profiles, {n_columns} of features, "
                f"{levels} levels and {joint} of a joint mask; the server's variant calls for "
                f"{wanted}"
            )

    def check_columns(self, n_columns: int, scheme: AggregationScheme, policy: Policy) -> None:
        """Refuse a population line over other columns than a constant, or a constant and features.

        In the clear, moments of ratings and features would give ratings away.
        """
        is_hidden = scheme.hides and policy.sharing == "strict"
        most = 1 + self.features.content.shape[1] * self.features.sees_features
        most = most if is_hidden and most <= MAX_LINE_COLUMNS else 1
        if n_columns not in (1, most):
            may_be = f"1 or {most} columns" if most > 1 else "1 column"
            raise WireError(f"what users have in common has {may_be} here; got {n_columns}")

    # Rounds

    def begin(self, solver: str, update_shape: UpdateShape, layout: Layout) -> None:
        """Start a run with fitted masks: p_u as before the first round."""
        self.begin_with(self.training_input(solver, update_shape, layout), layout)

    def training_input(
        self,
        solver: str,
        update_shape: UpdateShape,
        layout: Layout,
        cohorts: Sequence[Cohort] = EVERYBODY,
    ) -> TrainingInput:
        """Return the training data of a run, with positions of items in the layout.

        Args:
            solver: its name.
            update_shape: sizes of what is sent.
            layout: which items are summed.
            cohorts: who is summed with whom.
        """
        lists, is_summed = self.lists.within(layout.items, self._data.catalogue.n_items)
        masked, design = self.masks.masked_ratings, self.features.design
        lines = np.zeros((self.n_users, 0))
        if update_shape.n_design:
            runner = self._engine.mask_runner()
            lines = lines_of(self.masks, self.features.seen, design, runner)
        return TrainingInput(
            solver=solver,
            update_shape=update_shape,
            design=design[layout.items, : update_shape.n_columns],
            lists=lists,
            masked_ratings=masked if is_summed.all() else masked[is_summed],
            profiles=self._profiles(update_shape.n_profile),
            lines=lines,
            cohorts=cohorts,
            **self._ordered(update_shape, is_summed),
        )

    def begin_with(self, given: TrainingInput, layout: Layout) -> None:
        """Start a run with what `training_input` returned."""
        self._items, self._counts = layout.items, None
        self._held_out = self.held_out_of(layout)
        self._given, self._halves = given, self._engine.halves(given)

    def held_out_of(self, layout: Layout) -> HeldOut | None:
        """Return the held-out ratings of a layout's items; None: nothing is held out."""
        lists, ratings = self._data.part(held_out=True)
        if len(ratings) == 0:
            return None
        places, is_summed = lists.within(layout.items, self._data.catalogue.n_items)
        mask = self.masks.predict(lists, self.features.seen, self._engine.mask_runner())
        return HeldOut(places, ratings[is_summed], mask[is_summed])

    def _profiles(self, n_columns: int) -> Array:
        """Profile of each user; zeros where nothing is known. (n_users, n_columns)."""
        known = self._data.profiles[:, :n_columns]
        return known if known.shape[1] else np.zeros((self.n_users, n_columns))

    def _ordered(self, update_shape: UpdateShape, is_summed: Array) -> dict[str, Any]:
        """Levels and masks of the ratings that are summed, where ratings are ordered."""
        if not update_shape.n_levels:
            return {}
        ratings = self.ratings[is_summed]
        masks = ratings - self.masks.masked_ratings[is_summed]
        return {"levels": self._data.catalogue.scale.levels(ratings), "mask": masks}

    @property
    def held_out(self) -> HeldOut | None:
        """Held-out ratings of this run; None: nothing is held out."""
        return self._held_out

    @property
    def counts(self) -> Array:
        """Number of its users who rated each item of the layout. (n_items,)."""
        if self._counts is None:
            given = self._started_input()
            self._counts = given.lists.counts(given.n_items)
        return self._counts

    @property
    def summed_lists(self) -> RatedItems:
        """Each user's rated items that are in the layout, as positions in it."""
        return self._started_input().lists

    @property
    def summed_values(self) -> Array:
        """Ratings of the items in `summed_lists`, without masks. (n,)."""
        _, is_summed = self.lists.within(self._items, self._data.catalogue.n_items)
        return self.ratings[is_summed]

    @property
    def summed_ratings(self) -> tuple[Array, Array]:
        """Positions of rated items in the layout, and their masked ratings. (n,), (n,)."""
        given = self._started_input()
        return given.lists.items, given.masked_ratings

    @property
    def user_factors(self) -> Array:
        """Factors p_u of all users of the group. (n_users, n_own)."""
        return self._started().user_factors

    @user_factors.setter
    def user_factors(self, value: Array) -> None:
        self._started().user_factors = value

    def update(self, broadcast: Broadcast, t: int, cohorts: Sequence[Cohort]) -> CohortSums:
        """Take part in round t; return the sums of each cohort."""
        return self._halves_for(cohorts).update(broadcast, t)

    def held_out_totals(self, broadcast: Broadcast) -> Array:
        """Number of held-out ratings and squared error of every user. (n_users, 2).

        Zeros for users whose error is not finite: the sums of others must not depend on it.
        """
        if self._held_out is None:
            return np.zeros((self.n_users, 2))
        lists, ratings = self._held_out.lists, self._held_out.ratings
        with np.errstate(all="ignore"):  # hostile factors overflow, which is checked
            scores = self._factor_scores(lists, broadcast, self._started_input().design)
            predicted = self.ratings_of(scores + self._held_out.mask, broadcast)
            squares = np.square(ratings - predicted, dtype=np.float64)
            errors = np.bincount(lists.users, squares, self.n_users)
        found = np.column_stack((lists.lengths, errors))
        is_sound = errors <= MAX_TOTAL  # (n_users,) False where it is NaN
        return np.where(is_sound[:, np.newaxis], found, 0.0)

    def newcomer_totals(self, broadcast: Broadcast, cohort: Cohort) -> Array:
        """Sum over users what the prior of newcomers is made from. (n_newcomer,).

        Args:
            broadcast: the final one, of the layout's items.
            cohort: who is summed, and how each user's totals are bounded and rounded.
        """
        return NUMPY.halves(self._started_input()).newcomer_totals(broadcast, cohort)

    def solve_users(self, broadcast: Broadcast, users: Array | None = None) -> None:
        """Solve p_u of some users, or of all, for final item factors, without any round.

        Engines know the prior of rounds alone: with that of newcomers, numpy solves p_u.
        """
        users = np.arange(self.n_users) if users is None else users
        if broadcast.newcomers is None:
            self._started().solve_users(broadcast, users)
            return
        halves = NUMPY.halves(self._started_input())
        halves.user_factors = self.user_factors
        halves.solve_users(broadcast, users)
        self.user_factors = halves.user_factors

    def scores(self, lists: RatedItems, broadcast: Broadcast, *, are_rated: bool = False) -> Array:
        """q_i . p_u + f_u(i) for items of each user, which may be off the scale. (n,).

        Args:
            lists: items of each user.
            broadcast: the final broadcast, of the whole catalogue.
            are_rated: given that the users rate these items, which says something of newcomers.
        """
        mask = self.masks.predict(lists, self.features.seen, self._engine.mask_runner())
        scores: Array = self._factor_scores(lists, broadcast, self.features.design) + mask
        if are_rated and broadcast.newcomers is not None:
            scores += NUMPY.halves(self._started_input()).effects_of_rating(broadcast, lists)
        return scores

    def ratings_of(self, scores: Array, broadcast: Broadcast) -> Array:
        """Convert scores to ratings, as the solver defines it. (n,)."""
        given, scale = self._started_input(), self._data.catalogue.scale
        return SOLVERS[given.solver].ratings_of(given.update_shape, broadcast, scores, scale)

    def state(self) -> dict[str, Array]:
        """Return copies of all arrays that change from round to round."""
        return {} if self._halves is None else self._halves.state()

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restore the arrays that `state` returned."""
        if self._halves is not None:
            self._halves.restore(state)

    def _halves_for(self, cohorts: Sequence[Cohort]) -> UserHalves:
        """Return the users' halves; make them anew, with the same factors, for other cohorts."""
        halves, given = self._started(), self._started_input()
        if given.cohorts is not cohorts and not _are_like(given.cohorts, cohorts):
            self._given = replace(given, cohorts=cohorts)
            self._halves = self._engine.halves(self._given)
            self._halves.restore(halves.state())
        return self._started()

    def _started(self) -> UserHalves:
        if self._halves is None:
            raise NotFittedError("a party has factors after it has adopted a layout")
        return self._halves

    def _started_input(self) -> TrainingInput:
        if self._given is None:
            raise NotFittedError("a party knows what is summed after it has adopted a layout")
        return self._given

    def _factor_scores(self, lists: RatedItems, broadcast: Broadcast, design: Array) -> Array:
        q = whole_factors(self._started_input().update_shape, broadcast, design)
        return self._engine.pair_scores(lists.users, lists.items, self.user_factors, q)


def _are_like(some: Sequence[Cohort], others: Sequence[Cohort]) -> bool:
    return len(some) == len(others) and all(
        one.is_like(other) for one, other in zip(some, others, strict=True)
    )
