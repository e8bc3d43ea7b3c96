"""No printed table is stale, of those whose probe takes some seconds; see `test_probes.py`."""

from pathlib import Path

import pytest

from fedmmf_experiments import tables

STORED = tables.read(Path(__file__).parents[1] / "docs" / "probes.json")


@pytest.mark.parametrize("table", [table for table in tables.TABLES if table.is_slow], ids=str)
def test_the_probe_of_a_table_gives_the_stored_digits(table):
    assert tables.are_equal(table.digits(), STORED[table.name]["digits"]), table.advice
