"""How any message is written and read: frames, fields, parcels, names, the catalogue's digest."""

import hashlib
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_samples import MESSAGES, by_class

from fedmmf import wire
from fedmmf.data.scales import RatingScale
from fedmmf.errors import DataError, WireError
from fedmmf.wire import frames
from fedmmf.wire.codec import (
    BLOB,
    BYTE,
    COUNTS,
    ITEMS,
    KEYS,
    MAX_TEXT,
    NAME,
    REAL,
    REALS,
    ROWS,
    SINGLES,
    SWITCH,
    TEXT,
    WHOLE,
    Reader,
    fixed,
)

NONE_LEFT = 64 * 1024  # bytes that Python and hypothesis may take for themselves


def read_field(field, data):
    reader = Reader(memoryview(data))
    value = field.read(reader)
    reader.end()
    return value


def u32(*numbers):
    return struct.pack(f"<{len(numbers)}I", *numbers)


def peak_of(function):
    """The most memory that a call had at a time, and what it raised."""
    tracemalloc.start()
    try:
        function()
        error = None
    except Exception as raised:
        error = raised
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak, error


# Frames


def test_a_frame_is_a_header_and_the_fields_in_their_order():
    message = wire.Joined(7, b"k" * 32)
    body = u32(7) + u32(32) + b"k" * 32
    assert message.encode() == b"FMMF" + bytes([4, 2]) + u32(len(body)) + body
    assert wire.Finished().encode() == b"FMMF" + bytes([4, 10]) + u32(0)


@pytest.mark.parametrize(
    ("at", "byte", "rule"),
    [(0, b"X", "must begin with"), (4, b"\x03", "version 4"), (5, b"\x09", "kind 7 is due; got 9")],
)
def test_another_magic_version_or_kind_is_refused(at, byte, rule):
    data = bytearray(wire.Ask(bytes(32)).encode())
    data[at : at + 1] = byte
    with pytest.raises(WireError, match=rule):
        wire.Ask.decode(bytes(data))


def test_what_is_too_short_for_a_header_is_refused():
    for size in range(frames.HEADER_BYTES):
        with pytest.raises(WireError, match=f"needs at least 10 bytes; got {size}"):
            wire.Finished.decode(wire.Finished().encode()[:size])


def test_the_length_of_a_frame_is_its_own():
    data = wire.Ask(bytes(32)).encode()
    with pytest.raises(WireError, match="1 bytes follow the frame"):
        wire.Ask.decode(data + b"x")
    with pytest.raises(WireError, match="the frame has 42 bytes; 41 arrived"):
        wire.Ask.decode(data[:-1])
    short = data[:6] + u32(31) + data[10:-1]
    with pytest.raises(WireError, match="32 bytes more are due; 31 are left"):
        wire.Ask.decode(short)
    long = data[:6] + u32(33) + data[10:] + b"x"
    with pytest.raises(WireError, match="1 bytes too many"):
        wire.Ask.decode(long)


def test_a_message_may_lie_anywhere_in_memory():
    """Arrays behind odd bytes are copied to where the processor likes them."""
    message = wire.Update(
        1,
        np.array([1, 4], np.int32),
        np.zeros(0, np.uint32),
        np.array([[0.5], [2.0]], np.float32),
        np.array([3.0]),
    )
    for shift in range(9):
        data = memoryview(bytes(shift) + message.encode())[shift:]
        read = wire.Update.decode(data)
        for name in ("items", "rows", "totals"):
            array = getattr(read, name)
            assert array.flags.aligned
            assert np.array_equal(array, getattr(message, name))


# Fields: one encoding, and nothing else is read


@pytest.mark.parametrize(
    ("field", "value", "data"),
    [
        (BYTE, 255, b"\xff"),
        (WHOLE, 2**32 - 1, b"\xff" * 4),
        (REAL, -0.5, struct.pack("<d", -0.5)),
        (SWITCH, True, b"\1"),
        (TEXT, "é", u32(2) + b"\xc3\xa9"),
        (BLOB, b"ab", u32(2) + b"ab"),
        (NAME, bytes(range(32)), bytes(range(32))),
        (fixed(3), b"abc", b"abc"),
        (KEYS, (b"a" * 32, b"b" * 32), u32(2) + b"a" * 32 + b"b" * 32),
        (KEYS, (), u32(0)),
    ],
)
def test_fields_are_written_as_the_page_says(field, value, data):
    assert field.write(value) == data
    assert read_field(field, data) == value


