"""A prepared run: what training, audits and experiments have in common."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedmmf import rng
from fedmmf.aggregation import AGGREGATIONS
from fedmmf.aggregation.costs import Cost, CostInput
from fedmmf.aggregation.simulated import Group, Simulated
from fedmmf.arrays import Array
from fedmmf.attacks.self_audit import AttackAudit
from fedmmf.data import Ratings
from fedmmf.data.rated_items import RatedItems
from fedmmf.engines import Engine, engine_of
from fedmmf.engines.contract import CrowdInput
from fedmmf.masks import FittedMasks, MaskPlan, fit_masks
from fedmmf.masks.feature_maps import expand
from fedmmf.masks.fitting import MaskInput
from fedmmf.masks.lines import lines_of
from fedmmf.masks.population import Population
from fedmmf.party.policy import Policy, Private
from fedmmf.server import Coordinator, ServerPlan
from fedmmf.settings import Settings
from fedmmf.simulation.costs import RoundSizes, cost_input, expected_cost
from fedmmf.simulation.crowd import SimulatedCrowd
from fedmmf.simulation.features import (
    census_of,
    content_features,
    layout_of,
    profile_values,
    settled,
    statistics_features,
    surveyed,
)
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import UpdateShape, design_of
from fedmmf.wire import Catalogue, Layout

Progress = Callable[[str, int, int], None]
"""Called with a stage's name, how much of it is done, and how much there is."""

MIN_RATINGS_TO_HOLD_OUT = 5  # a party with fewer trains on all it has


def no_progress(stage: str, done: int, total: int) -> None:
    """Ignore progress: a callback that shows nothing."""


def lists_of(ratings: Ratings) -> RatedItems:
    """Return the rated items of each user."""
    return RatedItems(ratings.by_user, ratings.item_codes)


def choose_held_out(ratings: Ratings, settings: Settings) -> Array:
    """Which ratings their parties keep for early stopping instead of training. (n,) bool."""
    draw = rng.stream(settings.seed, "held out").random(ratings.n_ratings)
    is_long = np.diff(ratings.by_user) >= MIN_RATINGS_TO_HOLD_OUT  # (n_users,)
    return np.asarray(is_long[ratings.user_codes] & (draw < settings.held_out_share))


def mask_plan(settings: Settings) -> MaskPlan:
    """Return the plan of the masks that the settings ask for."""
    return MaskPlan(
        settings.mask,
        settings.mask_strength,
        settings.cross_fit,
        settings.folds,
        settings.has_joint_mask,
    )


def mask_stream(seed: int, user_id: object) -> np.random.Generator:
    """Return the random stream of a simulated party's mask."""
    return rng.stream(seed, "mask", str(user_id))


@dataclass(frozen=True, eq=False)
class Tested:
    """Held-out ratings, with the positions of their items in the layout."""

    lists: RatedItems
    values: Array  # (n,)
    mask: Array  # f_u(i) (n,)


