"""Public item attributes as numbers: one row per item code.

Every constructor centres its columns over the catalogue, so zero means "like the average item",
and whatever is missing becomes zero. A ridge penalty then draws a private model towards the average
item and not towards an item without genres.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from fedmmf.data.files import read_feature_frame
from fedmmf.data.frames import to_polars
from fedmmf.errors import DataError, SettingsError

# scikit-learn is imported where it is used: that takes a second, and cached sets do not need it.

_TITLE_COLUMNS = ("title", "name")
_MAX_CATEGORIES = 1000  # a text column beyond this is an identifier and not an attribute
_TAG_COMPONENTS = 20
_YEAR_KNOTS = 4


@dataclass(frozen=True, eq=False)
class ItemFeatures:
    """Named feature columns, finite and read-only.

    Attributes:
        names: One distinct name per column.
        values: (n_items, n_features) float32; row i belongs to item code i.
    """

    names: tuple[str, ...]
    values: npt.NDArray[np.float32]

    def __post_init__(self) -> None:
        values = np.ascontiguousarray(self.values, dtype=np.float32).view()
        if values.ndim != 2 or values.shape[1] != len(self.names):
            raise DataError(
                f"Features need shape (n_items, {len(self.names)}), one column per name; "
                f"got {values.shape}."
            )
        if len(set(self.names)) != len(self.names):
            raise DataError(f"Feature names must differ; got {', '.join(self.names)}.")
        if not np.isfinite(values).all():
            raise DataError("Features must be finite; got NaN or infinity. Fill or drop them.")
        values.flags.writeable = False
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "names", tuple(self.names))

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"<ItemFeatures: {len(self):,} items, {len(self.names)} columns>"

    def take(self, items: npt.NDArray[Any]) -> Self:
        """Return the rows of some items, given as codes or as a boolean mask."""
        return type(self)(self.names, self.values[items])

    @classmethod
    def joined(cls, *parts: "ItemFeatures") -> Self:
        """Return the columns of several feature sets of the same items, side by side."""
        names = tuple(name for part in parts for name in part.names)
        return cls(names, np.hstack([part.values for part in parts]))

    @classmethod
    def genres(cls, lists: Sequence[Iterable[str]], prefix: str = "genre") -> Self:
        """Return one column per genre that occurs in any item's list."""
        sets = [set(labels) for labels in lists]
        known = sorted(set().union(*sets))
        column = {label: at for at, label in enumerate(known)}
        values = np.zeros((len(sets), len(known)))  # (n_items, n_genres)
        for row, labels in enumerate(sets):
            values[row, [column[label] for label in labels]] = 1.0
        return cls(tuple(f"{prefix}={label}" for label in known), _centred(values))

    @classmethod
    def release_years(cls, years: Sequence[float | None]) -> Self:
        """Return a quadratic B-spline basis of the release year, knots at the years' quantiles.

        A missing year counts as the median. Catalogues of a single year get no columns.
        """
        from sklearn.preprocessing import SplineTransformer

        known = np.array([np.nan if year is None else year for year in years], dtype=np.float64)
        if np.isnan(known).all():
            return cls((), np.zeros((len(known), 0), dtype=np.float32))
        filled = np.where(np.isnan(known), np.nanmedian(known), known)[:, None]  # (n_items, 1)
        # Knots must differ, and quantiles of a catalogue with few distinct years may not.
        knots = np.unique(np.quantile(filled, np.linspace(0, 1, _YEAR_KNOTS)))[:, None]
        if len(knots) < 2:
            return cls((), np.zeros((len(known), 0), dtype=np.float32))
        basis = SplineTransformer(degree=2, knots=knots, include_bias=False).fit_transform(filled)
        return cls(tuple(f"year:{at}" for at in range(basis.shape[1])), _centred(basis))

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
        from sklearn.decomposition import PCA
        from sklearn.feature_extraction.text import TfidfTransformer

        normal = pl.Series(tags, dtype=pl.String).str.strip_chars().str.to_lowercase()
        tag_codes = normal.rank("dense").to_numpy() - 1  # (n_assignments,)
        n_tags = int(tag_codes.max()) + 1 if len(tag_codes) else 0
        n_components = min(_TAG_COMPONENTS, n_items - 1, n_tags - 1)
        if n_components < 1:
            return cls((), np.zeros((n_items, 0), dtype=np.float32))
        ones = np.ones(len(tag_codes))
        counts = coo_array((ones, (item_codes, tag_codes)), shape=(n_items, n_tags)).tocsr()
        weights = TfidfTransformer().fit_transform(counts)  # (n_items, n_tags) sparse
        pca = PCA(n_components=n_components, svd_solver="arpack", random_state=0)
        components = pca.fit_transform(weights)  # (n_items, n_components), centred
        scaled = (components / (components[:, 0].std() or 1.0)).astype(np.float32)
        return cls(tuple(f"tag:{at}" for at in range(n_components)), scaled)

    @classmethod
    def from_frame(cls, frame: Any, item_ids: npt.NDArray[Any]) -> Self:
        """Return features from a polars or pandas frame with an item_id column.

        Numbers are standardised; booleans and text become one column per value; lists and text
        separated by '|' become one column per element. Columns called title or name are left out.
        Items or values that are missing count as average, which is zero.
        """
        frame = _aligned(to_polars(frame), item_ids)
        kept = [name for name in frame.columns if name not in ("item_id", *_TITLE_COLUMNS)]
        if not kept:
            raise DataError("Features need at least one column besides item_id; got none.")
        blocks = [_block(frame[name]) for name in kept]
        names = tuple(name for block_names, _ in blocks for name in block_names)
        return cls(names, _centred(np.hstack([values for _, values in blocks])))


