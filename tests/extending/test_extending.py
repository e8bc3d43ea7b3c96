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
        ("transports", "threads", 4),
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
