"""A member of each kind from another package passes the contract tests of its kind.

The package lies in `shop/`, with entry points like any that is installed; `src/` knows nothing
of it. If one of these tests needs a change there, a seam is broken.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedmmf.federation.charter import Charter

HERE = Path(__file__).parent
TESTS = HERE.parent
# Beside whatever the package under test is found by.
PATHS = [str(HERE / "shop"), *filter(None, [os.environ.get("PYTHONPATH")])]
INSTALLED = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)}


def run(*command):
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        env=INSTALLED,
        cwd=TESTS.parent,
        check=False,
    )


@pytest.mark.parametrize(
    ("kind", "name", "at_least"),
    [
        ("masks", "median", 8),
        ("solvers", "heavy-ball", 10),
        ("aggregation", "enclave", 6),
        ("engines", "halves", 20),
        ("attacks", "public means", 5),
        ("data", "shop", 2),
    ],
)
def test_it_passes_the_contract_of_its_kind(kind, name, at_least):
    chosen = " and ".join(name.replace("-", " ").split())
    done = run("-m", "pytest", "-q", "-n0", f"tests/{kind}/test_contract.py", "-k", chosen)
    assert done.returncode == 0, done.stdout[-3000:]
    passed = int(re.search(r"(\d+) passed", done.stdout)[1])
    assert passed >= at_least, done.stdout


def test_the_members_are_used_by_name_from_the_command_line():
    command = ["-m", "fedmmf", "train", "--data", "shop", "--rounds", "3", "--factors", "3"]
    command += ["--mask", "median", "--solver", "heavy-ball", "--aggregation", "enclave"]
    for options in (["--engine", "halves"], ["--real"]):
        done = run(*command, *options, "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        names = (found["mask"], found["solver"], found["data"])
        assert names == ("median", "heavy-ball", "shop")
        assert found["protection"] == ["An enclave opens every update and gives out the sum."]


def test_an_audit_tries_the_attack_too():
    done = run("-m", "fedmmf", "audit", "--data", "shop", "--mask", "median", "--json")
    assert done.returncode == 0, done.stderr
    names = {attack["name"] for attack in json.loads(done.stdout)["groups"]["in the clear"]}
    assert "public means" in names


def test_a_command_is_listed_without_being_loaded_and_run_by_its_name():
    shown = run("-X", "importtime", "-m", "fedmmf", "--help")
    assert shown.returncode == 0, shown.stderr
    assert re.search(r"till\W+A made-up shop's own tools\.", shown.stdout)
    assert not re.search(r"\| +till$", shown.stderr, re.MULTILINE)
    assert run("-m", "fedmmf", "till", "3").stdout == "3 coins\n"
    described = run("-m", "fedmmf", "till", "--help").stdout
    assert "Count what is in the till." in described
    assert "Example: fedmmf till 3" in described


def test_a_command_of_this_package_is_not_replaced():
    assert "--mask" in run("-m", "fedmmf", "train", "--help").stdout


def test_a_command_that_cannot_be_loaded_is_a_message():
    done = run("-m", "fedmmf", "broken")
    assert done.returncode == 2
    assert "the command 'broken' cannot be loaded from till:nothing" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_name_that_nobody_has_is_refused_with_those_that_there_are():
    done = run("-m", "fedmmf", "train", "--data", "shop", "--mask", "mode")
    assert done.returncode == 2
    assert "median" in done.stderr


OWN = ["--solver", "heavy-ball", "--momentum", "0.8", "--aggregation", "enclave"]
TRAIN = ["-m", "fedmmf", "train", "--data", "shop", "--mask", "mean", "--rounds", "4"]
TRAIN += ["--factors", "3"]


def trained(*options):
    done = run(*TRAIN, *options, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_members_settings_are_options_in_the_panel_of_their_kind():
    shown = run("-m", "fedmmf", "train", "--help-all").stdout
    panels = {text.strip().split("\n")[0]: text for text in shown.split("\n\n")}
    sums, solver = panels["Sharing and sums"], panels["Solver"]
    assert "--enclave-minimum" in sums
    assert "Enclave: the fewest updates that it opens." in sums
    assert "--momentum" in solver


def test_members_settings_decide_the_result_as_messages_and_simulated(tmp_path):
    page = tmp_path / "run.html"
    options = [*OWN, "--enclave-minimum", "5"]
    simulated, real = trained(*options, "--report", str(page)), trained(*options, "--real")
    for found in (simulated, real):
        said = found["settings"]
        assert (said["momentum"], said["enclave_minimum"]) == (0.8, 5)
    assert real["rmse"] == pytest.approx(simulated["rmse"], abs=1e-4)
    assert trained(*options, "--momentum", "0.1")["rmse"] != simulated["rmse"]
    text = page.read_text()
    assert all(name in text for name in ("momentum", "enclave_minimum", "learning_rate"))
    assert "dp_epsilon" not in text


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--momentum", "2"], 2, "momentum should be less than 1; got 2.0 (heavy-ball: share of"),
        (["--enclave-minimum", "2"], 2, "enclave_minimum should be at least 3; got 2"),
        (["--enclave-minimum", "4"], 2, "enclave_minimum needs aggregation 'enclave'; got 'secure"),
        ([*OWN, "--enclave-minimum", "50", "--real"], 1, "50"),
    ],
)
def test_members_settings_are_checked(options, code, said):
    done = run(*TRAIN, *options)
    assert done.returncode == code, done.stderr
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_an_unused_members_settings_are_in_no_file():
    """Who has not installed the package can read it."""
    assert not {"momentum", "enclave_minimum"} & trained()["settings"].keys()


IN_PYTHON = """
import json, pydoc, sys
from pathlib import Path
from fedmmf import FedMMF, Settings, load
from fedmmf.errors import SettingsError
from fedmmf.federation.charter import Charter

