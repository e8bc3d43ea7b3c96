"""Convert ratings and times as people write them to numbers."""

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from fedmmf.data.dates import Times, formatted, read_times
from fedmmf.data.frames import Table, placed
from fedmmf.errors import DataError

_LIKED = ("true", "yes", "like", "liked", "up", "t", "y")
_DISLIKED = ("false", "no", "dislike", "disliked", "down", "f", "n")
_WORDS = dict.fromkeys(_LIKED, 1.0) | dict.fromkeys(_DISLIKED, 0.0)
_DATE_TYPES = (pl.Date, pl.Datetime)
_NUMBER = r"([-+]?\d+(?:[.,]\d+)?)"
_UNIT = r"(?: ?(?:stars?|points?|pts?\.?|%|★|⭐|\*)| ?[-=:] ?\D+| ?\(\D+\))?"  # 4 stars, 4 - good
_SHARE = rf"^{_NUMBER} ?(?:/|out of|of) ?(\d+)(?: ?stars?)?$"
_SIGNS = r"^[★⭐*]+[☆]*$"
WITH_UNIT = rf"^{_NUMBER} ?stars?$|{_SHARE}|{_SIGNS}"
"""What nobody writes who means anything but a rating, in small letters: 4 stars, 3/5, ★★★."""
Reading = tuple[pl.Series, str]  # numbers, null where there is none, and what was assumed


def with_numbers(table: Table) -> Table:
    """The same rows with numbers for ratings and times; what cannot be read as a time is left out.

    Rows whose rating stands for none are left out too. Times matter to few; who needs them finds
    in `untimed` why there are none.
    """
    table = placed(table)
    n_rows = table.frame.height
    # Twice: "n/a" would hide that the others are numbers, and "0 stars" is no number before.
    table = _without_missing(_with_ratings(_without_missing(table)))
    if values := table.cleaning.missing_values:
        n_left_out = n_rows - table.frame.height
        table = table.noted(f"{n_left_out:,} rows left out whose rating is {' or '.join(values)}")
    return _with_times(table)


def _without_missing(table: Table) -> Table:
    """Leave out the rows whose rating stands for none."""
    values = table.cleaning.missing_values
    if not values:
        return table
    if "rating" not in table.frame.columns:
        raise DataError(
            f"{table.label} has no ratings that could be missing. Leave missing_values out, or say "
            "which column has them: columns={'rating': NAME}.",
            flags="--columns rating=NAME",
        )
    ratings = table.frame["rating"]
    numbers = pl.Series(values).cast(pl.Float64, strict=False).drop_nulls()
    is_missing = ratings.cast(pl.Float64, strict=False).is_in(numbers.implode())
    is_text = ratings.cast(pl.String).fill_null("").is_in(pl.Series(values).implode())
    return replace(table, frame=table.frame.filter(~(is_missing.fill_null(value=False) | is_text)))


def _with_ratings(table: Table) -> Table:
    if "rating" not in table.frame.columns:
        return table
    ratings = table.frame["rating"]
    if ratings.dtype == pl.Boolean:
        return _noted(table, ratings.cast(pl.Float64), "true counts as 1, false as 0")
    if ratings.dtype != pl.String:
        return table
    text = ratings.str.strip_chars().replace("", None)
    best: Reading = (text, "")
    n_best = -1
    for numbers, note in _readings(text, table):
        n_read = len(text) - numbers.null_count()
        if n_read == len(text) - text.null_count():
            return _noted(table, numbers, note)
        if n_read > n_best:
            best, n_best = (numbers, note), n_read
    return _noted(table, *best)


def _readings(text: pl.Series, table: Table) -> Iterator[Reading]:
    """Yield the ratings as each way of writing them would have it."""
    yield text.cast(pl.Float64, strict=False), ""
    words = text.str.to_lowercase()
    yield words.replace_strict(_WORDS, default=None, return_dtype=pl.Float64), _said_likes(words)
    yield _number(text, rf"^{_NUMBER}$"), "a comma in a rating is a decimal point"
    numbers = _number(words, rf"^{_NUMBER}{_UNIT}$")
    yield numbers, f"a rating such as {_example(text, numbers)} is its number"
    numbers = _shares(words, table)
    yield numbers, f"a rating such as {_example(text, numbers)} is its first number"
    signs = text.str.count_matches("[★⭐*]").cast(pl.Float64)
    yield signs.set(~text.str.contains(_SIGNS).fill_null(value=False), None), "stars are counted"


