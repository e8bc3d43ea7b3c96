import numpy as np
import pytest

from fedmmf import training
from fedmmf.config import Settings
from fedmmf.errors import CheckpointError

SETTINGS = Settings(mask="lr", rounds=12, factors=4, held_out=0.1, patience=100)


class KilledError(Exception):
    pass


def stop_after(round_):
    def progress(stage, done, total):
        if stage == "rounds" and done == round_:
            raise KilledError

    return progress


@pytest.fixture
def often(monkeypatch):
    """Write a checkpoint after every round."""
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("killed_in", [2, 7, 12])
def test_a_resumed_run_ends_like_an_uninterrupted_one(small, tmp_path, killed_in):
    file = tmp_path / "run.checkpoint"
    whole = training.train(small, SETTINGS)
    with pytest.raises(KilledError):
        training.train(small, SETTINGS, checkpoint_file=file, progress=stop_after(killed_in))
    assert file.exists()
    rounds = []
    resumed = training.train(
        small,
        SETTINGS,
        checkpoint_file=file,
        progress=lambda stage, done, total: rounds.append(done) if stage == "rounds" else None,
    )
    assert rounds == list(range(killed_in + 1, 13))
    assert np.array_equal(resumed.server.item_factors, whole.server.item_factors)
    assert np.array_equal(resumed.user_factors, whole.user_factors)
    assert resumed.server.stop == whole.server.stop
    assert not file.exists()


@pytest.mark.usefixtures("often")
def test_a_checkpoint_of_another_run_is_refused(small, tmp_path):
    file = tmp_path / "run.checkpoint"
    with pytest.raises(KilledError):
        training.train(small, SETTINGS, checkpoint_file=file, progress=stop_after(3))
    with pytest.raises(CheckpointError, match="other settings or ratings"):
        training.train(small, SETTINGS.changed(factors=5), checkpoint_file=file)
    other = small.select(np.arange(len(small)) > 0)
    with pytest.raises(CheckpointError, match="other settings or ratings"):
        training.train(other, SETTINGS, checkpoint_file=file)


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 nor this"])
def test_a_broken_checkpoint_is_refused(small, tmp_path, content):
    file = tmp_path / "run.checkpoint"
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match="is not a fedmmf checkpoint"):
        training.train(small, SETTINGS, checkpoint_file=file)


def test_the_number_of_threads_changes_nothing(small, monkeypatch):
    results = []
    for threads in ("1", "3"):
        monkeypatch.setenv("FEDMMF_THREADS", threads)
        results.append(training.train(small, SETTINGS))
    assert np.array_equal(results[0].server.item_factors, results[1].server.item_factors)
    assert np.array_equal(results[0].user_factors, results[1].user_factors)


def test_early_stopping_keeps_the_best_round(small):
    trained = training.train(small, SETTINGS.changed(rounds=300, patience=5, regularization=0.01))
    stop = trained.server.stop
    assert trained.server.round == stop.best_round + 5 < 300
    assert stop.history[stop.best_round - 1] == min(stop.history) == stop.best_rmse


def test_more_rounds_without_held_out_ratings_fit_better(small):
    def training_error(rounds):
        trained = training.train(small, SETTINGS.changed(rounds=rounds, held_out=0.0))
        scores = trained.user_factors @ trained.server.item_factors.T
        masked = trained.masks.masked_ratings(False)
        return np.mean((masked - scores[small.user_codes, small.item_codes]) ** 2)

    errors = [training_error(rounds) for rounds in (1, 10, 60)]
    assert errors[0] > errors[1] > errors[2]


def test_items_that_nobody_rated_are_left_to_the_mask(small):
    rated = small.select(small.item_codes != 4)
    trained = training.train(rated, SETTINGS)
    assert not trained.server.item_factors[4].any()
    trained = training.train(rated, SETTINGS.changed(mask="none"))
    assert trained.server.item_factors[4].tolist() == [3.0, 0.0, 0.0, 0.0]
