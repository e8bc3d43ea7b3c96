"""Charts as inline SVG: bars, a histogram, and lines; each with the same figures as a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as ET

from fedmmf.reports.results import Histogram
from fedmmf.reports.svg import (
    AXIS_HEIGHT,
    WIDTH,
    Axis,
    Element,
    Format,
    add,
    draw_x_axis,
    draw_y_axis,
    new_drawing,
    plain,
)

LEFT, RIGHT, TOP = 56, WIDTH - 12, 30
PLOT_HEIGHT = 140
PANEL_HEIGHT = TOP + PLOT_HEIGHT + AXIS_HEIGHT
ROW_HEIGHT, BAR_HEIGHT = 44, 14
SYMBOL = 10  # side of a symbol before a name
LONGEST_LABEL = 36  # letters that fit into a line beside a figure


@dataclass(frozen=True)
class PageTable:
    """Rows of text; the first column names the row."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    is_text: bool = False  # else all columns but the first hold figures
    folded: str = ""  # a line that opens the table; without one it is open


@dataclass(frozen=True, eq=False)
class Chart:
    """A drawing, and the same figures as a table."""

    drawing: Element
    table: PageTable

    def __html__(self) -> str:
        """The drawing as markup; templates call this."""
        return ET.tostring(self.drawing, encoding="unicode")


@dataclass(frozen=True)
class Bar:
    """One horizontal bar with its label and value."""

    label: str
    value: float
    look: str = "ours"  # filled; "other": outlined; one of `SYMBOLS`: with a symbol as well
    interval: tuple[float, float] | None = None
    reference: float | None = None  # a tick across the bar, to compare with


@dataclass(frozen=True)
class ValueAxis:
    """The axis that bars are measured by."""

    label: str
    show: Format = plain
    at_least: float = 0.0  # where it ends at the earliest
    from_zero: bool = True  # else from where differences can be seen, and the axis says so

    def over(self, rows: Sequence[Bar]) -> Axis:
        """An axis for these bars."""
        highest = max(self.at_least, *(_furthest(row) for row in rows)) or 1.0
        low, high = (most(row.value for row in rows) for most in (min, max))
        is_close = not self.from_zero and 0 < high / 2 < low < high
        # Half a difference before the shortest bar, which has some length then.
        return Axis.over(low - (high - low) / 2 if is_close else 0.0, highest, 4, RIGHT)

    def words(self, axis: Axis) -> str:
        """The label, and where the axis begins if that is not at 0."""
        begin = axis.ticks[0]
        return f"{self.label}; bars begin at {self.show(begin)}, not at 0" if begin else self.label


BESIDE = {"above": "more", "level": "no difference found", "below": "less"}  # in words


SYMBOLS = {"above": "M0,10L5,0L10,10Z", "level": "M5,0L10,5L5,10L0,5Z", "below": "M0,0H10L5,10Z"}


@dataclass(frozen=True)
class KeyEntry:
    """The legend entry of one style of bars."""

    look: str
    words: str

    def __html__(self) -> str:
        """Symbol and bar as markup; templates call this."""
        box = {"viewBox": "0 0 40 16", "aria-hidden": "true", "class": "key-symbol"}
        drawing = ET.Element("svg", box)
        _draw_symbol(drawing, self.look, 1, 3)
        add(drawing, "rect", x=17, y=3, width=21, height=SYMBOL, class_=self.look)
        return ET.tostring(drawing, encoding="unicode")


@dataclass(frozen=True, eq=False)
class Slider:
    """What the reader can move along the trade-off's curves."""

    points: list[dict[str, Any]]  # each: threshold_j, a dot's place in each chart, a sentence
    start: int  # the point of this run


@dataclass(frozen=True, eq=False)
class Section:
    """A heading with sentences, charts and tables below it."""

    name: str  # unique on the page; the section's id
    title: str  # the heading
    sentences: tuple[str, ...] = ()  # paragraphs
    points: tuple[str, ...] = ()  # a list below them
    key: tuple[KeyEntry, ...] = ()  # legend of the styles of bars
    charts: tuple[Chart, ...] = ()  # side by side, where there is room
    tables: tuple[PageTable, ...] = ()  # below the charts
    slider: Slider | None = None  # moves the markers of the charts


@dataclass(frozen=True)
class Series:
    """The values of a curve, what they are, and how to write one."""

    name: str
    values: Sequence[float | None]
    show: Format = plain
    level: float | None = None  # a line across, to compare with
    level_name: str = ""


