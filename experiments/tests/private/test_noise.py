"""Central Gaussian noise costs what is said."""

import math

import pytest

from fedmmf.errors import SettingsError
from fedmmf_experiments.private.noise import Privacy, multiplier

accounting = pytest.importorskip("fedmmf.aggregation.dp.accounting")
pytest.importorskip("dp_accounting", reason="the extra `dp`")
epsilons = pytest.importorskip("fedmmf_experiments.paper.epsilon")


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0, 8.0])
def test_the_multiplier_costs_epsilon_exactly_and_ours_costs_at_most_a_tenth_more(epsilon):
    found = multiplier(epsilon, 1e-5)
    assert epsilons.analytic_gaussian(found, 1e-5) == pytest.approx(epsilon, rel=1e-6)
    ours = accounting.multiplier(epsilon, 1, 1e-5)
    assert found < ours < 1.13 * found


def test_releases_with_shares_of_the_budget_cost_as_much_as_our_rounds_of_equal_size():
    """Four releases, accounted for by the library's own rule with the peer's noise."""
    budget = Privacy(2.0, 1e-5).budget()
    stds = [budget.std(0.25, sensitivity=3.0) for _ in range(4)]
    assert budget.left == pytest.approx(0.0)
    assert stds == [stds[0]] * 4
    spent = accounting.epsilon(stds[0] / 3.0, 4, 1e-5)  # concentrated: an upper bound
    assert 2.0 < spent < 2.0 * 1.15


def test_a_budget_that_is_spent_refuses_another_release():
    budget = Privacy(1.0, 1e-5).budget()
    budget.std(0.7, 1.0)
    with pytest.raises(SettingsError, match=r"a share in \(0, 0.3\]"):
        budget.std(0.4, 1.0)


def test_an_infinite_epsilon_has_no_noise():
    assert Privacy(math.inf, 1e-5).budget().std(0.5, 10.0) == 0.0
