"""Figures 2a and 2b on a small set."""

import json
from dataclasses import asdict

import pytest

from fedmmf.settings import Settings
from fedmmf_experiments.paper import attack_figures

FIGURES = ["2a", "2a-strongest", "2b", "2b-tie-tolerant", "2b-strongest"]


@pytest.fixture(scope="module")
def report(small):
    steps = []
    found = attack_figures.run(small, Settings(mask="lr"), lambda *step: steps.append(step))
    assert steps == [(1, 4), (2, 4), (3, 4)]
    return found


def test_every_figure_has_a_curve_per_level(report):
    assert list(report.figures) == FIGURES
    for name, curves in report.figures.items():
        levels = attack_figures.ERROR_LEVELS if name.startswith("2a") else attack_figures.TOP_TENTHS
        assert len(curves) == len(levels)
        for curve in curves.values():
            assert 0 <= curve.mean <= 1
            assert sum(curve.proportions) == pytest.approx(1)
            assert len(curve.proportions) == len(report.edges) - 1


def test_a_larger_tolerance_finds_more_and_decoding_finds_most(report):
    for name in FIGURES[:2]:
        means = [curve.mean for curve in report.figures[name].values()]
        assert means == sorted(means)
    exact = {row.attack: row.mean for row in report.exact}
    assert list(exact) == ["prior alone", "shift", "decode"]
    assert exact["decode"] > 0.9 > exact["prior alone"]  # a linear mask is inverted
    for row in report.exact:
        assert row.interval[0] <= row.mean <= row.interval[1]


def test_ties_help_the_attacker_and_chance_alike(report):
    for h, chance in report.random_hit_ratio.items():
        assert chance["strict"] <= chance["tie-tolerant"]
        assert report.figures["2b"][f"h = {h}"].mean <= (
            report.figures["2b-tie-tolerant"][f"h = {h}"].mean
        )


def test_it_is_written_as_data_table_and_pictures(report, tmp_path):
    attack_figures.write(report, tmp_path)
    written = json.loads((tmp_path / "attacks.json").read_text())
    assert written == asdict(report)
    assert list(written) == [
        "data", "mask", "n_users", "edges", "figures", "exact", "random_hit_ratio", "settings",
    ]  # fmt: skip
    assert set(written["figures"]["2a"]["g = 1"]) == {"mean", "proportions"}
    assert set(written["exact"][0]) == {"attack", "mean", "interval"}
    assert "| at random, strict |" in (tmp_path / "attacks.md").read_text()
    for name in FIGURES:
        assert (tmp_path / f"figure-{name}.svg").stat().st_size > 5_000
