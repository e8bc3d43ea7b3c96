"""Differential privacy: bounded integers, noise of the right size, a budget that ends.

What epsilon is, is in test_dp_accounting.py; what noise is, in test_dp_sampler.py.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from federations import federation_of, settings_of

from fedmmf.aggregation.contract import round_sizes
from fedmmf.aggregation.dp import accounting
from fedmmf.aggregation.dp.guarantee import (
    Guarantee,
    NoisyGrid,
    corrupt,
    counted_on,
    guarantee_of,
    least_survivors,
)
from fedmmf.aggregation.secure.messages import SecureAgreed, SecureSetup
from fedmmf.aggregation.vector import codec_of
from fedmmf.engines.contract import Cohort
from fedmmf.engines.reference import NUMPY
from fedmmf.errors import SettingsError, WireError
from fedmmf.federation.local import Holdings, make_parties, make_silos
from fedmmf.party import Policy
from fedmmf.secagg import RING32, BelowThresholdError, FixedPoint
from fedmmf.settings import Settings
from fedmmf.simulation import prepare, train
from fedmmf.simulation.real import train_real
from fedmmf.solvers import SOLVERS
from fedmmf.transports.wrappers import Faulty, Recorded
from fedmmf.wire import (
    Adopt,
    Adopted,
    Ask,
    Joined,
    Refused,
    Survey,
    Update,
    name_of,
    parcel,
    read,
)

pytest.importorskip("dp_accounting", reason="dp-accounting is of the extra `dp`")
pytest.importorskip("opendp", reason="opendp is of the extra `dp`")

LOCAL, DISTRIBUTED = "dp local", "dp distributed"
both = pytest.mark.parametrize("variant", [LOCAL, DISTRIBUTED])


def begun(ratings, settings, wrap=lambda transport: transport):
    """A federation that is ready for its rounds, and the server's side of it."""
    federation = federation_of(ratings, settings, wrap)
    federation.prepare_sums()
    return federation, federation.server.side


def party_of(run, **policy):
    """A party whose owner says something else than the settings, not invited yet."""
    party = make_parties(run.ratings, run.settings, run.is_held_out, run.features.statistics)[
        "000000"
    ]
    party.policy = replace(party.policy, **policy)
    return party


def joined(run, **policy):
    party = party_of(run, **policy)
    invite(party, run)
    return party


def invite(party, run):
    """To a run, and to its layout."""
    read(party.answer(run.plan.invitation().encode()), (Joined,))
    layout = run.layout.encode()
    read(party.answer(parcel(Adopt(name_of(layout)), layout)), (Adopted,))


def asked(party, frame):
    """What a party says to a broadcast in the clear."""
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


def test_noise_is_as_large_as_the_sensitivity_calls_for():
    assert Guarantee(2.0, 3.0, "local", 1).noise_std(60) == pytest.approx(2 * 2.0 * 3.0)
    shared = Guarantee(2.0, 3.0, "distributed", 1)
    assert shared.noise_std(1) == pytest.approx(2.0 * 3.0)
    steps = np.full((300, 20), 7, np.int64)
    for guarantee in (Guarantee(2.0, 3.0, "local", 1), shared):
        noise = guarantee.grid(1024.0, 60, steps.size).add(steps) - steps
        std = 1024.0 * guarantee.noise_std(60)
        assert noise.std() == pytest.approx(std, rel=0.08)  # of 6000: more than 8 deviations
        assert abs(noise.mean()) < 0.1 * std


@pytest.mark.parametrize("n", range(2, 401))
def test_the_fewest_survivors_less_all_corrupt_ones_carry_the_noise(n):
    """Shares are of whole parties: rounded so that noise is never less than epsilon says."""
    guarantee = Guarantee(2.0, 3.0, "distributed", 1)
    assert least_survivors(n) == math.ceil(Fraction(95, 100) * n)
    assert corrupt(n) == math.ceil(Fraction(5, 100) * n)
    honest = least_survivors(n) - corrupt(n)
    assert honest >= 1
    assert guarantee.noise_std(n) * math.sqrt(honest) >= 2.0 * 3.0 * (1 - 1e-12)
    assert counted_on(n) == honest  # and no more noise than that


def test_the_ring_has_room_for_the_sum_and_its_noise():
    for noise in ("local", "distributed"):
        guarantee = Guarantee(0.5, 2.0, noise, 1)
        for n in (1, 2, 60, 5000):
            of_sum = math.sqrt(n) * guarantee.noise_std(n)
            assert n * guarantee.bounds(n).row == pytest.approx(n * 0.5 + 12 * of_sum)


def longest(cohort, rows):
    """Exact squared length of one user's integers, and what it may be at most."""
    steps = cohort.in_steps(cohort.clipped(rows))
    return sum(int(step) ** 2 for step in steps.ravel())


