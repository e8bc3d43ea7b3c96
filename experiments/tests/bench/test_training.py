"""The rule of the comparison is held with tools that are made up; real peers where installed."""

import json
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from fedmmf.cli.app import app
from fedmmf.errors import SettingsError
from fedmmf.model import FedMMF
from fedmmf.model.evaluation import rmse
from fedmmf.settings import Settings
from fedmmf_experiments.bench import peers, training
from fedmmf_experiments.bench.peers import Tool

SETTINGS = Settings(mask="mean", solver="vb", sharing="plain", factors=3, rounds=6)
STEP = 1000.0


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only when a tool says so: `clock[0] += seconds`."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


@pytest.fixture
def parts(small):
    return small.split(0.2, seed=0)


def made_up(name, setting, clock, happened, seconds, guess=3.0):
    """A tool whose n-th fit takes the n-th of `seconds` and which guesses one number for all."""
    takes = iter(seconds)

    def prepare(train):
        happened.append((name, setting, "prepare"))
        clock[0] += STEP  # must be counted for nobody

        def fit():
            happened.append((name, setting, "fit"))
            clock[0] += next(takes)

            def predict(test):
                clock[0] += STEP  # nor this
                return np.full(len(test), guess)

            return predict

        return fit

    return Tool(name, "numpy", setting, f"{name} as {setting}", prepare)


def test_the_first_fit_of_everybody_is_not_timed_and_the_others_are_in_turn(parts, clock):
    happened = []
    tools = [
        made_up("us", "default", clock, happened, [500.0, 1.0, 4.0, 2.0]),
        made_up("peer", "default", clock, happened, [0.001, 6.0, 5.0, 30.0]),
    ]
    ours, peer = training.compare(tools, *parts, repeats=3)
    assert (ours.fit_seconds, peer.fit_seconds) == (2.0, 6.0)
    fits = [name for name, _, what in happened if what == "fit"]
    assert fits == ["us", "peer"] * 4


def test_a_peer_stands_beside_our_first_row_and_our_other_rows_beside_nothing(parts, clock):
    train, test = parts
    tools = [
        made_up("us", "default", clock, [], [9.0, 2.0], guess=3.0),
        made_up("us", "quick", clock, [], [9.0, 1.0], guess=2.0),
        made_up("peer", "default", clock, [], [9.0, 3.0], guess=4.0),
        made_up("peer", "tuned", clock, [], [9.0, 5.0], guess=np.nan),
    ]
    default, quick, peer, tuned = training.compare(tools, train, test, repeats=1)
    for row in (default, quick):
        assert (row.seconds_over_ours, row.rmse_minus_ours) == (None, None)
    assert (peer.seconds_over_ours, tuned.seconds_over_ours) == (1.5, 2.5)
    ours = rmse(test.values, np.full(len(test), 3.0))
    assert default.rmse == ours
    assert peer.rmse_minus_ours == rmse(test.values, np.full(len(test), 4.0)) - ours
    # What a tool cannot predict is the mean of what it was trained on.
    assert tuned.rmse == rmse(test.values, np.full(len(test), train.values.mean()))


def test_predictions_of_everybody_are_clipped_to_the_scale(parts, clock):
    tools = [made_up("us", "default", clock, [], [1.0, 1.0], guess=99.0)]
    (row,) = training.compare(tools, *parts, repeats=1)
    test = parts[1]
    assert row.rmse == rmse(test.values, np.full(len(test), test.scale.max))


def test_every_peer_is_there_as_it_comes_and_tuned():
    tools = training.all_tools(SETTINGS)
    assert [(tool.name, tool.setting) for tool in tools] == [
        ("fedmmf", "plain sums"),
        ("fedmmf", "quick"),
        ("cmfrec", "default"),
        ("cmfrec", "tuned"),
        ("LensKit", "default"),
        ("LensKit", "tuned"),
        ("Surprise", "default"),
        ("Surprise", "one setting"),
    ]
    assert len({tool.configuration for tool in tools}) == len(tools)
    assert tools[0].configuration == "vb, mask mean, 3 factors, 6 rounds"
    assert tools[1].configuration == "vb, mask mean, 10 factors, 8 rounds"


def test_ours_is_a_whole_training(parts):
    train, test = parts
    found = peers.measure(training.own("plain sums", SETTINGS), train, test)
    model = FedMMF(**SETTINGS.model_dump()).fit(train)
    assert found.rmse == pytest.approx(model.evaluate(test)["rmse"], rel=1e-12)
    assert model.learned.members[0].best_round == 6
    assert found.seconds > 0


def test_a_peer_that_cannot_be_imported_is_named_before_anything_is_fitted(parts, clock):
    happened = []
    there = made_up("us", "default", clock, happened, [1.0])
    missing = Tool("gone", "no_such_package", "default", "", there.prepare)
    with pytest.raises(SettingsError, match=r"no_such_package.*make bench"):
        training.compare([there, missing], *parts, repeats=1)
    assert happened == []


def test_a_round_reads_its_items_twice(parts):
    train, _ = parts
    found = training.memory_speed(train, SETTINGS)
    numbers_per_item = 3 + 1  # factors, and the item's own level
    assert found.round_gb == pytest.approx(2 * len(train) * 4 * numbers_per_item / 1e9)
    assert found.round_gb_per_s == pytest.approx(found.round_gb / found.round_seconds)
    assert found.share_of_bandwidth == pytest.approx(found.round_gb_per_s / found.machine_gb_per_s)


@pytest.fixture
def ratings_file(small, tmp_path):
    path = tmp_path / "ratings.csv"
    small.to_frame().write_csv(path)
    return str(path)


def test_a_cold_start_is_timed_in_a_process_of_its_own(ratings_file):
    assert training.cold_seconds(ratings_file, 0.2, SETTINGS) > 0


def test_the_command_prints_every_row(ratings_file, monkeypatch):
    def predict_the_mean(train):
        return lambda: lambda test: np.full(len(test), train.values.mean())

    mean = Tool("mean", "numpy", "default", "the global mean", predict_the_mean)
    monkeypatch.setattr(training, "PEERS", (mean,))
    monkeypatch.setattr(training, "cold_seconds", lambda *about: 12.3)
    options = ["bench", "training", "--data", ratings_file, "--repeats", "1"]
    text = CliRunner().invoke(app, options, catch_exceptions=False).stdout
    titles, _, *lines = (line.strip("| ").split(" | ") for line in text.splitlines()[:5])
    assert titles == ["tool", "setting", "RMSE", "fit s", "its s / ours", "its RMSE - ours"]
    assert [line[1] for line in lines] == [
        "plain sums: vb, mask mean, 20 factors, 22 rounds",
        "quick: vb, mask mean, 10 factors, 8 rounds",
        "default: the global mean",
    ]
    assert [line[4] == "-" for line in lines] == [True, True, False]
    assert "12.3 s for everything" in " ".join(text.split())
    found = json.loads(CliRunner().invoke(app, [*options, "--json"]).stdout)
    ours, _, peer = found["rows"]
    assert peer["rmse_minus_ours"] == pytest.approx(peer["rmse"] - ours["rmse"])
    assert found["cold_seconds"] == 12.3


@pytest.mark.parametrize("peer", peers.PEERS, ids=lambda peer: f"{peer.name}-{peer.setting}")
def test_a_real_peer_fits_and_predicts(parts, peer):
    pytest.importorskip(peer.package, reason=f"{peer.package} is an optional peer")
    assert peers.measure(peer, *parts).rmse < 1.4
