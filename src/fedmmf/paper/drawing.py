"""Figures for paper and screen, without a display."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure


def new_figure(n_panels: int = 1) -> tuple[Any, Any]:
    """A figure with panels side by side."""
    figure = Figure(figsize=(5.5 * n_panels, 4.2), layout="constrained")
    panels = figure.subplots(1, n_panels)
    return figure, panels


def save_figure(figure: Any, path: Path) -> None:
    """Write PNG and SVG; the suffixes are added."""
    figure.savefig(path.with_name(f"{path.name}.png"), dpi=150)
    figure.savefig(path.with_name(f"{path.name}.svg"))
