"""The status as an HTML page, rendered by the server, so that it is readable without scripts."""

import math
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, TypeGuard

from fedmmf.federation.page import words
from fedmmf.federation.status import FederationStatus, SiteStatus
from fedmmf.reports.charts import Chart, Series, line

if TYPE_CHECKING:
    from jinja2 import Environment

PACKAGE = "fedmmf.federation.page"
SHOWN_AT_ONCE = 6  # incidents; the others can be unfolded
ROWS_OF_ERRORS = 20
MIN_ATTEMPTS = 4  # that the drawing has room for


def page(status: FederationStatus) -> str:
    """Render the status page as HTML."""
    return _environment().get_template("page.html").render(_shown(status))


@cache
def file(name: str) -> bytes:
    """Return a static file, which is the same for every federation."""
    return resources.files(PACKAGE).joinpath(name).read_bytes()


@cache
def _environment() -> "Environment":
    """Templates of this package, which escape every value."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # only pages wait for it

    return Environment(
        loader=PackageLoader(PACKAGE, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _shown(status: FederationStatus) -> dict[str, Any]:
    """Return the values that the template shows, in words."""
    return {
        "status": status,
        "title": _title(status),
        "figures": _figures(status),
        "sites": [_site(site, status.updated) for site in status.sites],
        "incidents": [
            {"line": line, "at": words.moment(line.at, status.updated)} for line in status.incidents
        ],
        "shown_at_once": SHOWN_AT_ONCE,
        "settings": list(words.flat(status.settings)),
        "as_of": words.moment(status.updated, status.updated),
        "started": words.moment(status.started, status.updated),
        "error": words.error,
        **_accuracy(status),
    }


def _title(status: FederationStatus) -> str:
    """Return the page's title: the state first, since browser tabs cut off the end."""
    done = f" {status.round}/{status.rounds}" if status.state == "training" else ""
    return f"{status.state.capitalize()}{done}: {status.federation}"


def _figures(status: FederationStatus) -> list[tuple[str, str, str]]:
    """Name, value and a remark for each of the few figures that come first."""
    here = [site for site in status.sites if site.state == "here"]
    pace = status.seconds_per_round
    cohort = f"sums need {status.smallest_cohort} parties" if status.smallest_cohort else ""
    users, parties = sum(site.users for site in here), sum(site.parties for site in here)
    done = f"{status.round} of {status.rounds}" if status.rounds else str(status.round)
    return [
        ("Rounds finished", done, f"{status.attempts} begun"),
        ("Time left", words.time_left(status), f"{words.duration(pace)} a round" if pace else ""),
        ("Sites here", f"{len(here)} of {len(status.sites)}", cohort),
        ("Users behind them", f"{users:,}", f"in {parties:,} parties"),
    ]


def _site(site: SiteStatus, today: str) -> dict[str, Any]:
    return {
        "name": site.name,
        "state": site.state,
        "look": site.state.replace(" ", "-"),
        "cells": [
            ("Version", site.version or "not known"),
            ("Users", f"{site.users:,}"),
            ("Parties", f"{site.parties:,}"),
            ("Rounds", f"{site.rounds:,}"),
            ("Drop-outs", f"{site.drop_outs:,}"),
            ("Up", words.size(site.up_bytes)),
            ("Down", words.size(site.down_bytes)),
            ("Last seen", words.moment(site.seen, today) if site.seen else "never"),
        ],
        "trouble": site.trouble,
    }


def _accuracy(status: FederationStatus) -> dict[str, Any]:
    points = [(n, e) for n, e in enumerate(status.held_out, start=1) if _is_number(e)]
    if not points:
        silence = words.NOBODY_HELD_OUT if status.held_out else words.NO_ROUND_YET
        return {"drawing": "", "errors": [], "no_errors": silence}
    return {
        "drawing": _drawn(dict(points), len(status.held_out)),
        "errors": [(number, words.error(value)) for number, value in points[-ROWS_OF_ERRORS:]],
        "no_errors": "",
    }


def _drawn(errors: Mapping[int, float], n_attempts: int) -> Chart:
    """The error by attempt as a curve with gaps, whose latest point is marked."""
    attempts = range(max(n_attempts, MIN_ATTEMPTS) + 1)  # from 0, so that ticks are whole numbers
    curve = Series("RMSE", [errors.get(number) for number in attempts], words.error)
    title = "RMSE on held-out ratings by round"
    return line("error", title, attempts, curve, "rounds begun", marked=max(errors))


def _is_number(error: float | None) -> TypeGuard[float]:
    return error is not None and math.isfinite(error)
