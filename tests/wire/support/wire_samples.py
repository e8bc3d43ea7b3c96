"""Every message there is: its class, random ones for hypothesis, and its fields as JSON."""

from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fedmmf
from fedmmf import wire
from fedmmf.aggregation.adaptive.messages import Collect, Collected
from fedmmf.aggregation.homomorphic.messages import Ciphertexts, HomomorphicKey, Sealed
from fedmmf.aggregation.secure.messages import SecureAgreed, SecureSetup, SecureTrip
from fedmmf.solvers.contract import UpdateShape
from fedmmf.wire.codec import COUNTS, ITEMS, REALS, ROWS, SINGLES
from fedmmf.wire.messages import Expected

for _path in sorted((Path(fedmmf.__file__).parent / "aggregation").glob("*/messages.py")):
    import_module(f"fedmmf.aggregation.{_path.parent.name}.messages")

MESSAGES = sorted(
    (cls for cls in wire.Message.__subclasses__() if cls.__module__.startswith("fedmmf.")),
    key=lambda cls: cls.kind,
)
by_class = {"argvalues": MESSAGES, "ids": lambda cls: cls.__name__}

# Random messages, each one that its receiver accepts

N_ITEMS = 50
WHOLE = st.integers(0, 2**32 - 1)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
SINGLE = st.floats(width=32, allow_nan=False, allow_infinity=False)
SWITCH = st.booleans()
NAME = st.binary(min_size=32, max_size=32)
BLOB = st.binary(max_size=80)
TEXT = st.text(max_size=40)
SOME_ITEMS = st.sets(st.integers(0, N_ITEMS - 1)).map(lambda found: np.array(sorted(found), "<i4"))


def reals(size):
    return hnp.arrays(np.float64, size, elements=FINITE)


def singles(shape):
    return hnp.arrays(np.float32, shape, elements=SINGLE)


@st.composite
def rounds(draw):
    rank, more, n_items = (draw(st.integers(low, 4)) for low in (1, 0, 0))
    number = draw(st.integers(1, 2**32 - 1))
    best = draw(st.integers(0, number - 1))
    arrays = draw(reals(draw(st.integers(0, 4)))), draw(singles((n_items, rank + more)))
    return wire.Round(number, best, draw(SWITCH), rank, *arrays)


@st.composite
def updates(draw):
    items = draw(SOME_ITEMS)
    counts = draw(hnp.arrays(np.uint32, len(items), elements=st.integers(1, 2**32 - 1)))
    if draw(SWITCH) or (counts == 1).all():
        counts = counts[:0]
    rows = draw(singles((len(items), draw(st.integers(1, 4)))))
    return wire.Update(draw(WHOLE), items, counts, rows, draw(reals(draw(st.integers(0, 4)))))


@st.composite
def collected(draw):
    items = draw(SOME_ITEMS)
    return Collected(items, draw(singles(len(items))))


@st.composite
def setups(draw):
    n = draw(st.integers(1, 6))
    identities, for_survey = draw(st.sampled_from([0, n])), draw(SWITCH)
    return SecureSetup(
        session=draw(st.binary(min_size=16, max_size=16)),
        for_survey=for_survey,
        layout=draw(NAME),
        party=draw(st.integers(0, n - 1)),
        n_parties=n,
        n_users=draw(st.integers(n, 2**31 - 1)),
        minimum=draw(WHOLE),
        batch=draw(st.integers(1, n)),
        left_out=draw(SOME_ITEMS)[: 0 if for_survey else None],
        identities=tuple(draw(NAME) for _ in range(identities)),
    )


