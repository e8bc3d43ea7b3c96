"""What was broken once holds now, and breaks again where its repair alone is taken out.

The test run ends with the table (`conftest.py`).
"""

import pytest
from break_rounds import ROUNDS
from break_sums import AGGREGATIONS

BREAKS = AGGREGATIONS | ROUNDS


@pytest.mark.parametrize("name", BREAKS)
def test_it_holds(name, tiny):
    attack, _ = BREAKS[name]
    assert not attack(tiny)


@pytest.mark.parametrize("name", BREAKS)
def test_it_breaks_without_its_repair(name, tiny, monkeypatch):
    attack, take_out = BREAKS[name]
    take_out(monkeypatch)
    assert attack(tiny)
