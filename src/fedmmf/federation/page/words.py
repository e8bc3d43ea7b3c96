"""Format figures, times and states for people."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from fedmmf.federation.status import FederationStatus

NOBODY_HELD_OUT = (
    "The sites hold out no ratings while they train, so that there is no error to follow here. "
    "An evaluation asks them for one."
)
NO_ROUND_YET = "No round is finished yet."


def size(n_bytes: int) -> str:
    """Format bytes in kB, MB or GB."""
    for unit, per in (("GB", 1e9), ("MB", 1e6)):
        if n_bytes >= per * 0.9995:
            return f"{n_bytes / per:.3g}\N{NO-BREAK SPACE}{unit}"
    value = n_bytes / 1e3
    return f"{value:.0f}\N{NO-BREAK SPACE}kB" if value >= 99.5 or not n_bytes else _small(value)


def _small(kilobytes: float) -> str:
    return f"{max(kilobytes, 0.1):.1f}\N{NO-BREAK SPACE}kB"


def duration(seconds: float) -> str:
    """Format seconds in seconds, minutes or hours, coarsely."""
    space = "\N{NO-BREAK SPACE}"
    if seconds < 9.95:
        return f"{seconds:.1f}{space}s"
    if seconds < 89.5:
        return f"{seconds:.0f}{space}s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes}{space}min"
    hours, rest = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}{space}h {rest}{space}min" if rest else f"{hours}{space}h"
    return f"{hours // 24}{space}d {hours % 24}{space}h"


def moment(when: str, today: str) -> str:
    """Format a time of day, with its date where that differs from `today`."""
    try:
        then = datetime.fromisoformat(when).astimezone(UTC)
    except ValueError:
        return when  # as it came: better than nothing
    return f"{then:%H:%M:%S}" if f"{then:%Y-%m-%d}" == today[:10] else f"{then:%Y-%m-%d %H:%M}"


def error(value: float) -> str:
    """Format an RMSE or MAE with four decimals."""
    return f"{value:.4f}"


def time_left(status: FederationStatus) -> str:
    """Format the estimated time until the last round."""
    if status.state in ("finished", "failed", "stopped"):
        return "none"
    if status.seconds_left is None:
        return "not known"
    return f"about {duration(status.seconds_left)}"


def flat(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Settings line by line; groups are written before a dot."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", _value(value)


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | set | frozenset | dict):
        return ", ".join(map(_value, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
