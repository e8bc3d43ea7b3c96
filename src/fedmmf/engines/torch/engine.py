"""Puts the parts together as an engine. torch is loaded when something is to be computed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.engines.contract import Crowd, CrowdInput, Rounds
from fedmmf.engines.reference import ReferenceCrowd
from fedmmf.engines.torch.device import found


@dataclass(frozen=True)
class TorchEngine:
    """PyTorch on one device; what it does not know runs in numpy.

    Attributes:
        device: `cuda` or `cpu`.
        n_pieces: of users, which are on the device in turn.
    """

    device: str = "cuda"
    n_pieces: int = 1
    name: str = "torch"

    def on(self, device: str, n_pieces: int) -> "TorchEngine":
        """The same engine elsewhere."""
        return TorchEngine(device, n_pieces)

    def crowd(self, given: CrowdInput) -> Crowd:
        """All users before their first round."""
        device = found(self.device)
        from fedmmf.engines.torch.sgd import TorchSgdCrowd
        from fedmmf.engines.torch.vb import TorchVbCrowd

        if given.solver == "sgd":
            return TorchSgdCrowd(given, device)
        if given.solver == "vb" and _is_simple(given):
            return TorchVbCrowd(given, device, self.n_pieces)
        return ReferenceCrowd(given)

    def rounds(
        self, given: CrowdInput, half: Any, n_raters: Array, parties: Mapping[str, Array]
    ) -> Rounds | None:
        """Rounds of `vb`, without a way back to the host."""
        if given.solver != "vb" or not _is_simple(given) or given.update_shape.n_levels:
            return None
        from fedmmf.engines.torch.vb_rounds import VbRounds

        rounds = VbRounds.of(given, found(self.device), self.n_pieces)
        return rounds.begin(half, n_raters, parties)

    def mask_runner(self, progress: Callable[[int], None] | None = None) -> Any:
        """Masks in batches of users."""
        device = found(self.device)
        from fedmmf.engines.torch.masks import TorchRunner

        return TorchRunner(device, progress)

    def pair_scores(self, users: Array, items: Array, p: Array, q: Array) -> Array:
        """q_i . p_u for pairs of codes. (n,)."""
        device = found(self.device)
        from fedmmf.engines.torch.scores import pair_scores

        return pair_scores(users, items, p, q, device)


def _is_simple(given: CrowdInput) -> bool:
    """One aggregation scheme, without a clip, which `vb` never has."""
    return len(given.cohorts) == 1 and bool(np.isinf(given.cohorts[0].clip))


TORCH = TorchEngine()
