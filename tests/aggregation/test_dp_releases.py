"""The table of releases: what it says, and that nothing else leaves a party under a budget.

A server with the whole protocol at hand asks for everything that it can name.
"""

from dataclasses import replace

import numpy as np
import pytest
from federations import federation_of, settings_of

from fedmmf.aggregation.dp import accounting, releases
from fedmmf.aggregation.dp.guarantee import guarantee_of, spent, table_of
from fedmmf.aggregation.secure.server import SecureServer
from fedmmf.data.synthetic import synthetic
from fedmmf.errors import FedMMFError, SettingsError, WireError
from fedmmf.server.federation import ASSUMED_RATINGS
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf.solvers.contract import RequestedRelease
from fedmmf.solvers.vb.private import PrivateServer, PrivateShape, plan, write_variant
from fedmmf.transports.wrappers import Faulty
from fedmmf.wire import Ask, Refused, Survey, name_of, parcel, read
from fedmmf.wire.kinds import Kind

pytest.importorskip("dp_accounting", reason="dp-accounting is of the extra `dp`")
pytest.importorskip("opendp", reason="opendp is of the extra `dp`")

VARIANTS = ["dp local", "dp distributed", "dp vb local", "dp vb"]
ROUNDS = 5  # of vb: 1 of counts, 1 of means, 3 of factors
everywhere = pytest.mark.parametrize("variant", VARIANTS)
of_vb = pytest.mark.parametrize("variant", ["dp vb local", "dp vb"])


@pytest.fixture(scope="session")
def crowd():
    """As few users as the grid of a federation of 20 items needs."""
    return synthetic(24, 20, 200, min_per_user=5, seed=5)


class Hostile:
    """A server that asks for something else than what is due."""

    def __init__(self, ratings, variant):
        self.federation = federation_of(ratings, settings_of(variant, rounds=ROUNDS))
        self.federation.prepare_sums()
        self.server = self.federation.server
        self.parties = list(self.federation.parties.values())

    def honest(self, n):
        """Run so many rounds as agreed."""
        for _ in range(n):
            self.federation.one_round()
        assert self.server.coordinator.n_done == n
        assert self.spent == {n}
        return self.server.coordinator.next_round(is_last=n == ROUNDS)

    @property
    def spent(self):
        return {party.users.n_noisy for party in self.parties}

    def refused(self, stage, work):
        """Ask, get nothing, and return what parties said."""
        before, factors = self.spent, [party.user_factors.copy() for party in self.parties]
        with pytest.raises(FedMMFError):
            self.server.side.sum(stage, work)
        assert self.spent == before
        for old, party in zip(factors, self.parties, strict=True):
            assert np.array_equal(old, party.user_factors)
        return " ".join(incident.reason for incident in self.server.roster.incidents)


@pytest.fixture
def hostile(crowd, variant):
    return Hostile(crowd, variant)


def named(round_, **changes):
    """A round whose broadcast names another stage or clip."""
    shape = PrivateShape.of(round_.rank, write_variant(1))
    numbers = round_.parameters.copy()
    for name, value in changes.items():
        numbers[shape.blocks["parameters"].place(name)] = value
    return replace(round_, parameters=numbers)


@everywhere
@pytest.mark.parametrize("asks", ["counts", "moments", "ratings"])
def test_no_survey_of_any_kind(hostile, asks):
    """Raters per item, sums over the population, and sums of ratings."""
    work = {
        "counts": Survey(with_ratings=False),
        "moments": Survey(with_ratings=False, items=np.arange(20, dtype=np.int32)),
        "ratings": Survey(with_ratings=True),
    }[asks]
    assert work.asks == asks
    said = hostile.refused("survey", work)
    assert "a survey has none" in said or "a layout that this party has not adopted" in said


@everywhere
def test_no_totals_of_newcomers(hostile):
    last = hostile.honest(ROUNDS)
    hostile.refused("newcomers", last)
    assert hostile.server.side.newcomers(last) is None  # an honest server does not ask


@everywhere
def test_no_round_is_released_twice(hostile):
    first = hostile.honest(0)
    hostile.federation.one_round()
    assert "rounds must increase" in hostile.refused("round", first)


@everywhere
def test_no_more_rounds_than_are_paid_for(crowd, variant):
    hostile = Hostile(crowd, variant)
    first = hostile.honest(0)
    beyond = replace(first, round=ROUNDS + 1)
    assert f"{ROUNDS} rounds were agreed on" in hostile.refused("round", beyond)