@pytest.mark.parametrize(
    ("field", "values", "dtype"),
    [
        (ITEMS, [0, 3, 2**31 - 1], "<i4"),
        (COUNTS, [5, 0, 2**32 - 1], "<u4"),
        (REALS, [0.5, -0.0, 1e300], "<f8"),
        (SINGLES, [0.5, -0.0, 3e38], "<f4"),
    ],
)
def test_arrays_are_written_as_the_page_says(field, values, dtype):
    array = np.array(values, dtype)
    data = u32(3) + array.tobytes()
    assert field.write(array) == data
    read = read_field(field, data)
    assert read.dtype == np.dtype(dtype)
    assert read.tobytes() == array.tobytes()
    assert field.write(array[:0]) == u32(0)
    assert read_field(field, u32(0)).shape == (0,)


def test_a_switch_is_0_or_1():
    assert [read_field(SWITCH, bytes([value])) for value in (0, 1)] == [False, True]
    for value in range(2, 256):
        with pytest.raises(WireError, match=f"0 or 1; got {value}"):
            read_field(SWITCH, bytes([value]))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("field", "write"),
    [
        (REAL, lambda x: struct.pack("<d", x)),
        (REALS, lambda x: u32(2) + struct.pack("<2d", 1.0, x)),
        (SINGLES, lambda x: u32(2) + struct.pack("<2f", 1.0, x)),
        (ROWS, lambda x: u32(1, 2) + struct.pack("<2f", 1.0, x)),
    ],
)
def test_all_numbers_are_finite(field, write, value):
    with pytest.raises(WireError, match="must be finite"):
        read_field(field, write(value))


@pytest.mark.parametrize(
    "text", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc3"]
)
def test_a_text_is_utf8(text):
    """Also no overlong forms, no surrogates, nothing beyond Unicode, nothing cut short."""
    with pytest.raises(WireError, match="not UTF-8"):
        read_field(TEXT, u32(len(text)) + text)


def test_a_text_has_a_largest_length():
    assert read_field(TEXT, TEXT.write("x" * MAX_TEXT)) == "x" * MAX_TEXT
    too_long = MAX_TEXT + 1
    with pytest.raises(WireError, match=f"4096 bytes at most; got {too_long}"):
        read_field(TEXT, u32(too_long) + b"x" * too_long)
    with pytest.raises(WireError, match=f"4096 bytes at most; got {too_long}"):
        TEXT.write("x" * too_long)


@pytest.mark.parametrize(
    "items",
    [[2, 1], [1, 1], [-1], [-1, 2], [0, 2**31 - 1, -5, 3]],  # in the last a difference overflows
)
def test_items_increase_strictly_from_0_on(items):
    data = u32(len(items)) + np.array(items, "<i4").tobytes()
    with pytest.raises(WireError, match="increase strictly"):
        read_field(ITEMS, data)


@pytest.mark.parametrize(("n", "width"), [(0, 1), (0, 9), (1, 1), (3, 2), (0, 1 << 22)])
def test_rows_keep_their_shape(n, width):
    rows = np.arange(n * width, dtype=np.float32).reshape(n, width)
    data = ROWS.write(rows)
    assert data == u32(n, width) + rows.tobytes()
    read = read_field(ROWS, data)
    assert read.shape == (n, width)
    assert np.array_equal(read, rows)


@pytest.mark.parametrize(("n", "width"), [(0, 0), (1, 0), (2**32 - 1, 0), (0, (1 << 22) + 1)])
def test_rows_have_columns_and_not_too_many(n, width):
    with pytest.raises(WireError, match="rows have 1 to 4194304 columns"):
        read_field(ROWS, u32(n, width))


# Counts that claim more than arrived


@pytest.mark.parametrize(
    "data",
    [u32(count) + bytes(left) for count in (1000, 2**31, 2**32 - 1) for left in (0, 7, 999)],
    ids=len,
)
@pytest.mark.parametrize("field", [BLOB, ITEMS, COUNTS, REALS, SINGLES, KEYS, TEXT])
def test_a_count_that_claims_too_much_allocates_nothing(field, data):
    peak, error = peak_of(lambda: field.read(Reader(memoryview(data))))
    assert isinstance(error, WireError)
    assert peak < NONE_LEFT


