"""How long imports take is printed; what they load is held by tests/test_layers.py."""

import pytest

from fedmmf_experiments.bench import imports


def test_times_are_without_the_interpreter_and_beside_numpy(monkeypatch):
    """Each code takes what is in the table; the first, cold time does not count."""
    took = {"pass": 1.0, "import numpy": 3.0, "import fedmmf": 1.5}
    calls = []

    def timed(run):
        calls.append(run.args[0])
        is_cold = calls.count(run.args[0]) == 1
        return 100.0 if is_cold else took.get(run.args[0], 2.0)

    monkeypatch.setattr(imports, "timed", timed)
    found = {row.what: row for row in imports.measure(3)}
    assert list(found) == list(imports.TRIED)
    assert found["import fedmmf"].seconds == pytest.approx(0.5)
    assert found["import fedmmf"].over_numpy == pytest.approx(0.25)
    assert found["import numpy"].over_numpy == 1.0
    assert len(calls) == 4 * (1 + len(imports.TRIED))


@pytest.mark.parametrize("what", imports.TRIED)
def test_what_is_timed_runs(what):
    imports.run(imports.TRIED[what])
