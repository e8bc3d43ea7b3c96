"""Every message: what it says survives the wire, and nothing else gets through."""

import re
import tracemalloc
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_samples import MESSAGES, STRATEGIES, by_class, known_for, same

from fedmmf import wire
from fedmmf.aggregation.adaptive.messages import Collected
from fedmmf.aggregation.homomorphic.messages import Ciphertexts, HomomorphicKey
from fedmmf.aggregation.secure.messages import SecureSetup, SecureTrip
from fedmmf.errors import WireError
from fedmmf.solvers.contract import UpdateShape
from fedmmf.wire.messages import Expected

MANY = 1 << 20


def framed(kind, body):
    return b"FMMF" + bytes([3, kind]) + len(body).to_bytes(4, "little") + body


# Every class


RETIRED = {17}  # was HomomorphicTask's in version 2; a number never comes to mean something else


def test_kinds_are_numbered_from_1_and_a_retired_number_is_not_used_again():
    numbers = [int(kind) for kind in wire.Kind]
    assert sorted({*numbers, *RETIRED}) == list(range(1, len(numbers) + len(RETIRED) + 1))
    assert len(set(numbers)) == len(numbers)
    assert not RETIRED & set(numbers)
    assert max(numbers) < 128  # the rest is for other packages


def test_every_kind_is_one_message_of_the_same_name():
    assert [cls.kind for cls in MESSAGES] == list(wire.Kind)
    for cls in MESSAGES:
        assert re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).upper() == cls.kind.name


def test_every_message_is_tried_below():
    assert set(STRATEGIES) == set(MESSAGES)


every_class = pytest.mark.parametrize("cls", **by_class)


@every_class
@given(data=st.data())
def test_messages_survive_the_wire(cls, data):
    message = data.draw(STRATEGIES[cls])
    frame = message.encode()
    for read in (
        cls.decode(frame),
        cls.decode(frame, known_for(message)),
        wire.read(frame, MESSAGES),
    ):
        assert same(read, message)
    for name, value in vars(message).items():
        found = getattr(read, name)
        assert type(found) is type(value) or isinstance(value, int | float)
        assert np.array_equal(found, value)


@every_class
@given(noise=st.binary(max_size=200))
def test_noise_is_refused(cls, noise):
    with pytest.raises(WireError):
        cls.decode(noise)


@every_class
@given(body=st.binary(max_size=120))
def test_whatever_is_read_has_no_other_encoding(cls, body):
    """Bodies of noise behind a right header: refused, or exactly what would be written."""
    frame = framed(cls.kind, body)
    try:
        read = cls.decode(frame)
    except WireError:
        return
    assert read.encode() == frame


@every_class
@given(data=st.data())
def test_a_changed_message_is_refused_or_still_valid(cls, data):
    message = data.draw(STRATEGIES[cls])
    frame = bytearray(message.encode())
    at = data.draw(st.integers(0, len(frame) - 1))
    frame[at] ^= data.draw(st.integers(1, 255))
    try:
        read = cls.decode(bytes(frame), known_for(message))
    except WireError:
        return
    assert read.encode() == bytes(frame)


@every_class
@given(data=st.data())
def test_a_truncated_or_padded_message_is_refused(cls, data):
    """Whether or not the header's length is changed along with it."""
    frame = data.draw(STRATEGIES[cls]).encode()
    kept = data.draw(st.integers(0, len(frame) - 1))
    padding = data.draw(st.binary(min_size=1, max_size=20))
    wrong = [frame[:kept], frame + padding, framed(cls.kind, frame[10:] + padding)]
    if kept >= 10:
        wrong.append(framed(cls.kind, frame[10:kept]))
    for bad in wrong:
        with pytest.raises(WireError, match="malformed message"):
            cls.decode(bad)


@every_class
@settings(max_examples=20)
@given(data=st.data())
def test_counts_that_lie_allocate_nothing(cls, data):
    """Every place where a count could be says that four thousand million entries follow."""
    frame = data.draw(STRATEGIES[cls]).encode()
    tracemalloc.start()
    try:
        for at in range(10, len(frame) - 3):
            try:
                cls.decode(frame[:at] + b"\xff" * 4 + frame[at + 4 :])
            except WireError:
                continue
        assert tracemalloc.get_traced_memory()[1] < MANY
    finally:
        tracemalloc.stop()


