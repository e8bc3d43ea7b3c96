"""The items of a federation as a file: ids, titles, public features, scale."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data.scales import RatingScale
from fedmmf.errors import CheckpointError
from fedmmf.storage import checkpoints
from fedmmf.wire import Catalogue


@dataclass(frozen=True, eq=False)
class ItemList:
    """The public list of items: ids, titles, features and the rating scale.

    Attributes:
        ids: as text, in the order of their codes. (n_items,)
        titles: for people; the ids where there are none. (n_items,)
        features: as masks and priors take them. (n_items, d)
        scale: of the ratings.
    """

    ids: Array
    titles: Array
    features: Array
    scale: RatingScale

    @cached_property
    def catalogue(self) -> Catalogue:
        """The catalogue that messages refer to, with its digest."""
        return Catalogue.of(self.ids, self.scale, self.features)

    @cached_property
    def codes(self) -> dict[str, int]:
        """Code of each item by its id."""
        return {str(item): code for code, item in enumerate(self.ids)}

    def save(self, path: Path) -> None:
        """Write the list to a file that anybody may read."""
        arrays = {"ids": self.ids, "titles": self.titles, "features": self.features}
        scale = [self.scale.min, self.scale.max, self.scale.step]
        checkpoints.save(path, arrays, {"kind": "catalogue", "scale": scale}, is_private=False)

    @classmethod
    def load(cls, path: Path) -> "ItemList":
        """Read a list that `save` wrote; raises `CheckpointError` for any other file."""
        arrays, meta = checkpoints.load(path, "catalogue")
        try:
            parts = (arrays["ids"].astype(np.str_), arrays["titles"].astype(np.str_))
            return cls(
                *parts, np.asarray(arrays["features"], np.float64), RatingScale(*meta["scale"])
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{path} is no catalogue: {error}") from None
