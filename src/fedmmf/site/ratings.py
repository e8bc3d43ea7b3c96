"""What a site holds of its users, in the catalogue's codes; private, all of it."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedmmf import checkpoint, rng
from fedmmf.arrays import Array
from fedmmf.data import Ratings, load
from fedmmf.errors import DataError, SettingsError, UnknownNameError
from fedmmf.federation.catalogue import ItemList
from fedmmf.lists import UserLists
from fedmmf.party import PartyData
from fedmmf.simulation.prepared import MIN_RATINGS_TO_HOLD_OUT, mask_stream

_KIND = "holdings"


@dataclass(frozen=True, eq=False)
class UserRatings:
    """Ratings of some users, by user and item.

    Attributes:
        user_ids: as text. (n_users,)
        lists: items of each, strictly increasing.
        values: the ratings. (n,)
    """

    user_ids: Array
    lists: UserLists
    values: Array

    def part(self, keep: Array) -> "UserRatings":
        """Some of the ratings, of the same users."""
        before = np.concatenate(([0], np.cumsum(keep)))
        lists = UserLists(before[self.lists.indptr], self.lists.items[keep])
        return UserRatings(self.user_ids, lists, self.values[keep])

    def user(self, user: str) -> int:
        """The place of a user."""
        (found,) = np.nonzero(self.user_ids == str(user))
        if len(found) == 0:
            raise UnknownNameError(
                f"this site has no user {user!r}; it has {len(self.user_ids):,}, such as "
                f"{str(self.user_ids[0])!r}. Add the ratings to its file and start the site again"
            )
        return int(found[0])


@dataclass(frozen=True)
class Outside:
    """Ratings that have no place in this federation; told to the site alone."""

    n_ratings: int
    n_items: int
    n_users: int  # who have no other ratings


@dataclass(frozen=True, eq=False)
class SiteRatings:
    """What a site trains and tests on."""

    training: UserRatings
    test: UserRatings

    def save(self, path: Path) -> None:
        """Write it, for the owner alone."""
        arrays: dict[str, Any] = {"user_ids": self.training.user_ids}
        for name, part in (("training", self.training), ("test", self.test)):
            arrays[f"{name}/indptr"], arrays[f"{name}/items"] = part.lists.indptr, part.lists.items
            arrays[f"{name}/values"] = part.values
        checkpoint.save(path, arrays, {"kind": _KIND})

    @classmethod
    def load(cls, path: Path) -> "SiteRatings":
        """Read it."""
        arrays, _ = checkpoint.load(path, _KIND)
        ids = arrays["user_ids"]
        parts = (
            UserRatings(
                ids,
                UserLists(arrays[f"{name}/indptr"], arrays[f"{name}/items"]),
                arrays[f"{name}/values"],
            )
            for name in ("training", "test")
        )
        return cls(*parts)

    @property
    def fingerprint(self) -> str:
        """A hash of who rated what in training, and how."""
        digest = hashlib.sha256("\n".join(map(str, self.training.user_ids)).encode())
        for column in (self.training.lists.indptr, self.training.lists.items, self.training.values):
            digest.update(np.ascontiguousarray(column).tobytes())
        return digest.hexdigest()

    def party_data(self, items: ItemList, users: range, seed: Any, held_out: Array) -> PartyData:
        """What one party is made of."""
        mine, start = self.training, int(self.training.lists.indptr[users.start])
        indptr = mine.lists.indptr[users.start : users.stop + 1]
        own = slice(start, int(indptr[-1]))
        return PartyData(
            catalogue=items.catalogue,
            features=items.features,
            lists=UserLists(indptr - start, mine.lists.items[own]),
            ratings=mine.values[own],
            held_out=held_out[own] if held_out.any() else None,
            streams=[mask_stream(seed, mine.user_ids[user]) for user in users],
        )


def read_ratings(path: Path, items: ItemList) -> tuple[UserRatings, Outside]:
    """Ratings of a file, in the catalogue's codes, and what is not in the catalogue."""
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
    lists = UserLists(
        np.concatenate(([0], np.cumsum(lengths))), frame["item"].to_numpy().astype(np.int32)
    )
    return UserRatings(found.user_ids[users].astype(np.str_), lists, frame["value"].to_numpy())


def split(ratings: UserRatings, share: float, seed: Any) -> SiteRatings:
    """Keep a share of each user's ratings for `federation evaluate`."""
    if not 0 <= share < 1:
        raise SettingsError(f"the share of test ratings is in [0, 1); got {share}")
    is_test = _drawn(ratings, share, seed, "test")
    return SiteRatings(ratings.part(~is_test), ratings.part(is_test))


def choose_held_out(ratings: UserRatings, share: float, seed: Any) -> Array:
    """Which ratings are kept for early stopping. (n,) bool."""
    return _drawn(ratings, share, seed, "held out")


def _drawn(ratings: UserRatings, share: float, seed: Any, why: str) -> Array:
    """Some ratings of users who have enough of them, each user's by a stream of its own."""
    chosen: Array = np.zeros(len(ratings.values), bool)
    for place, user in enumerate(ratings.user_ids):
        start, end = ratings.lists.indptr[place : place + 2]
        if share > 0 and end - start >= MIN_RATINGS_TO_HOLD_OUT:
            chosen[start:end] = rng.stream(seed, why, str(user)).random(end - start) < share
    return chosen
