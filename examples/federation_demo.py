"""A federation of a server and four sites on this machine: `make federation-demo`.

Every machine is a process of its own; they speak over mutual TLS on loopback. Halfway one site is
killed, and training goes on with three, the smallest cohort. In the end a site recommends, and
everything is cleaned up.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl

from fedmmf import load
from fedmmf.errors import FedMMFError
from fedmmf.federation.folder import Folder
from fedmmf.federation.operator import Operator
from fedmmf.federation.site.warming import compile_kernels
from fedmmf.federation.status import FederationStatus

SITES = ("north", "east", "south", "west")
PORTS = ("--port", "18102", "--page-port", "18103")
PATIENCE = 150.0  # seconds


def fedmmf(*words: str) -> list[str]:
    """A command of fedmmf with this Python."""
    return [sys.executable, "-m", "fedmmf", "federation", *words]


def said(*words: str) -> str:
    """What a command prints."""
    done = subprocess.run(fedmmf(*words), capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        sys.exit(f"federation {' '.join(words)}: {done.stderr}")
    return done.stdout


def tell(text: str) -> None:
    """Show it at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def write_ratings(folder: Path) -> None:
    """The embedded data set, a quarter of its users for each site."""
    ratings = load("synthetic")
    frame = pl.DataFrame(
        {
            "user_id": ratings.user_ids[ratings.user_codes],
            "item_id": ratings.item_ids[ratings.item_codes],
            "rating": ratings.values,
        }
    )
    for number, site in enumerate(SITES):
        frame.filter(pl.col("user_id") % len(SITES) == number).write_csv(folder / f"{site}.csv")


def wait_until(fed: str, is_so: Callable[[FederationStatus], bool]) -> FederationStatus:
    """Look at the status until it is as it should be, without a process for every look."""
    operator, found, until = Operator(Folder(Path(fed))), None, time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            found = operator.status()
        except FedMMFError:  # until the server has started there is none
            found = None
        if found is not None and found.state == "failed":
            sys.exit(f"training failed: {found.detail}")
        if found is not None and is_so(found):
            return found
        time.sleep(0.2)
    sys.exit(f"nothing happened for {PATIENCE:.0f} s: {found.detail if found else 'no server'}")


def n_here(found: FederationStatus) -> int:
    """Sites that take part now."""
    return sum(site.state == "here" for site in found.sites)


def wait_for_models(fed: str) -> None:
    """Sites fetch the model with their next sign of life."""
    alive = (Path(fed) / "sites" / site / "state" / "result.npz" for site in SITES[:-1])
    for path in alive:
        while not path.exists():
            time.sleep(0.2)


def main() -> None:
    """Show all of it."""
    processes: dict[str, subprocess.Popen] = {}
    with tempfile.TemporaryDirectory() as place:
        folder, fed = Path(place), str(Path(place) / "demo")
        try:
            run(folder, fed, processes)
        finally:
            for process in processes.values():
                process.terminate()
            for process in processes.values():
                process.wait(30)
    tell("All processes have ended, and their files are gone.")


def run(folder: Path, fed: str, processes: dict[str, subprocess.Popen]) -> None:
    """The federation's life."""
    write_ratings(folder)
    tell("1. Settings, catalogue, certificates and identities:")
    names = ",".join(SITES)
    more = ("--items", "synthetic", "--name", "demo", "--rounds", "60", *PORTS)
    tell(said("init", fed, "--sites", names, *more))
    compile_kernels(Folder(Path(fed)).charter().training)  # once, and not in four sites at a time
    for name in ("server", *SITES):
        words = ["server", fed]
        if name != "server":
            words = ["site", fed, "--site", name, "--ratings", str(folder / f"{name}.csv")]
        with (folder / f"{name}.out").open("wb") as log:
            processes[name] = subprocess.Popen(fedmmf(*words), stdout=log, stderr=log)  # noqa: S603
    tell(f"2. A server and {len(SITES)} sites are starting; the page: http://127.0.0.1:{PORTS[3]}/")
    wait_until(fed, lambda found: n_here(found) == len(SITES))
    tell("3. All sites are here. Training begins.")
    said("run", fed, "--no-wait")
    found = wait_until(fed, lambda found: found.round >= 5)
    processes.pop("west").kill()
    tell(f"4. After round {found.round} of {found.rounds} the site west was killed.")
    found = wait_until(fed, lambda found: found.state == "finished")
    three = sum(site.rounds for site in found.sites if site.name == "west")
    tell(f"5. Training has finished; west is in {three} of {found.round} sums.")
    tell(said("status", fed))
    wait_for_models(fed)
    tell(said("evaluate", fed))
    tell("6. On the site north, from its own files:")
    tell(said("recommend", fed, "--site", "north", "--user", "4", "-n", "5"))


if __name__ == "__main__":
    main()
