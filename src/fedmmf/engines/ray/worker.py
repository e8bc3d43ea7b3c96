"""The actor in each of Ray's workers: the numba engine, on the worker's own part of the users."""

import os
import pickle
from functools import cache
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from fedmmf import __version__
from fedmmf.arrays import Array
from fedmmf.engines.contract import TrainingInput, UserHalves
from fedmmf.engines.kernels import threads
from fedmmf.engines.kernels.engine import NUMBA
from fedmmf.engines.kernels.masks import CompiledRunner
from fedmmf.masks.models import MaskFamily


@cache
def _family(pickled: bytes) -> MaskFamily:
    """Return one object for the same bytes: kernels are compiled once per object."""
    family: MaskFamily = pickle.loads(pickled)  # noqa: S301 - the process that started this one
    return family


class Worker:
    """Some users of each user group that the driver has made.

    Args:
        n_threads: this worker's share of the cores of its machine.
    """

    def __init__(self, n_threads: int) -> None:
        os.environ[threads.VARIABLE] = str(n_threads)
        threadpool_limits(n_threads)
        self.halves_of: dict[int, UserHalves] = {}

    def about(self) -> tuple[str, int]:
        """Return the version of this package, and the number of threads."""
        return __version__, threads.n_threads()

    def make(self, number: int, given: TrainingInput) -> None:
        """Make the users of a user group, before their first round."""
        self.halves_of[number] = NUMBA.halves(given)

    def drop(self, number: int) -> None:
        """Release the users of the user group with that number."""
        self.halves_of.pop(number, None)

    def call(self, number: int, method: str, *arguments: Any) -> Any:
        """Call a method of a user group."""
        return getattr(self.halves_of[number], method)(*arguments)

    def factors(self, number: int) -> Array:
        """Factors p_u of a user group's users. (n_users, k)."""
        return self.halves_of[number].user_factors

    def set_factors(self, number: int, value: Array) -> None:
        """Replace p_u of a user group's users."""
        self.halves_of[number].user_factors = value

    def train(
        self, pickled: bytes, features: Array, indptr: Array, *arrays: Any
    ) -> tuple[Array, ...]:
        """Fit masks; the arguments are the inputs of `models._trainer`; return its outputs."""
        family = _family(pickled)
        items, targets, penalties, n_folds = arrays
        theta = np.zeros((len(indptr) - 1, family.n_parameters(features.shape[1])))
        found = (theta, np.zeros(len(theta), np.int64), *np.zeros((2, len(items))))
        # Copies: Ray hands over read-only arrays, for which kernels would be compiled again.
        inputs = (targets.copy(), penalties.copy(), n_folds)
        CompiledRunner().train(family, indptr, items, features, *inputs, *found)
        return found
