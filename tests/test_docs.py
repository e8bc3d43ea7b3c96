"""README and docs say what is so: code runs, commands parse, links, files, tests, figures exist."""

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

import fedmmf
from fedmmf.cli.app import app

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
TABLES = ROOT / "experiments" / "docs" / "reproduction.md"
SOURCES = (ROOT / "src" / "fedmmf", ROOT / "experiments" / "src" / "fedmmf_experiments")
DOCS = sorted(path for at in ("docs", "experiments/docs") for path in (ROOT / at).glob("*.md"))
SPEC = sorted((ROOT / "spec").glob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), ROOT / "experiments" / "README.md", *DOCS, *SPEC]
# The changelog may name what is gone.
ABOUT_TODAY = [README, ROOT / "CONTRIBUTING.md", *DOCS, *SPEC]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def fenced(page):
    return FENCE.findall(page.read_text())


def per_page(pages):
    return pytest.mark.parametrize("page", pages, ids=lambda page: page.name)


BLOCKS = [
    pytest.param(page, block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, (language, block) in enumerate(fenced(page))
    if language == "python"
]


@pytest.mark.parametrize(("page", "block"), BLOCKS)
def test_python_in_the_docs_runs(page, block, tmp_path, monkeypatch, public_data):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, str(page), "exec"), {})  # noqa: S102 - our own text


def test_examples_in_docstrings_run():
    home = sys.modules[fedmmf.FedMMF.__module__]
    assert doctest.testmod(home) == doctest.TestResults(failed=0, attempted=4)


# Commands

SHELL = 'set -euo pipefail; fedmmf() { "$PYTHON" -m fedmmf "$@"; }\n'


def shell_of(page):
    """The blocks of a page that are marked as shell, one after the other; empty: none."""
    return "".join(block for language, block in fenced(page) if language == "sh")


def run_shell(script, folder):
    return subprocess.run(
        ["bash", "-c", SHELL + script],  # noqa: S607 - wherever it is
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHON": sys.executable},
        cwd=folder,
        check=False,
    )


