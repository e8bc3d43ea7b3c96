"""The private ratings of a site's users, in the catalogue's codes."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedmmf.arrays import Array
from fedmmf.data import Ratings, load
from fedmmf.data.rated_items import RatedItems
from fedmmf.errors import DataError, SettingsError, UnknownNameError
from fedmmf.federation.catalogue import ItemList
from fedmmf.masks.feature_maps import FeatureViews
from fedmmf.party import PartyData
from fedmmf.storage import checkpoints

_KIND = "holdings"
_DRAW_BYTES = 8


@dataclass(frozen=True, eq=False)
class UserRatings:
    """Ratings of some users, by user and item.

    Attributes:
        user_ids: as text. (n_users,)
        lists: items of each, strictly increasing.
        values: the ratings. (n,)
    """

    user_ids: Array
    lists: RatedItems
    values: Array

    def part(self, keep: Array) -> "UserRatings":
        """Return some of the ratings, with the same users."""
        before = np.concatenate(([0], np.cumsum(keep)))
        lists = RatedItems(before[self.lists.indptr], self.lists.items[keep])
        return UserRatings(self.user_ids, lists, self.values[keep])

    def of(self, chosen: Array) -> "UserRatings":
        """Ratings of some users, in their order. (n_users,) bool."""
        keep = np.repeat(chosen, self.lists.lengths)  # (n,)
        indptr = np.concatenate(([0], np.cumsum(self.lists.lengths[chosen])))
        lists = RatedItems(indptr, self.lists.items[keep])
        return UserRatings(self.user_ids[chosen], lists, self.values[keep])

    def user(self, user: str) -> int:
        """Position of a user by id."""
        (found,) = np.nonzero(self.user_ids == str(user))
        if len(found) == 0:
            raise UnknownNameError(
                f"this site has no user {user!r}; it has {len(self.user_ids):,}, such as "
                f"{str(self.user_ids[0])!r}. Add the ratings to its file and start the site again"
            )
        return int(found[0])


@dataclass(frozen=True)
class Outside:
    """Counts of ratings that do not belong to this federation; only the site sees them."""

    n_ratings: int
    n_items: int
    n_users: int  # who have no other ratings


@dataclass(frozen=True, eq=False)
class SiteRatings:
    """The training and test ratings of a site.

    Attributes:
        training: what masks and factors are found from.
        test: what `federation evaluate` is about.
        share: of all ratings that were to be in the test part.
    """

    training: UserRatings
    test: UserRatings
    share: float = 0.0

    def save(self, path: Path) -> None:
        """Write the ratings to a file that only its owner may read."""
        arrays: dict[str, Any] = {"user_ids": self.training.user_ids}
        for name, part in (("training", self.training), ("test", self.test)):
            arrays[f"{name}/indptr"], arrays[f"{name}/items"] = part.lists.indptr, part.lists.items
            arrays[f"{name}/values"] = part.values
        checkpoints.save(path, arrays, {"kind": _KIND, "share": self.share})

    @classmethod
    def load(cls, path: Path) -> "SiteRatings":
        """Read ratings that `save` wrote."""
        arrays, meta = checkpoints.load(path, _KIND)
        ids = arrays["user_ids"]
        training, test = (
            UserRatings(
                ids,
                RatedItems(arrays[f"{name}/indptr"], arrays[f"{name}/items"]),
                arrays[f"{name}/values"],
            )
            for name in ("training", "test")
        )
        return cls(training, test, float(meta.get("share", 0.0)))

    @property
    def fingerprint(self) -> str:
        """A hash of who rated what in training, and how."""
        digest = hashlib.sha256("\n".join(map(str, self.training.user_ids)).encode())
        for column in (self.training.lists.indptr, self.training.lists.items, self.training.values):
            digest.update(np.ascontiguousarray(column).tobytes())
        return digest.hexdigest()

    def is_without_some_of(self, before: "SiteRatings") -> bool:
        """Whether these are earlier ratings without some of their users."""
        now, then = self.training.user_ids, before.training.user_ids
        stays = np.isin(then, now)  # (n_users,)
        if stays.all() or not np.isin(now, then).all() or self.share != before.share:
            return False
        return before.of_users(stays).fingerprint == self.fingerprint

    def of_users(self, chosen: Array) -> "SiteRatings":
        """Return both parts for some users. (n_users,) bool."""
        return SiteRatings(self.training.of(chosen), self.test.of(chosen), self.share)

    def party_data(
        self, items: ItemList, features: FeatureViews, users: range, held_out: Array
    ) -> PartyData:
        """Return the data of one party."""
        mine, start = self.training, int(self.training.lists.indptr[users.start])
        indptr = mine.lists.indptr[users.start : users.stop + 1]
        own = slice(start, int(indptr[-1]))
        return PartyData(
            catalogue=items.catalogue,
            features=features,
            lists=RatedItems(indptr - start, mine.lists.items[own]),
            ratings=mine.values[own],
            held_out=held_out[own] if held_out.any() else None,
        )


def read_ratings(path: Path, items: ItemList) -> tuple[UserRatings, Outside]:
    """Read a file in the catalogue's codes; also count what is not in the catalogue."""
    found = load(path, scale=items.scale)
    codes = np.array([items.codes.get(str(item), -1) for item in found.item_ids])  # (n,)
    inside = codes[found.item_codes] >= 0  # (n_ratings,)
    if not inside.any():
        raise DataError(
            f"{path} has no rating of an item of the catalogue; its items are such as "
            f"{str(found.item_ids[0])!r}, the catalogue's {str(items.ids[0])!r}"
        )
    kept = np.unique(found.user_codes[inside])
    outside = Outside(int((~inside).sum()), int((codes < 0).sum()), int(found.n_users - len(kept)))
    return _in_codes(found, codes[found.item_codes], inside), outside


