"""Users on Ray's workers. What needs no Ray is tried with workers that live in this process."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from fedmmf.data.rated_items import RatedItems
from fedmmf.data.scales import RatingScale
from fedmmf.engines import ENGINES
from fedmmf.engines.contract import Cohort, TrainingInput
from fedmmf.engines.ray import cluster
from fedmmf.engines.ray.halves import RayHalves
from fedmmf.engines.ray.masks import RayRunner
from fedmmf.engines.ray.worker import Worker
from fedmmf.errors import FedMMFError, SettingsError, WireError
from fedmmf.masks import MaskPlan, fit_masks
from fedmmf.masks.fitting import MaskInput
from fedmmf.masks.population import Population
from fedmmf.settings import Settings
from fedmmf.simulation import train
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import Broadcast, ItemSums, SolverContext
from fedmmf.solvers.sgd import AllUsers, Sgd, SgdPlan
from fedmmf.solvers.vb import VB
from fedmmf.solvers.vb.shapes import write_variant

# How far the work is, which a pipe hears every ten seconds: on a busy machine, never on another.
PROGRESS = re.compile(r"^[^:\n]+: [^:\n]+: [\d,]+ of [\d,]+\n", re.MULTILINE)
PATIENCE = 600  # seconds for what never ends if it is wrong; machines that run tests are slow
N_USERS, N_ITEMS, RANK = 23, 11, 3
GENERATOR = np.random.default_rng(8)
LENGTHS = GENERATOR.integers(0, N_ITEMS, N_USERS)
LISTS = RatedItems(
    np.concatenate(([0], np.cumsum(LENGTHS))),
    np.concatenate([GENERATOR.permutation(N_ITEMS)[:n] for n in LENGTHS]).astype(np.int32),
)
MASKED = GENERATOR.standard_normal(len(LISTS.items)).astype(np.float32)
MEMBERS = np.arange(N_USERS) % 3 > 0
STEPS = {"bound": 16.0, "scale": 2.0**14, "total_bound": 2.0**12, "total_scale": 2.0**8}
COHORTS = (Cohort(), Cohort(members=MEMBERS, **STEPS))
KNOWN = AllUsers(np.array([0.9, 0.1, -0.2]), np.array([0.5, 2.0, 30.0]))
PUBLIC = Broadcast(
    RANK,
    SgdPlan(2, 0.02, 0.1, 1.0, 0.0, 5.0).to_parameters(KNOWN),
    GENERATOR.standard_normal((N_ITEMS, RANK)).astype(np.float32),
)


class HereCluster:
    """A cluster without Ray: workers of this process, which answer at once."""

    def __init__(self, n_workers):
        self.workers_here = [Worker(1) for _ in range(n_workers)]
        self._handles = [_handle(worker) for worker in self.workers_here]

    def workers(self):
        return self._handles

    def has(self, workers):
        return True

    def put(self, value):
        return value

    def pickled(self, value):
        return pytest.importorskip("cloudpickle", reason="Ray has its own").dumps(value)

    def answers(self, pending):
        return list(pending)

    def as_answered(self, pending):
        return reversed(list(enumerate(pending)))

    def forget(self, number, workers):
        for worker in workers:
            worker.drop.remote(number)


def _handle(worker):
    names = ("make", "drop", "call", "factors", "set_factors", "train")
    return SimpleNamespace(
        **{name: SimpleNamespace(remote=getattr(worker, name)) for name in names}
    )


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """A worker limits its process to its share of the cores; this process is no worker."""
    monkeypatch.setenv("FEDMMF_THREADS", "2")
    with threadpool_limits():
        yield


@pytest.fixture
def numpy_solver():
    """A solver that kernels do not know: each user has a state of its own."""
    SOLVERS.register("unknown", Sgd())
    yield "unknown"
    SOLVERS.unregister("unknown")


def given_for(solver="sgd"):
    update_shape, nothing = SOLVERS[solver].update_shape(RANK, ""), np.zeros((N_USERS, 0))
    design = np.zeros((N_ITEMS, 0))
    return TrainingInput(
        solver, update_shape, design, LISTS, MASKED, nothing, nothing, cohorts=COHORTS
    )


def vb_given(cohort):
    """Everything that `vb` has: both implicit priors, profiles, unrated items."""
    generator, update_shape = (
        np.random.default_rng(3),
        VB.update_shape(RANK, write_variant("both", 2, 2, 0)),
    )
    design = np.column_stack((np.ones(N_ITEMS), generator.standard_normal(N_ITEMS)))
    profiles, lines = generator.standard_normal((2, N_USERS, 2))
    profiles[::4] = 0.0  # some have none
    return TrainingInput(
        "vb", update_shape, design, LISTS, MASKED, profiles, lines, cohorts=(cohort,)
    )


def vb_public(given):
    """What a server publishes after a round."""
    context = SolverContext(
        N_ITEMS, 4.0, 1.0, 0.0, 5.0, np.zeros((N_ITEMS, 0)), given.design, np.random.default_rng(1)
    )
    server = VB.server(Settings(solver="vb", objective="ranking"), given.update_shape, context)
    update = (
        ENGINES["numpy"].halves(replace(given, cohorts=(Cohort(),))).update(server.broadcast(), 1)
    )
    server.advance(ItemSums(update.rows[0], LISTS.counts(N_ITEMS), update.totals[0]), 1)
    return server.broadcast()


def looking(given, broadcast):
    """The same, in a membership round: who rated what."""
    parameters = broadcast.parameters.copy()
    parameters[given.update_shape.blocks["parameters"].place("membership")] = 1.0
    return Broadcast(broadcast.rank, parameters, broadcast.item_rows)


def assert_same_state(one, other):
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)


# Blocks of users


@pytest.mark.parametrize("solver", ["sgd", "unknown"])
@pytest.mark.parametrize("n_workers", [1, 2, 5, 40])
def test_blocks_together_are_one_crowd(numpy_solver, solver, n_workers):
    mine = RayHalves(HereCluster(n_workers), given_for(solver))
    whole = ENGINES["numba"].halves(given_for(solver))
    for t in (1, 2):
        found, expected = mine.update(PUBLIC, t), whole.update(PUBLIC, t)
        np.testing.assert_allclose(found.rows[0], expected.rows[0], rtol=1e-4, atol=1e-5)
        assert np.array_equal(found.rows[1], expected.rows[1])  # fixed point: exactly
        np.testing.assert_allclose(found.totals[0], expected.totals[0], rtol=1e-12)
        assert np.array_equal(found.totals[1], expected.totals[1])
        assert expected.totals[1].any()
        assert np.array_equal(mine.user_factors, whole.user_factors)
    for crowd in (mine, whole):
        crowd.solve_users(PUBLIC, np.array([0, 7, 22]))
    assert np.array_equal(mine.user_factors, whole.user_factors)
    assert_same_state(mine.state(), whole.state())


@pytest.mark.parametrize("n_workers", [1, 2, 5, 40])
@pytest.mark.parametrize("is_fixed", [True, False])
def test_blocks_of_vb_together_are_one_crowd(n_workers, is_fixed):
    """Profiles and lines go with their users; steps of rows and totals are the same exactly."""
    given = vb_given(Cohort(members=MEMBERS, **(STEPS if is_fixed else {})))
    broadcast = vb_public(given)
    look = looking(given, broadcast)
    mine, whole = RayHalves(HereCluster(n_workers), given), ENGINES["numba"].halves(given)
    for t, told in enumerate((broadcast, look, broadcast, look), start=1):
        found, expected = mine.update(told, t), whole.update(told, t)
        for a, b in ((found.rows, expected.rows), (found.totals, expected.totals)):
            assert a[0].dtype == b[0].dtype
            if is_fixed:
                assert np.array_equal(a[0], b[0])
            np.testing.assert_allclose(a[0], b[0], rtol=1e-4, atol=1e-5)
        assert np.array_equal(mine.user_factors, whole.user_factors)
    for crowd in (mine, whole):
        crowd.solve_users(broadcast, np.array([0, 7, 22]))
    assert np.array_equal(mine.user_factors, whole.user_factors)
    assert_same_state(mine.state(), whole.state())
    other = RayHalves(HereCluster(3), given)  # looks are counted wherever users are
    other.restore(mine.state())
    for crowd in (mine, whole, other):
        with pytest.raises(WireError, match="2 rounds at most may ask"):
            crowd.update(look, 5)


@pytest.mark.parametrize("solver", ["sgd", "unknown"])
def test_a_crowd_goes_on_with_another_number_of_workers(numpy_solver, solver):
    """After a machine was lost, a checkpoint is continued by those that are left."""
    first = RayHalves(HereCluster(5), given_for(solver))
    first.update(PUBLIC, 1)
    second = RayHalves(HereCluster(2), given_for(solver))
    second.restore(first.state())
    assert np.array_equal(first.update(PUBLIC, 2).rows[1], second.update(PUBLIC, 2).rows[1])
    assert_same_state(first.state(), second.state())


def test_workers_hold_about_as_many_ratings_each():
    here = HereCluster(3)
    crowd = RayHalves(here, given_for())
    sizes = [LISTS.indptr[block.end] - LISTS.indptr[block.begin] for block in crowd.blocks]
    assert sum(sizes) == len(MASKED)
    assert max(sizes) - min(sizes) <= 2 * LENGTHS.max()


def test_a_crowd_that_is_gone_is_gone_from_the_workers():
    here = HereCluster(2)
    crowd = RayHalves(here, given_for())
    assert [len(worker.halves_of) for worker in here.workers_here] == [1, 1]
    del crowd
    assert [len(worker.halves_of) for worker in here.workers_here] == [0, 0]


@pytest.mark.parametrize("kind", ["mean", "lr", "fm"])
def test_masks_are_those_of_one_process_bit_for_bit(kind):
    features = np.random.default_rng(1).standard_normal((N_ITEMS, 2))
    ratings = np.random.default_rng(2).integers(1, 6, len(MASKED)).astype(np.float32)
    plan, told = MaskPlan(kind, "auto"), []
    line = Population(np.array([3.4, 0.5, -0.2]), 7.5)
    found = [
        fit_masks(
            plan,
            MaskInput(LISTS, ratings, RatingScale(1, 5, 1), features, line),
            runner,
        )
        for runner in (RayRunner(HereCluster(3), told.append), ENGINES["numba"].mask_runner())
    ]
    for name in ("theta", "strengths", "unit_fitted", "unit_held_out"):
        assert np.array_equal(*(getattr(masks, name) for masks in found))
    assert sum(told) == N_USERS
    assert len(told) > 3


# Workers and their cores


def nodes(*cores):
    return [
        {"NodeID": f"node {number}", "Alive": n is not None, "Resources": {"CPU": n} if n else {}}
        for number, n in enumerate(cores)
    ]


@pytest.mark.parametrize(
    ("cores", "per_machine", "expected"),
    [
        ((2.0,), 2, [(1.0, 1), (1.0, 1)]),
        ((8.0,), 3, [(2.0, 2)] * 3),
        ((2.0,), 4, [(0.5, 1)] * 4),
        ((16.0, 4.0), 1, [(16.0, 16), (4.0, 4)]),
        ((16.0, None, 0, 4.0), 2, [(8.0, 8)] * 2 + [(2.0, 2)] * 2),
    ],
)
def test_workers_share_the_cores_of_their_machine(cores, per_machine, expected):
    found = cluster.places(nodes(*cores), per_machine)
    assert [(place.n_cpus, place.n_threads) for place in found] == expected


def test_a_cluster_without_cores_is_refused():
    with pytest.raises(FedMMFError, match="no machine with a CPU"):
        cluster.places(nodes(0, None), 1)


@pytest.mark.parametrize("text", ["many", "0", "-1", "1.5", ""])
def test_a_number_of_workers_is_a_whole_number(monkeypatch, text):
    monkeypatch.setenv(cluster.WORKERS, text)
    with pytest.raises(SettingsError, match="a whole number of at least 1; got "):
        cluster.workers_per_machine(1)


@pytest.mark.parametrize("reason", ["The actor died.", "The node was removed"])
def test_a_lost_worker_has_a_remedy_for_python_and_for_the_command_line(reason):
    error = cluster.lost(reason)
    text = f"({reason.rstrip('.')}). Start again; a run that is given a checkpoint file goes on"
    assert text in str(error)
    assert str(error).endswith("checkpoint=FILE")
    assert error.flags == "--checkpoint FILE"


# Without the package


def without_ray(*arguments):
    """The command line of somebody who has not installed it."""
    code = "import sys; sys.modules['ray'] = None; from fedmmf.cli import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


TRAIN = ["train", "--rounds", "3", "--factors", "3", "--json"]


def test_without_the_package_it_says_what_to_install():
    done = without_ray(*TRAIN, "--engine", "ray")
    assert done.returncode == 2
    assert "pip install 'fedmmf[ray]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_other_engines_do_without_it():
    done = without_ray(*TRAIN, "--engine", "numba")
    assert done.returncode == 0, done.stderr


def test_a_model_that_was_trained_on_workers_predicts_without_them():
    engine = ENGINES["ray"]
    pairs, factors = np.array([0, 1]), np.eye(2, dtype=np.float32)
    assert engine.pair_scores(pairs, pairs, factors, factors).tolist() == [1.0, 1.0]
    out = np.empty(2)
    family = MaskPlan("mean").family
    given = (np.array([0, 1, 2]), np.array([0, 0]), np.zeros((1, 0)), np.array([[3.0], [4.0]]))
    engine.mask_runner().apply(family, *given, out)
    assert out.tolist() == [3.0, 4.0]


# On Ray


@pytest.mark.parametrize("mask", ["mean", "fm"])
@pytest.mark.parametrize("solver", ["sgd", "vb"])
def test_secure_sums_give_the_same_model_bit_for_bit(ray_engine, small, solver, mask):
    chosen = {"mask": mask, "solver": solver, "held_out": 0.1, "rounds": 12, "factors": 4}
    found, expected = (train(small, Settings(engine=name, **chosen)) for name in ("ray", "numba"))
    assert np.array_equal(found.masks.theta, expected.masks.theta)
    (mine,), (theirs,) = found.members, expected.members
    assert np.array_equal(mine.broadcast.item_rows, theirs.broadcast.item_rows)
    assert np.array_equal(mine.user_factors, theirs.user_factors)
    assert np.array_equal(mine.history, theirs.history)


@pytest.mark.parametrize("solver", ["sgd", "vb"])
def test_secure_sums_of_ml_100k_are_the_same_bit_for_bit(ray_engine, ml_100k, solver):
    chosen = {"mask": "mean", "solver": solver, "rounds": 8, "factors": 8}
    found, expected = (train(ml_100k, Settings(engine=name, **chosen)) for name in ("ray", "numba"))
    (mine,), (theirs,) = found.members, expected.members
    assert np.array_equal(mine.broadcast.item_rows, theirs.broadcast.item_rows)
    assert np.array_equal(mine.user_factors, theirs.user_factors)


@pytest.mark.parametrize("solver", ["sgd", "vb"])
def test_plain_sums_give_the_same_model_but_for_rounding(ray_engine, small, solver):
    chosen = {"mask": "lr", "solver": solver, "sharing": "plain", "rounds": 12, "factors": 4}
    found, expected = (train(small, Settings(engine=name, **chosen)) for name in ("ray", "numba"))
    (mine,), (theirs,) = found.members, expected.members
    np.testing.assert_allclose(mine.broadcast.item_rows, theirs.broadcast.item_rows, atol=1e-4)
    np.testing.assert_allclose(mine.user_factors, theirs.user_factors, atol=1e-4)


def test_each_worker_has_its_share_of_the_cores(ray_engine):
    workers = ray_engine.cluster.workers()
    about = ray_engine.cluster.answers([worker.about.remote() for worker in workers])
    assert len(workers) == int(os.environ.get(cluster.WORKERS, len(os.sched_getaffinity(0))))
    n_cores = int(cluster.ray().cluster_resources()["CPU"])
    assert sum(n_threads for _, n_threads in about) <= max(n_cores, len(workers))


def test_what_a_worker_raises_is_raised_here(ray_engine):
    workers = ray_engine.cluster.workers()
    with pytest.raises(KeyError, match="12345"):
        ray_engine.cluster.answers([workers[0].call.remote(12345, "state")])


def test_a_worker_that_dies_is_named_with_the_way_out(ray_engine):
    crowd = ray_engine.halves(given_for())
    cluster.ray().kill(ray_engine.cluster.workers()[0])
    with pytest.raises(FedMMFError, match=r"worker was lost.*checkpoint=FILE") as caught:
        crowd.update(PUBLIC, 1)
    assert "\n" not in str(caught.value)
    assert "--" not in str(caught.value)  # Python users have no flags
    again = ray_engine.halves(given_for())  # on new workers
    with pytest.raises(FedMMFError, match="worker was lost"):
        crowd.update(PUBLIC, 1)
    expected = ENGINES["numba"].halves(given_for()).update(PUBLIC, 1)
    assert np.array_equal(again.update(PUBLIC, 1).rows[1], expected.rows[1])


def test_ray_ends_of_itself_and_starts_anew(ray_engine):
    ray_engine.halves(given_for())
    cluster.ray().shutdown()
    assert ray_engine.halves(given_for()).user_factors.shape == (N_USERS, RANK)


@pytest.mark.parametrize("address", ["127.0.0.1:9", "auto"])
def test_a_cluster_that_is_not_there_is_named(ray_engine, monkeypatch, address):
    cluster.ray().shutdown()
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(FedMMFError, match=f"no Ray at {address} "):
        ray_engine.halves(given_for())


# From the command line


@contextmanager
def started(*arguments, **environment):
    """A command in a process group of its own, as a terminal has it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fedmmf", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.terminate()  # nothing happens to one that has ended
        process.communicate(timeout=PATIENCE)


