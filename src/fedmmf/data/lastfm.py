"""Last.fm listening counts of HetRec 2011, binned into ratings."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl

from fedmmf.data.features import ItemFeatures
from fedmmf.data.files import parse_table
from fedmmf.data.frames import checked, encode
from fedmmf.data.movielens import Read, positions
from fedmmf.data.ratings import Ratings
from fedmmf.data.scales import RatingScale
from fedmmf.errors import SettingsError

EDGES = (200.0, 400.0, 600.0, 800.0)
"""Plays at which the next rating begins."""


def load_lastfm(read: Read, edges: Sequence[float] = EDGES) -> Ratings:
    """Load the counts as ratings from 1 to `len(edges) + 1`, with artists' tags as features."""
    scale = RatingScale(1.0, 1.0 + len(_checked_edges(edges)), 1.0)
    counts = checked(parse_table(read("user_artists.dat"), "user_artists.dat"))
    plays = counts["rating"].to_numpy()
    binned = counts.with_columns(pl.Series("rating", binned_counts(plays, edges)))
    ratings = Ratings.from_columns(encode(binned), scale=scale, name="lastfm")
    return replace(
        ratings, features=_tag_features(read, ratings.item_ids), item_titles=_names(read, ratings)
    )


def binned_counts(
    plays: npt.NDArray[np.float64], edges: Sequence[float]
) -> npt.NDArray[np.float64]:
    """Return 1 + the number of edges that each count reaches."""
    return np.asarray(1.0 + np.digitize(plays, np.asarray(edges, dtype=np.float64)))


def _checked_edges(edges: Sequence[float]) -> Sequence[float]:
    if len(edges) == 0 or any(low >= high for low, high in pairwise(edges)):
        raise SettingsError(f"Edges must be one or more rising numbers of plays; got {edges}.")
    return edges


def _tag_features(read: Read, item_ids: npt.NDArray[np.int64]) -> ItemFeatures:
    frame = parse_table(read("user_taggedartists.dat"), "user_taggedartists.dat").frame
    codes, rated = positions(item_ids, frame["item_id"].cast(pl.Int64).to_numpy())
    # Tags are counted by id; what a tag says does not matter to its weight.
    tags = frame["tagID"].filter(pl.Series(rated)).to_list()
    return ItemFeatures.tags(codes, tags, len(item_ids))


def _names(read: Read, ratings: Ratings) -> npt.NDArray[np.str_]:
    frame = parse_table(read("artists.dat"), "artists.dat").frame
    known = dict(zip(frame["id"].cast(pl.Int64), frame["name"], strict=True))
    ids = ratings.item_ids.tolist()
    return np.array([known.get(number) or str(number) for number in ids], dtype=np.str_)
