"""Reading what commands printed, and refusing anything else with a reason."""

import io
import json

import pytest
import samples

from fedmmf.errors import DataError
from fedmmf.reports import Run, read_run
from fedmmf.reports.reading import as_run


@pytest.fixture
def write(tmp_path):
    def write(value, name="run.json"):
        path = tmp_path / name
        path.write_text(value if isinstance(value, str) else json.dumps(value.to_json_dict()))
        return path

    return write


@pytest.mark.parametrize("result", [samples.train(), samples.demo(), samples.audit()])
def test_a_file_is_read_as_it_was_printed(write, result):
    assert read_run(write(result)) == as_run(result) == as_run(result.to_json_dict())


def test_standard_input_is_read(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(samples.train().to_json_dict())))
    assert read_run(type(tmp_path)("-")) == Run.of(samples.train())


def test_standard_input_that_is_no_text_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff"), "utf-8"))
    with pytest.raises(DataError, match="standard input is no text"):
        read_run(type(tmp_path)("-"))


def test_a_folder_holds_one_part_or_both(write, tmp_path):
    write(samples.audit(), "audit.json")
    assert read_run(tmp_path) == Run.of(samples.audit())
    write(samples.train(), "train.json")
    assert read_run(tmp_path) == Run.of(samples.train(), samples.audit())


def test_the_best_run_of_a_demo_has_the_least_error():
    assert as_run(samples.demo()).best.mask == "mean"
    untested = [samples.train(mask=mask, rmse=None) for mask in ("lr", "fm")]
    assert Run.of(*untested).best.mask == "lr"


def test_the_best_run_with_lists_has_the_best_lists():
    def run(mask, ndcg, rmse):
        lists = {"ndcg_at_10": ndcg, "recall_at_20": 0.1, "hit_rate_at_10": 0.1}
        return samples.train(mask=mask, rmse=rmse, ranking=lists)

    assert Run.of(run("lr", 0.1, 0.9), run("mean", 0.3, None)).best.mask == "mean"
    assert Run.of(run("lr", 0.1, 0.9), samples.train(mask="fm", rmse=0.8)).best.mask == "fm"


def test_a_report_is_about_something_and_one_audit_at_most():
    for results in ([], [samples.audit()] * 2):
        with pytest.raises(DataError, match="at least one result, and one audit at most"):
            Run.of(*results)
    with pytest.raises(DataError, match="at least one result"):
        _ = Run().subject


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("not json", "is not JSON"),
        ("[1, 2]", "one JSON object; got list"),
        ("[" * 100_000 + "]" * 100_000, "is not JSON"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "is not JSON"),
        ('{"runs": "\\ud800"}', "is not JSON"),  # half a character
        ("{}", "its keys are none"),
        ('{"rows": []}', "train --json"),
        ('{"user": 1, "recommendations": []}', "its keys are user, recommendations"),
    ],
)
def test_other_files_are_refused(write, text, reason):
    with pytest.raises(DataError, match=reason):
        read_run(write(text))


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="cannot read"):
        read_run(tmp_path / "nothing.json")
    with pytest.raises(DataError, match=r"train\.json or audit\.json"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"rmse": "low"}, "run.json, rmse: Input should be a valid number"),
        ({"privacy": {}}, "privacy.threshold_j: Field required"),
        ({"j": {"edges": [0, 1], "counts": [1, 2]}}, "j: 2 counts need 3 edges; got 2"),
        ({"tradeoff": [{"threshold_j": 0.1, "share_in_clear": 7}]}, "tradeoff.0.share_in_clear"),
    ],
)
def test_a_wrong_value_is_named(write, changes, where):
    text = json.dumps(samples.train().to_json_dict() | changes)
    with pytest.raises(DataError, match=where):
        read_run(write(text))


def test_a_part_of_a_folder_is_not_mistaken_for_the_other(write, tmp_path):
    write(samples.audit(), "train.json")
    with pytest.raises(DataError, match=r"train\.json, rmse: Field required"):
        read_run(tmp_path)
