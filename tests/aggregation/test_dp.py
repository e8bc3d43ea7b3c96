"""Differential privacy: bounded updates, noise of the right size, epsilon from dp-accounting."""

import numpy as np
import pytest

from fedmmf import federation, simulation, training, wire
from fedmmf.aggregation import accounting
from fedmmf.aggregation.dp import Guarantee, clipped, counted_on, gaussian
from fedmmf.config import Settings
from fedmmf.errors import SettingsError, WireError
from fedmmf.federation import make_participants, make_parties
from fedmmf.groups import guarantee_of
from fedmmf.secagg import BelowThresholdError
from fedmmf.transport import InProcess

pytest.importorskip("dp_accounting", reason="dp-accounting is the extra `dp`")

DP = Settings(mask="mean", aggregation="dp", factors=3, rounds=4, step="sum")


def test_rows_are_shrunk_together_and_short_ones_left_alone():
    rows = np.array([[3.0, 0.0], [0.0, 4.0]])
    np.testing.assert_allclose(clipped(rows, 1.0), rows / 5)
    np.testing.assert_allclose(clipped(rows, 10.0), rows)
    assert not clipped(np.zeros((2, 2)), 1.0).any()


def test_noise_is_gaussian():
    values = gaussian(200_001)
    assert len(values) == 200_001
    assert abs(values.mean()) < 0.02
    assert values.std() == pytest.approx(1.0, abs=0.02)
    assert np.mean(values**4) == pytest.approx(3.0, abs=0.15)
    assert np.corrcoef(values[:100_000], values[100_001:])[0, 1] == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize(("epsilon", "rounds"), [(1.0, 1), (1.0, 20), (8.0, 50)])
def test_calibrated_noise_costs_what_the_accountant_says(epsilon, rounds):
    noise = accounting.multiplier(epsilon, rounds, 1e-5)
    assert accounting.epsilon(noise, rounds, 1e-5) == pytest.approx(epsilon, rel=1e-3)
    assert accounting.epsilon(0.9 * noise, rounds, 1e-5) > 1.05 * epsilon


def test_an_update_covers_the_catalogue_and_shows_no_totals():
    update = wire.Update(
        3, np.array([1, 4], np.int32), np.ones((2, 5), np.float32), np.array([7.0, 2.0])
    )
    protected = Guarantee(1.0, 0.5, "local", 1).protect(update, n_items=400, n_parties=1)
    assert np.array_equal(protected.items, np.arange(400))
    assert not protected.totals.any()
    assert protected.round == 3
    assert protected.rows[10:].std() == pytest.approx(1.0, abs=0.1)  # 2 clip multiplier


def test_parts_of_noise_add_up_to_what_the_sum_needs():
    guarantee = Guarantee(2.0, 3.0, "distributed", 1)
    n = 100
    of_survivors = guarantee.noise_std(n) * np.sqrt(counted_on(n))
    assert of_survivors == pytest.approx(2.0 * 3.0)


@pytest.mark.parametrize("noise", ["local", "distributed"])
def test_a_sum_is_the_clipped_sum_with_that_much_noise(small, noise):
    settings = DP.changed(dp_noise=noise, dp_clip=2.0)
    parties = make_parties(small, settings)
    participants = make_participants(parties, InProcess(parties), settings, small.scale.span)
    message = simulation.make_server(small, settings).next_message()
    sums = participants.sums(message)
    twins = make_parties(small, settings.changed(aggregation="secure", sharing="plain"))
    n_items, width = message.public.item_rows.shape
    expected = np.zeros((n_items, width))
    for twin in twins.values():
        data = twin.answer(message.encode())
        update = wire.Update.decode(data, n_items=n_items, width=width, n_totals=2)
        expected[update.items] += clipped(update.rows, 2.0)
    guarantee = parties["000000"]._guarantee
    std = guarantee.noise_std(small.n_users) * np.sqrt(small.n_users)
    assert np.std(sums.rows - expected) == pytest.approx(std, rel=0.2)
    assert np.all(sums.n_raters == small.n_users)  # nobody's K_u shows
    assert not sums.totals.any()


