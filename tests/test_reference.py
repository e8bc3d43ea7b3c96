"""The readable reference (parties, coordinator, bytes) against the kernels, on real ratings."""

from dataclasses import fields

import numpy as np
import pytest

from fedmmf import coordinator, simulation, training, wire
from fedmmf.aggregation.plain import Plain
from fedmmf.config import Settings
from fedmmf.errors import DivergenceError, WireError
from fedmmf.factorization.contract import Public
from fedmmf.federation import make_parties
from fedmmf.model import FedMMF
from fedmmf.transport import InProcess


def train_reference(ratings, settings):
    """Everything through bytes: what a federation does."""
    held_out = simulation.choose_held_out(ratings, settings)
    parties = make_parties(ratings, settings, held_out if held_out.any() else None)
    transport = InProcess(parties)
    remote = Plain(transport, sorted(parties))
    remote.join()
    server = simulation.make_server(ratings, settings)
    coordinator.run(server, remote)
    return server, parties, transport


def assert_same(server, parties, trained, atol):
    (member,) = trained.members
    np.testing.assert_allclose(
        member.public.item_rows, server.result.item_rows, rtol=1e-4, atol=atol
    )
    np.testing.assert_allclose(member.public.parameters, server.result.parameters, rtol=1e-5)
    user_factors = np.stack([party.user_factors for party in parties.values()])
    np.testing.assert_allclose(member.user_factors, user_factors, rtol=1e-4, atol=atol)
    np.testing.assert_allclose(member.history, server.history, rtol=1e-5)
    assert member.best_round == server.best_round or server.best_round == 0


@pytest.mark.parametrize("step", ["sum", "mean", "adam"])
@pytest.mark.parametrize("mask", ["none", "lr"])
def test_sgd_kernels_and_reference_agree_on_ml_100k(ml_100k, step, mask):
    settings = Settings(sharing="plain", mask=mask, step=step, rounds=6, factors=8)
    server, parties, _ = train_reference(ml_100k, settings)
    assert_same(server, parties, training.train(ml_100k, settings), atol=1e-6)


@pytest.mark.parametrize("mask", ["none", "mean", "lr"])
def test_vb_kernels_and_reference_agree_on_ml_100k(ml_100k, mask):
    settings = Settings(sharing="plain", mask=mask, solver="vb", rounds=8, factors=5)
    server, parties, _ = train_reference(ml_100k, settings)
    assert_same(server, parties, training.train(ml_100k, settings), atol=1e-4)


@pytest.mark.parametrize("mask", ["mean", "fm", "nn"])
@pytest.mark.parametrize("solver", ["sgd", "vb"])
@pytest.mark.parametrize("cross_fit", [False, True])
def test_kernels_and_reference_agree_with_early_stopping(small, mask, cross_fit, solver):
    settings = Settings(
        sharing="plain",
        mask=mask,
        solver=solver,
        cross_fit=cross_fit,
        rounds=90,
        factors=4,
        patience=3,
        held_out=0.2,
    )
    server, parties, _ = train_reference(small, settings)
    trained = training.train(small, settings)
    assert 0 < server.best_round < server.round < 90
    assert_same(server, parties, trained, atol=1e-4 if solver == "vb" else 1e-5)


def test_biases_agree(small):
    settings = Settings(sharing="plain", mask="none", biases=True, rounds=20, factors=4)
    server, parties, _ = train_reference(small, settings)
    assert_same(server, parties, training.train(small, settings), atol=1e-5)


def test_a_survey_gives_item_counts_and_means(small):
    settings = Settings(sharing="plain", mask="mean", held_out=0.0)
    parties = make_parties(small, settings)
    sums = Plain(InProcess(parties), sorted(parties)).survey(small.n_items, with_ratings=True)
    expected = simulation.survey(small)
    assert np.array_equal(sums.n_raters, expected.n_raters)
    np.testing.assert_allclose(sums.rows, expected.rows, atol=1e-5)
    statistics = simulation.statistics_features(sums)
    means = [small.values[small.item_codes == i].mean() for i in (0, 5)]
    assert (statistics[0, 0] < statistics[5, 0]) == (means[0] < means[1])


