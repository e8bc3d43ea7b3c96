import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedmmf import wire
from fedmmf.errors import WireError
from fedmmf.factorization.sgd import STEPS, Plan

FINITE = st.floats(-1e6, 1e6, width=32)


@st.composite
def rounds(draw):
    n_items, k = draw(st.integers(0, 6)), draw(st.integers(1, 4))
    factors = draw(hnp.arrays(np.float32, (n_items, k), elements=FINITE))
    plan = Plan(k, draw(st.sampled_from(STEPS)), draw(FINITE), draw(FINITE), draw(FINITE))
    return wire.Round(
        draw(st.integers(1, 99)), draw(st.integers(0, 99)), draw(st.booleans()), plan, factors
    )


@st.composite
def updates(draw):
    items = np.array(sorted(draw(st.sets(st.integers(0, 49)))), np.int32)
    k = draw(st.integers(1, 4))
    gradients = draw(hnp.arrays(np.float32, (len(items), k), elements=FINITE))
    error = draw(st.floats(0, 1e9))
    return wire.Update(draw(st.integers(1, 99)), items, gradients, draw(st.integers(0, 9)), error)


def same(a, b):
    for name, value in vars(a).items():
        if isinstance(value, np.ndarray):
            assert np.array_equal(value, getattr(b, name))
        else:
            assert value == getattr(b, name)


@given(rounds())
def test_round_survives_the_wire(message):
    data = message.encode()
    same(message, wire.Round.decode(data))
    assert len(data) == wire.Round.n_bytes(*message.item_factors.shape)


@given(updates())
def test_update_survives_the_wire(message):
    data = message.encode()
    k = message.gradients.shape[1]
    same(message, wire.Update.decode(data, n_items=50, factors=k))
    assert len(data) == wire.Update.n_bytes(len(message.items), k)


def test_joining_survives_the_wire():
    assert wire.Join.decode(wire.Join().encode()) == wire.Join()
    assert wire.Joined.decode(wire.Joined(17).encode()) == wire.Joined(17)


DECODERS = [
    wire.Join.decode,
    wire.Joined.decode,
    wire.Round.decode,
    lambda data: wire.Update.decode(data, n_items=50, factors=2),
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
    k = message.gradients.shape[1]
    try:
        read = wire.Update.decode(bytes(good), n_items=50, factors=k)
    except WireError:
        return
    assert np.isfinite(read.gradients).all()
    assert (np.diff(read.items.astype(int)) > 0).all()
    assert ((read.items >= 0) & (read.items < 50)).all()


@pytest.mark.parametrize("cut", [1, 5, 6, 20])
def test_a_truncated_or_padded_message_is_refused(cut):
    message = wire.Update(1, np.array([3], np.int32), np.ones((1, 2), np.float32)).encode()
    for bad in (message[:-cut], message + b"x" * cut):
        with pytest.raises(WireError, match="malformed message"):
            wire.Update.decode(bad, n_items=5, factors=2)


@pytest.mark.parametrize(
    ("items", "gradient", "rule"),
    [
        ([2, 1], 0.0, "increase"),
        ([1, 1], 0.0, "increase"),
        ([1, 9], 0.0, r"within \[0, 5\)"),
        ([-1, 2], 0.0, "increase"),
        ([1, 2], np.nan, "finite"),
        ([1, 2], np.inf, "finite"),
    ],
)
def test_items_and_gradients_are_checked(items, gradient, rule):
    bad = wire.Update(1, np.array(items, np.int32), np.full((2, 2), gradient, np.float32)).encode()
    with pytest.raises(WireError, match=rule):
        wire.Update.decode(bad, n_items=5, factors=2)


def test_items_that_overflow_a_difference_are_refused():
    items = np.array([0, 2**31 - 1, -5, 3], np.int32)
    bad = wire.Update(1, items, np.zeros((4, 2), np.float32)).encode()
    with pytest.raises(WireError, match="increase"):
        wire.Update.decode(bad, n_items=5, factors=2)