@pytest.mark.parametrize(
    ("n", "width"),
    [(1, 1), (1000, 1000), (2**32 - 1, 1), (1, 2**32 - 1), (2**32 - 1, 2**32 - 1), (0, 2**32 - 1)],
)
def test_rows_that_claim_too_much_allocate_nothing(n, width):
    data = u32(n, width) + bytes(3)
    peak, error = peak_of(lambda: ROWS.read(Reader(memoryview(data))))
    assert isinstance(error, WireError)
    assert peak < NONE_LEFT


@pytest.mark.parametrize(
    ("field", "data"),
    [
        (BLOB, u32(1 << 20) + bytes(1 << 20)),
        (ITEMS, u32(1 << 18) + np.arange(1 << 18, dtype="<i4").tobytes()),
        (COUNTS, u32(1 << 18) + bytes(1 << 20)),
        (REALS, u32(1 << 17) + bytes(1 << 20)),
        (SINGLES, u32(1 << 18) + bytes(1 << 20)),
        (ROWS, u32(1 << 10, 1 << 8) + bytes(1 << 20)),
        (KEYS, u32(1 << 15) + bytes(1 << 20)),
        (TEXT, u32(MAX_TEXT) + b"x" * (MAX_TEXT - 4) + "\U0001f389".encode()),
    ],
    ids=["blob", "items", "counts", "reals", "singles", "rows", "keys", "text"],
)
@pytest.mark.parametrize("shift", [0, 1])
def test_reading_allocates_a_few_times_what_arrived_at_most(field, data, shift):
    view = memoryview(bytes(shift) + data)[shift:]
    peak, error = peak_of(lambda: field.read(Reader(view)))
    assert error is None
    assert peak < 5 * len(data) + NONE_LEFT


# Writing: what does not fit is refused, and nothing wraps


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (BYTE, 256),
        (BYTE, -1),
        (WHOLE, 2**32),
        (WHOLE, -1),
        (WHOLE, 1.5),
        (WHOLE, "1"),
        (REAL, 10**400),
        (REAL, "1"),
        (NAME, b"short"),
        (NAME, bytes(33)),
        (fixed(16), b""),
        (KEYS, (bytes(31),)),
        (TEXT, "\ud800"),
        (ITEMS, np.array([2**32 + 5])),
        (ITEMS, np.array([1.5])),
        (ITEMS, np.array([np.nan])),
        (ITEMS, np.array([[1, 2]])),
        (COUNTS, np.array([-1])),
        (COUNTS, np.array([2**32])),
        (SINGLES, np.array([1e39])),
        (ROWS, np.zeros(3)),
        (ROWS, np.full((1, 1), -1e300)),
    ],
)
def test_what_does_not_fit_a_field_is_not_written(field, value):
    with pytest.raises(WireError, match="malformed message"):
        field.write(value)


@pytest.mark.parametrize(
    ("field", "values", "dtype"),
    [
        (ITEMS, np.arange(3), "<i4"),
        (COUNTS, np.arange(3), "<u4"),
        (SINGLES, np.array([0.1, 2.0]), "<f4"),
        (ITEMS, np.arange(6, dtype=">i4")[::2], "<i4"),
    ],
)
def test_arrays_of_another_type_are_written_where_they_fit(field, values, dtype):
    assert np.array_equal(read_field(field, field.write(values)), values.astype(dtype))


def test_what_a_receiver_refuses_can_be_written():
    """A bad message is its receiver's to refuse: tests and broken servers make them."""
    rows = np.full((1, 1), np.nan, np.float32)
    data = wire.Round(1, 0, False, 1, np.zeros(0), rows).encode()
    with pytest.raises(WireError, match="finite"):
        wire.Round.decode(data)


# Reading one of several


def test_a_message_is_read_as_one_of_those_that_are_due():
    expected = (wire.Joined, wire.Refused)
    assert wire.read(wire.Refused("no").encode(), expected) == wire.Refused("no")
    with pytest.raises(WireError, match="kind 4 is not for here; due: Joined or Refused"):
        wire.read(wire.Wanted(bytes(32)).encode(), expected)
    with pytest.raises(WireError, match="due: nothing"):
        wire.read(wire.Finished().encode(), ())
    with pytest.raises(WireError, match="kind 200 is not for here"):
        wire.read(b"FMMF" + bytes([4, 200]) + u32(0), expected)


