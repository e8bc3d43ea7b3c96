"""Runs in simulation: checkpoints, threads, early stopping."""

import numpy as np
import pytest

from fedmmf.errors import CheckpointError, DataError, DivergenceError, SettingsError
from fedmmf.settings import Settings
from fedmmf.simulation import prepare, training
from fedmmf.simulation.parties import SimulatedParties
from fedmmf.simulation.prepared import choose_held_out
from fedmmf.simulation.training import members_from_arrays, members_to_arrays
from fedmmf.storage import checkpoints
from fedmmf.storage.checkpoints import Checkpoint

SETTINGS = Settings(mask="lr", rounds=12, factors=4, held_out=0.1, patience=100)


def assert_same(one, other):
    assert_same_members(one.members, other.members)


def assert_same_members(one, other):
    for mine, theirs in zip(one, other, strict=True):
        assert np.array_equal(mine.broadcast.item_rows, theirs.broadcast.item_rows)
        assert np.array_equal(mine.broadcast.parameters, theirs.broadcast.parameters)
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


CHANGES = {
    "gone": None,
    "short": lambda a: a[:1] if a.ndim else a[np.newaxis],
    "deep": lambda a: a[..., np.newaxis],
    "other type": lambda a: a.astype(np.longdouble),
    "not finite": lambda a: np.full(a.shape, np.inf) if a.dtype.kind == "f" else -1 - a.astype(int),
}


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("solver", ["sgd", "vb"])
def test_a_checkpoint_that_somebody_changed_is_refused(small, tmp_path, solver, change):
    """Kernels do not look at sizes: what is too short would have them read anything."""
    file = tmp_path / "run.checkpoint"
    settings = SETTINGS.changed(solver=solver, ensemble=2, rounds=3, mask="mean")

    def progress(stage, done, total):
        if stage == "rounds of run 2" and done == 2:
            raise KilledError

    with pytest.raises(KilledError):
        training.train(small, settings, checkpoint_file=file, progress=progress)
    arrays, meta = checkpoints.load(file, "checkpoint")
    assert {"history", "n_done", "parties-best", "member0/sizes"} < arrays.keys()
    n_changed = 0
    for name, array in arrays.items():
        changed = dict(arrays)
        if CHANGES[change] is None:
            del changed[name]
        else:
            changed[name] = CHANGES[change](array)
        now = changed.get(name, np.array(np.nan))
        is_same = now.shape == array.shape and now.tobytes() == array.tobytes()
        if is_same or (name.endswith("history") and change in ("short", "not finite")):
            continue  # nothing to see; histories are of any length, with NaN
        n_changed += 1
        checkpoints.save(file, changed, meta)
        with pytest.raises(CheckpointError, match=r"must hold what this run was.*delete it"):
            training.train(small, settings, checkpoint_file=file)
    assert n_changed > 5


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("name", ["n_done", "member0/sizes", "member2/sizes"])
def test_counts_of_a_checkpoint_must_fit_its_rounds(small, tmp_path, name):
    file = tmp_path / "run.checkpoint"
    settings = SETTINGS.changed(ensemble=2, rounds=3)
    kept = Checkpoint(file)
    training.train(small, settings, checkpoint_file=kept)
    arrays, meta = checkpoints.load(file, "checkpoint")
    one = [key for key in arrays if key.startswith("member1/")]
    if name == "n_done":
        with pytest.raises(KilledError):
            training.train(
                small, SETTINGS, checkpoint_file=tmp_path / "other", progress=stop_after(2)
            )
        file, settings = tmp_path / "other", SETTINGS
        arrays, meta = checkpoints.load(file, "checkpoint")
        arrays[name] = np.array(3)
    elif name == "member0/sizes":
        arrays[name] = arrays[name] + np.array((0, 9))
    else:
        arrays |= {key.replace("member1", "member2"): arrays[key] for key in one}
    checkpoints.save(file, arrays, meta)
    with pytest.raises(CheckpointError, match="must hold what this run was"):
        training.train(small, settings, checkpoint_file=file)


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
        scores = member.user_factors @ member.broadcast.item_factors.T
        masked = trained.masks.masked_ratings
        return np.mean((masked - scores[small.user_codes, small.item_codes]) ** 2)

    errors = [training_error(n) for n in (1, 10, 60)]
    assert errors[0] > errors[1] > errors[2]


def test_items_that_nobody_rated_are_taken_for_the_mean_one(small):
    rated = small.select(small.item_codes != 4)
    for mask in ("lr", "none"):
        trained = training.train(rated, SETTINGS.changed(mask=mask))
        (member,) = trained.members
        factors, others = member.broadcast.item_factors, np.arange(small.n_items) != 4
        np.testing.assert_allclose(factors[4], factors[others].mean(axis=0), atol=1e-5)
    counted = rated.select(~choose_held_out(rated, SETTINGS))
    counted = counted.select(np.isin(counted.item_codes, trained.layout.items))
    means = [counted.values[counted.user_codes == user].mean() for user in range(60)]
    assert trained.layout.line[0] == pytest.approx(np.mean(means), abs=1e-6)


