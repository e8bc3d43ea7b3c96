"""Whether polars, which reads all data, can work in this process.

A fork copies polars' pools without their threads, and whatever is given to such a copy waits for
ever. Nothing tells from outside whether there were pools: so a forked process tries once.
"""

import io
import os
import threading

import polars as pl

from fedmmf.errors import DataError

PATIENCE = 10.0  # seconds; where there are threads, what is tried takes some milliseconds

_can_work = True
_was_tried = True  # nothing is lost before a fork


def _forget() -> None:
    global _was_tried
    _was_tried = False


os.register_at_fork(after_in_child=_forget)


def require_threads() -> None:
    """Refuse to read data in a fork of a process in which polars had threads."""
    global _can_work, _was_tried
    if not _was_tried:
        worker = threading.Thread(target=_work, daemon=True)
        worker.start()
        worker.join(PATIENCE)
        _can_work, _was_tried = not worker.is_alive(), True
    if not _can_work:
        raise DataError(
            "ratings, features and profiles can be read in a forked process only if polars, which "
            "reads them, was not used before the fork: its threads are gone here. Read them before "
            "the fork (fit and evaluate take Ratings), or start processes with 'spawn'."
        )


def _work() -> None:
    """Use both of polars' pools: that of queries and that of files."""
    pl.DataFrame({"a": [1]}).select("a").write_csv(io.BytesIO())
