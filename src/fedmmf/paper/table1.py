"""Table 1: every model, several random splits, mean and standard deviation, beside the paper."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedmmf import __version__
from fedmmf.data import Ratings
from fedmmf.errors import CheckpointError
from fedmmf.paper.figures import paper_figure
from fedmmf.paper.hyperparameters import load_tuned
from fedmmf.paper.models import Row, run_row

COLUMNS = (
    "model", "data", "rmse_mean", "rmse_std", "mae_mean", "mae_std", "paper_rmse", "paper_mae",
    "runs", "seconds",
)  # fmt: skip
_CONTEXT_DEFAULTS = {"strength": 10.0, "rounds": 300}


@dataclass(frozen=True)
class Job:
    """One model on one split of one data set."""

    data: str
    row: Row
    seed: int
    test: float

    def path(self, folder: Path) -> Path:
        """Where the job's result is kept; the file is what makes a killed reproduction resume."""
        parts = (self.data, self.row.name, f"test-{self.test:g}", f"seed-{self.seed}.json")
        return folder / "runs" / Path(*(re.sub(r"[/:]+", "-", part) for part in parts))


def tuned_settings(job: Job) -> dict[str, Any]:
    """The stored settings of a job's model, or defaults."""
    found = load_tuned(job.data).get(job.row.name)
    return found or (_CONTEXT_DEFAULTS if job.row.kind == "context" else {})


def run_job(job: Job, ratings: Ratings, folder: Path) -> dict[str, Any]:
    """Run a job, or read its result if it has run before with the same settings."""
    path, tuned = job.path(folder), tuned_settings(job)
    if path.exists():
        stored = _read(path)
        if stored.get("tuned") == tuned and stored.get("version") == __version__:
            return stored
    train, test = ratings.split(job.test, seed=job.seed)
    result = {
        "model": job.row.name,
        "data": job.data,
        "seed": job.seed,
        "test": job.test,
        "tuned": tuned,
        "version": __version__,
        **run_row(job.row, train, test, tuned, job.seed),
    }
    _write(path, json.dumps(result, indent=2) + "\n")
    return result


def run_table(
    jobs: list[Job],
    load: Callable[[str], Ratings],
    folder: Path,
    progress: Callable[[int, Job], None] = lambda done, job: None,
) -> list[dict[str, Any]]:
    """Run all jobs, set by set; return the table's rows."""
    results: list[dict[str, Any]] = []
    for data in dict.fromkeys(job.data for job in jobs):
        ratings = load(data)
        for job in (job for job in jobs if job.data == data):
            progress(len(results), job)
            results.append(run_job(job, ratings, folder))
    return list(_rows(jobs, results))


def _rows(jobs: list[Job], results: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for data, row in dict.fromkeys((job.data, job.row) for job in jobs):
        mine = [r for r in results if r["data"] == data and r["model"] == row.name]
        rmse, mae = (np.array([r[name] for r in mine]) for name in ("rmse", "mae"))
        paper_rmse, paper_mae = paper_figure(data, row.paper_name)
        ddof = min(1, len(mine) - 1)
        yield {
            "model": row.name,
            "data": data,
            "rmse_mean": round(float(rmse.mean()), 5),
            "rmse_std": round(float(rmse.std(ddof=ddof)), 5),
            "mae_mean": round(float(mae.mean()), 5),
            "mae_std": round(float(mae.std(ddof=ddof)), 5),
            "paper_rmse": paper_rmse,
            "paper_mae": paper_mae,
            "runs": len(mine),
            "seconds": round(float(np.mean([r["seconds"] for r in mine])), 2),
        }


def to_markdown(rows: list[dict[str, Any]]) -> str:
    """The table as Markdown, one line per model and data set."""
    lines = [
        "| data | model | RMSE | MAE | paper RMSE | paper MAE | s |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        figures = [
            f"{row['rmse_mean']:.4f} ± {row['rmse_std']:.4f}",
            f"{row['mae_mean']:.4f} ± {row['mae_std']:.4f}",
            *(
                "" if row[name] is None else f"{row[name]:.4f}"
                for name in ("paper_rmse", "paper_mae")
            ),
            f"{row['seconds']:.1f}",
        ]
        lines.append(f"| {row['data']} | {row['model']} | {' | '.join(figures)} |")
    return "\n".join(lines) + "\n"


def to_csv(rows: list[dict[str, Any]]) -> str:
    """The table as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_table(rows: list[dict[str, Any]], folder: Path) -> None:
    """Write the table as Markdown, CSV and JSON."""
    _write(folder / "table1.md", to_markdown(rows))
    _write(folder / "table1.csv", to_csv(rows))
    _write(folder / "table1.json", json.dumps({"rows": rows}, indent=2) + "\n")


def _read(path: Path) -> dict[str, Any]:
    try:
        stored: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}. Delete it.") from None
    return stored


def _write(path: Path, text: str) -> None:
    """Write whole or not at all."""
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text)
        part.replace(path)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {error.strerror}") from None
