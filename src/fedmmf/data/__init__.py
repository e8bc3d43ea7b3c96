"""Ratings, item features and user profiles: public sets, people's own files, and made-up ones."""

from fedmmf.data.features import ItemFeatures
from fedmmf.data.own import read_own_ratings
from fedmmf.data.places import ItemIndex
from fedmmf.data.profiles import UserProfiles
from fedmmf.data.ratings import Ratings
from fedmmf.data.registry import DATASETS, Dataset, DatasetInfo, datasets, get, load
from fedmmf.data.splits import load_split, read_split, split_as_published, split_newcomers
from fedmmf.scale import RatingScale

__all__ = [
    "DATASETS",
    "Dataset",
    "DatasetInfo",
    "ItemFeatures",
    "ItemIndex",
    "RatingScale",
    "Ratings",
    "UserProfiles",
    "datasets",
    "get",
    "load",
    "load_split",
    "read_own_ratings",
    "read_split",
    "split_as_published",
    "split_newcomers",
]