@dataclass(frozen=True, eq=False)
class Prepared:
    """Masked ratings, ready for the rounds; the members of an ensemble share them.

    Attributes:
        ratings: everything that parties hold.
        settings: of the run.
        is_held_out: which of the ratings are kept for early stopping. (n,) bool
        training: the others.
        held_out: the ratings that are kept; None: none.
        content: public item features. (n_items, d)
        seen: what masks see of them: these and, if the family has any, interactions. (n_items, d')
        features: all that masks see: that and, where asked for, statistics. (n_items, d'')
        layout: which items are summed, and what users have in common.
        masks: fitted on `training`.
        in_clear: who shares updates in the clear. (n_users,) bool
    """

    ratings: Ratings
    settings: Settings
    is_held_out: Array
    training: Ratings
    held_out: Ratings | None
    content: Array
    seen: Array
    features: Array
    layout: Layout
    masks: FittedMasks
    in_clear: Array

    @property
    def engine(self) -> Engine:
        """Engine that computes the halves of all users."""
        return engine_of(self.settings)

    @cached_property
    def lists(self) -> RatedItems:
        """The rated items of each user, of `training`."""
        return lists_of(self.training)

    @cached_property
    def _summed(self) -> tuple[RatedItems, Array]:
        return self.lists.within(self.layout.items, self.training.n_items)

    @cached_property
    def design(self) -> Array:
        """Columns that masks are linear in. (n_items, m)."""
        return design_of(self.seen, sees_features=self.masks.family.needs_features)

    @property
    def statistics(self) -> Array:
        """Further item features that masks see. (n_items, 2 or 0)."""
        return self.features[:, self.seen.shape[1] :]

    @cached_property
    def profiles(self) -> Array:
        """Profile values of each user. (n_users, d)."""
        return profile_values(self.ratings)

    @cached_property
    def crowd_input(self) -> CrowdInput:
        """Training data of all users, with positions of items in the layout."""
        lists, is_summed = self._summed
        update_shape, masked = self.plan.update_shape, self.masks.masked_ratings
        lines = np.zeros((lists.n_users, 0))
        if update_shape.n_design:
            runner = self.engine.mask_runner()
            lines = lines_of(self.masks, self.features, self.design, runner)
        return CrowdInput(
            solver=self.settings.solver,
            update_shape=update_shape,
            design=self.design[self.layout.items, : update_shape.n_columns],
            lists=lists,
            masked_ratings=masked if is_summed.all() else masked[is_summed],
            profiles=self.profiles[:, : update_shape.n_profile],
            lines=lines,
            **self._ordered(update_shape, is_summed),
            cohorts=[group.cohort for group in self.groups],
        )

    def _ordered(self, update_shape: UpdateShape, is_summed: Array) -> dict[str, Any]:
        """Levels and masks of the ratings that are summed, where ratings are ordered."""
        if not update_shape.n_levels:
            return {}
        ratings = self.training.values[is_summed]
        masks = ratings - self.masks.masked_ratings[is_summed]
        return {"levels": self.training.scale.levels(ratings), "mask": masks}

    @cached_property
    def catalogue(self) -> Catalogue:
        """Catalogue that server and parties must agree on."""
        return Catalogue.of(self.ratings.item_ids, self.ratings.scale, self.content)

    @cached_property
    def plan(self) -> ServerPlan:
        """Plan of the server before training."""
        return ServerPlan(
            settings=self.settings,
            catalogue=self.catalogue,
            is_centred=self.masks.family.is_centred,
            ratings_per_user=self.ratings.n_ratings / self.ratings.n_users,
            regressors=self.content,
            design=self.design,
            n_profile=self.profiles.shape[1],
        )

    @cached_property
    def groups(self) -> list[Group]:
        """Who is summed with whom, and how."""
        simulated = Simulated(
            lists=self._summed[0],
            n_items=len(self.layout.items),
            span=self.training.scale.span,
            in_clear=self.in_clear,
            settings=self.settings,
            solver=SOLVERS[self.settings.solver],
            update_shape=self.plan.update_shape,
        )
        return AGGREGATIONS[self.settings.sums].simulate(simulated)

    @property
    def n_left_out(self) -> int:
        """Number of items with too few raters for a sum that hides its summands."""
        n_missing = self.ratings.n_items - len(self.layout.items)
        rare = [group.cohort.left_out for group in self.groups]
        return n_missing + max((int(items.sum()) for items in rare if items is not None), default=0)

    @cached_property
    def tested(self) -> Tested | None:
        """The held-out ratings of items that are summed."""
        if self.held_out is None:
            return None
        lists = lists_of(self.held_out)
        places, is_summed = lists.within(self.layout.items, self.ratings.n_items)
        mask = self.masks.predict(lists, self.features, self.engine.mask_runner())
        return Tested(places, self.held_out.values[is_summed], mask[is_summed])

    def over_everything(self) -> "Prepared":
        """Return the same run with every item of the catalogue summed."""
        items = np.arange(self.ratings.n_items, dtype=np.int32)
        return replace(self, layout=replace(self.layout, items=items))

    def coordinator(self, member: int = 0) -> Coordinator:
        """Make the server's state before round 1."""
        return self.plan.coordinator(self.layout, member)

    def crowd(self, member: int = 0) -> SimulatedCrowd:
        """All parties of a simulation, summed as the settings say."""
        return SimulatedCrowd(self, member)

    @property
    def cost_input(self) -> CostInput:
        """Sizes that decide the cost of a round."""
        n_users = self.training.n_users
        per_user, n_clear = self.training.n_ratings / n_users, int(self.in_clear.sum())
        n_items, span = len(self.layout.items), self.ratings.scale.span
        rounds = RoundSizes(self.plan.update_shape, n_items, span)
        return cost_input(self.settings, rounds, n_users, per_user, n_clear)

    def cost(self) -> Cost:
        """Compute the expected cost of a round."""
        return expected_cost(self.cost_input)


