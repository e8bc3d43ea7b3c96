"""The sentence that leads a result: what was spent, who is in the clear, how accurate it is."""

import json
from pathlib import Path

import pytest

from fedmmf.reports.results import AuditResult, DemoResult, TrainResult

OLD = Path(__file__).parent / "version-0.1"


def train(settings=None, privacy=None, **changes):
    values = json.loads((OLD / "train.json").read_text())
    values["privacy"] |= {"secure_users": 40, "insecure_users": 20} | (privacy or {})
    values["settings"] = {"sharing": "strict", "mask": "lr"} | (settings or {})
    baselines = [{"name": "user mean", "rmse": 1.0}, {"name": "item mean", "rmse": 2.0}]
    made = {"rmse": 0.9, "baselines": baselines}
    return TrainResult.from_json_dict(values | made | changes)


def audit(**changes):
    values = json.loads((OLD / "audit.json").read_text())
    return AuditResult.from_json_dict(values | changes)


def test_a_strict_run_leads_with_its_error():
    beside = "10.0% below that of the best simple prediction (user mean, 1.0000)"
    assert train().verdict == f"RMSE 0.9000 on test ratings, {beside}."
    assert "10.0% above" in train(rmse=1.1).verdict
    means = [{"name": "item mean", "rmse": 2.0}, {"name": "user mean", "rmse": 1.0}]
    masked = train(baselines=[*means, {"name": "mask alone", "rmse": 0.5}])
    assert masked.verdict == train().verdict  # a mask is no simple prediction
    assert train(baselines=[{"name": "mask alone", "rmse": 0.5}]).best_mean is None
    assert train(baselines=[]).verdict == "RMSE 0.9000 on test ratings."
    assert train(rmse=None).verdict == "Nothing was tested, so that the error is not known."


def test_a_noisy_run_leads_with_epsilon_and_delta(spent):
    verdict = train(dp=spent).verdict
    assert verdict.startswith("Epsilon 7.5 at delta 1e-05 for a whole user; RMSE 0.9000 on")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sharing": "adaptive"}, "(J <= 0.05) would send their updates in the clear, which is"),
        (
            {"sharing": "adaptive", "grouping": "audit", "audit_limit": 0.3},
            "(whose own audit finds less than 30%) would send",
        ),
        ({"sharing": "adaptive", "collect_masked": True}, "send their masked ratings in the clear"),
        ({"sharing": "plain", "mask": "none"}, "in the clear, and nothing hides their part"),
    ],
)
def test_who_is_in_the_clear_is_counted_and_called_obfuscated(settings, words):
    found = train(settings, {"threshold_j": 0.05, "users_in_clear": 40})
    assert found.in_clear.startswith("40 of 60 users")
    assert words in found.in_clear
    assert ("obfuscation, not protection" in found.in_clear) is (settings.get("mask") is None)
    assert found.verdict.startswith(found.in_clear)
    assert found.to_json_dict()["in_clear"] == found.in_clear


def test_a_real_run_sent_what_a_simulated_one_would_send():
    found = train({"sharing": "adaptive"}, {"users_in_clear": 40}, simulated=False)
    assert "users (J <= 0.05) sent their updates" in found.in_clear


def test_nobody_is_in_the_clear_under_strict_sharing():
    found = train(privacy={"users_in_clear": 0})
    assert found.in_clear is None
    assert "in_clear" not in found.to_json_dict()


def test_a_run_that_ranks_leads_with_its_lists():
    popular = {"ndcg_at_10": 0.2, "recall_at_20": 0.1, "hit_rate_at_10": None}
    ranking = popular | {"ndcg_at_10": 0.3, "popularity": popular}
    verdict = train(rmse=None, ranking=ranking).verdict
    assert verdict == "The nDCG@10 of lists is 0.3000, that of the most popular items 0.2000."
    both = train(ranking=ranking).verdict  # lists were asked for: they come first
    assert both.startswith(f"{verdict[:-1]}; RMSE 0.9000 on test ratings, 10.0% below")
    alone = ranking | {"popularity": None}
    assert train(rmse=None, ranking=alone).verdict == "The nDCG@10 of lists is 0.3000."


def test_lists_that_are_worse_than_popular_items_are_called_so():
    popular = {"ndcg_at_10": 0.1752, "recall_at_20": 0.1, "hit_rate_at_10": None}
    ranking = popular | {"ndcg_at_10": 0.0624, "popularity": popular}
    worse = "These lists are worse than the most popular items: nDCG@10 0.0624 against 0.1752"
    assert train({"objective": "ranking"}, rmse=None, ranking=ranking).verdict == f"{worse}."
    predicted = train(ranking=ranking)
    assert predicted.verdict.startswith(f"{worse}; RMSE 0.9000 on test ratings")
    assert predicted.to_json_dict()["verdict"] == predicted.verdict
    as_good = ranking | {"ndcg_at_10": 0.1752}
    assert train(rmse=None, ranking=as_good).verdict.startswith("The nDCG@10 of lists is 0.1752")


def test_what_was_learned_is_told():
    assert train().to_json_dict()["objective"] == "rating"
    found = train({"objective": "ranking"}).to_json_dict()
    assert found["objective"] == "ranking"
    assert list(found).index("objective") < list(found).index("rmse")


def test_an_audit_finds_sums_first_where_nobody_shares():
    assert audit().finding == "Some attack finds at least 90% of the ratings of 273 of 273 users."
    alone = json.loads((OLD / "audit.json").read_text())["privacy"] | {"users_in_clear": 0}
    verdicts = {"in the clear": "Nobody would share.", "in sums": "Sums say little."}
    found = audit(privacy=alone, verdicts=verdicts)
    assert found.finding == "Nobody would share. Sums say little."
    settings = json.loads((OLD / "audit.json").read_text())["settings"] | {"sharing": "strict"}
    strict = audit(settings=settings, verdicts=verdicts)
    assert strict.finding == "Sums say little. Nobody would share."
    assert audit(verdicts={}).finding.startswith("273 of 273 users who would share in the clear")


@pytest.mark.parametrize("simulated", [True, False])
@pytest.mark.parametrize("name", ["train", "demo", "audit"])
def test_json_says_first_how_real_the_run_was(name, simulated):
    values = json.loads((OLD / f"{name}.json").read_text())
    for run in values.get("runs", [values]):
        run["simulated"] = simulated
    kind = {"train": TrainResult, "demo": DemoResult, "audit": AuditResult}[name]
    first, said = next(iter(kind.from_json_dict(values).to_json_dict().items()))
    assert first == "run_kind"
    assert said.startswith("simulated: " if simulated else "real parties")