def running():
    """Name, number and parent of every process that has not ended, in this network namespace.

    Other people's Rays are in others.
    """
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            about = dict(
                line.split(":\t", 1) for line in (folder / "status").read_text().splitlines()
            )
            is_here = (folder / "ns/net").readlink() == Path("/proc/self/ns/net").readlink()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if is_here and "zombie" not in about["State"]:
            yield about["Name"], int(about["Pid"]), int(about["PPid"])


def started_by(process, *names):
    """Numbers of the processes with these names that a command, or one that it started, started."""
    table, family = list(running()), {process.pid}
    while more := {number for _, number, parent in table if parent in family} - family:
        family |= more
    return {number for name, number, _ in table if number in family and name in names}


SERVERS = ("raylet", "gcs_server")


def rays():
    """Ray's servers that are running."""
    return {number for name, number, _ in running() if name in SERVERS}


def gone(processes):
    """Wait for some processes to end."""
    deadline = time.monotonic() + PATIENCE
    while processes & rays() and time.monotonic() < deadline:
        time.sleep(0.1)
    return not processes & rays()


def test_the_command_line_trains_on_workers_and_leaves_nothing(ray_engine):
    results, before = [], rays()
    folder = tempfile.mkdtemp(dir="/tmp")  # a short path
    for engine in ("ray", "numba"):
        with started(*TRAIN, "--engine", engine, RAY_TMPDIR=folder) as process:
            out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, PROGRESS.sub("", err)) == (0, "")
        results.append(json.loads(out))
    assert results[0]["rmse"] == results[1]["rmse"]
    assert gone(rays() - before)
    Path(folder).rmdir()  # it is empty