def test_item_statistics_leave_held_out_ratings_alone(small):
    settings = Settings(
        sharing="plain", mask="lr", item_statistics=True, rounds=3, factors=3, held_out=0.2
    )
    server, parties, _ = train_reference(small, settings)
    assert_same(server, parties, training.train(small, settings), atol=1e-5)


def test_parties_predict_what_the_model_predicts(small):
    settings = Settings(sharing="plain", mask="lr", rounds=10, factors=4)
    _, parties, _ = train_reference(small, settings)
    model = FedMMF(**settings.model_dump()).fit(small)
    for user in (0, 31):
        expected = model.predict(np.full(5, small.user_ids[user]), small.item_ids[:5])
        np.testing.assert_allclose(parties[f"{user:06}"].predict(np.arange(5)), expected, rtol=1e-4)


def test_a_party_that_does_not_answer_is_left_out(small):
    settings = Settings(sharing="plain", mask="mean", rounds=2, factors=4, held_out=0.0)
    parties = make_parties(small, settings)

    class Lossy(InProcess):
        def exchange(self, stage, messages, timeout):
            replies = super().exchange(stage, messages, timeout)
            replies.pop("000003", None)
            return replies

    remote = Plain(Lossy(parties), sorted(parties))
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


def update(round_, items, width, totals=2):
    rows = np.zeros((len(items), width), np.float32)
    return wire.Update(round_, np.array(items, np.int32), rows, np.zeros(totals)).encode()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "needs at least"),
        (b"x" * 100, "must begin with"),
        (update(1, [999], 4), "within"),
        (update(1, [], 5), r"must have \(width, totals\) \(4, 2\); got \(5, 2\)"),
        (update(1, [], 4, totals=3), r"got \(4, 3\)"),
        (update(7, [], 4), "round 7"),
    ],
)
def test_a_bad_message_names_its_sender(small, data, reason):
    server = simulation.make_server(small, Settings(sharing="plain", mask="mean", factors=4))
    remote = Plain(InProcess({"mallory": Sends(data)}), ["mallory"])
    before = server.result.item_rows.copy()
    message = server.next_message()
    with pytest.raises(WireError, match=reason) as caught:
        server.advance(message, remote.sums(message))
    assert "'mallory'" in str(caught.value)
    assert np.array_equal(before, server.result.item_rows)


def test_a_party_refuses_what_it_does_not_understand(small):
    party = make_parties(small, Settings(sharing="plain", mask="mean"))["000000"]
    public = Public(2, np.zeros(5), np.zeros((3, 2), np.float32))
    with pytest.raises(WireError, match="catalogue must have 90 items; got 3"):
        party.answer(wire.Round(1, 0, False, "sgd", public).encode())
    with pytest.raises(WireError, match="does not answer messages of kind 2"):
        party.answer(wire.Joined(in_clear=True).encode())


@pytest.mark.parametrize("solver", ["sgd", "vb"])
def test_a_party_continues_from_its_own_checkpoint(small, solver):
    settings = Settings(sharing="plain", mask="mean", solver=solver, factors=3, held_out=0.0)
    messages = []
    server = simulation.make_server(small, settings)
    parties = make_parties(small, settings)
    remote = Plain(InProcess(parties), sorted(parties))
    for _ in range(3):
        messages.append(server.next_message())
        server.advance(messages[-1], remote.sums(messages[-1]))
    whole, torn, again = (make_parties(small, settings)["000007"] for _ in range(3))
    for message in messages[:2]:
        whole.answer(message.encode())
        torn.answer(message.encode())
    again.restore(solver, torn.state())
    last = messages[2].encode()
    assert again.answer(last) == whole.answer(last)


def test_divergence_is_an_error_that_says_what_to_do(small):
    settings = Settings(sharing="plain", mask="none", step="sum", learning_rate=5.0, held_out=0.0)
    with pytest.raises(DivergenceError, match="Lower the learning rate or use --step adam"):
        training.train(small, settings)


def test_what_leaves_a_party_is_this():
    """The fields of what leaves a party are these and no others."""
    update = [field.name for field in fields(wire.Update)]
    assert update == ["round", "items", "rows", "totals"]
    assert [field.name for field in fields(wire.Joined)] == ["in_clear"]
