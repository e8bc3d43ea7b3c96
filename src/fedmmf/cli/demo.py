"""`fedmmf demo`: every mask on an embedded synthetic set, offline."""

import time
from typing import Any

from fedmmf.cli import options as o
from fedmmf.cli.output import print_json, progress_bar, results, table
from fedmmf.cli.recommend import show
from fedmmf.cli.train import summary
from fedmmf.data import Ratings, load
from fedmmf.masks import FAMILIES
from fedmmf.model import FedMMF

_NAMES = {"none": "FedMF (no mask)", "mean": "FedMMF, user mean"}


def demo(seed: o.SeedOption = o.DEFAULTS.seed, json: o.JsonOption = False) -> None:
    """Train FedMF and FedMMF with each mask on made-up ratings, then recommend to one user."""
    ratings = load("synthetic")
    training, testing = ratings.split(test=0.2, seed=seed)
    reports, models = {}, {}
    for mask in FAMILIES:
        models[mask] = FedMMF(mask=mask, seed=seed)
        reports[mask] = _train(models[mask], training, testing)
    best_mask = min(reports, key=lambda mask: float(reports[mask]["rmse"]))
    user = ratings.user_ids[0].item()
    best = models[best_mask].recommend(user, n=10)
    if json:
        chosen = {"user": user, "mask": best_mask, "recommendations": best.to_dicts()}
        print_json({"runs": list(reports.values()), "recommended": chosen})
        return
    results.print(_table(ratings, list(reports.values())))
    show(best, f"for user {user}, from FedMMF with the mask {best_mask}")
    results.print(
        "Secure: J <= threshold_j, the paper's rule. A small J protects nobody by itself.\n"
        "The ratings are made up. Next: fedmmf train --data FILE, or fedmmf data list."
    )


def _train(model: FedMMF, training: Ratings, testing: Ratings) -> dict[str, Any]:
    began = time.perf_counter()
    with progress_bar(str(model.get_params()["mask"])) as progress:
        model.fit(training, progress=progress)
    seconds = time.perf_counter() - began
    return summary(model, training, len(testing), model.evaluate(testing), seconds)


def _table(ratings: Ratings, reports: list[dict[str, Any]]) -> Any:
    rows = [
        [
            _NAMES.get(report["mask"], f"{FAMILIES[report['mask']].order.capitalize()} FedMMF"),
            f"{report['rmse']:.4f}",
            f"{report['mae']:.4f}",
            f"{report['privacy']['mean_j']:.4f}",
            f"{report['privacy']['secure_users']} of {report['n_users']}",
            str(report["rounds"]),
            f"{report['seconds']['total']:.1f}",
        ]
        for report in reports
    ]
    title = f"{ratings.n_ratings:,} synthetic ratings, {ratings.n_users} parties, test share 0.2"
    return table(title, ["model", "RMSE", "MAE", "mean J", "secure", "rounds", "seconds"], rows)
