"""What the secure sums of many rounds say, when parties now and then stay away.

A cohort trains; in every round each party stays away with a probability of 5 %. The server knows
who took part. `attacks.disaggregation` takes the sums apart, and finds which items a party rated
(without knowing it) and how (knowing it), beside public knowledge. The same with batches of parties
that come and go together: a sum then never differs by less than a batch, and rounds lose more
parties.

The controls are the same attacks with the names in the attendance list exchanged.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fedmmf import rng
from fedmmf.arrays import Array
from fedmmf.attacks.calibrated import SummedView, spread_of
from fedmmf.attacks.contract import exact_share
from fedmmf.attacks.disaggregation import RoundSums, RoundsView, guess_ratings, item_scores
from fedmmf.attacks.membership import CohortView, area_under_curve, item_matrix, popularity_area
from fedmmf.audit.cohorts import FirstRound
from fedmmf.audit.dropouts import DropOuts, sums_of_rounds
from fedmmf.data import Ratings
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf_experiments.paired import Gain, paired_gain
from fedmmf_experiments.paper.drawing import new_figure, write_results
from fedmmf_experiments.paper.strict_sums import draw_cohorts, sizes_up_to

SIZES = (12, 50, 200)  # and everybody
ROUNDS = (30, 100, 200)
BATCHES = (1, 5, 20)
AWAY = 0.05
MAX_COHORTS = 6


@dataclass(frozen=True)
class RoundsRow:
    """Cohorts of one size after so many rounds."""

    size: int  # members of a cohort
    n_cohorts: int  # that were attacked
    rounds: int  # that the server has seen
    batch: int  # parties that come and go together
    present: float  # share of the members in a mean round
    sums: float  # rounds that gave a sum, of a mean cohort
    items: Gain  # gain in the area under the curve, which items; the names of these are not known
    items_public: float  # what popularity gives
    ratings: Gain  # gain in the share of exact ratings, where the items are known
    ratings_public: float  # what the prior gives
    items_control: Gain  # the same with names exchanged, beside what the counts of one sum give
    ratings_control: Gain  # the same with names exchanged


@dataclass(frozen=True)
class ManyRounds:
    """All sizes, rounds and batches."""

    data: str
    mask: str
    away: float
    rows: list[RoundsRow]
    settings: dict[str, Any]


@dataclass(frozen=True, eq=False)
class _Trained:
    """One cohort, trained to the end."""

    users: Array
    level: Array  # (rounds, n_items)
    present: Array  # (rounds, n_users)
    drawn: Array  # (all rounds, n_users), also of rounds without a sum


def run(
    ratings: Ratings,
    settings: Settings,
    sizes: Sequence[int],
    rounds: Sequence[int],
    progress: Callable[[int, int], None],
) -> ManyRounds:
    """Train and attack cohorts of each size with each batch; `progress` is told (done, of)."""
    ready = prepare(ratings, settings.changed(held_out=0.0, sharing="strict"))
    first = FirstRound.of(ready)
    every = sizes_up_to(ratings.n_users, sizes)
    rows: list[RoundsRow] = []
    for number, (size, batch) in enumerate(product(every, BATCHES)):
        progress(number, len(every) * len(BATCHES))
        cohorts = draw_cohorts(ratings.n_users, size, settings.seed)[:MAX_COHORTS]
        trained = [_train(first, users, batch, max(rounds)) for users in cohorts]
        rows += [_row(first, trained, batch, n) for n in sorted(rounds)]
    return ManyRounds(ratings.name, settings.mask, AWAY, rows, settings.model_dump())


def _train(first: FirstRound, users: Array, batch: int, rounds: int) -> _Trained:
    stream = rng.stream(first.run.settings.seed, "away", len(users), batch, int(users[0]))
    drops = DropOuts.drawn(len(users), rounds, AWAY, batch, stream)
    return _Trained(users, *sums_of_rounds(first.run, users, drops), drops.present)


def _row(first: FirstRound, trained: list[_Trained], batch: int, rounds: int) -> RoundsRow:
    found = [_attacked(first, one, rounds) for one in trained]
    items, items_public, ratings, ratings_public, control, counts, exchanged = (
        [part[number] for part in found] for number in range(7)
    )
    return RoundsRow(
        size=len(trained[0].users),
        n_cohorts=len(trained),
        rounds=rounds,
        batch=batch,
        present=float(np.mean([one.drawn[:rounds].mean() for one in trained])),
        sums=float(np.mean([_n_sums(one, rounds) for one in trained])),
        items=_gain(items, items_public),
        items_public=_mean(items_public),
        ratings=_gain(ratings, ratings_public),
        ratings_public=_mean(ratings_public),
        items_control=_gain(control, counts),
        ratings_control=_gain(exchanged, ratings_public),
    )


def _n_sums(one: _Trained, rounds: int) -> int:
    """How many of the first rounds gave a sum."""
    had_sum = np.isin(np.arange(len(one.drawn)), np.flatnonzero(one.drawn.sum(axis=1) >= 3))
    return int(had_sum[:rounds].sum())


def _attacked(first: FirstRound, one: _Trained, rounds: int) -> tuple[Array, ...]:
    """Items and ratings, found and public; controls of items, and counts alone; of ratings.

    (n_users,) each.
    """
    view, truth = first.summed(one.users)
    n, n_items = _n_sums(one, rounds), first.run.training.n_items
    rated = item_matrix(view.lists, n_items)
    counts = first.run.lists.counts(n_items)
    popularity = (counts - rated) / max(first.run.training.n_users - 1, 1)
    shown = np.where(view.is_shown, view.n_raters, 0)
    seen = RoundSums(one.level[:n], one.present[:n], shown, popularity, spread_of(view))
    known = CohortView(one.users, popularity, rated + 0.0)
    if n < 2:
        nothing = popularity_area(known, rated), exact_share(view, view.prior_guess, truth)
        return nothing[0], nothing[0], nothing[1], nothing[1], nothing[0], nothing[0], nothing[1]
    exchanged = replace(seen, present=np.roll(seen.present, 1, axis=1))
    guesses = [_guess(view, sums) for sums in (seen, exchanged)]
    return (
        area_under_curve(known, item_scores(seen), rated),
        popularity_area(known, rated),
        exact_share(view, guesses[0], truth),
        exact_share(view, view.prior_guess, truth),
        area_under_curve(known, item_scores(exchanged), rated),
        area_under_curve(known, seen.odds, rated),
        exact_share(view, guesses[1], truth),
    )


def _guess(view: SummedView, sums: RoundSums) -> Array:
    """A rating for each item that a member rated. (n,)."""
    named = RoundsView(**view.facts, masks=view.masks, weights=view.weights, sums=sums)
    return guess_ratings(named)


def _gain(found: list[Array], broadcast: list[Array]) -> Gain:
    return paired_gain([ours - theirs for ours, theirs in zip(found, broadcast, strict=True)])


def _mean(values: list[Array]) -> float:
    return float(np.nanmean(np.concatenate(values)))


def write(report: ManyRounds, out: Path) -> None:
    """The figures as JSON and Markdown, and drawn."""
    write_results(out, "rounds", report, to_markdown(report), {"many-rounds": draw(report)})


def to_markdown(report: ManyRounds) -> str:
    """One line per size, batch and number of rounds."""
    lines = [
        "| cohort | batch | rounds | sums | present | items: public | gain | control "
        "| ratings: public | gain | control |",
        "|---" * 11 + "|",
    ]
    lines += [
        f"| {row.size} | {row.batch} | {row.rounds} | {row.sums:.0f} | {row.present:.2f} | "
        f"{row.items_public:.3f} | {row.items} | {row.items_control} | "
        f"{row.ratings_public:.3f} | {row.ratings} | {row.ratings_control} |"
        for row in report.rows
    ]
    return "\n".join(lines) + "\n"


def draw(report: ManyRounds) -> Any:
    """Gains after all rounds against the size, one line per batch."""
    figure, panels = new_figure(2)
    last = max(row.rounds for row in report.rows)
    for panel, what in zip(panels, ("items", "ratings"), strict=True):
        for batch in BATCHES:
            rows = [row for row in report.rows if row.batch == batch and row.rounds == last]
            gains = [getattr(row, what) for row in rows]
            error = [[g.mean - g.low for g in gains], [g.high - g.mean for g in gains]]
            means, sizes = [g.mean for g in gains], [row.size for row in rows]
            label = f"batches of {batch}" if batch > 1 else "no batches"
            panel.errorbar(sizes, means, np.maximum(error, 0), marker="o", capsize=3, label=label)
        panel.axhline(0.0, color="black", linewidth=0.8)
        panel.set(xscale="log", xlabel="members of the cohort", ylabel="gain", title=what)
    panels[0].legend()
    return figure
