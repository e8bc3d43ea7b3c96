"""Whole rounds of `vb` on one device: the parties' half and the server's, without copies."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from fedmmf.arrays import Array
from fedmmf.engines.contract import TrainingInput
from fedmmf.engines.torch.vb import TorchVbHalves
from fedmmf.engines.torch.vb_server import VbServerInPlace, is_small
from fedmmf.errors import WireError
from fedmmf.solvers.contract import ItemSums
from fedmmf.solvers.vb.server import VbServer

KNOWN: WeakKeyDictionary[TrainingInput, dict[Any, "VbRounds"]] = WeakKeyDictionary()


class VbRounds:
    """Rounds over the same ratings, again and again.

    On a card, a round is recorded after the first one and played from then on, where all of its
    linear algebra is small; membership rounds are not recorded. Arrays stay where they are, so
    that another run plays the same record.

    Args:
        halves: the user group; its state is that of these rounds.
    """

    def __init__(self, halves: TorchVbHalves) -> None:
        self._halves = halves
        self._server: VbServerInPlace | None = None
        self._is_sound = halves.placed(True)
        self._n_raters = halves.placed(np.zeros(0))
        self._is_recorded = self._is_warm = False
        self._graph: torch.cuda.CUDAGraph | None = None

    @classmethod
    def of(cls, given: TrainingInput, device: torch.device, n_pieces: int) -> "VbRounds":
        """Return the rounds of this user group; the same object for every run of an ensemble."""
        known = KNOWN.setdefault(given, {})
        about = (device, n_pieces)
        if about not in known:
            known[about] = cls(TorchVbHalves(given, device, n_pieces))
        return known[about]

    def begin(self, half: VbServer, n_raters: Array, parties: Mapping[str, Array]) -> "VbRounds":
        """Start or continue from a server's half, which is not changed, and a state of users."""
        self._halves.restore(parties)
        self._is_sound.fill_(True)
        waits = not (self._halves.stays_on_card and is_small(half))
        with _named_as_numpy_does():
            placed = VbServerInPlace(half, self._halves.placed, _linalg(waits=waits))
        counts = self._halves.placed(np.asarray(n_raters, np.float64))
        if self._server is not None and self._server.is_like(half):
            self._server.take(placed)
            self._n_raters.copy_(counts)
        else:  # the recording uses other arrays
            self._server, self._n_raters, self._is_recorded = placed, counts, not waits
            self._is_warm, self._graph = False, None
        return self

    def one_round(self, t: int) -> None:
        """Run round t without waiting for its end."""
        server = self._begun()
        if not self._is_recorded or not self._is_warm or server.is_membership_round:
            self._is_warm |= not server.is_membership_round
            self._round(t)
            return
        if self._graph is None:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._round(t)
            self._graph = graph
        else:
            server.count_round()
        self._graph.replay()

    def _round(self, t: int) -> None:
        server, cohort = self._begun(), self._halves.cohort
        rows, totals, n_overflowed = self._halves.sums(server.reading(self._halves.design), t)
        if cohort.is_fixed:
            rows = (rows / cohort.scale).float()
        sums: Any = (rows, self._n_raters, totals / (cohort.total_scale or 1.0))
        with _named_as_numpy_does():
            server.advance(ItemSums(*sums), t)
        self._is_sound &= (n_overflowed == 0) & server.is_usual()

    def _begun(self) -> VbServerInPlace:
        if self._server is None:
            raise RuntimeError("rounds need a beginning")
        return self._server

    def state(self) -> dict[str, Array]:
        """Return the server's state; raise `WireError` if numbers are no longer finite."""
        if not bool(self._is_sound):
            raise WireError("the server's numbers lead to an update that is not finite")
        return {
            name: np.array(value.cpu().numpy() if isinstance(value, torch.Tensor) else value)
            for name, value in self._begun().state().items()
        }

    def parties(self) -> dict[str, Array]:
        """Return the user group's state after the rounds so far."""
        return self._halves.state()


@contextmanager
def _named_as_numpy_does() -> Iterator[None]:
    """Raise numpy's error in place of torch's own where there is no solution."""
    try:
        yield
    except torch.linalg.LinAlgError as error:
        raise np.linalg.LinAlgError(str(error)) from None


def _linalg(*, waits: bool) -> Any:
    """Return torch's linear algebra, or one for small matrices that never waits for the host."""
    if waits:
        return torch.linalg
    from fedmmf.engines.torch.small import SmallLinalg  # needs triton, which only CUDA builds have

    return SmallLinalg()
