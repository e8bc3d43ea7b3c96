"""Files of ratings as others write them, with what has to happen to each."""

import bz2
import gzip
import io
import json
import lzma
import zipfile
from dataclasses import dataclass, field

import polars as pl

USUAL = "user_id,item_id,rating,timestamp"
N_USERS, N_ITEMS = 12, 13
ROWS = [
    (user, 100 + item, 1 + (user * item + item) % 5, 1104537600 + 86400 * ((7 * user + item) % 50))
    for user in range(1, N_USERS + 1)
    for item in range(1, N_ITEMS + 1)
    if (user + item) % 4
]
PLAIN = [*map(",".join, [map(str, row) for row in ROWS])]


def text(header, form="{},{},{},{}", end="\n", rows=ROWS):
    """Lines of a file: a header, and rows in a form."""
    lines = [header] if header else []
    return "".join(line + end for line in [*lines, *(form.format(*row) for row in rows)]).encode()


def day(seconds):
    return pl.from_epoch(pl.Series([seconds])).dt.strftime("%Y-%m-%d").item()


def archive(**members):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as opened:
        for name, content in members.items():
            opened.writestr(name.replace("__", "."), content)
    return made.getvalue()


def written(method, **more):
    """What polars writes."""
    made = io.BytesIO()
    frame = pl.DataFrame(ROWS, USUAL.split(","), orient="row")
    getattr(frame, method)(made, **more)
    return made.getvalue()


LIKES = [(*row[:2], row[2] > 3, row[3]) for row in ROWS]
DATED = [(*row[:3], day(row[3])) for row in ROWS]
COMMA = text(USUAL)
BOOKS = text('"User-ID";"ISBN";"Book-Rating"', '"{}";"{}";"{}"', "\r\n")
OBJECTS = [dict(zip(USUAL.split(","), row, strict=True)) for row in ROWS]
NAMED = {"user": "Käufer", "item": "Ware", "rating": "Note"}


@dataclass(frozen=True)
class Foreign:
    """A file, and what happens to it.

    Attributes:
        what: in words, for the page.
        file: its name.
        content: its bytes.
        outcome: `reads` (the plain file's ratings), `likes` (1 and 0), `implicit` (ones), `rest`
            (those of the rows that are left), `warned` (as it is written), or the fix that the one
            error names.
        says: part of the one line of assumptions; empty: there is no line.
        warns: part of the one line after it; empty: there is none.
        times: whether timestamps are read.
        option: what has to be said, in words of the command line; the outcome is with it.
        said: the same in Python.
    """

    what: str
    file: str
    content: bytes
    outcome: str = "reads"
    says: str = ""
    times: bool = True
    option: str = ""
    said: dict = field(default_factory=dict)
    warns: str = ""
    rows: list | None = None  # that it has to give, where they are not those of the plain file


