"""The results that a report shows, and how they are read from the JSON of commands."""

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmmf.errors import DataError
from fedmmf.reports.list_scores import RecommendedList
from fedmmf.reports.results import AuditResult, DemoResult, TrainResult

Reported = TrainResult | DemoResult | AuditResult
PARTS: dict[str, type[TrainResult | AuditResult]] = {"train": TrainResult, "audit": AuditResult}
EXPECTED = "what `fedmmf train --json`, `demo --json` or `audit --json` printed"


@dataclass(frozen=True)
class Run:
    """Everything that one report is about."""

    trained: tuple[TrainResult, ...] = ()
    recommended: RecommendedList | None = None
    audit: AuditResult | None = None

    @classmethod
    def of(cls, *results: Reported) -> "Run":
        """Join results on one page: trainings are compared, an audit stands beside the best.

        Raises:
            DataError: there is no result, or more than one audit.
        """
        demos = [result for result in results if isinstance(result, DemoResult)]
        audits = [result for result in results if isinstance(result, AuditResult)]
        trained = [result for result in results if isinstance(result, TrainResult)]
        trained += [run for demo in demos for run in demo.runs]
        if len(audits) > 1 or not trained + audits:
            raise DataError(
                "a report is about at least one result, and one audit at most; "
                f"got {len(results)}, {len(audits)} of them audits"
            )
        lists = [demo.recommended for demo in demos if demo.recommended is not None]
        return cls(tuple(trained), lists[0] if lists else None, audits[0] if audits else None)

    @property
    def best(self) -> TrainResult | None:
        """The training with the best lists, where all made some, or else with the least RMSE.

        The first where none was tested.
        """
        makes_lists = all(train.ndcg is not None for train in self.trained)
        return min(self.trained, key=_lists if makes_lists else _error, default=None)

    @property
    def subject(self) -> TrainResult | AuditResult:
        """Whose settings and protection the page describes."""
        found = self.best or self.audit
        if found is None:
            raise DataError("a report is about at least one result; make one with Run.of")
        return found


def _lists(train: TrainResult) -> float:
    return -(train.ndcg or 0.0)


def _error(train: TrainResult) -> float:
    return math.inf if train.rmse is None else train.rmse


def read_run(path: Path) -> Run:
    """Read a run from a JSON file, from standard input (`-`), or from a folder.

    A folder holds `train.json`, `audit.json` or both.

    Raises:
        DataError: nothing is there, or it is not what the commands print.
    """
    if str(path) == "-":
        return _understood(_parsed(_typed_in(), "standard input"), "standard input")
    if not path.is_dir():
        return _understood(_parsed(_text(path), str(path)), str(path))
    found = [
        _typed(PARTS[file.stem], _parsed(_text(file), str(file)), str(file))
        for file in files_of(path)
        if file.is_file()
    ]
    if not found:
        raise DataError(f"{path} must hold train.json or audit.json, or both; it has neither")
    return Run.of(*found)


def files_of(path: Path) -> list[Path]:
    """The files that `read_run` reads, whether they are there or not."""
    return [path / f"{part}.json" for part in PARTS] if path.is_dir() else [path]


def as_run(given: Run | Reported | Mapping[str, Any]) -> Run:
    """Convert what a report was asked to show, in any supported form, to a `Run`.

    Raises:
        DataError: the keys fit no kind of result, or a value is not what its key promises.
    """
    if isinstance(given, Run):
        return given
    return _understood(given, "the run") if isinstance(given, Mapping) else Run.of(given)


def _understood(run: Mapping[str, Any], source: str) -> Run:
    """A run from its JSON; its kind is found from its keys."""
    if "runs" in run:
        return Run.of(_typed(DemoResult, run, source))
    if "groups" in run:
        return Run.of(_typed(AuditResult, run, source))
    if {"settings", "privacy"} <= run.keys():
        return Run.of(_typed(TrainResult, run, source))
    if run and run.keys() <= PARTS.keys():
        return Run.of(*(_typed(PARTS[part], run[part], f"{source}, {part}") for part in run))
    keys = ", ".join(list(run)[:8]) or "none"
    raise DataError(f"{source} must be {EXPECTED}; its keys are {keys}")


def _typed(kind: type[Reported], values: Mapping[str, Any], source: str) -> Reported:
    try:
        return kind.from_json_dict(values)
    except DataError as error:
        raise DataError(f"{source}, {error}; a report is made of {EXPECTED}, unchanged") from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"cannot read {path}: {error}; it must be a JSON file: {EXPECTED}"
        ) from None


def _typed_in() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise DataError(f"standard input is no text ({error}); it must be {EXPECTED}") from None


def _parsed(text: str, source: str) -> dict[str, Any]:
    try:
        run = json.loads(text)
        json.dumps(run, ensure_ascii=False).encode()  # half a character cannot be in a page
    except (ValueError, RecursionError) as error:
        raise DataError(f"{source} is not JSON ({error}); it must be {EXPECTED}") from None
    if not isinstance(run, dict):
        raise DataError(f"{source} must hold one JSON object; got {type(run).__name__}")
    return run
