"""Item features and user profiles as numbers: one row per item code, or per user code.

Features are public. A profile, such as age, gender and occupation, is private: in a federation it
stays with its user, as the ratings do. Inside one party it is a constant, so no mask uses it;
models that all users share may.
"""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from fedmmf import rng
from fedmmf.arrays import Array
from fedmmf.data.attributes import Attributes, centred, frame_of
from fedmmf.data.frames import Table, column_of
from fedmmf.data.names import title_columns
from fedmmf.errors import SettingsError

if TYPE_CHECKING:
    from fedmmf.data.ratings import Ratings

# scipy is imported where it is used: that takes a while, and cached sets do not need it.

ROW_ENERGY = 1.6  # MovieLens genres and years have it as they are
MIN_HOLDERS = 5  # of a value of a profile
_TAG_COMPONENTS = 20
_YEAR_KNOTS = 4
_YEAR_DEGREE = 2
_MIN_ROWS = 20  # of a column of text that is another one in each; in fewer it may be by chance

log = logging.getLogger("fedmmf.data")


class ItemFeatures(Attributes):
    """Named feature columns, finite and read-only.

    Attributes:
        names: One distinct name per column.
        values: (n_items, n_features) float32; row i belongs to item code i.
    """

    kind: ClassVar[str] = "item"
    title: ClassVar[str] = "Features"
    remedy: ClassVar[tuple[str, str]] = (
        "Or drop it: name the columns to use, feature_columns=[...].",
        "--feature-columns NAME,NAME",
    )

    @classmethod
    def labels(cls, columns: Sequence[str]) -> list[str]:
        """Columns that have titles, the likeliest first."""
        return title_columns(columns)

    @classmethod
    def genres(cls, lists: Sequence[Iterable[str]], prefix: str = "genre") -> Self:
        """Return one column per genre that occurs in any item's list."""
        sets = [set(labels) for labels in lists]
        known = sorted(set().union(*sets))
        column = {label: at for at, label in enumerate(known)}
        values = np.zeros((len(sets), len(known)))  # (n_items, n_genres)
        for row, labels in enumerate(sets):
            values[row, [column[label] for label in labels]] = 1.0
        return cls(tuple(f"{prefix}={label}" for label in known), centred(values))

    @classmethod
    def release_years(cls, years: Sequence[float | None]) -> Self:
        """Return a quadratic B-spline basis of the release year, knots at the years' quantiles.

        A missing year counts as the median. Catalogues of a single year get no columns.
        """
        known = np.array([np.nan if year is None else year for year in years], dtype=np.float64)
        if np.isnan(known).all():
            return cls((), np.zeros((len(known), 0), dtype=np.float32))
        filled = np.where(np.isnan(known), np.nanmedian(known), known)  # (n_items,)
        # Knots must differ, and quantiles of a catalogue with few distinct years may not.
        knots = np.unique(np.quantile(filled, np.linspace(0, 1, _YEAR_KNOTS)))
        if len(knots) < 2:
            return cls((), np.zeros((len(known), 0), dtype=np.float32))
        basis = splines(filled, knots, _YEAR_DEGREE)[:, :-1]  # all of them add up to 1
        return cls(tuple(f"year:{at}" for at in range(basis.shape[1])), centred(basis))

    @classmethod
    def tags(
        cls, item_codes: npt.NDArray[np.integer[Any]], tags: Sequence[str], n_items: int
    ) -> Self:
        """Return the principal components of the items' TF-IDF weighted tags.

        Args:
            item_codes: The item of each tag assignment, (n_assignments,).
            tags: The tag of each assignment; case and outer spaces do not matter.
            n_items: The size of the catalogue.

        All columns are divided by the first one's standard deviation, so that a ridge penalty still
        treats components by their importance.
        """
        from scipy.sparse import coo_array

        normal = pl.Series(tags, dtype=pl.String).str.strip_chars().str.to_lowercase()
        tag_codes = normal.rank("dense").to_numpy() - 1  # (n_assignments,)
        n_tags = int(tag_codes.max()) + 1 if len(tag_codes) else 0
        n_components = min(_TAG_COMPONENTS, n_items - 1, n_tags - 1)
        if n_components < 1:
            return cls((), np.zeros((n_items, 0), dtype=np.float32))
        ones = np.ones(len(tag_codes))
        counts = coo_array((ones, (item_codes, tag_codes)), shape=(n_items, n_tags)).tocsr()
        components = principal_components(tf_idf(counts), n_components)
        scaled = (components / (components[:, 0].std() or 1.0)).astype(np.float32)
        return cls(tuple(f"tag:{at}" for at in range(n_components)), scaled)