# What single messages have to fulfil

FORM = UpdateShape(rank=2, width=2, broadcast_width=3, n_parameters=5, n_totals=1)
SIZES = Expected(n_catalogue=8, n_items=5, update_shape=FORM, n_totals=1)
INVITATION = wire.Invitation(
    bytes(16), bytes(32), 1.0, 5.0, 1.0, "sgd", 2, "", 3, "secure", 16.0, 1e4, 1, 3
)
ROUND = wire.Round(3, 1, False, 2, np.zeros(5), np.zeros((5, 3), np.float32))
LAST = replace(ROUND, is_last=True, item_rows=np.zeros((8, 3), np.float32))
LAYOUT = wire.Layout(np.array([0, 3, 7], np.int32), np.array([3.5]), 1.0)
SETUP = SecureSetup(bytes(16), False, bytes(32), 0, 3, 3, 3, 1, np.array([1, 4], np.int32), ())


def update(items, counts=(), n_rows=None, width=2, n_totals=1):
    rows = np.zeros((len(items) if n_rows is None else n_rows, width), np.float32)
    arrays = np.array(items, np.int32), np.array(counts, np.uint32)
    return wire.Update(1, *arrays, rows, np.zeros(n_totals))


@pytest.mark.parametrize(
    ("message", "rule"),
    [
        (replace(INVITATION, rank=0), r"k is in \[1, 2048\]; got 0"),
        (replace(INVITATION, rank=2049), "got 2049"),
        (replace(INVITATION, rounds=0), "there must be a round"),
        (replace(INVITATION, row_bound=0.0), "bounds are positive"),
        (replace(INVITATION, columns=0), r"columns are in \[1, 128\]; got 0"),
        (replace(INVITATION, columns=129), "got 129"),
        (replace(INVITATION, total_bound=-1.0), "bounds are positive"),
        (replace(INVITATION, scale_min=np.nan), "finite"),
        (replace(INVITATION, row_bound=np.inf), "finite"),
        (wire.Joined(0, b""), "users may join; got 0"),
        (wire.Joined(2**31, b""), "users may join"),
        (wire.Joined(1, b"k"), "an identity has 32 bytes"),
        (replace(LAYOUT, items=np.zeros(0, np.int32)), "at least one item is summed"),
        (replace(LAYOUT, items=np.array([3, 3])), "increase strictly"),
        (replace(LAYOUT, line=np.array([np.nan])), "finite"),
        (replace(LAYOUT, line=np.zeros(0)), "a level at least"),
        (replace(LAYOUT, shrinkage=0.4), r"a shrinkage is in \[0.5, 50\]; got 0.4"),
        (replace(LAYOUT, shrinkage=np.nan), "finite"),
        (wire.Refused("x" * 1001), "1000 characters at most"),
        (replace(ROUND, round=0, best_round=0), "rounds count from 1"),
        (replace(ROUND, best_round=3), "the best one is over"),
        (replace(ROUND, rank=0), "k must fit into the rows"),
        (replace(ROUND, rank=4), "k must fit into the rows"),
        (update([1, 2], n_rows=1), "a row and a count per item"),
        (update([1, 2], counts=[1]), "a row and a count per item"),
        (update([1, 2], counts=[1, 1]), "no counts are sent"),
        (update([1, 2], counts=[2, 0]), "each item has a rater"),
        (Collected(np.array([1], np.int32), np.zeros(2, np.float32)), "a masked rating per item"),
        (replace(SETUP, n_parties=0), "1 to 100000 parties are summed; got 0"),
        (replace(SETUP, n_parties=100_001, n_users=100_001), "got 100001"),
        (replace(SETUP, party=3), "party 3 is not one of 3"),
        (replace(SETUP, n_users=2), "3 parties have 2 users"),
        (replace(SETUP, n_users=2**31), "3 parties have"),
        (replace(SETUP, batch=0), "a batch has 1 to 3 parties; got 0"),
        (replace(SETUP, batch=4), "a batch has 1 to 3 parties; got 4"),
        (replace(SETUP, identities=(bytes(32),) * 2), "an identity for each party; got 2"),
        (replace(SETUP, for_survey=True), "a survey leaves nothing out"),
        (SecureTrip(0, bytes(32), b""), "trip must be 1, 2 or 3; got 0"),
        (SecureTrip(4, bytes(32), b""), "trip must be 1, 2 or 3; got 4"),
        (HomomorphicKey("ckks", 0, bytes(32), b""), "users are summed; got 0"),
        (HomomorphicKey("ckks", 2**31, bytes(32), b""), "users are summed"),
    ],
)
def test_what_a_message_has_to_fulfil_is_checked(message, rule):
    with pytest.raises(WireError, match=rule):
        type(message).decode(message.encode())