def _number(text: pl.Series, pattern: str) -> pl.Series:
    found = text.str.extract(pattern).str.replace(",", ".", literal=True)
    return found.cast(pl.Float64, strict=False)


def _shares(words: pl.Series, table: Table) -> pl.Series:
    """Numbers of ratings such as 3/5; they have to be out of the same number."""
    out_of = words.str.extract(_SHARE, 2).drop_nulls().unique(maintain_order=True)
    if len(out_of) > 1:
        raise DataError(
            f"{table.label} has ratings out of {out_of[0]} and out of {out_of[1]}. Bring them to "
            "one scale."
        )
    return _number(words, _SHARE)


def _example(text: pl.Series, numbers: pl.Series) -> str:
    """The first rating that was read, though it is no plain number."""
    is_read = numbers.is_not_null() & text.cast(pl.Float64, strict=False).is_null()
    return next(map(repr, text.filter(is_read)), "none")


def _said_likes(words: pl.Series) -> str:
    found = sorted(_WORDS.keys() & set(words.unique()), key=lambda word: (-_WORDS[word], word))
    return ", ".join(f"{word} counts as {_WORDS[word]:g}" for word in found)


def _noted(table: Table, ratings: pl.Series, note: str) -> Table:
    # Without a note they are numbers as text, and stay so: an error quotes what the file has.
    frame = table.frame.with_columns(ratings.alias("rating")) if note else table.frame
    return table.noted(note, frame)


def _with_times(table: Table) -> Table:
    if "timestamp" not in table.frame.columns:
        return _require_no_format(table)
    times, note, question = _times(table.frame["timestamp"], table.cleaning.date_format)
    unread = times.is_null().arg_true()
    is_dropped = table.cleaning.drop_bad_rows and 2 * len(unread) < len(times)
    if len(unread) == 0 or is_dropped:
        return table.noted(note, table.frame.with_columns(times))
    return _untimed(table, int(unread[0]), question)


def _require_no_format(table: Table) -> Table:
    if table.cleaning.date_format is None:
        return table
    raise DataError(
        f"{table.label} has no column of times for the date format. Say which it is: "
        "columns={'timestamp': NAME}.",
        flags="--columns timestamp=NAME",
    )


def _times(column: pl.Series, form: str | None) -> Times:
    """Whole seconds since 1970 of a column of any type; null where it has no time."""
    if isinstance(column.dtype, _DATE_TYPES):
        return Times(column.dt.epoch("s"))
    if form is not None:
        return Times(formatted(column.cast(pl.String), form))
    if column.dtype == pl.String:
        return read_times(column)
    if column.dtype.is_integer():
        return Times(column)
    if column.dtype.is_float():
        return Times(column.cast(pl.Int64, strict=False))  # what is not finite is no time
    return Times(pl.Series(column.name, [None] * len(column), dtype=pl.Int64))


def _untimed(table: Table, row: int, question: str) -> Table:
    """The table without times, because of one; refused where a format was said."""
    place, value = table.frame["place"][row], table.frame["timestamp"][row]
    found = "nothing" if value is None else repr(value)
    if form := table.cleaning.date_format:
        raise DataError(
            f"{table.at(place)}: timestamp {found} is not of the form {form!r}. Say another "
            "format, or drop the row.",
            flags="--date-format, --drop-bad-rows",
        )
    why = question or "is neither seconds since 1970 nor a date such as 2005-01-31"
    why = f"timestamp {found} {why}"
    remedy = "; give --date-format (date_format=)"
    if value is None:
        remedy = "; --drop-bad-rows drops such rows (drop_bad_rows=True)"
    untimed = table.noted(
        f"no timestamps, because of {table.unit} {place} ({why}{remedy})",
        table.frame.drop("timestamp"),
    )
    return replace(untimed, untimed=f"{table.at(place)}: {why}")