@pytest.mark.parametrize("scale", [64.0, 1024.0, 2.0**20])
@pytest.mark.parametrize("length", [0.2, 1.0, 1.0000001, 50.0, 1e30])
def test_no_rounded_update_is_longer_than_the_clip(scale, length):
    """In whole numbers, for certain; without the allowance for rounding some would be."""
    guarantee, exceeded = Guarantee(1.0, 3.0, "distributed", 1), 0
    for seed in range(200):
        draws = np.random.default_rng(seed)
        rows = draws.choice([-1.0, 1.0], (20, 5)) * draws.uniform(0.9, 1.0, (20, 5))
        rows = (rows * length / np.linalg.norm(rows)).astype(np.float32)
        grid = guarantee.grid(scale, 60, rows.size)
        assert longest(grid.cohort, rows) <= scale**2
        exceeded += longest(replace(grid.cohort, clip=1.0), rows) > scale**2
    assert exceeded > 10 or length < 1 or scale > 1e6


def test_steps_that_are_too_large_are_refused():
    guarantee = Guarantee(1.0, 3.0, "distributed", 1)
    guarantee.grid(64.0, 100, 100)
    with pytest.raises(WireError, match=r"steps of 0\.015625 are too large"):
        guarantee.grid(64.0, 100, 10_000)  # rounding alone would fill the clip
    with pytest.raises(WireError, match=r"noise of 1\.2\d steps"):
        guarantee.grid(4.0, 100, 4)  # the sum would not be as good as a discrete Gaussian
    replace(guarantee, noise="local").grid(4.0, 100, 4)  # a lone one is


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
    noise = Guarantee(1.0, 0.5, "local", 1)
    update = asked(joined(run, noise=noise), run.coordinator().next_round().encode())
    assert np.array_equal(update.items, np.arange(small.n_items))
    assert len(update.counts) == 0  # one rater each, of everything
    assert not update.totals.any()
    assert update.round == 1
    unrated = ~np.isin(update.items, run.lists.items[run.lists.of(0)])
    rows, steps = update.rows[unrated], update.rows.astype(np.float64) * noise.own_scale
    expected = 8 / np.sqrt(2 * rows.size)  # eight deviations of an estimate of one
    assert rows.std() == pytest.approx(1.0, abs=expected)  # 2 clip multiplier
    assert np.array_equal(np.rint(steps), steps)


@pytest.mark.parametrize("n_users", [1, 3])
def test_nothing_is_cut_off_after_the_noise(small, monkeypatch, n_users):
    """Noise beyond the bounds leaves as it is: an element of the ring."""
    run = prepare(small, settings_of(DISTRIBUTED))
    cuts = np.array([0, n_users])
    holdings = Holdings(run.ratings, run.settings, run.is_held_out, run.features.statistics)
    party = make_silos(holdings, cuts, NUMPY)["000000"]
    invite(party, run)
    codec = codec_of(
        round_sizes(run.catalogue.n_items, run.layout, run.plan.update_shape),
        party.policy.noise.bounds(60),
        60,
        SOLVERS["sgd"].ring,
    )
    huge = 10 * codec.largest
    found = []
    for number, noise in enumerate((0, huge)):
        monkeypatch.setattr(NoisyGrid, "add", lambda self, steps, noise=noise: steps + noise)
        state = party.users.state()
        work = replace(run.coordinator().next_round(), round=1 + number)
        found.append(party.run.contribute(work, codec, None, 60).rows)
        party.users.restore(state)
    assert np.array_equal(found[1], found[0] + huge)
    assert np.abs(found[0]).max() > 0


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
        side.sum("survey", Survey(with_ratings=False))
    reasons = set(federation.server.roster.refused.values())
    assert len(federation.server.roster.refused) == small.n_users
    assert all("a survey has none" in reason for reason in reasons)


@both
def test_nobody_is_asked_for_a_survey(small, variant):
    federation = federation_of(small, settings_of(variant), Recorded)
    federation.run()
    stages = {seen.stage for seen in federation.transport.inner.seen}
    assert not {stage for stage in stages if "survey" in stage}
    layout = federation.server.side.layout
    assert np.array_equal(layout.items, np.arange(small.n_items))  # and so nobody's level is known
    assert (layout.line.tolist(), layout.shrinkage) == ([small.scale.midpoint], 1.0)


# Sums


def clipped_sums(ratings, settings, round_, first=0):
    """The obvious way: every user's rows shrunk together, and added; from some user on."""
    run, clip = prepare(ratings, settings), settings.dp_clip
    total = np.zeros(round_.item_rows.shape)
    for party in list(make_parties(ratings, settings, run.is_held_out).values())[first:]:
        party.users.fit_masks(run.layout.population)
        party.users.begin(settings.solver, run.plan.update_shape, run.layout)
        items = party.users.lists.items
        rows = party.users.update(round_.broadcast, round_.round, [Cohort()]).rows[0][items]
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
        party.run.policy = replace(party.policy, noise=Silent(party.policy.noise))
    round_ = federation.server.coordinator.next_round()
    expected = clipped_sums(small, settings, round_)
    np.testing.assert_allclose(side.sums(round_).rows, expected, atol=1e-3)


