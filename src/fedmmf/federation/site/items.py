"""The catalogue of a federation, from a file of items or from a public data set."""

from pathlib import Path

import numpy as np

from fedmmf.data import Ratings, load
from fedmmf.data.features import content_features, read_features, scaled_features
from fedmmf.data.files import read_attribute_frame
from fedmmf.data.scales import RatingScale
from fedmmf.errors import DataError
from fedmmf.federation.catalogue import ItemList


def item_list(source: str, scale: RatingScale | None) -> ItemList:
    """Items of a file with a column item_id, or of a data set by its name.

    Args:
        source: a path, or a name of `fedmmf data list`.
        scale: of the ratings; None: the data set's own, or 1 to 5.
    """
    if Path(source).exists():
        return _from_file(source, scale or RatingScale(1.0, 5.0, 1.0))
    return of_ratings(load(source, scale=scale))


def of_ratings(ratings: Ratings) -> ItemList:
    """The items of a data set, with its features."""
    ids = ratings.item_ids.astype(np.str_)
    titles = ids if ratings.item_titles is None else ratings.item_titles.astype(np.str_)
    return ItemList(ids, titles, content_features(ratings), ratings.scale)


def _from_file(path: str, scale: RatingScale) -> ItemList:
    frame = read_attribute_frame(path, "item_id")
    if "item_id" not in frame.columns:
        raise DataError(
            f"{path} needs a column item_id; it has {', '.join(frame.columns) or 'none'}"
        )
    ids = frame["item_id"].cast(str).to_numpy().astype(np.str_)
    if len(ids) == 0 or len(np.unique(ids)) != len(ids):
        raise DataError(f"{path} needs each item once, and at least one; it has {len(ids)} rows")
    if frame.columns == ["item_id"]:
        return ItemList(ids, ids, np.zeros((len(ids), 0)), scale)
    features, found = read_features(frame, ids)
    values = np.zeros((len(ids), 0)) if features is None else scaled_features(features.values)
    return ItemList(ids, ids if found is None else found, values, scale)
