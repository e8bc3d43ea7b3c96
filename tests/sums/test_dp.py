"""Differential privacy: bounded updates, noise of the right size, epsilon from dp-accounting."""

from dataclasses import replace

import numpy as np
import pytest
from federations import federation_of, settings_of

from fedmmf.engines.contract import Cohort
from fedmmf.errors import SettingsError, WireError
from fedmmf.party import Policy
from fedmmf.secagg import RING32, BelowThresholdError, FixedPoint
from fedmmf.simulation import prepare, train
from fedmmf.simulation.federation import make_parties, train_real
from fedmmf.sums.dp import accounting
from fedmmf.sums.dp.guarantee import (
    Guarantee,
    counted_on,
    gaussian,
    guarantee_of,
    least_survivors,
)
from fedmmf.sums.secure.messages import SecureAgreed, SecureSetup
from fedmmf.transports.wrappers import Faulty, Recorded
from fedmmf.wire import Ask, Joined, Refused, Survey, Update, name_of, parcel, read

pytest.importorskip("dp_accounting", reason="dp-accounting is the extra `dp`")

LOCAL, DISTRIBUTED = "dp local", "dp distributed"
both = pytest.mark.parametrize("variant", [LOCAL, DISTRIBUTED])


def begun(ratings, settings, wrap=lambda transport: transport):
    """A federation that is ready for its rounds, and the server's side of it."""
    federation = federation_of(ratings, settings, wrap)
    federation.prepare_sums()
    return federation, federation.server.side


def party_of(run, **policy):
    """A party whose owner says something else than the settings, not invited yet."""
    party = make_parties(run.ratings, run.settings, run.is_held_out, run.features)["000000"]
    party.policy = replace(party.policy, **policy)
    return party


def joined(run, **policy):
    party = party_of(run, **policy)
    read(party.answer(run.plan.invitation().encode()), (Joined,))
    return party


def asked(party, frame):
    """What a party says to a publication in the clear."""
    return read(party.answer(parcel(Ask(name_of(frame)), frame)), (Update, Refused))


# The arithmetic


def test_rows_are_shrunk_together_and_short_ones_left_alone():
    rows = np.array([[3.0, 0.0], [0.0, 4.0]])
    np.testing.assert_allclose(Cohort(clip=1.0).clipped(rows), rows / 5)
    np.testing.assert_allclose(Cohort(clip=10.0).clipped(rows), rows)
    assert np.array_equal(Cohort().clipped(rows), rows)
    assert not Cohort(clip=1.0).clipped(np.zeros((2, 2))).any()
    huge = Cohort(clip=1.0).clipped(np.full((1, 2), 3e38, np.float32))
    assert np.linalg.norm(huge) == pytest.approx(1.0)


def test_noise_is_gaussian():
    values = gaussian(200_001)
    assert len(values) == 200_001
    assert abs(values.mean()) < 0.02
    assert values.std() == pytest.approx(1.0, abs=0.02)
    assert np.mean(values**4) == pytest.approx(3.0, abs=0.15)
    assert np.corrcoef(values[:100_000], values[100_001:])[0, 1] == pytest.approx(0, abs=0.02)


def test_noise_comes_from_the_operating_system_unless_a_test_says_otherwise():
    assert not np.array_equal(gaussian(4), gaussian(4))
    known = Guarantee(1.0, 1.0, "local", 1, entropy=bytes)
    rows = np.zeros((3, 2), np.float32)
    assert np.array_equal(known.add(rows, 1), known.add(rows, 1))


@pytest.mark.parametrize(("epsilon", "rounds"), [(1.0, 1), (1.0, 20), (8.0, 50)])
def test_calibrated_noise_costs_what_the_accountant_says(epsilon, rounds):
    noise = accounting.multiplier(epsilon, rounds, 1e-5)
    assert accounting.epsilon(noise, rounds, 1e-5) == pytest.approx(epsilon, rel=1e-3)
    assert accounting.epsilon(0.9 * noise, rounds, 1e-5) > 1.05 * epsilon


