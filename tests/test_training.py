import numpy as np
import pytest

from fedmmf import training
from fedmmf.config import Settings
from fedmmf.errors import CheckpointError

SETTINGS = Settings(mask="lr", rounds=12, factors=4, held_out=0.1, patience=100)


def assert_same(one, other):
    assert len(one.members) == len(other.members)
    for mine, theirs in zip(one.members, other.members, strict=True):
        assert np.array_equal(mine.public.item_rows, theirs.public.item_rows)
        assert np.array_equal(mine.public.parameters, theirs.public.parameters)
        assert np.array_equal(mine.user_factors, theirs.user_factors)
        assert np.array_equal(mine.history, theirs.history)
        assert mine.best_round == theirs.best_round


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
@pytest.mark.parametrize("solver", ["sgd", "vb"])
def test_a_resumed_run_ends_like_an_uninterrupted_one(small, tmp_path, killed_in, solver):
    settings = SETTINGS.changed(solver=solver)
    file = tmp_path / "run.checkpoint"
    whole = training.train(small, settings)
    with pytest.raises(KilledError):
        training.train(small, settings, checkpoint_file=file, progress=stop_after(killed_in))
    assert file.exists()
    rounds = []
    resumed = training.train(
        small,
        settings,
        checkpoint_file=file,
        progress=lambda stage, done, total: rounds.append(done) if stage == "rounds" else None,
    )
    assert rounds == list(range(killed_in + 1, 13))
    assert_same(resumed, whole)
    assert not file.exists()


@pytest.mark.usefixtures("often")
def test_an_ensemble_resumes_in_its_second_run(small, tmp_path):
    settings = SETTINGS.changed(ensemble=3, rounds=4)
    file = tmp_path / "run.checkpoint"

    def progress(stage, done, total):
        if stage == "rounds of run 2" and done == 2:
            raise KilledError

    whole = training.train(small, settings)
    with pytest.raises(KilledError):
        training.train(small, settings, checkpoint_file=file, progress=progress)
    assert_same(training.train(small, settings, checkpoint_file=file), whole)


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


@pytest.mark.parametrize("solver", ["sgd", "vb"])
def test_the_number_of_threads_changes_nothing(small, monkeypatch, solver):
    results = []
    for threads in ("1", "3"):
        monkeypatch.setenv("FEDMMF_THREADS", threads)
        results.append(training.train(small, SETTINGS.changed(solver=solver)))
    assert_same(*results)


def test_early_stopping_keeps_the_best_round(small):
    trained = training.train(small, SETTINGS.changed(rounds=300, patience=5, regularization=0.01))
    (member,) = trained.members
    assert len(member.history) == member.best_round + 5 < 300
    assert member.history[member.best_round - 1] == min(member.history)


def test_more_rounds_without_held_out_ratings_fit_better(small):
    """Of sgd; the variational solver raises its bound instead, which test_vb.py watches."""

    def training_error(n):
        trained = training.train(small, SETTINGS.changed(rounds=n, held_out=0.0))
        (member,) = trained.members
        scores = member.user_factors @ member.public.item_factors.T
        masked = trained.masks.masked_ratings(False)
        return np.mean((masked - scores[small.user_codes, small.item_codes]) ** 2)

    errors = [training_error(n) for n in (1, 10, 60)]
    assert errors[0] > errors[1] > errors[2]


def test_items_that_nobody_rated_are_left_to_the_mask(small):
    rated = small.select(small.item_codes != 4)
    for mask, level in (("lr", 0.0), ("none", 3.0)):
        (member,) = training.train(rated, SETTINGS.changed(mask=mask)).members
        assert member.public.item_factors[4].tolist() == [level, 0.0, 0.0, 0.0]


def test_the_runs_of_an_ensemble_differ(small):
    first, second = training.train(small, SETTINGS.changed(ensemble=2)).members
    assert not np.array_equal(first.user_factors, second.user_factors)
