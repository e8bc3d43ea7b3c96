"""The code in README and docs runs, and their links lead somewhere."""

import doctest
import re
from pathlib import Path

import numpy as np
import pytest

import fedmmf.model
from fedmmf import FedMMF, load

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


def test_the_readmes_accuracy_is_what_training_gives(public_data):
    """Recompute one row of the table; benchmarks/accuracy.py prints all of them."""
    row = re.search(
        r"\| ml-100k \| 0.2 \| lr \| (\S+) \| (\S+) \|", (ROOT / "README.md").read_text()
    )
    scores = []
    for seed in (0, 1, 2):
        train, test = load("ml-100k").split(test=0.2, seed=seed)
        scores.append(tuple(FedMMF(mask="lr", seed=seed).fit(train).evaluate(test).values()))
    assert np.mean(scores, axis=0) == pytest.approx([float(row[1]), float(row[2])], abs=0.0006)
