"""A federation from the server's side: invite, prepare the sums, train, hand out."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedmmf import rng
from fedmmf.arrays import Array
from fedmmf.server.roster import Known, Roster
from fedmmf.server.rounds import MOST_LOST, Coordinator, last_number, one_round, train
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import Ground, Solve
from fedmmf.sums import SUMS
from fedmmf.sums.server_side import ServerDesk, ServerSide
from fedmmf.transports.contract import Transport
from fedmmf.wire import Catalogue, Invitation
from fedmmf.wire.messages import RUN_BYTES


@dataclass(frozen=True, eq=False)
class ServerPlan:
    """What the server knows before training; all of it public.

    Attributes:
        settings: of the run.
        catalogue: items and scale.
        level: the masked rating that an unknown user gives an unknown item.
        ratings_per_user: on average.
        regressors: public columns that item factors may depend on. (n_items, d)
        solve: fast linear systems for the solver's half; None: its own.
    """

    settings: Any
    catalogue: Catalogue
    level: float
    ratings_per_user: float
    regressors: Array
    solve: Solve | None = None

    def coordinator(self, member: int = 0, most_lost: int = MOST_LOST) -> Coordinator:
        """The state before round 1; `member` tells the runs of an ensemble apart."""
        settings = self.settings
        ground = Ground(
            n_items=self.catalogue.n_items,
            span=self.catalogue.scale.span,
            level=self.level,
            ratings_per_user=self.ratings_per_user,
            regressors=self.regressors,
            stream=rng.stream(settings.seed, "item factors", member),
        )
        half = SOLVERS[settings.solver].server(settings, ground, self.solve)
        return Coordinator(settings, half, most_lost)

    def invitation(self) -> Invitation:
        """What everybody has to agree on; fresh for every run."""
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
            rounds=last_number(settings),
            sums=settings.sums,
            row_bound=bounds.row,
            total_bound=bounds.total,
            minimum=settings.smallest_cohort,
        )


class FederationServer:
    """One run of a federation.

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
        self.coordinator = plan.coordinator(member)
        self._side: ServerSide | None = None

    @property
    def side(self) -> ServerSide:
        """The way to sum, once parties are invited."""
        return self._side or self.invite()

    def invite(self) -> ServerSide:
        """Ask everybody to join; those who do are summed from now on."""
        settings, invitation = self._plan.settings, self._plan.invitation()
        self.roster.invite(invitation)
        desk = ServerDesk(self.roster, self._plan.catalogue, invitation, settings)
        self._side = SUMS[settings.sums].server(desk)
        return self._side

    def one_round(self) -> None:
        """One round among those who joined."""
        one_round(self.coordinator, self.side)

    def run(self, after_round: Callable[[Coordinator], None] = lambda coordinator: None) -> None:
        """Train to the end and hand out the result; the sums have to be prepared before."""
        train(self.coordinator, self.side, after_round)
