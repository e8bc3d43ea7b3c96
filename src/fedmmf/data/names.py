"""Known names of the columns of ratings, here and in other tools."""

import re
from collections.abc import Iterable, Mapping

from fedmmf.errors import SettingsError

ID_COLUMNS = ("user_id", "item_id")
COLUMNS = (*ID_COLUMNS, "rating", "timestamp")

# By `plain_name`, the likeliest first: of two columns for one part the earlier name is taken.
_PEOPLE = (
    *("user", "reviewer", "customer", "member", "visitor", "client", "buyer", "reader"),
    *("subscriber", "account", "patient", "respondent", "participant"),
)
_THINGS = (
    *("movie", "book", "artist", "product", "business", "song", "track", "game", "anime"),
    *("article", "film", "video", "recipe", "joke", "course", "app", "beer", "wine"),
    *("restaurant", "venue", "hotel", "podcast"),
)
_EVENTS = (
    *("created", "rated", "reviewed", "ordered", "purchased", "bought", "updated", "added"),
    *("watched", "played", "listened", "submitted", "event", "review", "rating", "order"),
    *("invoice", "purchase", "transaction", "sale", "visit"),
)
KNOWN: dict[str, tuple[str, ...]] = {
    "user_id": (
        *("userid", "user", "uid", "reviewerid", "customerid", "memberid", "visitorid"),
        *(f"{person}{end}" for end in ("id", "number", "") for person in _PEOPLE),
        "username",
    ),
    "item_id": (
        *("itemid", "item", "iid", "movieid", "isbn", "bookid", "artistid", "asin", "parentasin"),
        *(f"{thing}id" for thing in _THINGS),
        *("sku", "skuid", "isbn13", "ean", "gtin", "stockcode", "productcode", "itemcode"),
        *(*_THINGS, "title", "booktitle", "movietitle"),  # bare names last: they may be titles
    ),
    "rating": (
        *("rating", "bookrating", "score", "stars", "overall", "liked", "like", "weight"),
        *("myrating", "userrating", "starrating", "ratings", "ratingvalue", "ratingscore"),
        *("reviewrating", "reviewscore", "reviewoverall"),
    ),
    "timestamp": (
        *("timestamp", "unixtimestamp", "unixreviewtime", "time", "datetime", "date", "ts"),
        *(f"{event}{end}" for end in ("at", "on", "time", "date") for event in _EVENTS),
        *("created", "dateadded", "daterated"),
    ),
}
_PART = {name: part for part, names in KNOWN.items() for name in names}
_TITLES = (
    *("title", "name"),
    *(f"{thing}{end}" for end in ("title", "name") for thing in ("item", *_THINGS)),
    *("primarytitle", "originaltitle"),
)
QUANTITIES = {"qty", "quantity", "units"}
SALES = QUANTITIES | {"price", "unitprice", "amount", "revenue", "invoiceno", "orderid"}
"""Names of columns that purchases have and ratings have not."""


def plain_name(name: str) -> str:
    """A column's name as the table has it: `User-ID` and RecBole's `user_id:token` are `userid`."""
    return re.sub(r"[^a-z0-9]", "", name.split(":")[0].lower())


def is_known(name: str) -> bool:
    """Whether the table has a column's name."""
    return plain_name(name) in _PART


def title_columns(columns: Iterable[str]) -> list[str]:
    """Columns that say what an item is called, the likeliest first; else its description."""
    plain = {plain_name(column): column for column in columns if column != "item_id"}
    found = [plain[name] for name in _TITLES if name in plain]
    return found or [plain[name] for name in ("description",) if name in plain]


def is_row_number(name: str) -> bool:
    """Whether a column only counts rows, as pandas writes its index."""
    return plain_name(name) in ("", "index", "rownumber", "rowid") or name.startswith("Unnamed: ")


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
