"""Every message that may leave a party, and every one that may reach it: the privacy boundary.

A party's ratings, its mask, its held-out ratings and p_u appear in no message. What leaves a party
is `Joined`, and then an `Update`: inside a `SecureTrip`, where only the sum over parties can be
read, inside `Ciphertexts`, which the server adds and cannot read, or in the clear, if the party's
own policy says so. In the clear it gives the masked ratings away: the gradients of `sgd` after two
rounds (docs/errata.md, 23), the moments of `vb` at once. `Collected` gives them away by intention.

Little-endian, fixed header (magic, version, kind), then fixed fields, then arrays whose sizes the
fields give. A message that is short, long, out of range or not finite raises `WireError`.
"""

import dataclasses
import struct
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from fedmmf.arrays import Array
from fedmmf.errors import WireError
from fedmmf.factorization.contract import Public

_HEADER = struct.Struct("<4sBB")
_MAGIC, _VERSION = b"FMMF", 1
SOLVERS = ("sgd", "vb", "context")
_IDENTITY_BYTES = 32
SCHEMES = ("paillier", "paillier-packed", "ckks")


class _Message:
    """Shared framing: header, fixed fields, then a body of known length."""

    kind: ClassVar[int]
    fields: ClassVar[struct.Struct]

    @classmethod
    def _frame(cls, *values: Any) -> bytes:
        return _HEADER.pack(_MAGIC, _VERSION, cls.kind) + cls.fields.pack(*values)

    @classmethod
    def _open(cls, data: bytes) -> tuple[tuple[Any, ...], bytes]:
        start = _HEADER.size + cls.fields.size
        _require(len(data) >= start, f"needs at least {start} bytes; got {len(data)}")
        header = _HEADER.unpack_from(data)
        wanted = (_MAGIC, _VERSION, cls.kind)
        _require(header == wanted, f"must begin with {wanted}; got {header}")
        return cls.fields.unpack_from(data, _HEADER.size), data[start:]


