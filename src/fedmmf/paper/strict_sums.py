"""What one secure sum still says about its members, by the size of the cohort.

Cohorts of users are drawn at random, those of one size without a common member, and the sum of
round 1 over each is attacked: by `calibrated` and `unmixing`, which know who rated what, and by
`membership`, which does not. Beside each stands what public knowledge finds of the same user; the
gain is the difference. The control is `calibrated` on sums of shuffled residuals.

Weights are chosen on people who are in none of the attacked cohorts (`audit.cohorts`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedmmf import rng
from fedmmf.arrays import Array
from fedmmf.attacks import ATTACKS, Attack
from fedmmf.attacks.calibrated import SummedView, calibrate, trusting
from fedmmf.attacks.membership import CohortView, item_matrix
from fedmmf.audit.cohorts import FirstRound, weighed
from fedmmf.config import Settings
from fedmmf.data import Ratings
from fedmmf.paper.drawing import new_figure, write_results
from fedmmf.paper.gains import Gain, paired_gain
from fedmmf.simulation import prepare

COHORTS = {12: 16, 25: 8, 50: 6, 100: 5, 200: 3, 400: 2}  # size -> how many at most
ON_SUMS = ("calibrated", "unmixing")


@dataclass(frozen=True)
class SumRow:
    """One attack on cohorts of one size.

    Attributes:
        size: members of a cohort.
        n_cohorts: that were attacked.
        attack: its name; "control" where residuals were shuffled.
        success: mean over users, and so public, what public knowledge finds.
        gain: attack minus public, user by user.
        shown: share of the members' ratings whose items are in the sum at all.
    """

    size: int
    n_cohorts: int
    attack: str
    success: float
    public: float
    gain: Gain
    shown: float


@dataclass(frozen=True)
class StrictSums:
    """Every attack at every size."""

    data: str
    mask: str
    factors: int
    rows: list[SumRow]
    settings: dict[str, Any]

    def of(self, attack: str) -> list[SumRow]:
        """The rows of one attack, by size."""
        return [row for row in self.rows if row.attack == attack]


def run(
    ratings: Ratings,
    settings: Settings,
    sizes: Sequence[int],
    progress: Callable[[int, int], None],
) -> StrictSums:
    """Attack cohorts of each size, and everybody at once; `progress` is told (done, of)."""
    ready = prepare(ratings, settings.changed(held_out=0.0, sharing="strict"))
    first, control = FirstRound.of(ready), FirstRound.of(ready, shuffled=True)
    every = [*(size for size in sorted(set(sizes)) if size < ratings.n_users), ratings.n_users]
    rows: list[SumRow] = []
    for number, size in enumerate(every):
        progress(number, len(every))
        rows += attack_size(first, control, draw_cohorts(ratings.n_users, size, settings.seed))
    return StrictSums(ratings.name, settings.mask, settings.factors, rows, settings.model_dump())


def draw_cohorts(n_users: int, size: int, seed: int) -> list[Array]:
    """Cohorts without a common member; codes, increasing. (size,) each."""
    draw = rng.stream(seed, "cohorts", size).permutation(n_users)
    wanted = next((n for least, n in sorted(COHORTS.items(), reverse=True) if size >= least), 16)
    n_cohorts = max(1, min(wanted, n_users // size))
    return [np.sort(draw[n * size : (n + 1) * size]) for n in range(n_cohorts)]


def attack_size(first: FirstRound, control: FirstRound, cohorts: list[Array]) -> list[SumRow]:
    """Every attack on cohorts of one size."""
    rows, weights = [], []
    for name in ON_SUMS:
        views = _weighed(first, ATTACKS[name], [first.summed(cohort)[0] for cohort in cohorts])
        weights.append([view.weights for view in views])
        rows.append(_on_sums(first, cohorts, weights[-1], name))
    shuffled = _on_sums(control, cohorts, weights[0], ON_SUMS[0])
    return [*rows, replace(shuffled, attack="control"), _members(first, cohorts)]


def _on_sums(made: FirstRound, cohorts: list[Array], weights: list[Array], name: str) -> SumRow:
    """One attack on the sums that `made` makes, with weights chosen before."""
    seen = [made.summed(cohort) for cohort in cohorts]
    views = [replace(view, weights=mine) for (view, _), mine in zip(seen, weights, strict=True)]
    pairs = zip(views, seen, strict=True)
    found = [ATTACKS[name].run(view, truth) for view, (_, truth) in pairs]
    return _row(views, name, [one.success for one in found], [one.baseline for one in found])


def _weighed(first: FirstRound, attack: Attack, views: list[SummedView]) -> list[SummedView]:
    """One weight for all cohorts, from people in none of them; where these are few, `weighed`."""
    taken = np.concatenate([view.users for view in views])
    outside = np.setdiff1d(np.arange(first.run.training.n_users), taken)
    size = len(views[0].users)
    if len(outside) < size:
        return [weighed(first, attack, view) for view in views]
    weight = calibrate(attack, first.rehearsals(outside, size))
    return [trusting(view, weight) for view in views]


def _members(first: FirstRound, cohorts: list[Array]) -> SumRow:
    """Which items each member rated, from the survey's counts."""
    attack, n_items = ATTACKS["membership"], first.run.training.n_items
    everybody = first.run.lists.counts(n_items)
    views, success, public = [], [], []
    for cohort in cohorts:
        view, _ = first.summed(cohort)
        rated = item_matrix(view.lists, n_items)
        popularity = (everybody - rated) / max(first.run.training.n_users - 1, 1)
        shown = np.where(view.is_shown, view.n_raters, 0)[np.newaxis] + 0.0  # (1, n_items)
        result = attack.run(CohortView(cohort, popularity, shown), rated)
        views.append(view)
        success.append(result.success)
        public.append(result.baseline)
    return _row(views, attack.name, success, public)


