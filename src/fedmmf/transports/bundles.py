"""Many parties' messages in one: what a site with many parties is sent, and what it answers.

A publication that several of them are to have is in a bundle once. A bundle is: the number of
publications (uint32) and each after its length (uint32); the number of entries (uint32) and, for
each, the party's name after its length (uint16), which publication comes before its message (uint32
from 1; 0: none), and the message after its length (uint32). All numbers are little-endian.
"""

import struct
from collections.abc import Iterable, Mapping

from fedmmf.errors import WireError
from fedmmf.wire import split_parcel

_NUMBER, _SHORT = struct.Struct("<I"), struct.Struct("<H")
MOST_ENTRIES = 1024


def pack(messages: Mapping[str, bytes]) -> bytes:
    """A bundle of parcels, by party."""
    places: dict[bytes, int] = {}  # of each publication, from 1
    entries = []
    for name in messages:
        published, frame = split_parcel(messages[name])
        place = places.setdefault(published[0], len(places) + 1) if published else 0
        entries.append(_entry(name, place, frame))
    return b"".join((_counted(map(_sized, places)), _counted(entries)))


def unpack(data: bytes) -> dict[str, bytes]:
    """What `pack` was given; `WireError` where it is anything else."""
    reader = _Reader(data)
    publications = [b"", *(reader.sized(_NUMBER) for _ in range(reader.count()))]
    messages: dict[str, bytes] = {}
    for _ in range(reader.count()):
        name = _text(reader.sized(_SHORT))
        place = reader.number(_NUMBER)
        if name in messages or place >= len(publications):
            raise WireError("malformed bundle: a party twice, or a publication that is not there")
        messages[name] = publications[place] + reader.sized(_NUMBER)
    if reader.at != len(data):
        raise WireError(f"malformed bundle: {len(data) - reader.at} bytes too many")
    return messages


def _entry(name: str, place: int, frame: bytes) -> bytes:
    text = name.encode()
    return b"".join((_SHORT.pack(len(text)), text, _NUMBER.pack(place), _sized(frame)))


def _sized(data: bytes) -> bytes:
    return _NUMBER.pack(len(data)) + data


def _counted(parts: Iterable[bytes]) -> bytes:
    listed = list(parts)
    return b"".join((_NUMBER.pack(len(listed)), *listed))


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise WireError("malformed bundle: a name is not UTF-8") from None


class _Reader:
    """Takes numbers and bytes from the front."""

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def number(self, form: struct.Struct) -> int:
        (value,) = form.unpack(self._take(form.size))
        return int(value)

    def count(self) -> int:
        n = self.number(_NUMBER)
        if n > MOST_ENTRIES:
            raise WireError(f"malformed bundle: it may have {MOST_ENTRIES} entries; got {n}")
        return n

    def sized(self, form: struct.Struct) -> bytes:
        return self._take(self.number(form))

    def _take(self, n: int) -> bytes:
        if n > len(self._data) - self.at:
            raise WireError(f"malformed bundle: {n} more bytes are due")
        self.at += n
        return bytes(self._data[self.at - n : self.at])
