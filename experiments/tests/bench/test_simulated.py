"""Commands that time rounds; what they find differs from machine to machine, its shape does not."""

import json

import pytest
from typer.testing import CliRunner

from fedmmf.cli.app import app
from fedmmf.settings import Settings
from fedmmf_experiments.bench import federation, growth, rounds, strict

SETTINGS = Settings(mask="mean", factors=3, held_out=0.0)


@pytest.fixture
def ratings_file(small, tmp_path):
    path = tmp_path / "ratings.csv"
    small.to_frame().write_csv(path)
    return str(path)


def bench(*arguments):
    done = CliRunner().invoke(app, ["bench", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def tabled(text):
    titles, rule, *rows = (line.strip("| ").split(" | ") for line in text.splitlines())
    assert set(rule) == {"---"}
    return [dict(zip(titles, row, strict=True)) for row in rows]


def test_rounds_are_timed_with_their_loading(ratings_file):
    found = rounds.measure(ratings_file, SETTINGS, repeats=2)
    assert (found.n_ratings, found.synthetic) == (1800, False)
    assert min(found.first_load_s, found.first_round_s, found.round_s, found.peak_gb) > 0
    assert found.ns_per_rating == pytest.approx(1e9 * found.round_s / 1800)


def test_bench_rounds(ratings_file):
    options = ["rounds", "--data", ratings_file, "--factors", "3", "--repeats", "1"]
    (row,) = json.loads(bench(*options, "--json"))["rows"]
    assert row["n_ratings"] == 1800
    (line,) = tabled(bench(*options))
    assert (line["ratings"], len(line)) == ("1,800", 8)


@pytest.mark.parametrize("about", [{}, {"n_items": 500, "per_user": 30}])
def test_growth_has_about_the_same_ratings_per_user(about):
    shape = growth.Shape(**about)
    for n_ratings in (15_000, 30_000):
        ratings = shape.ratings(n_ratings, seed=1)
        assert len(ratings) == n_ratings
        assert ratings.n_users == n_ratings // about.get("per_user", growth.RATINGS_PER_USER)
        assert ratings.n_items == about.get("n_items", growth.N_ITEMS)


def test_bench_growth():
    options = ["growth", "--solver", "vb", "--ratings", "15000", "--factors", "2"]
    (row,) = json.loads(bench(*options, "--json"))["rows"]
    assert (row["solver"], row["n_ratings"], row["n_users"]) == ("vb", 15_000, 100)
    (line,) = tabled(bench(*options))
    assert line["ratings (synthetic)"] == "15,000"
    options = ["growth", "--solver", "sgd", "--ratings", "2000", "--items", "100"]
    options += ["--per-user", "40", "--sharing", "strict", "--factors", "2", "--json"]
    (row,) = json.loads(bench(*options))["rows"]
    assert (row["n_ratings"], row["n_users"], row["round_s"] > 0) == (2000, 50, True)


def test_strict_rounds_stand_beside_plain_ones(small):
    found = strict.measure(small, SETTINGS.changed(solver="vb"), repeats=2)
    assert found.solver == "vb"
    assert found.ratio == found.strict_s / found.plain_s > 0


def test_bench_strict(ratings_file):
    options = ["strict", "--data", ratings_file, "--factors", "3", "--repeats", "1"]
    rows = json.loads(bench(*options, "--json"))["rows"]
    assert [row["solver"] for row in rows] == ["sgd", "vb"]
    assert [line["solver"] for line in tabled(bench(*options, "--solver", "sgd"))] == ["sgd"]


def test_a_federation_of_real_parties_is_timed(small):
    told = []
    found = federation.measure(small, SETTINGS, 2, lambda *about: told.append(about))
    assert (found.n_parties, len(found.round_s)) == (60, 2)
    assert min(found.setup_s, *found.round_s) > 0
    assert told[-1] == ("rounds", 2, 2)


def test_bench_federation(ratings_file):
    options = ["federation", "--data", ratings_file, "--factors", "3", "--rounds", "1"]
    assert json.loads(bench(*options, "--json"))["n_parties"] == 60
    text = bench(*options)
    assert "| round 1 |" in text
    assert "60 parties." in text


def test_training_on_ray_workers_stands_beside_one_process(ray_engine, ratings_file):
    options = ["ray", "--data", ratings_file, "--solver", "sgd", "--rounds", "2", "--repeats", "1"]
    (row,) = json.loads(bench(*options, "--json"))["rows"]
    assert (row["n_ratings"], row["workers"], row["largest_difference"]) == (1800, 2, 0)
    assert min(row["start_s"], row["ray_mask_s"], row["ray_train_s"]) > 0
    (line,) = tabled(bench(*options, "--sharing", "plain"))
    assert float(line["largest difference"]) < 1e-4