def _row(views: list[SummedView], attack: str, success: list[Array], public: list[Array]) -> SumRow:
    shown = np.concatenate([view.is_shown[view.lists.items] for view in views])
    gain = paired_gain([found - known for found, known in zip(success, public, strict=True)])
    return SumRow(
        size=len(views[0].users),
        n_cohorts=len(views),
        attack=attack,
        success=float(np.nanmean(np.concatenate(success))),
        public=float(np.nanmean(np.concatenate(public))),
        gain=gain,
        shown=float(shown.mean()),
    )


def write(report: StrictSums, out: Path) -> None:
    """The figures as JSON and Markdown, and drawn."""
    write_results(out, "strict", report, to_markdown(report), {"strict-sums": draw(report)})


def to_markdown(report: StrictSums) -> str:
    """One line per size; gains with their intervals."""
    names = list(dict.fromkeys(row.attack for row in report.rows))
    lines = [
        "| cohort | cohorts | ratings in the sum | public | " + " | ".join(names) + " |",
        "|---" * (4 + len(names)) + "|",
    ]
    for rows in by_size(report):
        one = rows[names[0]]
        cells = " | ".join(str(rows[name].gain) for name in names)
        lines.append(
            f"| {one.size} | {one.n_cohorts} | {one.shown:.2f} | {one.public:.3f} | {cells} |"
        )
    return "\n".join(lines) + "\n"


def by_size(report: StrictSums) -> list[dict[str, SumRow]]:
    """The rows of each size, by attack."""
    sizes = sorted({row.size for row in report.rows})
    return [{row.attack: row for row in report.rows if row.size == size} for size in sizes]


def draw(report: StrictSums) -> Any:
    """Gain against the size of the cohort, one line per attack."""
    figure, panel = new_figure()
    for name in dict.fromkeys(row.attack for row in report.rows):
        rows = report.of(name)
        means = np.array([row.gain.mean for row in rows])
        ends = np.array([(row.gain.low, row.gain.high) for row in rows]).T  # (2, n_sizes)
        error = np.maximum(np.abs(ends - means), 0.0)
        panel.errorbar([row.size for row in rows], means, error, marker="o", capsize=3, label=name)
    panel.axhline(0.0, color="black", linewidth=0.8)
    panel.set(xscale="log", xlabel="members of the cohort", ylabel="gain over public knowledge")
    panel.set_title(f"One secure sum: {report.data}, mask {report.mask}")
    panel.legend()
    return figure
