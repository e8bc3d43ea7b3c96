"""The server's side of plain aggregation."""

from collections.abc import Sequence

import numpy as np

from fedmmf.aggregation.contract import Work
from fedmmf.aggregation.server_side import ServerContext, ServerSide
from fedmmf.solvers.contract import Bounds, ItemSums
from fedmmf.wire import Ask, Survey, Update, name_of
from fedmmf.wire.messages import Expected

SLACK = 1024.0  # nothing clips updates in the clear, so honest ones may exceed the bounds a little


class PlainServer(ServerSide):
    """Sums updates that arrive in the clear; parties that do not answer are left out.

    Policies other than plain refuse a survey.

    Args:
        context: what the server lends.
        names: whom to ask; None: everybody who joined.
        bounds: of one user's numbers, which no honest update exceeds; None: the solver's.
    """

    def __init__(
        self,
        context: ServerContext,
        names: Sequence[str] | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        super().__init__(context)
        self._names = names
        self._bounds = bounds or context.solver.bounds(context.catalogue.scale.span)

    def sum(self, stage: str, work: Work) -> ItemSums:
        """Collect the updates of all parties and add them up."""
        sizes, frame = self.expected(work), self.broadcast(work)
        rows = np.zeros((sizes.n_items, sizes.update_shape.width), np.float32)
        n_raters, totals = np.zeros(len(rows), np.int64), np.zeros(sizes.n_totals)
        number, survivors = 0 if isinstance(work, Survey) else work.round, []
        joined = self.context.roster.joined  # once: the property computes it anew each time
        for name, update in self._ask(stage, frame, sizes).items():
            if not self._is_due(name, update, number, joined[name].n_users):
                continue
            rows[update.items] += update.rows
            n_raters[update.items] += update.n_raters
            totals += update.totals
            survivors.append(name)
        self.survivors = survivors
        return ItemSums(rows, n_raters, totals)

    def _ask(self, stage: str, frame: bytes, sizes: Expected) -> dict[str, Update]:
        names = self.context.roster.joined if self._names is None else self._names
        questions = dict.fromkeys(names, Ask(name_of(frame)))
        return self.context.roster.ask(stage, questions, Update, sizes, frame)

    def _is_due(self, name: str, update: Update, number: int, n_users: int) -> bool:
        if update.round != number:
            reason = f"sent an update of round {update.round} in round {number}"
        elif (update.n_raters > n_users).any():
            reason = f"counts more raters of an item than its {n_users} users"
        elif not self._is_bounded(update, n_users):
            reason = "its numbers are larger than those of honest users"
        else:
            return True
        self.context.roster.refuse(name, reason)
        return False

    def _is_bounded(self, update: Update, n_users: int) -> bool:
        row, total = SLACK * self._bounds.row, SLACK * self._bounds.total * n_users
        is_usual = np.abs(update.rows) <= row * update.n_raters[:, np.newaxis]
        return bool(is_usual.all() and (np.abs(update.totals) <= total).all())