@pytest.mark.parametrize(
    ("message", "known", "rule"),
    [
        (replace(ROUND, rank=1), SIZES, r"must be \(2, 5, 3, 5\); got \(1, 5, 3, 5\)"),
        (replace(ROUND, item_rows=np.zeros((4, 3))), SIZES, r"got \(2, 4, 3, 5\)"),
        (replace(ROUND, item_rows=np.zeros((5, 2))), SIZES, r"got \(2, 5, 2, 5\)"),
        (replace(ROUND, parameters=np.zeros(4)), SIZES, r"got \(2, 5, 3, 4\)"),
        (replace(ROUND, item_rows=LAST.item_rows), SIZES, r"got \(2, 8, 3, 5\)"),
        (replace(LAST, item_rows=ROUND.item_rows), SIZES, r"be \(2, 8, 3, 5\); got \(2, 5, 3, 5\)"),
        (update([1], width=3), SIZES, r"must be \(2, 1\); got \(3, 1\)"),
        (update([1], n_totals=2), SIZES, r"must be \(2, 1\); got \(2, 2\)"),
        (update([1, 5]), SIZES, r"within \[0, 5\)"),
        (Collected(np.array([5]), np.zeros(1)), SIZES, r"within \[0, 5\)"),
        (replace(LAYOUT, items=np.array([0, 8])), SIZES, r"within \[0, 8\)"),
    ],
)
def test_what_a_receiver_knows_is_checked(message, known, rule):
    assert same(type(message).decode(message.encode()), message)
    with pytest.raises(WireError, match=rule):
        type(message).decode(message.encode(), known)


def test_what_fits_is_accepted():
    for message, known in (
        (ROUND, SIZES),
        (LAST, SIZES),
        (LAYOUT, SIZES),
        (update([0, 4]), SIZES),
        (update([0, 4], counts=[1, 2]), SIZES),
        (update([]), SIZES),
        (SETUP, SIZES),
        (replace(SETUP, identities=(bytes(32), b"a" * 32, b"b" * 32)), SIZES),
        (replace(SETUP, for_survey=True, left_out=np.zeros(0, np.int32)), SIZES),
    ):
        assert same(type(message).decode(message.encode(), known), message)


def test_counts_default_to_one_each():
    assert update([0, 4]).n_raters.tolist() == [1, 1]
    assert update([0, 4], counts=[1, 2]).n_raters.tolist() == [1, 2]


def test_a_key_does_not_show_in_messages_to_people():
    key = HomomorphicKey("ckks", 12, b"channel secret".ljust(32), b"public key")
    assert "secret" not in repr(key)
    assert "public" not in repr(key)


@pytest.mark.parametrize(
    "message",
    [
        replace(ROUND, item_rows=np.ones((1 << 15, 8), np.float32)),
        update(range(1 << 15), width=8),
        Ciphertexts(1, bytes(MANY)),
        SecureTrip(1, bytes(32), bytes(MANY)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_reading_a_large_message_takes_a_few_times_its_size_at_most(message):
    frame = message.encode()
    decode = partial(type(message).decode, frame)
    decode()
    tracemalloc.start()
    try:
        decode()
        assert tracemalloc.get_traced_memory()[1] < 2.5 * len(frame)
    finally:
        tracemalloc.stop()
