"""What one secure sum still says about its members, by the size of the cohort.

Cohorts of users are drawn at random, those of one size without a common member, and the sum of
round 1 over each is attacked: by `calibrated` and `unmixing`, which know who rated what, and by
`membership`, which does not. Beside each stands what public knowledge finds of the same user; the
gain is the difference. Every attack has its control: the same attack with nothing to find. Ratings
are drawn anew from what the public knows of their items, and so are the counts of `membership`.

Weights are chosen on people who are in none of the attacked cohorts (`audit.cohorts`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedmmf import rng
from fedmmf.aggregation.rare_items import are_rare
from fedmmf.arrays import Array
from fedmmf.attacks import ATTACKS, Attack, AttackResult
from fedmmf.attacks.calibrated import SummedView, calibrate, trusting
from fedmmf.attacks.membership import CohortView, item_matrix
from fedmmf.audit.cohorts import FirstRound, weighed
from fedmmf.data import Ratings
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf_experiments.paired import Gain, paired_gain
from fedmmf_experiments.paper.drawing import Columns, markdown, new_figure, write_results

COHORTS = {12: 16, 25: 8, 50: 6, 100: 5, 200: 3, 400: 2}  # size -> how many at most
ON_SUMS = ("calibrated", "unmixing")
COLUMNS: Columns = {
    "cohort": lambda row: str(row.size),
    "cohorts": lambda row: str(row.n_cohorts),
    "rounds": lambda row: str(row.rounds),
    "in the sums": lambda row: f"{row.shown:.2f}",
    "attack": lambda row: row.attack,
    "found": lambda row: f"{row.success:.3f}",
    "public": lambda row: f"{row.public:.3f}",
    "gain": lambda row: str(row.gain),
    "control": lambda row: str(row.control),
}


@dataclass(frozen=True)
class SumRow:
    """One attack on cohorts of one size."""

    size: int  # members of a cohort
    n_cohorts: int  # that were attacked
    attack: str  # its name
    # share that it finds, mean over users; and so public, what public knowledge finds
    success: float
    public: float
    gain: Gain  # attack minus public, user by user
    control: Gain  # the same with nothing to find
    shown: float  # share of the members' ratings whose items are in the sum at all
    rounds: int = 1  # whose sums were attacked


@dataclass(frozen=True)
class StrictSums:
    """Every attack at every size."""

    data: str
    mask: str
    solver: str
    factors: int
    rows: list[SumRow]
    settings: dict[str, Any]


def run(
    ratings: Ratings,
    settings: Settings,
    sizes: Sequence[int],
    progress: Callable[[int, int], None],
) -> StrictSums:
    """Attack cohorts of each size, and everybody at once; `progress` is told (done, of)."""
    ready = prepare(ratings, settings.changed(held_out=0.0, sharing="strict"))
    first, control = FirstRound.of(ready), FirstRound.of(ready, is_control=True)
    every = sizes_up_to(ratings.n_users, sizes)
    rows: list[SumRow] = []
    for number, size in enumerate(every):
        progress(number, len(every))
        rows += attack_size(first, control, draw_cohorts(ratings.n_users, size, settings.seed))
    about = (ratings.name, settings.mask, "sgd", settings.factors)
    return StrictSums(*about, rows, settings.model_dump())


def sizes_up_to(n_users: int, sizes: Sequence[int]) -> list[int]:
    """Return sizes of cohorts, each once and increasing; the last is everybody."""
    return [*(size for size in sorted(set(sizes)) if size < n_users), n_users]


def draw_cohorts(n_users: int, size: int, seed: int) -> list[Array]:
    """Cohorts without a common member; codes, increasing. (size,) each."""
    draw = rng.stream(seed, "cohorts", size).permutation(n_users)
    wanted = next((n for least, n in sorted(COHORTS.items(), reverse=True) if size >= least), 16)
    n_cohorts = max(1, min(wanted, n_users // size))
    return [np.sort(draw[n * size : (n + 1) * size]) for n in range(n_cohorts)]


def attack_size(first: FirstRound, control: FirstRound, cohorts: list[Array]) -> list[SumRow]:
    """Every attack on cohorts of one size."""
    rows = []
    for name in ON_SUMS:
        views = _weighed(first, ATTACKS[name], [first.summed(cohort)[0] for cohort in cohorts])
        weights = [view.weights for view in views]
        found, nothing = (_on_sums(made, cohorts, weights, name) for made in (first, control))
        rows.append(sum_row(name, found, nothing, len(cohorts[0]), _shown(views)))
    views = [first.summed(cohort)[0] for cohort in cohorts]
    seen = [_members(first, view, is_control=False) for view in views]
    drawn = [_members(first, view, is_control=True) for view in views]
    return [*rows, sum_row("membership", seen, drawn, len(cohorts[0]), _shown(views))]


def _on_sums(
    made: FirstRound, cohorts: list[Array], weights: list[Array], name: str
) -> list[AttackResult]:
    """One attack on the sums that `made` makes, with weights chosen before."""
    seen = [made.summed(cohort) for cohort in cohorts]
    pairs = zip(seen, weights, strict=True)
    return [ATTACKS[name].run(replace(view, weights=mine), truth) for (view, truth), mine in pairs]


def _weighed(first: FirstRound, attack: Attack, views: list[SummedView]) -> list[SummedView]:
    """One weight for all cohorts, from people in none of them; where these are few, `weighed`."""
    taken = np.concatenate([view.users for view in views])
    outside = np.setdiff1d(np.arange(first.run.training.n_users), taken)
    size = len(views[0].users)
    if len(outside) < size:
        return [weighed(first, attack, view) for view in views]
    weight = calibrate(attack, first.rehearsals(outside, size))
    return [trusting(view, weight) for view in views]


def _members(first: FirstRound, view: SummedView, *, is_control: bool) -> AttackResult:
    """Which items each member rated, from the survey's counts.

    A control's counts are drawn from what other people rated, for each member anew: a count that
    has the member in it says something of the member.
    """
    everybody, settings = first.run.lists.counts(len(view.rows)), first.run.settings
    rated = item_matrix(view.lists, len(view.rows))
    popularity = (everybody - rated) / max(first.run.training.n_users - 1, 1)
    counts = view.n_raters[np.newaxis]  # (1, n_items): the same for everybody
    if is_control:
        draw = rng.stream(settings.seed, "drawn counts", int(view.users[0]))
        counts = draw.binomial(len(view.users), popularity)  # (n_users, n_items)
    shown = np.where(are_rare(counts, settings.min_raters), 0, counts) + 0.0
    return ATTACKS["membership"].run(CohortView(view.users, popularity, shown), rated)


def _shown(views: list[SummedView]) -> float:
    return float(np.concatenate([view.is_shown[view.lists.items] for view in views]).mean())


def sum_row(
    name: str, found: list[AttackResult], control: list[AttackResult], size: int, shown: float
) -> SumRow:
    """What an attack found in each cohort, and in its control."""
    return SumRow(
        size=size,
        n_cohorts=len(found),
        attack=name,
        success=float(np.nanmean(np.concatenate([one.success for one in found]))),
        public=float(np.nanmean(np.concatenate([one.baseline for one in found]))),
        gain=paired_gain([one.success - one.baseline for one in found]),
        control=paired_gain([one.success - one.baseline for one in control]),
        shown=shown,
    )


def write(report: StrictSums, out: Path, name: str = "strict") -> None:
    """The figures as JSON and Markdown, and drawn."""
    write_results(out, name, report, markdown(COLUMNS, report.rows), {f"{name}-sums": draw(report)})


def draw(report: StrictSums) -> Any:
    """Gain against the size of the cohort, one line per attack and number of rounds."""
    figure, panel = new_figure()
    for name, rounds in dict.fromkeys((row.attack, row.rounds) for row in report.rows):
        rows = [row for row in report.rows if (row.attack, row.rounds) == (name, rounds)]
        means = np.array([row.gain.mean for row in rows])
        ends = np.array([(row.gain.low, row.gain.high) for row in rows]).T  # (2, n_sizes)
        error = np.maximum(np.abs(ends - means), 0.0)
        label = name if rounds == 1 else f"{name}, {rounds} rounds"
        panel.errorbar([row.size for row in rows], means, error, marker="o", capsize=3, label=label)
    panel.axhline(0.0, color="black", linewidth=0.8)
    panel.set(xscale="log", xlabel="members of the cohort", ylabel="gain over public knowledge")
    panel.set_title(f"Secure sums: {report.data}, {report.solver}, mask {report.mask}")
    panel.legend()
    return figure
