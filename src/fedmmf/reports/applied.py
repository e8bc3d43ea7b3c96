"""Which settings affected a run; the page lists only those."""

from typing import Any

from fedmmf.reports.results import AuditResult, TrainResult
from fedmmf.settings.groups import Scope, in_use, marked


def applied(result: TrainResult | AuditResult) -> dict[str, Any]:
    """Return the settings that affected a run, in order; an unknown one is included."""
    found = in_use(result.settings)
    if isinstance(result, AuditResult):
        always, never = marked(Scope.ALWAYS_AUDITED), marked(Scope.NOT_AUDITED)
        found = {
            name: value
            for name, value in result.settings.items()
            if name in always or (name in found and name not in never)
        }
    if not result.simulated:
        found.pop("engine", None)  # real parties work for themselves
    return found
