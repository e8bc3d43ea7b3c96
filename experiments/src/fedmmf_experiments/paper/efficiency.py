"""The efficiency experiment that the paper promises (section 4.3) and gives no number for.

Seconds and bytes of a party and of the server per round, for every aggregation scheme, among real
parties; and the share of secure users against threshold_j, which decides what adaptive sharing
saves.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from fedmmf.aggregation.homomorphic import simulated as homomorphic
from fedmmf.aggregation.simulated import Cost, CostInput
from fedmmf.data import Ratings
from fedmmf.settings import Settings
from fedmmf.simulation import Prepared, prepare
from fedmmf.simulation.real import real_federation
from fedmmf.transports.wrappers import Counted, Metered
from fedmmf_experiments.paper.drawing import Columns, markdown, new_figure, write_results

MASKS = ("mean", "lr", "fm", "nn")
SCHEMES = {
    "CKKS": ("ckks", 9),
    "Paillier 2048": ("paillier", 32),
    "Paillier 2048, packed": ("paillier-packed", 16),
}  # and how many ciphertexts to measure
COLUMNS: Columns = {
    "way": lambda way: way.way,
    "in the clear": lambda way: f"{100 * way.share_in_clear:.0f} %",
    "party CPU ms": lambda way: f"{1e3 * way.party_s:,.1f}",
    "server CPU s": lambda way: f"{way.server_s:,.2f}",
    "up kB": lambda way: f"{way.up_bytes / 1e3:,.0f}",
    "down kB": lambda way: f"{way.down_bytes / 1e3:,.0f}",
    "how": lambda way: way.how,
}


@dataclass(frozen=True, kw_only=True)
class WayCost(Cost):
    """Cost of a round with one aggregation scheme: all work of a party and of the server."""

    way: str
    share_in_clear: float  # of the parties


@dataclass(frozen=True)
class SecureShares:
    """Share of users with J <= threshold_j, by threshold, for each mask."""

    threshold_j: list[float]
    share: dict[str, list[float]]


@dataclass(frozen=True)
class Efficiency:
    """Results of the efficiency experiment."""

    data: str
    n_users: int
    n_items: int
    settings: dict[str, Any]
    ways: list[WayCost]
    secure_share: SecureShares


def run(
    ratings: Ratings,
    settings: Settings,
    thresholds: list[float],
    rounds: int,
    progress: Callable[[int, int], None],
) -> Efficiency:
    """Run every scheme, and find the share of secure users by mask; `progress` gets (done, of)."""
    asked = _ways(settings, thresholds)
    n_steps = len(asked) + len(SCHEMES) + 1
    ways: list[WayCost] = []
    for name, wanted in asked.items():
        progress(len(ways), n_steps)
        ways.append(measured(name, prepare(ratings, wanted), rounds))
    given = prepare(ratings, settings).cost_input
    for name in SCHEMES:
        progress(len(ways), n_steps)
        ways.append(extrapolated(name, given, ways[0]))
    progress(len(ways), n_steps)
    shares = secure_share(ratings, settings)
    sizes = (ratings.n_users, ratings.n_items)
    return Efficiency(ratings.name, *sizes, settings.model_dump(), ways, shares)


def _ways(settings: Settings, thresholds: list[float]) -> dict[str, Settings]:
    """Settings that are measured among real parties, by name."""
    adaptive = {
        f"adaptive, J <= {threshold:g}": settings.changed(sharing="adaptive", threshold_j=threshold)
        for threshold in thresholds
    }
    plain, strict = settings.changed(sharing="plain"), settings.changed(sharing="strict")
    return {"plain": plain, **adaptive, "secure": strict}


def measured(name: str, run: Prepared, rounds: int) -> WayCost:
    """Run rounds among real parties; setting up and the first round are not counted."""
    federation = real_federation(run)
    federation.prepare_sums()
    federation.one_round()
    before, began = _passed(federation.transport), process_time()
    for _ in range(rounds):
        federation.one_round()
    spent, after = process_time() - began, _passed(federation.transport)
    n, parties_s = len(federation.parties), after.inside_s - before.inside_s
    return WayCost(
        way=name,
        up_bytes=(after.up_bytes - before.up_bytes) / (rounds * n),
        down_bytes=(after.down_bytes - before.down_bytes) / (rounds * n),
        party_s=parties_s / (rounds * n),
        server_s=(spent - parties_s) / rounds,
        share_in_clear=sum(party.in_clear for party in federation.parties.values()) / n,
        how=f"mean of {rounds} rounds among {n:,} real parties",
    )


def _passed(transport: Metered) -> Counted:
    """Sum the counts of all stages so far."""
    return transport.of(*transport.by_stage)


def extrapolated(name: str, given: CostInput, plain: WayCost) -> WayCost:
    """Extrapolate homomorphic encryption: one party's ciphertexts on top of a plain round."""
    scheme, n_measured = SCHEMES[name]
    cost = homomorphic.cost(given, scheme, n_measured)
    seconds = {"party_s": plain.party_s + cost.party_s, "server_s": plain.server_s + cost.server_s}
    return WayCost(**asdict(cost) | seconds, way=name, share_in_clear=0.0)


def secure_share(ratings: Ratings, settings: Settings, n: int = 101) -> SecureShares:
    """Share of users with J <= threshold_j, for each mask."""
    runs = {mask: prepare(ratings, settings.changed(mask=mask)) for mask in MASKS}
    indicators = {mask: run.masks.j_train for mask, run in runs.items()}
    largest = max(float(np.nanmax(j)) for j in indicators.values())
    thresholds = np.linspace(0.0, largest, n)
    shares = {
        mask: [round(float(np.mean(j <= threshold)), 6) for threshold in thresholds]
        for mask, j in indicators.items()
    }
    return SecureShares(thresholds.round(6).tolist(), shares)


def write(report: Efficiency, out: Path) -> None:
    """The figures as JSON and Markdown, and drawn."""
    write_results(
        out, "efficiency", report, markdown(COLUMNS, report.ways), {"efficiency": draw(report)}
    )


def draw(report: Efficiency) -> Any:
    """Draw costs by aggregation scheme, on a logarithmic axis, and the share of secure users."""
    figure, (left, right) = new_figure(2)
    ways, places = report.ways, np.arange(len(report.ways))
    left.barh(places - 0.2, [1e3 * way.party_s for way in ways], 0.4, label="party CPU, ms")
    left.barh(places + 0.2, [way.up_bytes / 1e3 for way in ways], 0.4, label="bytes up, kB")
    left.set(xscale="log", yticks=places, yticklabels=[way.way for way in ways])
    left.set_title(f"One round, per party ({report.data}, {report.n_users:,} parties)")
    left.invert_yaxis()
    left.legend()
    for mask, values in report.secure_share.share.items():
        right.plot(report.secure_share.threshold_j, values, label=mask)
    right.set(xlabel="threshold_j", ylabel="share of users with J <= threshold_j", ylim=(0, 1))
    right.set_title("Secure users, in the paper's sense")
    right.legend(title="mask")
    return figure
