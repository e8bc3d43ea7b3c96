"""Servers and sites as processes of their own, for tests that kill them."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from fedmmf import __version__
from fedmmf.data import Ratings
from fedmmf.data.scales import RatingScale
from fedmmf.errors import FedMMFError
from fedmmf.federation.catalogue import ItemList
from fedmmf.federation.charter import Charter, Deadlines, Network
from fedmmf.federation.folder import Folder
from fedmmf.federation.hello import PROTOCOL, Hello
from fedmmf.federation.operator import Operator
from fedmmf.federation.provision import provision
from fedmmf.federation.site.items import of_ratings
from fedmmf.federation.store import RunStore
from fedmmf.identity import Identity
from fedmmf.wire import Round, split_parcel

SITES = ("a", "b", "c", "d")
# A site that is late misses a round, and the model is another one: for tests that compare models.
EVERYBODY_IN_TIME = {"answer": 120.0, "heartbeat": 3.0}
PATIENCE = 600.0  # seconds; machines that run tests are slow, and sites compile before they come


def free_port():
    """A port that nobody has, and that nobody is given before a server of this test takes it.

    The kernel gives ports of its range to whoever connects anywhere: these are below it. Each
    worker of pytest-xdist has ports of its own, and begins elsewhere than another run does.
    """
    for port in PORTS:
        with suppress(OSError), closing(socket.socket()) as probe:
            probe.bind(("0.0.0.0", port))  # noqa: S104 - and is closed at once
            return port
    raise AssertionError("there is no free port")


def _ports():
    """Ports that this process may take, each of them once in a long while."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % N_SHARES
    size = (LAST_PORT - FIRST_PORT) // N_SHARES
    first, start = FIRST_PORT + worker * size, os.getpid() % size
    return (first + (start + more) % size for more in range(10 * size))


FIRST_PORT, LAST_PORT, N_SHARES = 10_000, 32_000, 11  # Linux gives those from 32768 on
PORTS = _ports()


