"""Files with something wrong in them: each is read rightly, warned of or refused, none silently."""

import polars as pl
from foreign import COMMA, DATED, PLAIN, ROWS, USUAL, Foreign, text, written


def rated(rating, rows=ROWS):
    """The plain file with other ratings, `rating(user, item, rating)`."""
    return text("user_id,item_id,rating", "{},{},{}", rows=[(*r[:2], rating(*r[:3])) for r in rows])


def timed(form, rows=ROWS):
    """The plain file with other times."""
    stamps = pl.from_epoch(pl.Series([row[3] for row in rows])).dt.strftime(form)
    changed = [(*row[:3], stamp) for row, stamp in zip(rows, stamps, strict=True)]
    return text("user_id,item_id,rating,date", rows=changed)


def is_unknown(user, item, _=None):
    return (user + 2 * item) % 5 < 3


def is_slip(user, item, _=None):
    return (user, item) == (2, 101)


KNOWN = [row for row in ROWS if not is_unknown(*row[:2])]
RIGHT = [row for row in ROWS if not is_slip(*row[:2])]
LABELS = ("very bad", "bad", "fair", "good", "very good")
BOOKS = [(u, i, r, f"Book {i}", 4.1) for u, i, r, _ in ROWS]
SOLD = [(536365 + n, i, "MUG", -1 if n == 5 else 3, u, "UK") for n, (u, i, *_) in enumerate(ROWS)]
EARLY = [(*row[:3], 1104537600 + 86400 * (row[0] % 12)) for row in ROWS]  # until 12 January
MIDDLE = "\n".join([USUAL, *PLAIN[:40], USUAL, *PLAIN[40:], ""]).encode()
LEFT_OUT = f"{len(ROWS) - len(KNOWN)} rows left out whose rating is"

