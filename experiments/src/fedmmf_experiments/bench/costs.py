"""Fit the cost model of secure sums to measured rounds, and show how well it fits."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedmmf.aggregation.secure import simulated
from fedmmf.arrays import Array
from fedmmf.secagg import RING32, RING64, SessionSize
from fedmmf_experiments.bench.measuring import Progress, quiet
from fedmmf_experiments.bench.sessions import SessionCost, measure

Measured = Sequence[tuple[SessionSize, SessionCost]]
Features = Callable[[SessionSize], list[float]]

MODEL = Path(simulated.__file__).with_name("costs.json")
SIZES = (
    *(
        SessionSize(n, k, length, ring)
        for n, k in ((40, 10), (40, 30), (120, 30), (120, 60))
        for length in (100, 10_000, 50_000)
        for ring in (RING32, RING64)
    ),
    *(SessionSize(400, k, 30_000) for k in (20, 40)),
    *(SessionSize(n, k, 10_000, active=True) for n, k in ((40, 10), (120, 30), (120, 60))),
)
CHECK = SessionSize(943, 30, 35_324)  # about a strict round of ML-100K, which the fit does not see


@dataclass(frozen=True)
class CostRow:
    """CPU seconds of one size, measured and by the model."""

    n_parties: int
    neighbours: int
    length: int
    ring: str
    signed: bool
    party_s: float
    party_model_s: float
    server_s: float
    server_model_s: float


@dataclass(frozen=True)
class FittedCosts:
    """Coefficients, and how near they come."""

    model: dict[str, list[float]]
    rows: list[CostRow]


def measure_all(
    sizes: Sequence[SessionSize], check: SessionSize, progress: Progress = quiet
) -> FittedCosts:
    """Measure all sizes and one more, which the fit does not see; that is the last row."""
    measured = []
    for number, size in enumerate((*sizes, check), start=1):
        measured.append((size, measure(size)))
        progress("sizes", number, len(sizes) + 1)
    model = fit(measured[:-1])
    return FittedCosts(model, [_row(size, found, model) for size, found in measured])


def fit(measured: Measured) -> dict[str, list[float]]:
    """Coefficients of the model: least squares of the relative errors, none of them negative."""
    party_s = np.array([found.party_s for _, found in measured])
    server_s = np.array([found.server_s for _, found in measured])
    sizes = [size for size, _ in measured]
    return {
        "party_s": _coefficients(simulated.party_features, sizes, party_s),
        "server_s": _coefficients(simulated.server_features, sizes, server_s),
    }


def _coefficients(features: Features, sizes: Sequence[SessionSize], seconds: Array) -> list[float]:
    from scipy.optimize import nnls  # slow to load

    table = np.array([features(size) for size in sizes])  # (n, n_features)
    found = nnls(table / seconds[:, np.newaxis], np.ones(len(seconds)))[0]
    return [float(value) for value in found]


def store(model: dict[str, list[float]], path: Path) -> None:
    """Write a fitted model; at `MODEL`, it is the one that simulations use."""
    path.write_text(json.dumps(model, indent=2) + "\n")


def _row(size: SessionSize, found: SessionCost, model: dict[str, list[float]]) -> CostRow:
    return CostRow(
        n_parties=size.n,
        neighbours=size.degree,
        length=size.length,
        ring=size.ring.name,
        signed=size.active,
        party_s=found.party_s,
        party_model_s=float(np.dot(model["party_s"], simulated.party_features(size))),
        server_s=found.server_s,
        server_model_s=float(np.dot(model["server_s"], simulated.server_features(size))),
    )
