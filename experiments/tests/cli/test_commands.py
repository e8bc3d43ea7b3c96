"""`fedmmf reproduce` and `fedmmf bench`, as a user types them."""

import json
import re

import pytest

from .conftest import fedmmf

COMMANDS = [
    ["reproduce", "table1"],
    ["reproduce", "tune"],
    ["reproduce", "attacks"],
    ["reproduce", "strengths"],
    ["reproduce", "efficiency"],
    ["reproduce", "dp"],
    ["reproduce", "dp-lists"],
    ["reproduce", "dp-users"],
    ["reproduce", "solver"],
    ["reproduce", "newcomers"],
    ["reproduce", "newcomer-lists"],
    ["bench", "training"],
    ["bench", "ranking"],
    ["bench", "first-answer"],
    ["bench", "secagg"],
    ["bench", "session"],
    ["bench", "rounds"],
    ["bench", "growth"],
    ["bench", "strict"],
    ["bench", "federation"],
    ["bench", "ray"],
    ["bench", "imports"],
    ["bench", "costs"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example_a_seed_and_json(command):
    done = fedmmf(*command, "--help")
    assert done.returncode == 0
    for part in (f"Example: fedmmf {' '.join(command)}", "--seed", "--json"):
        assert part in done.stdout


def test_table1_json_keeps_its_contract(ratings_file, tmp_path):
    models = ["--model", "FedMF", "--model", "User-mean FedMMF (vb)"]
    out = tmp_path / "table1"
    command = ["reproduce", "table1", "--data", ratings_file, *models, "--runs", "2", "--out", out]
    rows = json.loads(fedmmf(*command, "--json").stdout)["rows"]
    assert [row["model"] for row in rows] == ["FedMF", "User-mean FedMMF (vb)"]
    wanted = {"model", "data", "rmse_mean", "rmse_std", "mae_mean", "mae_std"}
    assert set(rows[0]) >= wanted | {"paper_rmse", "paper_mae"}
    again = fedmmf(*command)
    assert "FedMF" in again.stdout
    assert {path.name for path in out.iterdir()} == {
        "table1.md",
        "table1.csv",
        "table1.json",
        "runs",
    }


MISTAKES = [
    (["reproduce", "table1", "--model", "SVD"], 2, "there is no model 'SVD'"),
    (["bench", "training", "--data", "nosuch.csv"], 1, "There is no file nosuch.csv"),
    (["bench", "first-answer", "--data", "netflix"], 2, "the sets are 'ml-100k', 'ml-1m',"),
    (["bench", "rounds", "--data", "nosuch.csv"], 1, "There is no file nosuch.csv"),
    (["bench", "growth", "--solver", "als"], 2, "solver should be 'sgd' or 'vb'; got 'als'"),
    (["bench", "growth", "--ratings", "2000", "--items", "2001"], 2, "2,001 items need as many"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code", "message"), MISTAKES, ids=lambda value: str(value)[:40]
)
def test_a_mistake_gets_a_message_and_no_traceback(arguments, code, message):
    done = fedmmf(*arguments)
    assert done.returncode == code
    assert message in re.sub(r"[│╭╮╰╯─\s]+", " ", done.stderr)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
