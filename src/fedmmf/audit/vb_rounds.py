"""Cohorts of a run that train with `vb`, and their sums as a server sees them.

A simulation's sums are those of the protocol, to the last bit, so that nothing has to be sent.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedmmf import rng
from fedmmf.aggregation.contract import HELD_OUT_TOTALS
from fedmmf.arrays import Array
from fedmmf.attacks import Attack, AttackResult
from fedmmf.attacks.membership import item_matrix
from fedmmf.attacks.vb_lists import ListsView
from fedmmf.attacks.vb_sums import VbRound, VbSummedView
from fedmmf.audit.cohorts import known_masks, with_drawn_ratings
from fedmmf.audit.exposure import public_prior, restrict
from fedmmf.audit.following import follow
from fedmmf.simulation import Prepared, prepare
from fedmmf.solvers.vb.reading import VbReading
from fedmmf.solvers.vb.shapes import VbShape

MAX_ROUNDS = 8  # that unmixing uses beside membership rounds; more cost time and gain little


_FOR_LISTS = {"mask_fit": "auto", "likelihood": "gaussian"}  # settings that are for ratings alone


@dataclass(frozen=True, eq=False)
class VbCohort:
    """Some users of a run who train with `vb`."""

    run: Prepared  # of everybody
    users: Array  # codes of the cohort, increasing. (n_users,)
    is_control: bool = False  # ratings are drawn anew; see `audit.cohorts.with_drawn_ratings`
    objective: str = "rating"  # of the training
    # who takes part in each round; None: everybody in every planned round. (rounds, n_users) bool
    present: Array | None = None

    @cached_property
    def _prior(self) -> Array:
        """Prior of the cohort's ratings, from people of other parts of the run. (n, n_levels)."""
        everybody = self.run.training
        rows = np.isin(everybody.user_codes, self.users)
        return public_prior(everybody, self.run.settings.seed)[rows]

    @cached_property
    def prepared(self) -> Prepared:
        """The cohort as prepared for round 1, with a population of its own."""
        made = prepare(
            restrict(self.run.training, self.users),
            self.run.settings.changed(
                solver="vb",
                objective=self.objective,
                sharing="strict",
                aggregation="secure",
                collect_masked=False,
                held_out=0.0,
                **_FOR_LISTS if self.objective == "ranking" else {},
            ),
        )
        return with_drawn_ratings(made, self._prior) if self.is_control else made

    @cached_property
    def truth(self) -> Array:
        """Ratings of the run, also where a control's sums were made of others. (n,)."""
        mine = np.isin(self.run.training.user_codes, self.users)
        return self.run.training.values[mine]

    def rounds(self) -> Iterator[VbRound]:
        """Train; yield each round as the server sees it."""
        run, present = self.prepared, self.present
        given = run.training_input
        update_shape = given.update_shape
        if not isinstance(update_shape, VbShape):
            raise TypeError(f"sums of vb have forms of vb; got {type(update_shape).__name__}")
        if present is None:
            present = np.ones((run.settings.max_rounds, len(self.users)), bool)
        for seen in follow(run, present):
            reading = VbReading.of(update_shape, seen.round.broadcast, given.design)
            totals = update_shape.blocks["totals"].split(seen.sums.totals[HELD_OUT_TOTALS:])
            rows, user_sum = np.array(seen.sums.rows, np.float64), totals["user_sum"].copy()
            yield VbRound(reading, rows, user_sum, seen.present)

    @cached_property
    def trained(self) -> tuple[VbRound, ...]:
        """All rounds of the training, computed once."""
        return tuple(self.rounds())

    def summed(self, n_rounds: int) -> VbSummedView:
        """View of the first rounds, at most `MAX_ROUNDS` besides membership rounds."""
        made, seen = self.prepared, self.trained[:n_rounds]
        looks = [one for one in seen[MAX_ROUNDS:] if one.reading.is_membership_round]
        return VbSummedView(
            users=self.users,
            lists=made.lists,
            scale=made.training.scale,
            prior=self._prior,
            masks=known_masks(made),
            weights=np.ones(len(self.users)),
            summed=made.layout.items,
            rounds=(*seen[:MAX_ROUNDS], *looks),
        )

    def listed(self, n_rounds: int) -> tuple[ListsView, Array]:
        """View of the first rounds beside all lists, and who took part (n_everybody,) bool."""
        items = self.prepared.layout.items
        lists = item_matrix(self.run.lists, self.run.training.n_items)[:, items]
        took_part = np.isin(np.arange(len(lists)), self.users)
        columns = np.hstack([one.rows for one in self.trained[:n_rounds]])
        popularity = lists[took_part].mean(axis=0)
        return ListsView(np.arange(len(lists)), lists, popularity, columns), took_part

    def exchanged(self, n_rounds: int) -> tuple[ListsView, Array]:
        """Make the control of lists: sums whose items have changed places."""
        view, took_part = self.listed(n_rounds)
        stream = rng.stream(self.run.settings.seed, "exchanged items")
        places = stream.permutation(len(view.columns))
        return replace(view, columns=view.columns[places]), took_part

    def attacked_by(self, attack: Attack, n_rounds: int) -> AttackResult:
        """Try an attack on the first rounds."""
        if attack.target == "lists":
            return attack.run(*self.listed(n_rounds))
        return attack.run(self.summed(n_rounds), self.truth)
