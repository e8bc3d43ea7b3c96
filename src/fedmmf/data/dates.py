"""Read times as people write them: seconds since 1970, ISO 8601, local dates.

Polars' own search for a format takes 12/04/1997 for 12 April. Here the whole column decides whether
days or months come first, and where it does not, nobody guesses.
"""

from typing import NamedTuple

import polars as pl

from fedmmf.errors import SettingsError

_ISO = ("%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d")
_LOCAL = (
    r"^(?<a>\d{1,4})(?<mark>[./-])(?<b>\d{1,2})(?<again>[./-])(?<c>\d{2,4})"
    r"(?:(?:[tT]|,? +)(?<hour>\d{1,2}):(?<minute>\d\d)(?::(?<second>\d\d))?(?:[.,]\d+)?"
    r"(?: ?(?<half>[aApP])\.?[mM]\.?)?)?$"
)
_WITH_NAMES = ("%d-%b-%y", "%d %b %y", "%d-%b-%Y", "%d %b %Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y")
_OTHERS = ("%m %d, %Y", "%a %b %d %H:%M:%S %z %Y")  # as in Amazon's reviews, and Twitter's
_CLOCK = ("hour", "minute", "second")
_TIMES = ("", " %H:%M", " %H:%M:%S")
_FIRST_YEAR = 1000
_PACKED = r"^(\d\d)(\d\d)((?:19|20)\d\d)$"  # no number of seconds: days would sort before years
_SAMPLE = 100  # rows by which one of many formats is chosen


class Times(NamedTuple):
    """Seconds since 1970, null where there is no time, with what was assumed or is to be asked."""

    seconds: pl.Series  # (n,) Int64
    note: str = ""
    question: str = ""


def read_times(text: pl.Series) -> Times:
    """Read times as far as they can be read without a guess."""
    text = _with_marks(text.str.strip_chars())
    seconds = _usual(text)
    if seconds.null_count() == text.null_count():
        return Times(seconds)
    rest = text.set(seconds.is_not_null(), None)
    local = _local(rest)
    if local.seconds.null_count() == len(rest) and not local.question:
        local = _by_known_format(rest)
    return local._replace(seconds=pl.select(pl.coalesce(seconds, local.seconds)).to_series())


def _with_marks(text: pl.Series) -> pl.Series:
    """Dates such as 31012005 as 31-01-2005; other columns, as a few rows tell, as they are."""
    some_and_all = (text.head(_SAMPLE), text)
    is_packed = all(rows.str.zfill(8).str.contains(_PACKED).all() for rows in some_and_all)
    return text.str.zfill(8).str.replace(_PACKED, "$1-$2-$3") if is_packed else text


def formatted(text: pl.Series, form: str) -> pl.Series:
    """Seconds since 1970 of times in one format; null where it is another. (n,)."""
    try:
        found = text.str.strip_chars().str.to_datetime(form, strict=False, time_unit="ms")
    except (pl.exceptions.PolarsError, ValueError) as error:
        raise SettingsError(
            f"{form!r} is no date format: {error}. Write such as %d/%m/%Y."
        ) from None
    return _epoch(found)


def _usual(text: pl.Series) -> pl.Series:
    """Whole or other numbers of seconds, and ISO 8601."""
    whole = text.cast(pl.Int64, strict=False)
    if whole.null_count() == text.null_count():
        return whole
    numbers = text.cast(pl.Float64, strict=False)
    numbers = numbers.set(~numbers.is_finite(), None).cast(pl.Int64, strict=False)
    iso = text.str.replace(r" ?([zZ]|UTC|GMT)$", "+00:00").str.replace(" ", "T", literal=True)
    iso = iso.str.replace(r" ?([-+]\d\d:?\d\d)$", "$1")
    zoned = [iso.str.to_datetime(f"{form}%#z", strict=False, time_zone="UTC") for form in _ISO[:2]]
    local = [iso.str.to_datetime(form, strict=False) for form in _ISO]
    dates = [*zoned, *(one.dt.replace_time_zone("UTC") for one in local)]
    return pl.select(pl.coalesce(whole, numbers, *map(_epoch, dates))).to_series()


def _epoch(dates: pl.Series) -> pl.Series:
    """Seconds since 1970; null where %Y took a year of two digits for one of antiquity."""
    return dates.set(dates.dt.year() < _FIRST_YEAR, None).dt.epoch("s")


def _local(text: pl.Series) -> Times:
    """Dates in three numbers, such as 04.12.1997 15:55 and 4/12/97 3:55 PM."""
    parts = text.str.extract_groups(_LOCAL).struct.unnest()
    found = parts.drop_nulls("a")
    nothing = Times(pl.Series([None] * len(text), dtype=pl.Int64))
    marks = pl.concat([found["mark"], found["again"]]).unique()
    if len(marks) != 1:
        return nothing
    order = _order(found, str(marks[0]))
    if order is None:
        return nothing
    form, question = order
    if question:
        return nothing._replace(question=question)
    dates = pl.select(pl.concat_str(parts["a"], parts["b"], parts["c"], separator="-")).to_series()
    days = dates.str.to_date(form, strict=False).cast(pl.Datetime("ms")).dt.epoch("s")
    shown = form.replace("-", str(marks[0]))
    return Times(days + _seconds_of_day(parts), note=f"dates are {shown}")


def _order(found: pl.DataFrame, mark: str) -> tuple[str, str] | None:
    """The format of dates, or the question which it is; None: there is no such format."""
    widths = {name: set(found[name].str.len_chars()) for name in "ac"}
    first, second = (int(found[name].cast(pl.Int64).max()) for name in "ab")  # type: ignore[arg-type]
    if widths["a"] == {4} or (widths["c"] == {2} and first > 31):
        return ("%Y-%m-%d" if widths["a"] == {4} else "%y-%m-%d"), ""
    if widths["a"] & {3, 4} or widths["c"] not in ({2}, {4}):
        return None
    year = "%Y" if widths["c"] == {4} else "%y"
    days_first, months_first = f"%d-%m-{year}", f"%m-%d-{year}"
    if first > 12 and second > 12:
        return "", "is in a column that has days first and months first"
    if first > 12 or (second <= 12 and mark == "."):  # nobody writes months first with dots
        return days_first, ""
    if second > 12:
        return months_first, ""
    forms = " or ".join(form.replace("-", mark) for form in (days_first, months_first))
    return "", f"may begin with the day or with the month ({forms})"


def _seconds_of_day(parts: pl.DataFrame) -> pl.Series:
    hour, minute, second = (pl.col(name).cast(pl.Int64).fill_null(0) for name in _CLOCK)
    is_after_noon = pl.col("half").str.to_lowercase() == "p"
    hour = pl.when(pl.col("half").is_null()).then(hour).otherwise(hour % 12 + 12 * is_after_noon)
    is_time = (hour < 24) & (minute < 60) & (second < 61)
    return parts.select(pl.when(is_time).then(hour * 3600 + minute * 60 + second)).to_series()


def _by_known_format(text: pl.Series) -> Times:
    """Dates with names of months, and a few others."""
    sample = text.drop_nulls().head(_SAMPLE)
    forms = [date + time for date in _WITH_NAMES for time in _TIMES]
    for form in (*forms, *_OTHERS):
        if len(sample) and formatted(sample, form).null_count() == 0:
            return Times(formatted(text, form), note=f"dates are {form}")
    return Times(pl.Series([None] * len(text), dtype=pl.Int64))
