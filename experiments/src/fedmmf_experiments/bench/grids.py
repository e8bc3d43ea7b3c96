"""Grids of rankers' settings, and what is tried beyond an end that was best."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

MAX_WIDER = 6  # values that are tried beyond the ends of one setting's grid
LARGEST = {"factors": 256}  # where a fit would take too long; the settings not named have no limit

Settings = dict[str, Any]


def best_of(
    grid: Mapping[str, Sequence[Any]], quality: Callable[[Mapping[str, Any]], float]
) -> Settings:
    """Return the settings of the highest quality, one setting after the other.

    The search starts in the middle of the grid and ends where no single setting is better. A grid
    grows at the end at which a number is best, so that the best one has neighbours on both sides.

    Args:
        grid: values of each setting, numbers in ascending order.
        quality: of some settings; it is asked once for each.
    """
    values = {name: list(some) for name, some in grid.items()}
    best = {name: some[len(some) // 2] for name, some in values.items()}
    seen: dict[tuple[Any, ...], float] = {}

    def known(settings: Settings) -> float:
        key = tuple(settings.values())
        if key not in seen:
            seen[key] = quality(settings)
        return seen[key]

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
