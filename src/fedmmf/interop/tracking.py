"""Log a training to MLflow and TensorBoard: settings, rounds, final figures."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedmmf.interop import needed
from fedmmf.model import FedMMF
from fedmmf.reports.results import TrainResult

_PARTS = ("ranking", "privacy", "traffic", "cost", "seconds")  # of a summary that have figures


def rounds_of(model: FedMMF) -> Iterator[tuple[str, int, float]]:
    """Held-out RMSE after each round: name, round from 1 on, value.

    Where nothing is held out there is none. Further runs of an ensemble have names of their own.
    """
    for number, member in enumerate(model.learned.members, 1):
        name = "held_out_rmse" if number == 1 else f"held_out_rmse_of_run_{number}"
        for place, value in enumerate(member.history.tolist(), 1):
            if math.isfinite(value):
                yield name, place, value


def figures_of(result: TrainResult) -> dict[str, float]:
    """The final figures of a run by name, such as `rmse` and `privacy.mean_j`."""
    found = result.to_json_dict()
    numbers = {name: found.get(name) for name in ("rmse", "mae", "rounds", "best_round")}
    for part in _PARTS:
        numbers |= _leaves(part, found.get(part) or {})
    return {
        name: float(value)
        for name, value in numbers.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _leaves(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {name: value}
    found: dict[str, Any] = {}
    for key, part in value.items():
        found |= _leaves(f"{name}.{key}", part)
    return found


def log_to_mlflow(model: FedMMF, result: TrainResult | None = None) -> None:
    """Log a fitted model to the active run of MLflow, or to a new one.

    Args:
        model: whose settings are the run's parameters.
        result: what `model.summary(test)` gave; None: a summary without a test.
    """
    mlflow = needed("mlflow", "mlflow-skinny")
    mlflow.log_params(model.get_params())
    mlflow.set_tags({"fedmmf.data": model.learned.data, "fedmmf.protection": _protection(model)})
    for name, place, value in rounds_of(model):
        mlflow.log_metric(name, value, step=place)
    mlflow.log_metrics(figures_of(result or model.summary()))


def _protection(model: FedMMF) -> str:
    kind = "simulated" if model.learned.is_simulated else "real parties"
    return f"{model.settings.scheme_name}, {kind}"


def log_to_tensorboard(
    model: FedMMF, folder: str | Path, result: TrainResult | None = None
) -> None:
    """Write a fitted model's settings, rounds and figures to a folder of TensorBoard.

    Args:
        model: whose settings are the text `settings`.
        folder: of one run; it is made.
        result: what `model.summary(test)` gave; None: a summary without a test.
    """
    writing = needed("tensorboard.summary.writer.event_file_writer", "tensorboard")
    events = needed("tensorboard.compat.proto.event_pb2", "tensorboard")
    words = needed("tensorboard.plugins.text.summary_v2", "tensorboard")
    numbers = needed("tensorboard.compat.proto.summary_pb2", "tensorboard")

    def scalar(name: str, value: float) -> Any:
        return numbers.Summary(value=[numbers.Summary.Value(tag=name, simple_value=value)])

    settings = words.text_pb("settings", json.dumps(model.get_params(), indent=1))
    last = model.learned.rounds
    rows = [(0, settings)]
    rows += [(place, scalar(name, value)) for name, place, value in rounds_of(model)]
    figures = figures_of(result or model.summary())
    rows += [(last, scalar(f"final/{name}", value)) for name, value in figures.items()]
    writer = writing.EventFileWriter(str(folder))
    for step, summary in rows:
        writer.add_event(events.Event(step=step, summary=summary))
    writer.close()
