"""Training while machines are killed and links are cut: `python tests/federation/faults.py 10`.

A server and four sites, each in a network namespace of its own where that can be made, mutual TLS
between them. While they train, a seeded draw kills sites and the server (kill -9), stops processes
for a while, cuts links and heals them, and lets packets be late, doubled and out of order. In the
end there must be as many finished rounds as were asked for, none counted twice, and the model must
be the one that the recorded participants make.
"""

import signal
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from random import Random

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))  # where it is run as a program

from inside import Kept, replayed
from machines import SITES, Machines, free_port, make_federation, split_by_user
from namespaces import can_make_them, hosts

from fedmmf.data.synthetic import synthetic
from fedmmf.federation.charter import Network
from fedmmf.settings import Settings

RATINGS = synthetic(80, 60, 2400, min_per_user=8, seed=3)
# Looks are counted in attempts that no journal has; `test_kills.py` replays those.
SETTINGS = Settings.checked(
    solver="vb", factors=4, rounds=80, signed=True, mask="mean", implicit_prior="users"
)
DEADLINES = {"answer": 8.0, "heartbeat": 0.3, "gathering": 3.0, "patience": 120.0, "retries": 50}
MAX_SECONDS = 1800.0
# Seconds without a round after which something else happens. A machine that is killed before it has
# started never trains, and on two busy cores a start takes long.
_IMPATIENCE = 30.0


class Chaos:
    """Draws what happens next, and undoes it after a while."""

    def __init__(self, machines, links, draw):
        self._machines, self._links, self._draw = machines, links, draw
        self._pending = []  # (when, what to do)
        self._done, self._acted = 0, time.monotonic()
        self.happened = []

    def step(self):
        """Undo what is due; do something where training went on since the last time."""
        now, done = time.monotonic(), self._machines.file_status().get("round", 0)
        for due in [entry for entry in self._pending if entry[0] <= now]:
            self._pending.remove(due)
            due[1]()
        if len(self._pending) < 2 and (done > self._done or now - self._acted > _IMPATIENCE):
            self._done, self._acted = done, now
            self._draw.choice(self._kinds())()
        time.sleep(self._draw.uniform(0.05, 0.5))

    def end(self):
        for _, undo in self._pending:
            undo()
        self._pending = []

    def _kinds(self):
        kinds = [self._kill_site, self._kill_site, self._kill_server, self._pause]
        kinds += [self._cut, self._cut] * bool(self._links)
        return kinds + [self._disturb] * bool(self._links and self._links.can_disturb())

    def _later(self, undo, low=0.3, high=3.0):
        self._pending.append((time.monotonic() + self._draw.uniform(low, high), undo))

    def _site(self):
        running = [name for name in self._machines.running if name != "server"]
        return self._draw.choice(running or ["a"])

    def _kill_site(self):
        site = self._site()
        if site in self._machines.running:
            self.happened.append(f"kill {site}")
            self._machines.kill(site)
            self._later(lambda: self._machines.start(site))

    def _kill_server(self):
        if "server" in self._machines.running:
            self.happened.append("kill server")
            self._machines.kill("server")
            self._later(lambda: self._machines.start("server"), 0.1, 1.0)

    def _pause(self):
        name = self._draw.choice(sorted(self._machines.running) or ["a"])
        process = self._machines.running.get(name)
        if process is not None:
            self.happened.append(f"pause {name}")
            process.send_signal(signal.SIGSTOP)
            self._later(lambda: process.send_signal(signal.SIGCONT))

    def _cut(self):
        site = self._draw.choice(SITES)
        self.happened.append(f"cut {site}")
        self._links.cut(site)
        self._later(lambda: self._links.heal(site))

    def _disturb(self):
        site = self._draw.choice(SITES)
        self.happened.append(f"disturb {site}")
        what = ("delay", "30ms", "20ms", "reorder", "25%", "duplicate", "10%", "loss", "2%")
        self._links.disturb(site, *what)
        self._later(lambda: self._links.disturb(site, "delay", "1ms"))


def one_run(seed, settings=SETTINGS, *, use_namespaces=True):
    """Train through whatever is drawn; return what happened, and how many rounds were lost."""
    spaces = hosts("server", *SITES) if use_namespaces and not can_make_them() else nullcontext()
    with tempfile.TemporaryDirectory() as place, spaces as links:
        root = Path(place)
        host = "127.0.0.1" if links is None else links.addresses["server"]
        network = Network(host=host, port=free_port(), page_port=free_port())
        folder = make_federation(
            root / "fed", RATINGS, settings, deadlines=DEADLINES, network=network
        )
        names = {} if links is None else links.names
        with Machines(folder, split_by_user(RATINGS, root), namespaces=names) as machines:
            chaos = Chaos(machines, links, Random(seed))  # noqa: S311
            machines.start("server", *SITES)
            machines.wait_for_sites(*SITES)
            with machines.saying("run", "--no-wait"):  # it ends after the first rounds
                machines.wait_for(lambda status: status.get("round"), "a first round")
                through(machines, chaos)
            return chaos.happened, check(machines, settings)


def through(machines, chaos):
    """Disturb until training is done."""
    until = time.monotonic() + MAX_SECONDS
    while machines.file_status()["state"] not in ("finished", "failed"):
        assert time.monotonic() < until, f"{chaos.happened} {machines.file_status()}"
        chaos.step()
    chaos.end()
    machines.wait_for_end()


def check(machines, settings):
    """No round lost, none twice, and the model of those who took part; numbers that were spent."""
    journal = machines.journal()
    numbers = [line["round"] for line in journal]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == settings.max_rounds
    expected = replayed(Kept.of(machines.store()), RATINGS, settings, list(SITES))
    difference = float(np.abs(machines.model().item_rows - expected.item_rows).max())
    assert difference < 1e-4, difference
    return numbers[-1] - len(numbers), len({tuple(line["parties"]) for line in journal}), difference


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(count):
    say("| seed | faults | attempts without a sum | groups of sites | difference | seconds |")
    say("|---|---|---|---|---|---|")
    for seed in range(count):
        began = time.monotonic()
        happened, (lost, groups, difference) = one_run(seed)
        seconds = time.monotonic() - began
        say(f"| {seed} | {len(happened)} | {lost} | {groups} | {difference:.1e} | {seconds:.0f} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