def listening():
    """Local addresses of sockets that listen, as the kernel prints them: the last four bytes."""
    for file in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{file}").read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            if state == "0A":
                yield local.split(":")[0][-8:]


def ip(*words):
    subprocess.run(["ip", *words], check=True)  # noqa: S607 - where it is differs


ENDLESS = [*TRAIN, "--engine", "ray", "--rounds", "100000", "--held-out", "0"]


def test_a_ray_of_ones_own_listens_on_the_loopback_interface_alone(ray_engine):
    """Also where there is another address, as everywhere outside of tests."""
    cluster.ray().shutdown()  # that of other tests
    ip("address", "add", "10.9.9.1/32", "dev", "lo")
    ip("route", "add", "default", "dev", "lo", "src", "10.9.9.1")
    try:
        with started(*ENDLESS) as process:
            await_workers(process)
            found = set(listening())
    finally:
        ip("route", "del", "default")
        ip("address", "del", "10.9.9.1/32", "dev", "lo")
    assert found == {"0100007F"}


def test_an_interrupt_ends_it(ray_engine):
    with started(*ENDLESS) as process:
        await_workers(process)
        its_own = started_by(process, *SERVERS)
        assert len(its_own) == 2
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert gone(its_own)


def test_a_command_that_loses_a_worker_names_the_flag(ray_engine):
    with started(*ENDLESS) as process:
        os.kill(await_workers(process), signal.SIGKILL)
        _, err = process.communicate(timeout=PATIENCE)  # Ray prints its own word to standard output
    assert process.returncode == 1
    assert "a Ray worker was lost" in err
    assert err.rstrip().endswith("(--checkpoint FILE)")
    assert "Traceback" not in err


