"""Connection to Ray and its workers: a cluster at an address, or one started by this process.

Nothing here imports Ray before a worker is asked for, so that other engines do without it.
"""

import atexit
import importlib
import os
import secrets
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from tempfile import TemporaryDirectory
from typing import Any

from fedmmf import __version__
from fedmmf.engines.kernels import threads
from fedmmf.engines.ray.worker import Worker
from fedmmf.errors import FedMMFError, SettingsError

WORKERS = "FEDMMF_RAY_WORKERS"
ADDRESS = "RAY_ADDRESS"  # Ray's own variable
CONNECT_SECONDS, START_SECONDS = 10.0, 120.0
_QUIET = {"log_to_driver": False, "logging_level": "ERROR"}


@cache
def ray() -> Any:
    """Import Ray, or raise an error that says how to install it."""
    _set_variables()
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise SettingsError(
            "the engine 'ray' needs the package ray, which is not installed; "
            "run pip install 'fedmmf[ray]'"
        ) from None


def _set_variables() -> None:
    """Set what Ray reads from the environment on import; the user's own values stay."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if not _is_own() or "ray" in sys.modules:
        return
    # Ray listens on every interface, except where it believes that there can be no cluster: as on
    # Windows and macOS, which is what the variable is for.
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    if "RAY_AUTH_MODE" not in os.environ:  # only this user of the machine is served
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _is_own() -> bool:
    """Whether this process uses its own Ray, because no cluster's address is set."""
    return os.environ.get(ADDRESS, "local") == "local"


@dataclass(frozen=True)
class Place:
    """The machine of one worker, and its cores."""

    node: str  # Ray's name for the machine
    n_cpus: float  # cores that Ray reserves for it
    n_threads: int


