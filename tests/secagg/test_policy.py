"""Conditions on thresholds, neighbour graphs, and the choice of both."""

import struct
import tracemalloc
from contextlib import contextmanager
from fractions import Fraction
from hashlib import sha256
from math import comb, log2

import numpy as np
import pytest
from oracle import make_setup

from fedmmf.errors import SettingsError
from fedmmf.secagg import (
    LARGEST_COHORT,
    PolicyError,
    SessionClient,
    Setup,
    graph,
    least_threshold,
    parameters,
    policy,
)
from fedmmf.secagg.session import Trip


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"n": 2}, "at least 3 parties"),
        ({"n": 10, "threshold": 5}, r"exceed 1/2 of the 10 holders .* got 5. Set it to 6"),
        ({"n": 9, "threshold": 6, "active": True}, r"exceed 2/3 \(active\).*got 6. Set it to 7"),
        ({"n": 10, "threshold": 11}, r"threshold must be in \[2, 10\]; got 11"),
        ({"n": 10, "neighbours": 4, "threshold": 2}, "exceed 1/2 of the 5 holders"),
        ({"n": 10, "neighbours": 10, "threshold": 6}, r"neighbours must be in \[2, 9\]"),
        ({"n": 9, "neighbours": 5}, "must be even"),
        ({"n": 9, "minimum": 12}, "at least 12 parties"),
        ({"n": 9, "length": 0}, "length"),
        ({"n": 9, "round_id": b""}, "round_id"),
        ({"n": 9, "graph_seed": bytes(65)}, "graph_seed"),
        ({"n": 9, "length": 2**29 + 1}, r"length must be in \[1, 536870912\]"),
    ],
)
def test_a_setup_says_which_condition_fails(options, reason):
    with pytest.raises(PolicyError, match=reason) as caught:
        make_setup(**options)
    assert isinstance(caught.value, SettingsError)


def test_parties_and_identities_are_checked():
    with pytest.raises(PolicyError, match="increase strictly"):
        Setup(b"r", (1, 1, 2), 2, 5)
    with pytest.raises(PolicyError, match="identities"):
        Setup(b"r", (1, 2, 3), 3, 5, active=True, identities=(bytes(32),) * 3)


def test_every_field_of_a_setup_is_bound_into_its_digest():
    base = {"n": 8, "neighbours": 4, "graph_seed": b"a", "length": 5}
    changes = [
        {}, {"n": 9}, {"neighbours": 6, "threshold": 4}, {"graph_seed": b"b"}, {"length": 6},
        {"threshold": 4}, {"round_id": b"other"}, {"minimum": 4}, {"active": True, "threshold": 4},
    ]  # fmt: skip
    digests = {make_setup(**(base | change)).context for change in changes}
    assert len(digests) == len(changes)


def test_a_cohort_beyond_the_largest_is_refused_before_anything_is_built():
    most = LARGEST_COHORT
    policy.check(most, 50, 30, active=False, minimum=3)
    reason = f"at most {most} parties; got {most + 1}. Invite fewer"
    with pytest.raises(PolicyError, match=reason):
        policy.check(most + 1, 50, 30, active=False, minimum=3)
    parties, identities = tuple(range(10 * most)), (b"x",) * (10 * most)
    with used_memory() as used, pytest.raises(PolicyError, match="at most"):
        Setup(b"r", parties, 30, 5, neighbours=50, active=True, identities=identities)
    assert used[0] < 100_000


@contextmanager
def used_memory():
    """Give a list that gets, at the end, the most bytes that Python had at once."""
    most = []
    tracemalloc.start()
    try:
        yield most
    finally:
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()


def test_the_order_of_the_graph_is_that_of_the_digests():
    def slow(n, seed):
        def key(i):
            parts = b"fedmmf secagg 1 graph", seed, b"%d" % i
            return sha256(b"".join(struct.pack("<Q", len(p)) + p for p in parts)).digest()

        return sorted(range(n), key=key)

    for n, seed in ((3, b""), (1000, b"a"), (20_000, b"seed")):
        order, place = graph.circle(n, seed)
        assert order.tolist() == slow(n, seed)
        assert place[order].tolist() == list(range(n))


