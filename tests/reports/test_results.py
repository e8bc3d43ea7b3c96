"""Results: frozen, printed as JSON holds them, and read back from this and other versions."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fedmmf.errors import DataError
from fedmmf.reports.list_scores import ListScores, RankingScores, metric_title
from fedmmf.reports.results import (
    AuditResult,
    DemoResult,
    PrivacyGroups,
    TrainResult,
)
from fedmmf.reports.verdict import AttackOutcome

OLD = Path(__file__).parent / "version-0.1"
KINDS = {"train": TrainResult, "demo": DemoResult, "audit": AuditResult}
CONTRACT = {  # keys of `train --json`, and the part that holds them
    "rmse mae test_fraction seed mask solver factors rounds simulated seconds privacy traffic": "",
    "mask train total": "seconds",
    "threshold_j secure_users insecure_users mean_j": "privacy",
    "up_bytes_per_user_round down_bytes_per_user_round": "traffic",
}


def printed(name):
    """What version 0.1 printed."""
    return json.loads((OLD / f"{name}.json").read_text())


def attack(**changes):
    made = {
        "name": "inversion",
        "knows": "",
        "outputs": "",
        "measure": "",
        "n_users": 2,
        "mean": 0.5,
        "interval": (0.4, 0.6),
        "baseline_mean": 0.3,
        "advantage_interval": (0.1, 0.3),
    }
    return AttackOutcome(**made | changes)


def groups(**changes):
    made = {"threshold_j": 0.05, "secure_users": 3, "insecure_users": 4, "mean_j": 0.06}
    return PrivacyGroups(**made | changes)


@pytest.mark.parametrize("name", ["train", "audit"])
def test_every_key_of_version_0_1_is_printed_unchanged(name):
    old = printed(name)
    new = KINDS[name].from_json_dict(old).to_json_dict()
    first = ["run_kind", "verdict", "objective"] if name == "train" else ["run_kind"]
    worked_out = {key: new.pop(key) for key in list(new)[: len(first)]}
    assert new == old | {"simulated": True, "protection": [], "made": "", "command": ""}
    assert list(worked_out) == first
    assert worked_out.get("objective", "rating") == "rating"
    assert worked_out["run_kind"].startswith("simulated: ")


def test_the_sentence_that_version_0_2_called_verdict_is_passed_over():
    found = AuditResult.from_json_dict(printed("audit") | {"verdict": "Some attack finds much."})
    assert found.verdict is None
    decided = {"light": "red", "sentence": "It reads.", "rule": "R.", "changes": ["C."]}
    decided |= {"not_tested": ["N."]}
    found = AuditResult.from_json_dict(printed("audit") | {"verdict": decided})
    assert list(found.to_json_dict())[:2] == ["run_kind", "verdict"]
    assert found.to_json_dict()["verdict"] == decided


def test_a_demo_is_its_runs_and_a_list():
    old = printed("demo")
    new = DemoResult.from_json_dict(old)
    assert new.to_json_dict()["recommended"] == old["recommended"]
    runs = [TrainResult.from_json_dict(run) for run in old["runs"]]
    assert list(new.runs) == runs


def test_a_training_prints_the_keys_that_scripts_depend_on():
    found = TrainResult.from_json_dict(printed("train")).to_json_dict()
    for keys, part in CONTRACT.items():
        assert set(keys.split()) <= (found[part] if part else found).keys()


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        *(("train", key) for key in ("rmse", "data", "traffic", "settings", "rounds", "seconds")),
        ("demo", "runs"),
        *(("audit", key) for key in ("groups", "data", "settings", "grouping")),
    ],
)
def test_a_needed_key_that_is_missing_is_named(name, missing):
    old = printed(name)
    del old[missing]
    with pytest.raises(DataError, match=f"^{missing}: Field required"):
        KINDS[name].from_json_dict(old)


@pytest.mark.parametrize("name", KINDS)
def test_what_is_printed_is_read_back_the_same(name):
    result = KINDS[name].from_json_dict(printed(name))
    text = json.dumps(result.to_json_dict(), allow_nan=False)
    assert KINDS[name].from_json_dict(json.loads(text)) == result


def test_unknown_keys_of_a_newer_run_are_passed_over():
    old = printed("train")
    new = old | {"weather": "fine", "privacy": old["privacy"] | {"weather": "fine"}}
    assert TrainResult.from_json_dict(new) == TrainResult.from_json_dict(old)


def test_a_file_that_does_not_tell_is_taken_as_simulated():
    old = printed("train")
    assert TrainResult.from_json_dict(old).simulated
    assert not TrainResult.from_json_dict(old | {"simulated": False}).simulated


def test_numbers_of_numpy_become_plain_ones():
    found = groups(
        threshold_j=np.float32(0.25), secure_users=np.int64(3), mean_j=np.float64(0.5)
    ).to_json_dict()
    kinds = {"threshold_j": float, "secure_users": int, "insecure_users": int, "mean_j": float}
    assert {name: type(value) for name, value in found.items()} == kinds
    train = printed("train") | {"simulated": np.bool_(False), "settings": {"seed": np.int64(7)}}
    result = TrainResult.from_json_dict(train)
    assert result.simulated is False
    assert type(result.settings["seed"]) is int


def test_arrays_become_lists_with_none_where_there_is_nothing():
    found = attack(users=np.arange(2), success=np.array([0.5, np.nan]), baseline=np.zeros(2))
    assert found.success == (0.5, None)
    assert json.loads(json.dumps(found.to_json_dict(), allow_nan=False))["users"] == [0, 1]


LEAVES = st.floats() | st.booleans() | st.text()


@given(st.recursive(LEAVES, lambda part: st.lists(part, max_size=3)))
def test_nothing_that_is_not_finite_is_printed(value):
    result = TrainResult.from_json_dict(printed("train") | {"settings": {"any": value}})
    json.dumps(result.to_json_dict(), allow_nan=False)


@pytest.mark.parametrize("value", [math.nan, math.inf, np.float32("nan")])
def test_a_figure_that_is_not_finite_is_none_and_a_needed_one_is_refused(value):
    assert groups(mean_j=value).to_json_dict()["mean_j"] is None
    with pytest.raises(ValidationError):
        groups(threshold_j=value)


def test_null_is_said_and_what_nobody_asked_for_is_not_there():
    old = printed("train")
    assert "ranking" not in TrainResult.from_json_dict(old).to_json_dict()
    untested = TrainResult.from_json_dict(old | {"rmse": None, "mae": None}).to_json_dict()
    assert (untested["rmse"], untested["mae"]) == (None, None)
    assert "mean_j_out_of_fold" not in groups().to_json_dict()
    assert groups(mean_j_out_of_fold=math.nan).to_json_dict()["mean_j_out_of_fold"] is None


SCORES = {"ndcg_at_10": 0.3, "recall_at_20": 0.2, "hit_rate_at_10": 0.5}


def test_rankings_are_printed_beside_popularity():
    ranking = SCORES | {"n_users": 7, "ndcg_at_5": 0.25, "popularity": SCORES | {"ndcg_at_5": 0.2}}
    found = TrainResult.from_json_dict(printed("train") | {"ranking": RankingScores(**ranking)})
    assert found.to_json_dict()["ranking"] == ranking
    assert found.ranking.ndcg_at_5 == 0.25
    assert TrainResult.from_json_dict(found.to_json_dict()) == found


def test_metrics_at_any_length_are_kept_and_what_is_none_is_passed_over():
    newer = SCORES | {"map_at_3": math.nan, "weather_at_10": 1.0, "ndcg_at_0": 1.0, "ndcg": {}}
    found = ListScores.from_json_dict(newer)
    assert found.to_json_dict() == SCORES | {"map_at_3": None}
    with pytest.raises(DataError, match=r"^ndcg_at_7: .* valid number.*; got 'good'$"):
        ListScores.from_json_dict(SCORES | {"ndcg_at_7": "good"})


def test_metrics_are_in_the_order_of_metrics_and_lengths_and_have_titles():
    scores = SCORES | {"ndcg_at_5": 0.1, "recall_at_100": 0.9, "novelty_at_10": 2.0}
    named = {name: value for name, value in ListScores(**scores).metrics().items() if value}
    titles = ["nDCG@5", "nDCG@10", "recall@20", "recall@100", "hit rate@10", "novelty@10, bits"]
    assert [metric_title(name) for name in named] == titles


def test_results_cannot_be_changed():
    result = TrainResult.from_json_dict(printed("train"))
    with pytest.raises(ValidationError, match="frozen"):
        result.rmse = 0.0
    with pytest.raises(ValidationError, match="frozen"):
        result.privacy.secure_users = 0
    assert isinstance(result.history, tuple)


def test_a_result_shows_its_figures_and_not_its_long_lists():
    shown = repr(TrainResult.from_json_dict(printed("train")))
    assert "rmse=0.88" in shown
    assert "history" not in shown
    assert len(shown) < 2000


def test_a_mistake_says_where_what_was_required_and_what_arrived():
    old = printed("train")
    with pytest.raises(DataError, match=r"^seconds\.total: .* valid number.*; got 'long'$"):
        TrainResult.from_json_dict(old | {"seconds": old["seconds"] | {"total": "long"}})
    with pytest.raises(DataError, match=r"^the result: .*; got 7$"):
        TrainResult.from_json_dict(7)
    with pytest.raises(DataError, match=r"^j: 1 counts need 2 edges; got 3$"):
        TrainResult.from_json_dict(old | {"j": {"edges": [0, 1, 2], "counts": [1]}})