def splines(
    x: npt.NDArray[np.float64], knots: npt.NDArray[np.float64], degree: int
) -> npt.NDArray[np.float64]:
    """Return the B-spline basis at x, by the recursion of de Boor (1972). (n, n_basis).

    Args:
        x: points between the first and the last knot, (n,).
        knots: distinct and increasing; the outer intervals are repeated beyond both ends.
        degree: of the polynomials between knots.
    """
    beyond = np.arange(1, degree + 1)
    left = knots[0] - (knots[1] - knots[0]) * beyond[::-1]
    right = knots[-1] + (knots[-1] - knots[-2]) * beyond
    t = np.concatenate([left, knots, right])
    # The interval of each point; the last knot belongs to the one before it.
    at = np.clip(np.searchsorted(t, x, side="right") - 1, degree, len(t) - degree - 2)
    basis: npt.NDArray[np.float64] = (at[:, None] == np.arange(len(t) - 1)).astype(np.float64)
    for d in range(1, degree + 1):
        rising = (x[:, None] - t[:-d]) / (t[d:] - t[:-d])  # (n, len(t) - d)
        basis = rising[:, :-1] * basis[:, :-1] + (1.0 - rising[:, 1:]) * basis[:, 1:]
    return np.asarray(basis)


def tf_idf(counts: Any) -> Any:
    """Return counts times smoothed inverse document frequencies, rows of length 1.

    Args:
        counts: how often each item has each tag, (n_items, n_tags) sparse by rows.
    """
    n_items, n_tags = counts.shape
    holders = np.bincount(counts.indices, minlength=n_tags)
    weights = counts.copy()
    weights.data *= (np.log((1 + n_items) / (1 + holders)) + 1.0)[counts.indices]
    lengths = np.sqrt(weights.multiply(weights).sum(axis=1))
    weights.data /= np.repeat(lengths, np.diff(weights.indptr))
    return weights


def principal_components(weights: Any, n_components: int) -> npt.NDArray[np.float64]:
    """Return the items' coordinates, largest variance first. (n_items, n_components).

    Columns are centred without a dense copy. A component's sign is that of its largest loading.

    Args:
        weights: (n_items, n_features) sparse by rows.
        n_components: fewer than items and than features.
    """
    from scipy.sparse.linalg import LinearOperator, svds

    means = weights.mean(axis=0)  # (n_features,)
    operator = LinearOperator(
        weights.shape,
        matvec=lambda v: weights @ v - means @ v,
        rmatvec=lambda u: weights.T @ u - means * u.sum(),
        dtype=np.float64,
    )
    start = rng.stream(0, "components").uniform(-1, 1, min(weights.shape))  # any does
    left, values, right = svds(operator, k=n_components, v0=start)  # smallest first
    signs = np.sign(right[np.arange(n_components), np.abs(right).argmax(axis=1)])
    return np.asarray((left * values * signs)[:, ::-1])


