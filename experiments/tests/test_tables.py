"""Printed tables are what the commands give."""

from pathlib import Path

import pytest

from fedmmf import load
from fedmmf_experiments.paper.models import row_called
from fedmmf_experiments.paper.table1 import Job, reference_of, run_table, to_markdown
from fedmmf_experiments.result_cache import ResultCache

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
TABLES = ROOT / "experiments" / "docs" / "reproduction.md"


def table_rows(page, *starts):
    return [line for line in page.read_text().splitlines() if line.startswith(starts)]


@pytest.mark.parametrize("model", ["LocalLR", "User-mean FedMMF (vb)"])
def test_the_table_is_what_the_command_gives(public_data, tmp_path, model):
    """Recompute two rows of Table 1 and find them as they are printed, wherever they are shown."""
    rows = [row_called(reference_of(row_called(model))), row_called(model)]
    jobs = [Job("ml-100k", row, seed, 0.2) for row in rows for seed in range(10)]
    printed = to_markdown(run_table(jobs, load, ResultCache(tmp_path))).splitlines()[-1]
    without_seconds = printed.rsplit("|", 2)[0]
    assert table_rows(TABLES, without_seconds)
    for shown in table_rows(README, f"| ml-100k | {model} |"):
        assert shown.startswith(without_seconds)
