"""`fedmmf train`: masks, federated rounds, accuracy on held-back ratings."""

import time
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from fedmmf import __version__
from fedmmf.baselines import baselines
from fedmmf.cli import options as o
from fedmmf.cli.output import print_json, progress_bar, results, table, versions
from fedmmf.data import Ratings, read_split
from fedmmf.masks.indicator import histogram
from fedmmf.model import FedMMF
from fedmmf.reports import write_report

EXAMPLE = "Example: fedmmf train --data ml-100k --mask fm --test 0.2 --save model.fedmmf"
D = o.DEFAULTS


def train(
    data: o.DataOption = "synthetic",
    test: Annotated[
        float, typer.Option("--test", min=0, max=1, help="Share of ratings to test on; 0: none.")
    ] = 0.2,
    test_file: Annotated[
        Path | None, typer.Option("--test-file", help="Test on this file instead, as in u1.test.")
    ] = None,
    split: Annotated[
        Literal["random", "time"], typer.Option("--split", help="Test at random or on the latest.")
    ] = "random",
    features: o.FeaturesOption = None,
    scale: o.ScaleOption = None,
    duplicates: o.DuplicatesOption = "refuse",
    edges: o.EdgesOption = None,
    mask: o.MaskOption = D.mask,
    mask_strength: o.MaskStrengthOption = None,
    cross_fit: o.CrossFitOption = D.cross_fit,
    folds: o.FoldsOption = D.folds,
    threshold_j: o.ThresholdOption = D.threshold_j,
    sharing: o.SharingOption = D.sharing,
    grouping: o.GroupingOption = D.grouping,
    audit_limit: o.AuditLimitOption = D.audit_limit,
    aggregation: o.AggregationOption = D.aggregation,
    signed: o.SignedOption = D.signed,
    collect_masked: o.CollectOption = D.collect_masked,
    min_raters: o.MinRatersOption = D.min_raters,
    dp_epsilon: o.EpsilonOption = D.dp_epsilon,
    dp_delta: o.DeltaOption = D.dp_delta,
    dp_clip: o.ClipOption = D.dp_clip,
    dp_noise: o.NoiseOption = D.dp_noise,
    real: o.RealOption = False,
    solver: o.SolverOption = D.solver,
    factors: o.FactorsOption = D.factors,
    rounds: o.RoundsOption = D.rounds,
    ensemble: o.EnsembleOption = D.ensemble,
    step: o.StepOption = D.step,
    learning_rate: o.LearningRateOption = D.learning_rate,
    regularization: o.RegularizationOption = D.regularization,
    user_prior: o.UserPriorOption = D.user_prior,
    biases: o.BiasesOption = D.biases,
    item_prior: o.ItemPriorOption = D.item_prior,
    item_statistics: o.ItemStatisticsOption = D.item_statistics,
    held_out: o.HeldOutOption = D.held_out,
    patience: o.PatienceOption = D.patience,
    seed: o.SeedOption = D.seed,
    top: Annotated[
        int | None, typer.Option("--top", min=1, help="Also rank: NDCG and recall of the N best.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save", help="Write the model to this file.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint", help="Write progress here, and continue from it after a stop."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write an HTML report to this file.")
    ] = None,
    json: o.JsonOption = False,
) -> None:
    """Train on ratings, test on held-back ones, and show accuracy, J, traffic and time."""
    model = FedMMF(**o.settings_among(locals()).model_dump())
    began = time.perf_counter()
    given = {"features": features, "scale": scale, "duplicates": duplicates, "edges": edges}
    training, testing = _parts(data, test_file, test, split, seed, given)
    with progress_bar(training.name) as progress:
        model.fit(training, progress=progress, checkpoint=checkpoint, real=real)
    scores = accuracy(model, training, testing, top)
    if save is not None:
        model.save(save)
    n_test = 0 if testing is None else len(testing)
    found = summary(model, training, n_test, scores, time.perf_counter() - began)
    if report is not None:
        write_report(found, report)
    if json:
        print_json(found)
    else:
        _show(found)


def accuracy(
    model: FedMMF, training: Ratings, testing: Ratings | None, top: int | None = None
) -> dict[str, Any]:
    """Errors on the test ratings, beside those of the baselines."""
    if testing is None:
        return {"rmse": None, "mae": None}
    return {
        **model.evaluate(testing, top=top),
        "baselines": baselines(model.learned, training, testing),
    }


def _parts(
    data: str,
    test_file: Path | None,
    test: float,
    split: str,
    seed: int,
    given: dict[str, Any],
) -> tuple[Ratings, Ratings | None]:
    if test_file is not None:
        return read_split(data, test_file, scale=given["scale"], features=given["features"])
    ratings = o.load_ratings(data, **given)
    if test == 0:
        return ratings, None
    return ratings.split_by_time(test) if split == "time" else ratings.split(test, seed=seed)


def summary(
    model: FedMMF,
    training: Ratings,
    n_test: int,
    scores: dict[str, Any],
    total_seconds: float,
) -> dict[str, Any]:
    """Everything that a training run reports; the keys are a contract."""
    learned, settings = model.learned, model.get_params()
    seconds = {**learned.seconds, "total": total_seconds}
    return {
        **scores,
        "test_fraction": n_test / (n_test + len(training)),
        "data": training.name,
        "synthetic": training.synthetic,
        "n_users": training.n_users,
        "n_items": training.n_items,
        "n_ratings": n_test + len(training),
        "seed": settings["seed"],
        "mask": settings["mask"],
        "solver": settings["solver"],
        "factors": settings["factors"],
        "rounds": learned.rounds,
        "best_round": learned.members[0].best_round,
        "seconds": {name: round(value, 4) for name, value in seconds.items()},
        "privacy": model.privacy(),
        "traffic": model.traffic(),
        "cost": model.cost(),
        "history": [_finite(value) for value in learned.members[0].history],
        "j": histogram(learned.j_train),
        "tradeoff": model.tradeoff() if settings["solver"] == "sgd" else [],
        "settings": settings,
        "version": __version__,
        "versions": versions(),
    }


def _finite(value: float) -> float | None:
    return round(float(value), 6) if np.isfinite(value) else None


def _show(report: dict[str, Any]) -> None:
    privacy, traffic, seconds = report["privacy"], report["traffic"], report["seconds"]
    settings, cost = report["settings"], report["cost"]
    kind = " (synthetic)" if report["synthetic"] else ""
    rows = [
        ["ratings", f"{report['n_ratings']:,}"],
        ["users, items", f"{report['n_users']:,}, {report['n_items']:,}"],
        ["test share", f"{report['test_fraction']:.3f}"],
        ["RMSE", _number(report["rmse"])],
        ["MAE", _number(report["mae"])],
        *([f"RMSE, {b['name']}", _number(b["rmse"])] for b in report.get("baselines", ())),
        *([name.upper(), _number(report[name])] for name in ("ndcg", "recall") if name in report),
        ["rounds (best)", f"{report['rounds']} ({report['best_round']})"],
        ["mean J (out of fold)", f"{privacy['mean_j']:.4f} ({privacy['mean_j_out_of_fold']:.4f})"],
        [f"users with J <= {privacy['threshold_j']:g}", f"{privacy['secure_users']:,}"],
        ["sharing", f"{settings['sharing']}, {settings['aggregation']}"],
        ["up, per user and round", f"{traffic['up_bytes_per_user_round'] / 1e3:,.1f} kB"],
        ["down, per user and round", f"{traffic['down_bytes_per_user_round'] / 1e3:,.1f} kB"],
        [
            "protocol, CPU per round",
            f"party {1e3 * cost['party_cpu_s']:.1f} ms, server {cost['server_cpu_s']:.2f} s",
        ],
        [
            "seconds: masks, rounds, all",
            f"{seconds['mask']:.2f}, {seconds['train']:.2f}, {seconds['total']:.2f}",
        ],
    ]
    title = f"{report['data']}{kind}, mask {report['mask']}, solver {report['solver']}"
    results.print(table(title, ["", "value"], rows))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
