"""The efficiency experiment that the paper promises (section 4.3) and gives no number for.

Seconds and bytes of a party and of the server per round, for every way to sum, among real parties;
and the share of secure users against threshold_j, which decides what adaptive sharing saves.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from fedmmf import federation, simulation
from fedmmf.aggregation import homomorphic_cost
from fedmmf.aggregation.schemes import generate
from fedmmf.arrays import Array
from fedmmf.config import Settings
from fedmmf.data import Ratings
from fedmmf.paper.drawing import new_figure, write_results
from fedmmf.traffic import Shape
from fedmmf.transport import Answers, InProcess

MASKS = ("mean", "lr", "fm", "nn")
SCHEMES = {
    "CKKS": ("ckks", 9),
    "Paillier 2048": ("paillier", 32),
    "Paillier 2048, packed": ("paillier-packed", 16),
}  # and how many ciphertexts to measure


@dataclass(frozen=True)
class Way:
    """What one way to sum costs per round. Seconds are CPU seconds of one core."""

    way: str
    party_s: float
    server_s: float
    up_bytes: float
    down_bytes: float
    share_in_clear: float
    how: str


class Metered(InProcess):
    """Counts the CPU seconds that parties spend on their answers."""

    def __init__(self, parties: Mapping[str, Answers]) -> None:
        super().__init__(parties)
        self.parties_s = 0.0

    def exchange(
        self, stage: str, messages: Mapping[str, bytes], timeout: float
    ) -> dict[str, bytes]:
        """Hand each party its message."""
        began = process_time()
        replies = super().exchange(stage, messages, timeout)
        self.parties_s += process_time() - began
        return replies


def measured(name: str, ratings: Ratings, settings: Settings, rounds: int) -> Way:
    """Run rounds among real parties; setting up and the first round are not counted."""
    parties = federation.make_parties(ratings, settings)
    transport = Metered(parties)
    participants = federation.make_participants(parties, transport, settings, ratings.scale.span)
    server = simulation.make_server(ratings, settings)
    before, began = (0.0, 0, 0), 0.0
    for number in range(rounds + 1):
        if number == 1:
            before = (transport.parties_s, transport.bytes_up, transport.bytes_down)
            began = process_time()
        message = server.next_message()
        server.advance(message, participants.sums(message))
    spent = process_time() - began
    after = (transport.parties_s, transport.bytes_up, transport.bytes_down)
    parties_s, up, down = np.subtract(after, before) / rounds
    n, in_clear = len(parties), sum(party.in_clear for party in parties.values())
    how = f"mean of {rounds} rounds among {n:,} real parties"
    server_s = spent / rounds - parties_s
    return Way(name, parties_s / n, server_s, up / n, down / n, in_clear / n, how)


def extrapolated(name: str, plain: Way, shape: Shape) -> Way:
    """A homomorphic way: ciphertexts of one party measured, the rest by counting."""
    scheme, n_measured = SCHEMES[name]
    cost = homomorphic_cost.cost(
        generate(scheme),
        shape.n_users,
        shape.layout,
        shape.settings.solver,
        shape.span,
        n_measured=n_measured,
    )
    how = f"extrapolated from {n_measured} of {cost['ciphertexts']:,} ciphertexts"
    party_s = plain.party_s + cost["party_cpu_s"]
    seconds = (party_s, cost["server_cpu_s"] + cost["keeper_cpu_s"])
    return Way(name, *seconds, cost["up_bytes"], plain.down_bytes, 0.0, how)


def run(
    ratings: Ratings,
    settings: Settings,
    thresholds: list[float],
    rounds: int,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """Every way to sum, and the share of secure users by mask; `progress` is told (done, of)."""
    plans: dict[str, dict[str, Any]] = {"plain": {"sharing": "plain"}}
    plans |= {
        f"adaptive, J <= {threshold:g}": {"sharing": "adaptive", "threshold_j": threshold}
        for threshold in thresholds
    }
    plans["secure"] = {"sharing": "strict"}
    ways: list[Way] = []
    n_steps = len(plans) + len(SCHEMES) + 1
    for name, changes in plans.items():
        progress(len(ways), n_steps)
        ways.append(measured(name, ratings, settings.changed(**changes), rounds))
    public = simulation.make_server(ratings, settings).result
    per_user = len(ratings) / ratings.n_users
    shape = Shape(settings, public, ratings.n_users, per_user, ratings.scale.span)
    for name in SCHEMES:
        progress(len(ways), n_steps)
        ways.append(extrapolated(name, ways[0], shape))
    progress(len(ways), n_steps)
    return {
        "data": ratings.name,
        "n_users": ratings.n_users,
        "n_items": ratings.n_items,
        "settings": settings.model_dump(),
        "ways": [asdict(way) for way in ways],
        "secure_share": secure_share(ratings, settings),
    }


def secure_share(ratings: Ratings, settings: Settings, n: int = 101) -> dict[str, Any]:
    """Share of users with J <= threshold_j, for each mask."""
    indicators = {mask: _indicators(ratings, settings.changed(mask=mask)) for mask in MASKS}
    largest = max(float(np.nanmax(j)) for j in indicators.values())
    thresholds = np.linspace(0.0, largest, n)
    shares = {
        mask: [round(float(np.mean(j <= threshold)), 6) for threshold in thresholds]
        for mask, j in indicators.items()
    }
    return {"threshold_j": thresholds.round(6).tolist(), "share": shares}


def _indicators(ratings: Ratings, settings: Settings) -> Array:
    features = simulation.feature_matrix(ratings, settings)
    return simulation.fit_all_masks(ratings, features, settings).j_train


def write(report: dict[str, Any], out: Path) -> None:
    """The figures as JSON and Markdown, and drawn."""
    write_results(out, "efficiency", report, to_markdown(report), {"efficiency": draw(report)})


def to_markdown(report: dict[str, Any]) -> str:
    """The table."""
    lines = [
        "| way | in the clear | party CPU ms | server CPU s | up kB | down kB | how |",
        "|---|---|---|---|---|---|---|",
    ]
    for way in report["ways"]:
        seconds = f"{1e3 * way['party_s']:,.1f} | {way['server_s']:,.2f}"
        sizes = f"{way['up_bytes'] / 1e3:,.0f} | {way['down_bytes'] / 1e3:,.0f}"
        clear = f"{100 * way['share_in_clear']:.0f} %"
        lines.append(f"| {way['way']} | {clear} | {seconds} | {sizes} | {way['how']} |")
    return "\n".join(lines) + "\n"


def draw(report: dict[str, Any]) -> Any:
    """Costs by way, on a logarithmic axis, beside the share of secure users."""
    figure, (left, right) = new_figure(2)
    ways = report["ways"]
    places = np.arange(len(ways))
    left.barh(places - 0.2, [1e3 * way["party_s"] for way in ways], 0.4, label="party CPU, ms")
    left.barh(places + 0.2, [way["up_bytes"] / 1e3 for way in ways], 0.4, label="bytes up, kB")
    left.set(xscale="log", yticks=places, yticklabels=[way["way"] for way in ways])
    left.set_title(f"One round, per party ({report['data']}, {report['n_users']:,} parties)")
    left.invert_yaxis()
    left.legend()
    shares = report["secure_share"]
    for mask, values in shares["share"].items():
        right.plot(shares["threshold_j"], values, label=mask)
    right.set(xlabel="threshold_j", ylabel="share of users with J <= threshold_j", ylim=(0, 1))
    right.set_title("Secure users, in the paper's sense")
    right.legend(title="mask")
    return figure
