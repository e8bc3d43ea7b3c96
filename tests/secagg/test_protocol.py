"""Whole rounds: the sum is exact whoever drops out, or the round aborts and says why."""

from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from oracle import make_clients, make_setup, make_values, plain_sum, run

from fedmmf.secagg import (
    PRIME61,
    RING32,
    RING64,
    BelowThresholdError,
    FixedPoint,
    RoundClient,
    RoundError,
    RoundServer,
    SecAggError,
    Stage,
)
from fedmmf.secagg.framing import HEADER_BYTES
from fedmmf.secagg.messages import Request, Revealed
from fedmmf.secagg.setup import SERVER

RINGS = [RING32, RING64, PRIME61]
PASSIVE = [Stage.ADVERTISE, Stage.SHARE_KEYS, Stage.MASKED_INPUT, Stage.UNMASK]
ACTIVE = [*PASSIVE[:3], Stage.CONFIRM, Stage.UNMASK]


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize("ring", RINGS, ids=lambda ring: ring.name)
def test_the_sum_is_exact(ring, active):
    setup = make_setup(n=6, ring=ring, active=active)
    values = make_values(setup)
    server, total, _ = run(setup, values)
    assert total.tolist() == plain_sum(setup, values, setup.parties)
    assert server.survivors == setup.parties


def expected_end(setup, drops, stages):
    """Say, for a complete graph, at which stage a round aborts, if it does."""
    for stage in stages:
        left = [p for p in setup.parties if p not in drops or stage < drops[p]]
        if len(left) < setup.least:
            return stage, len(left)
    return None


@pytest.mark.parametrize("active", [False, True])
def test_every_pattern_of_drop_outs_of_four_parties_ends_as_it_must(active):
    setup = make_setup(n=4, length=2, active=active)
    stages = ACTIVE if active else PASSIVE
    values, finished, aborted = make_values(setup), 0, 0
    for pattern in product([*stages, None], repeat=4):
        drops = {p: s for p, s in zip(setup.parties, pattern, strict=True) if s}
        end = expected_end(setup, drops, stages)
        if end is None:
            server, total, _ = run(setup, values, drops)
            late = (None, Stage.CONFIRM, Stage.UNMASK)
            alive = [p for p in setup.parties if drops.get(p) in late]
            assert server.survivors == tuple(alive)
            assert total.tolist() == plain_sum(setup, values, alive)
            finished += 1
        else:
            with pytest.raises(BelowThresholdError, match=end[0].title) as caught:
                run(setup, values, drops)
            assert (caught.value.answered, caught.value.needed) == (end[1], setup.least)
            aborted += 1
    assert finished > 10
    assert aborted > 100


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_cohort_threshold_graph_ring_and_drop_pattern(data):
    n = data.draw(st.integers(3, 12), "n")
    active = data.draw(st.booleans(), "active")
    ring = data.draw(st.sampled_from(RINGS), "ring")
    k = data.draw(st.sampled_from([None, *range(2, n - 1, 2)]), "neighbours")
    holders = n if k is None else k + 1
    least = 2 * holders // 3 + 1 if active else holders // 2 + 1
    threshold = data.draw(st.integers(least, holders), "threshold")
    stages = ACTIVE if active else PASSIVE
    options = {"neighbours": k, "graph_seed": bytes([n]), "length": data.draw(st.integers(1, 9))}
    setup = make_setup(n, threshold, ring=ring, active=active, **options)
    most = data.draw(st.integers(0, holders - threshold + 1), "drop-outs")
    leavers = data.draw(st.permutations(setup.parties))[:most]
    gone = {party: data.draw(st.sampled_from(stages)) for party in leavers}
    values = make_values(setup)
    error = server = None
    try:
        server, total, _ = run(setup, values, gone)
    except BelowThresholdError as caught:
        error = caught
    event("aborted" if error else "finished with drop-outs" if gone else "finished")
    if error:
        assert gone
        assert error.answered < error.needed
    else:
        assert set(server.survivors) <= {p for p in setup.parties if gone.get(p, 9) > 5}
        assert len(server.survivors) >= setup.least
        assert total.tolist() == plain_sum(setup, values, server.survivors)


def test_a_party_whose_neighbours_are_gone_is_left_out_before_it_matters():
    setup = make_setup(n=12, neighbours=4, graph_seed=b"s")
    lonely = setup.parties[0]
    drops = dict.fromkeys(setup.peers(lonely)[:3], Stage.SHARE_KEYS)
    values = make_values(setup)
    server, total, _ = run(setup, values, drops)
    assert lonely not in server.survivors
    assert total.tolist() == plain_sum(setup, values, server.survivors)


def test_an_aborted_round_says_how_many_answered_and_keeps_nothing():
    setup = make_setup(n=5, threshold=4)
    server, sent, clients = run(setup, until=Stage.MASKED_INPUT)
    for party in setup.parties[:3]:
        server.receive(party, clients[party].masked_input(sent[party], make_values(setup)[party]))
    with pytest.raises(BelowThresholdError, match="3 parties answered, at least 4 are needed"):
        server.next_messages()
    assert server.survivors == ()
    for call in (server.next_messages, server.result):
        with pytest.raises(RoundError, match="aborted"):
            call()