@everywhere
def test_a_budget_that_is_spent_in_another_run_is_spent(hostile):
    """Counters outlive the run: a new invitation brings nothing back.

    They are of cost, whatever the noise of a round was: one round with little of it may be all.
    """
    for party in hostile.parties:
        party.users.n_noisy, party.users.rho_spent = 1, (ROUNDS - 0.5) * party.policy.noise.rho
    assert "budget, 1 rounds, is spent" in hostile.refused(
        "round", hostile.server.coordinator.next_round()
    )


@of_vb
@pytest.mark.parametrize(("n_done", "stage"), [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)])
def test_no_other_stage_than_the_one_due(hostile, n_done, stage):
    """A stage too early, repeated, or gone back to."""
    said = hostile.refused("round", named(hostile.honest(n_done), stage=stage))
    due = plan.STAGES[min(n_done, 2)]
    assert f"in round {n_done + 1} this party releases '{due}'" in said
    assert f"asks for '{plan.STAGES[stage]}'" in said


@of_vb
@pytest.mark.parametrize("n_done", [0, 1, 2])
@pytest.mark.parametrize("factor", [10.0, 0.5, 1.0 + 1e-12])
def test_no_other_clip_than_that_of_the_charter(hostile, n_done, factor):
    said = hostile.refused("round", named(hostile.honest(n_done), clip=factor))
    assert "clips updates to 1 by its charter (dp_clip)" in said


@of_vb
def test_after_all_refusals_the_right_release_is_made(hostile):
    """A refusal changes nothing; in plain sums the next message is answered."""
    right = hostile.honest(1)
    for wrong in (named(right, stage=0), named(right, clip=2.0)):
        hostile.refused("round", wrong)
    hostile.federation.one_round()
    assert hostile.spent == {2}


@everywhere
def test_messages_of_this_scheme_alone_are_accepted(hostile):
    """A layout that comes again, or under the name of another kind, is refused at no cost."""
    party = hostile.parties[0]
    layout = party.run.layout.encode()
    for kind in Kind:
        frame = bytearray(layout)
        frame[5] = kind
        assert isinstance(read(party.answer(bytes(frame)), (Refused,)), Refused)
    assert hostile.spent == {0}
    accepted = {message.kind for message in party.run.side.answers}
    # Nothing hands masked ratings over, or is summed by other schemes.
    assert accepted in ({Kind.ASK}, {Kind.SECURE_SETUP, Kind.SECURE_TRIP})


@everywhere
def test_a_layout_is_no_release_and_noise_that_is_shared_never_leaves_alone(hostile):
    party, right = hostile.parties[0], hostile.honest(0).encode()
    layout = party.run.layout.encode()
    for frame in (layout, right):
        answer = party.answer(parcel(Ask(name_of(frame)), frame))
        if frame is layout or isinstance(hostile.server.side, SecureServer):
            assert isinstance(read(answer, (Refused,)), Refused)
            assert party.users.n_noisy == 0
        else:
            assert party.users.n_noisy == 1


@everywhere
def test_the_end_of_training_is_no_release(hostile):
    """It is taken, and answered by a word; broadcasts alone are answered by nothing."""
    hostile.honest(1)  # less than was paid for: an early end
    last = hostile.server.coordinator.next_round(is_last=True)
    hostile.server.side.finish(last)
    assert hostile.spent == {1}
    assert all(party.is_finished for party in hostile.parties)


# Rounds without a sum


class Losing:
    """Every answer of some rounds is lost."""

    def __init__(self, rounds):
        self._rounds, self._n = rounds, 0

    def __call__(self, stage, name, data):
        if stage not in ("round", "trip 1"):
            return data
        self._n += name == "000000"
        return None if self._n in self._rounds else data


@pytest.mark.parametrize("lost", [{1}, {3}, {1, 4}, {5}])
def test_a_lost_release_is_not_asked_for_again(crowd, lost):
    """The run goes on with the next one, and parties answer it."""
    settings = settings_of("dp vb local", rounds=6)
    losing = Losing(lost)
    federation = federation_of(crowd, settings, lambda inner: Faulty(inner, up=losing))
    federation.prepare_sums()
    federation.run()
    assert federation.server.coordinator.n_done == 6 - len(lost)
    assert {party.users.n_noisy for party in federation.parties.values()} == {6}
    assert np.isfinite(federation.server.coordinator.result.item_rows).all()


def test_without_any_means_training_ends_with_a_reason(crowd):
    settings = settings_of("dp vb local", rounds=6)  # one or two of means
    n_means = dict(plan.releases(6))["means"]
    losing = Losing(set(range(2, 2 + n_means)))
    federation = federation_of(crowd, settings, lambda inner: Faulty(inner, up=losing))
    federation.prepare_sums()
    with pytest.raises(FedMMFError, match="releases of means gave no sum"):
        federation.run()


