"""Tables and help pages on narrow terminals: whole words, and every row with its name."""

import io
import os
import re

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from fedmmf.cli.app import app
from fedmmf.cli.output import FittingTable, duration, size

ATTACKS = FittingTable(
    "in the clear",
    ["attack", "users", "success", "95 %", "without it", "gain", "95 % of gain"],
    [
        ["inversion, strength unknown", "6,040", "0.940", "0.922 to 0.958", "0.014", "+0.9261",
         "+0.9062 to +0.9454"],
        ["gradients, then decode", "6,040", "0.940", "0.922 to 0.958", "0.014", "+0.9261",
         "+0.9062 to +0.9454"],
    ],
)  # fmt: skip
SHORT = FittingTable("sums", ["", "value"], [["RMSE", "0.9"], ["users, items", "6,040, 3,706"]])
TITLES = FittingTable(
    "10 items for 42",
    ["item", "item_id", "prediction"],
    [["Dr. Strangelove or: How I Learned to Stop Worrying and Love the Bomb (1963)", "474", "4.9"]],
)
ODD = FittingTable("odd", ["name", "what"], [["[bold]x[/]\x1b[31m", "a" * 70], ["日本語" * 5, ""]])


def printed(table, width):
    file = io.StringIO()
    Console(file=file, width=width).print(table)
    return file.getvalue()


@pytest.mark.parametrize("width", [30, 60, 80, 200])
@pytest.mark.parametrize("table", [ATTACKS, SHORT, TITLES], ids=lambda table: table.title)
def test_no_word_is_cut_and_nothing_is_wider_than_the_terminal(table, width):
    text = printed(table, width)
    assert max(map(len, text.splitlines())) <= width
    words = re.split(r"[│┃\s]+", text)
    for cell in (cell for row in table.rows for cell in row):
        assert all(word in words for word in cell.split())


def test_a_wide_table_becomes_blocks_in_which_every_value_has_its_name():
    text = printed(ATTACKS, 60)
    assert re.search(r"^inversion, strength unknown$", re.sub(r" +$", "", text, flags=re.M), re.M)
    assert text.count("  without it: 0.014") == 2
    assert "│" in printed(ATTACKS, 80)


def test_what_is_too_long_for_any_terminal_is_folded_and_markup_is_text():
    text = printed(ODD, 60)
    assert text.count("a") >= 70
    assert "[bold]x[/]" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("width", ["60", "80"])
def test_the_list_of_data_sets_fits(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)
    text = CliRunner().invoke(app, ["data", "list"], catch_exceptions=False).stdout
    for word in ("synthetic:ml-10m", "10,000,054", "17,632"):
        assert word in text


def commands(command, path=()):
    yield path, command
    for name in getattr(command, "commands", {}):
        yield from commands(command.get_command(None, name), (*path, name))


HELP = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("width", ["60", "80"])
@pytest.mark.parametrize("path", HELP, ids=" ".join)
def test_help_fits_names_every_option_whole_and_says_what_it_is(path, width):
    """With a description, an example, and text that begins with a capital letter."""
    is_long = any(option.name == "help_all" for option in HELP[path].params)
    for page in ("--help", "--help-all") if is_long else ("--help",):
        done = CliRunner(env={**os.environ, "COLUMNS": width}).invoke(app, [*path, page])
        text = done.stdout
        assert max(map(len, text.splitlines())) <= int(width)
        assert "…" not in text
    words = set(re.split(r"[│,\s]+", text))
    command = HELP[path]
    assert command.help[0].isupper()
    if hasattr(command, "commands"):
        assert set(command.commands) <= words
        return
    assert "Example: fedmmf" in " ".join(text.split())
    for option in command.params:
        if option.param_type_name == "option":
            assert {*option.opts, *option.secondary_opts} <= words
            assert option.help[0].isupper() or option.help.startswith("-") or ":" in option.help


def test_units_that_people_read():
    assert [size(n) for n in (0, 999, 1500, 2.5e6, 3e12)] == [
        "0 bytes", "999 bytes", "1.5 kB", "2.5 MB", "3,000.0 GB",
    ]  # fmt: skip
    assert [duration(s) for s in (0.123, 9.999, 42.4, 59.7, 185, 7800)] == [
        "0.12 s", "10.00 s", "42 s", "1 min 0 s", "3 min 5 s", "2 h 10 min",
    ]  # fmt: skip
