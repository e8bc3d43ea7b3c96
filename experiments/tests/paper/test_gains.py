"""Paired gains, and what experiments on sums write."""

import json

import numpy as np
import pytest

from fedmmf import rng
from fedmmf.attacks import AttackResult
from fedmmf.settings import Settings
from fedmmf_experiments.paired import paired_gain
from fedmmf_experiments.paper import many_rounds, strict_sums, vb_rounds


def test_users_who_share_their_luck_make_an_interval_wider():
    draw = rng.stream(0, "luck")
    lucky = [draw.normal(luck, 0.01, 40) for luck in draw.normal(0, 1, 12)]
    mixed = np.concatenate(lucky)[draw.permutation(480)]
    by_cohort = paired_gain(lucky)
    by_user = paired_gain([mixed])
    assert (by_cohort.over, by_user.over) == ("cohorts", "users")
    assert by_cohort.mean == pytest.approx(by_user.mean)
    assert by_cohort.high - by_cohort.low > 3 * (by_user.high - by_user.low)


def test_intervals_over_users_are_those_of_95_percent():
    """Beside the normal one, whose ends are 1.96 standard errors away."""
    values = rng.stream(1, "normal").normal(0.3, 2.0, 2000)
    reach = 1.96 * values.std() / np.sqrt(len(values))
    users = np.arange(len(values))
    attack = AttackResult("a", "K.", "O.", "M.", users, values, np.zeros(len(values)))
    gain = paired_gain([values])
    for low, high in ((gain.low, gain.high), attack.interval, attack.advantage_interval):
        assert low == pytest.approx(values.mean() - reach, abs=0.15 * reach)
        assert high == pytest.approx(values.mean() + reach, abs=0.15 * reach)


def test_who_has_nothing_to_attack_does_not_count():
    gain = paired_gain([np.array([0.5, np.nan, 0.1])])
    assert gain.mean == pytest.approx(0.3)
    assert gain.low <= gain.mean <= gain.high


def test_cohorts_of_one_size_have_no_common_member():
    cohorts = strict_sums.draw_cohorts(943, 50, seed=0)
    users = np.concatenate(cohorts)
    assert len(set(users)) == len(users) == 50 * strict_sums.COHORTS[50]
    assert len(strict_sums.draw_cohorts(943, 943, seed=0)[0]) == 943


def test_sums_are_attacked_by_size_and_written(small, tmp_path):
    told = []
    settings = Settings(mask="mean", factors=4)
    report = strict_sums.run(small, settings, [12, 500], lambda *done: told.append(done))
    assert {row.size for row in report.rows} == {12, small.n_users}
    assert told == [(0, 2), (1, 2)]
    for row in report.rows:
        assert row.gain.low <= row.gain.mean <= row.gain.high
        assert row.gain.mean == pytest.approx(row.success - row.public, abs=1e-9)
    strict_sums.write(report, tmp_path)
    assert json.loads((tmp_path / "strict.json").read_text())["data"] == small.name
    for row in report.rows:
        assert row.control.mean < max(row.gain.mean, 0.02)
    assert {row.attack for row in report.rows} == {"calibrated", "unmixing", "membership"}
    assert (tmp_path / "strict.md").read_text().count("\n") == 2 + len(report.rows)
    assert (tmp_path / "strict-sums.svg").stat().st_size > 5_000


def test_rounds_are_attacked_by_size_batch_and_number_and_written(small, tmp_path):
    settings = Settings(mask="mean", factors=4)
    report = many_rounds.run(small, settings, [12], [5, 10], lambda *done: None)
    assert len(report.rows) == 2 * len(many_rounds.BATCHES) * 2
    alone = [row for row in report.rows if row.batch == 1]
    assert all(row.present == pytest.approx(0.95, abs=0.05) for row in alone)
    many_rounds.write(report, tmp_path)
    assert (tmp_path / "rounds.md").read_text().count("\n") == 2 + len(report.rows)
    assert (tmp_path / "many-rounds.svg").stat().st_size > 5_000


def test_sums_of_vb_are_attacked_by_size_and_rounds_and_written(small, tmp_path):
    settings = Settings(mask="mean", factors=4, solver="vb", min_raters=1)
    report = vb_rounds.run(small, settings, [12], [1, 8], lambda *done: None)
    found = {(row.attack, row.size, row.rounds): row for row in report.rows}
    on_all = [name for name, size, _ in found if size == small.n_users]
    assert set(on_all) == set(vb_rounds.ON_RATINGS)  # nobody is left to be told from
    for rounds in (1, 8):
        row = found["vb unmixing", 12, rounds]
        assert row.gain.low > 0
        assert row.gain.low > row.control.high
    assert found["vb unmixing", 12, 8].success > found["vb unmixing", 12, 1].success
    assert (
        found["vb lists, ranking", 12, 8].gain.mean > found["vb lists, ranking", 12, 8].control.mean
    )
    strict_sums.write(report, tmp_path, "rounds")
    assert (tmp_path / "rounds.md").read_text().count("\n") == 2 + len(report.rows)
    assert (tmp_path / "rounds-sums.svg").stat().st_size > 5_000
