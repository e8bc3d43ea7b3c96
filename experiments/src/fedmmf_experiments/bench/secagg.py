"""Secure aggregation beside Flower's SecAgg+: CPU of server and client, in one run."""

import os
import statistics
from collections.abc import Callable
from importlib import metadata
from typing import Any

from fedmmf.errors import SettingsError
from fedmmf.secagg import RING32, BelowThresholdError, least_threshold, parameters
from fedmmf_experiments.bench import secagg_round

FLOWER_VERSION = "1.41.0"  # `bench.flower` drives internals that other versions may have moved
FLOWER_CLIENTS = 200  # more than these take Flower many minutes
CORRUPT = 0.05  # share of the parties that the graph is made for where none is given
_LARGE = 1_000_000, 100  # entries and neighbours of the reference case of masking
_REPEATS = 3

Progress = Callable[[str, int, int], None]


def has_flower() -> bool:
    """Whether the version of flwr that can be driven is installed."""
    try:
        return metadata.version("flwr") == FLOWER_VERSION
    except metadata.PackageNotFoundError:
        return False


def compare(
    clients: int,
    length: int,
    neighbours: int | None,
    drop: float,
    *,
    flower: bool,
    progress: Progress = lambda stage, done, total: None,
) -> dict[str, Any]:
    """Measure a round of ours and, if asked, one of Flower's of the same size.

    Args:
        clients: in the round.
        length: entries of a vector.
        neighbours: of each client; None: as few as keep the round safe at this drop-out.
        drop: share of the clients that drop out after sharing their keys.
        flower: whether to run Flower.
        progress: called with the stage, the steps done and all steps.
    """
    progress("our round", 0, 1)
    report = _ours(clients, length, neighbours, drop)
    progress("our round", 1, 1)
    if not flower:
        return {**report, "flower": None, "times_below_flower": None}
    theirs = _flower(report, progress)
    return {**report, "flower": theirs, "times_below_flower": ratios(report, theirs)}


def aes_limit_ratio(length: int, n_masks: int) -> float:
    """Return the time of masking over the time of the same AES-CTR keystream; a median."""
    return statistics.median(
        secagg_round.masking_seconds(length, n_masks)
        / secagg_round.keystream_seconds(n_masks * length * RING32.width)
        for _ in range(_REPEATS)
    )


def _ours(clients: int, length: int, neighbours: int | None, drop: float) -> dict[str, Any]:
    if not 0 <= drop < 1:
        raise SettingsError(f"drop must be in [0, 1); got {drop:g}. Give a share such as 0.05.")
    threshold = None
    if neighbours is None:
        neighbours, threshold = parameters(clients, CORRUPT, drop)
    try:
        found = secagg_round.measure(clients, length, neighbours, drop, RING32, threshold)
    except BelowThresholdError as error:
        raise SettingsError(f"{error} Here: a smaller drop or more neighbours.") from error
    share_s, combine_s = _median_pair(secagg_round.shamir_seconds, clients)
    return {
        **found,
        "up_bytes_per_party": sum(found["up_bytes"].values()),
        "down_bytes_per_party": sum(found["down_bytes"].values()),
        "aes_limit_ratio": aes_limit_ratio(length, neighbours),
        "aes_limit_ratio_1e6_x_100": aes_limit_ratio(*_LARGE),
        "shamir_threshold": least_threshold(clients),
        "shamir_share_s": share_s,
        "shamir_combine_s": combine_s,
    }


def _flower(ours: dict[str, Any], progress: Progress) -> dict[str, Any]:
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"  # read when flwr is imported
    from fedmmf_experiments.bench import flower

    n = ours["clients"]
    gone = secagg_round.dropouts(n, ours["dropped"])
    total = 4 * n - 2 * len(gone)  # answers in four stages
    found = flower.measure(
        n, ours["length"], ours["neighbours"], gone, lambda done: progress("Flower", done, total)
    )
    share_s, combine_s = _median_pair(flower.shamir_seconds, n)
    return {**found, "shamir_share_s": share_s, "shamir_combine_s": combine_s}


def ratios(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, float | None]:
    """Flower's seconds over ours; None for a round that Flower gave up."""
    finished = theirs["max_error"] is not None
    of_round = {"server": "server_cpu_s", "client": "client_cpu_s"}
    of_shamir = {"shamir_share": "shamir_share_s", "shamir_combine": "shamir_combine_s"}
    return {
        name: theirs[key] / ours[key] if finished or name in of_shamir else None
        for name, key in (of_round | of_shamir).items()
    }


def _median_pair(seconds: Callable[[int, int], tuple[float, float]], n: int) -> tuple[float, float]:
    """Medians of sharing and combining among n, with the fewest holders that are safe."""
    pairs = [seconds(n, least_threshold(n)) for _ in range(_REPEATS)]
    share_s, combine_s = (statistics.median(times) for times in zip(*pairs, strict=True))
    return share_s, combine_s