def test_noise_is_as_large_as_the_sensitivity_calls_for():
    assert Guarantee(2.0, 3.0, "local", 1).noise_std(60) == pytest.approx(2 * 2.0 * 3.0)
    shared = Guarantee(2.0, 3.0, "distributed", 1)
    assert shared.noise_std(1) == pytest.approx(2.0 * 3.0)
    rows = np.full((500, 40), 7.0, np.float32)
    for guarantee in (Guarantee(2.0, 3.0, "local", 1), shared):
        noise = guarantee.add(rows, 60) - rows
        assert noise.std() == pytest.approx(guarantee.noise_std(60), rel=0.05)
        assert abs(noise.mean()) < 0.05 * guarantee.noise_std(60)


def test_parts_of_noise_add_up_to_what_the_sum_needs():
    """Of those who are counted on, which are fewer than have to stay."""
    guarantee = Guarantee(2.0, 3.0, "distributed", 1)
    for n in (2, 3, 10, 19, 100, 943):
        of_survivors = guarantee.noise_std(n) * np.sqrt(counted_on(n))
        assert of_survivors == pytest.approx(2.0 * 3.0)
        assert 0.9 * n <= counted_on(n) <= least_survivors(n) <= n


def test_fixed_point_has_room_for_a_clipped_update_and_its_noise():
    for noise in ("local", "distributed"):
        guarantee = Guarantee(0.5, 2.0, noise, 1)
        bounds = guarantee.bounds(60)
        assert bounds.row == pytest.approx(0.5 + 12 * guarantee.noise_std(60))


def test_a_sum_that_might_end_with_less_noise_is_none():
    shared = Guarantee(1.0, 1.0, "distributed", 1)
    shared.check_sum(60, 57)
    for n_parties, minimum in ((60, 56), (1, 1), (100, 94)):
        with pytest.raises(WireError, match="noise that parties share"):
            shared.check_sum(n_parties, minimum)
    Guarantee(1.0, 1.0, "local", 1).check_sum(1, 1)


# What leaves a party


def test_an_update_covers_the_catalogue_and_shows_no_totals(small):
    run = prepare(small, settings_of(LOCAL))
    noise = Guarantee(1.0, 0.5, "local", 1, entropy=bytes)
    update = asked(joined(run, noise=noise), run.coordinator().next_round().encode())
    assert np.array_equal(update.items, np.arange(small.n_items))
    assert len(update.counts) == 0  # one rater each, of everything
    assert not update.totals.any()
    assert update.round == 1
    unrated = ~np.isin(update.items, run.lists.items[run.lists.of(0)])
    assert update.rows[unrated].std() == pytest.approx(1.0, abs=0.15)  # 2 clip multiplier


def test_a_party_without_a_guarantee_has_no_part_in_it(small):
    for variant in (LOCAL, DISTRIBUTED):
        run = prepare(small, settings_of(variant))
        answer = party_of(run, noise=None).answer(run.plan.invitation().encode())
        assert "given no guarantee" in read(answer, (Refused,)).reason


@pytest.mark.parametrize("sharing", ["plain", "adaptive"])
def test_noise_that_parties_share_never_leaves_in_the_clear(small, sharing):
    """A part of the noise hides nobody on its own."""
    run = prepare(small, settings_of("plain", held_out=0.0))
    shared = Guarantee(1.0, 5.0, "distributed", 3)
    policy = Policy(sharing, threshold_j=1.0)
    party = joined(run, **{**vars(policy), "noise": shared})
    frame = run.coordinator().next_round().encode()
    assert "noise that parties share needs a sum" in asked(party, frame).reason
    own = joined(run, **{**vars(policy), "noise": replace(shared, noise="local")})
    assert isinstance(asked(own, frame), Update)


def test_no_survey_without_noise(small):
    run = prepare(small, settings_of(LOCAL))
    for with_ratings in (False, True):
        frame = Survey(with_ratings).encode()
        assert "a survey has none" in asked(joined(run), frame).reason
    federation, side = begun(small, settings_of(DISTRIBUTED))
    with pytest.raises(BelowThresholdError):
        side.survey(with_ratings=False)
    reasons = set(federation.server.roster.refused.values())
    assert len(federation.server.roster.refused) == small.n_users
    assert all("a survey has none" in reason for reason in reasons)


@both
def test_nobody_is_asked_for_a_survey(small, variant):
    federation = federation_of(small, settings_of(variant), Recorded)
    federation.run()
    stages = {seen.stage for seen in federation.transport.inner.seen}
    assert not {stage for stage in stages if "survey" in stage}


# Sums