def await_workers(process):
    """Wait for a command's Ray to have started workers; returns the number of one."""
    deadline = time.monotonic() + PATIENCE
    while not (workers := started_by(process, "ray::Worker")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return min(workers)


def test_users_are_spread_over_the_machines_of_a_cluster(ray_engine):
    """Two machines of two cores, pretended by Ray; a worker on each, with both cores."""
    cluster.ray().shutdown()
    done = subprocess.run(
        [sys.executable, "-c", TWO_MACHINES],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name != cluster.WORKERS},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["2", "[2,", "2]", "True"]


TWO_MACHINES = """
import os
from ray.cluster_utils import Cluster
machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
machines.add_node(num_cpus=2)
os.environ["RAY_ADDRESS"] = machines.address
import numpy as np
from fedmmf import load
from fedmmf.settings import Settings
from fedmmf.engines import ENGINES
from fedmmf.simulation import train
found = [
    train(load("synthetic"), Settings(engine=name, rounds=3, factors=3)).members[0]
    for name in ("ray", "numba")
]
held = ENGINES["ray"].cluster
workers = held.workers()
threads = [n for _, n in held.answers([worker.about.remote() for worker in workers])]
same = np.array_equal(found[0].broadcast.item_rows, found[1].broadcast.item_rows)
import ray
places = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
print(len(places), threads, same)
ray.shutdown()
machines.shutdown()
"""
