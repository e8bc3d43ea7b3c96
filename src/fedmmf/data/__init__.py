"""Ratings, item features and user profiles: public sets, people's own files, and made-up ones.

Names are imported when they are first used. Both sides of a federation import `data.scales` and
`data.rated_items`, and neither needs what reads files.
"""

from typing import TYPE_CHECKING

from fedmmf.registry import lazy_names

if TYPE_CHECKING:
    from fedmmf.data.adapters import read_own_ratings
    from fedmmf.data.features import ItemFeatures, UserProfiles
    from fedmmf.data.indexing import ItemIndex
    from fedmmf.data.ratings import Ratings
    from fedmmf.data.registry import DATASETS, Dataset, DatasetInfo, datasets, get, load
    from fedmmf.data.scales import RatingScale
    from fedmmf.data.splits import load_split, read_split, split_as_published, split_newcomers

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
__getattr__ = lazy_names(
    {
        "fedmmf.data.adapters": ["read_own_ratings"],
        "fedmmf.data.features": ["ItemFeatures", "UserProfiles"],
        "fedmmf.data.indexing": ["ItemIndex"],
        "fedmmf.data.ratings": ["Ratings"],
        "fedmmf.data.registry": ["DATASETS", "Dataset", "DatasetInfo", "datasets", "get", "load"],
        "fedmmf.data.scales": ["RatingScale"],
        "fedmmf.data.splits": ["load_split", "read_split", "split_as_published", "split_newcomers"],
    }
)