@per_page([page for page in PAGES if shell_of(page)])
def test_shell_blocks_run_as_they_stand(page, tmp_path):
    done = run_shell(shell_of(page), tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_command_that_fails_in_a_shell_block_is_noticed(tmp_path):
    done = run_shell("fedmmf data info nowhere.csv\necho went on\n", tmp_path)
    assert done.returncode != 0
    assert "went on" not in done.stdout


def commands_of(page):
    """Every command line that a page shows, in fenced blocks and in running text."""
    for _, block in fenced(page):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("fedmmf "):
                yield line
    yield from re.findall(r"`(fedmmf [^`\n]+)`", FENCE.sub("", page.read_text()))


def flags_of(command):
    names = (name for option in command.params for name in (*option.opts, *option.secondary_opts))
    return {"-h", "--help", *names}


def parse(line, command):
    """Follow a command line from the top command down; say what does not exist."""
    for word in shlex.split(line, comments=True)[1:]:
        if word.startswith("-"):
            flag = word.split("=")[0]
            assert flag in flags_of(command), f"{line!r}: {command.name} has no {flag}"
        elif commands := getattr(command, "commands", {}):
            assert word in commands, f"{line!r}: {command.name} has no command {word}"
            command = command.get_command(None, word)


COMMANDS = [
    pytest.param(line, id=f"{page.name}-{line}")
    for page in (README, *DOCS)
    for line in dict.fromkeys(commands_of(page))
]


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_in_the_docs_exist_with_their_flags(line):
    parse(line, typer.main.get_command(app))


@pytest.mark.parametrize(
    "line", ["fedmmf tarin", "fedmmf data lst", "fedmmf train --maks fm", "fedmmf --vresion"]
)
def test_a_command_that_does_not_exist_is_noticed(line):
    with pytest.raises(AssertionError, match="has no"):
        parse(line, typer.main.get_command(app))


def test_commands_are_found_on_a_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("Run `fedmmf demo`.\n```\nfedmmf a \\\n    --b\nmake\nfedmmf c  # d\n```\n")
    assert list(commands_of(page)) == ["fedmmf a      --b", "fedmmf c  # d", "fedmmf demo"]


# Links, and what pages name


def anchors_of(page):
    """Names of the headings of a page, as they are linked to."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@per_page(PAGES)
def test_links_between_pages_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text()):
        file = page.parent / target if target else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors_of(file), f"{page.name} links to {target}#{anchor}"


@per_page(ABOUT_TODAY)
def test_files_that_pages_name_exist(page):
    for name in re.findall(r"`([a-z_]+(?:/[a-z0-9_]+)*(?:\.py|/))`", page.read_text()):
        is_there = any((folder / name).exists() for folder in (ROOT, *SOURCES))
        if "/" not in name:  # its folder is clear from the page
            is_there = is_there or any(any(folder.rglob(name)) for folder in SOURCES)
        assert is_there, f"{page.name} names {name}"


TEST_NAMES = {
    name
    for folder in (ROOT / "tests", ROOT / "experiments" / "tests")
    for path in folder.rglob("*.py")
    for name in re.findall(
        r"^\s*(?:def|class) (test_\w+|Test\w+)\b", path.read_text(), re.MULTILINE
    )
}


@per_page(ABOUT_TODAY)
def test_tests_that_pages_name_as_evidence_exist(page):
    named = re.findall(r"`(test_\w+|Test[A-Z]\w+)`", page.read_text())
    assert not set(named) - TEST_NAMES


# Figures


def table_rows(page, *starts):
    return [line for line in page.read_text().splitlines() if line.startswith(starts)]


def test_rows_of_the_readme_are_those_of_the_page_of_tables():
    rows = table_rows(README, "| ml-", "| lastfm")
    assert rows
    assert not set(rows) - set(TABLES.read_text().splitlines())


def test_the_readme_shows_what_its_commands_print(public_data, tmp_path):
    """Both the verdict on lists and a list are in the README as they are printed."""
    trained = printed_by("train", "--data", "ml-100k", *RANKING, "--save", tmp_path / "m.fedmmf")
    (verdict,) = (line for line in trained if line.startswith("The nDCG@10"))
    listed = printed_by("recommend", "--model", tmp_path / "m.fedmmf", "--user", "42", "--n", "3")
    rows = [line.strip() for line in listed if line.startswith("│")]
    assert len(rows) == 3
    shown = [re.sub(" +", " ", line) for line in README.read_text().splitlines()]
    assert {verdict, *(re.sub(" +", " ", row) for row in rows)} <= set(shown)


RANKING = ("--top", "10")


def printed_by(*words):
    """Lines that a command prints."""
    order = [sys.executable, "-m", "fedmmf", *map(str, words)]
    environment = {**os.environ, "COLUMNS": "120"}
    done = subprocess.run(order, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_row_of_figures_is_on_one_page_of_the_docs():
    figures = re.compile(r"^\|.*\d\.\d.*\|$", re.MULTILINE)
    seen = [line for page in DOCS for line in set(figures.findall(page.read_text()))]
    assert len(seen) == len(set(seen))


# Shares of ratings that attacks find: rows of privacy.md, and of the tables of attacks.md.
SHARES = {
    "one sum, `sgd`, 50 people": r"50 \| \d+ \| 1 \| [\d.]+ \| unmixing \| ([\d.]+)",
    "one sum, `sgd`, all 943 people": r"943 \| \d+ \| 1 \| [\d.]+ \| unmixing \| ([\d.]+)",
    "eight rounds of `vb`, 50 people": r"50 \| \d+ \| 8 \| [\d.]+ \| vb unmixing \| ([\d.]+)",
    "eight rounds of `vb`, 943 people": r"943 \| \d+ \| 8 \| [\d.]+ \| vb unmixing \| ([\d.]+)",
}


@pytest.mark.parametrize("words", SHARES)
def test_shares_on_the_page_for_deciders_are_those_of_the_attacks(words):
    (shown,) = table_rows(ROOT / "docs" / "privacy.md", f"| {words} |")
    tables = (ROOT / "docs" / "attacks.md").read_text()
    (found,) = re.findall(rf"^\| {SHARES[words]}", tables, re.MULTILINE)
    assert shown.endswith(f"| {float(found):.2f} |")


def test_the_gain_on_the_page_for_deciders_is_that_of_many_rounds():
    (shown,) = table_rows(ROOT / "docs" / "privacy.md", "| 200 rounds of `sgd`, 943 people")
    (row,) = table_rows(ROOT / "docs" / "attacks.md", "| 943 | 1 | 200 |")
    public, gain = (float(cell.split()[0]) for cell in row.split("|")[9:11])
    assert shown.endswith(f"| {public + gain:.2f}: a gain of {gain:.3f} |")


def test_the_readme_is_short():
    lines = README.read_text().splitlines()
    assert len(lines) < 120
    assert max(map(len, lines)) <= 300
