"""The numba engine, assembled from its kernels."""

from collections.abc import Callable

import numpy as np

from fedmmf.arrays import Array
from fedmmf.engines.contract import TrainingInput, UserHalves
from fedmmf.engines.kernels import threads
from fedmmf.engines.kernels.masks import CompiledRunner
from fedmmf.engines.kernels.sgd import SgdHalves
from fedmmf.engines.kernels.vb import VbHalves
from fedmmf.engines.kernels.vb_private import PrivateHalves
from fedmmf.engines.reference import ReferenceHalves
from fedmmf.solvers.vb.private import PrivateShape
from fedmmf.storage.kernel_cache import cached_jit

_HALVES_OF: dict[str, Callable[[TrainingInput], UserHalves]] = {"sgd": SgdHalves, "vb": VbHalves}
_ONE_COHORT = ("vb",)  # kernels for one cohort without a clip, which their solvers never have


# Not all of fastmath: scores of hostile factors may be infinite, and that is checked.
@cached_jit(
    nogil=True,
    fastmath={"reassoc", "contract", "arcp", "nsz", "afn"},
    error_model="numpy",
)
def _pair_pass(
    begin: int, end: int, users: Array, items: Array, p: Array, q: Array, out: Array
) -> None:
    """Write q_i . p_u for pairs begin..end."""
    for j in range(begin, end):
        total = np.float32(0)
        for f in range(q.shape[1]):
            total += q[items[j], f] * p[users[j], f]
        out[j] = total


class NumbaEngine:
    """Kernels for this package's solvers and masks; everything else runs in numpy."""

    name = "numba"

    def halves(self, given: TrainingInput) -> UserHalves:
        """Make the user group before its first round."""
        is_simple = len(given.cohorts) == 1 and np.isinf(given.cohorts[0].clip)
        if isinstance(given.update_shape, PrivateShape):
            return PrivateHalves(given)
        if given.solver in _ONE_COHORT and not is_simple:
            return ReferenceHalves(given)
        return _HALVES_OF.get(given.solver, ReferenceHalves)(given)

    def mask_runner(self, progress: Callable[[int], None] | None = None) -> CompiledRunner:
        """Return a runner of compiled masks, shared between threads."""
        return CompiledRunner(progress)

    def pair_scores(self, users: Array, items: Array, p: Array, q: Array) -> Array:
        """Scores q_i . p_u for pairs of codes. (n,)."""
        out = np.empty(len(users), np.float32)
        users, items = threads.frozen(users, np.int32), threads.frozen(items, np.int32)
        p, q = threads.frozen(p, np.float32), threads.frozen(q, np.float32)
        parts = threads.ranges(np.arange(len(users) + 1), threads.n_threads())
        threads.run(lambda begin, end: _pair_pass(begin, end, users, items, p, q, out), parts)
        return out


NUMBA = NumbaEngine()
