"""Figures 2a and 2b: the paper's two attacks, and beside them the ones that it did not try.

Figure 2a shows the proportion of users by recovery rate, at several error levels g (steps of the
scale); figure 2b by hit ratio, at several top proportions h (tenths of the list). The second pair
replaces stretching by the strongest attack on the mask's family, and counts ties as hits.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.attacks.contract import AttackResult, exact_share
from fedmmf.attacks.decode import DECODE, NAIVE
from fedmmf.attacks.paper import EDGES, proportions, random_hit_ratio, ranking, recovery
from fedmmf.attacks.view import Exposed
from fedmmf.audit import expose
from fedmmf.data import Ratings
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf_experiments.paper.drawing import new_figure, write_results

ERROR_LEVELS = (0.5, 1, 2)  # g, in steps; below half a step is exact
TOP_TENTHS = (1, 2, 3, 5)  # h
TIE_RULES = {"strict": True, "tie-tolerant": False}


@dataclass(frozen=True)
class UserSpread:
    """How successful an attack is: the mean over users, and their proportion in each range."""

    mean: float
    proportions: list[float]


@dataclass(frozen=True)
class ExactShare:
    """Share of ratings that an attack finds exactly, with its 95 % interval over users."""

    attack: str
    mean: float
    interval: list[float]


@dataclass(frozen=True)
class AttackFigures:
    """What the attacks found; figures by name, and in each a curve per level."""

    data: str
    mask: str
    n_users: int
    edges: list[float]
    figures: dict[str, dict[str, UserSpread]]
    exact: list[ExactShare]
    random_hit_ratio: dict[str, dict[str, float]]
    settings: dict[str, Any]


def run(
    ratings: Ratings, settings: Settings, progress: Callable[[int, int], None]
) -> AttackFigures:
    """Attack every user's masked ratings; `progress` is told (done, of)."""
    view = expose(prepare(ratings, settings.changed(held_out=0.0)))
    truth = ratings.values
    progress(1, 4)
    decoded = DECODE.guess(view)
    progress(2, 4)
    figures = _figures(view, decoded, truth)
    progress(3, 4)
    guesses = {"prior alone": view.prior_guess, "shift": NAIVE.guess(view), "decode": decoded}
    return AttackFigures(
        data=ratings.name,
        mask=settings.mask,
        n_users=ratings.n_users,
        edges=list(EDGES),
        figures=figures,
        exact=[_exact(name, view, guess, truth) for name, guess in guesses.items()],
        random_hit_ratio={str(h): _random(view, truth, h) for h in TOP_TENTHS},
        settings=settings.model_dump(),
    )


def _figures(view: Exposed, decoded: Array, truth: Array) -> dict[str, dict[str, UserSpread]]:
    """The paper's two figures, and the same with stronger attacks."""
    as_masked = replace(view, masked=decoded.astype(np.float32))  # rank by what was decoded
    return {
        "2a": _recovered(view, truth, None),
        "2a-strongest": _recovered(view, truth, decoded),
        "2b": _ranked(view, truth, strict=True),
        "2b-tie-tolerant": _ranked(view, truth, strict=False),
        "2b-strongest": _ranked(as_masked, truth, strict=False),
    }


def _recovered(view: Exposed, truth: Array, guesses: Array | None) -> dict[str, UserSpread]:
    """Proportions of users by recovery rate, for each g."""
    curves = {}
    for g in ERROR_LEVELS:
        attack = recovery(g)
        given = attack.guess(view) if guesses is None else guesses
        curves[f"g = {g:g}"] = _spread(attack.score(view, given, truth))
    return curves


def _ranked(view: Exposed, truth: Array, *, strict: bool) -> dict[str, UserSpread]:
    """Proportions of users by hit ratio, for each h."""
    return {
        f"h = {h}": _spread(ranking(h, strict=strict).run(view, truth).success) for h in TOP_TENTHS
    }


def _spread(values: Array) -> UserSpread:
    return UserSpread(float(np.nanmean(values)), proportions(values).tolist())


def _random(view: Exposed, truth: Array, tenths: int) -> dict[str, float]:
    return {
        name: float(np.nanmean(random_hit_ratio(view, truth, tenths=tenths, strict=strict)))
        for name, strict in TIE_RULES.items()
    }


def _exact(name: str, view: Exposed, guesses: Array, truth: Array) -> ExactShare:
    success = exact_share(view, guesses, truth)
    result = AttackResult(name, "", "", "", view.users, success, np.zeros_like(success))
    return ExactShare(name, result.mean, list(result.interval))


def write(report: AttackFigures, out: Path) -> None:
    """The figures as JSON and Markdown, and drawn."""
    drawn = {}
    for name, curves in report.figures.items():
        what = "recovery rate" if name.startswith("2a") else "hit ratio"
        title = f"{name}: {report.data}, mask {report.mask}"
        drawn[f"figure-{name}"] = draw(title, what, curves)
    write_results(out, "attacks", report, to_markdown(report), drawn)


def to_markdown(report: AttackFigures) -> str:
    """What the attacks find, on average over users."""
    lines = ["| attack | ratings exact | 95 % interval |", "|---|---|---|"]
    for row in report.exact:
        low, high = row.interval
        lines.append(f"| {row.attack} | {row.mean:.4f} | {low:.4f} to {high:.4f} |")
    columns = " | ".join(f"h = {h}" for h in TOP_TENTHS)
    lines += ["", f"| figure | {columns} |", "|---|---|---|---|---|"]
    for title, hit_ratios in _hit_ratios(report).items():
        cells = " | ".join(f"{value:.3f}" for value in hit_ratios)
        lines.append(f"| {title} | {cells} |")
    return "\n".join(lines) + "\n"


def _hit_ratios(report: AttackFigures) -> dict[str, list[float]]:
    """Mean hit ratio for each h, by title; (h,) each."""
    titles = {
        "2b": "ranking, strict",
        "2b-tie-tolerant": "ranking, tie-tolerant",
        "2b-strongest": "by decoded ratings, tie-tolerant",
    }
    found = {
        title: [report.figures[name][f"h = {h}"].mean for h in TOP_TENTHS]
        for name, title in titles.items()
    }
    chance = report.random_hit_ratio
    return found | {
        f"at random, {rule}": [chance[str(h)][rule] for h in TOP_TENTHS] for rule in TIE_RULES
    }


def draw(title: str, what: str, curves: dict[str, UserSpread]) -> Any:
    """Grouped bars: the proportion of users in each range, for each level."""
    figure, panel = new_figure()
    places, width = np.arange(len(EDGES) - 1), 0.8 / len(curves)
    for number, (name, curve) in enumerate(curves.items()):
        panel.bar(places + (number + 0.5) * width - 0.4, curve.proportions, width, label=name)
    ranges = [f"{low:g}-{high:g}" for low, high in pairwise(EDGES)]
    panel.set_xticks(places, ranges, rotation=45)
    panel.set(xlabel=what, ylabel="proportion of users", title=f"Figure {title}")
    panel.legend()
    return figure
