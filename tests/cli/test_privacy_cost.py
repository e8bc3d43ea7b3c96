"""What privacy costs: `train` says it beside the result, and outside epsilon."""

import json

import pytest
from typer.testing import CliRunner

from fedmmf.cli.app import app
from fedmmf.data import load
from fedmmf.data.synthetic import synthetic
from fedmmf.model import FedMMF
from fedmmf.model.privacy_cost import is_cheap, without_noise
from fedmmf.settings import Settings

pytest.importorskip("dp_accounting", reason="dp-accounting is of the extra `dp`")

DP = ["--aggregation", "dp", "--dp-epsilon", "4"]


@pytest.fixture(scope="module")
def ratings(tmp_path_factory):
    file = tmp_path_factory.mktemp("cost") / "ratings.csv"
    made = synthetic(60, 40, 900, min_per_user=8, seed=3)
    rows = zip(made.user_codes, made.item_codes, made.values, strict=True)
    lines = [f"u{user},i{item},{value}" for user, item, value in rows]
    file.write_text("\n".join(["user_id,item_id,rating", *lines]) + "\n")
    return str(file)


def train(ratings, *options):
    given = ["train", "--data", ratings, "--mask", "mean", "--factors", "3", *options]
    return CliRunner().invoke(app, given)


def test_a_budget_is_priced_on_the_data_without_being_asked(ratings):
    """The other training is one of its own, with the same solver and no noise."""
    found = json.loads(train(ratings, *DP, "--json").stdout)
    cost = found["dp_cost"]
    assert (cost["epsilon"], cost["rmse"]) == (4.0, found["rmse"])
    assert "outside epsilon" in cost["outside"]
    assert cost["curve"] == []
    training, testing = load(ratings).split(test=0.2, seed=0)
    plain = FedMMF(mask="mean", factors=3, solver="vb").fit(training)
    assert cost["rmse_without"] == pytest.approx(plain.evaluate(testing)["rmse"])
    assert cost["sentence"] == (
        f"What epsilon 4 costs here: RMSE {cost['rmse']:.4f} with, {cost['rmse_without']:.4f} "
        "without (vb, 3 factors, 22 rounds)."
    )
    assert found["seconds"]["total"] > 0


def test_it_is_left_out_where_nobody_wants_it(ratings):
    assert "dp_cost" not in json.loads(train(ratings, *DP, "--no-dp-cost", "--json").stdout)
    assert "was not measured: --dp-cost" in train(ratings, *DP, "--no-dp-cost").stdout
    assert "dp_cost" not in json.loads(train(ratings, "--json").stdout)


def test_a_curve_has_a_run_for_every_epsilon(ratings, tmp_path):
    page = tmp_path / "page.html"
    found = train(ratings, *DP, "--dp-curve", "8,1,4", "--report", str(page))
    assert "Accuracy against epsilon" in found.stdout
    text = page.read_text()
    assert "RMSE against epsilon" in text
    assert "without privacy" in text
    assert "They are outside epsilon" in text
    points = json.loads(train(ratings, *DP, "--dp-curve", "8,1,4", "--json").stdout)["dp_cost"]
    assert [one["epsilon"] for one in points["curve"]] == [1, 4, 8]
    assert points["curve"][1]["rmse"] == points["rmse"]
    assert len({one["rmse"] for one in points["curve"]}) == 3


def test_lists_are_priced_too(ratings):
    options = ("--top", "5", "--objective", "rating", "--relevant-from", "4")
    cost = json.loads(train(ratings, *DP, *options, "--json").stdout)["dp_cost"]
    assert cost["ndcg_at_10"] is not None
    assert cost["ndcg_at_10_without"] is not None
    assert "lists (nDCG@10)" in cost["sentence"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--dp-curve", "1,2"), "dp_curve needs aggregation 'dp'"),
        (("--dp-cost",), "dp_cost needs aggregation 'dp'"),
        ((*DP, "--dp-curve", "0,2"), "must be epsilons above 0"),
        ((*DP, "--dp-curve", "few"), "must be epsilons above 0"),
    ],
)
def test_what_has_no_price_is_refused_before_training(ratings, options, words):
    found = train(ratings, *options)
    assert found.exit_code != 0
    said = f"{found.output}{found.exception}".replace("\n", " ")
    assert words in " ".join(said.replace("│", " ").split())


NO_TWIN = ("--objective", "ranking", "--mask-fit", "joint", "--top", "5", "--relevant-from", "4")


def test_settings_that_only_noise_allows_are_trained_without_a_comparison(ratings):
    """The joint fit of masks and lists needs a budget; the result comes all the same."""
    found = train(ratings, *DP, *NO_TWIN, "--json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout).get("dp_cost") is None
    assert json.loads(found.stdout)["ranking"]["ndcg_at_10"] is not None
    assert "cannot be measured with these settings: mask_fit 'joint' needs" in found.stderr


def test_a_comparison_that_cannot_be_is_refused_before_training(ratings, monkeypatch):
    def never(*arguments, **named):
        raise AssertionError("trained all the same")

    monkeypatch.setattr(FedMMF, "fit", never)
    found = train(ratings, *DP, *NO_TWIN, "--dp-cost")
    assert found.exit_code != 0
    said = " ".join(f"{found.output}{found.exception}".replace("│", " ").split())
    assert "cannot be measured with these settings" in said
    assert "Leave --dp-cost and --dp-curve out" in said


def test_what_is_named_stays_and_the_rest_is_as_without_noise():
    asked = Settings(aggregation="dp", dp_epsilon=2.0, dp_clip=3.0, mask="mean", factors=7)
    plain = without_noise(asked)
    assert (plain.aggregation, plain.solver, plain.mask) == ("secure", asked.solver, "mean")
    assert (plain.factors, plain.max_rounds) == (7, Settings(solver=asked.solver).max_rounds)
    assert not plain.scheme.has_budget
    assert without_noise(Settings(aggregation="dp", solver="sgd")).solver == "sgd"


def test_a_long_training_is_not_run_unasked(small):
    assert is_cheap(small, Settings(rounds=100))
    assert not is_cheap(small, Settings(rounds=10**6))
