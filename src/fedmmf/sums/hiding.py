"""The server's side of sums that hide their summands: first find what can be summed at all."""

from collections.abc import Mapping

import numpy as np

from fedmmf.arrays import Array
from fedmmf.solvers.contract import ItemSums
from fedmmf.sums.rare import are_rare
from fedmmf.sums.server_side import ServerDesk, ServerSide
from fedmmf.wire import Round, Survey


class HidingServer(ServerSide):
    """Counts raters once, in a survey; items with too few of them are left out of all that follows.

    Counts of every round would say who took part in it, and what that party rated.
    """

    def __init__(self, desk: ServerDesk) -> None:
        super().__init__(desk)
        self._n_raters: Array | None = None  # (n_items,) of the survey; 0 where left out

    @property
    def left_out(self) -> Array:
        """Items that are not summed; none before the survey. (n,) int32."""
        if self._n_raters is None:
            return np.zeros(0, np.int32)
        return np.flatnonzero(self._n_raters == 0).astype(np.int32)

    def state(self) -> dict[str, Array]:
        """The survey's counts: parties do not answer a second one."""
        return {} if self._n_raters is None else {"n_raters": self._n_raters}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Go on from there."""
        self._n_raters = state.get("n_raters")

    def prepare(self) -> None:
        """Find the items that too few users rated."""
        self.count_raters()

    def survey(self, *, with_ratings: bool) -> ItemSums:
        """Users per item, rare ones too or, if asked for, the sums of ratings of all others.

        Counts of rare items show that somebody rated them (errata 34); their ratings are nobody's
        business.
        """
        counts = self.count_raters()
        return self.sum("survey", Survey(with_ratings=True)) if with_ratings else counts

    def sums(self, round_: Round) -> ItemSums:
        """Run one round."""
        if self._n_raters is None:
            self.prepare()
        return super().sums(round_)

    def count_raters(self) -> ItemSums:
        """Ask everybody what they rated, and leave the rare items out from now on."""
        self._n_raters = None
        counts = self.sum("survey", Survey(with_ratings=False))
        settings = self.desk.settings
        is_rare = are_rare(counts.n_raters, settings.min_raters, settings.batch)
        self._n_raters = np.where(is_rare, 0, counts.n_raters)
        self.n_ratings = int(counts.n_raters.sum())
        return counts
