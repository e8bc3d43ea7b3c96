"""Every message that may leave a party, and every one that may reach it: the privacy boundary.

A party's ratings, its mask, its held-out ratings and p_u appear in no message. What leaves a party
is `Joined` and `Update`; reading these two classes is reading all that a server can learn. In this
version an `Update` holds plain gradients, from which a server can work out the masked ratings
(docs/errata.md, 23).

Little-endian, fixed header (magic, version, kind), then fixed fields, then arrays whose sizes the
fields give. A message that is short, long, out of range or not finite raises `WireError`.
"""

import struct
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedmmf.arrays import Array
from fedmmf.errors import WireError
from fedmmf.factorization.sgd import STEPS, Plan

_HEADER = struct.Struct("<4sBB")
_MAGIC, _VERSION = b"FMMF", 1


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


@dataclass(frozen=True)
class Join(_Message):
    """Server to party: will you take part?"""

    kind: ClassVar[int] = 1
    fields: ClassVar[struct.Struct] = struct.Struct("<")

    def encode(self) -> bytes:
        """Write the message."""
        return self._frame()

    @classmethod
    def decode(cls, data: bytes) -> "Join":
        """Read the message."""
        _, body = cls._open(data)
        _require_size(body, 0)
        return cls()


@dataclass(frozen=True)
class Joined(_Message):
    """Party to server: how many ratings it trains on (their mean sets the default lambda)."""

    n_ratings: int
    kind: ClassVar[int] = 2
    fields: ClassVar[struct.Struct] = struct.Struct("<I")

    def encode(self) -> bytes:
        """Write the message."""
        return self._frame(self.n_ratings)

    @classmethod
    def decode(cls, data: bytes) -> "Joined":
        """Read the message."""
        (n_ratings,), body = cls._open(data)
        _require_size(body, 0)
        return cls(n_ratings)


@dataclass(frozen=True, eq=False)
class Round(_Message):
    """Server to party: the plan and the factors of the whole catalogue.

    All of it, since downloading only the rated items would reveal which they are (errata 25).
    """

    round: int  # from 1
    best_round: int  # the round whose held-out error was lowest so far; 0: none yet
    is_last: bool  # nothing is to be computed: these are the final factors
    plan: Plan
    item_factors: Array  # (n_items, k) float32
    kind: ClassVar[int] = 3
    fields: ClassVar[struct.Struct] = struct.Struct("<II?BdddII")

    def encode(self) -> bytes:
        """Write the message."""
        plan, (n_items, factors) = self.plan, self.item_factors.shape
        numbers = (plan.learning_rate, plan.regularization, plan.user_prior)
        head = (self.round, self.best_round, self.is_last, STEPS.index(plan.step))
        return self._frame(*head, *numbers, n_items, factors) + _bytes(self.item_factors, "<f4")

    @classmethod
    def decode(cls, data: bytes) -> "Round":
        """Read the message."""
        head, body = cls._open(data)
        round_, best, is_last, step, rate, regularization, prior, n_items, factors = head
        _require(step < len(STEPS), f"step must be below {len(STEPS)}; got {step}")
        _require(factors > 0 and round_ > 0, "round and factors must be positive")
        numbers = np.array((rate, regularization, prior))
        _require(bool(np.isfinite(numbers).all()), "the plan's numbers must be finite")
        _require_size(body, 4 * n_items * factors)
        item_factors = _floats(body).reshape(n_items, factors)
        plan = Plan(factors, STEPS[step], rate, regularization, prior)
        return cls(round_, best, is_last, plan, item_factors)

    @classmethod
    def n_bytes(cls, n_items: int, factors: int) -> int:
        """Length of an encoded message."""
        return _HEADER.size + cls.fields.size + 4 * n_items * factors


@dataclass(frozen=True, eq=False)
class Update(_Message):
    """Party to server: eta_ui of its rated items, and its held-out error for early stopping.

    The answer to the last `Round` is an update without items.
    """

    round: int
    items: Array  # (n,) int32, strictly increasing
    gradients: Array  # (n, k) float32
    n_held_out: int = 0
    squared_error: float = 0.0  # summed over them, with the factors it was sent and its new p_u
    kind: ClassVar[int] = 4
    fields: ClassVar[struct.Struct] = struct.Struct("<IIIId")

    def encode(self) -> bytes:
        """Write the message."""
        n, factors = self.gradients.shape
        head = self._frame(self.round, n, factors, self.n_held_out, self.squared_error)
        return head + _bytes(self.items, "<i4") + _bytes(self.gradients, "<f4")

    @classmethod
    def decode(cls, data: bytes, *, n_items: int, factors: int) -> "Update":
        """Read the message; the server knows the catalogue's size and k."""
        (round_, n, k, n_held_out, squared_error), body = cls._open(data)
        _require(k == factors, f"must have {factors} factors; got {k}")
        _require_size(body, 4 * n + 4 * n * factors)
        items = np.frombuffer(body[: 4 * n], "<i4")
        gradients = _floats(body[4 * n :]).reshape(n, factors)
        _require(_is_increasing_below(items, n_items), f"items must increase within [0, {n_items})")
        _require(0 <= squared_error < np.inf, "the held-out error must be finite and not negative")
        return cls(round_, items, gradients, n_held_out, squared_error)

    @classmethod
    def n_bytes(cls, n_ratings: float, factors: int) -> float:
        """Length of an encoded message; a mean number of ratings gives a mean length."""
        return _HEADER.size + cls.fields.size + 4 * n_ratings * (1 + factors)


def kind_of(data: bytes) -> int:
    """Return the kind of a message without reading further."""
    _require(len(data) >= _HEADER.size, f"needs at least {_HEADER.size} bytes; got {len(data)}")
    return int(_HEADER.unpack_from(data)[2])


def _bytes(array: Array, dtype: str) -> bytes:
    return np.ascontiguousarray(array, dtype).tobytes()


def _floats(body: bytes) -> Array:
    values = np.frombuffer(body, "<f4")
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
