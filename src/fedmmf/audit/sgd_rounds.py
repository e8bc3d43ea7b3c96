"""Cohorts of a run that train with `sgd` for all planned rounds, and their sums."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.attacks import Attack, AttackResult
from fedmmf.attacks.calibrated import SummedView, spread_of
from fedmmf.attacks.disaggregation import RoundSums, RoundsView, UnnamedRounds
from fedmmf.attacks.membership import item_matrix
from fedmmf.audit.cohorts import known_masks, members_lists, with_drawn_ratings
from fedmmf.audit.exposure import public_prior, restrict
from fedmmf.audit.following import SeenRound, follow, hidden_group, planned_presence
from fedmmf.data.rated_items import RatedItems
from fedmmf.simulation import Prepared, prepare
from fedmmf.solvers.sgd import SgdPlan


@dataclass(frozen=True, eq=False)
class SgdCohort:
    """Some users of a run who train with `sgd` and share as the run's settings say."""

    run: Prepared  # of everybody
    users: Array  # codes of the cohort, increasing. (n_users,)
    is_control: bool = False  # ratings are drawn anew; see `audit.cohorts.with_drawn_ratings`

    @cached_property
    def prepared(self) -> Prepared:
        """The cohort as prepared for round 1; what the run holds out stays out."""
        settings = self.run.settings
        scheme = {} if settings.scheme.has_budget else {"aggregation": "secure"}
        made = prepare(
            restrict(self.run.training, self.users),
            settings.changed(
                solver="sgd", objective="rating", collect_masked=False, held_out=0.0, **scheme
            ),
        )
        return with_drawn_ratings(made, self._prior(self.users)) if self.is_control else made

    def _prior(self, users: Array) -> Array:
        """Prior of some users' ratings, from people of other parts of the run. (n, n_levels)."""
        everybody = self.run.training
        rows = np.isin(everybody.user_codes, users)
        return public_prior(everybody, self.run.settings.seed)[rows]

    @cached_property
    def seen(self) -> tuple[SeenRound, ...]:
        """All planned rounds, as the server sees them."""
        made = self.prepared
        return tuple(follow(made, planned_presence(made.settings, len(self.users))))

    @cached_property
    def _members(self) -> Array:
        """Positions in the cohort of those who hide in its sums. (n_hidden,)."""
        hidden = hidden_group(self.prepared)
        return np.zeros(0, np.int64) if hidden is None else np.flatnonzero(hidden.members)

    @cached_property
    def _lists(self) -> tuple[RatedItems, Array]:
        """Their rated items, and which rows of the cohort's these are. (n,) bool."""
        return members_lists(self.prepared.lists, self._members)

    def attacked_by(self, attack: Attack, n_rounds: int | None = None) -> AttackResult:
        """Try an attack on the first rounds, or on all."""
        if attack.target == "unnamed rounds":
            rated = item_matrix(self._lists[0], self.prepared.training.n_items)
            return attack.run(self.unnamed(n_rounds), rated)
        return attack.run(self.named(n_rounds), self.prepared.training.values[self._lists[1]])

    def named(self, n_rounds: int | None = None) -> RoundsView:
        """View of the first rounds, or of all, of a server that knows who rated what."""
        counts = self._lists[0].counts(self.prepared.training.n_items)
        shown = np.where(self._summed(np.ones(len(self.prepared.layout.items))) > 0, counts, 0)
        return RoundsView(**self._facts, sums=self._sums(shown, n_rounds))

    def unnamed(self, n_rounds: int | None = None) -> UnnamedRounds:
        """View of the first rounds, or of all, of a server that knows the survey's counts alone."""
        hidden = hidden_group(self.prepared)
        nothing = np.zeros(len(self.prepared.layout.items))
        counts = self._summed(nothing if hidden is None else hidden.counts)
        return UnnamedRounds(self._facts["users"], self._sums(counts, n_rounds))

    @cached_property
    def _facts(self) -> dict[str, Any]:
        """Knowledge of the server besides sums."""
        made, users = self.prepared, self.users[self._members]
        return {
            "users": users,
            "lists": self._lists[0],
            "scale": made.training.scale,
            "prior": self._prior(users),
            "masks": known_masks(made),
            "weights": np.ones(len(users)),
        }

    def _sums(self, counts: Array, n_rounds: int | None) -> RoundSums:
        seen = self.seen[:n_rounds]
        n_items = self.prepared.training.n_items
        level = [self._summed(one.sums.rows[:, 0]) for one in seen]
        present = [one.present[self._members] for one in seen]
        return RoundSums(
            level=np.array(level).reshape(len(seen), n_items),
            present=np.array(present, bool).reshape(len(seen), len(self._members)),
            counts=counts,
            popularity=self._popularity,
            spread=self._spread,
        )

    @cached_property
    def _popularity(self) -> Array:
        """Share of all other people who rated each item. (n_hidden, n_items)."""
        n_users, n_items = self.run.training.n_users, self.run.training.n_items
        rated = item_matrix(self._lists[0], n_items)
        return np.asarray((self.run.lists.counts(n_items) - rated) / max(n_users - 1, 1))

    @cached_property
    def _spread(self) -> float:
        """Variance of an update's level; where there is noise, of a rating."""
        if not self.seen:
            return 1.0
        first = self.seen[0]
        view = SummedView(
            **self._facts,
            plan=SgdPlan.of(first.round.broadcast),
            item_factors=self._summed(first.round.broadcast.item_factors),
            rows=self._summed(first.sums.rows),
        )
        return view.spread if self.prepared.settings.scheme.has_budget else spread_of(view)

    def _summed(self, values: Array) -> Array:
        """Put rows of the layout at their items' positions in the catalogue. (n_items, ...)."""
        layout, hidden = self.prepared.layout, hidden_group(self.prepared)
        whole = np.zeros((self.prepared.training.n_items, *values.shape[1:]))
        whole[layout.items] = values
        if hidden is not None and hidden.cohort.left_out is not None:
            whole[layout.items[hidden.cohort.left_out]] = 0.0
        return whole