class Silent:
    """A guarantee whose noise is left out."""

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def grid(self, *about):
        return SilentGrid(self._inner.grid(*about).cohort, 1.0)


class SilentGrid(NoisyGrid):
    def add(self, steps):
        return steps


def test_with_hardly_any_noise_training_ends_where_the_simulation_ends(small):
    settings = settings_of(DISTRIBUTED, rounds=4, dp_epsilon=100.0, dp_delta=0.9, dp_clip=0.5)
    real = federation_of(small, settings).run().broadcast.item_factors
    simulated = train(small, settings).members[0].broadcast.item_factors
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
        for_survey=False,
        layout=name_of(party.run.layout.encode()),
        party=0,
        n_parties=60,
        n_users=60,
        minimum=3,
        batch=1,
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
        party.run.policy = replace(party.policy, noise=Silent(party.policy.noise))
    round_ = federation.server.coordinator.next_round()
    sums = side.sums(round_)
    assert set(sums.n_raters) == {54}
    assert side.session.setup.minimum == least_survivors(54)
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
        ({"likelihood": "ordinal", "solver": "vb"}, "likelihood 'ordinal'"),
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


@pytest.mark.parametrize("others", [{}, {"sharing": "plain"}, {"solver": "vb"}])
def test_a_budget_that_nothing_keeps_is_refused(others):
    """Who asks for epsilon, and not for the scheme that adds noise, would get none."""
    with pytest.raises(SettingsError, match="dp_epsilon needs aggregation 'dp'"):
        Settings(dp_epsilon=0.5, **others)


def test_every_run_of_an_ensemble_is_paid_for():
    settings = settings_of(DISTRIBUTED)
    one, five = (guarantee_of(settings.changed(ensemble=n)) for n in (1, 5))
    assert five.multiplier == pytest.approx(one.multiplier * np.sqrt(5), rel=1e-6)
    assert five.rounds == 5 * one.rounds == 5 * settings.max_rounds
    spent = accounting.epsilon(five.multiplier, five.rounds, settings.dp_delta)
    assert spent == pytest.approx(settings.dp_epsilon, rel=1e-3)


@both
def test_a_party_stops_when_its_budget_is_spent(small, variant):
    federation, side = begun(small, settings_of(variant, rounds=3))
    for party in federation.parties.values():  # more rounds were agreed on than are paid for
        noise = replace(party.policy.noise, rounds=2)
        party.run.policy = replace(party.policy, noise=noise)
    round_ = federation.server.coordinator.next_round()
    side.sums(round_)
    side.sums(replace(round_, round=2))
    if variant == LOCAL:
        with pytest.raises(WireError, match="no party answered"):
            side.sums(replace(round_, round=3))
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
    invite(party, run)
    assert isinstance(asked(party, frame), Update)
    state = party.state()
    invite(party, run)
    assert "budget, 2 rounds, is spent" in asked(party, frame).reason
    restarted = party_of(run)
    restarted.restore(state)
    invite(restarted, run)
    assert "budget, 2 rounds, is spent" in asked(restarted, frame).reason


def test_an_update_that_was_not_sent_costs_nothing(small):
    run = prepare(small, settings_of(LOCAL, rounds=1))
    party, round_ = joined(run), run.coordinator().next_round()
    bad = replace(round_, is_last=True).encode()
    assert "only hands out" in asked(party, bad).reason
    assert isinstance(asked(party, round_.encode()), Update)


def test_a_real_ensemble_spends_exactly_what_it_paid_for(small):
    settings = settings_of(LOCAL, ensemble=2, rounds=2)
    trained = train_real(small, settings)
    assert [len(member.history) for member in trained.members] == [2, 2]
    starts = [prepare(small, settings).coordinator(n).result.item_factors for n in range(2)]
    for member, start in zip(trained.members, starts, strict=True):
        assert not np.array_equal(member.broadcast.item_factors, start)


def test_the_runs_of_an_ensemble_have_noise_of_their_own(small):
    settings = settings_of(DISTRIBUTED, ensemble=2, rounds=1, learning_rate=1.0)
    run = prepare(small, settings)
    starts = [run.coordinator(n).result.item_factors for n in range(2)]
    members = train(small, settings).members
    moved = [m.broadcast.item_factors - start for m, start in zip(members, starts, strict=True)]
    assert abs(np.corrcoef(moved[0].ravel(), moved[1].ravel())[0, 1]) < 0.5
