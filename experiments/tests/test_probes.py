"""No printed table is stale: its probe gives the digits that are stored beside it.

`test_slow_probes.py` has the probes that take longer.
"""

import re
from pathlib import Path

import pytest

from fedmmf_experiments import tables
from fedmmf_experiments.probes import data_digits, numbers
from fedmmf_experiments.tables import (
    BY_NAME,
    SETS,
    TABLES,
    PrintedTable,
    are_equal,
    is_stale,
    stamp,
)

ROOT = Path(__file__).parents[2]
STORED = tables.read(ROOT / "experiments" / "docs" / "probes.json")
PAGES = sorted(path for at in ("docs", "experiments/docs") for path in (ROOT / at).glob("*.md"))
STAMP = re.compile(r"^Table `([\w-]+)`, printed at commit `([\w-]+)`\.", re.MULTILINE)


@pytest.mark.parametrize("table", [table for table in TABLES if not table.is_slow], ids=str)
def test_the_probe_of_a_table_gives_the_stored_digits(table):
    assert are_equal(table.digits(), STORED[table.name]["digits"]), table.advice


@pytest.mark.parametrize("name", SETS)
def test_the_public_sets_of_a_table_are_those_it_was_printed_from(name, public_data):
    digits = data_digits(name)
    for table in TABLES:
        if name in table.data:
            assert are_equal(digits, STORED[table.name]["data"][name]), table.advice


def test_a_change_in_the_last_digits_means_nothing_and_a_larger_one_is_noticed():
    assert are_equal([0.5, 2.0], [0.5 + 1e-8, 2.0])
    assert are_equal([float("nan")], [float("nan")])
    assert not are_equal([0.5, 2.0], [0.5001, 2.0])
    assert not are_equal([0.5], [0.5, 2.0])
    table = PrintedTable("made-up", "page.md", ("fedmmf demo",), (), lambda: {"rmse": 0.9})
    assert not is_stale(table, {"digits": [0.9], "data": {}})
    assert is_stale(table, {"digits": [0.91], "data": {}})
    assert table.advice == (
        "the table made-up in page.md is stale: `make tables NAME=made-up` runs fedmmf demo"
    )


def test_times_and_settings_are_no_digits():
    found = {
        "rmse": 0.5,
        "seconds": 3.2,
        "settings": {"factors": 2},
        "name": "x",
        "each": [1, None],
    }
    assert list(numbers(found)) == [0.5, 1.0]


def test_the_commit_stands_under_each_table():
    """Under each table of the experiments' pages, and nowhere another than the stored one."""
    found = [
        (name, page.relative_to(ROOT).as_posix(), commit)
        for page in PAGES
        for name, commit in STAMP.findall(page.read_text())
    ]
    right = {(t.name, t.page, STORED[t.name]["commit"]) for t in TABLES}
    assert set(found) <= right
    assert {one for one in right if one[1].startswith("experiments/")} <= set(found)


def test_a_table_that_is_printed_again_is_stored_with_its_commit(tmp_path, monkeypatch, capfd):
    """Its commands run, the digits and the commit are new, and all others stay."""
    path = tmp_path / "probes.json"
    tables.write(path, {"other": {"commit": "0", "digits": [1.0], "data": {}}})
    table = PrintedTable("made-up", "page.md", ("fedmmf --version",), (), lambda: [0.25])
    monkeypatch.setattr(tables, "commit_of_tree", lambda: "abc1234")
    tables.print_again(table, path)
    assert tables.read(path) == {
        "made-up": {"commit": "abc1234", "digits": [0.25], "data": {}},
        "other": {"commit": "0", "digits": [1.0], "data": {}},
    }
    shown = capfd.readouterr().out
    assert "fedmmf --version" in shown
    assert stamp("made-up", "abc1234") in shown


def test_every_table_has_digits_and_every_digit_a_table():
    assert set(STORED) == set(BY_NAME)
    for name, stored in STORED.items():
        assert stored["digits"]
        assert set(stored["data"]) == set(BY_NAME[name].data)