def clipped_sums(ratings, settings, round_, first=0):
    """The obvious way: every user's rows shrunk together, and added; from some user on."""
    run, clip = prepare(ratings, settings), settings.dp_clip
    total = np.zeros(round_.item_rows.shape)
    for party in list(make_parties(ratings, settings, run.is_held_out).values())[first:]:
        party._users.begin(settings.solver, round_.rank)
        items = party._users.lists.items
        rows = party._users.update(round_.public, round_.round, Cohort()).rows[0][items]
        length = np.linalg.norm(rows.astype(np.float64))
        assert length > clip  # or the test would say nothing of clipping
        total[items] += rows * (clip / length)
    return total


@both
def test_a_sum_is_the_clipped_sum_with_that_much_noise(small, variant):
    settings = settings_of(variant, dp_clip=2.0)
    federation, side = begun(small, settings)
    round_ = federation.server.coordinator.next_round()
    sums = side.sums(round_)
    expected = clipped_sums(small, settings, round_)
    n = small.n_users
    std = guarantee_of(settings).noise_std(n) * np.sqrt(n)
    assert np.std(sums.rows - expected) == pytest.approx(std, rel=0.2)
    assert np.all(sums.n_raters == n)  # nobody's K_u shows
    assert not sums.totals.any()


@both
def test_without_noise_a_sum_is_the_clipped_sum(small, variant):
    """Each user's share is bounded exactly; what is left is fixed point."""
    settings = settings_of(variant, dp_clip=2.0)
    federation, side = begun(small, settings)
    for party in federation.parties.values():
        party._run.policy = replace(party.policy, noise=Silent(party.policy.noise))
    round_ = federation.server.coordinator.next_round()
    expected = clipped_sums(small, settings, round_)
    np.testing.assert_allclose(side.sums(round_).rows, expected, atol=1e-3)


class Silent:
    """A guarantee whose noise is left out."""

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def add(self, rows, n_parties):
        return rows


def test_with_hardly_any_noise_training_ends_where_the_simulation_ends(small):
    settings = settings_of(DISTRIBUTED, rounds=4, dp_epsilon=100.0, dp_delta=0.9, dp_clip=0.5)
    real = federation_of(small, settings).run().public.item_factors
    simulated = train(small, settings).members[0].public.item_factors
    start = prepare(small, settings).coordinator().result.item_factors
    moved = np.abs(simulated - start).max()
    assert np.abs(real - simulated).max() < 0.1 * moved


class Losing:
    """The first so many answers of one round are lost."""

    n_lost = 0

    def __call__(self, stage, name, data):
        return None if stage == "trip 1" and int(name) < self.n_lost else data


def test_no_sum_with_less_noise_than_was_accounted_for(small):
    losing = Losing()
    federation, side = begun(
        small, settings_of(DISTRIBUTED, rounds=9), lambda inner: Faulty(inner, up=losing)
    )
    coordinator = federation.server.coordinator
    losing.n_lost = 3  # 57 of 60 is 95 %
    round_ = coordinator.next_round()
    coordinator.advance(round_, side.sums(round_))
    assert len(side.survivors) == 57
    losing.n_lost = 4
    with pytest.raises(BelowThresholdError):
        side.sums(coordinator.next_round())


def test_a_party_refuses_sums_that_may_end_with_less(small):
    party = joined(prepare(small, settings_of(DISTRIBUTED)))
    setup = SecureSetup(
        session=b"s" * 16,
        graph_seed=b"g" * 32,
        for_survey=False,
        party=0,
        n_parties=60,
        n_users=60,
        threshold=31,
        neighbours=0,
        minimum=3,
        left_out=np.zeros(0, np.int32),
        identities=(),
    )
    refusal = read(party.answer(setup.encode()), (Refused,))
    assert "at least 57 of 60; the server's minimum is 3" in refusal.reason
    enough = replace(setup, minimum=57).encode()
    assert isinstance(read(party.answer(enough), (SecureAgreed,)), SecureAgreed)


def test_fewer_parties_agree_on_a_scale_of_their_own(small):
    """Bounds and the minimum follow from how many there are, for the server as for parties.

    At this clip the steps of fixed point are twice as large among 54 as among 60.
    """
    settings = settings_of(DISTRIBUTED, dp_clip=clip_at_a_step(60, 54), rounds=3)

    def refusing(stage, name, data):
        is_out = stage == "set-up" and int(name) < 6
        return Refused("not today").encode() if is_out else data

    federation, side = begun(small, settings, lambda inner: Faulty(inner, up=refusing))
    for party in federation.parties.values():
        party._run.policy = replace(party.policy, noise=Silent(party.policy.noise))
    round_ = federation.server.coordinator.next_round()
    sums = side.sums(round_)
    assert set(sums.n_raters) == {54}
    assert side._session.setup.minimum == least_survivors(54)
    np.testing.assert_allclose(sums.rows, clipped_sums(small, settings, round_, 6), atol=1e-3)


