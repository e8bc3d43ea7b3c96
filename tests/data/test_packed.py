"""Compressed files: read as what is inside, and refused before they fill the memory."""

import bz2
import gzip
import io
import lzma
import tracemalloc
import zipfile

import numpy as np
import polars as pl
import pytest

from fedmmf import load
from fedmmf.data.packed import most_of_zstd, unpacked
from fedmmf.errors import DataError, FedMMFError
from fedmmf.storage import unpacking


def zipped(content, **more):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, **more) as archive:
        archive.writestr("ratings.csv", content)
    return made.getvalue()


def zstd(content):
    """A column of lines as polars packs it."""
    made = io.BytesIO()
    lines = pl.DataFrame({"lines": content.decode().splitlines()})
    lines.write_csv(made, include_header=False, quote_style="never", compression="zstd")
    return made.getvalue()


PACKERS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lambda content: lzma.compress(content, preset=0),
    "zst": zstd,
    "zip": zipped,
}
N_BYTES = 32 << 20
DIGITS = "\n".join(map(str, np.random.default_rng(0).integers(0, 10**9, 30_000))).encode()


@pytest.fixture
def few(monkeypatch):
    """A bound that tests reach in no time."""
    monkeypatch.setattr(unpacking, "MAX_BYTES", 1 << 16)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("kind", PACKERS)
def test_a_file_that_unpacks_into_far_too_much_is_refused_early(kind):
    packed = PACKERS[kind]((b"7" * 63 + b"\n") * (N_BYTES // 64))
    assert len(packed) * 100 < N_BYTES
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"r\.csv unpacks into more.*unpack it yourself"):
            unpacked(packed, "r.csv")
        assert tracemalloc.get_traced_memory()[1] < N_BYTES / 2
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("kind", PACKERS)
def test_thirty_times_its_size_is_more_than_a_text_of_ratings_has(kind):
    """A hundred times would let 38 MB take gigabytes."""
    text = b"".join(line.ljust(320, b" ") + b"\n" for line in DIGITS.split(b"\n")[:10_000])
    packed = PACKERS[kind](text)
    assert 25 * len(packed) < len(text) < 100 * len(packed)
    with pytest.raises(DataError, match=r"more than 20 times its size"):
        unpacked(packed, "r.csv")


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zip"])
def test_what_is_unpacked_is_in_memory_once(kind):
    text = DIGITS * 40
    packed = PACKERS[kind](text)
    tracemalloc.start()
    try:
        assert unpacked(packed, "r.csv") == text
        assert tracemalloc.get_traced_memory()[1] < 1.6 * len(text)
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("few")
def test_what_an_archive_says_of_its_size_is_not_believed():
    packed = zipped(b"7" * N_BYTES)
    told = packed.replace(N_BYTES.to_bytes(4, "little"), (9).to_bytes(4, "little"))
    assert told != packed
    with pytest.raises(DataError, match="cannot be unpacked"):
        unpacked(told, "r.zip")


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("kind", PACKERS)
def test_a_large_file_that_is_packed_in_earnest_is_read(kind):
    assert unpacked(PACKERS[kind](DIGITS), "r").rstrip() == DIGITS


def test_headers_of_zstandard_bound_what_comes_out():
    same = b"\n".join([b"7" * 60] * 40_000)
    for content in (DIGITS, same):
        packed = zstd(content)
        assert len(content) <= most_of_zstd(packed) < len(content) + 2 * (1 << 17)
    skipped = b"\x53\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"abcde"
    both = zstd(DIGITS) + skipped + zstd(same)
    assert most_of_zstd(both) == most_of_zstd(zstd(DIGITS)) + most_of_zstd(zstd(same))
    for end in (5, 9, 100):
        assert most_of_zstd(packed[:end]) >= 0


@pytest.mark.parametrize("kind", PACKERS)
@pytest.mark.filterwarnings("ignore")  # of zipfile, for names that are none
def test_a_damaged_file_is_one_error(kind, tmp_path):
    rows = [f"{user},{item},{1 + user * item % 5}" for user in range(20) for item in range(20)]
    whole = PACKERS[kind]("\n".join(["user_id,item_id,rating", *rows]).encode())
    path, generator, n_refused = tmp_path / "ratings", np.random.default_rng(0), 0
    for _ in range(60):
        broken = bytearray(whole)
        broken[int(generator.integers(4, len(whole)))] ^= int(generator.integers(1, 256))
        path.write_bytes(broken)
        try:
            load(path)
        except DataError:
            n_refused += 1
    assert n_refused > 10


@pytest.mark.parametrize(("place", "value"), [(6, 1), (8, 99)])  # a password; an unknown method
def test_an_archive_that_cannot_be_opened_is_refused(place, value):
    packed = bytearray(zipped(DIGITS))
    directory = packed.index(b"PK\1\2")
    packed[place] = packed[directory + place + 2] = value
    with pytest.raises(DataError, match=r"r\.zip cannot be unpacked.*without a password"):
        unpacked(bytes(packed), "r.zip")


@pytest.mark.parametrize("method", ["write_parquet", "write_ipc"])
def test_a_damaged_binary_file_is_one_error(method, tmp_path):
    """Polars panics for some, which is no `Exception`."""
    made, path, generator = io.BytesIO(), tmp_path / "ratings", np.random.default_rng(1)
    n = 400
    columns = {"user_id": np.arange(n) // 20, "item_id": np.arange(n) % 20, "rating": np.ones(n)}
    getattr(pl.DataFrame(columns), method)(made)
    whole, n_refused = made.getvalue(), 0
    for _ in range(150):
        broken = bytearray(whole)
        for place in generator.integers(len(whole) - 900, len(whole), 3):
            broken[place] = int(generator.integers(0, 256))
        path.write_bytes(broken)
        try:
            load(path)
        except FedMMFError:
            n_refused += 1
    assert n_refused > 30
