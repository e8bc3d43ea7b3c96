"""Check what a model is given: ratings to train or test on, and the arrays of a model file.

Compiled kernels do not check sizes, and would crash.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, get_args

import numpy as np

from fedmmf.arrays import Array
from fedmmf.engines import ENGINES
from fedmmf.errors import FedMMFError
from fedmmf.masks import FAMILIES
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.settings import Objective

if TYPE_CHECKING:
    from fedmmf.federation.local import Member
    from fedmmf.model.learned import Learned

# What numbers and names of the wrong kind or size lead to.
DAMAGED = (
    ArithmeticError,
    AttributeError,
    FedMMFError,
    IndexError,
    KeyError,
    MemoryError,
    TypeError,
    ValueError,
)
_WHOLE, _NUMBERS, _IDS = "iu", "f", "iufSU"


def require_sound(learned: "Learned") -> None:
    """Raise `ValueError`, or one of `DAMAGED`, unless all parts fit each other."""
    for text, holds in _texts(learned):
        if not holds:
            raise ValueError(f"its {text} is not one that there is")
    for name, array, kinds, shape in _arrays(learned):
        if not isinstance(array, np.ndarray) or not _is_of(array, kinds):
            raise ValueError(f"its {name} has the wrong type")
        if array.shape != shape:
            raise ValueError(f"its {name} has the shape {array.shape}, not {shape}")
        if array.dtype.kind == "f" and name in _FINITE and not np.isfinite(array).all():
            raise ValueError(f"its {name} has numbers that are not finite")
    _require_lists(learned)
    _require_indicators(learned)
    _require_factors(learned)
    _require_numbers(learned)


_FINITE = ("theta", "features", "line", "user_means", "item_means")


def _is_of(array: Array, kinds: str) -> bool:
    """Whether an array has one of the kinds; floats are what we write, others lack precision."""
    is_usual = array.dtype.kind != "f" or array.dtype in (np.float32, np.float64)
    return array.dtype.kind in kinds and is_usual


def _texts(learned: "Learned") -> Iterator[tuple[str, bool]]:
    yield "mask", learned.mask in FAMILIES
    yield "solver", learned.solver in SOLVERS
    yield "engine", learned.engine in ENGINES
    yield "objective", learned.objective in get_args(Objective)
    yield "variant", isinstance(learned.variant, str)
    yield "data", isinstance(learned.data, str)


def _arrays(learned: "Learned") -> Iterator[tuple[str, Array, str, tuple[int, ...]]]:
    """Each array with the kinds of numbers and the shape that it must have."""
    n_users, n_items = len(learned.user_ids), len(learned.item_ids)
    n_features = learned.features.shape[-1]
    yield "user_ids", learned.user_ids, _IDS, (n_users,)
    yield "item_ids", learned.item_ids, _IDS, (n_items,)
    yield "features", learned.features, _NUMBERS, (n_items + 1, n_features)
    n_parameters = FAMILIES[learned.mask].n_parameters(n_features)
    yield "theta", learned.theta, _NUMBERS, (n_users + 1, n_parameters)
    yield "indptr", learned.indptr, _WHOLE, (n_users + 1,)
    yield "rated_items", learned.rated_items, _WHOLE, (len(learned.rated_items),)
    for name in ("j_train", "j_out_of_fold", "variances"):
        yield name, getattr(learned, name), _NUMBERS, (n_users,)
    yield "in_clear", learned.in_clear, "b", (n_users,)
    yield "line", learned.line, _NUMBERS, (len(learned.line),)
    yield "user_means", learned.means.by_user, _NUMBERS, (n_users + 1,)
    yield "item_means", learned.means.by_item, _NUMBERS, (n_items + 1,)
    if learned.item_titles is not None:
        yield "item_titles", learned.item_titles, "U", (n_items,)


def _require_lists(learned: "Learned") -> None:
    ends, items = learned.indptr, learned.rated_items
    if ends[0] != 0 or ends[-1] != len(items) or (np.diff(ends.astype(np.int64)) < 0).any():
        raise ValueError("its lists of rated items do not begin and end where they should")
    if len(items) and not 0 <= items.min() <= items.max() < learned.n_items:
        raise ValueError("its lists of rated items have items that it does not know")
    for ids in (learned.user_ids, learned.item_ids):
        if len(ids) == 0 or not (ids[:-1] < ids[1:]).all():
            raise ValueError("its ids are not in order")


def _require_indicators(learned: "Learned") -> None:
    """Require finite J and variances of users with ratings; the others may have NaN."""
    has_any = np.diff(learned.indptr) > 0  # (n_users,)
    for name in ("j_train", "variances"):
        values = getattr(learned, name)
        if not np.isfinite(values[has_any]).all() or np.isinf(values).any():
            raise ValueError(f"its {name} has numbers that are not finite")


def _require_factors(learned: "Learned") -> None:
    if not learned.members:
        raise ValueError("it has no factors")
    for member in learned.members:
        _require_member(learned, member)
    users, items = learned.user_factors, learned.item_factors
    if users.shape != (learned.n_users + 1, items.shape[1]) or items.dtype.kind != "f":
        raise ValueError("its factors of users and of items do not fit each other")
    if not (np.isfinite(users).all() and np.isfinite(items).all()):
        raise ValueError("its factors are not finite")


def _require_member(learned: "Learned", member: "Member") -> None:
    update_shape, broadcast = learned.update_shape, member.broadcast
    is_listed = member.history.ndim == 1 and _is_of(member.history, _NUMBERS)
    if not is_listed or not 0 <= member.best_round <= len(member.history):
        raise ValueError("its history is none")
    if broadcast.parameters.shape != (update_shape.n_parameters,) or broadcast.item_rows.ndim != 2:
        raise ValueError("its factors have the wrong size")
    SOLVERS[learned.solver].check(update_shape, broadcast)
    if member.user_factors.shape != (learned.n_users, update_shape.n_own):
        raise ValueError("it has factors of other users")
    if len(broadcast.item_rows) != learned.n_items:
        raise ValueError("it has factors of other items")
    newcomers = broadcast.newcomers
    if newcomers is not None and (
        newcomers.shape != (update_shape.n_newcomer,)
        or newcomers.dtype != np.float64
        or not np.isfinite(newcomers).all()
    ):
        raise ValueError("its prior of newcomers has the wrong size, or is not finite")
    factors = (broadcast.parameters, broadcast.item_rows, member.user_factors)
    if not all(_is_of(array, _NUMBERS) for array in factors):
        raise ValueError("its factors have the wrong type")


def _require_numbers(learned: "Learned") -> None:
    whole = ("n_content", "n_summed", "n_ratings", "n_training", "n_left_out")
    for name in whole:
        number = getattr(learned, name)
        if type(number) is not int or number < 0:
            raise ValueError(f"its {name} is no count")
    if type(learned.synthetic) is not bool:
        raise ValueError("its description has answers that are neither yes nor no")
    numbers = [learned.shrinkage, learned.means.overall, *learned.seconds.values()]
    numbers += vars(learned.scale).values()
    if learned.counted_cost is not None:
        *counted, how = vars(learned.counted_cost).values()
        numbers += counted
        if not isinstance(how, str):
            raise ValueError("its cost is none")
    if not all(type(number) in (int, float) and np.isfinite(number) for number in numbers):
        raise ValueError("its description has numbers that are none")
    _require_fit(learned)


def _require_fit(learned: "Learned") -> None:
    if not 1 <= len(learned.line) <= 1 + learned.features.shape[1]:
        raise ValueError("its line is none")
    if learned.n_content > learned.features.shape[1] or learned.n_training > learned.n_ratings:
        raise ValueError("its counts do not fit each other")
    if not {"mask", "train"} <= learned.seconds.keys() or learned.shrinkage <= 0:
        raise ValueError("its description lacks something")
