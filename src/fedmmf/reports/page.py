"""Puts the sections into one HTML file that asks the network for nothing."""

import hashlib
from base64 import b64encode
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmmf.errors import DataError
from fedmmf.reports import words
from fedmmf.reports.reading import understood
from fedmmf.reports.sections import all_sections
from fedmmf.reports.shapes import Run
from fedmmf.reports.svg import percent, plain

if TYPE_CHECKING:
    from jinja2 import Environment


def write_report(run: dict[str, Any], path: Path) -> list[str]:
    """Write a report to a file, which is replaced if it is there.

    Args:
        run: what `read_run` gives, or what `train`, `demo` or `audit` print as JSON.
        path: the HTML file.

    Returns:
        The names of the sections written.

    Raises:
        DataError: the run is none of these, or the file cannot be written.
    """
    known = understood(run)
    sections = all_sections(known)
    styles, script = _text("page.css"), _text("slider.js")
    page = (
        _environment()
        .get_template("page.html")
        .render(
            title=_title(known),
            synthetic=words.SYNTHETIC if _is_synthetic(known) else "",
            figures=_figures(known),
            sections=sections,
            styles=styles,
            script=script,
            policy=_policy(styles, script),
        )
    )
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot write {path}: {error}; choose another file with --out") from None
    return [section.name for section in sections]


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


def _title(run: Run) -> str:
    source = run.best or run.audit
    name = source.data if source and source.data else "audit"
    return f"fedmmf report: {name}"


def _is_synthetic(run: Run) -> bool:
    source = run.best or run.audit
    return bool(source and source.synthetic)


def _figures(run: Run) -> dict[str, str]:
    """The few figures that a reader looks for first."""
    best = run.best
    if best is None:
        return {}
    found = {}
    if best.rmse is not None:
        found["RMSE on test ratings"] = f"{best.rmse:.4f}"
    if best.n_ratings is not None:
        found["ratings"] = f"{best.n_ratings:,}"
    if best.n_users is not None:
        found["users"] = f"{best.n_users:,}"
    secure = best.privacy.secure_users / max(best.privacy.n_users, 1)
    found[f"users with J <= {plain(best.privacy.threshold_j)}"] = percent(secure)
    if best.traffic is not None:
        found["kB up, per user and round"] = plain(best.traffic.up_bytes_per_user_round / 1e3)
    if "sharing" in best.settings:
        found["sharing"] = str(best.settings["sharing"])
    return found