def _in_codes(found: Ratings, items: Array, inside: Array) -> UserRatings:
    """Users in the order of the file's reader, items increasing within each."""
    frame = pl.DataFrame(
        {
            "user": found.user_codes[inside],
            "item": items[inside],
            "value": found.values[inside],
        }
    ).sort("user", "item")
    users, lengths = np.unique(frame["user"].to_numpy(), return_counts=True)
    lists = RatedItems(
        np.concatenate(([0], np.cumsum(lengths))), frame["item"].to_numpy().astype(np.int32)
    )
    return UserRatings(found.user_ids[users].astype(np.str_), lists, frame["value"].to_numpy())


def split(ratings: UserRatings, share: float, seed: int, item_ids: Array) -> SiteRatings:
    """Keep a share of the ratings for `federation evaluate`."""
    if not 0 <= share < 1:
        raise SettingsError(f"the share of test ratings is in [0, 1); got {share}")
    is_test = _drawn(ratings, item_ids, share, _Draw(seed, "test"))
    return SiteRatings(ratings.part(~is_test), ratings.part(is_test), share)


def choose_held_out(ratings: UserRatings, share: float, seed: int, item_ids: Array) -> Array:
    """Choose the ratings that are kept for early stopping. (n,) bool."""
    return _drawn(ratings, item_ids, share, _Draw(seed, "held out"))


class _Draw:
    """A keyed hash of a user and an item: 64 bits that nobody without the seed can work out."""

    def __init__(self, seed: int, purpose: str) -> None:
        key = hashlib.sha256(f"{purpose}/{seed}".encode()).digest()
        self._keyed = hashlib.blake2b(key=key, digest_size=_DRAW_BYTES)

    def of(self, user: str, items: Iterable[bytes]) -> bytes:
        """Hash a user with each of some items, one hash behind the other."""
        name, hashes = user.encode(), []
        start = self._keyed.copy()
        start.update(len(name).to_bytes(8, "little") + name)  # so that no two pairs are one text
        for item in items:
            one = start.copy()
            one.update(item)
            hashes.append(one.digest())
        return b"".join(hashes)


def _drawn(ratings: UserRatings, item_ids: Array, share: float, draw: _Draw) -> Array:
    """Draw ratings by a keyed hash of user and item. (n,) bool.

    Whether a rating is drawn depends on nothing else, not even on how many ratings its user has:
    ratings that are added or removed never move another one to the other part.
    """
    if share == 0:
        return np.zeros(len(ratings.values), bool)
    names = [str(item).encode() for item in item_ids]
    indptr, items = ratings.lists.indptr.tolist(), ratings.lists.items.tolist()
    hashes = b"".join(
        draw.of(str(user), (names[item] for item in items[start:end]))
        for user, (start, end) in zip(ratings.user_ids, pairwise(indptr), strict=True)
    )
    return np.frombuffer(hashes, "<u8") < np.uint64(share * 2.0**64)
