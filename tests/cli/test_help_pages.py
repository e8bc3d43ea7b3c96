"""Help of long commands: a short page with an example, and all options on request."""

import pytest
import typer.main
from typer.testing import CliRunner

from fedmmf.cli.app import app
from fedmmf.cli.help_pages import FIRST, LONG

LONG_COMMANDS = [["train"], ["recommend"], ["audit"], ["data", "info"], ["federation", "init"]]


def page(*words, width):
    done = CliRunner().invoke(app, [*words], terminal_width=width, env={"COLUMNS": str(width)})
    assert done.exit_code == 0
    return done.stdout


def command_of(words):
    command = typer.main.get_command(app)
    for word in words:
        command = command.get_command(None, word)
    return command


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("words", LONG_COMMANDS, ids=" ".join)
def test_a_long_command_opens_with_an_example_and_about_ten_options(words, width):
    short, whole = page(*words, "--help", width=width), page(*words, "--help-all", width=width)
    options = command_of(words).params
    flags = [max(option.opts, key=len) for option in options if option.opts[0].startswith("-")]
    assert len(flags) > LONG
    assert all(flag in whole for flag in flags)
    shown = [flag for flag in flags if f"{flag} " in short]
    assert 8 <= len(shown) <= 14
    assert {"--seed", "--json", "--help-all"} <= set(shown)
    assert 0 < short.index("Example: fedmmf") < short.index("--seed")
    assert f"--help-all shows all {len(options)} options" in short
    assert len(short.splitlines()) <= 60
    assert len(short) < len(whole)


def test_a_short_command_has_one_page():
    assert "--help-all" not in page("evaluate", "--help", width=140)
    refused = CliRunner().invoke(app, ["evaluate", "--help-all"])
    assert refused.exit_code == 2


def test_the_options_of_short_pages_exist():
    known = {option.name for words in LONG_COMMANDS for option in command_of(words).params}
    assert set(FIRST) - known <= {"splits"}  # of `bench ranking`


def test_help_names_the_defaults_that_lists_have():
    for flag in ("ranking", "vb", "by the size of the data"):
        assert f"for lists {flag}" in page("train", "--help", width=140)
        assert f"({flag})" in page("recommend", "--help", width=140)
