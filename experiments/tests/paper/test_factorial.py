"""The factorial table: who is compared with whom, on what, and what is kept."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from fedmmf import FedMMF
from fedmmf.cli.app import app
from fedmmf.errors import SettingsError
from fedmmf.settings import Settings
from fedmmf_experiments.cli import reproduce
from fedmmf_experiments.cli.reproduce_tables import EVERYTHING, WITHOUT_FOLDER
from fedmmf_experiments.paired import paired_difference
from fedmmf_experiments.paper import factorial
from fedmmf_experiments.paper.factorial import MASKS, Cell, Factorial, cells, factorial_markdown
from fedmmf_experiments.paper.splitting import Splitting
from fedmmf_experiments.result_cache import ResultCache


def some_cells():
    return [cell for cell in cells(("none", "mean", "lr"), ("vb",), (3,)) if cell.item_prior][:5]


def told(*_):
    pass


def test_every_combination_is_there_once_and_can_be_set():
    found = cells(MASKS, ("sgd", "vb"), (20, 8))
    assert len(found) == len(set(found)) == 2 * (5 + 2 * 2 * (1 + 4 * 2))
    for cell in found:
        settings = Settings(**cell.settings(3))
        assert (settings.seed, settings.factors) == (3, cell.factors)
        assert settings.has_joint_mask == (cell.fit == "joint")
        if cell.solver == "vb":
            assert not settings.profile_prior  # users' features are given to no row
            assert settings.item_prior == cell.item_prior
            assert settings.implicit_prior == cell.implicit_prior
    without = [cell for cell in found if not cell.uses_features]
    assert {(cell.mask, cell.item_prior) for cell in without} == {("none", False), ("mean", False)}


def test_rows_are_trained_alike_and_compared_split_by_split(small, tmp_path):
    wanted = some_cells()
    assert [(cell.mask, cell.fit) for cell in wanted] == [
        ("none", "alone"), ("mean", "alone"), ("mean", "joint"), ("lr", "alone"), ("lr", "joint"),
    ]  # fmt: skip
    rows = list(
        Factorial(small, Splitting(count=3, seed=4), ResultCache(tmp_path)).rows(wanted, told)
    )
    for row in rows:
        for seed, rmse in zip((4, 5, 6), row.rmse, strict=True):
            train, test = small.split(0.2, seed=seed)
            model = FedMMF(**row.cell.settings(seed)).fit(train)
            assert rmse == pytest.approx(model.evaluate(test)["rmse"], abs=1e-6)
    none, mean, joint = rows[:3]
    assert mean.over_mean is none.over_none is None
    expected = np.mean(np.subtract(joint.rmse, mean.rmse))
    assert joint.over_mean.mean == pytest.approx(expected, abs=1e-5)
    assert joint.over_none.mean == pytest.approx(joint.mean - none.mean, abs=2e-5)
    assert joint.over_joint is None
    assert rows[4].over_joint.mean == pytest.approx(rows[4].mean - joint.mean, abs=2e-5)
    assert joint.over_mean == paired_difference(joint.rmse, mean.rmse, 0.2)
    assert joint.over_mean != paired_difference(joint.rmse, mean.rmse, 0.0)
    text = factorial_markdown(rows)
    assert f"| vb | 3 | mean | joint | on | both | {joint.mean:.4f} | {joint.over_mean} |" in text


def test_what_was_run_is_not_run_again(small, tmp_path, monkeypatch):
    wanted = some_cells()[:2]
    run = Factorial(small, Splitting(count=2), ResultCache(tmp_path))
    first = list(run.rows(wanted, told))
    monkeypatch.setattr(factorial, "FedMMF", lambda **_: 1 / 0)
    assert list(run.rows(wanted, told)) == first
    for other, cell in (
        (run, Cell("vb", "mean", "alone", True, "both", 4)),
        (replace(run, splitting=Splitting(count=2, seed=1)), wanted[0]),
        (replace(run, splitting=Splitting(count=2, test=0.3)), wanted[0]),
        (replace(run, ratings=small.select(small.user_codes != 3)), wanted[0]),
        (replace(run, ratings=replace(small, values=small.values[::-1].copy())), wanted[0]),
    ):
        with pytest.raises(ZeroDivisionError):
            list(other.rows([cell], told))


def test_the_command(small, tmp_path, monkeypatch):
    monkeypatch.setattr("fedmmf_experiments.cli.reproduce_tables.load", lambda name: small)
    options = ["reproduce", "factorial", "--splits", "2", "--factors", "3", "--mask", "none"]
    options += ["--mask", "mean", "--solver", "vb", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, options, catch_exceptions=False)
    assert done.exit_code == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    rows = json.loads(CliRunner().invoke(app, [*options, "--json"]).stdout)["rows"]
    assert len(rows) == 2 * 2 * 3
    assert f"{rows[0]['mean']:.4f}" in done.stdout
    assert (tmp_path / "factorial-ml-100k-random.md").read_text().count("\n") == 2 + len(rows)
    with pytest.raises(SettingsError, match="--mask must be one of none, mean"):
        CliRunner().invoke(app, [*options, "--mask", "ridge"], catch_exceptions=False)


@pytest.mark.parametrize("line", [line for pair in EVERYTHING for line in pair if line])
def test_the_commands_of_all_are_commands(line):
    name, *options = [*line.split(), "--seed", "3"]
    command = get_command(reproduce.app).commands[name]
    more = ["--out", "folder"] if name not in WITHOUT_FOLDER else []
    command.make_context(name, [*options, *more])


def test_all_runs_each_command_in_its_small_version(small, tmp_path, monkeypatch):
    ran = []
    tables = "fedmmf_experiments.cli.reproduce_tables"
    pairs = (("factorial --data x", "factorial --data y"), ("factorial --data z", ""))
    monkeypatch.setattr(f"{tables}.EVERYTHING", pairs)
    monkeypatch.setattr(f"{tables}.load", lambda name: ran.append(name) or small)
    monkeypatch.setattr(f"{tables}.Factorial.rows", lambda *_: iter(()))
    for options, expected in ((["--quick"], ["y"]), ([], ["x", "z"])):
        ran.clear()
        done = CliRunner().invoke(app, ["reproduce", "all", *options, "--out", str(tmp_path)])
        assert done.exit_code == 0, done.output
        assert ran == expected
        assert "what each took" in done.stdout
        for name in expected:
            assert (tmp_path / f"factorial-{name}" / f"factorial-{name}-random.md").exists()
