"""Parts that every chart is made of: axes with round ticks, lines, texts.

Elements are built with ElementTree, which escapes every text. Colours and fonts are in page.css.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

WIDTH = 400  # lengths are in units of the view box, about 0.8 px each on a phone
_LEAST = 1e-9  # difference that ticks can show, of numbers about 1
AXIS_HEIGHT = 46  # below a plot: ticks and the axis label

Element = ET.Element
Format = Callable[[float], str]


def plain(value: float) -> str:
    """A number as short as it can be, with commas instead of an exponent where it is large."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def percent(share: float) -> str:
    """Format a share as a percentage with three digits."""
    return f"{100 * share:.3g}\N{NO-BREAK SPACE}%"


def round_ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten that enclose low..high."""
    if high - low <= _LEAST * max(1.0, abs(low), abs(high)):  # one value alone: some room around it
        room = max(abs(low) / 10, _LEAST) if low else 0.5
        low, high = low - room, low + room
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


@dataclass(frozen=True)
class Axis:
    """A linear map from values to places on a drawing."""

    ticks: Sequence[float]
    begin: float
    end: float

    @classmethod
    def over(cls, low: float, high: float, begin: float, end: float) -> "Axis":
        """An axis that ends at the round ticks around low..high."""
        return cls(round_ticks(low, high), begin, end)

    def __call__(self, value: float) -> float:
        """Map a value to its place on the drawing."""
        low, high = self.ticks[0], self.ticks[-1]
        return self.begin + (value - low) / (high - low) * (self.end - self.begin)


def add(parent: Element, tag: str, text: str = "", **attributes: float | str) -> Element:
    """Append an element; `text_anchor` becomes text-anchor, and `class_` class."""
    named = {
        name.rstrip("_").replace("_", "-"): f"{value:.2f}"
        if isinstance(value, float)
        else str(value)
        for name, value in attributes.items()
    }
    child = ET.SubElement(parent, tag, named)
    child.text = text or None
    return child


def new_drawing(name: str, title: str, described: str, height: float) -> Element:
    """An empty drawing with its text alternative."""
    drawing = ET.Element(
        "svg",
        {
            "viewBox": f"0 0 {WIDTH} {height:g}",
            "role": "img",
            "aria-labelledby": f"{name}-title {name}-desc",
        },
    )
    add(drawing, "title", title, id=f"{name}-title")
    add(drawing, "desc", described, id=f"{name}-desc")
    return drawing


def draw_x_axis(
    drawing: Element, axis: Axis, top: float, bottom: float, label: str, show: Format
) -> None:
    """Grid lines from top to bottom, ticks below them, the label below the ticks."""
    for tick in axis.ticks:
        at = axis(tick)
        add(drawing, "path", d=f"M{at:.1f},{top:.1f}V{bottom:.1f}", class_="grid")
        add(drawing, "text", show(tick), x=at, y=bottom + 17, text_anchor="middle")
    middle = (axis.begin + axis.end) / 2
    add(drawing, "text", label, x=middle, y=bottom + 36, text_anchor="middle", class_="label")


def draw_y_axis(drawing: Element, axis: Axis, left: float, label: str, show: Format) -> None:
    """Ticks at the left, and the label above the plot, where it needs no turned head."""
    add(drawing, "text", label, x=2, y=axis.end - 15, class_="label")
    for tick in axis.ticks:
        at = axis(tick)
        add(drawing, "path", d=f"M{left:.1f},{at:.1f}H{WIDTH - 12}", class_="grid")
        add(drawing, "text", show(tick), x=left - 6, y=at + 4, text_anchor="end")
