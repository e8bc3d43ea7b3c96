"""When training stops by itself."""

import math

from fedmmf.server.stopping import EarlyStop


def test_early_stop_waits_for_its_patience():
    stop = EarlyStop(patience=2)
    assert [stop.observe(e, 1) for e in (4.0, 1.0, 2.0)] == [True, True, False]
    assert (stop.best_round, stop.best_rmse, stop.is_over) == (2, 1.0, False)
    stop.observe(1.0, 1)
    assert stop.is_over


def test_without_held_out_ratings_nothing_is_best():
    stop = EarlyStop(patience=1)
    assert not stop.observe(0.0, 0)
    assert (stop.best_round, stop.is_over) == (0, False)
    assert math.isnan(stop.history[0])


def test_a_lost_round_does_not_count_towards_the_patience():
    stop = EarlyStop(patience=2)
    stop.observe(1.0, 4)
    assert stop.best_rmse == 0.5
    stop.observe(0.0, 0)
    stop.observe(2.0, 4)
    assert not stop.is_over
    stop.observe(2.0, 4)
    assert stop.is_over
