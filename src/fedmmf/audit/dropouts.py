"""A federation whose parties drop out now and then, and the sums that its server gets.

Batches (So et al. 2021): parties are dealt into batches once and for all, and a sum contains whole
batches only, so that who stays away takes its batch out of the round.
"""

from dataclasses import dataclass, replace

import numpy as np

from fedmmf.aggregation.contract import HELD_OUT_TOTALS
from fedmmf.aggregation.rare_items import are_rare
from fedmmf.arrays import Array
from fedmmf.audit.cohorts import members_lists
from fedmmf.data.rated_items import RatedItems
from fedmmf.secagg import MINIMUM_COHORT
from fedmmf.simulation import Prepared
from fedmmf.solvers.contract import ItemSums
from fedmmf.solvers.sgd import AllUsers, Factors, SgdPlan, party_update, start_user_factors


@dataclass(frozen=True, eq=False)
class DropOuts:
    """Presence of each user in each round: `present` is (rounds, n_users) bool."""

    present: Array

    @classmethod
    def drawn(
        cls, n_users: int, rounds: int, share: float, batch: int, stream: np.random.Generator
    ) -> "DropOuts":
        """Draw drop-outs: each party drops out independently, and its batch with it."""
        away = stream.random((rounds, n_users)) < share
        batch_of = stream.permutation(n_users) // batch  # (n_users,)
        is_in = batch_of[:, np.newaxis] == np.arange(batch_of.max() + 1)  # (n_users, n_batches)
        lost = away.astype(np.int64) @ is_in  # (rounds, n_batches)
        return cls(np.asarray(lost[:, batch_of] == 0))


class PresentHalves:
    """The parties of `sgd` as one group, of whom only some take part in a round.

    Args:
        lists: what each of them rated.
        masked: their masked ratings. (n,)
        rank: k.
    """

    def __init__(self, lists: RatedItems, masked: Array, rank: int) -> None:
        self._lists, self._masked = lists, masked
        self.factors = Factors.starting_at(start_user_factors(lists.n_users, rank))

    def updates(self, q: Array, plan: SgdPlan, t: int, present: Array) -> Array:
        """Rows of the present users; others keep their p, and have rows of zeros. (n, k)."""
        rows = np.zeros((len(self._masked), q.shape[1]), np.float32)
        for user in np.flatnonzero(present & (self._lists.lengths > 0)):
            mine = slice(*self._lists.indptr[user : user + 2])
            p = Factors(*(values[user] for values in vars(self.factors).values()))  # views
            known = q[self._lists.items[mine]]
            rows[mine] = party_update(self._masked[mine], known, p, plan, t)
        return rows

    def totals(self, present: Array) -> Array:
        """Totals: nothing held out, then those of the present users with ratings."""
        told = AllUsers.totals_of(self.factors.value[present & (self._lists.lengths > 0)])
        return np.concatenate((np.zeros(HELD_OUT_TOTALS), told.sum(axis=0)))


def sums_of_rounds(run: Prepared, users: Array, drops: DropOuts) -> tuple[Array, Array]:
    """Train with the parties that are present; rounds with too few parties give no sum.

    Args:
        run: of everybody, with the solver sgd.
        users: the cohort; codes, increasing.
        drops: who of the cohort takes part when.

    Returns:
        The level column of each sum (rounds, n_items), and who took part (rounds, n_users).
    """
    lists, rows = members_lists(run.lists, users)
    n_items, least = run.training.n_items, MINIMUM_COHORT
    settings = run.settings.changed(solver="sgd", objective="rating")
    coordinator = replace(run, settings=settings).over_everything().coordinator()
    parties = PresentHalves(lists, run.masks.masked_ratings[rows], coordinator.result.rank)
    counts = lists.counts(n_items)
    kept = ~are_rare(counts, run.settings.min_raters)  # (n_items,)
    levels, present = [], []
    for here in drops.present:
        if here.sum() < least:
            continue
        round_ = coordinator.next_round()
        plan, q = SgdPlan.of(round_.broadcast), round_.broadcast.item_factors
        updates = parties.updates(q, plan, round_.round, here)
        updates[~kept[lists.items]] = 0.0
        total = _by_item(updates, lists.items, n_items)
        shown = np.where(kept, counts, 0)
        coordinator.advance(round_, ItemSums(total, shown, parties.totals(here)))
        levels.append(total[:, 0])
        present.append(here)
    return np.array(levels).reshape(-1, n_items), np.array(present).reshape(-1, len(users))


def _by_item(values: Array, items: Array, n_items: int) -> Array:
    """Sum rows over each item. (n_items, k)."""
    columns = [np.bincount(items, column, n_items) for column in values.T]
    return np.column_stack(columns)
