import csv
import json
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest

from fedmmf.data import UserProfiles
from fedmmf.errors import CheckpointError, SettingsError, UnknownNameError
from fedmmf_experiments.paired import paired_difference
from fedmmf_experiments.paper import hyperparameters, table1
from fedmmf_experiments.paper.context import train_context
from fedmmf_experiments.paper.models import ROWS, chosen, row_called, run_row
from fedmmf_experiments.paper.table1 import (
    PAPER,
    Job,
    TableRow,
    paper_figure,
    run_table,
    to_csv,
    to_markdown,
    write_table,
)
from fedmmf_experiments.paper.tune import tune
from fedmmf_experiments.result_cache import ResultCache, path_in

QUICK = {"factorization": {"rounds": 3, "factors": 3, "held_out": 0.0}, "local": {}}


@pytest.fixture(autouse=True)
def own_hyperparameters(tmp_path, monkeypatch):
    """Keep the stored settings of the package as they are."""
    monkeypatch.setattr(hyperparameters, "path_of", lambda data: tmp_path / f"{data}.json")


def tuned(row):
    return QUICK.get(row.kind, {"strength": 1.0, "rounds": 5})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_runs_and_learns_something(small, row):
    train, test = small.split(0.2, seed=0)
    result = run_row(row, train, test, tuned(row), seed=0)
    assert 0.5 < result.mae < result.rmse < 1.4
    assert result.settings["mask"] == row.mask
    assert (result.mean_j is not None) == (row.kind == "factorization")


def test_every_model_of_the_paper_has_a_row():
    names = {row.paper_name for row in ROWS}
    assert set(PAPER) <= names
    assert {row.name for row in ROWS} >= {"FedMF with biases", "User-mean FedMMF"}  # errata 45


def test_solvers_are_chosen():
    assert all(row.solver == "sgd" for row in chosen("sgd") if row.kind == "factorization")
    assert len(chosen("both")) == len(ROWS) > len(chosen("vb"))
    with pytest.raises(UnknownNameError, match="the models are FedMF"):
        row_called("SVD")


def jobs(names=("LocalLR", "FedLR"), runs=3):
    return [Job("small", row_called(name), seed, 0.2) for name in names for seed in range(runs)]


def test_the_table_is_mean_and_deviation_of_its_runs(small, tmp_path):
    rows = run_table(jobs(), lambda name: small, ResultCache(tmp_path))
    assert [row.model for row in rows] == ["LocalLR", "FedLR"]
    results = [json.loads(path_in(tmp_path, job.key).read_text()) for job in jobs()[:3]]
    rmse = [result["found"]["rmse"] for result in results]
    assert rows[0].rmse_mean == pytest.approx(np.mean(rmse), abs=1e-5)
    assert rows[0].rmse_std == pytest.approx(np.std(rmse, ddof=1), abs=1e-5)
    assert rows[0].runs == 3
    assert rows[0].paper_rmse is None


def test_a_row_that_ignores_profiles_is_left_out_where_there_are_none(small, tmp_path):
    names = ("FedLR", "FedLR without profiles")
    rows = run_table(jobs(names, 1), lambda name: small, ResultCache(tmp_path))
    assert [row.model for row in rows] == ["FedLR"]
    with pytest.raises(SettingsError, match="no user profiles"):
        run_table(jobs(names[1:], 1), lambda name: small, ResultCache(tmp_path))
    known = UserProfiles(("a",), np.arange(small.n_users)[:, np.newaxis] / small.n_users)
    rows = run_table(
        jobs(names, 1), lambda name: small.with_profiles(known), ResultCache(tmp_path / "more")
    )
    assert [row.model for row in rows] == list(names)
    assert rows[0].rmse_mean != rows[1].rmse_mean


def test_a_killed_reproduction_continues(small, tmp_path, monkeypatch):
    class KilledError(Exception):
        pass

    def stop(done, job):
        if done == 4:
            raise KilledError

    with pytest.raises(KilledError):
        run_table(jobs(), lambda name: small, ResultCache(tmp_path), stop)
    ran = []
    real = table1.run_row
    monkeypatch.setattr(table1, "run_row", lambda *a: ran.append(a[0].name) or real(*a))
    resumed = run_table(jobs(), lambda name: small, ResultCache(tmp_path))
    assert ran == ["FedLR", "FedLR"]  # four of the six were there
    assert resumed == run_table(jobs(), lambda name: small, ResultCache(tmp_path))


def test_other_settings_run_anew(small, tmp_path):
    first = run_table(jobs(["LocalLR"], 1), lambda name: small, ResultCache(tmp_path))
    hyperparameters.save_tuned("small", {"LocalLR": {"mask_strength": 1.0}})
    second = run_table(jobs(["LocalLR"], 1), lambda name: small, ResultCache(tmp_path))
    assert first[0].rmse_mean != second[0].rmse_mean