def read_features(
    source: Any, item_ids: npt.NDArray[Any], columns: Sequence[str] | None = None
) -> tuple[ItemFeatures | None, npt.NDArray[np.str_] | None]:
    """Return features and titles, where there are some, from a path or a frame.

    Args:
        source: A path or a frame.
        item_ids: The items of the catalogue, in order.
        columns: Those to use as features; all others if not given.
    """
    frame = frame_of(source, "item_id")
    labels = title_columns(frame.columns)
    titles = _titles(frame, item_ids, labels[0]) if labels else None
    if columns is not None and "item_id" in frame.columns:
        table = Table(frame, Path(source).name if isinstance(source, str | Path) else "The frame")
        chosen = [column_of(table, name) for name in columns]
        frame = frame.select("item_id", *dict.fromkeys(chosen))
    else:
        named = _naming_columns(frame.drop("item_id", *labels, strict=False))
        labels, frame = [*labels, *named], frame.drop(named)
    if labels and set(frame.columns) <= {"item_id", *labels}:
        return None, titles
    return ItemFeatures.from_frame(frame, item_ids), titles


def _naming_columns(frame: pl.DataFrame) -> list[str]:
    """Columns of text that are another one in every row; says once that they are not used."""
    text = [column for column in frame if column.dtype == pl.String]
    found = [
        column.name
        for column in text
        if len(column) >= _MIN_ROWS and not column.has_nulls() and column.is_unique().all()
    ]
    if found:
        log.warning(
            "Features: not used: %s, whose text is another one in every row and says nothing of "
            "other items. If it is what items are called, name the column title; if it is a "
            "feature: --feature-columns (feature_columns=)",
            ", ".join(found),
        )
    return found


def require_features(columns: Sequence[str] | None) -> None:
    """Refuse columns of features where there are none to choose from."""
    if columns:
        raise SettingsError(
            f"feature_columns chooses columns of features; there are none. Got {columns}; give "
            "features= too.",
            flags="--features FILE",
        )


def _titles(frame: pl.DataFrame, item_ids: npt.NDArray[Any], column: str) -> npt.NDArray[np.str_]:
    titles = ItemFeatures.aligned(frame, item_ids)[column].cast(pl.String)
    return titles.fill_null(pl.Series(item_ids.astype(str))).to_numpy().astype(str)


class UserProfiles(Attributes):
    """Named columns of the users, finite and read-only.

    Attributes:
        names: One distinct name per column.
        values: (n_users, n_columns) float32; row u belongs to user code u.
    """

    kind: ClassVar[str] = "user"
    title: ClassVar[str] = "Profiles"

    @classmethod
    def labels(cls, columns: Sequence[str]) -> list[str]:
        """Columns that have people's names."""
        return [name for name in columns if name == "name"]


def content_features(ratings: "Ratings") -> Array:
    """Item features as masks and priors take them; no columns where there are none. (n_items, d).

    See `scaled_features`.
    """
    if ratings.features is None:
        return np.zeros((ratings.n_items, 0))
    return scaled_features(ratings.features.values)


def scaled_features(features: Array) -> Array:
    """Features of a catalogue, all scaled by one number. (n_items, d).

    A strength of regularisation then means the same for a few genres and for twenty components of
    tags: the mean squared length of a row becomes `ROW_ENERGY`.
    """
    values = np.asarray(features, np.float64)
    energy = np.square(values).sum(axis=1).mean()
    return np.ascontiguousarray(values * np.sqrt(ROW_ENERGY / max(energy, 1e-12)))


def profile_values(ratings: "Ratings") -> Array:
    """Profile values of each user; no columns where nothing is known. (n_users, d).

    Without columns in which fewer than `MIN_HOLDERS` differ from the others: sums over users
    would be about them alone.
    """
    if ratings.profiles is None:
        return np.zeros((ratings.n_users, 0))
    values = np.asarray(ratings.profiles.values, np.float64)
    usual = [np.unique(column, return_counts=True)[1].max() for column in values.T]
    differ = len(values) - np.array(usual, np.int64)
    return np.ascontiguousarray(values[:, differ >= MIN_HOLDERS])
