"""A run, ready for its rounds: what train, bench, paper and audit have in common."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedmmf import rng
from fedmmf.arrays import Array
from fedmmf.attacks.self_audit import AttackAudit
from fedmmf.config import Settings
from fedmmf.data import Ratings
from fedmmf.engines import ENGINES, Engine
from fedmmf.lists import UserLists
from fedmmf.masks import FittedMasks, MaskPlan, fit_masks
from fedmmf.masks.fitting import MaskInput
from fedmmf.party.policy import Policy, Private
from fedmmf.server import Coordinator, ServerPlan
from fedmmf.simulation.costs import cost_input, expected_cost
from fedmmf.simulation.crowd import SimulatedCrowd
from fedmmf.simulation.features import content_features, statistics_features, surveyed
from fedmmf.solvers import SOLVERS
from fedmmf.sums import SUMS
from fedmmf.sums.costs import Cost, CostInput
from fedmmf.sums.simulated import Group, Simulated
from fedmmf.wire import Catalogue

Progress = Callable[[str, int, int], None]
"""Called with a stage's name, how much of it is done, and how much there is."""

MIN_RATINGS_TO_HOLD_OUT = 5  # a party with fewer trains on all it has


def no_progress(stage: str, done: int, total: int) -> None:
    """Show nothing."""


def lists_of(ratings: Ratings) -> UserLists:
    """The rated items of each user."""
    return UserLists(ratings.by_user, ratings.item_codes)


def choose_held_out(ratings: Ratings, settings: Settings) -> Array:
    """Which ratings their parties keep for early stopping instead of training. (n,) bool."""
    draw = rng.stream(settings.seed, "held out").random(ratings.n_ratings)
    is_long = np.diff(ratings.by_user) >= MIN_RATINGS_TO_HOLD_OUT  # (n_users,)
    return np.asarray(is_long[ratings.user_codes] & (draw < settings.held_out_share))


def mask_plan(settings: Settings) -> MaskPlan:
    """What masks the settings ask for."""
    strength, folds = settings.mask_strength, settings.folds
    return MaskPlan(settings.mask, strength, settings.cross_fit, folds)


def mask_stream(seed: int, user_id: object) -> np.random.Generator:
    """Where a simulated party takes its mask's random start from."""
    return rng.stream(seed, "mask", str(user_id))


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
        features: what masks see: the content and, where asked for, statistics. (n_items, d')
        masks: fitted on `training`.
        in_clear: who shares updates in the clear. (n_users,) bool
    """

    ratings: Ratings
    settings: Settings
    is_held_out: Array
    training: Ratings
    held_out: Ratings | None
    content: Array
    features: Array
    masks: FittedMasks
    in_clear: Array

    @property
    def engine(self) -> Engine:
        """What computes all users' halves."""
        return ENGINES[self.settings.engine]

    @cached_property
    def lists(self) -> UserLists:
        """The rated items of each user, of `training`."""
        return lists_of(self.training)

    @cached_property
    def catalogue(self) -> Catalogue:
        """What every side has to agree on."""
        return Catalogue.of(self.ratings.item_ids, self.ratings.scale, self.content)

    @cached_property
    def plan(self) -> ServerPlan:
        """What the server knows before training."""
        is_centred = self.masks.family.is_centred
        return ServerPlan(
            settings=self.settings,
            catalogue=self.catalogue,
            level=0.0 if is_centred else self.ratings.scale.midpoint,
            ratings_per_user=self.ratings.n_ratings / self.ratings.n_users,
            regressors=self.content,
            solve=self.engine.solve,
        )

    @cached_property
    def groups(self) -> list[Group]:
        """Who is summed with whom, and how."""
        simulated = Simulated(
            lists=self.lists,
            n_items=self.training.n_items,
            span=self.training.scale.span,
            in_clear=self.in_clear,
            settings=self.settings,
            solver=SOLVERS[self.settings.solver],
        )
        return SUMS[self.settings.sums].simulate(simulated)

    @property
    def n_left_out(self) -> int:
        """Items with too few raters for a sum that hides summands."""
        rare = [group.cohort.left_out for group in self.groups]
        return max((int(items.sum()) for items in rare if items is not None), default=0)

    @cached_property
    def held_out_mask(self) -> Array:
        """f_u(i) of the held-out ratings. (n_held_out,)."""
        if self.held_out is None:
            return np.zeros(0, np.float32)
        runner = self.engine.mask_runner()
        return self.masks.predict(lists_of(self.held_out), self.features, runner)

    def coordinator(self, member: int = 0) -> Coordinator:
        """The server's state before round 1."""
        return self.plan.coordinator(member)

    def crowd(self, coordinator: Coordinator, member: int = 0) -> SimulatedCrowd:
        """All parties of a simulation, summed as the settings say."""
        return SimulatedCrowd(self, coordinator.result.rank, member)

    @property
    def cost_input(self) -> CostInput:
        """What decides the cost of a round."""
        n_users = self.training.n_users
        per_user, n_clear = self.training.n_ratings / n_users, int(self.in_clear.sum())
        public = self.coordinator().result
        return cost_input(self.settings, self.catalogue, public, n_users, per_user, n_clear)

    def cost(self) -> Cost:
        """Of a round."""
        return expected_cost(self.cost_input)


def prepare(ratings: Ratings, settings: Settings, progress: Progress = no_progress) -> Prepared:
    """Hold ratings out, find features, fit every mask, and let everybody choose how to share."""
    is_held_out = choose_held_out(ratings, settings)
    has_held_out = bool(is_held_out.any())
    training = ratings.select(~is_held_out) if has_held_out else ratings
    content = content_features(ratings)
    features = content
    if settings.item_statistics:
        features = np.hstack((content, statistics_features(surveyed(training, settings))))
    masks = fit_all_masks(training, features, settings, progress)
    return Prepared(
        ratings=ratings,
        settings=settings,
        is_held_out=is_held_out,
        training=training,
        held_out=ratings.select(is_held_out) if has_held_out else None,
        content=content,
        features=features,
        masks=masks,
        in_clear=who_shares_in_clear(training, settings, masks, features),
    )


def fit_all_masks(
    training: Ratings, features: Array, settings: Settings, progress: Progress = no_progress
) -> FittedMasks:
    """Train every party's private model on that party's ratings."""
    plan, done = mask_plan(settings), 0

    def users_done(n_users: int) -> None:
        nonlocal done
        done += n_users
        progress("masks", done, training.n_users)

    streams = []
    if plan.starts_at_random:
        streams = [mask_stream(settings.seed, user) for user in training.user_ids]
    given = MaskInput(lists_of(training), training.values, training.scale, features, streams)
    return fit_masks(plan, given, ENGINES[settings.engine].mask_runner(users_done))


def policy_of(settings: Settings) -> Policy:
    """What the settings let a party do in the clear; noise and identities come on top."""
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
