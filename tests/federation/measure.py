"""What rounds cost across hosts: `python tests/federation/measure.py ml-100k --party site`.

A server and sites in network namespaces of their own (loopback where none can be made), mutual TLS,
users in equal parts. Beside it, in the same run, the same parties in one process. Prints a row of
the table in docs/federation.md. A federation across machines has no user profiles, so the
simulation that it is compared with leaves them out too.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from machines import Machines, free_port, make_federation, split_by_user
from namespaces import can_make_them, hosts

from fedmmf import load
from fedmmf.engines import ENGINES
from fedmmf.engines.reference import NUMPY
from fedmmf.federation.charter import Network
from fedmmf.federation.local import Holdings, LocalFederation, make_silos
from fedmmf.settings import Settings
from fedmmf.simulation import prepare, train


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def in_process(ratings, settings, cuts, party):
    """Seconds of each round among the same parties in one process."""
    run = prepare(ratings, settings)
    engine = ENGINES["numba"] if party == "site" else NUMPY
    holdings = Holdings(ratings, settings, run.is_held_out, run.features.statistics)
    federation = LocalFederation.among(run.plan, make_silos(holdings, cuts, engine))
    federation.prepare_sums()
    seconds = []
    for _ in range(settings.max_rounds):
        began = time.perf_counter()
        federation.one_round()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])


def resident(pid):
    """Megabytes of memory that a process has had at most."""
    text = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def across_hosts(ratings, settings, sites, party):
    """Seconds of rounds, bytes of a site, memory, and the distance to the simulation."""
    spaces = hosts("server", *sites) if not can_make_them() else nullcontext()
    with tempfile.TemporaryDirectory() as place, spaces as links:
        host = "127.0.0.1" if links is None else links.addresses["server"]
        network = Network(host=host, port=free_port(), page_port=free_port())
        root = Path(place)
        patient = {"answer": 600.0, "heartbeat": 2.0}
        more = {"network": network, "party": party, "deadlines": patient}
        folder = make_federation(root / "fed", ratings, settings, sites, **more)
        names = {} if links is None else links.names
        files = split_by_user(ratings, root, sites)
        with Machines(folder, files, namespaces=names) as machines:
            machines.start("server", *sites)
            machines.wait_for_sites(*sites)
            before = {site["name"]: site for site in machines.file_status()["sites"]}
            machines.say("run", "--no-wait")
            status = machines.wait_for_end(3600)
            memory = {name: resident(process.pid) for name, process in machines.running.items()}
        expected = train(ratings, settings).members[0].broadcast
        distance = float(np.abs(machines.model().item_rows - expected.item_rows).max())
        seconds = [line["seconds"] for line in machines.journal()]
        return {
            "seconds": statistics.median(seconds[1:]),
            "up": statistics.mean(
                s["up_bytes"] - before[s["name"]]["up_bytes"] for s in status["sites"]
            ),
            "down": statistics.mean(s["down_bytes"] for s in status["sites"]),
            "server": memory["server"],
            "site": statistics.mean(memory[site] for site in sites),
            "distance": distance,
        }


def main():
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("data")
    reading.add_argument("--party", choices=("site", "user"), default="site")
    reading.add_argument("--sites", type=int, default=4)
    reading.add_argument("--rounds", type=int, default=30)
    reading.add_argument("--factors", type=int, default=20)
    chosen = reading.parse_args()
    ratings, sites = load(chosen.data), tuple(f"site-{n}" for n in range(chosen.sites))
    settings = Settings.checked(
        solver="vb",
        factors=chosen.factors,
        rounds=chosen.rounds,
        signed=chosen.party == "site",
        profile_prior=False,
    )
    n = ratings.n_users
    by_site = np.array([n * place // len(sites) for place in range(len(sites) + 1)])
    cuts = by_site if chosen.party == "site" else np.arange(n + 1)
    found = across_hosts(ratings, settings, sites, chosen.party)
    found["in_process"] = in_process(ratings, settings, cuts, chosen.party)
    rounds = settings.max_rounds
    say(f"{chosen.data}, {n} users at {len(sites)} sites, party: {chosen.party}, {rounds} rounds")
    say(TITLES)
    say("|".join(("", *("---" for _ in TITLES.split("|")[1:-1]), "")))
    say(row(chosen, found, rounds))
    say(json.dumps(found))


TITLES = (
    "| party | sites | a round | in one process | up, per site and round | down | memory: server, "
    "site | difference to the simulation |"
)


def row(chosen, found, rounds):
    """The row of the table in docs/federation.md."""
    up, down = (f"{found[way] / rounds / 1e6:.2f} MB" for way in ("up", "down"))
    seconds = (f"{found[way]:.2f} s" for way in ("seconds", "in_process"))
    memory = f"{found['server']:.0f}, {found['site']:.0f} MB"
    cells = (chosen.party, chosen.sites, *seconds, up, down, memory, f"{found['distance']:.1e}")
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
