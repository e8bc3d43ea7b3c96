"""A federation from the server's side: invite, prepare, train, hand out the result."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedmmf import rng
from fedmmf.aggregation import AGGREGATIONS
from fedmmf.aggregation.contract import columns_of, last_number
from fedmmf.aggregation.server_side import ServerContext, ServerSide
from fedmmf.masks.feature_maps import FeatureViews
from fedmmf.server.roster import Known, Roster
from fedmmf.server.rounds import (
    MAX_LOST,
    Coordinator,
    WholeCatalogue,
    one_round,
    train,
)
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import SolverContext, UpdateShape
from fedmmf.transports.contract import Transport
from fedmmf.wire import Catalogue, Invitation, Layout
from fedmmf.wire.messages import RUN_BYTES

ASSUMED_RATINGS = 50.0  # of a user, where no survey may count them


@dataclass(frozen=True, eq=False)
class ServerPlan:
    """All that the server knows before training; all of it is public.

    Attributes:
        settings: of the run.
        catalogue: items and scale.
        is_centred: whether masks subtract the mean user's ratings too, so that 0 is what a solver
            expects of an unknown rating.
        ratings_per_user: on average; None: a survey finds it.
        features: public item features, on which item factors may depend.
        n_profile: columns of the users' profiles.
    """

    settings: Any
    catalogue: Catalogue
    is_centred: bool
    ratings_per_user: float | None
    features: FeatureViews
    n_profile: int = 0

    @property
    def variant(self) -> str:
        """Variant of the solver, in words `name=value`."""
        solver, n_levels = SOLVERS[self.settings.solver], self.catalogue.scale.n_levels
        return solver.variant(self.settings, self.n_profile, self.features.n_columns, n_levels)

    @property
    def n_columns(self) -> int:
        """Number of columns of the population's line."""
        features = self.features
        return columns_of(self.settings, features.content.shape[1] * features.sees_features)

    @property
    def update_shape(self) -> UpdateShape:
        """Sizes of the updates that parties send."""
        solver = SOLVERS[self.settings.solver]
        return solver.update_shape(solver.rank(self.settings), self.variant)

    @property
    def _public_ratings_per_user(self) -> float:
        """Ratings of a user, from public numbers alone under a privacy budget."""
        if self.settings.scheme.has_budget:
            return ASSUMED_RATINGS
        return self.ratings_per_user or ASSUMED_RATINGS

    def coordinator(
        self, layout: Layout, member: int = 0, most_lost: int = MAX_LOST
    ) -> Coordinator:
        """Make the state before round 1; `member` tells the runs of an ensemble apart."""
        settings, update_shape, scale = self.settings, self.update_shape, self.catalogue.scale
        context = SolverContext(
            n_items=len(layout.items),
            span=scale.span,
            lowest=scale.min,
            level=0.0 if self.is_centred else float(layout.line[0]),
            ratings_per_user=self._public_ratings_per_user,
            regressors=self.features.content[layout.items],
            design=self.features.design[layout.items, : update_shape.n_columns],
            stream=rng.stream(settings.seed, "item factors", member),
        )
        half = SOLVERS[settings.solver].server(settings, update_shape, context)
        everything = WholeCatalogue(layout.items, self.features.content)
        return Coordinator(settings, half, everything, most_lost)

    def invitation(self) -> Invitation:
        """Make the invitation that all parties must agree to; it is new for every run."""
        settings, scale, solver = self.settings, self.catalogue.scale, SOLVERS[self.settings.solver]
        bounds = solver.bounds(scale.span)
        return Invitation(
            run=os.urandom(RUN_BYTES),
            catalogue=self.catalogue.digest,
            scale_min=scale.min,
            scale_max=scale.max,
            scale_step=scale.step,
            solver=solver.name,
            rank=solver.rank(settings),
            variant=self.variant,
            rounds=last_number(settings),
            sums=settings.scheme_name,
            row_bound=bounds.row,
            total_bound=bounds.total,
            columns=self.n_columns,
            minimum=settings.smallest_cohort,
        )


class FederationServer:
    """The server of one run of a federation.

    Args:
        plan: what is trained.
        transport: carries the bytes.
        names: of the parties.
        member: number of the run in an ensemble.
        known: whether a party may have an identity, where parties sign; None: any.
    """

    def __init__(
        self,
        plan: ServerPlan,
        transport: Transport,
        names: list[str],
        member: int = 0,
        known: Known | None = None,
    ) -> None:
        self._plan = plan
        self.roster = Roster(transport, names, known=known)
        self._member = member
        self._coordinator: Coordinator | None = None
        self._side: ServerSide | None = None

    @property
    def side(self) -> ServerSide:
        """The aggregation scheme, once parties are invited."""
        return self._side or self.invite()

    @property
    def coordinator(self) -> Coordinator:
        """Item factors and rounds, once it is known what is summed."""
        if self._coordinator is None:
            self._coordinator = self._plan.coordinator(self.side.require_layout(), self._member)
        return self._coordinator

    def invite(self) -> ServerSide:
        """Ask everybody to join; those who do are summed from now on."""
        settings, invitation = self._plan.settings, self._plan.invitation()
        self.roster.invite(invitation)
        about = (self._plan.catalogue, invitation, settings, self._plan.features)
        context = ServerContext(self.roster, *about)
        self._side = AGGREGATIONS[settings.scheme_name].server(context)
        return self._side

    def one_round(self) -> None:
        """Run one round among the parties that joined."""
        one_round(self.coordinator, self.side)

    def run(self, after_round: Callable[[Coordinator], None] = lambda coordinator: None) -> None:
        """Train to the end and hand out the result; the sums have to be prepared before."""
        train(self.coordinator, self.side, after_round)
