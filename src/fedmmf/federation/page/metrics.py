"""The status for monitoring: Prometheus' text format, version 0.0.4."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from fedmmf.federation.status import FederationStatus, State

KIND = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "fedmmf_"

Sample = tuple[dict[str, str], float | None]


@dataclass(frozen=True)
class Metric:
    """A name, what it means, and its samples; samples without a value are left out."""

    name: str
    type: Literal["gauge", "counter"]
    meaning: str
    samples: tuple[Sample, ...]

    def lines(self) -> Iterator[str]:
        """The lines of its text; none without a value."""
        known = [(labels, value) for labels, value in self.samples if value is not None]
        if not known:
            return
        name = PREFIX + self.name
        yield f"# HELP {name} {self.meaning}"
        yield f"# TYPE {name} {self.type}"
        for labels, value in known:
            yield f"{name}{_labelled(labels)} {_number(value)}"


def metrics(status: FederationStatus) -> str:
    """Write every number of a status as a metric."""
    families = (*_of_run(status), *_of_quality(status), *_of_sites(status))
    return "".join(f"{line}\n" for family in families for line in family.lines())


def _alone(value: float | None) -> tuple[Sample, ...]:
    return (({}, value),)


def _of_run(status: FederationStatus) -> tuple[Metric, ...]:
    about = {"federation": status.federation, "version": status.version}
    states = tuple(({"state": name}, float(name == status.state)) for name in get_args(State))
    return (
        Metric("info", "gauge", "The federation and the version of its server.", ((about, 1),)),
        Metric("state", "gauge", "1 for what the server is doing, 0 for the rest.", states),
        Metric("round", "gauge", "Rounds that are finished.", _alone(status.round)),
        Metric("rounds", "gauge", "Rounds that are wanted.", _alone(status.rounds)),
        Metric("attempts_total", "counter", "Rounds that were begun.", _alone(status.attempts)),
        Metric("seconds_per_round", "gauge", "The median round.", _alone(status.seconds_per_round)),
        Metric("seconds_left", "gauge", "Until the last round.", _alone(status.seconds_left)),
        Metric(
            "smallest_cohort",
            "gauge",
            "Parties below which no sum is made.",
            _alone(status.smallest_cohort),
        ),
        Metric(
            "updated_timestamp_seconds",
            "gauge",
            "When the picture was taken.",
            _alone(_moment(status.updated)),
        ),
    )


def _of_quality(status: FederationStatus) -> tuple[Metric, ...]:
    held_out = next((error for error in reversed(status.held_out) if error is not None), None)
    done = status.evaluation
    rmse, mae, count = (done.rmse, done.mae, done.n_ratings) if done else (None, None, None)
    return (
        Metric("held_out_rmse", "gauge", "The latest on held-out ratings.", _alone(held_out)),
        Metric("evaluation_rmse", "gauge", "On the sites' own test ratings.", _alone(rmse)),
        Metric("evaluation_mae", "gauge", "On the sites' own test ratings.", _alone(mae)),
        Metric("evaluation_ratings", "gauge", "Test ratings of the sites.", _alone(count)),
    )


def _of_sites(status: FederationStatus) -> tuple[Metric, ...]:
    def each(name: str) -> tuple[Sample, ...]:
        return tuple(({"site": site.name}, getattr(site, name)) for site in status.sites)

    here = tuple(({"site": site.name}, float(site.state == "here")) for site in status.sites)
    return (
        Metric("site_here", "gauge", "1 for a site that is connected and may take part.", here),
        Metric("site_parties", "gauge", "Parties behind a site.", each("parties")),
        Metric("site_users", "gauge", "Users behind a site, as it says.", each("users")),
        Metric("site_rounds_total", "counter", "Rounds with a site's part.", each("rounds")),
        Metric("site_drop_outs_total", "counter", "Rounds that a site left.", each("drop_outs")),
        Metric("site_received_bytes_total", "counter", "Received from a site.", each("up_bytes")),
        Metric("site_sent_bytes_total", "counter", "Sent to a site.", each("down_bytes")),
    )


def _labelled(labels: dict[str, str]) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isfinite(value):
        return str(int(value)) if value == int(value) else repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _moment(when: str) -> float | None:
    try:
        return datetime.fromisoformat(when).timestamp()
    except ValueError:
        return None
