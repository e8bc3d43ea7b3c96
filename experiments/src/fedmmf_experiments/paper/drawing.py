"""Results of an experiment as data, table and pictures, drawn without a display."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


Columns = Mapping[str, Callable[[Any], str]]  # title -> how a row shows it


def markdown(columns: Columns, rows: Iterable[Any]) -> str:
    """Write a Markdown table with one line per row."""
    shown = ([show(row) for show in columns.values()] for row in rows)
    head, *lines = [f"| {' | '.join(line)} |" for line in (list(columns), *shown)]
    return "\n".join((head, "|---" * len(columns) + "|", *lines)) + "\n"


def new_figure(n_panels: int = 1) -> tuple[Any, Any]:
    """A figure with panels side by side."""
    from matplotlib.figure import Figure  # half a second that other commands need not wait

    figure = Figure(figsize=(5.5 * n_panels, 4.2), layout="constrained")
    panels = figure.subplots(1, n_panels)
    return figure, panels


def write_results(
    out: Path, name: str, report: "DataclassInstance", markdown: str, figures: Mapping[str, Any]
) -> None:
    """Write NAME.json and NAME.md, and each figure, by its name, as PNG and SVG."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(asdict(report), indent=2) + "\n")
    (out / f"{name}.md").write_text(markdown)
    for title, figure in figures.items():
        figure.savefig(out / f"{title}.png", dpi=150)
        figure.savefig(out / f"{title}.svg", metadata={"Date": None})  # the same every time
