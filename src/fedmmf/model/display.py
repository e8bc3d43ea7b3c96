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
    learned, kind = model.learned, "synthetic ratings" if model.learned.synthetic else "ratings"
    rows |= {
        "data": f"{learned.data}: {learned.n_ratings:,} {kind}, {learned.scale}",
        "users": learned.n_users,
        "items": learned.n_items,
        "rounds": learned.rounds,
        "sums": f"{model.settings.sums}, {'simulated' if learned.is_simulated else 'real parties'}",
    }
    return html_table("FedMMF, fitted", rows)
