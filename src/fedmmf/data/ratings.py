"""Ratings: who gave what to which item, in columns that cannot change."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np
import numpy.typing as npt
import polars as pl

from fedmmf import rng
from fedmmf.data.attributes import frame_of
from fedmmf.data.checks import IMPLICIT_SCALE, read_rows
from fedmmf.data.codes import Columns, Duplicates, encode
from fedmmf.data.doubts import tell_doubts
from fedmmf.data.features import ItemFeatures, UserProfiles, read_features, require_features
from fedmmf.data.files import WrittenOptions, read_table
from fedmmf.data.frames import Cleaning, ReadOptions, Table, frame_of_matrix, named, to_polars
from fedmmf.data.indexing import ItemIndex, bounds, code_of
from fedmmf.data.rated_items import RatedItems
from fedmmf.data.scales import RatingScale, ScaleLike
from fedmmf.errors import DataError, SettingsError

FeaturesLike = ItemFeatures | str | Path | Any
"""Item features ready-made, or a path or frame to make them from."""
ProfilesLike = UserProfiles | str | Path | Any
"""User profiles ready-made, or a path or frame to make them from."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Ratings:
    """A set of ratings, each (user, item) pair once, sorted by user code and then item code.

    Arrays handed to the constructor are taken over, not copied, and become read-only views.

    Attributes:
        user_codes: Position in `user_ids` of each rating's user, (n,).
        item_codes: Position in `item_ids` of each rating's item, (n,).
        values: The ratings on their own scale, (n,).
        timestamps: Seconds since 1970, (n,), or None.
        untimed: Why there are no timestamps where a file has a column of them, or None.
        notes: What was told while they were read: what was assumed, dropped or is doubtful.
        user_ids: Sorted ids, integers or text, (n_users,).
        item_ids: Sorted ids, integers or text, (n_items,).
        scale: The scale of `values`; held-out ratings may be off it.
        is_scale_found: Whether it was found in `values`, and not given or known.
        is_implicit: Whether every value is a 1 that says no more than that somebody used it.
        features: Public attributes of the items, or None.
        item_titles: What to call each item, (n_items,), or None.
        profiles: What is known of the users, or None.
        name: The data set's name.
        synthetic: Whether the ratings were made up by a generator.
    """

    user_codes: npt.NDArray[np.int32]
    item_codes: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]
    timestamps: npt.NDArray[np.int64] | None = None
    untimed: str | None = None
    notes: tuple[str, ...] = ()
    user_ids: npt.NDArray[Any]
    item_ids: npt.NDArray[Any]
    scale: RatingScale
    is_scale_found: bool = False
    is_implicit: bool = False
    features: ItemFeatures | None = None
    item_titles: npt.NDArray[np.str_] | None = None
    profiles: UserProfiles | None = None
    name: str = "ratings"
    synthetic: bool = False

    def __post_init__(self) -> None:
        self._freeze("user_codes", np.int32, self.n_ratings)
        self._freeze("item_codes", np.int32, self.n_ratings)
        self._freeze("values", np.float32, self.n_ratings)
        self._freeze("timestamps", np.int64, self.n_ratings)
        self._freeze("user_ids", None, self.n_users)
        self._freeze("item_ids", None, self.n_items)
        self._freeze("item_titles", None, self.n_items)
        self._check_codes()
        for known, size in ((self.features, self.n_items), (self.profiles, self.n_users)):
            if known is not None and len(known) != size:
                raise DataError(
                    f"{known.title} need one row per {known.kind}, {size}; got {len(known)}."
                )

    def _freeze(self, field: str, dtype: type[np.generic] | None, length: int) -> None:
        array = getattr(self, field)
        if array is None:
            return
        view = np.ascontiguousarray(array, dtype=dtype).view()
        if view.shape != (length,):
            raise DataError(f"Ratings.{field} must have shape ({length},); got {view.shape}.")
        view.flags.writeable = False
        object.__setattr__(self, field, view)

    def _check_codes(self) -> None:
        if self.n_ratings == 0:
            raise DataError("Ratings need at least one rating; got none.")
        for codes, size in ((self.user_codes, self.n_users), (self.item_codes, self.n_items)):
            if codes.min() < 0 or codes.max() >= size:
                raise DataError(f"Codes must be in [0, {size}); got {codes.min()}..{codes.max()}.")
        pairs = self.user_codes.astype(np.int64) * self.n_items + self.item_codes  # (n,)
        if np.any(pairs[1:] <= pairs[:-1]):
            raise DataError(
                "Ratings must be sorted by (user code, item code), each pair once. "
                "Use Ratings.from_frame, which sorts."
            )

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        scale: ScaleLike | None = None,
        features: FeaturesLike | None = None,
        duplicates: Duplicates = "refuse",
        implicit: bool = False,
        name: str = "frame",
        **options: Unpack[ReadOptions],
    ) -> Self:
        """Build ratings from a polars or pandas frame.

        Args:
            frame: Columns user_id, item_id, rating and, if wanted, timestamp, or other names that
                are known for them. Without ratings it is taken as implicit feedback.
            scale: The rating scale, as (1, 5) or (0.5, 5, 0.5); found in the ratings if not given.
            features: Item features, or a frame or file to make them from.
            duplicates: What to do with a repeated pair: refuse, keep the last, or average.
            implicit: Count every row as a 1 whatever its rating, and a repeated pair once.
            name: What to call the data.
            **options: Those of `ReadOptions`: columns, missing_values and more.
        """
        table = Table(to_polars(frame), name, cleaning=Cleaning.of(options))
        table = named(table, options.get("columns"))
        made = cls._from_table(table, scale, duplicates, implicit)
        return made._called(name, features, options)

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        scale: ScaleLike | None = None,
        features: FeaturesLike | None = None,
        duplicates: Duplicates = "refuse",
        implicit: bool = False,
        name: str | None = None,
        **written: Unpack[WrittenOptions],
    ) -> Self:
        """Build ratings from a file: text with separators, JSON or Parquet, compressed or not.

        How it is written is found, as far as `columns`, `separator`, `encoding` and `date_format`
        do not say it; see `WrittenOptions`.
        Files without a header hold user, item and, if there are more columns, rating and timestamp.
        The other arguments are those of `from_frame`.
        """
        made = cls._from_table(read_table(path, **written), scale, duplicates, implicit)
        return made._called(name or Path(path).stem, features, written)

    @classmethod
    def from_matrix(
        cls,
        matrix: Any,
        *,
        scale: ScaleLike | None = None,
        keep_zeros: bool = False,
        name: str = "matrix",
    ) -> Self:
        """Build ratings from a scipy sparse matrix of any format: rows are users, columns items.

        Ids are the numbers of rows and columns, from 0 on. Stored zeros are left out, with a
        warning: sums and slices leave such zeros behind, so that they seldom are ratings.

        Args:
            matrix: (users, items)
            scale: As `from_frame` takes it.
            keep_zeros: Take stored zeros for ratings of 0.
            name: What to call the data.
        """
        return cls.from_frame(frame_of_matrix(matrix, keep_zeros), scale=scale, name=name)

    @classmethod
    def _from_table(
        cls, table: Table, given: ScaleLike | None, duplicates: Duplicates, implicit: bool
    ) -> Self:
        scale = None if given is None else RatingScale.of(given)
        rows = read_rows([table], scale, implicit)
        notes = tell_doubts(table, rows, scale)
        if rows.is_implicit and duplicates == "refuse":
            duplicates = "last"  # whoever came back to an item is no contradiction
        columns = encode(rows.frames[0], duplicates)
        made = cls.from_columns(columns, scale=scale, name=table.label)
        made = made.as_implicit() if rows.is_implicit else made
        return replace(made, untimed=rows.untimed, notes=notes)

    def _called(self, name: str, features: FeaturesLike | None, options: ReadOptions) -> Self:
        return replace(self, name=name).described(features, options.get("feature_columns"))

    def described(self, features: FeaturesLike | None, columns: Sequence[str] | None) -> Self:
        """Return the same ratings, with item features where some are given; meant for loaders."""
        if features is not None:
            return self.with_features(features, columns)
        require_features(columns)
        return self

    @classmethod
    def from_columns(cls, columns: Columns, *, scale: RatingScale | None, name: str) -> Self:
        """Build ratings from encoded columns; meant for loaders."""
        return cls(
            user_codes=columns.user_codes,
            item_codes=columns.item_codes,
            values=columns.values,
            timestamps=columns.timestamps,
            user_ids=columns.user_ids,
            item_ids=columns.item_ids,
            scale=scale or RatingScale.found_in(columns.values),
            is_scale_found=scale is None,
            name=name,
        )

    @property
    def n_users(self) -> int:
        """How many users the vocabulary holds."""
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        """How many items the vocabulary holds."""
        return len(self.item_ids)

    @property
    def n_ratings(self) -> int:
        """How many ratings there are."""
        return len(self.values)

    def __len__(self) -> int:
        return self.n_ratings

    def __repr__(self) -> str:
        kind = "synthetic ratings" if self.synthetic else "ratings"
        return (
            f"<Ratings {self.name!r}: {self.n_ratings:,} {kind} {self.scale}, "
            f"{self.n_users:,} users, {self.n_items:,} items>"
        )

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the ratings, so that a cached result is never used for other ratings."""
        known = [self.user_codes, self.item_codes, self.values, self.timestamps]
        known += [self.user_ids, self.item_ids]
        known += [about.values for about in (self.features, self.profiles) if about is not None]
        digest = hashlib.sha256(repr((self.scale, self.is_scale_found)).encode())
        for column in known:
            digest.update(b"none" if column is None else column.tobytes())
        return digest.hexdigest()

    @cached_property
    def by_user(self) -> npt.NDArray[np.int64]:
        """Bounds of each user's ratings: user u has the columns' rows `[u]:[u + 1]` of this."""
        return bounds(self.user_codes, self.n_users)

    @property
    def rated_items(self) -> RatedItems:
        """The rated items of each user."""
        return RatedItems(self.by_user, self.item_codes)

    @property
    def has_features(self) -> bool:
        """Whether anything is known of the items."""
        return self.features is not None and len(self.features.names) > 0

    @cached_property
    def by_item(self) -> ItemIndex:
        """Where each item's ratings are."""
        order = np.argsort(self.item_codes, kind="stable").astype(np.int64, copy=False)
        order.flags.writeable = False
        return ItemIndex(bounds(self.item_codes, self.n_items), order)

    def user_code(self, user_id: int | str) -> int:
        """Return a user's code; an integer id may also be given as text."""
        return code_of(self.user_ids, user_id, "user", self.name)

    def item_code(self, item_id: int | str) -> int:
        """Return an item's code; an integer id may also be given as text."""
        return code_of(self.item_ids, item_id, "item", self.name)

    def select(self, keep: npt.NDArray[np.bool_]) -> Self:
        """Return the ratings where the mask `keep`, (n,), holds, with the same users and items."""
        if keep.dtype != np.bool_ or keep.shape != (self.n_ratings,):
            raise SettingsError(
                f"select needs a boolean mask of shape ({self.n_ratings},); "
                f"got {keep.dtype} of shape {keep.shape}."
            )
        return replace(
            self,
            user_codes=self.user_codes[keep],
            item_codes=self.item_codes[keep],
            values=self.values[keep],
            timestamps=None if self.timestamps is None else self.timestamps[keep],
        )

    def split(self, test: float = 0.2, seed: int = 0) -> tuple[Self, Self]:
        """Return a random (train, test) split with a fraction `test` of all ratings held out."""
        held_out = rng.stream(seed, "split").permutation(self.n_ratings)[: self._n_test(test)]
        return self.split_at(held_out)

    def split_by_time(self, test: float = 0.2) -> tuple[Self, Self]:
        """Return a (train, test) split whose test part is the latest fraction of all ratings.

        Ratings given in the same second are ordered by user and item, so the split is reproducible.
        """
        times = self.require_timestamps("A split by time")
        latest = np.argsort(times, kind="stable")[self.n_ratings - self._n_test(test) :]
        return self.split_at(latest)

    def require_timestamps(self, what: str) -> npt.NDArray[np.int64]:
        """Return the timestamps, (n,), or refuse `what` needs them and say why there are none."""
        if self.timestamps is not None:
            return self.timestamps
        why = f": {self.untimed}. Fix the line" if self.untimed else ". Use a random split"
        raise DataError(f"{what} needs timestamps and {self.name!r} has none{why}.")

    def _n_test(self, test: float) -> int:
        if not 0 < test < 1:
            raise SettingsError(f"The test fraction must be between 0 and 1; got {test}.")
        n_test = round(test * self.n_ratings)
        if n_test in (0, self.n_ratings):
            raise SettingsError(
                f"A test fraction of {test} puts {n_test} of {self.n_ratings} ratings into the "
                "test part and leaves one side empty. Choose another fraction or add ratings."
            )
        return n_test

    def split_at(self, held_out: npt.NDArray[Any]) -> tuple[Self, Self]:
        """Return (train, test) where the ratings at some positions, or of a mask, are held out.

        A scale that was found is found again, in the training part alone: nothing that is trained
        may depend on held-out ratings. The test part has that scale too; ratings off it stay.
        """
        is_test = np.zeros(self.n_ratings, dtype=np.bool_)
        is_test[held_out] = True
        train, test = self.select(~is_test), self.select(is_test)
        if not self.is_scale_found:
            return train, test
        scale = RatingScale.found_in(train.values)
        return replace(train, scale=scale), test.with_scale(scale)

    def with_scale(self, scale: ScaleLike) -> Self:
        """Return the same ratings on a scale, as (1, 5); those off it stay as they are."""
        return replace(self, scale=RatingScale.of(scale), is_scale_found=False)

    def as_implicit(self) -> Self:
        """Return implicit feedback: a 1 for whatever somebody rated, however."""
        ones = np.full(self.n_ratings, IMPLICIT_SCALE.max, dtype=np.float32)
        return replace(self.with_scale(IMPLICIT_SCALE), values=ones, is_implicit=True)

    def with_features(self, features: FeaturesLike, columns: Sequence[str] | None = None) -> Self:
        """Return the same ratings with item features, given ready-made or as a frame or file.

        A frame's `title` or `name` column, or one like it, becomes `item_titles`; it may be the
        only one.

        Args:
            features: Ready-made, or a frame or the path of a file.
            columns: Those to use of a frame or file; all if not given.
        """
        if isinstance(features, ItemFeatures):
            return replace(self, features=features)
        made, titles = read_features(features, self.item_ids, columns)
        return replace(
            self, features=made, item_titles=self.item_titles if titles is None else titles
        )

    def with_profiles(self, profiles: ProfilesLike) -> Self:
        """Return the same ratings with user profiles, given ready-made or as a frame or file.

        A frame has the column user_id and others; one called `name` is left out. Users without a
        row count as average.
        """
        if not isinstance(profiles, UserProfiles):
            profiles = UserProfiles.from_frame(frame_of(profiles, "user_id"), self.user_ids)
        return replace(self, profiles=profiles)

    def to_frame(self) -> pl.DataFrame:
        """Return a polars frame: user_id, item_id, rating and, if known, timestamp."""
        columns = {
            "user_id": self.user_ids[self.user_codes],
            "item_id": self.item_ids[self.item_codes],
            "rating": self.values,
        }
        if self.timestamps is not None:
            columns["timestamp"] = self.timestamps
        return pl.DataFrame(columns)