FILES = [
    Foreign("comma-separated, our names", "plain.csv", COMMA),
    Foreign(
        "Book-Crossing: `;`, quotes, CRLF, `User-ID;ISBN;Book-Rating`",
        "BX-Book-Ratings.csv",
        BOOKS,
        says="separated by ';'; ISBN is item_id; Book-Rating is rating",
        times=False,
    ),
    Foreign(
        "the same with a letter in latin-1",
        "BX-latin.csv",
        BOOKS.replace(b'"1";', '"Jos\u00e9";'.encode("latin-1")),
        outcome="reads José",
        says="not UTF-8, so read as windows-1252; separated by ';'",
        times=False,
    ),
    Foreign(
        "latin-1 far down, after 64 kB",
        "late.csv",
        text(USUAL, "{},{},{},{}" + " " * 900).replace(b"\n12,", "\nJos\u00e9,".encode("latin-1")),
        outcome="reads José",
        says="not UTF-8, so read as windows-1252",
    ),
    Foreign(
        "MovieLens latest: `userId,movieId,rating,timestamp`",
        "ratings.csv",
        text("userId,movieId,rating,timestamp"),
        says="movieId is item_id",
    ),
    Foreign(
        "MovieLens 100K: tabs, no header",
        "u.data",
        text("", "{}\t{}\t{}\t{}"),
        says="no header, so columns are user_id, item_id, rating, timestamp",
    ),
    Foreign(
        "MovieLens 1M: `::`, no header", "ratings.dat", text("", "{}::{}::{}::{}"), says="no header"
    ),
    Foreign(
        "LensKit: `user,item,rating,timestamp`",
        "lenskit.csv",
        text("user,item,rating,timestamp"),
        says="user is user_id; item is item_id",
    ),
    Foreign(
        "Surprise: `user item rating timestamp`, spaces",
        "surprise.txt",
        text("user item rating timestamp", "{} {}  {} {}"),
        says="separated by spaces",
    ),
    Foreign(
        "Surprise: `uid,iid,rating`",
        "uid.csv",
        text("uid,iid,rating", "{},{},{}"),
        says="uid is user_id; iid is item_id",
        times=False,
    ),
    Foreign(
        "RecBole: `user_id:token item_id:token rating:float timestamp:float`, tabs",
        "ml.inter",
        text("user_id:token\titem_id:token\trating:float\ttimestamp:float", "{}\t{}\t{}\t{}"),
    ),
    Foreign(
        "Amazon: `asin,reviewerID,overall,unixReviewTime` in another order",
        "amazon.csv",
        text("asin,reviewerID,overall,unixReviewTime", "{1},{0},{2},{3}"),
        says="reviewerID is user_id; asin is item_id; overall is rating",
    ),
    Foreign(
        "capitals and padding in the header",
        "caps.csv",
        text(" USER_ID , Item ID, Rating ,TimeStamp"),
    ),
    Foreign(
        "pipes between fields",
        "pipes.txt",
        text(USUAL.replace(",", "|"), "{}|{}|{}|{}"),
        says="separated by '|'",
    ),
    Foreign(
        "quoted fields and CRLF",
        "quoted.csv",
        text('"user_id","item_id","rating","timestamp"', '"{}","{}","{}","{}"', "\r\n"),
    ),
    Foreign("no header, commas", "bare.csv", text(""), says="no header, so columns are user_id"),
    Foreign(
        "no header, three columns",
        "three.csv",
        text("", "{},{},{}"),
        says="no header, so columns are user_id, item_id, rating",
        times=False,
    ),
    Foreign(
        "no header, in another order",
        "order.csv",
        text("", "{1},{2},{0},{3}"),
        option="--columns user=3,item=1,rating=2,timestamp=4",
        said={"columns": {"user": "3", "item": "1", "rating": "2", "timestamp": "4"}},
    ),
    Foreign(
        "Excel: UTF-8 with a mark, `;`",
        "excel.csv",
        b"\xef\xbb\xbf" + text(USUAL.replace(",", ";"), "{};{};{};{}", "\r\n"),
        says="separated by ';'",
    ),
    Foreign(
        "Excel: UTF-16, tabs",
        "unicode.txt",
        text(USUAL.replace(",", "\t"), "{}\t{}\t{}\t{}", "\r\n").decode().encode("utf-16"),
    ),
    Foreign(
        "UTF-16 without a mark",
        "unmarked.csv",
        COMMA.decode().encode("utf-16-le"),
        option="--encoding utf-16-le",
        said={"encoding": "utf-16-le"},
    ),
    Foreign(
        "decimal commas: `4,0`",
        "comma.csv",
        text(USUAL.replace(",", ";"), "{};{};{},0;{}"),
        says="a comma in a rating is a decimal point",
    ),
    Foreign(
        "an odd separator: `1 ~ 101 ~ 3`",
        "odd.txt",
        text(USUAL.replace(",", "~"), "{}~{}~{}~{}"),
        option="--separator '~'",
        said={"separator": "~"},
    ),
    Foreign(
        "column names that nobody knows",
        "names.csv",
        text("Käufer,Ware,Note", "{},{},{}"),
        times=False,
        option="--columns user=Käufer,item=Ware,rating=Note",
        said={"columns": NAMED},
    ),
    Foreign("gzip", "ratings.csv.gz", gzip.compress(COMMA)),
    Foreign("bzip2", "ratings.csv.bz2", bz2.compress(COMMA)),
    Foreign("xz", "ratings.csv.xz", lzma.compress(COMMA)),
    Foreign("zip of one file", "one.zip", archive(a__csv=COMMA)),
    Foreign(
        "zip of several, one of them called ratings",
        "ml-latest.zip",
        archive(links__csv=b"1,2", ratings__csv=COMMA, tags__csv=b"3,4"),
    ),
    Foreign("Zstandard", "ratings.csv.zst", written("write_csv", compression="zstd")),
    Foreign("Parquet, as `.parquet` or `.pq`", "ratings.pq", written("write_parquet")),
    Foreign("JSON lines", "ratings.jsonl", written("write_ndjson")),
    Foreign("JSON, a list of objects", "ratings.json", json.dumps(OBJECTS).encode()),
    Foreign("ISO dates: `2005-01-31`", "dates.csv", text(USUAL, rows=DATED)),
    Foreign(
        "ISO times: `2005-01-31T00:00:00Z`",
        "times.csv",
        text(USUAL, "{},{},{},{}T00:00:00Z", rows=DATED),
    ),
    Foreign(
        "times that are none: `noon`",
        "noon.csv",
        text(USUAL, "{},{},{},noon"),
        says="no timestamps, because of line 2 (timestamp 'noon' is neither",
        times=False,
    ),
    Foreign(
        "booleans: `True`, `False`",
        "bool.csv",
        text(USUAL, rows=LIKES),
        outcome="likes",
        says="true counts as 1, false counts as 0",
    ),
    Foreign(
        "`like`, `dislike`",
        "like.csv",
        text(USUAL, rows=LIKES).replace(b"True", b"like").replace(b"False", b"dislike"),
        outcome="likes",
        says="like counts as 1, dislike counts as 0",
    ),
    Foreign(
        "no ratings: `user_id,item_id`",
        "log.csv",
        text("user_id,item_id", "{},{}"),
        outcome="implicit",
        says="every row counts as a 1",
        times=False,
    ),
    Foreign(
        "play counts for ratings",
        "plays.csv",
        text(USUAL, "{0},{1},{3},{3}"),
        outcome="implicit",
        option="--implicit",
        said={"implicit": True},
    ),
    Foreign(
        "Excel workbook",
        "book.xlsx",
        archive(**{"[Content_Types]__xml": "", "xl/a": ""}),
        outcome="Save it as CSV",
    ),
    Foreign(
        "zip of several files",
        "several.zip",
        archive(a__csv=b"1,2", b__csv=COMMA),
        outcome="Unpack it",
    ),
    Foreign(
        "a line with too many fields",
        "ragged.csv",
        COMMA + b"1,2,3,4,5,6\n",
        outcome="Fix the line",
    ),
    Foreign(
        "a rating that is none",
        "bad.csv",
        COMMA + b"1,200,so-so,1\n",
        outcome="Fix or drop the row",
    ),
    Foreign(
        "JSON that is cut off", "cut.jsonl", written("write_ndjson")[:-20], outcome="Fix the line"
    ),
    Foreign(
        "JSON of something else",
        "nested.json",
        json.dumps({"data": OBJECTS * 30}).encode(),
        outcome="--columns user=NAME,item=NAME",
    ),
    Foreign(
        "a picture",
        "picture.png",
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(99),
        outcome="Save it as CSV",
    ),
    Foreign(
        "a compressed file that is cut off",
        "cut.csv.gz",
        gzip.compress(COMMA)[:-9],
        outcome="pack it again",
    ),
]
