"""The Ray engine, assembled from its workers."""

from collections.abc import Callable

from fedmmf.arrays import Array
from fedmmf.engines.contract import TrainingInput
from fedmmf.engines.kernels.engine import NUMBA
from fedmmf.engines.ray.cluster import Cluster
from fedmmf.engines.ray.halves import RayHalves
from fedmmf.engines.ray.masks import RayRunner


class RayEngine:
    """The numba engine on every worker; small computations run locally."""

    name = "ray"

    def __init__(self) -> None:
        self.cluster = Cluster()

    def start(self) -> int:
        """Start the workers now rather than at their first use; return how many there are."""
        return len(self.cluster.workers())

    def halves(self, given: TrainingInput) -> RayHalves:
        """Make the user group before its first round, each user on its worker."""
        return RayHalves(self.cluster, given)

    def mask_runner(self, progress: Callable[[int], None] | None = None) -> RayRunner:
        """Return a runner that fits masks on the workers."""
        return RayRunner(self.cluster, progress)

    def pair_scores(self, users: Array, items: Array, p: Array, q: Array) -> Array:
        """Scores q_i . p_u for pairs of codes. (n,)."""
        return NUMBA.pair_scores(users, items, p, q)


RAY = RayEngine()
