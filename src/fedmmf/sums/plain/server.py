"""The server's side of sums in the clear."""

from collections.abc import Sequence

import numpy as np

from fedmmf.solvers.contract import Bounds, ItemSums
from fedmmf.sums.contract import Work
from fedmmf.sums.server_side import ServerDesk, ServerSide
from fedmmf.wire import Ask, Survey, Update, name_of
from fedmmf.wire.messages import Expected

SLACK = 1024.0  # nothing clips updates in the clear, so honest ones may exceed the bounds a little


class PlainServer(ServerSide):
    """Updates arrive as they are and are summed here; who does not answer is left out.

    Policies other than plain refuse a survey.

    Args:
        desk: what the server lends.
        names: whom to ask; None: everybody who joined.
        bounds: of one user's numbers, which no honest update exceeds; None: the solver's.
    """

    def __init__(
        self, desk: ServerDesk, names: Sequence[str] | None = None, bounds: Bounds | None = None
    ) -> None:
        super().__init__(desk)
        self._names = names
        self._bounds = bounds or desk.solver.bounds(desk.catalogue.scale.span)

    def sum(self, stage: str, work: Work) -> ItemSums:
        """Collect everybody's updates and add them up."""
        sizes, frame = self.expected(work), self.publication(work)
        rows = np.zeros((sizes.n_items, sizes.form.width), np.float32)
        n_raters, totals = np.zeros(len(rows), np.int64), np.zeros(sizes.n_totals)
        number, survivors = 0 if isinstance(work, Survey) else work.round, []
        joined = self.desk.roster.joined  # once: it is worked out anew each time
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
        names = self.desk.roster.joined if self._names is None else self._names
        questions = dict.fromkeys(names, Ask(name_of(frame)))
        return self.desk.roster.ask(stage, questions, Update, sizes, frame)

    def _is_due(self, name: str, update: Update, number: int, n_users: int) -> bool:
        if update.round != number:
            reason = f"sent an update of round {update.round} in round {number}"
        elif (update.n_raters > n_users).any():
            reason = f"counts more raters of an item than its {n_users} users"
        elif not self._is_bounded(update, n_users):
            reason = "its numbers are larger than those of honest users"
        else:
            return True
        self.desk.roster.refuse(name, reason)
        return False

    def _is_bounded(self, update: Update, n_users: int) -> bool:
        row, total = SLACK * self._bounds.row, SLACK * self._bounds.total * n_users
        is_usual = np.abs(update.rows) <= row * update.n_raters[:, np.newaxis]
        return bool(is_usual.all() and (np.abs(update.totals) <= total).all())
