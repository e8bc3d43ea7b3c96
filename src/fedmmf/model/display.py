"""HTML representation of models in notebooks."""

from typing import TYPE_CHECKING, Any

from fedmmf.reports.typed import html_table

if TYPE_CHECKING:
    from fedmmf.model.estimator import FedMMF


def html_of(model: "FedMMF") -> str:
    """Describe a model and, if it is fitted, its training data."""
    rows: dict[str, Any] = {"settings": repr(model)}
    if not model.__sklearn_is_fitted__():
        return html_table("FedMMF, not fitted", rows)
    learned = model.learned
    what = "synthetic ratings" if learned.synthetic else "ratings"
    kind = "simulated" if learned.is_simulated else "real parties"
    rows |= {
        "data": f"{learned.data}: {learned.n_ratings:,} {what}, {learned.scale}",
        "users": learned.n_users,
        "items": learned.n_items,
        "rounds": learned.rounds,
        "sums": f"{model.settings.scheme_name}, {kind}",
    }
    return html_table("FedMMF, fitted", rows)
