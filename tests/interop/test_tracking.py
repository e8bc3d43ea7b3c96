"""Settings, rounds and final figures, where MLflow and TensorBoard keep them."""

import json

import pytest

from fedmmf import FedMMF
from fedmmf.interop.tracking import figures_of, log_to_mlflow, log_to_tensorboard, rounds_of

from .conftest import needs

# What these libraries warn of at work is not ours to mend.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def parts(small):
    return small.split(0.3)


@pytest.fixture(scope="module")
def model(parts):
    return FedMMF(mask="mean", factors=2, rounds=6, ensemble=2).fit(parts[0])


@pytest.fixture(scope="module")
def result(model, parts):
    return model.summary(parts[1], top=5)


def test_every_round_of_every_run_is_there(model):
    first, second = model.learned.members
    expected = [("held_out_rmse", n, v) for n, v in enumerate(first.history.tolist(), 1)]
    second_name = "held_out_rmse_of_run_2"
    expected += [(second_name, n, v) for n, v in enumerate(second.history.tolist(), 1)]
    assert list(rounds_of(model)) == expected
    assert len(expected) == 12


def test_where_nothing_is_held_out_rounds_have_no_figures(small):
    model = FedMMF(mask="mean", factors=2, rounds=2, held_out=0.0).fit(small)
    assert list(rounds_of(model)) == []


def test_figures_are_those_of_the_summary(result):
    found = figures_of(result)
    assert found["rmse"] == result.rmse
    assert found["privacy.mean_j"] == result.privacy.mean_j
    assert found["ranking.ndcg_at_5"] == result.to_json_dict()["ranking"]["ndcg_at_5"]
    assert found["ranking.popularity.ndcg_at_5"] > 0
    assert all(isinstance(value, float) for value in found.values())


@needs("mlflow")
def test_mlflow_keeps_it(model, result, tmp_path, monkeypatch):
    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # mlflow-skinny has no data base
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run() as run:
        log_to_mlflow(model, result)
    kept = mlflow.get_run(run.info.run_id).data
    assert kept.params == {name: str(value) for name, value in model.get_params().items()}
    assert kept.metrics["rmse"] == result.rmse
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "held_out_rmse")
    found = {metric.step: metric.value for metric in history}
    assert found == dict(enumerate(model.learned.members[0].history.tolist(), 1))


@needs("tensorboard")
def test_tensorboard_keeps_it(model, result, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log_to_tensorboard(model, tmp_path / "run", result)
    kept = EventAccumulator(str(tmp_path / "run")).Reload()
    rounds = [(one.step, one.value) for one in kept.Scalars("held_out_rmse")]
    expected = list(enumerate(model.learned.members[0].history.tolist(), 1))
    assert [step for step, _ in rounds] == [step for step, _ in expected]
    assert [value for _, value in rounds] == pytest.approx([value for _, value in expected])
    (last,) = kept.Scalars("final/rmse")
    assert last.value == pytest.approx(result.rmse)
    (words,) = kept.Tensors("settings")
    assert json.loads(words.tensor_proto.string_val[0]) == model.get_params()
