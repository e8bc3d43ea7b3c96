"""JSON documents with exactly one encoding: cards and trust lists, written, checked and signed.

Whatever is not exactly as `render` writes it is refused: with one encoding for each document, two
readers cannot see different things in the same bytes, and no byte can be changed unnoticed.

The keys that sign cards and lists also sign in secure sums. `fedmmf.secagg.keys.sign` binds a
purpose, and those below are used nowhere else: no signature of one kind passes for another.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NoReturn

from fedmmf.errors import IdentityError
from fedmmf.secagg.keys import KEY_BYTES, SIGNATURE_BYTES, is_signed, sign

CARD_PURPOSE = b"identity card 1"
LIST_PURPOSE = b"identity trust list 1"
_NO_ROUND = b""  # in the place of the round that signatures of secure sums are bound to
_PRIME = 2**255 - 19
_SIGN_BIT = 1 << 255
# y of the points whose order divides 8 (RFC 8032's curve): signatures that fit any text exist
# under them without a secret, so that they prove nothing.
_OF_ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_LOW_ORDER = {0, 1, _PRIME - 1, _OF_ORDER_8, _PRIME - _OF_ORDER_8}
VERSION = 1
LARGEST_NUMBER = 2**53 - 1  # every reader of JSON holds it exactly
LONGEST_TEXT = 200
_WORD = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")  # shorter than a key in hex: no name is a key
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_MOMENT_FORM = "%Y-%m-%dT%H:%M:%SZ"
Document = Mapping[str, Any]


def is_proper(public: bytes) -> bool:
    """Whether a public key has its canonical encoding and no low order."""
    y = int.from_bytes(public, "little") & ~_SIGN_BIT
    return y < _PRIME and y not in _LOW_ORDER


def sign_text(secret: bytes, purpose: bytes, text: bytes) -> bytes:
    """Return the signature of a document's text."""
    return sign(secret, purpose, _NO_ROUND, text)


def is_text_signed(public: bytes, signature: bytes, purpose: bytes, text: bytes) -> bool:
    """Whether a document's text was signed by the owner of a public key."""
    return is_signed(public, signature, purpose, _NO_ROUND, text)


def fingerprint(public: bytes) -> str:
    """Half of SHA-256 of a public key, in groups to read aloud; 128 bits are not found by trying.

    >>> fingerprint(bytes(32))
    '6668-7aad-f862-bd77-6c8f-c18b-8e9f-8e20'
    """
    digits = sha256(public).hexdigest()[:32]
    return "-".join(digits[start : start + 4] for start in range(0, 32, 4))


def render(document: Document) -> bytes:
    """Encode a document for its file: sorted, ASCII, two spaces of indentation."""
    return json.dumps(document, indent=2, sort_keys=True, allow_nan=False).encode("ascii") + b"\n"


def signed_text(document: Document) -> bytes:
    """Encode what a signature covers: all other fields, sorted, ASCII, without spaces."""
    rest = {name: value for name, value in document.items() if name != "signature"}
    return json.dumps(rest, separators=(",", ":"), sort_keys=True, allow_nan=False).encode("ascii")


def headed(kind: str, fields: Document) -> dict[str, Any]:
    """Add the format's name and version to the fields of a document."""
    return {"format": kind, "version": VERSION, **fields}


def moment(now: datetime | None) -> str:
    """Format a time for documents; None is now."""
    return (now or datetime.now(UTC)).astimezone(UTC).strftime(_MOMENT_FORM)


def format_of(data: bytes, where: str) -> str:
    """Return the format that a document claims to have; empty if it names none."""
    claimed = _parsed(data, where)[0].get("format", "")
    return claimed if isinstance(claimed, str) else ""


def parse(data: bytes, kind: str, names: Collection[str], where: str) -> "Entry":
    """Read a document of one kind that has just these fields besides format and version."""
    document, rendered = _parsed(data, where)
    if document.get("format") != kind:
        raise IdentityError(f"{where}: format must be {kind!r}; got {_shown(document, 'format')}")
    if type(document.get("version")) is not int or document["version"] != VERSION:
        got = _shown(document, "version")
        raise IdentityError(f"{where}: this program reads version {VERSION} of {kind}; got {got}")
    if rendered != data:
        raise IdentityError(
            f"{where}: it is not written in its one form (sorted names, two spaces, ASCII); an "
            "editor or the way here has changed it. Get it again from whoever made it"
        )
    return Entry.of(document, {"format", "version", *names}, where)


