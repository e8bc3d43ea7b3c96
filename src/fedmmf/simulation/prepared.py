"""A prepared run: what training, audits and experiments have in common."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedmmf import rng
from fedmmf.aggregation import AGGREGATIONS
from fedmmf.aggregation.simulated import Cost, CostInput, Group, Simulated
from fedmmf.arrays import Array
from fedmmf.attacks.self_audit import AttackAudit
from fedmmf.data import Ratings
from fedmmf.data.rated_items import RatedItems
from fedmmf.engines import Engine, engine_of
from fedmmf.engines.contract import TrainingInput
from fedmmf.federation.local import Holdings, everybodys_data
from fedmmf.masks import FittedMasks, MaskPlan, fit_masks
from fedmmf.masks.feature_maps import FeatureViews
from fedmmf.masks.fitting import MaskInput, resolve_mask
from fedmmf.masks.population import Population
from fedmmf.party import PartyData, Policy, UserGroup
from fedmmf.progress import Report, quiet
from fedmmf.server import Coordinator, ServerPlan
from fedmmf.settings import Settings
from fedmmf.simulation.costs import RoundSizes, cost_input, expected_cost
from fedmmf.simulation.parties import SimulatedParties
from fedmmf.simulation.surveys import census_of, layout_of, statistics_features, surveyed
from fedmmf.solvers import SOLVERS
from fedmmf.wire import Catalogue, Layout

MIN_RATINGS_TO_HOLD_OUT = 5  # a party with fewer trains on all it has


def choose_held_out(ratings: Ratings, settings: Settings) -> Array:
    """Which ratings their parties keep for early stopping instead of training. (n,) bool."""
    draw = rng.stream(settings.seed, "held out").random(ratings.n_ratings)
    is_long = np.diff(ratings.by_user) >= MIN_RATINGS_TO_HOLD_OUT  # (n_users,)
    return np.asarray(is_long[ratings.user_codes] & (draw < settings.held_out_share))


@dataclass(frozen=True, eq=False)
class Prepared:
    """Masked ratings, ready for the rounds; the members of an ensemble share them.

    Attributes:
        ratings: everything that parties hold.
        settings: of the run.
        is_held_out: which of the ratings are kept for early stopping. (n,) bool
        training: the other ratings.
        data: all `ratings`, as one party with all users would hold them.
        layout: which items are summed, and what users have in common.
        users: all of them, with masks fitted on `training`.
        in_clear: who shares updates in the clear. (n_users,) bool
    """

    ratings: Ratings
    settings: Settings
    is_held_out: Array
    training: Ratings
    data: PartyData
    layout: Layout
    users: UserGroup
    in_clear: Array

    @property
    def engine(self) -> Engine:
        """Engine that computes the halves of all users."""
        return engine_of(self.settings)

    @property
    def features(self) -> FeatureViews:
        """Public item features, as masks and solvers see them."""
        return self.data.features

    @property
    def masks(self) -> FittedMasks:
        """Fitted masks of all users."""
        return self.users.masks

    @property
    def lists(self) -> RatedItems:
        """The rated items of each user, of `training`."""
        return self.users.lists

    @property
    def catalogue(self) -> Catalogue:
        """Catalogue that server and parties must agree on."""
        return self.data.catalogue

    @cached_property
    def training_input(self) -> TrainingInput:
        """Training data of all users, with positions of items in the layout."""
        return replace(self._summed, cohorts=[group.cohort for group in self.groups])

    @cached_property
    def _summed(self) -> TrainingInput:
        shape = self.plan.update_shape
        return self.users.training_input(self.settings.solver, shape, self.layout)

    @cached_property
    def groups(self) -> list[Group]:
        """Who is summed with whom, and how."""
        simulated = Simulated(
            lists=self._summed.lists,
            n_items=len(self.layout.items),
            span=self.training.scale.span,
            in_clear=self.in_clear,
            settings=self.settings,
            solver=SOLVERS[self.settings.solver],
            update_shape=self.plan.update_shape,
        )
        return AGGREGATIONS[self.settings.scheme_name].simulate(simulated)

    @cached_property
    def plan(self) -> ServerPlan:
        """Plan of the server before training."""
        return ServerPlan(
            settings=self.settings,
            catalogue=self.catalogue,
            is_centred=self.masks.family.is_centred,
            ratings_per_user=self.ratings.n_ratings / self.ratings.n_users,
            features=self.features,
            n_profile=self.data.profiles.shape[1],
        )

    @property
    def n_left_out(self) -> int:
        """Number of items with too few raters for a sum that hides its summands."""
        n_missing = self.ratings.n_items - len(self.layout.items)
        rare = [group.cohort.left_out for group in self.groups]
        return n_missing + max((int(items.sum()) for items in rare if items is not None), default=0)

    def over_everything(self) -> "Prepared":
        """Return the same run with all items of the catalogue in the layout."""
        items = np.arange(self.ratings.n_items, dtype=np.int32)
        return replace(self, layout=replace(self.layout, items=items))

    def refitted(
        self,
        settings: Settings,
        training: Ratings | None = None,
        population: Population | None = None,
    ) -> "Prepared":
        """Return the run with masks that are fitted anew; what is public stays as it is.

        Args:
            settings: of the new run.
            training: other ratings to train on, with nothing held out; None: the same.
            population: which masks shrink towards; None: the same.
        """
        mask = MaskPlan.of(settings)
        features = mask.views(self.features.content, self.features.statistics)
        data = replace(self.data, features=features)
        if training is not None:
            rated = (training.rated_items, training.values)
            data = replace(data, lists=rated[0], ratings=rated[1], held_out=None)
        users = UserGroup(data, mask, engine_of(settings))
        users.fit_masks(population or self.masks.population)
        training = training or self.training
        return replace(self, settings=settings, training=training, data=data, users=users)

    def coordinator(self, member: int = 0) -> Coordinator:
        """Make the server's state before round 1."""
        return self.plan.coordinator(self.layout, member)

    def parties(self, member: int = 0) -> SimulatedParties:
        """All parties of a simulation, summed as the settings say."""
        return SimulatedParties(self, member)

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


