"""The parts that a section of the page is made of."""

from dataclasses import dataclass
from typing import Any

from fedmmf.reports.charts import Chart, KeyEntry, PageTable


@dataclass(frozen=True, eq=False)
class Slider:
    """What the reader can move along the trade-off's curves."""

    points: list[dict[str, Any]]  # each: threshold_j, a dot's place in each chart, a sentence
    start: int  # the point of this run


@dataclass(frozen=True, eq=False)
class Section:
    """A heading with sentences, charts and tables below it.

    Attributes:
        name: unique on the page; the section's id.
        title: the heading.
        sentences: paragraphs.
        points: a list below them.
        key: legend of the styles of bars.
        charts: side by side, where there is room.
        tables: below the charts.
        slider: moves the markers of the charts.
    """

    name: str
    title: str
    sentences: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    key: tuple[KeyEntry, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[PageTable, ...] = ()
    slider: Slider | None = None
