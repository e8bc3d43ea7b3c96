"""Reading what commands printed, and refusing anything else with a reason."""

import io
import json

import pytest
import samples

from fedmmf.errors import DataError
from fedmmf.reports import read_run
from fedmmf.reports.reading import understood


@pytest.fixture
def write(tmp_path):
    def write(value, name="run.json"):
        path = tmp_path / name
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return path

    return write


@pytest.mark.parametrize("run", [samples.train(), samples.demo(), samples.audit()])
def test_a_file_is_read_as_it_is(write, run):
    assert read_run(write(run)) == run


def test_standard_input_is_read(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(samples.train())))
    assert read_run(type(tmp_path)("-")) == samples.train()


def test_a_folder_holds_one_part_or_both(write, tmp_path):
    write(samples.audit(), "audit.json")
    assert read_run(tmp_path).keys() == {"audit"}
    write(samples.train(), "train.json")
    run = understood(read_run(tmp_path))
    assert run.best.rmse == samples.train()["rmse"]
    assert len(run.audit.groups["in the clear"]) == 3


def test_the_best_run_of_a_demo_has_the_least_error():
    assert understood(samples.demo()).best.mask == "mean"
    untested = [samples.train(mask=mask, rmse=None) for mask in ("lr", "fm")]
    assert understood({"runs": untested}).best.mask == "lr"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("not json", "is not JSON"),
        ("[1, 2]", "one JSON object; got list"),
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
        ({"rmse": "low"}, "trained.0.rmse"),
        ({"rmse": float("nan")}, "trained.0.rmse"),
        ({"privacy": {}}, "trained.0.privacy.threshold_j"),
        ({"j": {"edges": [0, 1], "counts": [1, 2]}}, "2 counts need 3 edges; got 2"),
        ({"tradeoff": [{"threshold_j": 0.1, "share_in_clear": 7}]}, "share_in_clear"),
    ],
)
def test_a_wrong_value_is_named(changes, where):
    with pytest.raises(DataError, match=where):
        understood(samples.train(**changes))
