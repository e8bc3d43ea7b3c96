"""What a round is said to cost is what crosses the wire among real parties, byte by byte."""

from dataclasses import replace

import numpy as np
import pytest

from fedmmf.aggregation import AGGREGATIONS
from fedmmf.aggregation.rare_items import raters_needed
from fedmmf.settings import Settings
from fedmmf.simulation import prepare, train_real
from fedmmf.simulation.costs import expected_cost, tradeoff
from fedmmf.simulation.real import ROUND_STAGES, real_federation

COMMON = {"mask": "mean", "rounds": 3, "factors": 4}
WITHOUT_CIPHERTEXTS = {
    "plain": {"sharing": "plain"},
    "secure": {},
    "secure, vb": {"solver": "vb"},
    "secure, held out": {"held_out": 0.2},
    "signed": {"signed": True},
    "dp, local": {"aggregation": "dp", "dp_noise": "local"},
    "dp, distributed": {"aggregation": "dp", "dp_noise": "distributed"},
    "dp, signed": {"aggregation": "dp", "signed": True},
    "dp, sgd": {"aggregation": "dp", "solver": "sgd"},
}


def prepared(ratings, **chosen):
    if chosen.get("aggregation") == "dp":
        pytest.importorskip("dp_accounting", reason="the extra `dp`")
    return prepare(ratings, Settings(**(COMMON | chosen)))


def counted_rounds(run, rounds=2):
    """Bytes (up, down) of a mean user in each round among real parties."""
    federation = real_federation(run)
    federation.prepare_sums()
    before, found = federation.transport.of(*ROUND_STAGES), []
    assert (before.up_bytes, before.down_bytes) == (0, 0)  # nothing before round 1 is a round
    for _ in range(rounds):
        federation.one_round()
        after = federation.transport.of(*ROUND_STAGES)
        bytes_ = after.up_bytes - before.up_bytes, after.down_bytes - before.down_bytes
        found.append(tuple(part / run.training.n_users for part in bytes_))
        before = after
    assert not federation.server.roster.incidents
    return found


@pytest.mark.parametrize("variant", WITHOUT_CIPHERTEXTS)
def test_bytes_are_exact_in_every_round(small, variant):
    run = prepared(small, **WITHOUT_CIPHERTEXTS[variant])
    cost = run.cost()
    for up, down in counted_rounds(run):
        assert cost.up_bytes == pytest.approx(up, rel=1e-12)
        assert cost.down_bytes == pytest.approx(down, rel=1e-12)


@pytest.mark.parametrize("collect_masked", [False, True])
def test_adaptive_bytes_are_the_mean_of_both_groups(small, collect_masked):
    """Exact for what users in the clear have really rated; as said, for what everybody has."""
    run = prepared(small, sharing="adaptive", collect_masked=collect_masked)
    n_clear = int(run.in_clear.sum())
    assert 0 < n_clear < small.n_users - 3
    rated = float(run.training_input.lists.lengths[run.in_clear].mean())
    exact = expected_cost(replace(run.cost_input, ratings_per_user=rated))
    said = run.cost()
    for up, down in counted_rounds(run):
        assert exact.up_bytes == pytest.approx(up, rel=1e-12)
        assert exact.down_bytes == said.down_bytes == pytest.approx(down, rel=1e-12)
        assert said.up_bytes == pytest.approx(up, rel=0.05)


@pytest.mark.parametrize("solver", ["sgd", "vb"])
def test_homomorphic_bytes_are_those_of_ciphertexts_measured_now(small, solver):
    """A ciphertext's own length may depend on what is in it, by a few bytes."""
    pytest.importorskip("tenseal", reason="the extra `he`")
    run = prepared(small, solver=solver, aggregation="homomorphic-ckks", min_raters=1)
    cost = run.cost()
    for up, down in counted_rounds(run, rounds=1):
        assert cost.up_bytes == pytest.approx(up, rel=1e-3)
        assert cost.down_bytes == down


@pytest.mark.parametrize("aggregation", ["secure", "homomorphic-ckks"])
def test_items_that_are_left_out_cost_nothing(small, aggregation):
    """Rounds are of those that are summed, down and up; only the survey is of all."""
    if aggregation != "secure":
        pytest.importorskip("tenseal", reason="the extra `he`")
    run = prepared(small, aggregation=aggregation, min_raters=12)
    counts = run.lists.counts(small.n_items)
    n_rare = int(np.count_nonzero(counts < raters_needed(12)))
    assert 0 < n_rare < small.n_items
    cost, every = run.cost(), prepared(small, aggregation=aggregation, min_raters=1).cost()
    ((up, down),) = counted_rounds(run, rounds=1)
    assert (
        down
        == cost.down_bytes
        == every.down_bytes - 4 * run.plan.update_shape.broadcast_width * n_rare
    )
    assert up == pytest.approx(cost.up_bytes, rel=1e-3)
    if aggregation == "secure":
        assert up == cost.up_bytes == every.up_bytes - 4 * run.plan.update_shape.width * n_rare


@pytest.mark.parametrize("chosen", [{"sharing": "plain"}, {}, {"ensemble": 2}, {"signed": True}])
def test_a_real_run_counts_what_a_simulation_works_out(small, chosen):
    settings = Settings(**COMMON, **chosen)
    real, simulated = train_real(small, settings).counted_cost, prepare(small, settings).cost()
    assert real.up_bytes == pytest.approx(simulated.up_bytes, rel=1e-12)
    assert real.down_bytes == pytest.approx(simulated.down_bytes, rel=1e-12)
    assert real.party_s > 0
    assert "counted among real parties" in real.how


def test_seconds_of_sums_in_the_clear_are_nobodys(small):
    plain, secure, signed = (
        prepared(small, **chosen).cost() for chosen in ({"sharing": "plain"}, {}, {"signed": True})
    )
    assert (plain.party_s, plain.server_s) == (0, 0)
    assert 0 < secure.party_s < signed.party_s
    assert 0 < secure.server_s < signed.server_s


def test_a_tradeoff_goes_from_all_in_sums_to_all_in_the_clear(small):
    run = prepared(small, sharing="adaptive")
    given, j = run.cost_input, run.masks.j_train
    points = tradeoff(given, j, n=11)
    shares = [point.share_in_clear for point in points]
    assert len(points) == 12
    assert given.settings.threshold_j in [point.threshold_j for point in points]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    secure, plain = (AGGREGATIONS[name].cost(given).up_bytes for name in ("secure", "plain"))
    assert points[0].up_bytes_per_user_round == round(secure, 1)
    assert points[-1].up_bytes_per_user_round == round(plain, 1)
    for point in points:
        in_clear = np.mean(j <= point.threshold_j)
        assert point.share_in_clear == pytest.approx(in_clear)
