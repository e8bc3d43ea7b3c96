"""`fedmmf demo`: every mask on an embedded synthetic set, offline."""

import time
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from fedmmf.cli.choices import JsonOption, SeedOption
from fedmmf.cli.files import require_outputs, written
from fedmmf.cli.output import plain, print_json, progress_bar, results, shown, stamped, table
from fedmmf.cli.recommend import show
from fedmmf.data import Ratings, load
from fedmmf.masks import FAMILIES
from fedmmf.model import FedMMF
from fedmmf.reports import write_report
from fedmmf.reports.list_scores import RecommendedList
from fedmmf.reports.results import DemoResult, TrainResult
from fedmmf.settings import Settings
from fedmmf.settings.groups import names_for

EXAMPLE = "Example: fedmmf demo"
REPORT = Path("fedmmf-demo.html")
_NAMES = {"none": "FedMF (no mask)", "mean": "User-mean FedMMF"}
_BY_VB = ("mean", "lr")
_RANKER = "a model that ranks"


def demo(
    report: Annotated[Path, typer.Option("--report", help="HTML report to write.")] = REPORT,
    seed: SeedOption = Settings.model_fields["seed"].default,
    json: JsonOption = False,
) -> None:
    """Train FedMF and FedMMF with each mask on made-up ratings, then recommend to one user."""
    require_outputs({"--report": report}, {})
    ratings = load("synthetic")
    training, testing = ratings.split(test=0.2, seed=seed)
    plans = [*((mask, "sgd") for mask in names_for("mask")), *((mask, "vb") for mask in _BY_VB)]
    models = [FedMMF(mask=mask, solver=solver, seed=seed) for mask, solver in plans]
    runs = [_train(model, training, testing) for model in models]
    user = ratings.user_ids[0].item()
    items = _ranker(training, seed).recommend(user, n=10)
    found = _together(runs, user, _RANKER, items)
    with written(report) as partial:
        write_report(found, partial)
    if json:
        print_json(found.to_json_dict())
        return
    results.print(_table(ratings, runs))
    show(items, f"for user {user}, from {_RANKER}")
    _say_what_next(report)


def _train(model: FedMMF, training: Ratings, testing: Ratings) -> TrainResult:
    began = time.perf_counter()
    settings = model.get_params()
    with progress_bar(f"{settings['mask']}, {settings['solver']}") as progress:
        model.fit(training, progress=progress)
    spent = time.perf_counter() - began
    return stamped(model.summary(testing, total_seconds=spent))


def _ranker(training: Ratings, seed: int) -> FedMMF:
    """Train a model for the list: the others predict ratings, and what they list is poor."""
    with progress_bar(_RANKER) as progress:
        return FedMMF(objective="ranking", seed=seed).fit(training, progress=progress)


def _together(runs: list[TrainResult], user: Any, model: str, items: pl.DataFrame) -> DemoResult:
    chosen = {"user": user, "model": model, "recommendations": items.to_dicts()}
    return DemoResult(runs=tuple(runs), recommended=RecommendedList.from_json_dict(chosen))


def _name(run: TrainResult) -> str:
    order = FAMILIES[run.mask].order.capitalize()
    name = _NAMES.get(run.mask, f"{order} FedMMF")
    return name if run.solver == Settings().solver else f"{name}, {run.solver}"


def _table(ratings: Ratings, runs: list[TrainResult]) -> Any:
    rows = [
        [
            _name(run),
            shown(run.rmse),
            shown(run.mae),
            shown(run.privacy.mean_j),
            str(run.privacy.secure_users),
            str(run.rounds),
            f"{run.seconds.total:.1f}",
        ]
        for run in runs
    ]
    title = (
        f"{runs[0].run_kind}\n"
        f"{ratings.n_ratings:,} synthetic ratings, {ratings.n_users} parties, test share 0.2"
    )
    return table(title, ["model", "RMSE", "MAE", "mean J", "secure", "rounds", "seconds"], rows)


def _say_what_next(report: Path) -> None:
    results.print(f"All of it as a page: {plain(report)}", soft_wrap=True)
    results.print(
        "Secure: J <= threshold_j, the paper's rule. A small J protects nobody by itself.\n"
        "The ratings are made up. Next: fedmmf train --data FILE, fedmmf audit, fedmmf data list."
    )
