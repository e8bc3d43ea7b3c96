"""spec/ says what the code does: kinds, fields, types, inner messages."""

import re
from pathlib import Path

import numpy as np
import pytest
from wire_samples import MESSAGES, by_class

from fedmmf import wire
from fedmmf.masks import population
from fedmmf.secagg import LARGEST_COHORT, messages
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.sgd import N_PLAN
from fedmmf.solvers.vb.ordinal import BEGINS_AFTER, FAR
from fedmmf.solvers.vb.party import MAX_MEMBERSHIP_ROUNDS, N_ALTERNATIONS
from fedmmf.solvers.vb.server import MEMBERSHIP_ROUNDS
from fedmmf.solvers.vb.shapes import IMPLICIT, MAX_VB_COLUMNS, write_variant
from fedmmf.wire import codec, frames
from fedmmf.wire.messages import MAX_FACTORS, MAX_WORDS

SPEC = Path(__file__).parents[2] / "spec"
PAGE = "".join(path.read_text() for path in sorted(SPEC.glob("*.md")))


def section(title, text=PAGE):
    """What is between a heading and the next."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", text, re.DOTALL | re.MULTILINE)
    assert found, f"spec/ has no section {title!r}"
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
    shown = [(name, type_) for name, type_, _ in rows(text, "field", "type", "meaning")]
    assert shown == [(name, field.type) for name, field in cls.fields().items()]
    assert ("No fields." in text) == (not shown)


def test_the_page_has_no_message_that_does_not_exist():
    chapter = (SPEC / "messages.md").read_text()
    assert re.findall(r"^## (\w+)$", chapter, re.MULTILINE) == [cls.__name__ for cls in MESSAGES]


def test_a_field_that_is_not_on_the_page_would_be_noticed():
    text = section("Joined")
    assert len(rows(text, "field", "type", "meaning")) == 2
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
    published = {row[2] for row in table if row[3].startswith("broadcast")}
    assert published == {cls.__name__ for cls in wire.BROADCASTS} | {"Sealed"}


def test_every_type_is_on_the_page():
    shown = {row[0] for row in rows(section("Frames"), "type", "bytes")}
    used = {field.type for cls in MESSAGES for field in cls.fields().values()}
    assert shown == {re.sub(r"\[\d+\]$", "[n]", name) for name in used}


def test_inner_messages_are_on_the_page():
    classes = [cls for cls in vars(messages).values() if hasattr(cls, "kind")]
    shown = [(int(row[0]), row[1]) for row in rows(PAGE, "inner kind", "message")]
    assert shown == sorted((cls.kind, cls.__name__) for cls in classes)


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("| 1 | version: {} |", frames.VERSION),
        ("uint32 length up to {}, then UTF-8", codec.MAX_TEXT),
        ("no columns, or more than {:,} |", codec.MAX_ROW_WIDTH),
        ("uint32 count up to {}, then 32 bytes each", codec.MAX_KEYS),
        ("k, 1 to {} |", MAX_FACTORS),
        ("at most {} code points", MAX_WORDS),
        ("1 to {:,}; parties are numbered", LARGEST_COHORT),
        ("table of boxes ({}), by receiver", messages.BOX_BYTES),
        ("In rounds 1 to {} ratings count as numbers", BEGINS_AFTER),
        ("From round {} on, r is replaced", BEGINS_AFTER + 1),
        ("| from round {} on, else 0, for each cut point", BEGINS_AFTER + 1),
        ("and then {} times with r", N_ALTERNATIONS),
        ("cut to -{0:g} .. {0:g}", FAR),
        ("A party takes part in {} of them in a run", MAX_MEMBERSHIP_ROUNDS),
        ("Our server has them in rounds {} and", MEMBERSHIP_ROUNDS[0] + 1),
        ("and {}; where unrated items count", MEMBERSHIP_ROUNDS[1] + 1),
        ("| numbers of `parameters` | {} + 2 k |", N_PLAN),
        ("if that is below 128; 1 to {} |", population.MAX_LINE_COLUMNS),
        ("features of an item, each cut to [-{0:g}, {0:g}];", population.LARGEST_FEATURE),
        ("item features, each cut to [-{0:g}, {0:g}]:", population.LARGEST_FEATURE),
        ("`(max - min) (X^T C X + {:g} R D)^-1 g`", population.LINE_RIDGE),
        ("`{:g} (w / s) / max(", population.PULLS),
        ("cut to [{:g}, ", population.MIN_SHRINKAGE),
        (", {:g}]; 1 if fewer than two", population.MAX_SHRINKAGE),
        ("{:g} if fewer than two users", population.ASSUMED_PULL),
        ("level towards the line, in ratings, {:g} to", population.MIN_SHRINKAGE),
        ("to {:g} |\n", population.MAX_SHRINKAGE),
        ("for a survey they are 1 and {:g}.", population.TOTAL_BOUND),
    ],
)
def test_numbers_on_the_page_are_those_of_the_code(words, number):
    assert words.format(number) in PAGE


@pytest.mark.parametrize("m", [1, 2, 19])
def test_the_totals_of_a_survey_are_on_the_page(m):
    text = section("Survey")
    formula = re.search(r"there are (.*) totals and no rows", text)[1]
    assert computed(formula, m=m) == population.n_totals(m)
    parts = [computed(size, m=m) for size, _ in rows(text, "numbers", "total")]
    assert sum(parts) == population.n_totals(m)


def declared(name):
    """The rows of the table of solvers, for one of them."""
    column = {"sgd": 1, "vb": 2}[name]
    table = rows(PAGE, "what it declares", "`sgd`", "`vb`")
    return {row[0].replace("`", ""): row[column].strip("`") for row in table}


@pytest.mark.parametrize("name", ["sgd", "vb"])
def test_what_solvers_declare_is_on_the_page(name):
    solver, shown = SOLVERS[name], declared(name)
    assert shown["ring of secure aggregation"] == solver.ring
    for span in (0.5, 1.0, 4.0, 10.0):
        bounds = solver.bounds(span)
        for row, bound in (("row bound", bounds.row), ("total bound", bounds.total)):
            assert computed(shown[row], span=span) == bound


USERS, ITEMS = ("users", "both"), ("items", "both")  # what priors of p_u and of q_i depend on


@pytest.mark.parametrize("k", [1, 2, 7])
@pytest.mark.parametrize(
    ("name", "variant", "numbers"),
    [("sgd", "", {"y": 0, "z": 0, "d": 0, "m": 0, "h": 0, "j": 0})]
    + [
        (
            "vb",
            f"implicit={implicit} profile={d} design={m} levels={levels} joint={j}",
            {
                "y": implicit in USERS,
                "z": implicit in ITEMS,
                "d": d,
                "m": m,
                "h": max(levels - 1, 0),
                "j": j,
            },
        )
        for implicit in ("none", "items", "users", "both")
        for d, m, levels, j in (
            (0, 0, 0, 0),
            (3, 0, 0, 0),
            (0, 4, 0, 0),
            (3, 1, 0, 0),
            (0, 0, 2, 0),
            (0, 0, 5, 0),
            (3, 0, 10, 4),
            (0, 0, 0, 1),
        )
    ],
)
def test_sizes_of_what_is_sent_are_on_the_page(name, variant, numbers, k):
    update_shape, shown = SOLVERS[name].update_shape(k, variant), declared(name)
    names = {**numbers, "y": k * numbers["y"], "z": int(numbers["z"]), "k": k}
    sizes = {
        "width": update_shape.width,
        "published": update_shape.broadcast_width,
        "numbers of parameters": update_shape.n_parameters,
        "totals of the solver": update_shape.n_totals,
    }
    assert {row: computed(shown[row], **names) for row in sizes} == sizes


def computed(formula, **names):
    """The value of a formula as the page writes it."""
    spelled = {r"\^": "**", r"(?<=[\dkzd)]) (?=[a-zA-Z(\d])": " * "}
    for shown, python in spelled.items():
        formula = re.sub(shown, python, formula)
    tools = {"max": max, "T": lambda n: n * (n + 1) // 2}
    return eval(formula, {**tools, **names})  # noqa: S307 - our own text


@pytest.mark.parametrize(("m", "j"), [(2, 0), (0, 2)])
def test_every_total_of_vb_is_on_the_page_in_its_order(m, j):
    """Their sizes in the table, added up, are the places of the parts in the code."""
    sizes = {"k": 7, "y": 7, "d": 3, "m": m, "h": 4, "j": j}
    update_shape = SOLVERS["vb"].update_shape(
        7, f"implicit=both profile=3 design={m} levels=5 joint={j}"
    )
    numbers = [
        int(computed(number, **sizes))
        for row in rows(section("Totals of vb"), "numbers", "total")
        for number in row[0].split(", ")
    ]
    blocks, levels = (
        update_shape.blocks["totals"],
        update_shape.blocks["totals"].split(np.zeros(update_shape.n_totals)),
    )
    parts = [len(part) for name, part in levels.items() if name != "levels"]
    assert numbers == [*parts, *(3 * [len(levels["levels"]) // 3])]
    assert sum(numbers) == blocks.size


@pytest.mark.parametrize(("m", "j"), [(2, 0), (0, 2)])
def test_every_parameter_of_vb_is_on_the_page_in_its_order(m, j):
    """A name for each part of the code, as long as it says; scalars say nothing."""
    update_shape = SOLVERS["vb"].update_shape(
        7, f"implicit=both profile=3 design={m} levels=5 joint={j}"
    )
    sizes = {"k": 7, "y": 7, "d": 3, "h": 4, "z": 1, "packed": 28, "y + d rows of k": 70, "j": j}
    sizes["z: 0 or 1"] = 1
    part_of_list = r"(?:^|, |; )([^,;(]+?)(?: \(([^)]*)\))?(?=,|;|$)"
    shown = [
        (name.split(": ")[-1], sizes[size] if size else 1)
        for name, size in re.findall(part_of_list, declared("vb")["parameters"])
    ]
    names = {"tau": "tau", "a": "user_precision", "c": "item_precision",
             "mean of all p_u": "mean_user", "A": "curvature", "B": "base", "V": "user_weights",
             "mean profile": "profile_mean", "membership": "membership",
             "w": "unrated", "r0": "unrated", "cut points": "cuts",
             "mean mask": "joint_mean", "precision of masks": "joint_precision"}  # fmt: skip
    parts = update_shape.blocks["parameters"].split(np.zeros(update_shape.n_parameters))
    assert list(dict.fromkeys(names[name] for name, _ in shown)) == list(parts)
    for part, values in parts.items():
        named = sum(size for name, size in shown if names[name] == part)
        assert named == len(values) or (part == "unrated" and not m)


def test_texts_of_variants_are_on_the_page():
    text = section("Solvers")
    assert f"`{write_variant('I', 'd', 'm', 'L', 'j')}`" in text
    for implicit in IMPLICIT:
        assert f"`{implicit}`" in text
    assert f"up to {MAX_VB_COLUMNS}" in text
