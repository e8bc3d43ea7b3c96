"""What is probably wrong with ratings that can be read: one line each, with the remedy.

Every rule is about something that is seldom meant; docs/data.md lists them. Few rows tell nothing.
"""

from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np
import polars as pl

from fedmmf.arrays import Array
from fedmmf.data.checks import Rows
from fedmmf.data.frames import Table, tell
from fedmmf.data.names import ID_COLUMNS, QUANTITIES, plain_name
from fedmmf.data.scales import RatingScale
from fedmmf.data.values import WITH_UNIT

_MIN_ROWS = 20
_MAX_LEVELS, _WIDEST_SPAN = 10, 100  # of ratings that are whole numbers; ids and counts have more
_HEAP, _SMALL_HEAP, _TOWERS = 0.3, 0.1, 3.0  # shares of zeros; how often more than the next level
_SAME = 1e-6  # of two steps between ratings
_FEW = 0.01  # share of rows that are slips of the pen
_MOST = 0.9  # share of rows that say what a column is
_MIN_LEVELS = 3  # of the ratings that a strange one is strange among
_MIN_LETTERS = 10  # of ids that differ by capitals alone; shorter ones may by chance
_MIN_LETTERS_OF_MANY, _CHANCE = 4, 0.1  # where more than this share of all ids do
_NOBODY = (
    "nan",
    "none",
    "null",
    "<na>",
    "n/a",
    "nil",
    "undefined",
    "unknown",
    "anonymous",
    "guest",
)
_LARGEST_SHARE, _MIN_USERS = 0.2, 50  # of all rows that are one user's, among so many users
_FIRST_TIME, _MIN_TIME, _LAST_TIME = 86_400, 10**8, 4_102_444_800  # of 1970, 1973 and 2100
_SAY_COLUMNS = "say which column is which: --columns user=2,item=3,rating=4 (in Python columns=)"
_IN_FULL = r"^\d([.,]\d+)?[eE]\+\d+$"  # 9.78E+12, as a spreadsheet writes an ISBN


def tell_doubts(table: Table, rows: Rows, scale: RatingScale | None) -> tuple[str, ...]:
    """Log what is doubtful about a table's rows; return it after all that was told before."""
    frame = rows.frames[0]
    if frame.height < _MIN_ROWS:
        return rows.notes
    found = [line for name in ID_COLUMNS for line in _of_ids(frame[name])]
    if not table.has_header and frame["user_id"].n_unique() == frame.height:
        found += [f"every row has another user: if column 1 counts rows, {_SAY_COLUMNS}"]
    if rows.is_implicit:
        found += (*_of_sales(table), *_of_rated(table))
    elif scale is None:  # who gives a scale knows what is on it
        found += _of_ratings(frame["rating"])
    if "timestamp" in frame.columns:
        found += _of_times(frame["timestamp"])
    return (*rows.notes, *tell(table.label, *found))


def _of_sales(table: Table) -> Iterator[str]:
    """What people took back is in lists of purchases too."""
    for name in table.unused:
        if plain_name(name) in QUANTITIES:
            amounts = table.frame[name].cast(pl.Float64, strict=False)
            if n_back := int((amounts <= 0).sum()):
                yield (
                    f"{n_back:,} rows have a {name} of 0 or less, as returns do, and count as a 1 "
                    "too. Take them out of the file if they should not"
                )


def _of_rated(table: Table) -> Iterator[str]:
    """Ratings under a name that is not known."""
    for name in table.unused:
        column = table.frame[name]
        text = column.drop_nulls() if column.dtype == pl.String else pl.Series([], dtype=pl.String)
        is_rated = text.str.strip_chars().str.to_lowercase().str.contains(WITH_UNIT)
        if is_rated.sum() > _MOST * len(text):
            yield (
                f"{name} looks like ratings, such as {text[0]!r}. If it is: "
                f"--columns rating={name} (in Python columns={{'rating': {name!r}}})"
            )


