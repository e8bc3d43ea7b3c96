"""RMSE against epsilon, on a small set."""

import json
from dataclasses import asdict

import pytest

from fedmmf.settings import Settings
from fedmmf_experiments.paper import dp_curve

pytest.importorskip("dp_accounting", reason="the extra `dp`")


@pytest.fixture(scope="module")
def report(small):
    base = Settings(aggregation="dp", dp_delta=1e-3)
    return dp_curve.run(small, [0.5, 100.0], base, 2, 0.2, lambda done, of: None)


def test_each_model_has_a_point_per_epsilon_and_gains_from_a_larger_one(report):
    assert [(row.mask, row.epsilon) for row in report.rows] == [
        (mask, epsilon) for mask in dp_curve.NAMES for epsilon in (0.5, 100.0)
    ]
    for tight, loose in zip(report.rows[::2], report.rows[1::2], strict=True):
        assert loose.rmse_mean < tight.rmse_mean
        assert loose.settings["dp_epsilon"] == 100.0


def test_it_is_written_as_data_table_and_pictures(report, tmp_path):
    dp_curve.write(report, tmp_path)
    written = json.loads((tmp_path / "dp.json").read_text())
    assert written == asdict(report)
    assert list(written) == ["data", "delta", "runs", "test", "rows"]
    names = ["model", "mask", "epsilon", "rmse_mean", "rmse_std", "settings"]
    assert list(written["rows"][0]) == names
    assert "| DP-FedMF |" in (tmp_path / "dp.md").read_text()
    for suffix in ("png", "svg"):
        assert (tmp_path / f"dp.{suffix}").stat().st_size > 5_000
