"""Puts the sections into one HTML file that asks the network for nothing."""

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmmf.errors import DataError
from fedmmf.reports import lead, words
from fedmmf.reports.charts import Section
from fedmmf.reports.reading import Reported, Run, as_run
from fedmmf.reports.sections import all_sections

if TYPE_CHECKING:
    from jinja2 import Environment


def write_report(result: Run | Reported | Mapping[str, Any], path: Path) -> list[str]:
    """Write a report to a file, which is replaced if it is there.

    Args:
        result: of a training, a demo or an audit; several, joined by `Run.of`; what `read_run`
            gives; or the JSON of a result, as a dict.
        path: the HTML file.

    Returns:
        The names of the sections written.

    Raises:
        DataError: the result is none of these, or the file cannot be written.
    """
    run = as_run(result)
    sections = all_sections(run)
    page = _rendered(run, sections)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot write {path}: {error}; choose another file") from None
    return [section.name for section in sections]


def _rendered(run: Run, sections: list[Section]) -> str:
    styles, script = _text("page.css"), _text("slider.js")
    template = _environment().get_template("page.html")
    return template.render(
        title=f"fedmmf report: {run.subject.data or 'audit'}",
        kinds=lead.kinds(run),
        verdict=lead.verdict(run),
        decided=lead.for_deciders(run),
        tiles=lead.tiles(run),
        notes=_notes(run),
        sections=sections,
        origins=lead.origins(run),
        written=lead.written(),
        styles=styles,
        script=script,
        policy=_policy(styles, script),
    )


@cache
def _environment() -> "Environment":
    """Templates of this package, which escape every value."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # no other command waits for it

    return Environment(
        loader=PackageLoader("fedmmf.reports", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _text(name: str) -> str:
    return resources.files("fedmmf.reports").joinpath(name).read_text(encoding="utf-8")


def _policy(styles: str, script: str) -> str:
    """A content security policy that lets our own style and script run, and nothing else."""
    style_hash, script_hash = (
        b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (styles, script)
    )
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{style_hash}'; "
        f"script-src 'sha256-{script_hash}'"
    )


def _notes(run: Run) -> list[str]:
    """Notes that a reader must see before any figure."""
    results = [result for result in (run.best, run.audit) if result is not None]
    kinds = dict.fromkeys(words.of_kind(result) for result in results)
    synthetic = [words.SYNTHETIC] if run.subject.synthetic else []
    return [*kinds, *synthetic]