@pytest.mark.parametrize("cls", **by_class)
def test_every_other_kind_is_refused(cls):
    frame = b"FMMF" + bytes([4, cls.kind]) + u32(0)
    others = [other for other in MESSAGES if other is not cls]
    with pytest.raises(WireError, match=f"kind {int(cls.kind)} is not for here"):
        wire.read(frame, others)


# Parcels


SURVEY, QUESTION = wire.Survey(True).encode(), wire.Ask(bytes(32))


def test_a_parcel_is_a_message_with_what_it_names_before_it():
    alone, both = wire.parcel(QUESTION), wire.parcel(QUESTION, SURVEY)
    assert alone == QUESTION.encode()
    assert both == SURVEY + QUESTION.encode()
    assert wire.split_parcel(alone) == ([], QUESTION.encode())
    assert wire.split_parcel(both) == ([SURVEY], QUESTION.encode())


def test_a_publication_is_named_by_the_digest_of_its_whole_frame():
    assert wire.name_of(SURVEY) == hashlib.sha256(SURVEY).digest()
    assert wire.name_of(SURVEY) != wire.name_of(wire.Survey(False).encode())


def test_a_parcel_holds_one_publication_at_most():
    with pytest.raises(WireError, match="one broadcast and one message at most"):
        wire.split_parcel(wire.parcel(QUESTION, SURVEY, SURVEY))


@pytest.mark.parametrize("data", [b"", SURVEY[:-1], SURVEY + b"x", SURVEY + SURVEY[:9]])
def test_a_broken_parcel_is_refused(data):
    with pytest.raises(WireError, match="malformed message"):
        wire.split_parcel(data)


def test_a_parcel_of_many_frames_is_refused_before_they_are_read():
    many = wire.Finished().encode() * 100_000
    peak, error = peak_of(lambda: wire.split_parcel(many))
    assert isinstance(error, WireError)
    assert peak < NONE_LEFT


@given(st.binary(max_size=100))
def test_noise_is_no_parcel(data):
    with pytest.raises(WireError):
        wire.split_parcel(data)


# The catalogue

SCALE = RatingScale(1.0, 5.0, 1.0)
FEATURES = np.array([[0.0, 1.0], [0.5, -1.0]])


def digest_of(ids=("a", "b"), scale=SCALE, features=FEATURES):
    return wire.Catalogue.of(ids, scale, features).digest


def test_equal_catalogues_have_one_digest():
    assert wire.Catalogue.of(["a", "b"], SCALE, FEATURES).n_items == 2
    for same in (
        digest_of(),
        digest_of(features=FEATURES.astype(np.float32)),
        digest_of(features=np.asfortranarray(FEATURES)),
        digest_of(features=np.where(FEATURES == 0, -0.0, FEATURES)),
        digest_of(ids=iter(np.array(["a", "b"]))),
    ):
        assert same == digest_of()
    assert digest_of(ids=[1, 20]) == digest_of(ids=["1", "20"]) == digest_of(ids=np.array([1, 20]))
    zero = RatingScale(0.0, 1.0, 0.5)
    assert digest_of(scale=zero) == digest_of(scale=RatingScale(-0.0, 1.0, 0.5))


@pytest.mark.parametrize(
    "change",
    [
        {"ids": ("b", "a")},
        {"ids": ("ab", "")},
        {"ids": ("a", "b ")},
        {"scale": RatingScale(1.0, 5.0, 0.5)},
        {"scale": RatingScale(0.0, 5.0, 1.0)},
        {"features": FEATURES[::-1]},
        {"features": FEATURES[:, :1]},
        {"features": FEATURES + 1e-3},
        {"features": np.zeros((2, 0))},
    ],
)
def test_other_catalogues_have_other_digests(change):
    assert digest_of(**change) != digest_of()


@pytest.mark.parametrize(
    ("ids", "features"),
    [
        (["a"], FEATURES),
        (["a", "b", "c"], FEATURES),
        (["a", "b"], np.zeros(2)),
        (["a", "b"], np.zeros((2, 1, 1))),
        (["a"], np.float64(1.0)),
    ],
)
def test_a_catalogue_has_an_id_and_a_row_of_features_per_item(ids, features):
    """Else an id could be taken for features: two catalogues with one digest."""
    with pytest.raises(DataError, match="a row of features for each of its"):
        wire.Catalogue.of(ids, SCALE, features)
