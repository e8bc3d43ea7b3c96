"""The held-out error as a line, in SVG.

Elements are built with ElementTree, which escapes every text. Colours and fonts are in page.css.
"""

import math
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree as ET

from fedmmf.federation.page import words

WIDTH, HEIGHT = 400, 216  # lengths are in units of the view box
LEFT, RIGHT, TOP, BOTTOM = 56, 380, 30, 170
MAX_DOTS = 40  # beyond it they would touch each other

Known = list[tuple[int, float]]  # number of an attempt, and its error


def known(errors: Sequence[float | None]) -> Known:
    """Attempts that have an error, counted from 1."""
    return [
        (number, error)
        for number, error in enumerate(errors, start=1)
        if error is not None and math.isfinite(error)
    ]


def line(errors: Sequence[float | None]) -> str:
    """Draw the errors; at least one attempt must have one. Attempts without one are gaps."""
    points = known(errors)
    x_ticks = round_ticks(0, max(len(errors), 4), whole=True)
    y_ticks = round_ticks(*(extreme(error for _, error in points) for extreme in (min, max)))
    drawing = _new_drawing(points)
    _draw_axes(drawing, x_ticks, y_ticks)
    places = [(number, _x(number, x_ticks), _y(error, y_ticks)) for number, error in points]
    _add(drawing, "path", d=_path(places), class_="curve")
    for place in places if len(places) <= MAX_DOTS else places[-1:]:
        _add(drawing, "circle", cx=place[1], cy=place[2], r=3.0, class_="mark")
    _label_last(drawing, places[-1], points[-1][1])
    return ET.tostring(drawing, encoding="unicode")


def described(points: Known) -> str:
    """Describe the drawing in a sentence."""
    (_, first), (number, last) = points[0], points[-1]
    lowest = min(error for _, error in points)
    if len(points) == 1:
        return f"{words.error(last)} after round {number}."
    return (
        f"From {words.error(first)} to {words.error(last)} after {number} rounds; "
        f"the lowest was {words.error(lowest)}."
    )


def round_ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten that enclose low..high."""
    if high <= low:  # one value alone: some room around it
        room = abs(low) / 10 or 0.5
        low, high = low - room, low + room
    rough = max((high - low) / 4, 1.0 if whole else 1e-9)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def _x(value: float, ticks: Sequence[float]) -> float:
    return LEFT + (value - ticks[0]) / (ticks[-1] - ticks[0]) * (RIGHT - LEFT)


def _y(value: float, ticks: Sequence[float]) -> float:
    return BOTTOM - (value - ticks[0]) / (ticks[-1] - ticks[0]) * (BOTTOM - TOP)


def _path(places: Sequence[tuple[int, float, float]]) -> str:
    """A line through neighbours; after a gap it begins anew."""

    def steps() -> Iterator[str]:
        before = None
        for number, x, y in places:
            yield f"{'L' if before == number - 1 else 'M'}{x:.1f},{y:.1f}"
            before = number

    return "".join(steps())


def _new_drawing(points: Known) -> ET.Element:
    named = {"role": "img", "aria-labelledby": "error-title error-description"}
    drawing = ET.Element("svg", {"viewBox": f"0 0 {WIDTH} {HEIGHT}", **named})
    _add(drawing, "title", "RMSE on held-out ratings by round", id="error-title")
    _add(drawing, "desc", described(points), id="error-description")
    return drawing


def _draw_axes(drawing: ET.Element, x_ticks: list[float], y_ticks: list[float]) -> None:
    for tick in y_ticks:
        at = _y(tick, y_ticks)
        _add(drawing, "path", d=f"M{LEFT},{at:.1f}H{RIGHT}", class_="grid")
        _add(drawing, "text", f"{tick:.6g}", x=LEFT - 6.0, y=at + 4, text_anchor="end")
    for tick in x_ticks:
        _add(
            drawing, "text", f"{tick:.0f}", x=_x(tick, x_ticks), y=BOTTOM + 17.0,
            text_anchor="middle",
        )  # fmt: skip
    _add(drawing, "text", "RMSE", x=2.0, y=TOP - 15.0)
    middle = (LEFT + RIGHT) / 2
    _add(drawing, "text", "rounds begun", x=middle, y=BOTTOM + 36.0, text_anchor="middle")


def _label_last(drawing: ET.Element, place: tuple[int, float, float], error: float) -> None:
    _, x, y = place
    anchor = "end" if x > RIGHT - 40 else "middle"
    above = y - 10 if y > TOP + 20 else y + 20  # never over the axis' name
    _add(drawing, "text", words.error(error), x=x, y=above, text_anchor=anchor, class_="value")


def _add(parent: ET.Element, tag: str, text: str = "", **attributes: float | str) -> None:
    """Append an element; `text_anchor` becomes text-anchor, and `class_` class."""
    named = {
        name.rstrip("_").replace("_", "-"): f"{value:.1f}" if isinstance(value, float) else value
        for name, value in attributes.items()
    }
    ET.SubElement(parent, tag, {name: str(value) for name, value in named.items()}).text = (
        text or None
    )
