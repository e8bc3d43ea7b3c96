"""Cohorts of a run as a server sees them summed in round 1, and rehearsals on other people.

Round 1 starts from public numbers, so one computation gives the update of every user of a run, in
whatever cohort; a secure sum is exactly the sum of these in fixed point. So many cohorts can be
attacked without their protocols being run.

A weight that an attacker chooses is chosen on people whom it does not attack, and with a prior that
does not know the attacked either. Where a cohort leaves enough people outside, these are the ones
on whom it rehearses, in cohorts of the same size. Where it does not, users are dealt into parts,
and for each part the attacker rehearses on all others.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedmmf import rng
from fedmmf.aggregation.rare_items import are_rare
from fedmmf.arrays import Array
from fedmmf.attacks import Attack
from fedmmf.attacks.calibrated import SummedView, calibrate, trusting
from fedmmf.attacks.known_masks import KnownMasks
from fedmmf.attacks.view import levels_of
from fedmmf.audit.exposure import prior_parts, public_prior
from fedmmf.data.rated_items import RatedItems
from fedmmf.secagg import FixedPoint, ring_named
from fedmmf.settings import Settings
from fedmmf.simulation import Prepared
from fedmmf.solvers.sgd import SGD, Factors, SgdPlan, party_update, start_user_factors

REHEARSALS = 200  # users at least on whom a weight is chosen, where there are so many


@dataclass(frozen=True, eq=False)
class FirstRound:
    """Updates of all users in round 1, with the broadcast and the plan."""

    run: Prepared  # masks and ratings of everybody
    plan: SgdPlan  # the public plan
    item_factors: Array  # q of round 1. (n_items, k)
    updates: Array  # eta of every rating of the run's training part. (n, k)

    @classmethod
    def of(cls, run: Prepared, *, is_control: bool = False) -> "FirstRound":
        """Compute round 1 of a run, as if its solver were sgd.

        Args:
            run: masks and ratings of everybody.
            is_control: sums are made of ratings that have nothing to do with those of the run,
                which stay the truth; see `with_drawn_ratings`.
        """
        run = as_solved_by("sgd", run).over_everything()
        broadcast = run.coordinator().result
        plan, q = SgdPlan.of(broadcast), broadcast.item_factors
        start = start_user_factors(1, broadcast.rank)[0]
        made = with_drawn_ratings(run) if is_control else run
        masked = made.masks.masked_ratings
        updates = [
            party_update(
                masked[mine],
                q[run.lists.items[mine]],
                Factors.starting_at(start.copy()),
                plan,
                1,
            )
            for mine in map(run.lists.of, range(run.lists.n_users))
        ]
        return cls(run, plan, q, np.concatenate(updates))

    @cached_property
    def prior(self) -> Array:
        """Prior of every rating, from the users of other parts. (n, n_levels)."""
        return public_prior(self.run.training, self.run.settings.seed)

    def summed(self, users: Array, prior: Array | None = None) -> tuple[SummedView, Array]:
        """Return the sum over some users (codes, increasing), with weights of 1, and their ratings.

        Args:
            users: the cohort.
            prior: of the cohort's ratings, in their order; None: the run's. (n, n_levels)
        """
        lists, rows = members_lists(self.run.lists, users)
        view = SummedView(
            users=users,
            lists=lists,
            scale=self.run.training.scale,
            prior=self.prior[rows] if prior is None else prior,
            plan=self.plan,
            item_factors=self.item_factors,
            rows=self.sum_of(lists, self.updates[rows]),
            masks=known_masks(self.run),
            weights=np.ones(len(users)),
        )
        return view, self.run.training.values[rows]

    def sum_of(self, lists: RatedItems, updates: Array) -> Array:
        """Sum exactly as secure aggregation does, rare items left out. (n_items, k)."""
        n_items = len(self.item_factors)
        is_rare = are_rare(lists.counts(n_items), self.run.settings.min_raters)
        is_kept = ~is_rare[lists.items]
        bound = SGD.bounds(self.run.training.scale.span).row
        codec = FixedPoint(lists.n_users, bound, ring_named(SGD.ring))
        steps = codec.quantize(updates[is_kept])
        total = np.zeros((n_items, updates.shape[1]), np.int64)
        np.add.at(total, lists.items[is_kept], steps)
        return np.asarray(total / codec.scale)

    def rehearsals(self, people: Array, size: int) -> list[tuple[SummedView, Array]]:
        """Return sums over cohorts of people whose ratings the attacker knows, and these ratings.

        Args:
            people: the codes of those whom it knows, increasing.
            size: of a cohort; all of them, if they are fewer.
        """
        training, seed = self.run.training, self.run.settings.seed
        known = np.isin(training.user_codes, people)  # (n,)
        prior = np.zeros((training.n_ratings, self.prior.shape[1]))
        prior[known] = public_prior(training.select(known), seed)
        draw = rng.stream(seed, "rehearsal", size, len(people)).permutation(people)
        size = min(size, len(people))
        n_cohorts = max(1, min(len(people), REHEARSALS) // size)
        cohorts = [np.sort(draw[n * size : (n + 1) * size]) for n in range(n_cohorts)]
        return [
            self.summed(cohort, prior[np.isin(training.user_codes, cohort)]) for cohort in cohorts
        ]


def without_budget(settings: Settings) -> dict[str, Any]:
    """Return the settings that have to change where a scheme without noise is named instead."""
    return {"dp_epsilon": type(settings).model_fields["dp_epsilon"].default}


def as_solved_by(solver: str, run: Prepared) -> Prepared:
    """Return the run with another solver and secure sums; masks are refitted if they differ."""
    settings = run.settings.changed(
        solver=solver, aggregation="secure", objective="rating", **without_budget(run.settings)
    )
    if settings.has_joint_mask == run.settings.has_joint_mask:
        return replace(run, settings=settings)
    return run.refitted(settings)


def with_drawn_ratings(run: Prepared, prior: Array | None = None) -> Prepared:
    """Make the control of attacks on sums: the same rated items, with ratings drawn anew.

    Each is drawn from what the public knows of its item, so that sums look alike and say nothing
    about anybody. What is public stays as it is.

    Args:
        run: masks and ratings.
        prior: of the ratings; None: from the users of other parts of the run. (n, n_levels)
    """
    training, seed = run.training, run.settings.seed
    prior = public_prior(training, seed) if prior is None else prior
    chances = np.cumsum(prior, axis=1)  # (n, n_levels)
    draw = rng.stream(seed, "drawn ratings").random(training.n_ratings)
    level = (draw[:, np.newaxis] > chances[:, :-1]).sum(axis=1)  # (n,)
    values = levels_of(training.scale)[level].astype(training.values.dtype)
    return run.refitted(run.settings, replace(training, values=values))


def known_masks(run: Prepared) -> KnownMasks:
    """Knowledge of a server about a run's masks."""
    masks = run.masks
    return KnownMasks(masks.plan, masks.population, run.features.seen, run.training.scale)


def members_lists(lists: RatedItems, users: Array) -> tuple[RatedItems, Array]:
    """Return the lists of some users, and which rows (n,) bool of all lists they are."""
    indptr = np.concatenate(([0], np.cumsum(lists.lengths[users])))
    rows = np.isin(lists.users, users)
    return RatedItems(indptr, lists.items[rows]), rows


def weighed(first: FirstRound, attack: Attack, view: SummedView) -> SummedView:
    """Set a weight for each user that was chosen on others; see the top of this file."""
    everybody, size = np.arange(first.run.training.n_users), len(view.users)
    outside = np.setdiff1d(everybody, view.users)
    if len(outside) >= size:
        return trusting(view, calibrate(attack, first.rehearsals(outside, size)))
    parts = prior_parts(first.run.training, first.run.settings.seed)  # (n_users,)
    weights = np.zeros(size)
    for part in np.unique(parts[view.users]).tolist():
        others = np.flatnonzero(parts != part)
        weights[parts[view.users] == part] = calibrate(attack, first.rehearsals(others, size))
    return replace(view, weights=weights)
