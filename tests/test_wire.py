from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedmmf import wire
from fedmmf.errors import WireError
from fedmmf.factorization.contract import Public

FINITE = st.floats(-1e6, 1e6, width=32)


@st.composite
def rounds(draw):
    n_items, factors, more = (
        draw(st.integers(0, 6)),
        draw(st.integers(1, 4)),
        draw(st.integers(0, 3)),
    )
    rows = draw(hnp.arrays(np.float32, (n_items, factors + more), elements=FINITE))
    parameters = draw(hnp.arrays(np.float64, draw(st.integers(0, 4)), elements=st.floats(-9, 9)))
    public = Public(factors, parameters, rows)
    numbers = (draw(st.integers(1, 99)), draw(st.integers(0, 99)), draw(st.booleans()))
    return wire.Round(*numbers, draw(st.sampled_from(wire.SOLVERS)), public)


@st.composite
def updates(draw):
    items = np.array(sorted(draw(st.sets(st.integers(0, 49)))), np.int32)
    rows = draw(hnp.arrays(np.float32, (len(items), draw(st.integers(1, 4))), elements=FINITE))
    totals = draw(hnp.arrays(np.float64, draw(st.integers(0, 4)), elements=st.floats(-9, 9)))
    return wire.Update(draw(st.integers(1, 99)), items, rows, totals)


def sizes(message):
    return {"n_items": 50, "width": message.rows.shape[1], "n_totals": len(message.totals)}


def small_update(items, value=0.0):
    rows = np.full((len(items), 2), value, np.float32)
    return wire.Update(1, np.array(items, np.int32), rows, np.zeros(1)).encode()


SMALL = {"n_items": 5, "width": 2, "n_totals": 1}


def same(a, b):
    for name, value in vars(a).items():
        if isinstance(value, np.ndarray):
            assert np.array_equal(value, getattr(b, name))
        elif isinstance(value, Public):
            same(value, getattr(b, name))
        else:
            assert value == getattr(b, name)


@given(rounds())
def test_round_survives_the_wire(message):
    data = message.encode()
    same(message, wire.Round.decode(data))
    assert len(data) == wire.Round.n_bytes(message.public)


@given(updates())
def test_update_survives_the_wire(message):
    data = message.encode()
    same(message, wire.Update.decode(data, **sizes(message)))
    n_totals = len(message.totals)
    assert len(data) == wire.Update.n_bytes(len(message.items), message.rows.shape[1], n_totals)


def test_joining_survives_the_wire():
    assert wire.Join.decode(wire.Join().encode()) == wire.Join()
    for yes in (False, True):
        assert wire.Joined.decode(wire.Joined(yes).encode()) == wire.Joined(yes)
        assert wire.Survey.decode(wire.Survey(yes).encode()) == wire.Survey(yes)


def test_collected_ratings_survive_the_wire():
    items, values = np.array([1, 5], np.int32), np.array([0.5, -1.25], np.float32)
    data = wire.Collected(items, values).encode()
    read = wire.Collected.decode(data, n_items=6)
    assert np.array_equal(read.items, items)
    assert np.array_equal(read.masked_ratings, values)
    with pytest.raises(WireError, match=r"within \[0, 5\)"):
        wire.Collected.decode(data, n_items=5)
    with pytest.raises(WireError, match="body must have 16 bytes"):
        wire.Collected.decode(data[:-1], n_items=6)


def test_messages_of_homomorphic_sums_survive_the_wire():
    for message in (
        wire.HomomorphicKey("ckks", 12, 4.0, bytes(range(32)), b"public"),
        wire.Task(7, b"message", (0, 3, 6)),
        wire.Task(7, b"message"),
        wire.SealedRound(3, b"n" * 12, b"box"),
        wire.Ciphertexts(3, b"data"),
    ):
        assert type(message).decode(message.encode()) == message


def test_a_key_does_not_show_in_messages_to_people():
    key = wire.HomomorphicKey("ckks", 12, 4.0, b"channel secret".ljust(32), b"public")
    assert "channel secret" not in repr(key)


@pytest.mark.parametrize(
    ("message", "rule"),
    [
        (wire.HomomorphicKey("ckks", 0, 4.0, b"c" * 32, b""), "must be positive"),
        (wire.HomomorphicKey("ckks", 3, np.nan, b"c" * 32, b""), "must be positive"),
        (wire.HomomorphicKey("ckks", 3, np.inf, b"c" * 32, b""), "must be positive"),
        (wire.Task(5, b"", (3, 3)), "must increase"),
        (wire.Task(5, b"", (3, 5)), "must increase"),
    ],
)
def test_homomorphic_messages_are_checked(message, rule):
    with pytest.raises(WireError, match=rule):
        type(message).decode(message.encode())


def test_a_task_shorter_than_its_items_is_refused():
    with pytest.raises(WireError, match="at least 8 bytes; got 7"):
        wire.Task.decode(wire.Task(5, b"", (3, 4)).encode()[:-1])


DECODERS = [
    wire.Join.decode,
    wire.Joined.decode,
    wire.Round.decode,
    lambda data: wire.Update.decode(data, **SMALL),
    wire.HomomorphicKey.decode,
    wire.Task.decode,
    wire.SealedRound.decode,
    wire.Ciphertexts.decode,
]


@given(st.binary(max_size=200), st.sampled_from(DECODERS))
def test_noise_is_refused(data, decode):
    with pytest.raises(WireError):
        decode(data)


@given(updates(), st.data())
def test_a_changed_update_is_refused_or_still_valid(message, data):
    """Whatever one flipped byte does, nothing out of range comes through."""
    good = bytearray(message.encode())
    at = data.draw(st.integers(0, len(good) - 1))
    good[at] ^= data.draw(st.integers(1, 255))
    try:
        read = wire.Update.decode(bytes(good), **sizes(message))
    except WireError:
        return
    assert np.isfinite(read.rows).all()
    assert (np.diff(read.items.astype(int)) > 0).all()
    assert ((read.items >= 0) & (read.items < 50)).all()


@pytest.mark.parametrize("cut", [1, 5, 6, 20])
def test_a_truncated_or_padded_message_is_refused(cut):
    message = small_update([3])
    for bad in (message[:-cut], message + b"x" * cut):
        with pytest.raises(WireError, match="malformed message"):
            wire.Update.decode(bad, **SMALL)


@pytest.mark.parametrize(
    ("items", "value", "rule"),
    [
        ([2, 1], 0.0, "increase"),
        ([1, 1], 0.0, "increase"),
        ([1, 9], 0.0, r"within \[0, 5\)"),
        ([-1, 2], 0.0, "increase"),
        ([0, 2**31 - 1, -5, 3], 0.0, "increase"),  # a difference would overflow
        ([1, 2], np.nan, "finite"),
        ([1, 2], np.inf, "finite"),
    ],
)
def test_items_and_rows_are_checked(items, value, rule):
    with pytest.raises(WireError, match=rule):
        wire.Update.decode(small_update(items, value), **SMALL)


def test_a_setup_with_identities_survives_the_wire():
    sizes = (0, 3, 3, 0, "sgd", 9, 2, 2, 16.0, 1e4, 3)
    keys = tuple(bytes([i]) * 32 for i in range(3))
    setup = wire.SecureSetup(b"s" * 16, b"g" * 32, *sizes, suppressed=(1, 4), identities=keys)
    assert wire.SecureSetup.decode(setup.encode()) == setup
    with pytest.raises(WireError, match="an identity for each party"):
        wire.SecureSetup.decode(replace(setup, identities=keys[:2]).encode())
