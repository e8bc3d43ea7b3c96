"""What somebody gets who sets nothing, beside popularity and implicit's ALS."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from fedmmf import FedMMF
from fedmmf.cli.app import app
from fedmmf_experiments.bench import first_answer as bench
from fedmmf_experiments.bench.rankers import popularity
from fedmmf_experiments.bench.ranking import judged
from fedmmf_experiments.bookshop import bookshop, core


def quiet(line):
    pass


def test_ours_is_what_recommend_trains_without_flags(small, monkeypatch):
    monkeypatch.setattr(bench, "has_als", lambda: False)
    row = bench.first_answer(small, 1, 0.2, 0, quiet)
    train, test = small.split(0.2, seed=0)
    model = FedMMF(objective="ranking", factors=30).fit(train)  # half as many as users
    scores = model.evaluate(test, top=10)["ranking"]
    assert row.ours == pytest.approx(scores.ndcg_at_10, abs=1e-4)
    assert (row.settings["objective"], row.settings["factors"]) == ("ranking", 30)
    assert row.popularity == judged(popularity(train, 4.0), train, test, 4.0)["ndcg_at_10"]
    assert (row.als_on_values, row.als_on_ones) == (None, None)


def test_figures_are_means_over_splits(small, monkeypatch):
    monkeypatch.setattr(bench, "has_als", lambda: False)
    both = bench.first_answer(small, 2, 0.2, 0, quiet)
    alone = [bench.first_answer(small, 1, 0.2, seed, quiet) for seed in (0, 1)]
    assert both.ours == pytest.approx(np.mean([row.ours for row in alone]), abs=1e-4)
    assert alone[0].popularity != alone[1].popularity


def test_implicit_feedback_is_ranked_without_a_mask(small, monkeypatch):
    monkeypatch.setattr(bench, "has_als", lambda: False)
    row = bench.first_answer(small.as_implicit(), 1, 0.2, 0, quiet)
    assert (row.settings["mask"], row.settings["implicit_prior"]) == ("none", "items")


def test_als_has_its_defaults(small, monkeypatch):
    pytest.importorskip("implicit", reason="implicit is not installed: make test-peers")
    row = bench.first_answer(small, 1, 0.2, 0, quiet)
    assert 0 < row.als_on_ones < 1
    assert row.als_on_values != row.als_on_ones


def test_a_core_has_rated_books_alone_and_enough_of_each():
    found = core(bookshop(600, 900, 9000), minimum=3)
    assert found.values.min() >= 1
    assert np.bincount(found.user_codes).min() >= 3
    assert np.bincount(found.item_codes).min() >= 3
    assert (found.n_users, found.n_items) == (
        found.user_codes.max() + 1,
        found.item_codes.max() + 1,
    )


@pytest.mark.parametrize("is_installed", [True, False])
def test_one_command_prints_one_table(small, monkeypatch, is_installed):
    monkeypatch.setattr(bench, "has_als", lambda: is_installed)
    figures = {"als_on_values": 0.25, "als_on_ones": 0.125}
    found = figures if is_installed else dict.fromkeys(figures)
    monkeypatch.setattr(bench, "als_figures", lambda train, test: found)
    monkeypatch.setitem(bench.SETS, "ml-100k", lambda: small)
    asked = ["bench", "first-answer", "--data", "ml-100k"]
    done = CliRunner().invoke(app, asked, env={"COLUMNS": "200"}, catch_exceptions=False)
    head, _, row, about = done.stdout.splitlines()
    assert head.startswith("| data | users | items | ratings | fedmmf, no flags | most popular |")
    assert row.startswith("| synthetic (synthetic) | 60 | 90 | 1,800 | 0.")
    assert ("| 0.2500 | 0.1250 |" in row) is is_installed
    assert ("| not installed | not installed |" in row) is not is_installed
    assert ("`implicit` is not installed" in done.stderr) is not is_installed
    assert about == "nDCG@10, test share 0.2, 1 split(s), all unrated items."
    done = CliRunner().invoke(app, [*asked, "--json"], catch_exceptions=False)
    found = json.loads(done.stdout)
    assert found["implicit"] == ("installed" if is_installed else "not installed")
    assert [set(one) >= {"ours", "popularity", "als_on_values"} for one in found["rows"]] == [True]
