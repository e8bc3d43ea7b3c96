"""Public item attributes as numbers: one row per item code."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from fedmmf.data.attributes import Attributes, centred, frame_of

# scikit-learn is imported where it is used: that takes a second, and cached sets do not need it.

_TAG_COMPONENTS = 20
_YEAR_KNOTS = 4


class ItemFeatures(Attributes):
    """Named feature columns, finite and read-only.

    Attributes:
        names: One distinct name per column.
        values: (n_items, n_features) float32; row i belongs to item code i.
    """

    kind: ClassVar[str] = "item"
    title: ClassVar[str] = "Features"
    labels: ClassVar[tuple[str, ...]] = ("title", "name")

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


def read_features(
    source: Any, item_ids: npt.NDArray[Any]
) -> tuple[ItemFeatures, npt.NDArray[np.str_] | None]:
    """Return features, and titles where there are some, from a path or a frame."""
    frame = frame_of(source, "item_id")
    return ItemFeatures.from_frame(frame, item_ids), _titles(frame, item_ids)


def _titles(frame: pl.DataFrame, item_ids: npt.NDArray[Any]) -> npt.NDArray[np.str_] | None:
    column = next((name for name in ItemFeatures.labels if name in frame.columns), None)
    if column is None:
        return None
    titles = ItemFeatures.aligned(frame, item_ids)[column].cast(pl.String)
    return titles.fill_null(pl.Series(item_ids.astype(str))).to_numpy().astype(str)