FILES = [
    Foreign(
        "zeros for unknown, 60 % on 0..5",
        "zeros.csv",
        rated(lambda u, i, r: 0 if is_unknown(u, i) else r),
        outcome="rest",
        says=f"{LEFT_OUT} 0",
        times=False,
        option="--missing-value 0",
        said={"missing_values": [0]},
        rows=KNOWN,
    ),
    Foreign(
        "`-1` for unknown",
        "minus.csv",
        rated(lambda u, i, r: -1 if is_unknown(u, i) else r),
        outcome="rest",
        says=f"{LEFT_OUT} -1",
        times=False,
        option="--missing-value -1",
        said={"missing_values": ["-1"]},
        rows=KNOWN,
    ),
    Foreign(
        "a survey with 9 and 99 for no answer",
        "survey.csv",
        rated(lambda u, i, r: (9 if u % 2 else 99) if is_unknown(u, i) else r),
        outcome="rest",
        says=f"{LEFT_OUT} 9 or 99",
        times=False,
        option="--missing-value 9 --missing-value 99",
        said={"missing_values": [9, 99]},
        rows=KNOWN,
    ),
    Foreign(
        "`N/A` among ratings",
        "na.csv",
        rated(lambda u, i, r: "N/A" if is_unknown(u, i) else f"{r} stars"),
        outcome="rest",
        says=f"a rating such as '3 stars' is its number; {LEFT_OUT} N/A",
        times=False,
        option="--missing-value N/A",
        said={"missing_values": ["N/A"]},
        rows=KNOWN,
    ),
    Foreign(
        "one 44 among 1..5",
        "slip.csv",
        rated(lambda u, i, r: 44 if is_slip(u, i) else r),
        outcome="rest",
        says="1 rows left out whose rating is 44",
        times=False,
        option="--missing-value 44",
        said={"missing_values": [44]},
        rows=RIGHT,
    ),
    Foreign(
        "the same, scale known",
        "scale.csv",
        rated(lambda u, i, r: 44 if is_slip(u, i) else r),
        outcome="rest",
        times=False,
        option="--scale 1:5 --drop-bad-rows",
        said={"scale": (1, 5), "drop_bad_rows": True},
        warns=f"1 of {len(ROWS)} rows dropped: line 12 (rating 44.0 is outside the scale 1..5",
        rows=RIGHT,
    ),
    Foreign(
        "rows that are none: a second header, a total, too many fields",
        "rows.csv",
        MIDDLE + b"Total,,3.2,\n1,2,3,4,5,6\n",
        outcome="rest",
        option="--drop-bad-rows",
        said={"drop_bad_rows": True},
        warns=f"3 of {len(ROWS) + 3} rows dropped: line 42 (rating 'rating' where a finite number",
    ),
    Foreign(
        "JSON lines, cut off",
        "torn.jsonl",
        written("write_ndjson")[:-20],
        outcome="rest",
        option="--drop-bad-rows",
        said={"drop_bad_rows": True},
        warns=f"1 of {len(ROWS)} rows dropped: line {len(ROWS)} (no JSON object)",
        rows=ROWS[:-1],
    ),
    Foreign(
        "a time that is missing",
        "gap.csv",
        COMMA.replace(f"{PLAIN[3]}\n".encode(), f"{PLAIN[3].rsplit(',', 1)[0]},\n".encode()),
        outcome="rest",
        option="--drop-bad-rows",
        said={"drop_bad_rows": True},
        warns=f"1 of {len(ROWS)} rows dropped: line 5 (timestamp nothing where whole seconds",
        rows=[row for n, row in enumerate(ROWS) if n != 3],
    ),
    Foreign(
        "ids `007` and `7`",
        "agents.csv",
        text(USUAL, rows=[("007" if (r[0], r[1] % 2) == (7, 1) else r[0], *r[1:]) for r in ROWS]),
        outcome="warned",
        warns="2 user ids differ only by leading zeros, '.0' or capitals, such as '007' and '7'",
    ),
    Foreign(
        "ids `1.0` and `1`",
        "floats.csv",
        text(USUAL, rows=[(f"{r[0]}.0" if r[1] % 2 else r[0], *r[1:]) for r in ROWS]),
        outcome="warned",
        warns="24 user ids differ only by leading zeros, '.0' or capitals",
    ),
    Foreign(
        "an address in capitals",
        "mails.csv",
        text(
            USUAL,
            "{}@shop.example,{},{},{}",
            rows=[("aA"[r[1] % 2] + str(r[0]), *r[1:]) for r in ROWS],
        ),
        outcome="warned",
        warns="24 user ids differ only by leading zeros, '.0' or capitals",
    ),
    Foreign(
        "ISBNs from a spreadsheet: `9.78E+12`",
        "isbn.csv",
        text("user,isbn,rating", "{},9.{}E+12,{}"),
        outcome="warned",
        says="isbn is item_id",
        times=False,
        warns="13 item ids such as '9.101E+12' were shortened by a spreadsheet",
    ),
    Foreign(
        "users who are `nan`",
        "nobody.csv",
        text(USUAL, rows=[("nan" if r[0] == 5 else r[0], *r[1:]) for r in ROWS]),
        outcome="warned",
        warns="10 rows (9%) have the user id 'nan'. If it stands for nobody in particular",
    ),
    Foreign(
        "seconds and milliseconds",
        "units.csv",
        text(USUAL, rows=[(*r[:3], r[3] * (1 if r[0] % 2 else 1000)) for r in ROWS]),
        outcome="warned",
        warns="times are of 1 January 1970 or after 2100, such as 11",
    ),
    Foreign(
        "short ids in capitals: `U1000` and `u1000`",
        "capitals.csv",
        text(USUAL, rows=[(f"{'uU'[r[1] % 2]}10{r[0]:02d}", *r[1:]) for r in ROWS]),
        outcome="warned",
        warns="24 user ids differ only by leading zeros, '.0' or capitals, such as 'U10",
    ),
    Foreign(
        "`4 stars` in a column `review`",
        "reviews.csv",
        text("customer,book,review,created_at", "{},{},{} stars,{}"),
        outcome="implicit",
        says="every row counts as a 1",
        warns="review looks like ratings, such as '3 stars'. If it is: --columns rating=review",
    ),
    Foreign(
        "row numbers first, no header",
        "numbers.csv",
        text("", "{},{},{},{}", rows=[(n, *row[:3]) for n, row in enumerate(ROWS)]),
        times=False,
        option="--columns user=2,item=3,rating=4",
        said={"columns": {"user": "2", "item": "3", "rating": "4"}},
    ),
    Foreign(
        "every rating is 1",
        "ones.csv",
        rated(lambda u, i, r: 1),
        outcome="implicit",
        times=False,
        option="--implicit",
        said={"implicit": True},
    ),
    Foreign(
        "`4 stars`",
        "stars.csv",
        text("customer,book,stars,created_at", "{},{},{} stars,{}"),
        says="a rating such as '3 stars' is its number",
    ),
    Foreign(
        "`3/5`",
        "fractions.csv",
        text("client,sku,rating,ts", "{},{},{}/5,{}"),
        says="a rating such as '3/5' is its first number",
    ),
    Foreign(
        "`★★★☆☆`",
        "signs.csv",
        rated(lambda u, i, r: "★" * r + "☆" * (5 - r)),
        says="stars are counted",
        times=False,
    ),
    Foreign(
        "a survey: `4 - good`",
        "labels.csv",
        rated(lambda u, i, r: f"{r} - {LABELS[r - 1]}"),
        says="a rating such as '3 - fair' is its number",
        times=False,
    ),
    Foreign(
        "local dates: `04.12.1997 15:55`",
        "dots.csv",
        timed("%d.%m.%Y %H:%M"),
        says="date is timestamp; dates are %d.%m.%Y",
    ),
    Foreign(
        "`01/31/2005 12:00 AM`",
        "months.csv",
        timed("%m/%d/%Y %I:%M %p"),
        says="date is timestamp; dates are %m/%d/%Y",
    ),
    Foreign("`2005-01-31 00:00:00 UTC`", "utc.csv", timed("%Y-%m-%d %H:%M:%S UTC"), says="date is"),
    Foreign("`31-JAN-05`", "oracle.csv", timed("%d-%b-%y"), says="dates are %d-%b-%y"),
    Foreign("`31012005`", "packed.csv", timed("%d%m%Y"), says="dates are %d-%m-%Y"),
    Foreign(
        "`12/04/1997`, no day above 12",
        "order.txt",
        timed("%m/%d/%Y", EARLY),
        option="--date-format %m/%d/%Y",
        said={"date_format": "%m/%d/%Y"},
        says="date is timestamp",
        rows=EARLY,
    ),
    Foreign(
        "purchases: `customer_id,sku,qty,price,date`",
        "purchases.csv",
        text("customer_id,sku,qty,price,date", "{},{},{},9.99,{}", rows=DATED),
        outcome="implicit",
        says="no column rating among customer_id, sku, qty, price, date: every row counts as a 1",
    ),
    Foreign(
        "Online Retail: `StockCode`, returns with a negative `Quantity`",
        "retail.csv",
        text(
            "InvoiceNo,StockCode,Description,Quantity,CustomerID,Country",
            "{},{},{},{},{}.0,{}",
            rows=SOLD,
        ),
        outcome="implicit",
        says="no column rating among InvoiceNo, StockCode, Description, Quantity",
        times=False,
        warns="1 rows have a Quantity of 0 or less, as returns do",
    ),
    Foreign(
        "columns that nobody needs",
        "more.csv",
        text("User,Book Id,My Rating,Title,Average Rating", "{},{},{},{},{}", rows=BOOKS),
        says="My Rating is rating; not used: Title, Average Rating",
        times=False,
    ),
    Foreign(
        "Excel: `sep=;` first",
        "sep.csv",
        b"sep=;\r\n" + text(USUAL.replace(",", ";"), "{};{};{};{}", "\r\n"),
    ),
    Foreign(
        "Excel: a title above the header",
        "title.csv",
        b"Ratings 2024;;;\r\n\r\n" + text(USUAL.replace(",", ";"), "{};{};{};{}", "\r\n"),
        says="the header is in line 3; separated by ';'",
    ),
    Foreign(
        "pandas' index",
        "index.csv",
        text(f",{USUAL}", "{},{},{},{},{}", rows=[(n, *row) for n, row in enumerate(ROWS)]),
    ),
    Foreign(
        "`3/5` and `6/10` in one file",
        "mixed.csv",
        rated(lambda u, i, r: f"{r}/5" if u % 2 else f"{2 * r}/10"),
        outcome="Bring them to one scale",
    ),
    Foreign(
        "words: `good`, `bad`",
        "words.csv",
        rated(lambda u, i, r: LABELS[r - 1]),
        outcome="--columns rating=NAME",
    ),
    Foreign(
        "a survey, a column per question",
        "wide.csv",
        text("patient_id,q1,q2,q3,q4", "{},{},{},{},{}", rows=[(u, 1, 2, 3, 4) for u in range(30)]),
        outcome="write a row for each rating",
    ),
    Foreign(
        "mostly bad rows",
        "ruin.csv",
        COMMA + b"1,x\n" * 200,
        outcome="too many to drop",
        option="--drop-bad-rows",
        said={"drop_bad_rows": True},
    ),
]
