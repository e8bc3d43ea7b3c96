"""RMSE against epsilon, on a small set."""

import json
from dataclasses import asdict, replace

import pytest

from fedmmf.errors import UnknownNameError
from fedmmf_experiments.private import curve, search
from fedmmf_experiments.private.rows import rows_called
from fedmmf_experiments.result_cache import ResultCache

pytest.importorskip("dp_accounting", reason="the extra `dp`")
NAMES = ["vb-features", "vb", "sgd-none", "dpals-features", "item-means", "local-lr", "vb-no-noise"]


@pytest.fixture(scope="module")
def plan():
    return curve.DpPlan([0.5, 100.0], rows_called(NAMES), splits=2, delta=1e-3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("dp")


@pytest.fixture(scope="module")
def report(small, plan, folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "N_DRAWS", 4)
        patch.setattr(search, "N_CHANGES", 2)
        return curve.run(small, plan, ResultCache(folder), lambda done, of: None)


def test_each_row_has_a_point_per_epsilon_and_gains_from_a_larger_one(report):
    assert [(point.row, point.epsilon) for point in report.rows] == [
        (row, epsilon)
        for row in NAMES
        for epsilon in ((None,) if row in ("local-lr", "vb-no-noise") else (0.5, 100.0))
    ]
    for row in NAMES[:5]:
        tight, loose = report.of(row)
        assert loose.mean < tight.mean
    assert report.of("vb-no-noise")[0].mean < report.of("vb")[0].mean


def test_rows_say_how_many_settings_they_chose_from(report):
    tried = {point.row: point.n_tried for point in report.rows}
    assert (tried["vb"], tried["dpals-features"], tried["sgd-none"]) == (1, 6, 24)
    assert report.of("dpals-features")[0].settings.keys() == search.DPALS_FEATURES.keys()


def test_a_second_run_computes_nothing_again(report, small, plan, folder):
    def refuse(trial, values):
        raise AssertionError("computed again")

    plan = replace(plan, rows=[replace(row, score=refuse) for row in plan.rows])
    again = curve.run(small, plan, ResultCache(folder), lambda done, of: None)
    assert again == report


def test_it_is_written_as_data_table_and_pictures(report, tmp_path):
    curve.write(report, tmp_path)
    written = json.loads((tmp_path / "dp.json").read_text())
    assert written == asdict(report)
    assert list(written) == ["data", "metric", "delta", "splits", "test", "rows"]
    lines = (tmp_path / "dp.md").read_text().splitlines()
    assert lines[0] == "| model | epsilon 0.5 | epsilon 100 | no epsilon |"
    assert len(lines) == 2 + len(NAMES)
    assert "(nothing leaves)" in next(line for line in lines if line.startswith("| LocalLR |"))
    for suffix in ("png", "svg"):
        assert (tmp_path / f"dp.{suffix}").stat().st_size > 5_000


def test_an_unknown_row_is_refused_with_those_there_are():
    with pytest.raises(UnknownNameError, match="no row 'svd'; the rows are vb-features, vb, "):
        rows_called(["vb", "svd"])


def test_changes_stay_within_the_space():
    stream = search.rng.stream(0, "test")
    values, _ = search.search(search.DPALS_MEANS, lambda found: found["item_strength"], 0)
    assert values["item_strength"] < 1.0  # the search finds the end that is best
    for _ in range(50):
        found = search.change(values, search.DPALS_MEANS, stream)
        for name, of in search.DPALS_MEANS.items():
            assert found[name] in of if isinstance(of, tuple) else of[0] <= found[name] <= of[1]
