import importlib.util
import os
import socket
from pathlib import Path

import hypothesis
import polars as pl
import pytest

from fedmmf import attacks, load
from fedmmf.data.synthetic import synthetic
from fedmmf.engines import ENGINES

# A busy machine is no failure; how long things take is measured by `fedmmf bench`. Every run tries
# the same examples, so that a run which fails fails again; `make fuzz` looks for new ones.
hypothesis.settings.register_profile(
    "fedmmf",
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("fedmmf")

ROOT = Path(__file__).parent
BESIDE_THE_CHECKOUT = ROOT / "../shared/data"

# Whole federations, browsers, wheels, trainings on real data, every combination: `make test` leaves
# these files out, and `make test-all` runs them.
SLOW = {
    "experiments/tests/bench/test_ranking.py",
    "experiments/tests/bench/test_secagg.py",
    "experiments/tests/bench/test_simulated.py",
    "experiments/tests/bench/test_training.py",
    "experiments/tests/cli/test_commands.py",
    "experiments/tests/cli/test_privacy_commands.py",
    "experiments/tests/paper/test_attack_figures.py",
    "experiments/tests/paper/test_efficiency.py",
    "experiments/tests/paper/test_factorial.py",
    "experiments/tests/paper/test_gains.py",
    "experiments/tests/paper/test_strict_sums.py",
    "experiments/tests/paper/test_table1.py",
    "experiments/tests/private/test_curve.py",
    "experiments/tests/private/test_users.py",
    "experiments/tests/test_slow_probes.py",
    "experiments/tests/test_tables.py",
    "experiments/tests/test_wheel.py",
    "tests/aggregation/test_adaptive.py",
    "tests/aggregation/test_batches.py",
    "tests/aggregation/test_contract.py",
    "tests/aggregation/test_homomorphic.py",
    "tests/aggregation/test_secure.py",
    "tests/attacks/test_contract.py",
    "tests/attacks/test_gradients.py",
    "tests/attacks/test_masked.py",
    "tests/attacks/test_self_audit.py",
    "tests/attacks/test_strict.py",
    "tests/attacks/test_vb_sums.py",
    "tests/audit/test_recording.py",
    "tests/audit/test_run.py",
    "tests/cli/test_cli.py",
    "tests/cli/test_interrupts.py",
    "tests/cli/test_privacy_commands.py",
    "tests/data/test_foreign_files.py",
    "tests/data/test_implicit.py",
    "tests/data/test_packed.py",
    "tests/data/test_scale_of_splits.py",
    "tests/e2e/test_real_data.py",
    "tests/e2e/test_strict_federation.py",
    "tests/engines/test_ray.py",
    "tests/extending/test_extending.py",
    "tests/federation/test_endings.py",
    "tests/federation/test_evaluation.py",
    "tests/federation/test_faults.py",
    "tests/federation/test_guards.py",
    "tests/federation/test_kills.py",
    "tests/federation/test_knocking.py",
    "tests/federation/test_link.py",
    "tests/federation/test_machines.py",
    "tests/federation/test_page_browser.py",
    "tests/federation/test_page_commands.py",
    "tests/federation/test_secrecy.py",
    "tests/federation/test_warming.py",
    "tests/model/test_damaged_files.py",
    "tests/model/test_lists.py",
    "tests/model/test_types.py",
    "tests/party/test_install.py",
    "tests/reports/test_browser.py",
    "tests/secagg/test_view.py",
    "tests/security/test_deviations.py",
    "tests/security/test_hostile_answers.py",
    "tests/server/test_bad_parties.py",
    "tests/simulation/test_costs.py",
    "tests/simulation/test_figures.py",
    "tests/simulation/test_reference.py",
    "tests/simulation/test_silos.py",
    "tests/simulation/test_sparse.py",
    "tests/test_contributing.py",
    "tests/test_notebook.py",
    "tests/test_site.py",
    "tests/test_wheel.py",
}


@pytest.fixture(autouse=True)
def private_folders(tmp_path_factory, monkeypatch):
    """Keep caches and downloads of the tests away from those of the person who runs them."""
    folder = tmp_path_factory.mktemp("private")
    monkeypatch.setenv("FEDMMF_CACHE", str(folder / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
    return folder


def why_no_ray():
    """Why the engine `ray` is not tried in this process; None where it is."""
    if importlib.util.find_spec("ray") is None:
        return "ray is not installed: make test-ray"
    if [name for _, name in socket.if_nameindex()] != ["lo"]:
        return "Ray opens ports: make test-ray runs this where there is only lo"
    return None


def why_no_torch():
    """Why the engine `torch` is not tried; None where it is."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed: make test-torch"
    return None


def pytest_collection_modifyitems(items):
    """Mark slow files; skip `ray` and `torch` where these engines cannot be tried."""
    reasons = {"ray": why_no_ray(), "torch": why_no_torch()}
    for item in items:
        if item.path.relative_to(ROOT).as_posix() in SLOW:
            item.add_marker(pytest.mark.slow)
        parameters = getattr(item, "callspec", None)
        values = parameters.params.values() if parameters else ()
        for value in values:
            if isinstance(value, str) and reasons.get(value):
                item.add_marker(pytest.mark.skip(reason=reasons[value]))


@pytest.fixture
def ray_engine():
    """The engine `ray`, where it can be tried."""
    if reason := why_no_ray():
        pytest.skip(reason)
    return ENGINES["ray"]


@pytest.fixture
def tried():
    """Gives an engine by its name, on a device that every machine has."""
    return lambda name: ENGINES[name].on("cpu", 1) if name == "torch" else ENGINES[name]


@pytest.fixture
def public_data(monkeypatch):
    """Point FEDMMF_DATA at the published sets, or skip."""
    folder = Path(os.environ.get("FEDMMF_DATA") or BESIDE_THE_CHECKOUT)
    if not (folder / "ml-100k.zip").is_file():
        pytest.skip("the published sets are not here: set FEDMMF_DATA to a folder with their zips")
    monkeypatch.setenv("FEDMMF_DATA", str(folder))
    return folder


@pytest.fixture
def ml_100k(public_data):
    return load("ml-100k")


@pytest.fixture(scope="session")
def small():
    """A synthetic set that trains in a moment: 60 users, 90 items, with features."""
    return synthetic(60, 90, 1800, seed=3)


@pytest.fixture
def without_inversion(monkeypatch):
    """Nobody tries what reads every mask of this package: some of them then resist."""

    def others(mask):
        return tuple(one for one in attacks.rating_attacks(mask) if "inversion" not in one.name)

    monkeypatch.setattr("fedmmf.attacks.self_audit.rating_attacks", others)


@pytest.fixture
def no_public_data(monkeypatch):
    monkeypatch.delenv("FEDMMF_DATA", raising=False)


@pytest.fixture
def frame():
    """Five ratings in no order, by three users of three items."""
    return pl.DataFrame(
        {
            "user_id": [7, 3, 7, 3, 9],
            "item_id": [20, 10, 10, 30, 20],
            "rating": [4.0, 5.0, 1.0, 3.0, 2.0],
            "timestamp": [50, 10, 40, 30, 20],
        }
    )


def pytest_terminal_summary(terminalreporter):
    """What was broken once, whether it holds, and whether it breaks without its repair."""
    outcomes = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            if "security/test_breaks.py" in report.nodeid and report.when == "call":
                test, name = report.nodeid.split("::")[1].rstrip("]").split("[", 1)
                outcomes.setdefault(name, {})[test] = "yes" if outcome == "passed" else "NO"
    if outcomes:
        terminalreporter.section("breaks: hold now / break without their repair alone")
    for name, found in outcomes.items():
        holds, breaks = (found.get(f"test_it_{what}", "-") for what in COLUMNS)
        terminalreporter.write_line(f"{name:48} {holds:>4} {breaks:>4}")


COLUMNS = ("holds", "breaks_without_its_repair")


@pytest.fixture
def spent():
    """What a run with noise says of its privacy budget."""
    return {
        "epsilon": 7.5,
        "delta": 1e-5,
        "rounds_used": 28,
        "rounds_paid": 30,
        "epsilon_paid": 8.0,
        "noise_multiplier": 3.49,
        "clip": 1.0,
        "noise": "distributed",
        "added_by": "all parties together",
        "neighbours": "a user's updates, present or not",
        "not_covered": "J and RMSE are not inside epsilon.",
    }
