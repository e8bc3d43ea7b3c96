"""Item factors through the rounds: best round, lost rounds, divergence, checkpoints."""

import numpy as np
import pytest
from federations import settings_of

from fedmmf.errors import DataError, DivergenceError, ExcludedError, WireError
from fedmmf.server import train
from fedmmf.server.rounds import MAX_LOST, last_number, one_round
from fedmmf.simulation import prepare
from fedmmf.solvers.contract import ItemSums, require_valid_broadcast


@pytest.fixture
def run(small):
    return prepare(small, settings_of("secure", rounds=12))


class Losing:
    """Participants whose sums fail in some rounds."""

    def __init__(self, crowd, lost, kind=DataError):
        self._crowd, self._lost, self._kind = crowd, lost, kind

    def sums(self, round_):
        if round_.round in self._lost:
            raise self._kind("some party did not bound its numbers")
        return self._crowd.sums(round_)

    def newcomers(self, round_):
        return self._crowd.newcomers(round_)

    def finish(self, round_):
        self._crowd.finish(round_)


def test_a_lost_round_leaves_the_factors_takes_its_number_and_is_made_again(run):
    coordinator = run.coordinator()
    crowd = Losing(run.parties(), {2})
    one_round(coordinator, crowd)
    before = coordinator.next_round().item_rows.copy()
    one_round(coordinator, crowd)
    assert coordinator.round == 2
    assert np.array_equal(coordinator.next_round().item_rows, before)
    assert np.isnan(coordinator.history[1])
    one_round(coordinator, crowd)
    assert not np.array_equal(coordinator.next_round().item_rows, before)


def test_rounds_that_keep_failing_end_the_run_with_their_reason(run):
    coordinator = run.coordinator()
    crowd = Losing(run.parties(), set(range(3, 99)))
    with pytest.raises(DataError, match="did not bound"):
        train(coordinator, crowd)
    assert coordinator.round == 2 + MAX_LOST - 1


def test_rounds_that_each_put_somebody_out_do_not_end_the_run(run):
    coordinator, lost = run.coordinator(), set(range(3, 3 + 2 * MAX_LOST))
    train(coordinator, Losing(run.parties(), lost, ExcludedError))
    assert np.isnan(coordinator.history).sum() == 2 * MAX_LOST


def test_training_that_has_no_numbers_left_is_not_finished(run):
    coordinator = run.coordinator()
    coordinator.skip_to(last_number(run.settings))
    assert not coordinator.is_finished
    with pytest.raises(WireError, match="needs 12 rounds and has 0"):
        train(coordinator, run.parties())


def test_now_and_then_a_lost_round_does_not_end_the_run(run):
    coordinator = run.coordinator()
    train(coordinator, Losing(run.parties(), {1, 2, 4, 6, 7, 12}))
    assert coordinator.is_finished
    assert (coordinator.n_done, coordinator.round) == (12, 18)


def test_what_is_kept_is_what_was_published_in_the_best_round(small):
    run = prepare(small, settings_of("secure", rounds=40, regularization=0.01, patience=5))
    coordinator = run.coordinator()
    crowd, published = run.parties(), {}
    while not coordinator.is_finished:
        published[coordinator.round + 1] = coordinator.next_round().item_rows.copy()
        one_round(coordinator, crowd)
    assert 1 < coordinator.best_round < coordinator.round
    rows, items = coordinator.result.item_rows, run.layout.items
    assert np.array_equal(rows[items], published[coordinator.best_round])
    others = np.setdiff1d(np.arange(small.n_items), items)
    assert len(others) > 0
    known = rows[items].mean(axis=0)  # of the others nothing is known: they are like the mean one
    np.testing.assert_allclose(rows[others], np.tile(known, (len(others), 1)), atol=1e-6)