def test_models_are_compared_with_fedmf_of_their_solver_on_the_same_splits(small, tmp_path):
    names = ["FedMF", "FedMF (vb)", "User-mean FedMMF", "User-mean FedMMF (vb)", "LocalLR"]
    rows = run_table(jobs(names, 2), lambda name: small, ResultCache(tmp_path))
    by_name = {row.model: row for row in rows}
    assert by_name["FedMF"].over_fedmf is by_name["FedMF (vb)"].over_fedmf is None
    for name, beside in (
        ("User-mean FedMMF", "FedMF"),
        ("User-mean FedMMF (vb)", "FedMF (vb)"),
        ("LocalLR", "FedMF"),
    ):
        found = by_name[name].over_fedmf
        expected = by_name[name].rmse_mean - by_name[beside].rmse_mean
        assert found.mean == pytest.approx(expected, abs=2e-5)
        errors = (
            [json.loads(path_in(tmp_path, job.key).read_text())["found"]["rmse"] for job in some]
            for some in (jobs([name], 2), jobs([beside], 2))
        )
        assert found == paired_difference(*errors, 0.2)
        assert f"| {found} |" in to_markdown(rows)
        assert str(found) in to_csv(rows)
    alone = run_table(jobs(["LocalLR"], 2), lambda name: small, ResultCache(tmp_path))
    assert alone[0].over_fedmf is None


def test_a_broken_result_says_so(small, tmp_path):
    (job,) = jobs(["LocalLR"], 1)
    path = path_in(tmp_path, job.key)
    path.parent.mkdir(parents=True)
    path.write_text("{")
    with pytest.raises(CheckpointError, match="Delete it"):
        run_table([job], lambda name: small, ResultCache(tmp_path))


CONTRACT = [
    "model", "data", "rmse_mean", "rmse_std", "mae_mean", "mae_std", "paper_rmse", "paper_mae",
    "runs", "seconds", "over_fedmf",
]  # fmt: skip


def test_the_table_is_written_three_times(tmp_path):
    row = TableRow("FedMF", "ml-100k", 0.91, 0.01, 0.7, 0.02, 0.9491, 0.7412, 2, 1.0)
    write_table([row], tmp_path)
    assert json.loads((tmp_path / "table1.json").read_text()) == {"rows": [asdict(row)]}
    assert list(asdict(row)) == CONTRACT  # scripts read these keys
    assert "| ml-100k | FedMF | 0.9100 ± 0.0100 |" in (tmp_path / "table1.md").read_text()
    (line,) = csv.DictReader((tmp_path / "table1.csv").read_text().splitlines())
    assert line["paper_rmse"] == "0.9491"
    assert to_markdown([row]).count("\n") == 3
    assert to_csv([row]).startswith("model,data,rmse_mean")


def test_the_papers_figures():
    assert paper_figure("ml-100k", "FedMF") == (0.9491, 0.7412)
    assert paper_figure("ml-1m", "FedMF") == (None, None)
    assert paper_figure("ml-100k", None) == (None, None)


@pytest.mark.parametrize("name", ["FedMF", "User-mean FedMMF (vb)", "LocalFM", "FedFM", "FedNN"])
def test_tuning_finds_settings_that_run(small, name):
    train, test = small.split(0.2, seed=0)
    best = tune(row_called(name), train, n_trials=3, seed=0)
    assert 0.5 < best.rmse < 1.4
    result = run_row(row_called(name), train, test, best.settings, seed=0)
    assert result.rmse < 1.4


@pytest.mark.parametrize("name", ["LocalFM", "FedMF"])
def test_tuning_returns_no_worse_settings_than_the_defaults_that_it_tried(small, name):
    train, _ = small.split(0.2, seed=0)
    best, default = (tune(row_called(name), train, n_trials=n, seed=0).rmse for n in (6, 1))
    assert best < default + 0.005


def test_tuning_a_shared_model_judges_it_by_ratings_that_it_was_not_trained_on(small, monkeypatch):
    train, _ = small.split(0.2, seed=0)
    common = []

    def pairs(ratings):
        return set(zip(ratings.user_codes.tolist(), ratings.item_codes.tolist(), strict=True))

    def spied(plan, ratings):
        model = train_context(plan, ratings)

        def predict(part):
            common.append(len(pairs(part) & pairs(ratings)))
            return model.predict(part)

        return SimpleNamespace(predict=predict)

    monkeypatch.setattr("fedmmf_experiments.paper.tune.train_context", spied)
    tune(row_called("FedLR"), train, n_trials=2, seed=0)
    assert common
    assert set(common) == {0}
