import json

import numpy as np
import pytest
from typer.testing import CliRunner

from fedmmf.aggregation.secure.simulated import party_features, server_features
from fedmmf.cli.app import app
from fedmmf.secagg import RING32, RING64, SessionSize, session_bytes
from fedmmf_experiments.bench import costs
from fedmmf_experiments.bench.sessions import SessionCost, measure

FEW = [SessionSize(n, k, length) for n, k in ((8, 4), (20, 4), (20, 8)) for length in (10, 2000)]
SIGNED = SessionSize(8, 4, 10, active=True)


@pytest.fixture
def small_sizes(monkeypatch, tmp_path):
    """Sizes that are measured in a moment, and nothing of the package overwritten."""
    monkeypatch.setattr(costs, "SIZES", (*FEW, SIGNED))
    monkeypatch.setattr(costs, "CHECK", FEW[-1])
    monkeypatch.setattr(costs, "MODEL", tmp_path / "costs.json")
    return costs.MODEL


@pytest.mark.parametrize(("ring", "active"), [(RING32, False), (RING64, False), (RING32, True)])
def test_a_session_is_measured_with_all_its_bytes(ring, active):
    size = SessionSize(12, 6, 300, ring, active)
    found = measure(size)
    assert (found.up_bytes, found.down_bytes) == session_bytes(size)
    assert found.party_s > 0
    assert found.server_s > 0


def test_the_fit_finds_the_coefficients_that_made_the_figures():
    sizes = [
        SessionSize(n, k, length, active=active)
        for active in (False, True)
        for n in (10, 50)
        for k in (4, 8)
        for length in (10**3, 10**5, 10**6)
    ]
    party, server = np.array([1e-3, 2e-4, 3e-3, 1e-4, 5e-4]), np.array([2e-4, 1e-5, 4e-3, 3e-5])
    measured = [
        (
            size,
            SessionCost(
                party @ party_features(size),
                server @ server_features(size),
                0.0,
                0.0,
            ),
        )
        for size in sizes
    ]
    found = costs.fit(measured)
    np.testing.assert_allclose(found["party_s"], party, rtol=1e-6)
    np.testing.assert_allclose(found["server_s"], server, rtol=1e-6)


def test_the_last_row_is_one_that_the_fit_has_not_seen(monkeypatch):
    """All cost the same but for the last, a hundred times as much, and the fit is perfect."""
    by_size = {size: SessionCost(1.0, float(size.n), 0.0, 0.0) for size in FEW}
    by_size[SIGNED] = SessionCost(100.0, 100.0, 0.0, 0.0)
    monkeypatch.setattr(costs, "measure", by_size.__getitem__)
    *seen, last = costs.measure_all(FEW, SIGNED).rows
    assert [row.party_model_s for row in seen] == pytest.approx([1.0] * len(FEW))
    assert last.signed
    assert last.party_model_s == pytest.approx(1.0)


def test_the_table_has_a_figure_under_every_title(small_sizes):
    done = CliRunner().invoke(app, ["bench", "costs"])
    titles, rule, *rows = done.stdout.splitlines()
    assert rule == "|" + " --- |" * 9
    assert {line.count("|") for line in (titles, *rows)} == {10}
    assert len(rows) == len(FEW) + 2
    assert not small_sizes.exists()


def test_a_model_is_stored_when_asked(small_sizes):
    done = CliRunner().invoke(app, ["bench", "costs", "--write", "--json"])
    stored = json.loads(small_sizes.read_text())
    assert json.loads(done.stdout)["model"] == stored
    assert {name: len(values) for name, values in stored.items()} == {"party_s": 5, "server_s": 4}
    assert "written to" in done.stderr
