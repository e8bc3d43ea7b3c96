"""Check that ratings can be used for training or testing."""

from typing import Any

from fedmmf.data import Ratings
from fedmmf.data.adapters import ratings_of
from fedmmf.data.scales import RatingScale
from fedmmf.errors import DataError, SettingsError
from fedmmf.model.learned import Learned
from fedmmf.settings import Settings
from fedmmf.solvers.vb.shapes import MAX_VB_COLUMNS


def test_of(learned: Learned, given: Any) -> Ratings:
    """Convert test ratings from any supported type; implicit feedback cannot test predictions."""
    test = ratings_of(given)
    if learned.is_implicit:
        return test.as_implicit()
    if test.is_implicit and learned.objective == "rating":
        raise DataError(
            f"this model predicts ratings, and {test.name!r} has none to compare with; give a "
            "column rating"
        )
    return test


def _require_usual(scale: RatingScale, settings: Settings) -> None:
    """Refuse scales and values for which the solver's numbers have no room, or no meaning."""
    value, least = settings.unrated_value, scale.min - scale.span
    if value != "auto" and not least <= value <= scale.max:
        raise SettingsError(
            f"unrated_value is a low rating, between {least:g} and {scale.max:g} on the scale "
            f"{scale}; got {value:g}"
        )
    least, most = settings.chosen_solver.spans
    if not least <= scale.span <= most:
        raise SettingsError(
            f"solver {settings.solver!r} needs ratings with a span between {least:g} and {most:g}; "
            f"{scale} has {scale.span:g}. Divide the ratings, or use solver 'sgd'"
        )


def require_ratings(ratings: Ratings, settings: Settings) -> None:
    """Refuse to predict what nobody has said, and levels that are none."""
    if ratings.is_implicit and settings.objective == "rating":
        raise SettingsError(
            f"{ratings.name!r} has no ratings to predict, only what was chosen; rank instead: "
            "objective 'ranking', mask 'none'",
            flags="--objective ranking --mask none",
        )
    _require_usual(ratings.scale, settings)
    if settings.likelihood == "ordinal" and ratings.scale.n_levels > MAX_VB_COLUMNS:
        raise SettingsError(
            f"likelihood 'ordinal' needs a scale of {MAX_VB_COLUMNS:,} levels at most; "
            f"{ratings.scale} has {ratings.scale.n_levels:,}"
        )
