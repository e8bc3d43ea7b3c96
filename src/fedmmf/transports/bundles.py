"""Bundles: the messages of a site's many parties in one, and their answers.

A broadcast that several of them are to have is in a bundle once. A bundle is: the number of
broadcasts (uint32) and each after its length (uint32); the number of entries (uint32) and, for
each, the party's name after its length (uint16), which broadcast comes before its message (uint32
from 1; 0: none), and the message after its length (uint32). All numbers are little-endian.

Whoever sends a bundle decides what is in it, so reading one takes no more memory than it has
itself: entries that share a broadcast share its bytes, and a parcel is put together only when it
is asked for. An answer has no broadcasts, and names only parties that were asked.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from fedmmf.errors import WireError
from fedmmf.wire import split_parcel
from fedmmf.wire.codec import BLOB, WHOLE, Reader, listed, text

_NAME = text("H", (1 << 16) - 1)
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
        broadcast, frame = split_parcel(messages[name])
        place = places.setdefault(broadcast[0], len(places) + 1) if broadcast else 0
        entries.append(_NAME.write(name) + WHOLE.write(place) + BLOB.write(frame))
    return listed(map(BLOB.write, places)) + listed(entries)


def unpack(data: bytes) -> Mapping[str, bytes]:
    """Return what `pack` was given; a parcel is put together each time that it is read.

    Raises:
        WireError: it is anything else.
    """
    reader = Reader(data, _malformed)
    broadcasts = [memoryview(b""), *(reader.sized() for _ in range(_count(reader)))]
    return _Parcels(_entries(reader, broadcasts))


def unpack_answers(data: bytes, asked: Collection[str]) -> dict[str, bytes]:
    """Return the answers of parties that were asked.

    Raises:
        WireError: it is no bundle, brings a broadcast, or names somebody who was not asked.
    """
    reader = Reader(data, _malformed)
    if n_broadcasts := _count(reader):
        raise WireError(f"malformed answer: it may bring no broadcasts; got {n_broadcasts}")
    entries = _entries(reader, [memoryview(b"")], asked)
    return {name: bytes(frame) for name, (_, frame) in entries.items()}


_Entries = dict[str, tuple[memoryview, memoryview]]
"""By party: the broadcast before its message, and the message; parts of the bundle itself."""


def _entries(
    reader: Reader, broadcasts: list[memoryview], asked: Collection[str] | None = None
) -> _Entries:
    """Read the entries of a bundle up to its end; None: anybody may be named."""
    entries: _Entries = {}
    for _ in range(_count(reader)):
        name, place = _NAME.read(reader), WHOLE.read(reader)
        if asked is not None and name not in asked:
            raise WireError(f"malformed answer: {shown(name)} was not asked")
        is_right = name not in entries and place < len(broadcasts)
        reader.require(is_right, "a party twice, or a broadcast that is not there")
        entries[name] = broadcasts[place], reader.sized()
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


def _count(reader: Reader) -> int:
    n = reader.count(1)
    reader.require(n <= MAX_ENTRIES, f"it may have {MAX_ENTRIES} entries; got {n}")
    return n


def _malformed(rule: str) -> WireError:
    return WireError(f"malformed bundle: {rule}")
