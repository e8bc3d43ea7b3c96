import importlib.util

import numpy as np
import pytest

from fedmmf.bench import peers, training
from fedmmf.config import Settings
from fedmmf.errors import SettingsError
from fedmmf.model import FedMMF

SETTINGS = Settings(mask="mean", solver="vb", factors=3, rounds=6, held_out=0.0)


def test_the_curve_ends_where_training_ends(small):
    train, test = small.split(0.2, seed=0)
    curve = training.learning_curve(train, test, SETTINGS)
    model = FedMMF(**SETTINGS.model_dump()).fit(train)
    assert curve.rmse[-1] == pytest.approx(model.evaluate(test)["rmse"], rel=1e-5)
    assert (np.diff(curve.seconds) > 0).all()
    assert 0 < curve.mask_seconds < curve.seconds[0]


def test_time_to_an_error_is_the_first_round_that_reaches_it():
    curve = training.Curve(np.array([1.0, 2.0, 3.0]), np.array([0.9, 0.8, 0.85]), 0.5)
    assert curve.seconds_to(0.9) == 1.0
    assert curve.seconds_to(0.82) == 2.0
    assert curve.seconds_to(0.7) is None


def test_without_peers_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SettingsError, match="make bench"):
        peers.installed()


def predict_the_mean(train):
    """The simplest peer there is; stands in where no real one is installed."""
    return lambda: lambda test: np.full(len(test), train.values.mean())


def test_a_comparison_reports_both_sides(small, monkeypatch):
    mean = peers.Peer("mean", "numpy", "the global mean", predict_the_mean)
    monkeypatch.setattr(peers, "installed", lambda: [mean])
    train, test = small.split(0.2, seed=0)
    report = training.compare(train, test, SETTINGS, repeats=2)
    (row,) = report.peers
    assert row.rmse == pytest.approx(np.sqrt(np.mean((test.values - train.values.mean()) ** 2)))
    assert row.our_seconds_to_that_rmse > 0
    assert row.times_faster == row.fit_seconds / row.our_seconds_to_that_rmse
    assert report.ours.rmse < row.rmse
    assert 0 < report.memory.share_of_bandwidth < 5


def test_an_error_that_ours_never_reaches_has_no_time(small, monkeypatch):
    oracle = peers.Peer("oracle", "numpy", "the truth", lambda train: lambda: lambda t: t.values)
    monkeypatch.setattr(peers, "installed", lambda: [oracle])
    train, test = small.split(0.2, seed=0)
    (row,) = training.compare(train, test, SETTINGS, repeats=1).peers
    assert (row.rmse, row.our_seconds_to_that_rmse, row.times_faster) == (0.0, None, None)


def test_a_cold_start_is_timed_in_a_process_of_its_own(small, tmp_path):
    file = tmp_path / "ratings.csv"
    small.to_frame().write_csv(file)
    assert training.cold_seconds(str(file), 0.2, SETTINGS) > 0


@pytest.mark.parametrize("peer", peers.PEERS, ids=lambda peer: peer.name)
def test_a_real_peer_fits_and_predicts(small, peer):
    pytest.importorskip(peer.package, reason=f"{peer.package} is an optional peer")
    train, test = small.split(0.2, seed=0)
    assert peers.measure(peer, train, test).rmse < 1.4