def prepare(ratings: Ratings, settings: Settings, progress: Progress = no_progress) -> Prepared:
    """Hold ratings out, find features, fit every mask, and let everybody choose how to share."""
    settings = settled(settings, ratings)
    is_held_out = choose_held_out(ratings, settings)
    has_held_out = bool(is_held_out.any())
    training = ratings.select(~is_held_out) if has_held_out else ratings
    content = content_features(ratings)
    seen = features = expand(settings.mask, content)
    if settings.item_statistics:
        features = np.hstack((seen, statistics_features(surveyed(training, settings))))
    layout = layout_of(census_of(training, content, settings), settings)
    population = policy_of(settings).population(layout.population, ratings.scale)
    masks = fit_all_masks(training, features, settings, population, progress)
    return Prepared(
        ratings=ratings,
        settings=settings,
        is_held_out=is_held_out,
        training=training,
        held_out=ratings.select(is_held_out) if has_held_out else None,
        content=content,
        seen=seen,
        features=features,
        layout=layout,
        masks=masks,
        in_clear=who_shares_in_clear(training, settings, masks, features),
    )


def fit_all_masks(
    training: Ratings,
    features: Array,
    settings: Settings,
    population: Population | None = None,
    progress: Progress = no_progress,
) -> FittedMasks:
    """Train every party's private model on that party's ratings, around what all have in common."""
    plan, done = mask_plan(settings), 0

    def users_done(n_users: int) -> None:
        nonlocal done
        done += n_users
        progress("masks", done, training.n_users)

    streams = []
    if plan.starts_at_random:
        streams = [mask_stream(settings.seed, user) for user in training.user_ids]
    about = (training.values, training.scale, features, streams, population)
    given = MaskInput(lists_of(training), *about)
    return fit_masks(plan, given, engine_of(settings).mask_runner(users_done))


def policy_of(settings: Settings) -> Policy:
    """Make a party's policy from the settings; noise and identities are added elsewhere."""
    has_audit = settings.sharing == "adaptive" and settings.grouping == "audit"
    audit = AttackAudit(settings.audit_limit, settings.engine) if has_audit else None
    return Policy(
        settings.sharing,
        settings.threshold_j,
        audit,
        smallest_cohort=settings.smallest_cohort,
        smallest_batch=settings.batch,
        survey_ratings=settings.item_statistics,
    )


def who_shares_in_clear(
    training: Ratings, settings: Settings, masks: FittedMasks, features: Array
) -> Array:
    """Every party's own choice, for all of a simulation at once. (n_users,) bool."""
    policy = policy_of(settings)
    if settings.sharing != "adaptive":
        return np.full(training.n_users, settings.sharing == "plain")
    if policy.audit is None:
        return np.asarray(masks.j_train <= settings.threshold_j)
    private = Private(lists_of(training), training.values, masks, features)
    audit = AttackAudit(settings.audit_limit, settings.engine)
    return np.asarray(audit.shares_found(private) < settings.audit_limit)
