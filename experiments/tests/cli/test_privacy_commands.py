"""Experiments about privacy, as a user types them."""

import json

import pytest

from .conftest import fedmmf


def report_of(*arguments):
    done = fedmmf(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_epsilon_is_printed_beside_what_others_find():
    pytest.importorskip("dp_accounting", reason="dp-accounting is of the extra `dp`")
    rows = report_of("reproduce", "epsilon")["rows"]
    assert len(rows) == 10
    for row in rows:
        assert row["analytic"] == pytest.approx(row["losses"], rel=5e-4)
        assert row["analytic"] <= row["epsilon"] <= row["asked"]


def test_the_attack_figures_are_drawn_with_their_data(ratings_file, tmp_path):
    found = report_of(
        "reproduce", "attacks", "--data", ratings_file, "--mask", "mean", "--out", tmp_path
    )
    assert json.loads((tmp_path / "attacks.json").read_text()) == found
    for name, curves in found["figures"].items():
        for suffix in ("png", "svg"):
            assert (tmp_path / f"figure-{name}.{suffix}").stat().st_size > 5_000
        for curve in curves.values():
            assert sum(curve["proportions"]) == pytest.approx(1)
    exact = {row["attack"]: row["mean"] for row in found["exact"]}
    assert exact["prior alone"] < exact["decode"]
    strict, tolerant = (
        found["figures"][name]["h = 1"]["mean"] for name in ("2b", "2b-tie-tolerant")
    )
    assert strict <= tolerant


def test_what_sums_say_is_told_by_size(ratings_file, tmp_path):
    options = ["--mask", "mean", "--factors", "4", "--out", tmp_path]
    found = report_of("reproduce", "strict", "--data", ratings_file, "--size", "12", *options)
    assert json.loads((tmp_path / "strict.json").read_text()) == found
    assert {row["size"] for row in found["rows"]} == {12, 60}
    for row in found["rows"]:
        assert row["gain"]["low"] <= row["gain"]["mean"] <= row["gain"]["high"]


def test_what_many_rounds_say_is_told_by_batch(ratings_file, tmp_path):
    options = ["--mask", "mean", "--factors", "4", "--rounds", "6", "--out", tmp_path]
    found = report_of("reproduce", "rounds", "--data", ratings_file, "--size", "12", *options)
    assert json.loads((tmp_path / "rounds.json").read_text()) == found
    assert {row["batch"] for row in found["rows"]} == {1, 5, 20}


@pytest.mark.parametrize(("command", "rounds"), [("strict", 1), ("rounds", 8)])
def test_what_sums_of_vb_say_is_told_by_size(ratings_file, tmp_path, command, rounds):
    options = ["--solver", "vb", "--mask", "mean", "--factors", "4", "--out", tmp_path]
    options += ["--rounds", str(rounds)] if command == "rounds" else []
    found = report_of("reproduce", command, "--data", ratings_file, "--size", "12", *options)
    assert json.loads((tmp_path / f"{command}.json").read_text()) == found
    assert {row["size"] for row in found["rows"]} == {12, 60}
    assert {row["rounds"] for row in found["rows"]} == {rounds}
    assert found["solver"] == "vb"


def test_strengths_are_compared_and_kept(tmp_path):
    options = ["--data", "synthetic", "--mask", "lr", "--strength", "30", "--users", "20"]
    command = ["reproduce", "strengths", *options, "--out", tmp_path]
    found = report_of(*command)
    assert json.loads((tmp_path / "strengths.json").read_text()) == found
    (row,) = found["rows"]
    assert (row["mask"], row["strength"], row["verdict"]) == ("lr", 30.0, "exposed")
    assert row["found"] > row["public"]
    (kept,) = (tmp_path / "runs").rglob("*.json")
    written = kept.stat().st_mtime_ns
    shown = fedmmf(*command, COLUMNS="80").stdout
    assert kept.stat().st_mtime_ns == written
    assert max(map(len, shown.splitlines())) <= 80
    assert f"{row['rmse_federated']:.4f}" in shown
    refused = fedmmf(*command, "--strength", "-1")
    assert refused.returncode == 2
    assert "mask_strength" in refused.stderr


def test_models_under_noise_are_compared_and_kept(ratings_file, tmp_path):
    options = ["--rows", "user-item-means,user-means", "--epsilon", "8,2", "--splits", "1"]
    command = ["reproduce", "dp", "--data", ratings_file, *options, "--out", tmp_path]
    found = report_of(*command)
    assert json.loads((tmp_path / "dp.json").read_text()) == found
    assert [(row["row"], row["epsilon"]) for row in found["rows"]] == [
        ("user-item-means", 2.0),
        ("user-item-means", 8.0),
        ("user-means", None),
    ]
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*.json")}
    shown = fedmmf(*command, COLUMNS="80").stdout
    assert all(path.stat().st_mtime_ns == written for path, written in kept.items())
    assert f"{found['rows'][0]['mean']:.4f}" in shown


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["dp", "--epsilon", "1,-2"], "numbers in (0, 100]"),
        (["dp", "--rows", "vb,svd"], "no row 'svd'; the rows are vb-features"),
        (["dp-lists", "--rows", "dpals"], "no row 'dpals'; the rows are vb-features"),
        (["dp-users", "--users", "1,x"], "whole numbers from 2 on"),
    ],
)
def test_mistakes_in_a_comparison_under_noise_are_named(options, said):
    done = fedmmf("reproduce", *options)
    assert done.returncode in (1, 2)
    assert said in " ".join(done.stderr.split())
