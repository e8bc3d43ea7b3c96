"""The readable reference (parties, coordinator, bytes) against the kernels, on real ratings."""

from dataclasses import fields

import numpy as np
import pytest

from fedmmf import coordinator, simulation, training, wire
from fedmmf.config import Settings
from fedmmf.coordinator import Remote, Server
from fedmmf.errors import DivergenceError, WireError
from fedmmf.model import FedMMF
from fedmmf.party import Party
from fedmmf.transport import InProcess


def make_parties(ratings, settings, held_out=None):
    features = simulation.feature_matrix(ratings)
    parties = {}
    for user, (begin, end) in enumerate(
        zip(ratings.by_user[:-1], ratings.by_user[1:], strict=True)
    ):
        mine = slice(begin, end)
        parties[f"{user:06}"] = Party(
            ratings.item_codes[mine],
            ratings.values[mine],
            ratings.scale,
            features,
            mask=settings.mask,
            mask_strength=settings.mask_strength,
            cross_fit=settings.cross_fit,
            folds=settings.folds,
            held_out=None if held_out is None else held_out[mine],
            stream=simulation.mask_stream(settings.seed, ratings.user_ids[user]),
        )
    return parties


def train_reference(ratings, settings):
    """Everything through bytes: what a federation does."""
    parties = make_parties(ratings, settings, simulation.choose_held_out(ratings, settings))
    transport = InProcess(parties)
    remote = Remote(transport, sorted(parties))
    remote.join()
    server = simulation.make_server(ratings, settings)
    coordinator.run(server, remote)
    return server, parties, transport


@pytest.mark.parametrize("step", ["sum", "mean", "adam"])
@pytest.mark.parametrize("mask", ["none", "lr"])
def test_kernels_and_reference_agree_on_ml_100k(ml_100k, step, mask):
    settings = Settings(mask=mask, step=step, rounds=6, factors=8)
    server, parties, _ = train_reference(ml_100k, settings)
    trained = training.train(ml_100k, settings)
    np.testing.assert_allclose(
        trained.server.item_factors, server.item_factors, rtol=1e-4, atol=1e-6
    )
    user_factors = np.stack([party.user_factors for party in parties.values()])
    np.testing.assert_allclose(trained.user_factors, user_factors, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(trained.server.stop.history, server.stop.history, rtol=1e-5)


@pytest.mark.parametrize("mask", ["mean", "fm", "nn"])
@pytest.mark.parametrize("cross_fit", [False, True])
def test_kernels_and_reference_agree_with_early_stopping(small, mask, cross_fit):
    settings = Settings(
        mask=mask, cross_fit=cross_fit, rounds=90, factors=4, patience=3, held_out=0.2
    )
    server, parties, _ = train_reference(small, settings)
    trained = training.train(small, settings)
    assert trained.server.round == server.round < 90
    assert trained.server.stop.best_round == server.stop.best_round > 0
    np.testing.assert_allclose(
        trained.server.item_factors, server.item_factors, rtol=1e-4, atol=1e-5
    )
    user_factors = np.stack([party.user_factors for party in parties.values()])
    np.testing.assert_allclose(trained.user_factors, user_factors, rtol=1e-4, atol=1e-5)


def test_parties_predict_what_the_model_predicts(small):
    settings = Settings(mask="lr", rounds=10, factors=4)
    _, parties, _ = train_reference(small, settings)
    model = FedMMF(**settings.model_dump()).fit(small)
    for user in (0, 31):
        expected = model.predict(np.full(5, small.user_ids[user]), small.item_ids[:5])
        np.testing.assert_allclose(parties[f"{user:06}"].predict(np.arange(5)), expected, rtol=1e-4)


def test_reported_traffic_is_what_crosses_the_wire(small):
    settings = Settings(mask="mean", rounds=1, factors=4, held_out=0.1)
    parties = make_parties(small, settings, simulation.choose_held_out(small, settings))
    transport = InProcess(parties)
    server = simulation.make_server(small, settings)
    server.advance(Remote(transport, sorted(parties)).sums(server.next_message()))
    traffic = FedMMF(**settings.model_dump()).fit(small).traffic()
    n = small.n_users
    assert traffic["down_bytes_per_user_round"] == transport.bytes_down / n
    assert traffic["up_bytes_per_user_round"] == pytest.approx(transport.bytes_up / n, abs=0.1)


def test_a_party_that_does_not_answer_is_left_out(small):
    settings = Settings(mask="mean", rounds=2, factors=4, held_out=0.0)
    parties = make_parties(small, settings)

    class Lossy(InProcess):
        def exchange(self, stage, messages, timeout):
            replies = super().exchange(stage, messages, timeout)
            replies.pop("000003", None)
            return replies

    remote = Remote(Lossy(parties), sorted(parties))
    server = simulation.make_server(small, settings)
    sums = remote.sums(server.next_message())
    others = small.select(small.user_codes != 3)
    assert np.array_equal(sums.n_raters, np.diff(others.by_item.indptr))
    remote.join()
    assert "000003" not in remote.parties


class Sends:
    """A party that answers every round with the same bytes."""

    def __init__(self, data):
        self._data = data

    def answer(self, message):
        return self._data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "needs at least"),
        (b"x" * 100, "must begin with"),
        (
            wire.Update(1, np.array([999], np.int32), np.zeros((1, 4), np.float32)).encode(),
            "within",
        ),
        (wire.Update(1, np.zeros(0, np.int32), np.zeros((0, 5), np.float32)).encode(), "4 factors"),
        (wire.Update(7, np.zeros(0, np.int32), np.zeros((0, 4), np.float32)).encode(), "round 7"),
    ],
)
def test_a_bad_message_names_its_sender(small, data, reason):
    settings = Settings(mask="mean", factors=4)
    server = simulation.make_server(small, settings)
    remote = Remote(InProcess({"mallory": Sends(data)}), ["mallory"])
    before = server.q.value.copy()
    with pytest.raises(WireError, match=reason) as caught:
        server.advance(remote.sums(server.next_message()))
    assert "'mallory'" in str(caught.value)
    assert np.array_equal(before, server.q.value)


def test_a_party_refuses_what_it_does_not_understand(small):
    party = make_parties(small, Settings(mask="mean"))["000000"]
    other = Server(coordinator.make_plan(Settings(), 4.0, 10.0), Settings(), 3, 0.0)
    with pytest.raises(WireError, match="catalogue must have 90 items; got 3"):
        party.answer(other.next_message().encode())
    with pytest.raises(WireError, match="answers Join and Round"):
        party.answer(wire.Joined(3).encode())


def test_divergence_is_an_error_that_says_what_to_do(small):
    settings = Settings(mask="none", step="sum", learning_rate=5.0, held_out=0.0)
    with pytest.raises(DivergenceError, match="Lower the learning rate or use --step adam"):
        training.train(small, settings)


def test_nothing_private_is_in_an_update():
    """The fields of what leaves a party are these and no others."""
    update = [field.name for field in fields(wire.Update)]
    assert update == ["round", "items", "gradients", "n_held_out", "squared_error"]
    assert [field.name for field in fields(wire.Joined)] == ["n_ratings"]
