"""The status for monitoring, as metric families of Prometheus."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import get_args

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily as Counter
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.registry import Collector

from fedmmf.federation.status import FederationStatus, SiteStatus, State

Number = float | None  # None: not known
Kind = type[Gauge] | type[Counter]


def _seconds(when: str) -> Number:
    """A time of a status as seconds since 1970."""
    try:
        return datetime.fromisoformat(when).timestamp()
    except ValueError:
        return None


def _last_known(errors: Iterable[Number]) -> Number:
    return next((error for error in reversed(tuple(errors)) if error is not None), None)


# Name without `fedmmf_`, what it means, and its value. Prometheus calls counters `_total`.
_OF_RUN: tuple[tuple[Kind, str, str, Callable[[FederationStatus], Number]], ...] = (
    (Counter, "finished_rounds", "Rounds that gave a sum.", lambda s: s.round),
    (Counter, "begun_rounds", "Rounds that were begun, with a sum or not.", lambda s: s.attempts),
    (Gauge, "planned_rounds", "Rounds of the whole training.", lambda s: s.rounds),
    (Gauge, "round_duration_seconds", "Median of recent rounds.", lambda s: s.seconds_per_round),
    (Gauge, "remaining_seconds", "Time to the last round, about.", lambda s: s.seconds_left),
    (Gauge, "smallest_cohort_parties", "Fewest parties of a sum.", lambda s: s.smallest_cohort),
    (Counter, "incidents", "All that went wrong, also repeatedly.", lambda s: s.n_incidents),
    (Gauge, "start_timestamp_seconds", "Start of the server.", lambda s: _seconds(s.started)),
    (Gauge, "status_timestamp_seconds", "Last change of status.", lambda s: _seconds(s.updated)),
    (Gauge, "held_out_rmse", "Latest on held-out ratings.", lambda s: _last_known(s.held_out)),
    (Gauge, "evaluation_rmse", "On the sites' own test ratings.",
     lambda s: s.evaluation.rmse if s.evaluation else None),
    (Gauge, "evaluation_mae", "On the sites' own test ratings.",
     lambda s: s.evaluation.mae if s.evaluation else None),
    (Gauge, "evaluation_ratings", "Test ratings of the sites.",
     lambda s: s.evaluation.n_ratings if s.evaluation else None),
)  # fmt: skip
_OF_SITE: tuple[tuple[Kind, str, str, Callable[[SiteStatus], Number]], ...] = (
    (Gauge, "here", "1 for a site that is connected and let in.", lambda s: s.state == "here"),
    (Gauge, "parties", "Parties behind a site.", lambda s: s.parties),
    (Gauge, "users", "Users behind a site, as it says.", lambda s: s.users),
    (Counter, "rounds", "Rounds whose sum has something of a site.", lambda s: s.rounds),
    (Counter, "drop_outs", "Rounds that a site began and left.", lambda s: s.drop_outs),
    (Counter, "received_bytes", "Bytes received from a site.", lambda s: s.up_bytes),
    (Counter, "sent_bytes", "Bytes sent to a site.", lambda s: s.down_bytes),
    (Gauge, "seen_timestamp_seconds", "Last sign of life.", lambda s: _seconds(s.seen)),
    (Gauge, "awaited_timestamp_seconds", "Since when an answer of a site is waited for.",
     lambda s: _seconds(s.awaited)),
)  # fmt: skip


class StatusCollector(Collector):
    """Every number of a status as a metric; what is not known is left out."""

    def __init__(self, status: FederationStatus) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield the families that have a value."""
        return (family for family in self._families() if family.samples)

    def _families(self) -> Iterator[Metric]:
        status = self._status
        about = Gauge("fedmmf_info", "The federation.", labels=["federation", "version"])
        about.add_metric([status.federation, status.version], 1)
        yield about
        states = Gauge("fedmmf_state", "1 for what the server is doing.", labels=["state"])
        for name in get_args(State):
            states.add_metric([name], name == status.state)
        yield states
        for kind, name, meaning, value_of in _OF_RUN:
            family = kind(f"fedmmf_{name}", meaning, labels=[])
            _add(family, [], value_of(status))
            yield family
        yield from self._site_families()

    def _site_families(self) -> Iterator[Metric]:
        about = Gauge("fedmmf_site_info", "Version of a site.", labels=["site", "version"])
        for site in self._status.sites:
            _add(about, [site.name, site.version], 1 if site.version else None)
        yield about
        for kind, name, meaning, value_of in _OF_SITE:
            family = kind(f"fedmmf_site_{name}", meaning, labels=["site"])
            for site in self._status.sites:
                _add(family, [site.name], value_of(site))
            yield family


def _add(family: Gauge | Counter, labels: list[str], value: Number) -> None:
    if value is not None:
        family.add_metric(labels, value)