def bars(name: str, title: str, rows: Sequence[Bar], measure: ValueAxis) -> Chart:
    """Horizontal bars, one below the other; ids on the page are made from the name."""
    axis, show = measure.over(rows), measure.show
    bottom = ROW_HEIGHT * len(rows)
    described = "; ".join(_said(row, show) for row in rows)
    drawing = new_drawing(name, title, described, bottom + AXIS_HEIGHT)
    draw_x_axis(drawing, axis, 0, bottom, measure.words(axis), show)
    for index, row in enumerate(rows):
        _draw_bar(drawing, axis, row, ROW_HEIGHT * index, show)
    return Chart(drawing, _bar_table(title, rows, measure.label, show))


def _said(row: Bar, show: Format) -> str:
    if row.reference is None:
        return f"{row.label}: {show(row.value)}"
    beside = f", {BESIDE[row.look]}" if row.look in BESIDE else ""
    return f"{row.label}: {show(row.value)}{beside}; public knowledge: {show(row.reference)}"


def _furthest(row: Bar) -> float:
    return max(row.value, row.reference or 0, row.interval[1] if row.interval else 0)


def _draw_symbol(drawing: Element, look: str, x: float, y: float) -> None:
    if look in SYMBOLS:
        at = f"translate({x:g} {y:g})"
        add(drawing, "path", d=SYMBOLS[look], class_=f"symbol {look}", transform=at)


def _draw_bar(drawing: Element, axis: Axis, row: Bar, top: float, show: Format) -> None:
    start, y = axis.begin, top + 22
    _draw_symbol(drawing, row.look, start, top + 6)
    x = start + (SYMBOL + 6) * (row.look in SYMBOLS)
    text = add(drawing, "text", f"{_shortened(row.label)}  ", x=x, y=top + 16, class_="name")
    add(text, "tspan", show(row.value), class_="value")
    width = max(axis(row.value) - start, 0.5)  # a bar of nothing still shows where it is
    look = f"mark {row.look}"
    add(drawing, "rect", x=start, y=y, width=width, height=BAR_HEIGHT, class_=look)
    if row.interval is not None:
        low, high = (axis(end) for end in row.interval)
        ends = f"M{low:.1f},{y + 3}v8M{high:.1f},{y + 3}v8"
        for layer in ("halo", "interval"):  # the halo keeps it visible on a filled bar
            add(drawing, "path", d=f"M{low:.1f},{y + 7}H{high:.1f}{ends}", class_=layer)
    if row.reference is not None:
        x = axis(row.reference) - 2
        add(drawing, "rect", x=x, y=y - 4, width=4, height=BAR_HEIGHT + 8, class_="reference")


def _shortened(label: str) -> str:
    return label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 1]}…"


def _bar_table(title: str, rows: Sequence[Bar], label: str, show: Format) -> PageTable:
    columns = ["", label]
    cells = [[row.label, show(row.value)] for row in rows]
    if any(row.interval for row in rows):
        columns.append("95 % interval")
        for cell, row in zip(cells, rows, strict=True):
            cell.append(" to ".join(map(show, row.interval or ())))
    if any(row.reference is not None for row in rows):
        columns.append("public knowledge")
        for cell, row in zip(cells, rows, strict=True):
            cell.append("" if row.reference is None else show(row.reference))
    if any(row.look in BESIDE for row in rows):
        columns.append("than the public knows")
        for cell, row in zip(cells, rows, strict=True):
            cell.append(BESIDE.get(row.look, ""))
    return PageTable(title, columns, cells)


def histogram(name: str, title: str, found: Histogram, label: str, limit: float) -> Chart:
    """Counts in bins, with a line at a limit; bins beyond it are outlined."""
    edges, counts = found.edges, found.counts
    x = Axis.over(min(edges[0], limit), max(edges[-1], limit), LEFT, RIGHT)
    y = Axis.over(0, max(*counts, 1), TOP + PLOT_HEIGHT, TOP)
    bins = list(zip(edges[:-1], edges[1:], counts, strict=True))
    described = f"{sum(counts):,} users in {len(bins)} bins; a line at {plain(limit)}"
    drawing = new_drawing(name, title, described, PANEL_HEIGHT)
    draw_y_axis(drawing, y, LEFT, "users", plain)
    draw_x_axis(drawing, x, TOP, y.begin, label, plain)
    for low, high, count in bins:
        look = "mark ours" if high <= limit else "mark other"
        width, height = x(high) - x(low), y.begin - y(count)
        add(drawing, "rect", x=x(low), y=y(count), width=width, height=height, class_=look)
    add(drawing, "path", d=f"M{x(limit):.1f},{TOP}V{y.begin}", class_="limit")
    add(drawing, "text", f"threshold {plain(limit)}", x=x(limit), y=TOP - 6, class_="value")
    rows = [[f"{plain(low)} to {plain(high)}", f"{count:,}"] for low, high, count in bins]
    return Chart(drawing, PageTable(title, [label, "users"], rows))