def test_the_largest_cohort_fits_a_small_device():
    """The ring of the graph while it is made, all rings that are kept, and a whole session."""
    n = LARGEST_COHORT
    graph.circle.cache_clear()
    with used_memory() as used:
        order, place = graph.circle(n, b"large")
    assert used[0] < 10e6
    assert graph.circle.cache_info().maxsize * (order.nbytes + place.nbytes) < 10e6
    parties = tuple(range(n))
    with used_memory() as used:
        setup = Setup(b"r", parties, 27, 5, neighbours=50, graph_seed=b"large")
        client = SessionClient(setup, 7)
        for number in range(6):
            client.first(Trip(1, number).encode(setup), np.zeros(5, np.uint32))
        assert len(setup.peers(7)) == 50
    assert used[0] < 20e6


def rows_of(n, k, seed):
    return [graph.neighbours(n, k, seed, i) for i in range(n)]


@pytest.mark.parametrize(("n", "k"), [(8, 4), (9, 4), (10, 5), (100, 51), (7, 6), (50, 2)])
def test_the_graph_is_regular_symmetric_connected_and_fixed_by_its_seed(n, k):
    rows = rows_of(n, k, b"seed")
    assert all(len(set(row)) == k and i not in row for i, row in enumerate(rows))
    assert all(i in rows[j] for i, row in enumerate(rows) for j in row)
    reached, edge = {0}, {0}
    while edge:
        edge = {j for i in edge for j in rows[i]} - reached
        reached |= edge
    assert len(reached) == n
    assert rows == rows_of(n, k, b"seed")
    assert k == n - 1 or rows != rows_of(n, k, b"other")


def exact_tail(population, marked, drawn, at_least):
    ways = sum(
        comb(marked, i) * comb(population - marked, drawn - i)
        for i in range(at_least, min(marked, drawn) + 1)
    )
    return Fraction(ways, comb(population, drawn))


def test_tails_are_those_of_exact_fractions():
    for population, marked, drawn in ((99, 10, 30), (942, 95, 60), (50, 40, 20)):
        mode = (drawn + 1) * (marked + 1) // (population + 2)
        for at_least in range(drawn + 2):
            exact = exact_tail(population, marked, drawn, at_least)
            found = policy.log_upper_tail(population, marked, drawn, at_least)
            if exact == 0:
                assert found == -float("inf")
            elif at_least <= mode:
                assert found == 0
            else:
                assert found == pytest.approx(log2(exact), abs=1e-6)


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize(
    ("n", "corrupt", "dropout"), [(100, 0.1, 0.05), (943, 0.1, 0.05), (1000, 0.1, 0.3)]
)
def test_parameters_keep_each_property_by_exact_count(n, corrupt, dropout, active):
    k, t = parameters(n, corrupt, dropout, active=active)
    bad, gone = round(corrupt * n), round(dropout * n)
    policy.check(n, k, t, active=active, minimum=3)
    assert n * exact_tail(n - 1, gone, k, k - t + 1) <= Fraction(1, 2**20)
    if active:
        most = t - k // 2 - 2  # corrupt neighbours that are borne
        assert n * exact_tail(n - 1, bad, k, most + 1) <= Fraction(1, 2**40)
        assert 2 * t > k + 1 + most
    else:
        apart = Fraction(comb(n - k // 2, bad + gone - k // 2), comb(n, bad + gone))
        many = exact_tail(n - 1, bad, k, t)
        assert n * (apart + many) <= Fraction(1, 2**40)
    if not active and k > 40:  # fewer neighbours would not do
        fewer = k - 2 * (k // 64) - 2
        assert n * exact_tail(n - 1, gone, fewer, fewer - least_threshold(fewer + 1) + 1) > 2**-21


def test_small_cohorts_use_everybody_and_impossible_ones_are_refused():
    assert parameters(5, 0.2, 0.2) == (4, 3)
    with pytest.raises(PolicyError, match="corrupt ones"):
        parameters(10, 0.8, 0.0)
    with pytest.raises(PolicyError, match="survivors"):
        parameters(10, 0.1, 0.7)
    with pytest.raises(PolicyError, match="must be in"):
        parameters(10, 1.0, 0.1)


@pytest.mark.parametrize("active", [False, True])
def test_from_the_minimum_on_every_cohort_has_parameters(active):
    for n in range(policy.MINIMUM_COHORT, 200):
        policy.parameters(n, 0.05, 0.05, active=active)
    with pytest.raises(PolicyError):
        policy.parameters(policy.MINIMUM_COHORT - 1, 0.05, 0.05, active=active)


def test_of_three_that_sign_all_have_to_stay():
    assert policy.parameters(3, 0.05, 0.05, active=True) == (2, 3)
    assert policy.parameters(4, 0.05, 0.05, active=True) == (3, 3)