def _of_ids(ids: pl.Series) -> Iterator[str]:
    who = ids.name.removesuffix("_id")
    distinct = ids.unique()
    yield from _of_nobody(ids, who)
    if distinct.dtype != pl.String:
        return
    short = distinct.filter(distinct.str.contains(_IN_FULL)).sort()
    if len(short):
        yield (
            f"{len(short):,} {who} ids such as {short[0]!r} were shortened by a spreadsheet, which "
            "makes one of many. Export the column as text"
        )
    yield from _alike(distinct, who)


def _of_nobody(ids: pl.Series, who: str) -> Iterator[str]:
    """Ids that stand for none: by their names, or a user whom a large part of all rows is of."""
    counts = ids.value_counts(sort=True).rename({ids.name: "id"})
    is_none = counts["id"].cast(pl.String).str.to_lowercase().is_in(pl.Series(_NOBODY).implode())
    if who == "user" and counts.height >= _MIN_USERS:
        is_none |= counts["count"] > _LARGEST_SHARE * len(ids)
    for one, count in counts.filter(is_none).head(3).iter_rows():
        yield (
            f"{count:,} rows ({count / len(ids):.0%}) have the {who} id {one!r}. If it stands for "
            "nobody in particular, take them out of the file"
        )


def _of_times(times: pl.Series) -> Iterator[str]:
    """Times of another unit, or that stand for none, where others are usual."""
    is_odd = (times < _FIRST_TIME) | (times >= _LAST_TIME)
    n_odd = int(is_odd.sum())
    if n_odd and not is_odd.all() and (times.filter(~is_odd) > _MIN_TIME).all():
        yield (
            f"{n_odd:,} times are of 1 January 1970 or after 2100, such as "
            f"{times.filter(is_odd)[0]}, and the others are not. A split by time takes them as "
            "they are: give all times the same unit, or take those rows out"
        )


def _alike(distinct: pl.Series, who: str) -> Iterator[str]:
    """Ids that differ, but hardly are meant to."""
    text = distinct.str.normalize("NFKC").str.strip_suffix(".0").str.strip_chars_start("0")
    small = text.str.to_lowercase()
    is_habit = small.n_unique() < (1 - _CHANCE) * text.n_unique()
    may_differ = text.str.len_chars() < (_MIN_LETTERS_OF_MANY if is_habit else _MIN_LETTERS)
    plain = text.zip_with(may_differ, small)
    frame = pl.DataFrame({"id": distinct, "plain": plain})
    same = frame.group_by("plain").agg(pl.col("id").sort())
    same = same.filter(pl.col("id").list.len() > 1).sort("plain")
    if same.height:
        n_ids, (one, two) = int(same["id"].list.len().sum()), same["id"][0].to_list()[:2]
        yield (
            f"{n_ids:,} {who} ids differ only by leading zeros, '.0' or capitals, such as {one!r} "
            f"and {two!r}, and count as different. Write them alike if they are the same"
        )


class Levels(NamedTuple):
    """Distinct values in order, and how often there is each."""

    values: Array  # (n_levels,)
    counts: Array  # (n_levels,)

    @classmethod
    def of(cls, column: pl.Series) -> Self:
        """Return the distinct values of a column."""
        found = column.alias("value").value_counts().sort("value")
        return cls(found["value"].to_numpy(), found["count"].to_numpy())

    def part(self, rows: slice) -> "Levels":
        """Return some of the levels."""
        return Levels(self.values[rows], self.counts[rows])

    def __str__(self) -> str:
        return f"{self.values[0]:g} to {self.values[-1]:g}"


def _of_ratings(ratings: pl.Series) -> Iterator[str]:
    levels = Levels.of(ratings)
    n_levels = len(levels.values)
    if n_levels == 1:
        yield (
            f"every rating is {levels.values[0]:g}, so that they say nothing. Count rows alone: "
            "--implicit (implicit=True)"
        )
    elif _are_like_ids(levels.values):
        yield (
            f"its ratings are {n_levels:,} whole numbers from {levels.values[0]:.0f} to "
            f"{levels.values[-1]:.0f}, as ids, times and counts are. Say which column is which "
            "(--columns user=1,item=2,rating=3; in Python columns=), or count rows alone "
            "(--implicit; implicit=True)"
        )
    else:
        yield from _strange_levels(levels)


