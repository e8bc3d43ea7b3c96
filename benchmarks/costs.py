"""Fit the cost model of secure sums to measured rounds, and show how well it fits.

usage: python benchmarks/costs.py [--write]
"""

import argparse
import json
from pathlib import Path

from fedmmf.aggregation import costs
from fedmmf.secagg import RING32, RING64

MODEL = Path(costs.__file__).with_name("costs.json")
SIZES = [
    costs.Size(n, k, length, ring)
    for n, k in ((40, 10), (40, 30), (120, 30), (120, 60))
    for length in (100, 10_000, 50_000)
    for ring in (RING32, RING64)
]
SIZES += [costs.Size(400, k, 30_000) for k in (20, 40)]
SIZES += [costs.Size(n, k, 10_000, signed=True) for n, k in ((40, 10), (120, 30), (120, 60))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="store the model")
    measured = [(size, costs.measure(size)) for size in SIZES]
    model = costs.fit(measured)
    if parser.parse_args().write:
        MODEL.write_text(json.dumps(model, indent=2) + "\n")
    print(
        "| parties | neighbours | length | ring | signed | party ms | model | server ms | model |"
    )
    print("|---" * 5 + "|")
    check = costs.Size(943, 30, 35_324)
    for size, cost in [*measured, (check, costs.measure(check))]:
        guess = costs.secure_cost(size)
        party = f"{1e3 * cost.party_s:.2f} | {1e3 * guess.party_s:.2f}"
        server = f"{1e3 * cost.server_s:.1f} | {1e3 * guess.server_s:.1f}"
        about = (size.n_parties, size.neighbours, size.length, size.ring.name, size.signed)
        print(f"| {', '.join(map(str, about))} | {party} | {server} |")


if __name__ == "__main__":
    main()
