"""The torch engine, assembled from its parts; torch is imported at the first computation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.engines.contract import Rounds, TrainingInput, UserHalves
from fedmmf.engines.reference import ReferenceHalves
from fedmmf.engines.torch.device import found


@dataclass(frozen=True)
class TorchEngine:
    """PyTorch on one device; other solvers and masks run in numpy.

    Attributes:
        device: `cuda` or `cpu`.
        n_pieces: of users, which are on the device in turn.
    """

    device: str = "cuda"
    n_pieces: int = 1
    name: str = "torch"

    def on(self, device: str, n_pieces: int) -> "TorchEngine":
        """Return the same engine on another device, with users in `n_pieces` pieces."""
        return TorchEngine(device, n_pieces)

    def halves(self, given: TrainingInput) -> UserHalves:
        """Make the user group before its first round."""
        device = found(self.device)
        if given.solver in _ON_DEVICE and not _is_simple(given):
            return ReferenceHalves(given)
        made: UserHalves = _HALVES_OF.get(given.solver, _in_numpy)(given, device, self.n_pieces)
        return made

    def rounds(
        self, given: TrainingInput, half: Any, n_raters: Array, parties: Mapping[str, Array]
    ) -> Rounds | None:
        """Return rounds of `vb` that stay on the device; None where they cannot."""
        if given.solver not in _ON_DEVICE or not _is_simple(given) or given.update_shape.n_levels:
            return None
        from fedmmf.engines.torch.vb_rounds import VbRounds

        rounds = VbRounds.of(given, found(self.device), self.n_pieces)
        return rounds.begin(half, n_raters, parties)

    def mask_runner(self, progress: Callable[[int], None] | None = None) -> Any:
        """Return a runner that fits masks in batches of users."""
        device = found(self.device)
        from fedmmf.engines.torch.masks import TorchRunner

        return TorchRunner(device, progress)

    def pair_scores(self, users: Array, items: Array, p: Array, q: Array) -> Array:
        """Scores q_i . p_u for pairs of codes. (n,)."""
        device = found(self.device)
        from fedmmf.engines.torch.scores import pair_scores

        return pair_scores(users, items, p, q, device)


def _of_sgd(given: TrainingInput, device: Any, n_pieces: int) -> UserHalves:
    from fedmmf.engines.torch.sgd import TorchSgdHalves

    return TorchSgdHalves(given, device)


def _of_vb(given: TrainingInput, device: Any, n_pieces: int) -> UserHalves:
    from fedmmf.engines.torch.vb import TorchVbHalves

    return TorchVbHalves(given, device, n_pieces)


def _in_numpy(given: TrainingInput, device: Any, n_pieces: int) -> UserHalves:
    return ReferenceHalves(given)


# Kernels, by the solver that they are for.
_HALVES_OF = {"sgd": _of_sgd, "vb": _of_vb}
_ON_DEVICE = ("vb",)  # whose rounds can stay on the device, users in pieces


def _is_simple(given: TrainingInput) -> bool:
    """Whether there is one cohort without a clip or noise, as kernels of pieces need it."""
    is_noisy = given.update_shape.n_noisy_totals > 0
    return not is_noisy and len(given.cohorts) == 1 and bool(np.isinf(given.cohorts[0].clip))


TORCH = TorchEngine()
