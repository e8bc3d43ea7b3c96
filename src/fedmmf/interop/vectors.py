"""A model's scores as dot products: a vector for each user and one for each item.

A score, before it is clipped to the scale, is q_i . p_u + f_u(i). Masks of this package are linear
in what they see of an item, so that the mask fits into the vectors too:

    user: p_u, weights of the mask, its intercept, 1
    item: q_i, features of the item, 1,             what somebody unknown gives it

Whoever has the users' vectors can read much of what people rated; treat them as the ratings. The
items' vectors hold nothing that parties keep to themselves.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import polars as pl

from fedmmf.arrays import Array
from fedmmf.errors import SettingsError
from fedmmf.masks import FAMILIES
from fedmmf.model import FedMMF, Learned
from fedmmf.storage.atomic import OWNER_ONLY, writing


@dataclass(frozen=True, eq=False)
class Vectors:
    """Vectors whose dot product is the score of a user and an item.

    Attributes:
        user_ids: (n_users,)
        item_ids: (n_items,)
        users: private to each user. (n_users, k) float32
        items: (n_items, k) float32
    """

    user_ids: Array
    item_ids: Array
    users: Array
    items: Array

    @classmethod
    def of(cls, model: FedMMF) -> "Vectors":
        """Compute the vectors of a fitted model."""
        learned = model.learned
        parts = [(learned.user_factors[:-1], learned.item_factors[:-1]), *_mask_parts(learned)]
        users, items = (np.hstack(side).astype(np.float32) for side in zip(*parts, strict=True))
        return cls(learned.user_ids, learned.item_ids, users, items)

    def write_npz(self, file: BinaryIO) -> None:
        """Write numpy's format: user_ids, item_ids, users and items, as they are here."""
        np.savez(file, **vars(self))

    def write_parquet(self, file: BinaryIO) -> None:
        """Write a table: user_id or item_id, of which the other is missing, and vector."""
        pl.concat([self._table("user_id"), self._table("item_id")]).write_parquet(file)

    def _table(self, name: str) -> pl.DataFrame:
        own = {"user_id": self.users, "item_id": self.items}[name]
        vectors = pl.Series("vector", own, dtype=pl.Array(pl.Float32, own.shape[1]))
        columns = {"user_id": self.user_ids, "item_id": self.item_ids}
        ids = {
            key: pl.Series(values) if key == name else pl.Series([None] * len(own))
            for key, values in columns.items()
        }
        types = {key: pl.Series(values).dtype for key, values in columns.items()}
        return pl.DataFrame(ids).cast(types).with_columns(vectors)  # type: ignore[arg-type]


def _mask_parts(learned: Learned) -> list[tuple[Array, Array]]:
    """Write f_u(i) as columns of users and items: weights, intercept and the common part."""
    family, theta, features = FAMILIES[learned.mask], learned.theta[:-1], learned.features[:-1]
    if not family.is_linear:
        raise SettingsError(
            f"vectors need a mask that is linear in what it sees; got {learned.mask!r}. Train "
            "with one of this package: none, mean, lr, fm or nn"
        )
    parts = []
    if theta.any():  # else masks belong to p_u, or there are none
        weights = learned.scale.span * theta  # (n_users, 1 + d)
        ones = np.ones((learned.n_items, 1))
        parts = [(weights[:, 1:], features[:, : theta.shape[1] - 1]), (weights[:, :1], ones)]
    if family.is_centred:
        base = learned.population.base(features, learned.scale)[:, np.newaxis]  # (n_items, 1)
        parts.append((np.ones((learned.n_users, 1)), base))
    return parts


STREAMS = {".npz": Vectors.write_npz, ".parquet": Vectors.write_parquet}  # with users' vectors


def labels_of(item_ids: Array) -> Array:
    """Return the items' labels in an index: whole-number ids, else positions. (n,)."""
    is_plain = item_ids.dtype.kind in "iu" and item_ids.min() >= 0
    return np.asarray(item_ids if is_plain else np.arange(len(item_ids)), np.int64)


def export(model: FedMMF, path: str | Path) -> Path:
    """Write a fitted model's vectors to a file; how follows from the end of its name.

    The file is for its owner alone, and there whole or not at all.

    Args:
        model: that is fitted.
        path: ends in .npz or .parquet, for the vectors of users and items; or in .faiss or .hnsw,
            for an index of the items, by inner product.

    Returns:
        The path.
    """
    from fedmmf.interop.indexes import write_faiss, write_hnsw

    target = Path(path)
    indexes = {".faiss": write_faiss, ".hnsw": write_hnsw}
    known = (*STREAMS, *indexes)
    if target.suffix not in known:
        raise SettingsError(
            f"the file must end in {', '.join(known[:-1])} or {known[-1]}; got {str(path)!r}"
        )
    vectors = Vectors.of(model)
    try:
        with writing(target, OWNER_ONLY) as partial:
            if target.suffix in indexes:
                indexes[target.suffix](vectors, partial)
            else:
                with partial.open("wb") as file:
                    STREAMS[target.suffix](vectors, file)
    except (OSError, RuntimeError) as error:  # the indexes' own writers raise the latter
        reason = getattr(error, "strerror", None) or error
        raise SettingsError(f"{target} cannot be written: {reason}. Name another file") from None
    return target
