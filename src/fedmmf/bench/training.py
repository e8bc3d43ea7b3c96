"""Training beside peers: their time and error, and the time that we need to reach that error."""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmmf import evaluation, simulation, threads
from fedmmf.arrays import Array
from fedmmf.bench import peers
from fedmmf.config import Settings
from fedmmf.data import Ratings
from fedmmf.masks.crowd import Compiled
from fedmmf.sharing import who_shares_in_clear


@dataclass(frozen=True, eq=False)
class Curve:
    """Test error after each round, against seconds of work, masks included."""

    seconds: Array  # (rounds,)
    rmse: Array  # (rounds,)
    mask_seconds: float

    def seconds_to(self, rmse: float) -> float | None:
        """When the error was first at or below `rmse`."""
        reached = np.flatnonzero(self.rmse <= rmse)
        return float(self.seconds[reached[0]]) if len(reached) else None


def learning_curve(train: Ratings, test: Ratings, settings: Settings) -> Curve:
    """Train while watching the test error; the watching is not counted."""
    began = time.perf_counter()
    features = simulation.feature_matrix(train, settings)
    masks = simulation.fit_all_masks(train, features, settings)
    server = simulation.make_server(train, settings)
    in_clear = who_shares_in_clear(train, settings, masks)
    crowd = simulation.make_crowd(train, settings, masks, server.result.factors, in_clear)
    mask_seconds = spent = time.perf_counter() - began
    mask = masks.predict(test.by_user, test.item_codes, features, Compiled())
    seconds, errors = [], []
    for _ in range(settings.max_rounds):
        began = time.perf_counter()
        message = server.next_message()
        server.advance(message, crowd.sums(message))
        spent += time.perf_counter() - began
        q = server.result.item_factors
        scores = simulation.pair_scores(test.user_codes, test.item_codes, crowd.user_factors, q)
        seconds.append(spent)
        errors.append(evaluation.rmse(test.values, test.scale.clip(scores + mask)))
    return Curve(np.array(seconds), np.array(errors), mask_seconds)


def compare(
    train: Ratings,
    test: Ratings,
    settings: Settings,
    repeats: int,
    progress: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """Alternate between the peers and ourselves; medians over the repeats."""
    tools = peers.installed()
    fits: dict[str, list[dict[str, Any]]] = {peer.name: [] for peer in tools}
    curves = []
    learning_curve(train, test, settings)  # compiles, or loads what was compiled
    for number in range(repeats):
        curves.append(learning_curve(train, test, settings))
        for peer in tools:
            fits[peer.name].append(peers.measure(peer, train, test))
        progress(number + 1)
    ours = {
        "rmse": _median(curve.rmse[-1] for curve in curves),
        "seconds": _median(curve.seconds[-1] for curve in curves),
        "mask_seconds": _median(curve.mask_seconds for curve in curves),
        "round_seconds": _median(np.diff(curve.seconds).mean() for curve in curves),
        "settings": settings.model_dump(),
    }
    rows = [_peer_row(peer, fits[peer.name], curves) for peer in tools]
    return {"ours": ours, "peers": rows, "memory": bandwidth(train, settings, ours)}


def _peer_row(peer: peers.Peer, fits: list[dict[str, Any]], curves: list[Curve]) -> dict[str, Any]:
    rmse = _median(fit["rmse"] for fit in fits)
    seconds = _median(fit["seconds"] for fit in fits)
    reached = [curve.seconds_to(rmse) for curve in curves]
    ours = None if None in reached else _median(value for value in reached if value is not None)
    return {
        "peer": peer.name,
        "configuration": peer.configuration,
        "rmse": rmse,
        "fit_seconds": seconds,
        "our_seconds_to_that_rmse": ours,
        "times_faster": None if ours is None else seconds / ours,
    }


def _median(values: Any) -> float:
    return float(statistics.median(float(value) for value in values))


def bandwidth(train: Ratings, settings: Settings, ours: dict[str, Any]) -> dict[str, float]:
    """What a round reads from memory at least, against what the machine can read."""
    k = settings.factors + (settings.solver == "vb")
    width = k + k * (k + 1) // 2 if settings.solver == "vb" else k
    passes = 2 if settings.solver == "vb" else 3  # sgd walks over a user's items twice
    bytes_read = passes * len(train) * 4.0 * width
    speed = read_speed()
    return {
        "machine_gb_per_s": speed / 1e9,
        "round_gb": bytes_read / 1e9,
        "round_gb_per_s": bytes_read / ours["round_seconds"] / 1e9,
        "share_of_bandwidth": bytes_read / ours["round_seconds"] / speed,
    }


def read_speed(megabytes: int = 256) -> float:
    """Bytes per second that all threads together read from memory; the best of five."""
    blocks = [
        np.ones(megabytes * 2**20 // 8 // threads.n_threads()) for _ in range(threads.n_threads())
    ]
    parts = [(number, number + 1) for number in range(len(blocks))]
    best = 0.0
    for _ in range(5):
        began = time.perf_counter()
        threads.run(lambda begin, end: blocks[begin].sum(), parts)
        best = max(best, sum(block.nbytes for block in blocks) / (time.perf_counter() - began))
    return best


def cold_seconds(data: str, test: float, settings: Settings) -> float:
    """Seconds of masks and rounds in a fresh process with nothing compiled."""
    code = (
        "import json, sys; from fedmmf import FedMMF, load;"
        "data, test, settings = json.loads(sys.argv[1]);"
        "train, _ = load(data).split(test, seed=0);"
        "model = FedMMF(**settings).fit(train);"
        "print(sum(model.learned.seconds.values()))"
    )
    arguments = f'["{data}", {test}, {settings.model_dump_json()}]'
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(  # noqa: S603 - our own interpreter and text
            [sys.executable, "-c", code, arguments],
            env={**os.environ, "NUMBA_CACHE_DIR": folder},
            check=True,
            capture_output=True,
            text=True,
        )
    return float(done.stdout)


def peak_gigabytes() -> float:
    """Most memory that this process has used."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
