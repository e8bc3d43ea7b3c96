"""Bundles: the messages of a site's many parties in one, and their answers.

A broadcast that several of them are to have is in a bundle once. A bundle is: the number of
broadcasts (uint32) and each after its length (uint32); the number of entries (uint32) and, for
each, the party's name after its length (uint16), which broadcast comes before its message (uint32
from 1; 0: none), and the message after its length (uint32). All numbers are little-endian.

Whoever sends a bundle decides what is in it, so reading one takes no more memory than it has
itself: entries that share a broadcast share its bytes, and a parcel is put together only when it
is asked for. An answer has no broadcasts, and names only parties that were asked.
"""

import struct
from collections.abc import Collection, Iterable, Iterator, Mapping

from fedmmf.errors import WireError
from fedmmf.wire import split_parcel

_NUMBER, _SHORT = struct.Struct("<I"), struct.Struct("<H")
MAX_ENTRIES = 1024
_SHOWN = 60  # characters of a name that an error repeats


def pack(messages: Mapping[str, bytes], names: Iterable[str] | None = None) -> bytes:
    """Return a bundle of parcels.

    Args:
        messages: by party; each is read once and not kept, as it may be made when it is read.
        names: whose parcels to pack; None: everybody's.
    """
    places: dict[bytes, int] = {}  # of each broadcast, from 1
    entries = []
    for name in messages if names is None else names:
        published, frame = split_parcel(messages[name])
        place = places.setdefault(published[0], len(places) + 1) if published else 0
        entries.append(_entry(name, place, frame))
    return b"".join((_counted(map(_sized, places)), _counted(entries)))


def unpack(data: bytes) -> Mapping[str, bytes]:
    """Return what `pack` was given; a parcel is put together each time that it is read.

    Raises:
        WireError: it is anything else.
    """
    reader = _Reader(data)
    return _Parcels(_entries(reader, reader.broadcasts()))


def unpack_answers(data: bytes, asked: Collection[str]) -> dict[str, bytes]:
    """Return the answers of parties that were asked.

    Raises:
        WireError: it is no bundle, brings a broadcast, or names somebody who was not asked.
    """
    reader = _Reader(data)
    if n_publications := reader.number(_NUMBER):
        raise WireError(f"malformed answer: it may bring no broadcasts; got {n_publications}")
    entries = _entries(reader, [memoryview(b"")], asked)
    return {name: bytes(frame) for name, (_, frame) in entries.items()}


_Entries = dict[str, tuple[memoryview, memoryview]]
"""By party: what is published before its message, and the message; parts of the bundle itself."""


def _entries(
    reader: "_Reader", broadcasts: list[memoryview], asked: Collection[str] | None = None
) -> _Entries:
    """Read the entries of a bundle up to its end; None: anybody may be named."""
    entries: _Entries = {}
    for _ in range(reader.count()):
        name, place = _text(reader.sized(_SHORT)), reader.number(_NUMBER)
        if asked is not None and name not in asked:
            raise WireError(f"malformed answer: {shown(name)} was not asked")
        if name in entries or place >= len(broadcasts):
            raise WireError("malformed bundle: a party twice, or a broadcast that is not there")
        entries[name] = broadcasts[place], reader.sized(_NUMBER)
    reader.end()
    return entries


def shown(name: str) -> str:
    """Return the beginning of a name that somebody else chose, fit for a log."""
    return repr(name[:_SHOWN]) + ("..." if len(name) > _SHOWN else "")


class _Parcels(Mapping[str, bytes]):
    """Parcels by party, each put together when it is read."""

    def __init__(self, entries: _Entries) -> None:
        self._entries = entries

    def __getitem__(self, name: str) -> bytes:
        return b"".join(self._entries[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _entry(name: str, place: int, frame: bytes) -> bytes:
    text = name.encode()
    return b"".join((_SHORT.pack(len(text)), text, _NUMBER.pack(place), _sized(frame)))


def _sized(data: bytes) -> bytes:
    return _NUMBER.pack(len(data)) + data


def _counted(parts: Iterable[bytes]) -> bytes:
    listed = list(parts)
    return b"".join((_NUMBER.pack(len(listed)), *listed))


def _text(data: memoryview) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        raise WireError("malformed bundle: a name is not UTF-8") from None


class _Reader:
    """Takes numbers and bytes from the front, without copying them."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = memoryview(data), 0

    def number(self, update_shape: struct.Struct) -> int:
        (value,) = update_shape.unpack(self._take(update_shape.size))
        return int(value)

    def count(self) -> int:
        n = self.number(_NUMBER)
        if n > MAX_ENTRIES:
            raise WireError(f"malformed bundle: it may have {MAX_ENTRIES} entries; got {n}")
        return n

    def broadcasts(self) -> list[memoryview]:
        return [memoryview(b""), *(self.sized(_NUMBER) for _ in range(self.count()))]

    def sized(self, update_shape: struct.Struct) -> memoryview:
        return self._take(self.number(update_shape))

    def end(self) -> None:
        if left := len(self._data) - self._at:
            raise WireError(f"malformed bundle: {left} bytes too many")

    def _take(self, n: int) -> memoryview:
        if n > len(self._data) - self._at:
            raise WireError(f"malformed bundle: {n} more bytes are due")
        self._at += n
        return self._data[self._at - n : self._at]
