"""Table 1: every model, several random splits, mean and standard deviation, beside the paper."""

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedmmf import __version__
from fedmmf.data import Ratings
from fedmmf.errors import SettingsError
from fedmmf_experiments.paired import PairedDifference, paired_difference
from fedmmf_experiments.paper.drawing import Columns, markdown
from fedmmf_experiments.paper.hyperparameters import load_tuned
from fedmmf_experiments.paper.models import Row, SplitScores, run_row
from fedmmf_experiments.result_cache import ResultCache, write_text

PAPER_SETS = ("ml-100k", "ml-10m", "lastfm")
# What the paper prints: (RMSE, MAE) of each model on these sets.
PAPER = {
    "FedMF": ((0.9491, 0.7412), (0.7753, 0.5827), (1.2235, 0.8780)),
    "LocalLR": ((1.0107, 0.8040), (0.8818, 0.6766), (1.1081, 0.8163)),
    "FedLR": ((1.0796, 0.8844), (0.9703, 0.7497), (1.5448, 1.3538)),
    "One-order FedMMF": ((0.9340, 0.7340), (0.7695, 0.5808), (1.0886, 0.8066)),
    "LocalFM": ((1.0083, 0.8054), (0.8938, 0.6862), (1.0845, 0.7988)),
    "FedFM": ((1.0628, 0.8644), (0.9639, 0.7445), (1.5301, 1.3369)),
    "Two-order FedMMF": ((0.9218, 0.7250), (0.7720, 0.5827), (1.0842, 0.7964)),
    "LocalNN": ((1.0114, 0.8087), (0.8819, 0.6816), (1.1007, 0.8007)),
    "FedNN": ((1.0945, 0.9176), (0.9756, 0.7689), (1.5461, 1.3598)),
    "High-order FedMMF": ((0.9319, 0.7317), (0.7648, 0.5772), (1.0860, 0.7933)),
}


def paper_figure(data: str, model: str | None) -> tuple[float, float] | tuple[None, None]:
    """The paper's (RMSE, MAE), or nothing where it has none."""
    if model not in PAPER or data not in PAPER_SETS:
        return None, None
    return PAPER[model][PAPER_SETS.index(data)]


@dataclass(frozen=True)
class Job:
    """One model on one split of one data set."""

    data: str
    row: Row
    seed: int
    test: float

    @property
    def key(self) -> tuple[str, ...]:
        """What its result is kept under."""
        return (self.data, self.row.name, f"test-{self.test:g}", f"seed-{self.seed}")


@dataclass(frozen=True)
class TableRow:
    """A model on a data set: mean and standard deviation over its runs, beside the paper."""

    model: str
    data: str
    rmse_mean: float
    rmse_std: float
    mae_mean: float
    mae_std: float
    paper_rmse: float | None
    paper_mae: float | None
    runs: int
    seconds: float
    over_fedmf: PairedDifference | None = None  # RMSE less that of FedMF with the same solver

    @classmethod
    def of(cls, data: str, row: Row, scores: list[SplitScores]) -> "TableRow":
        """Sum up the runs of a model."""
        rmse, mae = [one.rmse for one in scores], [one.mae for one in scores]
        paper_rmse, paper_mae = paper_figure(data, row.paper_name)
        return cls(
            model=row.name,
            data=data,
            rmse_mean=round(float(np.mean(rmse)), 5),
            rmse_std=round(_deviation(rmse), 5),
            mae_mean=round(float(np.mean(mae)), 5),
            mae_std=round(_deviation(mae), 5),
            paper_rmse=paper_rmse,
            paper_mae=paper_mae,
            runs=len(scores),
            seconds=round(float(np.mean([one.seconds for one in scores])), 2),
        )


def _deviation(values: list[float]) -> float:
    """Standard deviation of a sample; 0 for a single value."""
    return float(np.std(values, ddof=min(1, len(values) - 1)))


def run_job(job: Job, ratings: Ratings, cache: ResultCache) -> SplitScores:
    """Run a job, or read its result if it has run before with the same settings."""
    tuned = load_tuned(job.data).get(job.row.name, {})
    facts = {"tuned": tuned, "version": __version__, "ratings": ratings.fingerprint}
    return SplitScores(**cache.once(job.key, facts, lambda: asdict(_scores(job, ratings, tuned))))


def _scores(job: Job, ratings: Ratings, tuned: dict[str, Any]) -> SplitScores:
    train, test = ratings.split(job.test, seed=job.seed)
    return run_row(job.row, train, test, tuned, job.seed)


def run_table(
    jobs: list[Job],
    load: Callable[[str], Ratings],
    cache: ResultCache,
    progress: Callable[[int, Job], None] = lambda done, job: None,
) -> list[TableRow]:
    """Run all jobs that suit their set, set by set; return the table's rows."""
    scores: dict[Job, SplitScores] = {}
    for data in dict.fromkeys(job.data for job in jobs):
        ratings = load(data)
        for job in (job for job in jobs if job.data == data and job.row.suits(ratings)):
            progress(len(scores), job)
            scores[job] = run_job(job, ratings, cache)
    if not scores:
        raise SettingsError("none of these models suits its data set: there are no user profiles")
    return _rows_of(scores)


def _rows_of(scores: Mapping[Job, SplitScores]) -> list[TableRow]:
    """Means, and differences from FedMF where it ran on the same splits."""
    runs: dict[tuple[str, str], list[Job]] = {}
    for job in scores:
        runs.setdefault((job.data, job.row.name), []).append(job)
    rows = []
    for (data, _), jobs in runs.items():
        row = TableRow.of(data, jobs[0].row, [scores[job] for job in jobs])
        beside = runs.get((data, reference_of(jobs[0].row)), jobs)
        if beside != jobs:
            ours, theirs = ([scores[job].rmse for job in some] for some in (jobs, beside))
            row = replace(row, over_fedmf=paired_difference(ours, theirs, jobs[0].test))
        rows.append(row)
    return rows


def reference_of(row: Row) -> str:
    """Return the model that a model's errors are compared with."""
    return "FedMF (vb)" if row.solver == "vb" else "FedMF"


def _or_blank(value: object, form: str = "") -> str:
    return "" if value is None else format(value, form)


COLUMNS: Columns = {
    "data": lambda row: row.data,
    "model": lambda row: row.model,
    "RMSE": lambda row: f"{row.rmse_mean:.4f} ± {row.rmse_std:.4f}",
    "MAE": lambda row: f"{row.mae_mean:.4f} ± {row.mae_std:.4f}",
    "paper RMSE": lambda row: _or_blank(row.paper_rmse, ".4f"),
    "paper MAE": lambda row: _or_blank(row.paper_mae, ".4f"),
    "less FedMF": lambda row: _or_blank(row.over_fedmf),
    "s": lambda row: f"{row.seconds:.1f}",
}
to_markdown = partial(markdown, COLUMNS)


def to_csv(rows: list[TableRow]) -> str:
    """Write the table's rows as CSV."""
    text = io.StringIO()
    columns = [field.name for field in fields(TableRow)]
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({**asdict(row), "over_fedmf": row.over_fedmf or ""} for row in rows)
    return text.getvalue()


def write_table(rows: list[TableRow], folder: Path) -> None:
    """Write the table as Markdown, CSV and JSON."""
    write_text(folder / "table1.md", to_markdown(rows))
    write_text(folder / "table1.csv", to_csv(rows))
    write_text(
        folder / "table1.json", json.dumps({"rows": list(map(asdict, rows))}, indent=2) + "\n"
    )