def test_items_that_are_not_summed_are_known_as_in_the_best_round(small):
    """What the prior says of them changes from round to round, like everything else."""
    run = prepare(small, settings_of("secure vb", rounds=150, min_raters=12, patience=3))
    coordinator, crowd, known = run.coordinator(), run.parties(), {}
    items = run.layout.items
    others = np.setdiff1d(np.arange(small.n_items), items)
    while not coordinator.is_finished:
        known[coordinator.round + 1] = coordinator.half.unknown(run.features.content[others])
        one_round(coordinator, crowd)
    best = coordinator.best_round
    assert 1 < best < coordinator.round
    assert not np.array_equal(known[best], known[best + 1])
    again = run.coordinator()
    again.restore(coordinator.state())
    for one in (coordinator, again):
        last = one.next_round(is_last=True)
        assert last.item_rows.shape[0] == small.n_items
        assert np.array_equal(last.item_rows[others], known[best])
        assert np.array_equal(last.item_rows, one.result.item_rows)


def test_it_continues_from_its_state(run):
    whole, torn = run.coordinator(), run.coordinator()
    halves_of = run.parties(), run.parties()
    for _ in range(4):
        for coordinator, crowd in zip((whole, torn), halves_of, strict=True):
            one_round(coordinator, crowd)
    again = run.coordinator()
    again.restore(torn.state())
    for coordinator, crowd in ((whole, halves_of[0]), (again, halves_of[1])):
        one_round(coordinator, crowd)
    assert np.array_equal(again.result.item_rows, whole.result.item_rows)
    assert again.history == whole.history
    assert again.round == whole.round


def test_a_matrix_that_cannot_be_factorized_is_reported_as_that(small):
    """And not as numbers that are no longer finite: all of them are."""
    run = prepare(small, settings_of("secure vb", mask="none", rounds=3))
    coordinator, crowd = run.coordinator(), run.parties()
    round_ = coordinator.next_round()
    sums = crowd.sums(round_)
    totals = -np.abs(sums.totals)  # what no users add up to
    assert np.isfinite(totals).all()
    with pytest.raises(DivergenceError, match="needs positive definite matrices") as caught:
        coordinator.advance(round_, ItemSums(sums.rows, sums.n_raters, totals))
    assert "Train with fewer factors or more users" in str(caught.value)
    assert "finite with" not in str(caught.value)


def test_numbers_out_of_range_are_reported_as_that(small, monkeypatch):
    """They are finite: a matrix of clipped totals need not be positive."""
    run = prepare(small, settings_of("secure vb", mask="none", rounds=3))
    coordinator, crowd = run.coordinator(), run.parties()
    round_ = coordinator.next_round()
    sums = crowd.sums(round_)

    def check(broadcast):
        require_valid_broadcast(False, "the curvature is positive")

    monkeypatch.setattr(coordinator.half, "check", check)
    with pytest.raises(DivergenceError, match="numbers for which the curvature is pos") as caught:
        coordinator.advance(round_, sums)
    assert "Leave out users with many thousand ratings" in str(caught.value)
    assert "finite" not in str(caught.value)


def test_divergence_is_an_error_that_says_what_to_do(small):
    settings = settings_of("plain", mask="none", step="sum", learning_rate=5.0, rounds=200)
    run = prepare(small, settings)
    coordinator = run.coordinator()
    with pytest.raises(DivergenceError, match="Lower the learning rate, use step 'adam', or"):
        train(coordinator, run.parties())


def test_a_lost_round_that_ends_a_stage_on_numbers_that_are_not_finite_ends_the_run(small):
    """Under a budget a lost round may be the step from the sums before it; these are untrusted."""
    coordinator = prepare(small, settings_of("dp vb", rounds=8)).coordinator()
    state = coordinator.half.state()
    rows = np.full_like(state["rows"], np.nan)
    coordinator.half.restore(state | {"rows": rows, "n_pending": np.asarray(1)})
    with pytest.raises(DivergenceError, match="round 1: numbers are no longer finite"):
        coordinator.lose(coordinator.next_round(), DataError("nobody answered"))
