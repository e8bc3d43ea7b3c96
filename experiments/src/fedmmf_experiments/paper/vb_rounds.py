"""What the secure sums of `vb` say about their members, by the size of the cohort and the rounds.

Cohorts are drawn as in `strict_sums`, and train with `vb`; nobody stays away. `vb unmixing` and
`vb ranking` know who rated what; `vb lists` has lists of people and asks who took part, in a
training for ratings and in one for lists (`objective="ranking"`), which tells more.

Every attack has its control. For the first two, ratings are drawn anew from what the public knows
of their items; for lists, the items of the sums have changed places.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fedmmf.arrays import Array
from fedmmf.attacks import ATTACKS, AttackResult
from fedmmf.audit.vb_rounds import VbCohort
from fedmmf.data import Ratings
from fedmmf.settings import Settings
from fedmmf.simulation import Prepared, prepare
from fedmmf_experiments.paper.strict_sums import (
    StrictSums,
    SumRow,
    draw_cohorts,
    sizes_up_to,
    sum_row,
)

ON_RATINGS, ON_LISTS = ("vb unmixing", "vb ranking"), "vb lists"
ROUNDS = (5, 8, 22)  # none of membership; the first one; both
MAX_COHORTS = {12: 6, 50: 4, 100: 3, 200: 2, 400: 1}  # size from which so many are attacked


def run(
    ratings: Ratings,
    settings: Settings,
    sizes: Sequence[int],
    rounds: Sequence[int],
    progress: Callable[[int, int], None],
) -> StrictSums:
    """Attack cohorts of each size, and everybody at once; `progress` is told (done, of)."""
    ready = prepare(ratings, settings.changed(held_out=0.0, sharing="strict"))
    every = sizes_up_to(ratings.n_users, sizes)
    rows: list[SumRow] = []
    for number, size in enumerate(every):
        progress(number, len(every))
        cohorts = draw_cohorts(ratings.n_users, size, settings.seed)[: _most(size)]
        rows += attack_size(ready, cohorts, sorted(set(rounds)))
    about = (ratings.name, settings.mask, "vb", settings.factors)
    return StrictSums(*about, rows, settings.model_dump())


def _most(size: int) -> int:
    return next((n for least, n in sorted(MAX_COHORTS.items(), reverse=True) if size >= least), 6)


def attack_size(run: Prepared, cohorts: list[Array], rounds: Sequence[int]) -> list[SumRow]:
    """Every attack on cohorts of one size."""
    made = [VbCohort(run, users) for users in cohorts]
    drawn = [VbCohort(run, users, is_control=True) for users in cohorts]
    ranked = [VbCohort(run, users, objective="ranking") for users in cohorts]
    rows = []
    for n in rounds:
        rows += _on_ratings(made, drawn, n)
        if len(cohorts[0]) < run.training.n_users:  # else there are no non-members to compare with
            rows.append(_on_lists(made, n, ON_LISTS))
            rows.append(_on_lists(ranked, n, f"{ON_LISTS}, ranking"))
    return rows


def _on_ratings(made: list[VbCohort], drawn: list[VbCohort], n: int) -> list[SumRow]:
    views = [cohort.summed(n) for cohort in made]
    nothing = [cohort.summed(n) for cohort in drawn]
    truths = [cohort.truth for cohort in made]
    shown = float(np.concatenate([view.is_told for view in views]).mean())
    rows = []
    for name in ON_RATINGS:
        found, control = (
            [ATTACKS[name].run(view, truth) for view, truth in zip(seen, truths, strict=True)]
            for seen in (views, nothing)
        )
        rows.append(replace(sum_row(name, found, control, len(views[0].users), shown), rounds=n))
    return rows


def _on_lists(cohorts: list[VbCohort], n: int, name: str) -> SumRow:
    found: list[AttackResult] = [ATTACKS[ON_LISTS].run(*one.listed(n)) for one in cohorts]
    control = [ATTACKS[ON_LISTS].run(*one.exchanged(n)) for one in cohorts]
    shown = float(np.concatenate([one.summed(n).is_told for one in cohorts]).mean())
    return replace(sum_row(name, found, control, len(cohorts[0].users), shown), rounds=n)