def prepare(ratings: Ratings, settings: Settings, progress: Report = quiet) -> Prepared:
    """Hold ratings out, find features, fit masks, and let the policy say who is in the clear."""
    settings = resolve_mask(settings, has_features=ratings.has_features)
    is_held_out = choose_held_out(ratings, settings)
    training = ratings.select(~is_held_out) if is_held_out.any() else ratings
    held_out = is_held_out if is_held_out.any() else None
    statistics = None
    if settings.item_statistics:
        statistics = statistics_features(surveyed(training, settings))
    mask = MaskPlan.of(settings)
    data = everybodys_data(Holdings(ratings, settings, held_out, statistics), mask)
    users = UserGroup(data, mask, engine_of(settings))
    layout = layout_of(census_of(training, data.features.content, settings), settings)
    policy = Policy.of(settings, AttackAudit.of(settings))
    users.fit_masks(
        policy.population(layout.population, ratings.scale), _adding_up(progress, ratings.n_users)
    )
    return Prepared(
        ratings=ratings,
        settings=settings,
        is_held_out=is_held_out,
        training=training,
        data=data,
        layout=layout,
        users=users,
        in_clear=policy.in_clear(users.private),
    )


def _adding_up(progress: Report, n_users: int) -> Callable[[int], None]:
    """Return a function that adds up the users whose masks are ready, and reports them."""
    done = 0

    def users_done(n_more: int) -> None:
        nonlocal done
        done += n_more
        progress("masks", done, n_users)

    return users_done


def fit_all_masks(
    training: Ratings, features: Array, settings: Settings, population: Population | None = None
) -> FittedMasks:
    """Fit masks of all users on other ratings than those of a run, for audits."""
    about = (training.values, training.scale, features, population)
    given = MaskInput(training.rated_items, *about)
    return fit_masks(MaskPlan.of(settings), given, engine_of(settings).mask_runner())