def line(
    name: str, title: str, xs: Sequence[float], curve: Series, label: str, marked: int | None = None
) -> Chart:
    """A curve, with a line and a dot at one of its points.

    Args:
        name: unique on the page.
        title: what the chart shows.
        xs: increasing. (n,)
        curve: n values, at least one of them not None.
        label: of the x axis.
        marked: index of the point.
    """
    drawing = new_drawing(name, title, _course(xs, curve), PANEL_HEIGHT)
    x, y = _axes(xs, curve)
    draw_y_axis(drawing, y, LEFT, curve.name, curve.show)
    draw_x_axis(drawing, x, TOP, y.begin, label, plain)
    if curve.level is not None:
        at = y(curve.level)
        add(drawing, "path", d=f"M{LEFT},{at:.1f}H{RIGHT}", class_="limit")
        said = f"{curve.level_name}: {curve.show(curve.level)}"
        above = at - 6 if at - 6 > TOP + 6 else at + 15  # inside the plot
        middle = xs[0] + 0.4 * (xs[-1] - xs[0])
        is_left = marked is not None and xs[marked] > middle  # the marker is at the right
        side = {"x": LEFT + 6} if is_left else {"x": RIGHT, "text_anchor": "end"}
        add(drawing, "text", said, y=above, class_="value", **side)
    add(drawing, "path", d=_path(x, y, xs, curve.values), class_="mark curve")
    if marked is not None:
        _draw_marker(drawing, places(xs, curve)[marked])
    rows = [
        [plain(place), "" if value is None else curve.show(value)]
        for place, value in zip(xs, curve.values, strict=True)
    ]
    if curve.level is not None:
        rows.append([curve.level_name, curve.show(curve.level)])
    return Chart(drawing, PageTable(title, [label, curve.name], rows))


def places(xs: Sequence[float], curve: Series) -> list[tuple[float, float | None]]:
    """Where `line` draws each point. (n, 2)."""
    x, y = _axes(xs, curve)
    return [
        (round(x(place), 1), None if value is None else round(y(value), 1))
        for place, value in zip(xs, curve.values, strict=True)
    ]


def _axes(xs: Sequence[float], curve: Series) -> tuple[Axis, Axis]:
    values = [value for value in (*curve.values, curve.level) if value is not None]
    x = Axis.over(xs[0], xs[-1], LEFT, RIGHT)
    return x, Axis.over(min(values), max(values), TOP + PLOT_HEIGHT, TOP)


def _course(xs: Sequence[float], curve: Series) -> str:
    """Describe in words where a curve begins and ends."""
    known = [(x, value) for x, value in zip(xs, curve.values, strict=True) if value is not None]
    (first, begin), (last, end) = known[0], known[-1]
    return (
        f"{curve.name}: from {curve.show(begin)} at {plain(first)} "
        f"to {curve.show(end)} at {plain(last)}"
    )


def _path(x: Axis, y: Axis, xs: Sequence[float], values: Sequence[float | None]) -> str:
    """A line through the points; it has gaps where values are missing."""
    path, pen = "", "M"
    for place, value in zip(xs, values, strict=True):
        if value is None:
            pen = "M"
            continue
        path += f"{pen}{x(place):.1f},{y(value):.1f}"
        pen = "L"
    return path


def _draw_marker(drawing: Element, place: tuple[float, float | None]) -> None:
    x, y = place
    upright = f"M0,{TOP}V{TOP + PLOT_HEIGHT}"
    add(drawing, "path", d=upright, class_="marker", transform=f"translate({x} 0)")
    look = "dot absent" if y is None else "dot"
    add(drawing, "circle", cx=x, cy=y or 0, r=5, class_=look)