USERS = st.integers(1, 2**31 - 1)
POSITIVE = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
STRATEGIES = {
    wire.Invitation: st.builds(
        wire.Invitation,
        run=st.binary(min_size=16, max_size=16),
        catalogue=NAME,
        scale_min=FINITE,
        scale_max=FINITE,
        scale_step=FINITE,
        solver=TEXT,
        rank=st.integers(1, 2048),
        variant=TEXT,
        rounds=st.integers(1, 2**32 - 1),
        sums=TEXT,
        row_bound=POSITIVE,
        total_bound=POSITIVE,
        columns=st.integers(1, 128),
        minimum=WHOLE,
    ),
    wire.Joined: st.builds(wire.Joined, USERS, st.just(b"") | NAME),
    wire.Refused: st.builds(wire.Refused, st.text(max_size=1000), WHOLE),
    wire.Wanted: st.builds(wire.Wanted, NAME),
    wire.Survey: st.builds(wire.Survey, SWITCH),
    wire.Round: rounds(),
    wire.Ask: st.builds(wire.Ask, NAME),
    wire.Update: updates(),
    wire.Finish: st.builds(wire.Finish, NAME),
    wire.Finished: st.just(wire.Finished()),
    Collect: st.just(Collect()),
    Collected: collected(),
    SecureSetup: setups(),
    SecureAgreed: st.just(SecureAgreed()),
    SecureTrip: st.builds(SecureTrip, st.sampled_from([1, 2, 3]), NAME, BLOB),
    HomomorphicKey: st.builds(HomomorphicKey, TEXT, USERS, NAME, BLOB),
    Sealed: st.builds(Sealed, WHOLE, st.binary(min_size=12, max_size=12), BLOB),
    Ciphertexts: st.builds(Ciphertexts, WHOLE, BLOB),
    wire.Layout: st.builds(
        wire.Layout,
        SOME_ITEMS.filter(len),
        st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5).map(np.array),
        st.floats(0.5, 50.0),
    ),
    wire.Newcomers: st.builds(wire.Newcomers, reals(0)),
    wire.Adopt: st.builds(wire.Adopt, NAME),
    wire.Adopted: st.builds(wire.Adopted, SWITCH),
}


def known_for(message):
    """What the receiver of a random message would check it against."""
    if isinstance(message, wire.Round):
        (n_items, published), n_numbers = message.item_rows.shape, len(message.parameters)
        update_shape = UpdateShape(message.rank, 1, published, n_numbers, 0)
        others = N_ITEMS + n_items  # the last round has all items, the others those of the layout
        sizes = (n_items, others) if message.is_last else (others, n_items)
        return Expected(*sizes, update_shape, 0)
    width, n_totals = 1, 0
    if isinstance(message, wire.Update):
        width, n_totals = message.rows.shape[1], len(message.totals)
    n_catalogue = N_ITEMS if isinstance(message, wire.Layout) else 2 * N_ITEMS
    return Expected(n_catalogue, N_ITEMS, UpdateShape(1, width, 1, 0, n_totals), n_totals)


def same(one, other):
    """Whether two messages say the same, to the last bit."""
    return type(one) is type(other) and one.encode() == other.encode()


# Fields as JSON

_DTYPES = {ITEMS: "<i4", COUNTS: "<u4", REALS: "<f8", SINGLES: "<f4"}


def to_json(message):
    """Fields of a message: numbers and texts as they are, bytes in hexadecimal."""
    return {
        name: _rows(getattr(message, name)) if field is ROWS else _plain(getattr(message, name))
        for name, field in message.fields().items()
    }


def from_json(cls, fields):
    """The message of these fields."""
    assert list(fields) == list(cls.fields())
    return cls(**{name: _value(cls, name, value) for name, value in fields.items()})


def _rows(rows):
    return {"shape": list(rows.shape), "values": rows.ravel().tolist()}


def _plain(value):
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


def _value(cls, name, value):
    field = cls.fields()[name]
    if field is ROWS:
        return np.array(value["values"], "<f4").reshape(value["shape"])
    if field in _DTYPES:
        return np.array(value, _DTYPES[field])
    if isinstance(value, list):
        return tuple(bytes.fromhex(part) for part in value)
    return bytes.fromhex(value) if get_type_hints(cls)[name] is bytes else value
