"""Puts Ray's workers together as an engine."""

from collections.abc import Callable

from fedmmf.arrays import Array
from fedmmf.engines.contract import CrowdInput
from fedmmf.engines.kernels.engine import NUMBA
from fedmmf.engines.ray.cluster import Cluster
from fedmmf.engines.ray.crowd import RayCrowd
from fedmmf.engines.ray.masks import RayRunner


class RayEngine:
    """The numba engine on every worker; what is small is computed by it here."""

    name = "ray"

    def __init__(self) -> None:
        self._cluster = Cluster()

    def start(self) -> int:
        """Start the workers, which their first use would do; how many there are."""
        return len(self._cluster.workers())

    def crowd(self, given: CrowdInput) -> RayCrowd:
        """All users before their first round, each on its worker."""
        return RayCrowd(self._cluster, given)

    def mask_runner(self, progress: Callable[[int], None] | None = None) -> RayRunner:
        """Masks, fitted on the workers."""
        return RayRunner(self._cluster, progress)

    def pair_scores(self, users: Array, items: Array, p: Array, q: Array) -> Array:
        """q_i . p_u for pairs of codes. (n,)."""
        return NUMBA.pair_scores(users, items, p, q)


RAY = RayEngine()
