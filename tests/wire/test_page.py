"""docs/wire.md says what the code does: kinds, fields, encodings, inner messages."""

import re
from pathlib import Path

import pytest
from wire_samples import MESSAGES, by_class

from fedmmf import wire
from fedmmf.secagg import LARGEST_COHORT, messages
from fedmmf.solvers import SOLVERS
from fedmmf.wire import frames
from fedmmf.wire.messages import MOST_FACTORS, MOST_WORDS

PAGE = (Path(__file__).parents[2] / "docs" / "wire.md").read_text()


def section(title, text=PAGE):
    """What is between a heading and the next."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", text, re.DOTALL | re.MULTILINE)
    assert found, f"docs/wire.md has no section {title!r}"
    return found[1]


def rows(text, *columns):
    """Cells of the table whose header begins with these columns, without their backticks."""
    head = re.escape("| " + " | ".join(columns))
    table = re.search(rf"^{head}.*\n\|[-|]+\|\n((?:\|.*\n)*)", text, re.MULTILINE)
    if table is None:
        return []
    lines = table[1].splitlines()
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("cls", **by_class)
def test_the_fields_of_every_message_are_on_the_page(cls):
    text = section(cls.__name__)
    shown = [(name, encoding) for name, encoding, _ in rows(text, "field", "encoding", "meaning")]
    assert shown == [(name, field.words) for name, field in cls.fields().items()]
    assert ("No fields." in text) == (not shown)


def test_the_page_has_no_message_that_does_not_exist():
    chapter = PAGE[PAGE.index("\n## Messages\n") : PAGE.index("\n## The catalogue\n")]
    assert re.findall(r"^### (\w+)$", chapter, re.MULTILINE) == [cls.__name__ for cls in MESSAGES]


def test_a_field_that_is_not_on_the_page_would_be_noticed():
    text = section("Joined")
    assert len(rows(text, "field", "encoding", "meaning")) == 3
    with pytest.raises(AssertionError, match="no section 'Foo'"):
        section("Foo")


def test_kinds_are_on_the_page():
    shown = [
        (int(number), kind, name.strip("`"))
        for number, kind, name, *_ in rows(section("Kinds"), "number", "kind", "message")
    ]
    names = {cls.kind: cls.__name__ for cls in MESSAGES}
    assert shown == [(int(kind), kind.name, names[kind]) for kind in wire.Kind]


def test_publications_are_on_the_page():
    table = rows(section("Kinds"), "number", "kind", "message", "goes")
    published = {row[2] for row in table if row[3].startswith("published")}
    assert published == {cls.__name__ for cls in wire.PUBLICATIONS} | {"Sealed"}


def test_every_encoding_is_on_the_page():
    shown = {row[0].replace("*", "") for row in rows(section("Frames"), "encoding", "bytes")}
    used = {field.words for cls in MESSAGES for field in cls.fields().values()}
    assert shown == {re.sub(r"^\d+ bytes$", "n bytes", words) for words in used}


def test_inner_messages_are_on_the_page():
    classes = [cls for cls in vars(messages).values() if hasattr(cls, "kind")]
    shown = [(int(row[0]), row[1]) for row in rows(PAGE, "inner kind", "message")]
    assert shown == sorted((cls.kind, cls.__name__) for cls in classes)


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("| 1 | version: {} |", frames.VERSION),
        ("uint32 length up to {}, then UTF-8", frames.MOST_TEXT),
        ("no columns, or more than {:,} |", frames.MOST_COLUMNS),
        ("k, 1 to {} |", MOST_FACTORS),
        ("at most {} code points", MOST_WORDS),
        ("1 to {:,}; parties are numbered", LARGEST_COHORT),
        ("table of boxes ({}), by receiver", messages.BOX_BYTES),
    ],
)
def test_numbers_on_the_page_are_those_of_the_code(words, number):
    assert words.format(number) in PAGE


@pytest.mark.parametrize("name", ["sgd", "vb"])
def test_what_solvers_declare_is_on_the_page(name):
    solver, column = SOLVERS[name], {"sgd": 1, "vb": 2}[name]
    shown = {
        row[0]: row[column].strip("`") for row in rows(PAGE, "what it declares", "`sgd`", "`vb`")
    }
    assert shown["ring of secure sums"] == solver.ring
    spelled = {"k (k": "k * (k", "4 span": "4 * span", " max(": " * max(", "^": "**"}
    for span in (0.5, 1.0, 4.0, 10.0):
        bounds = solver.bounds(span)
        for row, bound in (("row bound", bounds.row), ("total bound", bounds.total)):
            assert computed(shown[row], spelled, span=span) == bound
    for k in (1, 2, 7):
        assert computed(shown["width"], spelled, k=k) == solver.width(k)


def computed(formula, spelled, **names):
    """The value of a formula as the page writes it."""
    for shown, python in spelled.items():
        formula = formula.replace(shown, python)
    return eval(formula, {"max": max, **names})  # noqa: S307 - our own text
