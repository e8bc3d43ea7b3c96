"""What a budget costs by the number of users."""

import json
from dataclasses import asdict

import pytest

from fedmmf_experiments.private import users
from fedmmf_experiments.private.users import UsersPlan, UsersRow
from fedmmf_experiments.result_cache import ResultCache

pytest.importorskip("dp_accounting", reason="the extra `dp`")


@pytest.fixture(scope="module")
def report():
    plan = UsersPlan([60, 600], [1.0, 20.0], items=60, per_user=15)
    return users.run(plan, ResultCache(), lambda done, of: None)


def test_a_budget_costs_less_the_more_users_share_the_noise(report):
    assert [(row.users, row.epsilon) for row in report.rows] == [
        (60, 1.0),
        (60, 20.0),
        (600, 1.0),
        (600, 20.0),
    ]
    few_tight, few_loose, many_tight, many_loose = (row.of_noise for row in report.rows)
    assert few_tight > few_loose
    assert many_tight > many_loose
    assert few_tight > many_tight


def test_it_says_how_many_users_are_enough():
    rows = [UsersRow(n, 10 * n, 1.0, 0.9 + 10 / n, 0.9, 0.85) for n in (100, 10_000, 2_000)]
    report = users.UsersCurve(60, 1e-6, 1, rows)
    assert [row.of_all for row in rows] == pytest.approx([0.15, 0.051, 0.055])
    assert report.enough(1.0) == 2_000
    assert report.enough(2.0) is None


def test_it_is_written_as_data_table_and_pictures(report, tmp_path):
    users.write(report, tmp_path)
    assert json.loads((tmp_path / "dp-users.json").read_text()) == asdict(report)
    lines = (tmp_path / "dp-users.md").read_text().splitlines()
    assert lines[0] == (
        "| users | ratings | epsilon | RMSE | RMSE at epsilon 40 | RMSE without | cost of noise "
        "| of all |"
    )
    assert len(lines) == 6
    assert (tmp_path / "dp-users.svg").stat().st_size > 5_000