def workers_per_machine(default: int) -> int:
    """Return FEDMMF_RAY_WORKERS, or `default` where it is unset."""
    text = os.environ.get(WORKERS, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise SettingsError(f"{WORKERS} must be a whole number of at least 1; got {text!r}")
    return int(text)


def places(nodes: Iterable[Mapping[str, Any]], per_machine: int) -> list[Place]:
    """Return the places of all workers: as many on each machine, with equal shares of its cores."""
    found = []
    for node in nodes:
        cores = int(node["Resources"].get("CPU", 0)) if node["Alive"] else 0
        if cores:
            threads_each = max(1, cores // per_machine)
            # Ray accepts whole numbers of cores, or a part of one.
            cpus_each = float(threads_each) if cores >= per_machine else cores / per_machine
            found += [Place(node["NodeID"], cpus_each, threads_each)] * per_machine
    if not found:
        raise FedMMFError("Ray has no machine with a CPU to give; start some with `ray start`")
    return found


class Cluster:
    """The workers of this process, started at their first use."""

    def __init__(self) -> None:
        self._workers: list[Any] = []

    def workers(self) -> Sequence[Any]:
        """Handles of all workers, in a fixed order."""
        if self._workers and not ray().is_initialized():  # somebody has shut Ray down
            self._workers = []
        if not self._workers:
            self._workers = self._started(_connected())
        return self._workers

    def _started(self, per_machine: int) -> list[Any]:
        remote = ray().remote(Worker)
        workers = [
            remote.options(
                num_cpus=place.n_cpus,
                scheduling_strategy=_on(place.node),
                max_concurrency=1,
            ).remote(place.n_threads)
            for place in places(ray().nodes(), per_machine)
        ]
        with self._explained():
            about = ray().get([worker.about.remote() for worker in workers], timeout=START_SECONDS)
        others = {version for version, _ in about} - {__version__}
        if others:
            raise FedMMFError(
                f"every machine of the cluster needs fedmmf {__version__}, as this one has; "
                f"some have {', '.join(sorted(others))}"
            )
        return workers

    def put(self, value: object) -> Any:
        """Share a value with every worker; it travels to each machine once."""
        with self._explained():
            return ray().put(value)

    def pickled(self, value: object) -> bytes:
        """Pickle a value, also where it holds functions that cannot be imported by name."""
        found: bytes = importlib.import_module("ray.cloudpickle").dumps(value)
        return found

    def answers(self, pending: Sequence[Any]) -> list[Any]:
        """Wait for the workers' results; return them in order.

        Raises:
            Exception: what a worker raised.
            FedMMFError: a worker was lost.
        """
        with self._explained():
            found: list[Any] = ray().get(list(pending))
            return found

    def as_answered(self, pending: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yield positions and results in the order of completion."""
        positions = {answer: position for position, answer in enumerate(pending)}
        waiting = list(pending)
        while waiting:
            with self._explained():
                (ready,), waiting = ray().wait(waiting)
                answer = ray().get(ready)
            yield positions[ready], answer

    def forget(self, number: int, workers: Sequence[Any]) -> None:
        """Drop a user group on the workers that hold it, if they still run."""
        if self.has(workers):
            for worker in workers:
                worker.drop.remote(number)

    def has(self, workers: Sequence[Any]) -> bool:
        """Whether these workers are still the cluster's."""
        return workers[0] in self._workers and bool(ray().is_initialized())

    def _let_go(self) -> None:
        """Release the remaining workers, so that the next run gets their cores."""
        workers, self._workers = self._workers, []
        for worker in workers:
            ray().kill(worker)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise a worker's own exception as it is; explain a lost worker."""
        errors = ray().exceptions
        try:
            yield
        except errors.RayTaskError as error:
            raise error.cause from None
        except errors.GetTimeoutError:
            raise FedMMFError(
                f"Ray's workers did not start within {START_SECONDS:g} s; are other programs "
                "using the cluster's CPUs? `ray status` shows it"
            ) from None
        except errors.RayError as error:
            self._let_go()
            raise lost(_first_line(error)) from None


def lost(reason: str) -> FedMMFError:
    """Return the error for a lost worker."""
    return FedMMFError(
        f"a Ray worker was lost, and its users' factors with it ({reason.rstrip('.')}). Start "
        "again; a run that is given a checkpoint file goes on from there: checkpoint=FILE",
        flags="--checkpoint FILE",
    )


def _on(node: str) -> Any:
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    return strategies.NodeAffinitySchedulingStrategy(node, soft=False)


def _connected() -> int:
    """Connect to Ray; return the number of workers per machine."""
    if not ray().is_initialized():
        try:
            _start_own() if _is_own() else _join(os.environ[ADDRESS])
        except (OSError, RuntimeError, ValueError, ray().exceptions.RayError) as error:
            where = "on this machine" if _is_own() else f"at {os.environ[ADDRESS]} ({ADDRESS})"
            raise FedMMFError(f"there is no Ray {where}: {_first_line(error)}") from error
    # On a cluster, one worker per machine sends the fewest sums.
    return workers_per_machine(threads.n_threads() if _is_own() else 1)


def _join(address: str) -> None:
    """Connect to the Ray cluster at an address, failing fast if nothing answers there."""
    host, _, port = address.rpartition(":")
    if port.isdecimal() and "://" not in address:  # Ray itself would retry for 15 minutes
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    ray().init(address=address, **_QUIET)


def _start_own() -> None:
    """Start a Ray on this machine that ends with this process, and leaves no files."""
    # A folder for this user alone: Ray opens its own folder in it to everybody, and may spill
    # objects there that are too large for memory.
    home = os.environ.get("RAY_TMPDIR", "/tmp")  # noqa: S108 - as Ray: paths of sockets are short
    folder = TemporaryDirectory(prefix="fedmmf-", dir=home, ignore_cleanup_errors=True)
    atexit.register(folder.cleanup)
    atexit.register(lambda: ray().shutdown())  # before the folder goes: last in, first out
    ray().init(
        address="local",
        num_cpus=threads.n_threads(),
        num_gpus=0,
        include_dashboard=False,
        _temp_dir=f"{folder.name}/ray",
        **_QUIET,
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
