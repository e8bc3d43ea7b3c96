"""The scale ratings live on, and its mapping to [0, 1]."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fedmmf.errors import SettingsError

FloatArray = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class RatingScale:
    """The smallest and largest rating and the step between neighbouring ones."""

    min: float
    max: float
    step: float

    def __post_init__(self) -> None:
        if not np.all(np.isfinite([self.min, self.max, self.step])):
            raise SettingsError(f"A rating scale needs finite numbers; got {self}.")
        if self.max <= self.min:
            raise SettingsError(
                f"A rating scale needs min < max; got {self.min:g} and {self.max:g}. Swap them?"
            )
        if not 0 < self.step <= self.span:
            raise SettingsError(
                f"A rating scale needs a step in (0, max - min = {self.span:g}]; got {self.step:g}."
            )

    @classmethod
    def of(cls, given: "ScaleLike") -> Self:
        """Return a scale from (min, max) or (min, max, step); a scale stays as it is.

        Without a step, it is 1, or the whole span where that is less.
        """
        if isinstance(given, cls):
            return given
        parts = list(given) if isinstance(given, tuple | list) else []
        if len(parts) not in (2, 3) or not all(map(_is_number, parts)):
            raise SettingsError(
                f"A rating scale is (min, max) or (min, max, step), such as (1, 5); got {given!r}."
            )
        low, high, *step = map(float, parts)
        return cls(low, high, step[0] if step else min(1.0, high - low))

    @classmethod
    def found_in(cls, values: npt.ArrayLike) -> Self:
        """Return the scale that data show: its extremes and its smallest gap.

        Data with a single distinct value show no gap; the scale is then one to either side of it.
        """
        # float32 ratings such as 0.1 carry digits nobody wrote; six decimals drop them.
        distinct = np.unique(np.round(np.asarray(values, dtype=np.float64), 6))
        if distinct.size == 0:
            raise SettingsError("A rating scale cannot be found in no ratings at all; give one.")
        if distinct.size == 1:
            only = float(distinct[0])
            return cls(only - 1.0, only + 1.0, 1.0)
        step = round(float(np.diff(distinct).min()), 6)
        return cls(float(distinct[0]), float(distinct[-1]), step)

    @property
    def span(self) -> float:
        """The width of the scale, `max - min`."""
        return self.max - self.min

    @property
    def n_levels(self) -> int:
        """How many ratings there are, from one end to the other."""
        return round(self.span / self.step) + 1

    def levels(self, values: FloatArray) -> npt.NDArray[np.int32]:
        """Places of ratings on the scale, from 0 on; what is between two is at the nearer one."""
        places = np.rint((np.asarray(values, np.float64) - self.min) / self.step)
        return np.clip(places, 0, self.n_levels - 1).astype(np.int32)

    @property
    def midpoint(self) -> float:
        """The middle of the scale."""
        return (self.min + self.max) / 2

    def to_unit(self, values: FloatArray) -> FloatArray:
        """Map the scale linearly onto [0, 1], so that a threshold means the same on every scale."""
        return (values - self.min) / self.span

    def clip(self, values: FloatArray) -> FloatArray:
        """Return `values` with those off the scale moved to its nearest end."""
        return np.clip(values, self.min, self.max)

    def __str__(self) -> str:
        return f"{self.min:g}..{self.max:g} in steps of {self.step:g}"


ScaleLike = RatingScale | tuple[float, ...]  # ready-made, or (min, max) or (min, max, step)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