class _Fixed(_Message):
    """A message of fixed fields and no body, as a dataclass has them."""

    fields: ClassVar[struct.Struct] = struct.Struct("<")

    def encode(self) -> bytes:
        """Write the message."""
        return self._frame(*vars(self).values())

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the message."""
        values, body = cls._open(data)
        _require_size(body, 0)
        return cls(*values)


@dataclass(frozen=True)
class Join(_Fixed):
    """Server to party: will you take part?"""

    kind: ClassVar[int] = 1


@dataclass(frozen=True)
class Joined(_Fixed):
    """Party to server: it takes part, and how it shares its updates; its own choice (errata 37)."""

    in_clear: bool  # else only in sums
    kind: ClassVar[int] = 2
    fields: ClassVar[struct.Struct] = struct.Struct("<?")


@dataclass(frozen=True)
class Survey(_Fixed):
    """Server to party: help to find item counts; the answer is an `Update` of round 0."""

    with_ratings: bool  # and item means
    kind: ClassVar[int] = 5
    fields: ClassVar[struct.Struct] = struct.Struct("<?")


@dataclass(frozen=True)
class Collect(_Fixed):
    """Server to party: send your masked ratings once, instead of updates; answered `Collected`."""

    kind: ClassVar[int] = 10


@dataclass(frozen=True, eq=False)
class Collected(_Message):
    """Party to server: its masked ratings."""

    items: Array  # (n,) int32, strictly increasing
    masked_ratings: Array  # (n,) float32
    kind: ClassVar[int] = 11
    fields: ClassVar[struct.Struct] = struct.Struct("<I")

    def encode(self) -> bytes:
        """Write the message."""
        head = self._frame(len(self.items))
        return head + _bytes(self.items, "<i4") + _bytes(self.masked_ratings, "<f4")

    @classmethod
    def decode(cls, data: bytes, *, n_items: int) -> "Collected":
        """Read the message."""
        (n,), body = cls._open(data)
        _require_size(body, 8 * n)
        items = np.frombuffer(body[: 4 * n], "<i4")
        _require(_is_increasing_below(items, n_items), f"items must increase within [0, {n_items})")
        return cls(items, _finite(np.frombuffer(body[4 * n :], "<f4")))


@dataclass(frozen=True, eq=False)
class Round(_Message):
    """Server to party: what it publishes in a round, for the whole catalogue.

    All of it, since downloading only the rated items would reveal which they are (errata 25).
    """

    round: int  # from 1
    best_round: int  # the round whose held-out error was lowest so far; 0: none yet
    is_last: bool  # nothing is to be computed: these are the final factors
    solver: str
    public: Public
    kind: ClassVar[int] = 3
    fields: ClassVar[struct.Struct] = struct.Struct("<II?BIIII")

    def encode(self) -> bytes:
        """Write the message."""
        public, (n_items, width) = self.public, self.public.item_rows.shape
        head = (self.round, self.best_round, self.is_last, SOLVERS.index(self.solver))
        sizes = (public.factors, len(public.parameters), n_items, width)
        arrays = _bytes(public.parameters, "<f8") + _bytes(public.item_rows, "<f4")
        return self._frame(*head, *sizes) + arrays

    @classmethod
    def decode(cls, data: bytes) -> "Round":
        """Read the message."""
        (round_, best, is_last, solver, factors, n_parameters, n_items, width), body = cls._open(
            data
        )
        _require(solver < len(SOLVERS), f"solver must be below {len(SOLVERS)}; got {solver}")
        _require(0 < factors <= width and round_ > 0, "round and factors must fit")
        _require_size(body, 8 * n_parameters + 4 * n_items * width)
        parameters = _finite(np.frombuffer(body[: 8 * n_parameters], "<f8"))
        rows = _finite(np.frombuffer(body[8 * n_parameters :], "<f4")).reshape(n_items, width)
        return cls(round_, best, is_last, SOLVERS[solver], Public(factors, parameters, rows))

    @classmethod
    def n_bytes(cls, public: Public) -> int:
        """Length of an encoded message."""
        return (
            _HEADER.size + cls.fields.size + 8 * len(public.parameters) + 4 * public.item_rows.size
        )


@dataclass(frozen=True, eq=False)
class Update(_Message):
    """Party to server: a row per rated item and some totals, of which it needs the sums alone.

    The answer to the last `Round` is an update without items. The totals begin with the number of
    held-out ratings and the sum of their squared errors, for early stopping.
    """

    round: int
    items: Array  # (n,) int32, strictly increasing
    rows: Array  # (n, width) float32: eta_ui, or the moments of the variational solver
    totals: Array  # (n_totals,) float64
    kind: ClassVar[int] = 4
    fields: ClassVar[struct.Struct] = struct.Struct("<IIII")

    def encode(self) -> bytes:
        """Write the message."""
        head = self._frame(self.round, *self.rows.shape, len(self.totals))
        rows = _bytes(self.items, "<i4") + _bytes(self.rows, "<f4")
        return head + rows + _bytes(self.totals, "<f8")

    @classmethod
    def decode(cls, data: bytes, *, n_items: int, width: int, n_totals: int) -> "Update":
        """Read the message; the server knows what shape to expect."""
        (round_, n, given_width, given_totals), body = cls._open(data)
        shape, wanted = (given_width, given_totals), (width, n_totals)
        _require(shape == wanted, f"must have (width, totals) {wanted}; got {shape}")
        _require_size(body, 4 * n + 4 * n * width + 8 * n_totals)
        items = np.frombuffer(body[: 4 * n], "<i4")
        rows = _finite(np.frombuffer(body[4 * n : 4 * n * (1 + width)], "<f4"))
        totals = _finite(np.frombuffer(body[4 * n * (1 + width) :], "<f8"))
        _require(_is_increasing_below(items, n_items), f"items must increase within [0, {n_items})")
        return cls(round_, items, rows.reshape(n, width), totals)

    @classmethod
    def n_bytes(cls, n_ratings: float, width: int, n_totals: int) -> float:
        """Length of an encoded message; a mean number of ratings gives a mean length."""
        return _HEADER.size + cls.fields.size + 4 * n_ratings * (1 + width) + 8 * n_totals


@dataclass(frozen=True)
class SecureSetup(_Message):
    """Server to party: what a series of securely aggregated rounds is agreed on.

    Everything here is public. A party checks it against the conditions of `secagg.policy` before it
    takes part. Party numbers are 0 to n_parties - 1.
    """

    session: bytes  # 16 bytes, never used twice
    graph_seed: bytes  # 32 bytes
    party: int  # whom this copy is for
    n_parties: int
    threshold: int
    neighbours: int  # 0: everybody
    solver: str
    n_items: int
    width: int
    n_totals: int
    row_bound: float
    total_bound: float
    minimum: int  # the fewest parties that may be in a sum
    suppressed: tuple[int, ...] = ()  # items left out, since too few parties rated them; increasing
    identities: tuple[bytes, ...] = ()  # Ed25519 public keys of all parties; empty: nobody signs
    kind: ClassVar[int] = 6
    fields: ClassVar[struct.Struct] = struct.Struct("<16s32sIIIIBIIIddIII")

    def encode(self) -> bytes:
        """Write the message."""
        values = dict(vars(self)) | {
            "solver": SOLVERS.index(self.solver),
            "suppressed": len(self.suppressed),
            "identities": len(self.identities),
        }
        items = _bytes(np.array(self.suppressed), "<i4")
        return self._frame(*values.values()) + items + b"".join(self.identities)

    @classmethod
    def decode(cls, data: bytes) -> "SecureSetup":
        """Read the message."""
        values, body = cls._open(data)
        names = [field.name for field in dataclasses.fields(cls)]
        given = dict(zip(names, values, strict=True))
        middle, n_keys = 4 * given["suppressed"], given["identities"]
        _require(n_keys in (0, given["n_parties"]), "there must be an identity for each party")
        _require_size(body, middle + _IDENTITY_BYTES * n_keys)
        items = np.frombuffer(body[:middle], "<i4")
        _require(_is_increasing_below(items, given["n_items"]), "suppressed items must increase")
        given["suppressed"] = tuple(items.tolist())
        starts = range(middle, len(body), _IDENTITY_BYTES)
        given["identities"] = tuple(body[start : start + _IDENTITY_BYTES] for start in starts)
        _require(given["solver"] < len(SOLVERS), "the solver is unknown")
        given["solver"] = SOLVERS[given["solver"]]
        bounds = np.array((given["row_bound"], given["total_bound"]))
        _require(bool(np.isfinite(bounds).all() and (bounds > 0).all()), "bounds must be positive")
        return cls(**given)


@dataclass(frozen=True)
class SecureTrip(_Message):
    """Both ways: a message of `secagg.session`, and on the way down the round it belongs to."""

    trip: int  # 1: masked input, 2: consistency check, where parties sign, 3: unmasking
    data: bytes
    round: bytes = b""  # an encoded `Round` or `Survey`; empty where nothing is summed
    kind: ClassVar[int] = 7
    fields: ClassVar[struct.Struct] = struct.Struct("<BII")

    def encode(self) -> bytes:
        """Write the message."""
        return self._frame(self.trip, len(self.data), len(self.round)) + self.data + self.round

    @classmethod
    def decode(cls, data: bytes) -> "SecureTrip":
        """Read the message."""
        (trip, size, round_size), body = cls._open(data)
        _require(trip in (1, 2, 3), f"trip must be 1, 2 or 3; got {trip}")
        _require_size(body, size + round_size)
        return cls(trip, body[:size], body[size:])

    @classmethod
    def n_bytes(cls) -> int:
        """Length of an encoded message without what is inside."""
        return _HEADER.size + cls.fields.size


@dataclass(frozen=True)
class HomomorphicKey(_Message):
    """Keeper to party, over a channel that the server cannot read: how to encrypt updates.

    No party answers it; it is given to `Party.hold_key`, so that a server cannot put its own key in
    the place of the keeper's.
    """

    scheme: str
    n_parties: int  # largest number of vectors in one sum
    span: float  # of the rating scale, for the bounds of the fixed-point numbers
    channel: bytes = field(repr=False)  # 32 bytes that all parties share and the server has not
    public: bytes = field(repr=False)  # the public key, as the scheme writes it
    kind: ClassVar[int] = 8
    fields: ClassVar[struct.Struct] = struct.Struct("<BId32s")

    def encode(self) -> bytes:
        """Write the message."""
        scheme = SCHEMES.index(self.scheme)
        return self._frame(scheme, self.n_parties, self.span, self.channel) + self.public

    @classmethod
    def decode(cls, data: bytes) -> "HomomorphicKey":
        """Read the message."""
        (scheme, n_parties, span, channel), body = cls._open(data)
        _require(scheme < len(SCHEMES), f"scheme must be below {len(SCHEMES)}; got {scheme}")
        _require(n_parties > 0 and 0 < span < np.inf, "parties and span must be positive")
        return cls(SCHEMES[scheme], n_parties, span, channel, body)


@dataclass(frozen=True)
class Task(_Message):
    """Keeper to party, in the box of a `SealedRound`: what to sum, and which items to leave out."""

    n_items: int
    message: bytes  # an encoded `Round` or `Survey`
    suppressed: tuple[int, ...] = ()  # items left out, since too few parties rated them; increasing
    kind: ClassVar[int] = 13
    fields: ClassVar[struct.Struct] = struct.Struct("<II")

    def encode(self) -> bytes:
        """Write the message."""
        items = _bytes(np.array(self.suppressed), "<i4")
        return self._frame(self.n_items, len(self.suppressed)) + items + self.message

    @classmethod
    def decode(cls, data: bytes) -> "Task":
        """Read the message."""
        (n_items, n_suppressed), body = cls._open(data)
        size = 4 * n_suppressed
        _require(len(body) >= size, f"the body must have at least {size} bytes; got {len(body)}")
        items = np.frombuffer(body[:size], "<i4")
        _require(_is_increasing_below(items, n_items), "suppressed items must increase")
        return cls(n_items, body[size:], tuple(items.tolist()))


@dataclass(frozen=True)
class SealedRound(_Message):
    """Keeper to party, past the server: a `Task` under AES-256-GCM, with its round bound in."""

    round: int  # 0: a survey
    nonce: bytes  # 12 bytes, never used twice
    box: bytes
    kind: ClassVar[int] = 9
    fields: ClassVar[struct.Struct] = struct.Struct("<I12s")

    def encode(self) -> bytes:
        """Write the message."""
        return self._frame(self.round, self.nonce) + self.box

    @classmethod
    def decode(cls, data: bytes) -> "SealedRound":
        """Read the message."""
        (round_, nonce), body = cls._open(data)
        return cls(round_, nonce, body)


@dataclass(frozen=True)
class Ciphertexts(_Message):
    """Party to server: its update in fixed point, encrypted; empty after the last `Round`.

    The server adds these, and the keeper alone can decrypt the sum.
    """

    round: int
    data: bytes
    kind: ClassVar[int] = 12
    fields: ClassVar[struct.Struct] = struct.Struct("<I")

    def encode(self) -> bytes:
        """Write the message."""
        return self._frame(self.round) + self.data

    @classmethod
    def decode(cls, data: bytes) -> "Ciphertexts":
        """Read the message."""
        (round_,), body = cls._open(data)
        return cls(round_, body)


def kind_of(data: bytes) -> int:
    """Return the kind of a message without reading further."""
    _require(len(data) >= _HEADER.size, f"needs at least {_HEADER.size} bytes; got {len(data)}")
    return int(_HEADER.unpack_from(data)[2])


def _bytes(array: Array, dtype: str) -> bytes:
    return np.ascontiguousarray(array, dtype).tobytes()


def _finite(values: Array) -> Array:
    _require(bool(np.isfinite(values).all()), "all numbers must be finite")
    return values


def _is_increasing_below(items: Array, n_items: int) -> bool:
    if len(items) == 0:
        return True
    return bool(items[0] >= 0 and items[-1] < n_items and (items[1:] > items[:-1]).all())


def _require_size(body: bytes, size: int) -> None:
    _require(len(body) == size, f"the body must have {size} bytes; got {len(body)}")


def _require(condition: bool, rule: str) -> None:
    if not condition:
        raise WireError(f"malformed message: {rule}")
