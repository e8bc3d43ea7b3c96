"""One device: its ratings, its mask and its factors p_u. numpy only, small enough for a phone.

A party answers bytes with bytes. What it says is in `wire`; ratings, mask and p_u stay here.
"""

import secrets
from collections.abc import Mapping
from typing import Literal

import numpy as np

from fedmmf import rng, wire
from fedmmf.aggregation.secure_party import SecureParty
from fedmmf.arrays import Array
from fedmmf.context import answer_context
from fedmmf.errors import NotFittedError, WireError
from fedmmf.factorization import sgd, vb
from fedmmf.factorization.contract import LocalSolver, Public
from fedmmf.masks.fitting import Plain, fit_masks
from fedmmf.scale import RatingScale

_SOLVERS: dict[str, type[sgd.Local] | type[vb.Local]] = {"sgd": sgd.Local, "vb": vb.Local}


class Party:
    """One user's side of the federation.

    Args:
        items: codes of the rated items, strictly increasing. (n,)
        ratings: on `scale`. (n,)
        scale: of the ratings.
        features: public item features of the whole catalogue; no columns where there are none.
        mask: family of the private model.
        mask_strength: its regularisation; None: the default; "auto": chosen on held-out ratings.
        cross_fit: mask each rating by a model that did not see it.
        folds: of cross-fitting and of J out of fold.
        held_out: which ratings to keep for early stopping instead of training. (n,) bool
        stream: where the mask's random start comes from; None: the operating system.
    """

    def __init__(
        self,
        items: Array,
        ratings: Array,
        scale: RatingScale,
        features: Array,
        *,
        mask: str = "lr",
        mask_strength: float | Literal["auto"] | None = None,
        cross_fit: bool = False,
        folds: int = 5,
        held_out: Array | None = None,
        stream: np.random.Generator | None = None,
    ) -> None:
        train = np.ones(len(items), bool) if held_out is None else ~held_out
        self.items = items[train]
        self._ratings = ratings[train]
        self._scale = scale
        self._features = np.asarray(features, np.float64)
        self._held_out_items, self._held_out_ratings = items[~train], ratings[~train]
        stream = stream or rng.stream(secrets.randbits(128), "mask")
        self.mask = fit_masks(
            mask,
            np.array([0, len(self.items)]),
            self.items,
            self._ratings,
            self._features,
            scale,
            strength=mask_strength,
            folds=folds,
            streams=[stream],
            runner=Plain(),
        )
        self.masked_ratings = self.mask.masked_ratings(cross_fit)
        self._held_out_mask = self._mask_of(self._held_out_items)
        self._secure: SecureParty | None = None
        self._solver: LocalSolver | None = None
        self._best: Array | None = None
        self._item_factors: Array | None = None

    @property
    def privacy_indicator(self) -> float:
        """J on the party's own training ratings; it never leaves the party."""
        return float(self.mask.j_train[0])

    @property
    def user_factors(self) -> Array:
        """p_u; private. (k,)."""
        return self._started().user_factors

    def answer(self, message: bytes) -> bytes:
        """Answer one message of the server."""
        kind = wire.kind_of(message)
        if kind == wire.Join.kind:
            wire.Join.decode(message)
            return wire.Joined(len(self.items)).encode()
        if kind in (wire.Survey.kind, wire.Round.kind):
            return self._update(message).encode()
        if kind == wire.SecureSetup.kind:
            self._secure = SecureParty(wire.SecureSetup.decode(message))
            return wire.Joined(len(self.items)).encode()
        if kind == wire.SecureTrip.kind:
            return self._take_trip(wire.SecureTrip.decode(message)).encode()
        raise WireError(f"a party does not answer messages of kind {kind}")

    def _take_trip(self, message: wire.SecureTrip) -> wire.SecureTrip:
        """One trip of a securely aggregated round; the update leaves only under its masks."""
        if self._secure is None:
            raise WireError("a secure round needs a SecureSetup first")
        update = self._update(message.round) if message.round else None
        return self._secure.answer(message, update)

    def _update(self, message: bytes) -> wire.Update:
        """What this party adds to a sum."""
        if wire.kind_of(message) == wire.Survey.kind:
            wire.Survey.decode(message)
            return self._describe_items()
        return self._take_part(wire.Round.decode(message))

    def _describe_items(self) -> wire.Update:
        """Ratings around the scale's middle, to be summed into item means before training."""
        rows = (self._scale.to_unit(self._ratings) - 0.5)[:, np.newaxis]
        return wire.Update(0, self.items, rows, np.zeros(0))

    def _take_part(self, message: wire.Round) -> wire.Update:
        """MaskedUpdate of Algorithm 1, or the variational counterpart."""
        if message.solver == "context":
            return answer_context(message, self._features[self.items], self._ratings, self._scale)
        public, n_items = message.public, len(message.public.item_rows)
        if n_items != len(self._features):
            expected = len(self._features)
            raise WireError(f"the server's catalogue must have {expected} items; got {n_items}")
        if self._solver is None:
            self._solver = _SOLVERS[message.solver](public.factors)
        elif message.best_round == message.round - 1:
            self._best = self.user_factors.copy()
        if message.is_last:
            return self._finish(message)
        mine = public.take(self.items)
        rows, totals = self._solver.update(self.masked_ratings, mine, message.round)
        held_out = (len(self._held_out_items), self._held_out_error(public.item_factors))
        return wire.Update(message.round, self.items, rows, np.concatenate((held_out, totals)))

    def _finish(self, message: wire.Round) -> wire.Update:
        if message.best_round and self._best is not None:
            self._started().user_factors = self._best
        self._item_factors = message.public.item_factors
        empty = np.zeros((0, message.public.item_rows.shape[1]), np.float32)
        return wire.Update(message.round, np.zeros(0, np.int32), empty, np.zeros(0))

    def join_late(self, solver: str, public: Public) -> None:
        """Take finished item factors and find p_u for them, without any training round."""
        self._solver = _SOLVERS[solver](public.factors)
        self._solver.settle(self.masked_ratings, public.take(self.items))
        self._item_factors = public.item_factors

    def predict(self, items: Array) -> Array:
        """q_i . p_u + f_u(i), clipped to the scale. (n,)."""
        if self._item_factors is None:
            raise NotFittedError("a party predicts after its federation has finished training")
        return self._predict(items, self._item_factors, self._mask_of(items))

    def state(self) -> dict[str, Array]:
        """What changes from round to round, for a checkpoint on this device."""
        best = self.user_factors if self._best is None else self._best
        return {"best": best, **self._started().state()}

    def restore(self, solver: str, state: Mapping[str, Array]) -> None:
        """Continue from a checkpoint's state."""
        self._best = state["best"].copy()
        self._solver = _SOLVERS[solver](len(self._best))
        self._solver.restore(state)

    def _started(self) -> LocalSolver:
        if self._solver is None:
            raise NotFittedError("a party has factors after its first round")
        return self._solver

    def _held_out_error(self, item_factors: Array) -> float:
        predicted = self._predict(self._held_out_items, item_factors, self._held_out_mask)
        return float(np.sum((self._held_out_ratings - predicted) ** 2, dtype=np.float64))

    def _predict(self, items: Array, item_factors: Array, mask: Array) -> Array:
        return self._scale.clip(item_factors[items] @ self.user_factors + mask)

    def _mask_of(self, items: Array) -> Array:
        return self.mask.predict(np.array([0, len(items)]), items, self._features, Plain())
