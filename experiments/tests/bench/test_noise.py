"""Rounds under noise beside rounds without: what is compared, not how long it takes."""

import pytest

from fedmmf.data.synthetic import synthetic
from fedmmf_experiments.bench import noise

pytest.importorskip("dp_accounting", reason="the extra `dp`")
pytest.importorskip("opendp", reason="the extra `dp`")


@pytest.fixture(scope="module")
def ratings():
    return synthetic(60, 40, 1_200, min_per_user=5, seed=2)


def test_both_train_alike_but_for_the_noise():
    strict, noisy = noise.both_settings(9, "lr", 3)
    assert (strict.solver, noisy.solver) == ("vb", "vb")
    assert (strict.aggregation, noisy.aggregation) == ("secure", "dp")
    one, other = strict.model_dump(), noisy.model_dump()
    differ = {name for name in one if one[name] != other[name]}
    # a budget has room for no priors that need sums of their own
    assert differ == {"aggregation", "rounds", "implicit_prior", "profile_prior"}


def test_simulation_and_sites_are_timed_in_rounds_of_factors(ratings):
    rows = noise.compare(ratings, 3, "lr", 3)
    assert [(row.where, row.n_users) for row in rows] == [("simulation", 60), ("sites", 20)]
    for row in rows:
        assert row.strict_s > 0
        assert row.ratio == row.noisy_s / row.strict_s


def test_draws_of_both_samplers_are_timed(monkeypatch):
    monkeypatch.setattr(noise, "ENTRIES", 500)
    found = noise.draw_times(3)
    assert found.entries == 500
    assert found.ours_us > 0
    assert found.opendp_us > 0
