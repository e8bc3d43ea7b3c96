"""What the variational solver gives, row by row."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from fedmmf import FedMMF
from fedmmf.cli.app import app
from fedmmf_experiments.paper import solver_table
from fedmmf_experiments.paper.solver_table import PROBLEMS, SolverProblem, run_row
from fedmmf_experiments.paper.splitting import Splitting

ROWS = {"few rounds": {"mask": "mean", "rounds": 2, "factors": 2}}


@pytest.fixture
def quick(small, monkeypatch):
    problem = SolverProblem("tiny", lambda: small, Splitting(count=2), ROWS)
    monkeypatch.setitem(PROBLEMS, "tiny", problem)
    monkeypatch.setattr(solver_table, "MEMBERS", 3)
    return small


def test_a_row_has_the_errors_of_one_run_and_of_several_averaged(quick):
    told: list[int] = []
    row = run_row(PROBLEMS["tiny"], "few rounds", 2, 5, told.append)
    assert told == [1, 2]
    for number, (single, averaged) in enumerate(zip(row.single, row.averaged, strict=True)):
        train, test = quick.split(0.2, seed=5 + number)
        model = FedMMF(solver="vb", **ROWS["few rounds"])
        assert single == pytest.approx(model.fit(train).evaluate(test)["rmse"], abs=1e-5)
        many = FedMMF(solver="vb", ensemble=3, **ROWS["few rounds"]).fit(train)
        assert averaged == pytest.approx(many.evaluate(test)["rmse"], abs=1e-5)
    one = FedMMF(solver="vb", **ROWS["few rounds"]).fit(quick).traffic()
    assert row.up_mb == pytest.approx(2 * one.up_bytes_per_user_round / 1e6, abs=1e-3)
    found = row.to_json_dict()
    assert found["single_mean"] == pytest.approx(np.mean(row.single), abs=1e-5)
    assert found["single_std"] == pytest.approx(np.std(row.single, ddof=1), abs=1e-5)


def test_the_command_prints_and_refuses(quick):
    run = ["reproduce", "solver", "--problem", "tiny", "--splits", "1"]
    found = json.loads(CliRunner().invoke(app, [*run, "--json"]).stdout)
    assert [row["row"] for row in found["rows"]] == ["few rounds"]
    assert len(found["rows"][0]["single"]) == 1
    shown = CliRunner().invoke(app, run).stdout
    assert f"{found['rows'][0]['single_mean']:.4f}" in shown
    refused = CliRunner().invoke(app, ["reproduce", "solver", "--problem", "netflix"])
    assert "--problem must be one of ml-100k" in str(refused.exception or refused.output)


def test_rows_differ_in_what_their_names_say():
    """Whoever compares two rows compares one thing: all else is alike."""
    for problem in PROBLEMS.values():
        for name, settings in problem.rows.items():
            FedMMF(solver="vb", **settings).get_params()
            assert ("ordinal" in name) == (settings.get("likelihood") == "ordinal")
            assert ("no item features" in name) == (settings.get("item_prior") is False)
            assert settings["mask"] == ("none" if name.startswith("no mask") else "mean")