def test_the_secure_sum_of_real_numbers_is_the_plain_fixed_point_sum():
    n, length = 9, 50
    numbers = np.sin(np.arange(n * length, dtype=float)).reshape(n, length) * 7  # both signs
    for ring in RINGS:
        setup = make_setup(n, length=length, ring=ring)
        codec = FixedPoint(n, 5.0, ring)  # some are clipped
        values = {p: codec.encode(numbers[i]) for i, p in enumerate(setup.parties)}
        drops = {setup.parties[2]: Stage.MASKED_INPUT}
        server, total, _ = run(setup, values, drops)
        rows = [setup.index[p] for p in server.survivors]
        plain = sum(codec.quantize(numbers[row]) for row in rows)
        assert (plain < 0).any()
        assert (plain > 0).any()
        assert np.array_equal(ring.lift(total), plain)
        assert np.array_equal(codec.decode(total), plain / codec.scale)


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("n_wrong", [1, 2, 3, 4])
def test_two_wrong_holders_of_nine_are_known_and_the_sum_is_right(n_wrong, dropped):
    setup = make_setup(n=9, threshold=5)
    values = make_values(setup)
    last = setup.parties[-1]
    drops = {last: Stage.MASKED_INPUT} if dropped else {}
    server, sent, clients = run(setup, values, drops, until=Stage.UNMASK)
    wrong = [party for party in sent if party != last][1 :: 8 // 4][:n_wrong]
    reveal(setup, server, sent, clients, wrong)
    if n_wrong + dropped < 5:
        assert server.result().tolist() == plain_sum(setup, values, tuple(sent))
        assert server.wrong == set(wrong)
    else:
        with pytest.raises(BelowThresholdError, match="holders with right shares of party"):
            server.result()
        assert server.stage is Stage.ABORTED
        assert server.wrong == set(wrong)


def reveal(setup, server, sent, clients, wrong):
    """Everybody answers the last stage; some reveal shares that they were not given."""
    for party, data in sent.items():
        reply = clients[party].unmask(data)
        shares = Revealed.decode(setup, party, reply).shares
        if party in wrong:
            reply = Revealed({o: s ^ 1 for o, s in shares.items()}).encode(setup, party)
        server.receive(party, reply)


def test_an_owner_whose_shares_give_no_secret_is_named(monkeypatch):
    """It is not its holders' fault: what they hold has its own prints."""
    setup = make_setup(n=9, threshold=5)
    values, bad = make_values(setup), setup.parties[4]
    split = RoundClient._split

    def skewed(client, holders):
        shares = split(client, holders)
        if client.party != bad:
            return shares
        ends = {h: text[:32] + bytes([text[32] ^ 1]) + text[33:] for h, text in shares.items()}
        return shares | {h: ends[h] for h in setup.parties[:2]}

    monkeypatch.setattr(RoundClient, "_split", skewed)
    server, sent, clients = run(setup, values, until=Stage.UNMASK)
    reveal(setup, server, sent, clients, [])
    with pytest.raises(SecAggError, match=f"party {bad} refused: its shares do not give"):
        server.result()
    assert not server.wrong


@pytest.mark.parametrize("active", [False, True])
def test_a_batch_is_summed_whole_or_not_at_all(active):
    """So et al. 2021: what two sums differ by is never less than a batch."""
    setup = make_setup(n=14, active=active, threshold=9 + active, batch=3)
    values, gone = make_values(setup), setup.parties[4]
    server, total, _ = run(setup, values, {gone: Stage.MASKED_INPUT})
    left = tuple(p for p in setup.parties if p not in setup.parties[3:6])
    assert server.survivors == left
    assert total.tolist() == plain_sum(setup, values, left)
    assert [len(setup.mates(p)) for p in setup.parties] == [3] * 9 + [5] * 5


def test_parties_refuse_to_be_parted_from_their_batch():
    setup = make_setup(n=9, threshold=5, batch=3)
    _, _, clients = run(setup, until=Stage.UNMASK)
    survivors = frozenset(setup.parties[1:])
    request = Request(survivors, frozenset(setup.parties[:1])).encode(setup, SERVER)
    for party in setup.parties[1:]:
        with pytest.raises(SecAggError, match="some parties of a batch, and not the others"):
            clients[party].unmask(request)


def test_two_rounds_of_the_same_values_look_different():
    values, seen = None, []
    for round_id in (b"one", b"two"):
        setup = make_setup(round_id=round_id)
        values = values or make_values(setup)
        _, sent, clients = run(setup, values, until=Stage.MASKED_INPUT)
        party = setup.parties[0]
        seen.append(clients[party].masked_input(sent[party], values[party])[HEADER_BYTES:])
    assert seen[0] != seen[1]


def test_entropy_is_the_operating_systems_unless_told(monkeypatch):
    import os

    from fedmmf.secagg import RoundClient

    setup = make_setup()
    assert RoundClient.__init__.__kwdefaults__["entropy"] is os.urandom
    first, second = (RoundClient(setup, setup.parties[0]).advertise() for _ in range(2))
    assert first != second
    assert make_clients(setup)[1].advertise() == make_clients(setup)[1].advertise()
    assert RoundServer(setup).expected == setup.parties
