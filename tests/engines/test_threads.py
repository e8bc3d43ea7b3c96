"""Work shared between threads."""

import contextlib
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmmf.engines.kernels import threads
from fedmmf.errors import SettingsError


def test_all_cores_are_used_unless_somebody_says_otherwise(monkeypatch):
    monkeypatch.delenv("FEDMMF_THREADS", raising=False)
    assert threads.n_threads() == len(os.sched_getaffinity(0))
    monkeypatch.setenv("FEDMMF_THREADS", "3")
    assert threads.n_threads() == 3


@pytest.mark.parametrize("text", ["many", "0", "-1", "1.5", ""])
def test_a_number_of_threads_is_a_whole_number(monkeypatch, text):
    monkeypatch.setenv("FEDMMF_THREADS", text)
    with pytest.raises(SettingsError, match="a whole number of at least 1; got "):
        threads.n_threads()


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 12))
def test_ranges_cover_every_row_once(lengths, n_ranges):
    indptr = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    found = threads.ranges(indptr, n_ranges)
    assert len(found) <= n_ranges
    assert [row for begin, end in found for row in range(begin, end)] == list(range(len(lengths)))
    share = indptr[-1] / n_ranges
    for begin, end in found:  # about the same each: one long row more at most
        assert indptr[end] - indptr[begin] <= share + max(lengths)


def test_every_part_is_done_and_told(monkeypatch):
    monkeypatch.setenv("FEDMMF_THREADS", "2")
    done, where = [], set()

    def work(begin, end):
        done.extend(range(begin, end))
        where.add(threading.current_thread().name)

    parts = [(0, 3), (3, 4), (4, 9)]
    assert sorted(threads.for_each(work, parts)) == [1, 3, 5]
    assert sorted(done) == list(range(9))
    assert all(name.startswith("fedmmf") for name in where)
    assert list(threads.for_each(work, [])) == []


@pytest.mark.parametrize("parts", [[(0, 2)], [(0, 1), (1, 2)]])
def test_an_error_in_a_thread_reaches_its_caller(parts):
    def fails(begin, end):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        threads.run(fails, parts)


def test_kernels_see_one_kind_of_array():
    view = threads.frozen(np.arange(6).reshape(2, 3).T, np.float32)
    assert (view.dtype, view.flags.c_contiguous, view.flags.writeable) == (np.float32, True, False)
    own = np.zeros(3, np.float32)
    assert np.shares_memory(threads.frozen(own, np.float32), own)
    assert own.flags.writeable


IN_A_CHILD = """
import os, sys, threading
from fedmmf import FedMMF
from fedmmf.data.synthetic import synthetic

ratings = synthetic(60, 40, 1200)
model = FedMMF(solver=sys.argv[1], mask="mean", factors=3, rounds=3).fit(ratings)
expected, before = model.recommend(1).to_dicts(), threading.active_count()
child = os.fork()
if child == 0:
    again = FedMMF(solver=sys.argv[1], mask="mean", factors=3, rounds=3).fit(ratings)
    os._exit(0 if again.recommend(1).to_dicts() == expected else 3)
_, status = os.waitpid(child, 0)
assert before > 1, "the parent had no threads, so that a fork could lose none"
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.parametrize("solver", ["sgd", "vb"])
def test_a_model_can_be_fitted_in_a_child_of_a_process_that_has_fitted_one(solver):
    """A fork copies a pool without its threads; the time limit ends a child that waits for them."""
    environment = os.environ | {"FEDMMF_THREADS": "2", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", IN_A_CHILD, solver]
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        try:
            assert process.wait(timeout=6000) == 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # a child that hangs outlives its parent


READING_IN_A_CHILD = """
import os, sys
import polars as pl
from fedmmf import Ratings
from fedmmf.data import forks
from fedmmf.errors import DataError

forks.PATIENCE = 3.0 if sys.argv[1] == "used" else 120.0
frame = pl.DataFrame({"user_id": [1, 1, 2], "item_id": [1, 2, 1], "rating": [1.0, 2.0, 3.0]})
if sys.argv[1] == "used":
    frame.select("user_id").write_csv(sys.argv[2])
child = os.fork()
if child == 0:
    try:
        Ratings.from_frame(frame)
    except DataError as error:
        os._exit(3 if "before the fork" in str(error) else 4)
    os._exit(0)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.parametrize(("before", "code"), [("used", 3), ("unused", 0)])
def test_reading_in_a_child_without_polars_threads_is_refused(tmp_path, before, code):
    """It would wait for ever; where polars had no threads before the fork, it starts its own."""
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", READING_IN_A_CHILD, before, str(tmp_path / "out.csv")]
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        try:
            assert process.wait(timeout=600) == code
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
