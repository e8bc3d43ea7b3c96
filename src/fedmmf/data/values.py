"""Convert ratings and times as people write them to numbers."""

from dataclasses import replace

import polars as pl

from fedmmf.data.frames import Table

_LIKED = ("true", "yes", "like", "liked", "up", "t", "y")
_DISLIKED = ("false", "no", "dislike", "disliked", "down", "f", "n")
_WORDS = dict.fromkeys(_LIKED, 1.0) | dict.fromkeys(_DISLIKED, 0.0)
_DATE_TYPES = (pl.Date, pl.Datetime)
_DATES = ("%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d")  # ISO 8601


def with_numbers(table: Table) -> Table:
    """The same table with numbers for likes and times; what cannot be read as a time is left out.

    Times matter to few; who needs them finds in `untimed` why there are none.
    """
    return _with_times(_with_ratings(table))


def _with_ratings(table: Table) -> Table:
    if "rating" not in table.frame.columns:
        return table
    ratings = table.frame["rating"]
    if ratings.dtype == pl.Boolean:
        return _noted(table, ratings.cast(pl.Float64), "true counts as 1, false as 0")
    if ratings.dtype != pl.String:
        return table
    text = ratings.str.strip_chars().replace("", None)
    if text.cast(pl.Float64, strict=False).null_count() == text.null_count():
        return table
    words = text.str.to_lowercase()
    if words.drop_nulls().is_in(list(_WORDS)).all():
        return _noted(table, words.replace_strict(_WORDS, default=None), _said_likes(words))
    if text.drop_nulls().str.contains(r"^[-+]?\d+([.,]\d+)?$").all():
        points = text.str.replace(",", ".", literal=True)
        return _noted(table, points, "a comma in a rating is a decimal point")
    return table


def _said_likes(words: pl.Series) -> str:
    found = sorted(words.drop_nulls().unique(), key=_WORDS.__getitem__, reverse=True)
    return ", ".join(f"{word} counts as {_WORDS[word]:g}" for word in found)


def _noted(table: Table, ratings: pl.Series, note: str) -> Table:
    frame = table.frame.with_columns(ratings.alias("rating"))
    return replace(table, frame=frame, notes=(*table.notes, note))


def _with_times(table: Table) -> Table:
    if "timestamp" not in table.frame.columns:
        return table
    times = table.frame["timestamp"]
    if isinstance(times.dtype, _DATE_TYPES):
        times = times.dt.epoch("s")
    elif times.dtype == pl.String:
        times = _seconds(times)
    if times.dtype.is_float():
        times = times.cast(pl.Int64, strict=False)  # what is not finite is no time
    unread = _first_unread(table, times)
    if unread is None:
        return replace(table, frame=table.frame.with_columns(times))
    why = f"{table.at(unread + table.first)}: {_shown(table, unread)}"
    note = f"no timestamps, because of {table.unit} {unread + table.first}"
    return replace(
        table,
        frame=table.frame.drop("timestamp"),
        notes=(*table.notes, f"{note} ({_shown(table, unread)})"),
        untimed=why,
    )


def _shown(table: Table, row: int) -> str:
    value = table.frame["timestamp"][row]
    found = "nothing" if value is None else repr(value)
    return f"timestamp {found} is neither seconds since 1970 nor a date such as 2005-01-31"


def _first_unread(table: Table, times: pl.Series) -> int | None:
    """The first row that has something, but no time; None: all have."""
    if not times.dtype.is_integer():
        return 0 if len(times) else None
    if times.null_count() == 0:
        return None
    rows = table.frame.select(
        is_blank=pl.all_horizontal(
            pl.all().cast(pl.String, strict=False).str.strip_chars().replace("", None).is_null()
        )
    )
    bad = (times.is_null() & ~rows["is_blank"]).arg_true()
    return int(bad[0]) if len(bad) else None


def _seconds(text: pl.Series) -> pl.Series:
    """Text as whole seconds since 1970; null where it is no time."""
    text = text.str.strip_chars()
    whole = text.cast(pl.Int64, strict=False)
    if whole.null_count() == text.null_count():
        return whole
    numbers = text.cast(pl.Float64, strict=False)
    numbers = numbers.set(~numbers.is_finite(), None).cast(pl.Int64, strict=False)
    iso = text.str.replace(" ", "T", literal=True).str.replace(r"[zZ]$", "+00:00")
    zoned = [
        iso.str.to_datetime(f"{form}%:z", strict=False, time_zone="UTC") for form in _DATES[:2]
    ]
    local = [iso.str.to_datetime(form, strict=False) for form in _DATES]
    dates = [*zoned, *(one.dt.replace_time_zone("UTC") for one in local)]
    return pl.select(pl.coalesce(whole, numbers, *(one.dt.epoch("s") for one in dates))).to_series()