def split_by_user(ratings, folder, sites=SITES):
    """A file of ratings for each site; users in their order."""
    frame = pl.DataFrame(
        {
            "user_id": ratings.user_ids[ratings.user_codes],
            "item_id": ratings.item_ids[ratings.item_codes],
            "rating": ratings.values,
        }
    )
    files = {}
    for number, site in enumerate(sites):
        cuts = [ratings.n_users * (number + more) // len(sites) for more in (0, 1)]
        users = ratings.user_ids[cuts[0] : cuts[1]].tolist()
        files[site] = folder / f"{site}.parquet"
        frame.filter(pl.col("user_id").is_in(users)).write_parquet(files[site])
    return files


def hello_of(folder, site="a", **changes):
    """What a site says that takes the same for agreed as the server, but for the changes."""
    identity = Identity.read(folder.machine(site).identity_file)
    said = {
        "protocol": PROTOCOL,
        "version": __version__,
        "charter": folder.charter().digest.hex(),
        "catalogue": ItemList.load(folder.catalogue_file).catalogue.digest.hex(),
        "identity": identity.public.hex(),
        "instance": "01",
        "parties": 1,
        "users": 6,
    }
    return Hello(**{**said, **changes}).encode()


def make_federation(root, ratings, settings, sites=SITES, **more):
    """A federation's folder for these ratings; ports that are free now."""
    network = more.pop("network", None) or Network(port=free_port(), page_port=free_port())
    scale = ratings.scale
    if more.get("party") == "user":
        more.setdefault("max_parties_per_site", -(-ratings.n_users // len(sites)))
    deadlines = {"answer": 20.0, "heartbeat": 0.3, "gathering": 30.0, "retries": 10}
    charter = Charter.checked(
        name="test",
        sites=sites,
        scale=(scale.min, scale.max, scale.step),
        network=network,
        deadlines=Deadlines(**{**deadlines, **more.pop("deadlines", {})}),
        training=settings,
        **{"reproducible": True, **more},
    )
    folder = Folder(root)
    provision(folder, charter, of_ratings(ratings))
    return folder


@dataclass
class Machines:
    """Processes of one federation; each may be in a network namespace of its own."""

    folder: Folder
    ratings: dict
    test: float = 0.0
    namespaces: dict = field(default_factory=dict)
    running: dict = field(default_factory=dict)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in list(self.running):
            self.kill(name)

    def command(self, name, *words):
        inside = self.namespaces.get(name)
        before = ["ip", "netns", "exec", inside] if inside else []
        return [*before, sys.executable, "-m", "fedmmf", "federation", *words]

    def log_of(self, name):
        return self.folder.root / f"{name}.out"

    def start(self, *names):
        for name in names:
            words = ["server", str(self.folder.root)]
            if name != "server":
                words = ["site", str(self.folder.root), "--site", name]
                words += ["--ratings", str(self.ratings[name]), "--test", str(self.test)]
            with self.log_of(name).open("ab") as log:
                self.running[name] = subprocess.Popen(
                    self.command(name, *words), stdout=log, stderr=log, start_new_session=True
                )

    def kill(self, name, how=signal.SIGKILL):
        process = self.running.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        process.wait(PATIENCE)

    def say(self, *words, check=True):
        """What a command prints, on the server's machine."""
        done = subprocess.run(
            self.command("server", words[0], str(self.folder.root), *words[1:]),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def saying(self, *words):
        """A command on the server's machine that is not waited for."""
        command = self.command("server", words[0], str(self.folder.root), *words[1:])
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def status(self):
        return json.loads(self.say("status", "--json").stdout)

    def file_status(self):
        """The last picture on disk, which costs no process."""
        path = self.folder.root / "server" / "state" / "status.json"
        return json.loads(path.read_text()) if path.exists() else {"state": "none", "sites": []}

    def wait_for(self, is_so, what, patience=PATIENCE):
        until = time.monotonic() + patience
        while time.monotonic() < until:
            found = self.file_status()
            if is_so(found):
                return found
            time.sleep(0.05)
        logs = "\n".join(
            f"== {p.name}\n{p.read_text()[-2000:]}" for p in self.folder.root.glob("*.out")
        )
        raise AssertionError(f"after {patience} s not {what}: {found}\n{logs}")

    def wait_until_page(self, is_so, patience=PATIENCE):
        """Wait for what the server's page shows, for where it cannot write its status."""
        until, found = time.monotonic() + patience, None
        operator = Operator(self.folder)
        while time.monotonic() < until:
            with suppress(FedMMFError):
                found = operator.status()
                if is_so(found):
                    return found
            time.sleep(0.1)
        raise AssertionError(f"after {patience} s: {found}")

    def wait_for_sites(self, *names):
        def are_here(found):
            here = {site["name"] for site in found["sites"] if site["state"] == "here"}
            return set(names) <= here

        return self.wait_for(are_here, f"{names} here")

    def begin(self):
        """Tell the server to train, without a process for it."""
        return Operator(self.folder).order("run")

    def wait_for_end(self, patience=PATIENCE):
        found = self.wait_for(lambda s: s["state"] in ("finished", "failed"), "over", patience)
        assert found["state"] == "finished", found["detail"]
        return found

    def journal(self):
        path = self.folder.root / "server" / "state" / "rounds.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def store(self):
        """What the server keeps on disk."""
        return RunStore(self.folder.root / "server" / "state", {})

    def model(self):
        """Item factors of the finished model."""
        data = (self.folder.root / "server" / "state" / "model.bin").read_bytes()
        return Round.decode(split_parcel(data, 3)[1]).broadcast

    def factors(self, site):
        with np.load(self.folder.root / "sites" / site / "state" / "result.npz") as found:
            return found["user_factors"]


def wait_for_models(machines):
    paths = [machines.folder.root / "sites" / s / "state" / "result.npz" for s in SITES]
    machines.wait_for(lambda _: all(path.exists() for path in paths), "models at all sites")


def odd_ratings():
    """Ratings and users that nothing else in a process looks like."""
    draw = np.random.default_rng(11)
    pairs = [(user, item) for user in range(32) for item in range(20) if draw.random() < 0.8]
    frame = pl.DataFrame(
        {
            "user_id": [f"qzperson-{7919 * (user + 131)}" for user, _ in pairs],
            "item_id": [f"thing-{item}" for _, item in pairs],
            "rating": draw.uniform(0, 100, len(pairs)).round(4),
        }
    )
    return Ratings.from_frame(frame, scale=RatingScale(0.0, 100.0, 0.0001))


def rating_bytes(ratings):
    """Two ratings in a row, some of every site, as arrays of either precision hold them."""
    values = [np.asarray(ratings.values, kind) for kind in (np.float32, np.float64)]
    places = np.linspace(0, len(ratings.values) - 2, 12).astype(int)
    return [array[at : at + 2].tobytes() for array in values for at in places]
