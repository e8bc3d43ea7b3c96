"""The notebook runs from top to bottom, and prints what it shows."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOK = EXAMPLES / "fedmmf.ipynb"
MISSING = [
    name for name in ("nbclient", "nbformat", "ipykernel") if importlib.util.find_spec(name) is None
]


def codes(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def shown(notebook):
    """What the cells print and show as text, cell by cell; drawings aside."""
    return [
        "".join(
            "".join(part.get("text") or part["data"]["text/plain"])
            for part in cell["outputs"]
            if part["output_type"] != "display_data"
        )
        for cell in codes(notebook)
    ]


@pytest.mark.skipif(bool(MISSING), reason="needs nbclient and ipykernel: pip install 'fedmmf[dev]'")
def test_the_notebook_prints_what_it_shows(public_data, tmp_path):
    printed = tmp_path / "new.ipynb"
    program = [sys.executable, str(EXAMPLES / "print_notebook.py"), str(printed)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    stored, new = json.loads(NOTEBOOK.read_text()), json.loads(printed.read_text())
    assert shown(new) == shown(stored), "`make notebook` prints it anew"
    assert "image/png" in codes(new)[-1]["outputs"][0]["data"]


def test_without_published_ratings_it_begins_with_made_up_ones(no_public_data):
    names = {}
    first = "".join(codes(json.loads(NOTEBOOK.read_text()))[0]["source"])
    exec(first, names)  # noqa: S102 - our own text
    assert names["ratings"].name == "synthetic"


def test_the_notebook_is_small():
    assert NOTEBOOK.stat().st_size < 100_000
