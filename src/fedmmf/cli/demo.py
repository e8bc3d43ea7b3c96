"""`fedmmf demo`: every mask on an embedded synthetic set, offline."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmmf.cli import options as o
from fedmmf.cli.output import print_json, progress_bar, results, table
from fedmmf.cli.recommend import show
from fedmmf.cli.train import accuracy, summary
from fedmmf.data import Ratings, load
from fedmmf.masks import FAMILIES
from fedmmf.model import FedMMF
from fedmmf.reports import write_report

REPORT = Path("fedmmf-demo.html")
_NAMES = {"none": "FedMF (no mask)", "mean": "User-mean FedMMF"}
_RUNS = [*((mask, "sgd") for mask in FAMILIES), ("mean", "vb"), ("lr", "vb")]


def demo(
    report: Annotated[Path, typer.Option("--report", help="HTML report to write.")] = REPORT,
    seed: o.SeedOption = o.DEFAULTS.seed,
    json: o.JsonOption = False,
) -> None:
    """Train FedMF and FedMMF with each mask on made-up ratings, then recommend to one user."""
    ratings = load("synthetic")
    training, testing = ratings.split(test=0.2, seed=seed)
    models = [FedMMF(mask=mask, solver=solver, seed=seed) for mask, solver in _RUNS]
    reports = [_train(model, training, testing) for model in models]
    best, of_best = min(zip(models, reports, strict=True), key=lambda pair: float(pair[1]["rmse"]))
    user = ratings.user_ids[0].item()
    items = best.recommend(user, n=10)
    chosen = {"user": user, "model": _name(of_best), "recommendations": items.to_dicts()}
    found = {"runs": reports, "recommended": chosen}
    write_report(found, report)
    if json:
        print_json(found)
        return
    results.print(_table(ratings, reports))
    show(items, f"for user {user}, from {_name(of_best)}")
    results.print(f"All of it as a page: {report}", soft_wrap=True)
    results.print(
        "Secure: J <= threshold_j, the paper's rule. A small J protects nobody by itself.\n"
        "The ratings are made up. Next: fedmmf train --data FILE, fedmmf audit, fedmmf data list."
    )


def _name(report: dict[str, Any]) -> str:
    order = FAMILIES[report["mask"]].order.capitalize()
    name = _NAMES.get(report["mask"], f"{order} FedMMF")
    return f"{name}, vb" if report["solver"] == "vb" else name


def _train(model: FedMMF, training: Ratings, testing: Ratings) -> dict[str, Any]:
    began = time.perf_counter()
    settings = model.get_params()
    with progress_bar(f"{settings['mask']}, {settings['solver']}") as progress:
        model.fit(training, progress=progress)
    seconds = time.perf_counter() - began
    return summary(model, training, len(testing), accuracy(model, training, testing), seconds)


def _table(ratings: Ratings, reports: list[dict[str, Any]]) -> Any:
    rows = [
        [
            _name(report),
            f"{report['rmse']:.4f}",
            f"{report['mae']:.4f}",
            f"{report['privacy']['mean_j']:.4f}",
            str(report["privacy"]["secure_users"]),
            str(report["rounds"]),
            f"{report['seconds']['total']:.1f}",
        ]
        for report in reports
    ]
    title = f"{ratings.n_ratings:,} synthetic ratings, {ratings.n_users} parties, test share 0.2"
    return table(title, ["model", "RMSE", "MAE", "mean J", "secure", "rounds", "seconds"], rows)