@pytest.mark.parametrize("rounds", range(1, 15))
def test_the_servers_half_asks_for_what_the_table_says(crowd, rounds):
    """Whether rounds give sums or not, round t is entry t."""
    settings = Settings(aggregation="dp", mask="mean", rounds=rounds)
    run = prepare(crowd, settings)
    half, order = run.coordinator().half, releases.in_order(settings)
    assert isinstance(half, PrivateServer)
    solver, shape = settings.chosen_solver, run.plan.update_shape
    for number in range(1, rounds + 1):
        assert solver.requested_release(shape, half.broadcast()) == RequestedRelease(
            releases.due(order, number), 1.0
        )
        if number in (2, 3):
            n, width = 20, shape.width
            nothing = (np.zeros((n, width)), np.zeros(shape.n_totals), np.zeros((24, 2)))
            sums = run.groups[0].sums(*nothing, np.random.default_rng(0))
            half.advance(replace(sums, totals=sums.totals[2:]), number)
        else:
            half.lose()
    assert releases.due(order, rounds + 1) is None


# The table


@pytest.mark.parametrize("noise", ["local", "distributed"])
@pytest.mark.parametrize("solver", ["vb", "sgd"])
def test_the_table_adds_up(solver, noise):
    """Shares to the whole, costs to what was paid for, and each entry's to the next."""
    settings = Settings(aggregation="dp", solver=solver, dp_noise=noise, dp_epsilon=3, ensemble=2)
    guarantee = guarantee_of(settings)
    table, said = table_of(settings, guarantee), spent(settings, settings.max_rounds)
    assert sum(one.rounds for one in table) == guarantee.rounds == said["rounds_paid"]
    assert sum(one["share"] for one in said["releases"]) == pytest.approx(1)
    whole = tuple((one.multiplier, one.rounds) for one in table)
    assert said["epsilon_paid"] == accounting.composed(whole, settings.dp_delta)
    assert said["epsilon_paid"] == pytest.approx(3, rel=1e-4)
    assert said["epsilon_paid"] <= 3
    assert said["releases"][-1]["epsilon_so_far"] == said["epsilon_paid"]
    assert {one.sensitivity for one in table} == {2.0 if noise == "local" else 1.0}
    assert said["epsilon"] < 3  # half of it is used


def test_releases_of_different_noise_are_composed():
    """Not only of equal ones: rho adds up, and twice the noise costs a quarter."""
    both = accounting.composed(((2.0, 1), (4.0, 4)), 1e-5)
    assert both == pytest.approx(accounting.epsilon(2.0, 2, 1e-5), rel=1e-6)
    assert accounting.composed((), 1e-5) == 0


def test_an_entry_that_is_not_in_the_table_is_refused():
    order = (("counts", 1), ("factors", 2))
    assert [releases.due(order, number) for number in range(1, 5)] == [
        "counts",
        "factors",
        "factors",
        None,
    ]
    releases.check(order, 1.0, 3, RequestedRelease("factors", 1.0))
    for number, requested, words in (
        (4, RequestedRelease("factors", 1.0), "pays for 3 releases"),
        (2, RequestedRelease("counts", 1.0), "releases 'factors'"),
        (2, RequestedRelease(), "asks for 'updates'"),
        (2, RequestedRelease("factors", 2.0), "clips updates to 1"),
    ):
        with pytest.raises(WireError, match=words):
            releases.check(order, 1.0, number, requested)


# What would be a release beside the table


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"held_out": 0.1}, "held-out errors, by which training stops early.*got 0.1. Leave"),
        ({"item_statistics": True}, "a survey of ratings.*Leave it out"),
    ],
)
@pytest.mark.parametrize("solver", ["vb", "sgd"])
def test_settings_that_call_for_other_sums_are_refused(asked, words, solver):
    with pytest.raises(SettingsError, match=words):
        Settings(aggregation="dp", solver=solver, **asked)


@pytest.mark.parametrize("solver", ["vb", "sgd"])
def test_nothing_that_a_run_starts_from_is_worked_out_from_ratings(crowd, solver):
    """`auto` means the same for every file: no number of ratings is in any broadcast."""
    settings, mean = Settings(aggregation="dp", solver=solver, mask="mean", rounds=5), []
    for ratings in (crowd, crowd.split(test=0.5, seed=0)[0]):
        run = prepare(ratings, settings)
        assert ratings.n_ratings / ratings.n_users != ASSUMED_RATINGS
        mean.append(run.coordinator().next_round().encode())
    assert mean[0] == mean[1]