def read_features(
    source: Any, item_ids: npt.NDArray[Any]
) -> tuple[ItemFeatures, npt.NDArray[np.str_] | None]:
    """Return features, and titles where there are some, from a path or a frame."""
    frame = read_feature_frame(source) if isinstance(source, str | Path) else to_polars(source)
    return ItemFeatures.from_frame(frame, item_ids), _titles(frame, item_ids)


def _titles(frame: pl.DataFrame, item_ids: npt.NDArray[Any]) -> npt.NDArray[np.str_] | None:
    column = next((name for name in _TITLE_COLUMNS if name in frame.columns), None)
    if column is None:
        return None
    titles = _aligned(frame, item_ids)[column].cast(pl.String)
    return titles.fill_null(pl.Series(item_ids.astype(str))).to_numpy().astype(str)


def _aligned(frame: pl.DataFrame, item_ids: npt.NDArray[Any]) -> pl.DataFrame:
    """Return the frame's rows in the order of `item_ids`, with nulls where an item is missing."""
    if "item_id" not in frame.columns:
        raise DataError(
            f"Features need a column item_id; arrived: {', '.join(frame.columns) or 'none'}."
        )
    # Ids are compared as text, since a file's ids may be numbers on one side and text on the other.
    frame = frame.with_columns(pl.col("item_id").cast(pl.String))
    repeated = frame.filter(frame["item_id"].is_duplicated())
    if repeated.height:
        raise DataError(
            f"Features need each item once; item {repeated['item_id'][0]} appears more often."
        )
    wanted = pl.DataFrame({"item_id": item_ids.astype(str)})
    if wanted.join(frame, on="item_id", how="semi").is_empty():
        raise DataError(
            "No item of the features has ratings. Both must use the same ids; the ratings have "
            f"{item_ids[0].item()!r}, the features {frame['item_id'].first()!r}."
        )
    return wanted.join(frame, on="item_id", how="left", maintain_order="left")


def _block(column: pl.Series) -> tuple[tuple[str, ...], npt.NDArray[np.float64]]:
    """Return the columns, (n_items, width), that one column of a frame becomes; NaN is missing."""
    if column.dtype.is_numeric():
        return (column.name,), _standardised(column.cast(pl.Float64).to_numpy())[:, None]
    if isinstance(column.dtype, pl.List):
        return _indicators(column.name, column.cast(pl.List(pl.String)))
    if isinstance(column.dtype, pl.Boolean | pl.String | pl.Categorical | pl.Enum | pl.Null):
        return _indicators(column.name, column.cast(pl.String).str.split("|"))
    raise DataError(
        f"Feature column {column.name} must be numbers, booleans, text or lists of text; "
        f"got {column.dtype}. Convert or drop it."
    )


def _standardised(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    values = np.where(np.isfinite(values), values, np.nan)
    if np.isnan(values).all():
        return np.zeros_like(values)
    spread = np.nanstd(values)
    return np.asarray((values - np.nanmean(values)) / (spread if spread > 0 else 1.0))


def _indicators(name: str, lists: pl.Series) -> tuple[tuple[str, ...], npt.NDArray[np.float64]]:
    known = lists.explode().drop_nulls().unique().sort().to_list()
    if len(known) > _MAX_CATEGORIES:
        raise SettingsError(
            f"Feature column {name} has {len(known):,} distinct values; at most "
            f"{_MAX_CATEGORIES:,} make sense as attributes. Drop or group it."
        )
    column = {label: at for at, label in enumerate(known)}
    values = np.zeros((len(lists), len(known)))  # (n_items, n_labels)
    for row, labels in enumerate(lists.to_list()):
        if labels is None:
            values[row] = np.nan
        else:
            values[row, [column[label] for label in labels if label is not None]] = 1.0
    return tuple(f"{name}={label}" for label in known), values


def _centred(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Subtract each column's mean over the known values; what is missing becomes zero."""
    known = ~np.isnan(values)
    means = np.where(known, values, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return np.where(known, values - means, 0.0).astype(np.float32)
