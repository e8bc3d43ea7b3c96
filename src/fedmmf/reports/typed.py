"""What all results share: how they are made, printed and read.

Results are frozen, and hold what JSON can hold: numpy's numbers become Python's when a result is
made, and figures that are not finite become None, so that what is printed is what is there. Unknown
keys are passed over, so that a newer run can be read.
"""

import math
from collections.abc import Mapping
from html import escape
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from fedmmf.errors import DataError

Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Interval = tuple[FiniteFloat, FiniteFloat]


def _as_json_holds(value: Any) -> Any:
    """Convert a value to plain Python without NaN and infinities; results inside it stay."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _as_json_holds(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json_holds(part) for part in value]
    return value


def html_table(title: str, rows: Mapping[str, Any]) -> str:
    """Two columns of words and figures for notebooks, without colours: any theme can show it."""
    lines = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(_shown(value))}</td></tr>"
        for name, value in rows.items()
    )
    return f"<table><caption>{escape(title)}</caption><tbody>{lines}</tbody></table>"


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


class Typed(BaseModel):
    """What all results share: how they are made, printed and read."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    leading: ClassVar[tuple[str, ...]] = ()  # fields that are printed before the others

    def to_json_dict(self) -> dict[str, Any]:
        """Everything as JSON holds it; `from_json_dict` reads it back."""
        return self.model_dump(mode="json")

    def _repr_html_(self) -> str:
        """For notebooks: single figures and words; what has parts is named at the end."""
        values = {name: value for name, value in self if value is not None}
        plain = {
            name: value for name, value in values.items() if isinstance(value, str | int | float)
        }
        parts = [name for name in values if name not in plain]
        more = {"more in": ", ".join(parts)} if parts else {}
        return html_table(type(self).__name__, plain | more)

    @classmethod
    def from_json_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_json_dict` made, or what a command printed.

        Raises:
            DataError: a key is missing, or a value is not what its key promises.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise DataError(_explain(error)) from None

    @model_validator(mode="before")
    @classmethod
    def _take_plain_values(cls, values: Any) -> Any:
        return _as_json_holds(values)

    @model_serializer(mode="wrap")
    def _leave_out_what_was_not_said(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit unset fields; an explicit None becomes null.

        Computed fields come first: they say what kind of run the rest is of. `leading` ones follow.
        """
        said, worked_out = self.model_fields_set, type(self).model_computed_fields

        def place(pair: tuple[str, Any]) -> tuple[bool, bool]:
            return pair[0] not in worked_out, pair[0] not in self.leading

        ordered = sorted(dump(self).items(), key=place)
        return {name: value for name, value in ordered if value is not None or name in said}


def _explain(error: ValidationError, most: int = 60) -> str:
    """The first mistake: where it is, the rule, and the beginning of what arrived."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"])) or "the result"
    if first["type"] == "value_error":  # a rule of ours, which says what arrived
        return f"{where}: {first['msg'].removeprefix('Value error, ')}"
    got = repr(first["input"])
    got = got if len(got) <= most else f"{got[:most]}..."
    return f"{where}: {first['msg']}; got {got}"