def test_items_that_are_not_summed_are_taken_for_the_mean_of_those_that_are(small):
    """Of sgd; the variational solver has a prior mean by how many rated an item."""
    trained = training.train(small, SETTINGS.changed(min_raters=12))
    (member,) = trained.members
    factors, summed = member.broadcast.item_factors, trained.layout.items
    others = np.setdiff1d(np.arange(small.n_items), summed)
    assert 0 < len(others) == trained.n_left_out < small.n_items
    mean = factors[summed].mean(axis=0, dtype=np.float64)
    assert np.abs(mean).max() > 1e-3
    np.testing.assert_allclose(factors[others], np.tile(mean, (len(others), 1)), atol=1e-6)


@pytest.mark.parametrize("mask", ["none", "lr"])
@pytest.mark.parametrize("solver", ["sgd", "vb"])
def test_after_every_round_the_mean_of_all_users_is_published(small, solver, mask):
    """Of all who rated something; of sgd with weights, the noise of ratings by how users differ."""
    run = prepare(small.select(small.user_codes != 7), SETTINGS.changed(solver=solver, mask=mask))
    coordinator, crowd, k = run.coordinator(), SimulatedParties(run), run.plan.update_shape.rank
    for _ in range(4):
        round_ = coordinator.next_round()
        coordinator.advance(round_, crowd.sums(round_))
        published = coordinator.next_round().broadcast
        p = np.delete(crowd.user_factors.astype(np.float64), 7, axis=0)
        if solver == "vb":
            known = run.plan.update_shape.blocks["parameters"].split(published.parameters)
            found = np.concatenate((known["mean_user"], known["joint_mean"]))
            np.testing.assert_allclose(found, p.mean(axis=0), rtol=1e-5, atol=1e-6)
        else:
            mean, weight = published.parameters[6 : 6 + k], published.parameters[6 + k :]
            np.testing.assert_allclose(mean, p.mean(axis=0), rtol=1e-5, atol=1e-6)
            # Ratings of 1..5 are taken to have a noise of 1.
            np.testing.assert_allclose(weight, 1.0 / p.var(axis=0), rtol=1e-3)
    assert np.abs(p.mean(axis=0)[1:]).max() > 1e-3
    assert not np.allclose(crowd.user_factors[7], p.mean(axis=0), atol=1e-3)


def test_the_runs_of_an_ensemble_differ(small):
    first, second = training.train(small, SETTINGS.changed(ensemble=2)).members
    assert not np.array_equal(first.user_factors, second.user_factors)


def test_members_survive_their_arrays(small):
    members = training.train(small, SETTINGS.changed(ensemble=2, rounds=3)).members
    again = members_from_arrays(members_to_arrays(members))
    assert [member.broadcast.rank for member in again] == [4, 4]
    assert_same_members(again, members)


def test_progress_is_told_for_masks_and_rounds(small):
    told = []
    training.train(small, SETTINGS.changed(ensemble=2), progress=lambda *said: told.append(said))
    by_stage = {stage: [said[1:] for said in told if said[0] == stage] for stage, _, _ in told}
    assert by_stage["masks"][-1] == (small.n_users, small.n_users)
    expected = [(done, 12) for done in range(1, 13)]
    assert by_stage["rounds"] == by_stage["rounds of run 2"] == expected


def test_a_run_in_simulation_counts_no_messages_and_measures_its_time(small):
    trained = training.train(small, SETTINGS.changed(rounds=1))
    assert trained.counted_cost is None
    assert trained.mask_seconds > 0
    assert trained.train_seconds > 0


@pytest.mark.parametrize("engine", ["numba", "numpy"])
@pytest.mark.parametrize(
    "chosen", [{"sharing": "plain"}, {"sharing": "strict"}, {"aggregation": "dp", "solver": "sgd"}]
)
def test_divergence_is_an_error_that_says_what_to_do(small, engine, chosen):
    if "aggregation" in chosen:
        pytest.importorskip("dp_accounting", reason="the extra `dp`")
    wild = {"mask": "none", "step": "sum", "learning_rate": 5.0, "held_out": 0.0}
    settings = Settings(engine=engine, rounds=30, factors=4, **wild, **chosen)
    with pytest.raises(DivergenceError, match="Lower the learning rate, use step 'adam', or"):
        training.train(small, settings)


def test_a_crowd_too_small_to_hide_in_is_refused(small):
    two = small.select(small.user_codes < 2)
    frame = two.to_frame()
    few = type(small).from_frame(frame, scale=small.scale)
    with pytest.raises(SettingsError, match="at least 3 users; got 2"):
        training.train(few, SETTINGS.changed(mask="mean", min_raters=1))
    with pytest.raises(DataError, match="no item has the 5 raters"):
        training.train(few, SETTINGS.changed(mask="mean"))
    training.train(few, SETTINGS.changed(mask="mean", sharing="plain", rounds=1))