def clip_at_a_step(n, fewer):
    """A clip at which bounds for n parties and for fewer of them give fixed point another scale."""
    guarantee = guarantee_of(settings_of(DISTRIBUTED, rounds=3))
    for clip in np.geomspace(0.2, 0.4, 500):
        given = replace(guarantee, clip=float(clip))
        scales = {float(FixedPoint(fewer, given.bounds(m).row, RING32).scale) for m in (n, fewer)}
        if len(scales) == 2:
            return float(clip)
    raise AssertionError("no such clip")


# The budget


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
        settings_of(DISTRIBUTED).changed(**changes)


def test_every_run_of_an_ensemble_is_paid_for():
    settings = settings_of(DISTRIBUTED)
    one, five = (guarantee_of(settings.changed(ensemble=n)) for n in (1, 5))
    assert five.multiplier == pytest.approx(one.multiplier * np.sqrt(5))
    assert five.rounds == 5 * one.rounds == 5 * settings.max_rounds
    spent = accounting.epsilon(five.multiplier, five.rounds, settings.dp_delta)
    assert spent == pytest.approx(settings.dp_epsilon, rel=1e-3)


@both
def test_a_party_stops_when_its_budget_is_spent(small, variant):
    settings = settings_of(variant, rounds=2)
    federation, side = begun(small, settings)
    round_ = federation.server.coordinator.next_round()
    side.sums(round_)
    side.sums(replace(round_, round=2))
    if variant == LOCAL:
        assert side.sums(replace(round_, round=3)).n_raters.sum() == 0
    else:
        with pytest.raises(BelowThresholdError):
            side.sums(replace(round_, round=3))
    refused = federation.server.roster.refused
    assert set(refused) == set(federation.parties)
    assert set(refused.values()) == {"refused: this party's privacy budget, 2 rounds, is spent"}


def test_neither_a_new_run_nor_a_restart_gives_a_party_a_new_budget(small):
    run = prepare(small, settings_of(LOCAL, rounds=2))
    party, frame = joined(run), run.coordinator().next_round().encode()
    assert isinstance(asked(party, frame), Update)
    party.answer(run.plan.invitation().encode())
    assert isinstance(asked(party, frame), Update)
    state = party.state()
    party.answer(run.plan.invitation().encode())
    assert "budget, 2 rounds, is spent" in asked(party, frame).reason
    restarted = party_of(run)
    restarted.restore(state)
    restarted.answer(run.plan.invitation().encode())
    assert "budget, 2 rounds, is spent" in asked(restarted, frame).reason


def test_an_update_that_was_not_sent_costs_nothing(small):
    run = prepare(small, settings_of(LOCAL, rounds=1))
    party, round_ = joined(run), run.coordinator().next_round()
    bad = replace(round_, item_rows=np.full_like(round_.item_rows, 3e38)).encode()
    assert "not finite" in asked(party, bad).reason
    assert isinstance(asked(party, round_.encode()), Update)


def test_a_real_ensemble_spends_exactly_what_it_paid_for(small):
    settings = settings_of(LOCAL, ensemble=2, rounds=2)
    trained = train_real(small, settings)
    assert [len(member.history) for member in trained.members] == [2, 2]
    starts = [prepare(small, settings).coordinator(n).result.item_factors for n in range(2)]
    for member, start in zip(trained.members, starts, strict=True):
        assert not np.array_equal(member.public.item_factors, start)


def test_the_runs_of_an_ensemble_have_noise_of_their_own(small):
    settings = settings_of(DISTRIBUTED, ensemble=2, rounds=1, learning_rate=1.0)
    run = prepare(small, settings)
    starts = [run.coordinator(n).result.item_factors for n in range(2)]
    members = train(small, settings).members
    moved = [m.public.item_factors - start for m, start in zip(members, starts, strict=True)]
    assert abs(np.corrcoef(moved[0].ravel(), moved[1].ravel())[0, 1]) < 0.5
