"""The users behind a party: their ratings, masks and factors p_u."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedmmf.aggregation.contract import AggregationScheme
from fedmmf.arrays import Array
from fedmmf.data.rated_items import RatedItems
from fedmmf.engines.contract import Cohort, Crowd, CrowdInput, CrowdUpdate, Engine
from fedmmf.errors import NotFittedError, WireError
from fedmmf.masks.feature_maps import expand
from fedmmf.masks.fitting import FittedMasks, MaskInput, MaskPlan, fit_masks
from fedmmf.masks.lines import lines_of
from fedmmf.masks.population import MAX_COLUMNS, CommonItems, Population, user_totals
from fedmmf.party.policy import Policy, Private
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import MAX_TOTAL, Broadcast, UpdateShape, design_of, whole_factors
from fedmmf.wire import Catalogue, Layout


@dataclass(frozen=True, eq=False)
class PartyData:
    """Ratings of one user or of many, with the catalogue that they are about.

    Attributes:
        catalogue: as this party knows it.
        features: public item features of the whole catalogue; no columns where there are none.
        lists: the rated items of each user, strictly increasing.
        ratings: of these items, on the catalogue's scale. (n,)
        held_out: which ratings to keep for early stopping instead of training. (n,) bool
        streams: where each user's mask starts from; empty: where the operating system says.
        profiles: what is known of each user; private like the ratings. (n_users, d)
        content: features without what only masks are given, if anything; None: all. (n_items, d)
        seen: what masks see of `features`, if many parties share it; None: it is worked out.
    """

    catalogue: Catalogue
    features: Array
    lists: RatedItems
    ratings: Array
    held_out: Array | None = None
    streams: Sequence[np.random.Generator] = ()
    profiles: Array = field(default_factory=lambda: np.zeros((0, 0)))
    content: Array | None = None
    seen: Array | None = None

    def __post_init__(self) -> None:
        if self.content is None:
            object.__setattr__(self, "content", np.asarray(self.features, np.float64))
        if len(self.profiles) == 0:
            object.__setattr__(self, "profiles", np.zeros((self.lists.n_users, 0)))

    def seen_by(self, mask: str) -> Array:
        """Features that masks of a family see: content, interactions, the rest. (n_items, d')."""
        if self.seen is not None:
            return self.seen
        features, content = np.asarray(self.features, np.float64), np.asarray(self.content)
        return np.hstack((expand(mask, content), features[:, content.shape[1] :]))

    @property
    def n_content(self) -> int:
        """Number of feature columns, without those that only masks get."""
        return int(np.asarray(self.content).shape[1])

    def n_seen(self, mask: str) -> int:
        """Number of content columns that masks of a family see, with interactions."""
        n_statistics = self.features.shape[1] - self.n_content
        return int(self.seen_by(mask).shape[1] - n_statistics)

    def part(self, *, held_out: bool) -> tuple[RatedItems, Array]:
        """Return lists and ratings of the held-out part, or of the rest."""
        if self.held_out is None and not held_out:
            return self.lists, self.ratings
        everything = np.zeros(len(self.ratings), bool) if self.held_out is None else self.held_out
        keep = everything == held_out
        kept_before = np.concatenate(([0], np.cumsum(keep)))
        lists = RatedItems(kept_before[self.lists.indptr], self.lists.items[keep])
        return lists, self.ratings[keep]


class Users:
    """All private data of a party: ratings, masks and p_u.

    Masks are fitted when the layout is known, whose line they shrink towards.

    Args:
        data: the ratings.
        plan: what masks to fit.
        engine: what computes the users' halves.
    """

    def __init__(self, data: PartyData, plan: MaskPlan, engine: Engine) -> None:
        plan.check_features(np.asarray(data.features))
        self._data, self._plan, self._engine = data, plan, engine
        self.features = data.seen_by(plan.kind)  # (n_catalogue, d')
        n_statistics = data.features.shape[1] - np.asarray(data.content).shape[1]
        self._seen = self.features[:, : self.features.shape[1] - n_statistics]
        self.lists, self.ratings = data.part(held_out=False)
        self._test_lists, self._test_ratings = data.part(held_out=True)
        self._masks: FittedMasks | None = None
        self._crowd: Crowd | None = None
        self._given: CrowdInput | None = None
        self._in_clear: bool | None = None  # once it is known
        self.n_noisy = 0  # updates with noise that have left
        self.surveyed: set[tuple[str, frozenset[bytes]]] = set()  # what was asked, among whom
        self.mates: tuple[bytes, ...] = ()  # identities that its sums were made with, or not at all

    @property
    def n_users(self) -> int:
        """Number of users behind the party."""
        return self.lists.n_users

    @property
    def masks(self) -> FittedMasks:
        """Fitted masks of the users; raises `NotFittedError` before there is a layout."""
        if self._masks is None:
            raise NotFittedError("a party has masks after it has adopted a layout")
        return self._masks

    def totals(self, items: Array, n_columns: int, min_raters: int) -> Iterator[Array]:
        """Yield each user's part of the population statistics, block by block. (n_some, n_totals).

        Args:
            items: of the layout. (n,)
            n_columns: of what users have in common.
            min_raters: the fewest raters of an item that is summed.
        """
        catalogue, seen = self._data.catalogue, self._seen[:, : n_columns - 1]
        common = CommonItems.of(items, seen, min_raters)
        lists, is_common = self.lists.within(common.items, catalogue.n_items)
        return user_totals(lists, self.ratings[is_common], common.features, catalogue.scale)

    @property
    def counts(self) -> Array:
        """Number of its users who rated each item of the layout. (n_items,)."""
        return self._counts

    @property
    def summed_lists(self) -> RatedItems:
        """Rated items of the layout, as positions in it."""
        return self._started_input().lists

    @property
    def summed_values(self) -> Array:
        """Ratings of the items in `summed_lists`, without masks. (n,)."""
        return self.ratings[self._is_summed]

    @property
    def summed_ratings(self) -> tuple[Array, Array]:
        """Positions of rated items in the layout, and their masked ratings. (n,), (n,)."""
        given = self._started_input()
        return given.lists.items, given.masked_ratings

    def are_in_clear(self, policy: Policy) -> bool:
        """Whether the owner's policy lets their updates leave outside sums."""
        if self._in_clear is None:
            private = Private(self.lists, self.ratings, self.masks, self.features)
            self._in_clear = policy.lets_updates_out(private)
        return self._in_clear

    def check_form(self, update_shape: UpdateShape) -> None:
        """Refuse a variant whose profiles, features or levels differ from those here.

        Users without any profile may take part: they are taken for the mean one.
        """
        data, levels = self._data, self._data.catalogue.scale.n_levels
        wanted = (
            update_shape.n_profile,
            update_shape.n_design,
            update_shape.n_levels,
            update_shape.n_joint,
        )
        n_columns = self._n_columns
        joint = n_columns if self._plan.is_joint(n_columns - 1) else 0
        fit = ({0, data.profiles.shape[1]}, {0, n_columns}, {0, levels}, {joint})
        if data.profiles.shape[1] == 0:
            fit = (set(wanted[:1]), *fit[1:])
        if not all(number in known for number, known in zip(wanted, fit, strict=True)):
            raise WireError(
                f"this party has {data.profiles.shape[1]} columns of profiles, "
                f"{n_columns} of features, {levels} levels and {joint} of a joint mask; the "
                f"server's variant calls for {wanted}"
            )

    def check_columns(self, n_columns: int, way: AggregationScheme, policy: Policy) -> None:
        """Refuse other columns of what users have in common than a constant, or the features.

        In the clear, moments of ratings and features would give ratings away.
        """
        may_hide = way.hides and policy.sharing == "strict"
        known = 1 + np.asarray(self._data.content).shape[1] * self._plan.family.needs_features
        known = known if may_hide and known <= MAX_COLUMNS else 1
        if n_columns not in (1, known):
            may_be = f"1 or {known} columns" if known > 1 else "1 column"
            raise WireError(f"what users have in common has {may_be} here; got {n_columns}")

    @property
    def user_factors(self) -> Array:
        """Factors p_u of all users of the party. (n_users, n_own)."""
        return self._started().user_factors

    @user_factors.setter
    def user_factors(self, value: Array) -> None:
        self._started().user_factors = value

    def begin(self, solver: str, update_shape: UpdateShape, layout: Layout, policy: Policy) -> None:
        """Start a run: masks, and p_u as before the first round."""
        self._fit(policy.population(layout.population, self._data.catalogue.scale))
        n_items = self._data.catalogue.n_items
        lists, self._is_summed = self.lists.within(layout.items, n_items)
        self._tested, self._is_tested = self._test_lists.within(layout.items, n_items)
        self._counts = lists.counts(len(layout.items))
        design = np.zeros((len(layout.items), 0))
        if update_shape.n_columns:
            design = self._design(layout.items)
        lines = np.zeros((self.n_users, 0))
        if update_shape.n_design:
            everything = self._design(slice(None))
            lines = lines_of(self.masks, self.features, everything, self._engine.mask_runner())
        self._given = CrowdInput(
            solver=solver,
            update_shape=update_shape,
            design=design,
            lists=lists,
            masked_ratings=self.masks.masked_ratings[self._is_summed],
            profiles=self._profiles(update_shape.n_profile),
            lines=lines,
            **self._ordered(update_shape),
        )
        self._crowd = self._engine.crowd(self._given)

    def _profiles(self, n_columns: int) -> Array:
        """Profile of each user; zeros where nothing is known. (n_users, n_columns)."""
        known = self._data.profiles[:, :n_columns]
        return known if known.shape[1] else np.zeros((self.n_users, n_columns))

    def _ordered(self, update_shape: UpdateShape) -> dict[str, Any]:
        """Levels and masks of the ratings that are summed, where ratings are ordered."""
        if not update_shape.n_levels:
            return {}
        ratings = self.summed_values
        masks = ratings - self.masks.masked_ratings[self._is_summed]
        return {"levels": self._data.catalogue.scale.levels(ratings), "mask": masks}

    def _fit(self, population: Population) -> None:
        """Fit masks around the population statistics; keep masks that exist already."""
        if self._masks is not None and self._masks.population.is_like(population):
            return
        scale, streams = self._data.catalogue.scale, deepcopy(self._data.streams)
        given = MaskInput(self.lists, self.ratings, scale, self.features, streams, population)
        self._masks = fit_masks(self._plan, given, self._engine.mask_runner())
        self._in_clear = None

    @property
    def _n_columns(self) -> int:
        """Number of columns that masks are linear in."""
        return 1 + int(self._seen.shape[1]) * self._plan.family.needs_features

    def _design(self, items: Array | slice) -> Array:
        """Columns that masks are linear in, for some items. (n, m)."""
        return design_of(self._seen[items], sees_features=self._plan.family.needs_features)

    def update(self, public: Broadcast, t: int, cohort: Cohort) -> CrowdUpdate:
        """Take part in round t; the totals begin with those of held-out ratings."""
        crowd = self._crowd_for(cohort)
        found = crowd.update(public, t)
        with np.errstate(all="ignore"):  # hostile factors overflow, which is checked
            tested = self._held_out_totals(public)
        held_out = cohort.totals_in_steps(tested).sum(axis=0)
        return CrowdUpdate(found.rows, [np.concatenate((held_out, found.totals[0]))])

    def settle(self, public: Broadcast, users: Array | None = None) -> None:
        """Solve p_u of some users, or of all, for final item factors, without any round."""
        self._started().settle(public, np.arange(self.n_users) if users is None else users)

    def scores(self, lists: RatedItems, public: Broadcast) -> Array:
        """q_i . p_u + f_u(i) for items of each user, which may be off the scale. (n,).

        Args:
            lists: items of each user.
            public: the final broadcast, of the whole catalogue.
        """
        mask = self.masks.predict(lists, self.features, self._engine.mask_runner())
        is_joint = self._started_input().update_shape.n_joint > 0
        design = self._design(slice(None)) if is_joint else np.zeros((0, 0))
        return self._factor_scores(lists, public, design) + mask

    def state(self) -> dict[str, Array]:
        """Return copies of all arrays that change from round to round."""
        return {} if self._crowd is None else self._crowd.state()

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restore the arrays that `state` returned."""
        if self._crowd is not None:
            self._crowd.restore(state)

    def _crowd_for(self, cohort: Cohort) -> Crowd:
        """Return the user group of the same users, for another way of summing if needed."""
        crowd, given = self._started(), self._given
        if given is not None and not given.cohorts[0].is_like(cohort):
            self._given = replace(given, cohorts=(cohort,))
            self._crowd = self._engine.crowd(self._given)
            self._crowd.restore(crowd.state())
        return self._started()

    def _started(self) -> Crowd:
        if self._crowd is None:
            raise NotFittedError("a party has factors after it has adopted a layout")
        return self._crowd

    def _started_input(self) -> CrowdInput:
        if self._given is None:
            raise NotFittedError("a party knows what is summed after it has adopted a layout")
        return self._given

    def ratings_of(self, scores: Array, public: Broadcast) -> Array:
        """Convert scores to ratings, as the solver defines it. (n,)."""
        given, scale = self._started_input(), self._data.catalogue.scale
        return SOLVERS[given.solver].ratings_of(given.update_shape, public, scores, scale)

    def _held_out_totals(self, public: Broadcast) -> Array:
        """Number of held-out ratings and squared error of every user. (n_users, 2).

        Zeros for users whose error is not finite: the sums of others must not depend on it.
        """
        lists, ratings = self._tested, self._test_ratings[self._is_tested]
        scores = self._factor_scores(lists, public, self._started_input().design)
        scores = scores + self._test_mask[self._is_tested]
        squares = np.square(ratings - self.ratings_of(scores, public), dtype=np.float64)
        errors = np.bincount(lists.users, squares, self.n_users)
        found = np.column_stack((lists.lengths, errors))
        is_sound = errors <= MAX_TOTAL  # (n_users,) not where it is no number
        return np.where(is_sound[:, np.newaxis], found, 0.0)

    @property
    def _test_mask(self) -> Array:
        """f_u(i) of all held-out ratings. (n,)."""
        runner = self._engine.mask_runner()
        return self.masks.predict(self._test_lists, self.features, runner)

    def _factor_scores(self, lists: RatedItems, public: Broadcast, design: Array) -> Array:
        q = whole_factors(self._started_input().update_shape, public, design)
        return self._engine.pair_scores(lists.users, lists.items, self.user_factors, q)