def _parsed(data: bytes, where: str) -> tuple[dict[str, Any], bytes]:
    """Return a document, and how it should have been written."""
    try:
        found = json.loads(
            data.decode("ascii"),
            object_pairs_hook=_without_repeats,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
        )
        if not isinstance(found, dict):
            raise ValueError("an object is needed at the top")
        return found, render(found)
    except UnicodeDecodeError as error:
        raise IdentityError(f"{where}: it must be ASCII; byte {error.start} is not") from None
    except (ValueError, RecursionError) as error:
        raise IdentityError(f"{where}: it must be JSON: {str(error)[:LONGEST_TEXT]}") from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name appears twice in one object")
    return found


def _refuse_number(text: str) -> None:
    raise ValueError(f"numbers are whole; got {text[:40]}")


def _shown(values: Document, name: str) -> str:
    """A value in an error: what an attacker wrote must not steer a terminal or fill a log."""
    value = values.get(name)
    if value is None or isinstance(value, list | dict):
        return "none" if value is None else f"a {type(value).__name__}"
    text = ascii(value) if not isinstance(value, int) or value.bit_length() < 256 else "more"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _is_line(text: str) -> bool:
    """Whether a terminal shows it as it is: no control characters, no change of direction."""
    return 0 < len(text) <= LONGEST_TEXT and text.isprintable() and text == text.strip()


@dataclass(frozen=True)
class Entry:
    """One object of a document with exactly the expected fields, each checked when it is read."""

    values: Document
    where: str

    @classmethod
    def of(cls, value: Any, names: Collection[str], where: str) -> "Entry":
        """Take a JSON object that must have just these fields."""
        if not isinstance(value, dict):
            raise IdentityError(f"{where} must be a JSON object; got a {type(value).__name__}")
        if missing := sorted(set(names) - set(value)):
            raise IdentityError(f"{where}: it must have {', '.join(missing)}")
        if unknown := sorted(set(value) - set(names)):
            raise IdentityError(f"{where}: it must not have {ascii(unknown)[1:-1][:LONGEST_TEXT]}")
        return cls(value, where)

    def word(self, name: str) -> str:
        """Return the name of a member, site or federation: a-z, 0-9 and `. _ -` alone."""
        value = self.values[name]
        if not isinstance(value, str) or not _WORD.fullmatch(value):
            self._refuse(name, "1 to 40 of a-z 0-9 . _ -, the first a letter or digit")
        return value

    def text(self, name: str) -> str:
        """Return a field that is one printable line for people."""
        value = self.values[name]
        if not isinstance(value, str) or not _is_line(value):
            rule = f"one line of 1 to {LONGEST_TEXT} printable characters, no space around it"
            self._refuse(name, rule)
        return value

    def number(self, name: str) -> int:
        """Return a whole number of at least 1; neither true nor 1.0 is one."""
        value = self.values[name]
        if type(value) is not int or not 1 <= value <= LARGEST_NUMBER:
            self._refuse(name, f"a whole number from 1 to {LARGEST_NUMBER}")
        return value

    def moment(self, name: str) -> str:
        """Return a time in UTC, to the second."""
        value = self.values[name]
        try:
            if not isinstance(value, str) or not _MOMENT.fullmatch(value):
                raise ValueError
            datetime.strptime(value, _MOMENT_FORM)
        except ValueError:
            self._refuse(name, "a time in UTC such as 2026-01-31T12:00:00Z")
        return value

    def key(self, name: str) -> bytes:
        """Return an Ed25519 public key that has no low order."""
        key = self._bytes(name, KEY_BYTES)
        if not is_proper(key):
            self._refuse(name, "an Ed25519 public key that only its owner can sign for")
        return key

    def signature(self) -> bytes:
        """Return the signature, not yet verified."""
        return self._bytes("signature", SIGNATURE_BYTES)

    def entries(self, name: str, names: Collection[str]) -> list["Entry"]:
        """A list of objects that have just these fields."""
        value = self.values[name]
        if not isinstance(value, list):
            self._refuse(name, "a list")
        return [
            Entry.of(one, names, f"{self.where}, entry {position} of {name}")
            for position, one in enumerate(value, 1)
        ]

    def _bytes(self, name: str, size: int) -> bytes:
        value = self.values[name]
        if not isinstance(value, str) or not re.fullmatch(f"[0-9a-f]{{{2 * size}}}", value):
            self._refuse(name, f"{2 * size} digits of 0-9 a-f")
        return bytes.fromhex(value)

    def _refuse(self, name: str, rule: str) -> NoReturn:
        raise IdentityError(f"{self.where}: {name} must be {rule}; got {_shown(self.values, name)}")
