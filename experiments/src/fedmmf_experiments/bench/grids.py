"""Grids of rankers' settings, and what is tried beyond an end that was best."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

MAX_WIDER = 6  # values that are tried beyond the ends of one setting's grid
LARGEST = {"factors": 256}  # where a fit would take too long; the settings not named have no limit

Settings = dict[str, Any]


def best_of(
    grid: Mapping[str, Sequence[Any]], quality: Callable[[Mapping[str, Any]], float]
) -> Settings:
    """Return the settings of the highest quality, of a grid that grows where an end is best.

    The whole grid is tried. From its best settings on, one setting is changed after the other; a
    number that is best at an end gets more values there, so that it has neighbours on both sides.

    Args:
        grid: values of each setting, numbers in ascending order.
        quality: of some settings; it is asked once for each.
    """
    values = {name: list(some) for name, some in grid.items()}
    seen: dict[tuple[Any, ...], float] = {}

    def known(settings: Settings) -> float:
        key = tuple(settings[name] for name in grid)
        if key not in seen:
            seen[key] = quality(settings)
        return seen[key]

    settings = (dict(zip(grid, some, strict=True)) for some in product(*grid.values()))
    best = max(settings, key=known)
    while True:
        before = dict(best)
        for name in values:
            best = max(({**best, name: value} for value in values[name]), key=known)
            most = len(grid[name]) + MAX_WIDER
            while len(values[name]) < most and (wider := widened(name, values[name], best[name])):
                values[name] = wider
                best = max(({**best, name: value} for value in wider), key=known)
        if best == before:
            return best


def widened(name: str, values: Sequence[Any], best: Any) -> list[Any]:
    """Return the values with one more beyond the end that is best; nothing where none is needed.

    The step is that of the last two values. Words have no ends, and 0 is the end of numbers.
    """
    if isinstance(best, str) or len(values) < 2 or best not in (values[0], values[-1]):
        return []
    end, before = (values[0], values[1]) if best == values[0] else (values[-1], values[-2])
    if not end or not before:
        return []
    beyond = end * end / before
    if isinstance(end, int):
        beyond = round(beyond)
    if (beyond < 1 and isinstance(end, int)) or beyond > LARGEST.get(name, beyond):
        return []
    return sorted({*values, beyond}) if beyond not in values else []