page = " ".join(pydoc.plain(pydoc.render_doc(FedMMF)).replace("|", " ").split())
assert "momentum (0.3): heavy-ball: share of the last step that goes on" in page
assert "enclave_minimum (3): enclave: the fewest updates that it opens" in page
assert "momentum" in Settings.groups()["Solver"]
assert FedMMF(solver="heavy-ball", momentum=0.5).settings.momentum == 0.5
model = FedMMF(solver="heavy-ball", mask="mean", momentum=0.5, rounds=3, factors=2)
path = Path(sys.argv[1], "m.fedmmf")
model.fit(load("shop")).save(path)
assert FedMMF.load(path).settings.momentum == 0.5

def charter(**training):
    about = {"mask": "mean", **training}
    return Charter.checked(name="f", sites=("a", "b", "c"), training=about)

theirs = charter(solver="heavy-ball", momentum=0.5)
assert "# heavy-ball: share of the last step that goes on\\nmomentum = 0.5" in theirs.text()
assert "enclave_minimum" not in theirs.text()
(written := Path(sys.argv[1], "federation.toml")).write_text(theirs.text())
assert Charter.read(written).training.momentum == 0.5
assert theirs.digest != charter(solver="heavy-ball", momentum=0.6).digest
said = []
for wrong in ({"solver": "heavy-ball", "momentum": 1.5}, {"aggregation": "enclave"}):
    try:
        charter(**wrong)
    except SettingsError as error:
        said.append(str(error))
print(json.dumps({"said": said, "digest": charter().digest.hex()}))
"""


def test_members_settings_are_in_help_in_files_and_in_charters(tmp_path):
    done = run("-c", IN_PYTHON, str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    momentum, enclave = found["said"]
    assert momentum.startswith("momentum should be less than 1; got 1.5")
    assert enclave == "sums across machines are plain, adaptive, secure, dp; got enclave"
    bare = Charter.checked(name="f", sites=("a", "b", "c"), training={"mask": "mean"})
    assert found["digest"] == bare.digest.hex()  # of machines without the package
