import json
import subprocess
import sys
from importlib import metadata

import pytest
from typer.testing import CliRunner

from fedmmf.cli.app import app
from fedmmf.errors import SettingsError
from fedmmf.secagg import PRIME61, RING32, PolicyError, least_threshold
from fedmmf.secagg.framing import HEADER_BYTES
from fedmmf_experiments.bench import secagg, secagg_round

SIZES = ["--clients", "12", "--length", "200", "--neighbours", "6", "--drop", "0.17"]


@pytest.fixture(autouse=True)
def _a_small_reference_case(monkeypatch):
    monkeypatch.setattr(secagg, "_LARGE", (1000, 10))


@pytest.fixture
def without_flower(monkeypatch):
    def version(package):
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "version", version)


def run(*arguments):
    return CliRunner().invoke(app, ["bench", "secagg", *arguments])


def fail(*arguments):
    """Run in a process of its own, as errors become messages outside of the commands."""
    command = [sys.executable, "-m", "fedmmf", "bench", "secagg", "--no-flower", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_json_has_all_figures_and_nothing_else_is_printed(without_flower):
    done = run(*SIZES, "--json", "--seed", "3")
    report = json.loads(done.stdout)
    assert done.exit_code == 0
    assert report["exact"] is True
    assert (report["clients"], report["length"], report["neighbours"]) == (12, 200, 6)
    assert (report["dropped"], report["threshold"], report["ring"]) == (2, 4, "2^32")
    for name in ("server_cpu_s", "client_cpu_s", "seconds", "shamir_share_s", "shamir_combine_s"):
        assert report[name] > 0
    assert report["aes_limit_ratio"] > 0
    assert report["aes_limit_ratio_1e6_x_100"] > 0
    assert report["shamir_threshold"] == least_threshold(12)
    assert report["up_bytes_per_party"] == sum(report["up_bytes"].values()) > 4 * 200
    assert report["down_bytes_per_party"] == sum(report["down_bytes"].values()) > 0


def test_without_flower_it_says_how_to_install_it(without_flower):
    done = run(*SIZES, "--json")
    report = json.loads(done.stdout)
    assert report["flower"] is None
    assert report["times_below_flower"] is None
    assert "./experiments[bench-secagg]" in done.stderr


def test_flower_that_was_asked_for_must_be_there(without_flower):
    done = run(*SIZES, "--flower")
    assert isinstance(done.exception, SettingsError)
    assert secagg.FLOWER_VERSION in str(done.exception)


def test_another_version_of_flower_is_not_driven(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda package: "1.0.0")
    assert not secagg.has_flower()


def test_a_large_cohort_leaves_flower_out_and_says_so(monkeypatch):
    monkeypatch.setattr(secagg, "has_flower", lambda: True)
    monkeypatch.setattr(secagg, "FLOWER_CLIENTS", 11)
    done = run(*SIZES, "--json")
    assert json.loads(done.stdout)["flower"] is None
    assert "--flower runs it" in done.stderr


def test_the_table_names_both_sides(without_flower):
    done = run(*SIZES)
    assert "Our sum is exact" in done.stdout
    assert f"Flower {secagg.FLOWER_VERSION}" in done.stdout


def test_neighbours_are_found_where_none_are_given():
    report = secagg.compare(40, 10, None, 0.1, flower=False)
    assert report["exact"]
    assert report["neighbours"] < 39
    assert report["threshold"] >= least_threshold(report["neighbours"] + 1)


MISTAKES = [
    (["--clients", "2"], "'--clients'"),
    (["--length", "0"], "'--length'"),
    (["--clients", "10", "--neighbours", "10"], "neighbours must be in [2, 9]; got 10"),
    (["--clients", "9", "--neighbours", "5"], "neighbours must be even"),
    (["--drop", "1"], "drop must be in [0, 1); got 1"),
    (["--drop", "-0.1"], "drop must be in [0, 1); got -0.1"),
    (["--clients", "9", "--neighbours", "8", "--drop", "0.6"], "a smaller drop"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=lambda value: str(value)[:40])
def test_a_mistake_is_explained_without_a_traceback(arguments, message):
    done = fail("--length", "10", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_thresholds_below_half_of_the_holders_are_refused():
    with pytest.raises(PolicyError, match="exceed 1/2"):
        secagg_round.measure(10, 5, 9, threshold=3)


@pytest.mark.parametrize("ring", [RING32, PRIME61], ids=lambda ring: ring.name)
def test_a_round_is_measured(ring):
    found = secagg_round.measure(12, 500, 6, 0.17, ring)
    assert found["exact"]
    assert found["dropped"] == 2
    assert found["up_bytes"]["masked input"] == 500 * ring.width + HEADER_BYTES
    assert found["client_cpu_s"] > 0


@pytest.fixture
def flower(monkeypatch):
    if not secagg.has_flower():
        pytest.skip(f"flwr {secagg.FLOWER_VERSION} is an optional peer")
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    from fedmmf_experiments.bench import flower

    return flower


QUANTUM = 16 / 2**22  # Flower's clipping range, both signs, over its quantization range


@pytest.mark.parametrize("neighbours", [4, 5, 9])
def test_flowers_mean_is_that_of_the_survivors(flower, neighbours):
    answers = []
    report = flower.measure(10, 50, neighbours, {0, 5}, answers.append)
    assert report["max_error"] < QUANTUM
    assert answers[-1] == 10 + 10 + 8 + 8
    assert report["server_cpu_s"] > 0
    assert report["client_cpu_s"] > 0


def test_flower_that_gives_up_has_no_error_to_show(flower):
    report = flower.measure(10, 50, 9, set(range(6)))
    assert report["max_error"] is None


def test_flower_stands_beside_ours(flower):
    report = json.loads(run(*SIZES, "--json").stdout)
    theirs, times = report["flower"], report["times_below_flower"]
    assert times["server"] == theirs["server_cpu_s"] / report["server_cpu_s"]
    assert times["client"] == theirs["client_cpu_s"] / report["client_cpu_s"]
    assert times["shamir_share"] == theirs["shamir_share_s"] / report["shamir_share_s"]
    assert times["shamir_combine"] == theirs["shamir_combine_s"] / report["shamir_combine_s"]


def test_a_round_flower_gave_up_is_not_compared():
    figures = dict.fromkeys(
        ("server_cpu_s", "client_cpu_s", "shamir_share_s", "shamir_combine_s"), 2.0
    )
    times = secagg.ratios(figures, {**figures, "max_error": None})
    assert times == {"server": None, "client": None, "shamir_share": 1.0, "shamir_combine": 1.0}
