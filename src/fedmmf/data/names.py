"""Known names of the columns of ratings, here and in other tools."""

import re
from collections.abc import Iterable, Mapping

from fedmmf.errors import SettingsError

ID_COLUMNS = ("user_id", "item_id")
COLUMNS = (*ID_COLUMNS, "rating", "timestamp")

# By `plain_name`, the likeliest first: of two columns for one part the earlier name is taken.
KNOWN: dict[str, tuple[str, ...]] = {
    "user_id": ("userid", "user", "uid", "reviewerid", "customerid", "memberid", "visitorid"),
    "item_id": (
        *("itemid", "item", "iid", "movieid", "isbn", "bookid", "artistid", "asin", "parentasin"),
        *("productid", "businessid", "songid", "trackid", "gameid", "animeid", "movie"),
    ),
    "rating": ("rating", "bookrating", "score", "stars", "overall", "liked", "like", "weight"),
    "timestamp": ("timestamp", "unixtimestamp", "unixreviewtime", "time", "datetime", "date"),
}
_PART = {name: part for part, names in KNOWN.items() for name in names}


def plain_name(name: str) -> str:
    """A column's name as the table has it: `User-ID` and RecBole's `user_id:token` are `userid`."""
    return re.sub(r"[^a-z0-9]", "", name.split(":")[0].lower())


def is_known(name: str) -> bool:
    """Whether the table has a column's name."""
    return plain_name(name) in _PART


def known_columns(columns: Iterable[str], parts: Iterable[str] = COLUMNS) -> dict[str, str]:
    """Which column is which part of a rating, as far as names are known: part -> column."""
    plain: dict[str, str] = {}
    for column in columns:
        plain.setdefault(plain_name(column), column)
    found = {part: [plain[name] for name in KNOWN[part] if name in plain] for part in parts}
    exact = {part: part for part in parts if part in set(plain.values())}
    return {part: names[0] for part, names in found.items() if names} | exact


def said_parts(said: Mapping[str, str]) -> dict[str, str]:
    """Names that the caller gives columns, by part: `user` and `user_id` are one."""
    parts = {_PART.get(plain_name(part), ""): column for part, column in said.items()}
    if "" in parts or len(parts) < len(said):
        raise SettingsError(
            "columns are said once each, as user, item, rating or timestamp; got "
            f"{', '.join(said)}. Write user=User-ID,item=ISBN,rating=Book-Rating."
        )
    return parts