def test_with_hardly_any_noise_training_ends_where_the_simulation_ends(small):
    settings = DP.changed(dp_epsilon=100.0, dp_delta=0.9, dp_clip=0.5, dp_noise="distributed")
    real = federation.train(small, settings).members[0].public.item_factors
    simulated = training.train(small, settings).members[0].public.item_factors
    start = simulation.make_server(small, settings).result.item_factors
    moved = np.abs(simulated - start).max()
    assert np.abs(real - simulated).max() < 0.1 * moved


def test_no_survey_without_noise(small):
    party = make_parties(small, DP)["000000"]
    with pytest.raises(WireError, match="a survey has none"):
        party._update(wire.Survey(with_ratings=False).encode(), n_parties=60)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"solver": "vb"}, "needs solver 'sgd'"),
        ({"step": "mean"}, "step 'sum' or 'adam'"),
        ({"held_out": 0.1}, "held_out 0"),
        ({"item_statistics": True}, "item_statistics"),
        ({"sharing": "plain"}, "needs sharing 'strict'"),
        ({"dp_epsilon": 0.0}, "dp_epsilon"),
    ],
)
def test_settings_that_would_break_the_guarantee_are_refused(changes, reason):
    with pytest.raises(SettingsError, match=reason):
        DP.changed(**changes)


def test_every_run_of_an_ensemble_is_paid_for():
    one, five = (guarantee_of(DP.changed(ensemble=n)) for n in (1, 5))
    assert five.multiplier == pytest.approx(one.multiplier * np.sqrt(5))
    spent = accounting.epsilon(five.multiplier, 5 * DP.max_rounds, DP.dp_delta)
    assert spent == pytest.approx(DP.dp_epsilon, rel=1e-3)


@pytest.mark.parametrize("noise", ["local", "distributed"])
def test_a_party_stops_when_its_budget_is_spent(small, noise):
    settings = DP.changed(dp_noise=noise, rounds=2)
    parties = make_parties(small, settings)
    participants = make_participants(parties, InProcess(parties), settings, small.scale.span)
    message = simulation.make_server(small, settings).next_message()
    for _ in range(2):
        participants.sums(message)
    with pytest.raises(WireError, match="budget, 2 rounds, is spent"):
        participants.sums(message)


def test_no_sum_with_less_noise_than_was_accounted_for(small):
    parties = make_parties(small, DP)

    class Lossy(InProcess):
        lost = 0

        def exchange(self, stage, messages, timeout):
            replies = super().exchange(stage, messages, timeout)
            gone = sorted(messages)[: self.lost] if stage == "trip 1" else ()
            return {name: data for name, data in replies.items() if name not in gone}

    transport = Lossy(parties)
    participants = make_participants(parties, transport, DP, small.scale.span)
    message = simulation.make_server(small, DP).next_message()
    transport.lost = 3  # 57 of 60 is 95 %
    participants.sums(message)
    transport.lost = 4
    with pytest.raises(BelowThresholdError):
        participants.sums(message)


def test_a_party_refuses_sums_that_may_end_with_less(small):
    party = make_parties(small, DP)["000000"]
    few = wire.SecureSetup(b"s" * 16, b"g" * 32, 0, 60, 31, 0, "sgd", 90, 3, 2, 16.0, 1e4, 3)
    with pytest.raises(WireError, match="at least 57 of 60; the server's minimum is 3"):
        party.answer(few.encode())


def test_the_runs_of_an_ensemble_have_noise_of_their_own(small):
    settings = DP.changed(ensemble=2, rounds=1, learning_rate=1.0)
    starts = [simulation.make_server(small, settings, n).result.item_factors for n in range(2)]
    members = training.train(small, settings).members
    moved = [m.public.item_factors - start for m, start in zip(members, starts, strict=True)]
    assert abs(np.corrcoef(moved[0].ravel(), moved[1].ravel())[0, 1]) < 0.5
