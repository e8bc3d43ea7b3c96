"""The catalogue, which must be the same on both sides before training."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data.scales import RatingScale
from fedmmf.errors import DataError
from fedmmf.wire.codec import counts


@dataclass(frozen=True)
class Catalogue:
    """The items and the rating scale, as either side has them.

    Attributes:
        n_items: size of the catalogue.
        scale: of the ratings.
        digest: 32 bytes; equal digests mean equal items, features and scale.
    """

    n_items: int
    scale: RatingScale
    digest: bytes

    @classmethod
    def of(cls, item_ids: Iterable[object], scale: RatingScale, features: Array) -> "Catalogue":
        """Make the catalogue of these items, in this order, with these public features.

        SHA-256 over the scale's three numbers (float64), the number of items and of feature columns
        (uint32), each id as text after its length (uint32), and the features (float32), all
        little-endian. Zero has no sign.
        """
        ids = [str(item).encode() for item in item_ids]
        if features.shape[:1] != (len(ids),) or features.ndim != 2:
            raise DataError(
                f"a catalogue has a row of features for each of its {len(ids)} items; "
                f"got features of shape {features.shape}"
            )
        numbers = np.array([scale.min, scale.max, scale.step], "<f8") + 0.0
        state = hashlib.sha256(b"fedmmf catalogue 1" + numbers.tobytes())
        state.update(counts(*features.shape))
        for text in ids:
            state.update(counts(len(text)) + text)
        state.update((np.ascontiguousarray(features, "<f4") + np.float32(0)).tobytes())
        return cls(len(ids), scale, state.digest())
