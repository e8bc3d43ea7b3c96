"""`vb` under differential privacy: what real parties send, and what can be learned from it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from federations import federation_of, settings_of
from scipy.stats import chi2, norm

from fedmmf.aggregation.contract import Contribution, round_sizes
from fedmmf.aggregation.dp import accounting
from fedmmf.aggregation.dp.guarantee import guarantee_of, spent
from fedmmf.aggregation.vector import codec_of
from fedmmf.data.rated_items import RatedItems
from fedmmf.engines import ENGINES
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf.solvers.contract import Broadcast, ItemSums
from fedmmf.solvers.vb.private import plan

pytest.importorskip("dp_accounting", reason="dp-accounting is of the extra `dp`")
pytest.importorskip("opendp", reason="opendp is of the extra `dp`")

N_DRAWS = 400  # runs with the planted user, and as many without
ALARM = 1e-10  # how likely a test of noise that nobody can foresee is wrong


@pytest.mark.parametrize(
    ("variant", "objective"),
    [
        ("dp vb local", "rating"),
        ("dp vb", "rating"),
        ("dp vb signed", "rating"),
        ("dp vb local", "ranking"),
        ("dp vb", "ranking"),
    ],
)
def test_real_sums_are_the_simulated_ones_with_that_much_noise(small, variant, objective):
    """In every stage, rows and totals; the server knows how much noise there is."""
    settings = settings_of(variant).changed(objective=objective)
    federation = federation_of(small, settings)
    federation.prepare_sums()
    coordinator, run = federation.server.coordinator, prepare(small, settings)
    halves, (cohort,) = ENGINES["numpy"].halves(run.training_input), run.training_input.cohorts
    stages = [
        name for name, n in plan.releases(settings.max_rounds, settings.objective) for _ in range(n)
    ]
    for t, stage in enumerate(stages[: stages.index("factors") + 1], start=1):
        round_ = coordinator.next_round()
        sums, exact = federation.server.side.sums(round_), halves.update(round_.broadcast, t)
        rows, totals = exact.rows[0] / cohort.scale, exact.totals[0] / cohort.total_scale
        assert sums.noise_std == pytest.approx(run.groups[0].noise_std)
        noise = (sums.rows - rows).ravel() / sums.noise_std
        of_totals = (sums.totals[2:] - totals) / sums.noise_std
        assert not sums.totals[:2].any()  # nothing is held out
        for part in (noise, of_totals):
            low, high = chi2.interval(1 - ALARM, len(part))
            assert abs(part.mean()) < norm.isf(ALARM / 2) / math.sqrt(len(part))
            assert low < (part**2).sum() < high
        assert totals.any() == (stage == "factors")
        coordinator.advance(round_, sums)


@pytest.mark.parametrize("n_users", [3, 60, 943, 6040, 100_000])
def test_a_total_with_noise_is_one_entry_of_the_vector(small, n_users):
    """Epsilon is of sums of totals. Sums of their digits are no function of these: a server that
    puts everybody near the border of a digit would count raters by the highest ones."""
    run = prepare(small, settings_of("dp vb"))
    shape = run.plan.update_shape
    sizes = round_sizes(small.n_items, run.layout, shape)
    codec = codec_of(sizes, guarantee_of(run.settings).bounds(n_users), n_users, "2^32")
    n_rows = sizes.n_items * shape.width
    assert codec.length == n_rows + sizes.n_totals
    assert codec.totals.scale == codec.rows.scale
    totals = np.arange(sizes.n_totals) - 7
    nobody = (np.zeros(0, np.int32), np.zeros(0), np.zeros((0, shape.width)))
    assert codec.vector(Contribution(*nobody, totals))[n_rows:].tolist() == totals.tolist()


# A lower bound on epsilon: how well the best test tells a planted user's presence.


def planted(small):
    """A run whose first user has rated everything, as far from everybody else as possible."""
    run = prepare(small, Settings(aggregation="dp", mask="mean", dp_epsilon=2.0))
    given, n = run.training_input, run.training_input.n_items
    rest = slice(int(given.lists.indptr[1]), None)
    items = np.concatenate((np.arange(n, dtype=np.int32), given.lists.items[rest]))
    masked = np.concatenate((np.tile([2.0, -2.0], n)[:n], given.masked_ratings[rest]))
    indptr = given.lists.indptr + (n - int(given.lists.indptr[1]))
    indptr[0] = 0
    lists = RatedItems(indptr, items)
    return run, replace(given, lists=lists, masked_ratings=masked.astype(np.float32))


def distances(small, cohort_changes=None, clip=1.0):
    """What the planted user adds to each release, over the noise; under any clip of a server."""
    run, given = planted(small)
    (group,) = run.groups
    cohort, half, draws = group.cohort, run.coordinator().half, np.random.default_rng(7)
    cohort = replace(cohort, **(cohort_changes or {}))
    absent = np.arange(given.lists.n_users) > 0
    cohorts, held_out = (cohort, replace(cohort, members=absent)), np.zeros((len(absent), 2))
    halves, found = ENGINES["numpy"].halves(replace(given, cohorts=cohorts)), []
    for t in range(1, run.settings.max_rounds + 1):
        broadcast = half.broadcast()
        numbers = broadcast.parameters.copy()
        numbers[given.update_shape.blocks["parameters"].place("clip")] *= clip
        update = halves.update(Broadcast(broadcast.rank, numbers, broadcast.item_rows), t)
        rows = (update.rows[0] - update.rows[1]) / cohort.scale
        totals = (update.totals[0] - update.totals[1]) / cohort.total_scale
        found.append(np.concatenate((rows.ravel(), totals)) / group.noise_std)
        sums = group.sums(update.rows[0], update.totals[0], held_out, draws)
        half.advance(ItemSums(sums.rows, sums.n_raters, sums.totals[2:], sums.noise_std), t)
    return run.settings, np.array(found)


def epsilon_of(mu, delta):
    """Epsilon of two Gaussians that are mu deviations apart (Balle and Wang 2018), by bisection."""
    low, high = 0.0, 1e3
    for _ in range(200):
        epsilon = (low + high) / 2
        a, b = norm.cdf(-epsilon / mu + mu / 2), norm.logcdf(-epsilon / mu - mu / 2)
        low, high = (
            (epsilon, high) if a - math.exp(min(epsilon + b, 700)) > delta else (low, epsilon)
        )
    return high


def measured(found):
    """Bounds of mu by repeated runs of the best test, with three deviations on either side."""
    draws, length = np.random.default_rng(11), np.linalg.norm(found)
    direction = (found / length).ravel()
    noise = draws.standard_normal((2 * N_DRAWS, direction.size)) @ direction
    mu, slack = length + noise[:N_DRAWS].mean() - noise[N_DRAWS:].mean(), 3 * math.sqrt(2 / N_DRAWS)
    return mu - slack, mu + slack


def test_a_planted_user_is_found_no_better_than_epsilon_says(small):
    settings, found = distances(small)
    low, high = measured(found)
    assert low > 0  # the test finds something
    claimed, delta = spent(settings, settings.max_rounds)["epsilon"], settings.dp_delta
    assert claimed <= settings.dp_epsilon
    assert 0.2 * claimed < epsilon_of(np.linalg.norm(found), delta) < claimed
    assert epsilon_of(low, delta) < claimed
    assert high >= np.linalg.norm(found) >= low


def test_a_server_that_names_a_larger_clip_gains_nothing(small):
    settings, found = distances(small, clip=10.0)
    assert epsilon_of(np.linalg.norm(found), settings.dp_delta) < settings.dp_epsilon


def test_without_the_engines_clip_the_planted_user_is_found(small):
    """The test has power."""
    settings, found = distances(small, {"clip": np.inf}, clip=10.0)
    assert epsilon_of(measured(found)[0], settings.dp_delta) > settings.dp_epsilon


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("noise", ["local", "distributed"])
def test_epsilon_of_a_whole_run_is_recomputed(epsilon, noise):
    """By the analytic Gaussian mechanism and by privacy loss distributions: never above."""
    pld = pytest.importorskip("dp_accounting.pld").privacy_loss_distribution
    settings = Settings(aggregation="dp", dp_epsilon=epsilon, dp_noise=noise)
    guarantee, delta = guarantee_of(settings), settings.dp_delta
    mu = math.sqrt(guarantee.rounds) / guarantee.multiplier
    analytic = epsilon_of(mu, delta)
    loss = pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-3)
    assert loss.get_epsilon_for_delta(delta) == pytest.approx(analytic, rel=0.02)
    assert 0.8 * epsilon < analytic < epsilon
    table = spent(settings, settings.max_rounds)["releases"]
    assert [one["name"] for one in table] == list(plan.STAGES)
    assert sum(one["share"] for one in table) == pytest.approx(1.0)
    assert table[-1]["epsilon_so_far"] == pytest.approx(epsilon, rel=1e-4)
    assert table[0]["epsilon_so_far"] == accounting.epsilon(guarantee.multiplier, 1, delta)
