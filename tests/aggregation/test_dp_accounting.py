"""Epsilon, recomputed without any of our code and by other routes than ours.

- `discrete`: sums of discrete Gaussians, from the papers, in plain Python.
- `analytic`: the exact curve of the continuous Gaussian (Balle and Wang 2018, theorem 8).
- `by_losses`: its privacy loss distribution, by dp-accounting.
"""

import math
from dataclasses import dataclass

import pytest

from fedmmf.aggregation.dp import accounting
from fedmmf.aggregation.dp.guarantee import Guarantee

dp_accounting = pytest.importorskip("dp_accounting", reason="dp-accounting is of the extra `dp`")
pld = pytest.importorskip("dp_accounting.pld")


@dataclass(frozen=True)
class Case:
    clip: float
    epsilon: float
    delta: float
    rounds: int
    n: int  # parties
    d: int  # entries
    noise: str = "distributed"


CASES = [
    Case(1.0, 8.0, 1e-5, 30, 943, 1682 * 20),
    Case(1.0, 1.0, 1e-5, 30, 943, 1682 * 20),
    Case(0.1, 2.0, 1e-6, 60, 6040, 3706 * 4),
    Case(5.0, 4.0, 1e-5, 10, 21, 200),
    Case(1.0, 8.0, 1e-5, 30, 3, 1682),
    Case(0.5, 20.0, 1e-7, 1, 100, 10_000),
    Case(2.0, 0.5, 1e-5, 150, 400, 35_000),
    Case(1.0, 8.0, 1e-5, 30, 943, 1682 * 20, "local"),
    Case(0.3, 1.0, 1e-6, 5, 1, 500, "local"),
    Case(10.0, 50.0, 1e-5, 200, 50, 5000, "local"),
]


def grid_of(case):
    """What a party would use: its noise in steps, the steps of its clip, and how many add noise."""
    noise = accounting.multiplier(case.epsilon, case.rounds, case.delta)
    guarantee = Guarantee(case.clip, noise, case.noise, case.rounds)
    scale = guarantee.scale_among(case.n)
    return noise, guarantee.grid(scale, case.n, case.d).sigma, case.clip * scale


def adding(case):
    """How many honest parties there are in the smallest sum."""
    if case.noise == "local":
        return 1
    fewest, corrupt = math.ceil(case.n * 95 / 100), math.ceil(case.n * 5 / 100)
    return fewest - corrupt


def discrete(case, sigma, length):
    """Kairouz et al. 2021, proposition 14; Canonne et al. 2020, proposition 12; any order holds."""
    m, sensitivity = adding(case), length * (2 if case.noise == "local" else 1)
    n = case.n if case.noise == "distributed" else 1
    tau = 10 * math.fsum(math.exp(-2 * math.pi**2 * sigma**2 * k / (k + 1)) for k in range(1, n))
    root = sensitivity / (math.sqrt(m) * sigma) + tau * math.sqrt(case.d)
    rho = case.rounds * root**2 / 2

    def at(order):
        return (
            rho * order
            + math.log1p(-1 / order)
            - (math.log(case.delta) + math.log(order)) / (order - 1)
        )

    low, high = math.log(0.005), math.log(1e7)  # golden section: one minimum
    for _ in range(200):
        a, b = high - 0.618034 * (high - low), low + 0.618034 * (high - low)
        low, high = (low, b) if at(1 + math.exp(a)) < at(1 + math.exp(b)) else (a, high)
    return at(1 + math.exp(low))


def analytic(mu, delta):
    """Where the curve of a Gaussian of sensitivity mu and deviation 1 goes through delta."""

    def phi(x):
        return math.erfc(-x / math.sqrt(2)) / 2

    def delta_at(epsilon):
        return phi(mu / 2 - epsilon / mu) - math.exp(epsilon) * phi(-mu / 2 - epsilon / mu)

    low, high = 0.0, 500.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_at(middle) > delta else (low, middle)
    return high


def by_losses(multiplier, rounds, delta):
    event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(multiplier), rounds)
    return pld.PLDAccountant(value_discretization_interval=1e-3).compose(event).get_epsilon(delta)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_epsilon_is_what_others_find(case):
    noise, sigma, length = grid_of(case)
    ours = accounting.epsilon(noise, case.rounds, case.delta)
    assert case.epsilon * (1 - 1e-5) < ours <= case.epsilon
    assert ours == pytest.approx(discrete(case, sigma, length), rel=5e-4)
    continuous = analytic(math.sqrt(case.rounds) / noise, case.delta)
    losses = by_losses(noise, case.rounds, case.delta)
    assert continuous == pytest.approx(losses, rel=5e-4)
    assert continuous <= ours <= 1.12 * continuous


def test_with_the_rounding_of_before_epsilon_was_more_than_it_said():
    """21 parties: 19 were counted on, but 20 survivors with 2 corrupt ones leave 18."""
    case = CASES[3]
    noise = accounting.multiplier(8.0, 30, 1e-5)
    spent = accounting.epsilon(noise * math.sqrt(18 / 19), 30, 1e-5)
    assert spent == pytest.approx(8.3, abs=0.05)
    assert adding(case) == 18


def test_less_noise_costs_more_and_more_rounds_do():
    noise = accounting.multiplier(1.0, 20, 1e-5)
    assert accounting.epsilon(0.9 * noise, 20, 1e-5) > 1.05
    assert accounting.epsilon(noise, 21, 1e-5) > 1.01
    assert accounting.epsilon(noise, 10, 1e-5) < 0.75
    assert accounting.epsilon(noise, 0, 1e-5) == 0


def test_a_sum_of_coarse_noise_costs_more_than_one_gaussian():
    """The bound on tau is above tau itself, and is nothing on grids that parties accept."""
    for sigma, n in ((0.5, 2), (1.0, 10), (1.5, 1000)):
        terms = (math.exp(-2 * math.pi**2 * sigma**2 * k / (k + 1)) for k in range(1, n))
        tau = 10 * math.fsum(terms)
        assert tau * 10 <= accounting.excess(sigma, n, 100) < 1e4 * tau
    assert accounting.excess(0.01, 1, 10**6) == 0
    assert accounting.excess(3.0, 10**6, 10**8) < 1e-25
    coarse = accounting.excess(1.0, 10, 100)
    assert accounting.epsilon(3.0, 10, 1e-5, coarse) > accounting.epsilon(3.0, 10, 1e-5)