def _are_like_ids(values: Array) -> bool:
    """Whether ratings are many whole numbers that lie far apart."""
    is_wide = values[-1] - values[0] > _WIDEST_SPAN and len(values) > _MAX_LEVELS
    return is_wide and not np.any(values % 1)


def _strange_levels(levels: Levels) -> Iterator[str]:
    """Values far from all others, a single negative one, and heaps of zeros."""
    low, high, n_all = levels.values[0], levels.values[-1], levels.counts.sum()
    strange, rest = _parted(levels)
    if strange:
        first = [*strange.items()][:3]
        said = ", ".join(f"{value:g} ({count:,} of {n_all:,} rows)" for value, count in first)
        yield (
            f"the scale is {levels} because of {said}, apart from the other ratings, {rest}. "
            f"{_remedy([*strange][:3], low, high)}"
        )
    share = rest.counts[0] / n_all
    is_tower = share >= _SMALL_HEAP and rest.counts[0] >= _TOWERS * rest.counts[1]
    if rest.values[0] == 0 and len(rest.values) > _MIN_LEVELS and (share >= _HEAP or is_tower):
        yield f"{share:.0%} of the ratings are 0, the lowest. {_remedy([0], low, high)}"


def doubtful_number(column: pl.Series) -> str:
    """What is doubtful about numbers of items or users: 0, -1 or 99 for one that is not known."""
    known = column.drop_nulls()
    if len(known) < _MIN_ROWS:
        return ""
    strange, rest = _parted(Levels.of(known))
    values = [value for value in strange if value <= 0 or set(f"{value:g}") == {"9"}]
    if not values:
        return ""
    return (
        f"the column {column.name} has {values[0]:g} in {strange[values[0]]:,} rows, far from the "
        f"others, {rest}. Leave it empty where it is not known"
    )


def _parted(levels: Levels) -> tuple[dict[float, int], Levels]:
    """How often there is each value that is strange, and the levels without them."""
    strange: dict[float, int] = {}
    n_all = int(levels.counts.sum())
    while (parts := _ends(levels, n_all)) is not None:
        few, levels = parts
        strange |= zip(few.values.tolist(), few.counts.tolist(), strict=True)
    return strange, levels


def _ends(levels: Levels, n_all: int) -> tuple[Levels, Levels] | None:
    """The values at an end that are strange, and the others; None: there are none."""
    if len(levels.values) <= _MIN_LEVELS:
        return None
    if levels.values[0] < 0 <= levels.values[1]:
        return levels.part(slice(0, 1)), levels.part(slice(1, None))
    gaps = np.diff(levels.values)
    at = int(gaps.argmax()) + 1
    sides = [levels.part(slice(0, at)), levels.part(slice(at, None))]
    few, rest = sorted(sides, key=lambda side: (len(side.values) > 1, side.counts.sum()))
    is_one, n_few, gap = len(few.values) == 1, few.counts.sum(), gaps[at - 1]
    if len(rest.values) < _MIN_LEVELS or not (is_one or n_few < _FEW * n_all):
        return None
    steps = np.diff(rest.values)
    is_grid = len(steps) >= _MIN_LEVELS and np.ptp(steps) < _SAME
    is_beyond_hole = is_one and n_few >= _MIN_ROWS and is_grid and gap > 2 * steps[0] - _SAME
    is_far = gap >= max(rest.values[-1] - rest.values[0], 3 * gaps.min())
    return (few, rest) if is_far or is_beyond_hole else None


def _remedy(values: list[float], low: float, high: float) -> str:
    flags = " ".join(f"--missing-value {value:g}" for value in values)
    return (
        f"If that stands for no rating: {flags}; if it is one: --scale {low:g}:{high:g} (in Python "
        "missing_values=, scale=)"
    )
