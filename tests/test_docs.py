"""The code in README and docs runs, and their links lead somewhere."""

import doctest
import re
from pathlib import Path

import pytest

import fedmmf.model
from fedmmf import load
from fedmmf.paper.models import row_called
from fedmmf.paper.table1 import Job, run_table, to_markdown

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(page, block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.mark.parametrize(("page", "block"), BLOCKS)
def test_python_in_the_docs_runs(page, block, tmp_path, monkeypatch, public_data):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, str(page), "exec"), {})  # noqa: S102 - our own text


def test_examples_in_docstrings_run():
    assert doctest.testmod(fedmmf.model) == doctest.TestResults(failed=0, attempted=4)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("model", ["LocalLR", "User-mean FedMMF (vb)"])
def test_the_readmes_table_is_what_the_command_gives(public_data, tmp_path, model):
    """Recompute two rows of Table 1 and find them in the README as they are printed."""
    jobs = [Job("ml-100k", row_called(model), seed, 0.2) for seed in range(10)]
    printed = to_markdown(run_table(jobs, load, tmp_path)).splitlines()[-1]
    without_seconds = printed.rsplit("|", 2)[0]
    assert without_seconds in (ROOT / "README.md").read_text()


def test_both_pages_show_the_same_tables():
    readme = (ROOT / "README.md").read_text()
    for line in (ROOT / "docs" / "reproduction.md").read_text().splitlines():
        if line.startswith(("| ml-", "| lastfm")):
            assert line in readme
