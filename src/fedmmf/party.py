"""One device: its ratings, its mask and its factors p_u; small enough for a phone.

It needs numpy and cryptography alone. A party answers bytes with bytes. What it says is in `wire`;
ratings, mask and p_u stay here, and what may leave in the clear is its own choice.
"""

import secrets
from collections.abc import Mapping
from typing import Literal

import numpy as np

from fedmmf import rng, wire
from fedmmf.aggregation.dp import Guarantee, least_survivors
from fedmmf.aggregation.homomorphic_party import HomomorphicParty
from fedmmf.aggregation.secure_party import SecureParty
from fedmmf.arrays import Array
from fedmmf.context import answer_context
from fedmmf.errors import NotFittedError, WireError
from fedmmf.factorization import sgd, vb
from fedmmf.factorization.contract import LocalSolver, Public
from fedmmf.masks.fitting import Plain, fit_masks
from fedmmf.scale import RatingScale
from fedmmf.secagg import public_identity

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
        sharing: strict: updates leave only in sums; adaptive: in the clear if J <= threshold_j;
            plain: in the clear.
        threshold_j: of `adaptive`.
        may_share: what a self-audit decided for `adaptive`, instead of J; None: J decides.
        guarantee: noise that every update gets; None: none.
        identity: 32-byte Ed25519 secret; with it, the party takes part only in sums whose parties
            all sign.
        trusted: public keys of the parties that it knows from elsewhere than the server.
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
        sharing: Literal["strict", "adaptive", "plain"] = "strict",
        threshold_j: float = 0.05,
        may_share: bool | None = None,
        guarantee: Guarantee | None = None,
        identity: bytes | None = None,
        trusted: frozenset[bytes] = frozenset(),
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
        self._sharing, self._threshold_j, self._may_share = sharing, threshold_j, may_share
        self._guarantee, self._n_protected = guarantee, 0
        self._identity, self._trusted = identity, trusted
        self._secure: SecureParty | None = None
        self._homomorphic: HomomorphicParty | None = None
        self._solver: LocalSolver | None = None
        self._best: Array | None = None
        self._item_factors: Array | None = None

    @property
    def n_items(self) -> int:
        """Size of the catalogue."""
        return len(self._features)

    @property
    def public_identity(self) -> bytes | None:
        """What others may know it by; None: it does not sign."""
        return None if self._identity is None else public_identity(self._identity)

    @property
    def privacy_indicator(self) -> float:
        """J on the party's own training ratings; it never leaves the party."""
        return float(self.mask.j_train[0])

    @property
    def in_clear(self) -> bool:
        """Whether the party's own policy lets its updates leave outside sums (errata 37)."""
        if self._sharing != "adaptive":
            return self._sharing == "plain"
        if self._may_share is not None:
            return self._may_share
        return self.privacy_indicator <= self._threshold_j

    @property
    def user_factors(self) -> Array:
        """p_u; private. (k,)."""
        return self._started().user_factors

    def answer(self, message: bytes) -> bytes:
        """Answer one message of the server."""
        kind = wire.kind_of(message)
        if kind == wire.Join.kind:
            wire.Join.decode(message)
            return wire.Joined(self.in_clear).encode()
        if kind == wire.Collect.kind:
            return self._hand_over(wire.Collect.decode(message)).encode()
        if kind in (wire.Survey.kind, wire.Round.kind):
            self._check_policy(message)
            return self._update(message, n_parties=1).encode()
        if kind == wire.SecureSetup.kind:
            self._secure = self._agree(wire.SecureSetup.decode(message))
            return wire.Joined(in_clear=False).encode()
        if kind == wire.SecureTrip.kind:
            return self._take_trip(wire.SecureTrip.decode(message)).encode()
        if kind == wire.SealedRound.kind:
            return self._answer_sealed(wire.SealedRound.decode(message)).encode()
        raise WireError(f"a party does not answer messages of kind {kind}")

    def _agree(self, message: wire.SecureSetup) -> SecureParty:
        """Take part in secure sums, unless they could end with less noise than was demanded."""
        guarantee, needed = self._guarantee, least_survivors(message.n_parties)
        if guarantee is not None and guarantee.noise == "distributed" and message.minimum < needed:
            raise WireError(
                f"noise that parties share needs a sum of at least {needed} of "
                f"{message.n_parties}; the server's minimum is {message.minimum}"
            )
        self._check_identities(message)
        return SecureParty(message, self._identity)

    def _check_identities(self, message: wire.SecureSetup) -> None:
        """Refuse strangers: a server could make up as many parties as it likes."""
        if self._identity is None:
            if message.identities:
                raise WireError("this party has no identity to sign with")
            return
        if not message.identities:
            raise WireError("this party takes part only in sums whose parties all sign")
        own = message.identities[message.party : message.party + 1]
        if own != (public_identity(self._identity),):
            raise WireError("the server gives this party's number another identity")
        strangers = len(set(message.identities) - self._trusted)
        if strangers:
            raise WireError(f"{strangers} of the identities belong to nobody that this party knows")

    def _take_trip(self, message: wire.SecureTrip) -> wire.SecureTrip:
        """One trip of a securely aggregated round; the update leaves only under its masks."""
        if self._secure is None:
            raise WireError("a secure round needs a SecureSetup first")
        n_parties = self._secure.n_parties
        update = self._update(message.round, n_parties) if message.round else None
        return self._secure.answer(message, update)

    def hold_key(self, key: wire.HomomorphicKey) -> None:
        """Take the key of homomorphic sums from the keeper, over a channel without the server."""
        self._homomorphic = HomomorphicParty(key)

    def _answer_sealed(self, message: wire.SealedRound) -> wire.Ciphertexts:
        """One round of homomorphic sums; the update leaves only encrypted."""
        if self._homomorphic is None:
            raise WireError("a sealed round needs a key first; give the party one with hold_key")
        task = self._homomorphic.unseal(message)
        update = self._update(task.message, self._homomorphic.n_parties)
        return self._homomorphic.encrypt(task, update)

    def _check_policy(self, message: bytes) -> None:
        """Refuse to say in the clear what the party's owner did not allow."""
        if self._sharing == "plain":
            return
        if wire.kind_of(message) == wire.Survey.kind:
            raise WireError("this party answers a survey only in sums; its policy forbids the rest")
        round_ = wire.Round.decode(message)
        is_local = self._guarantee is not None and self._guarantee.noise == "local"
        is_silent = round_.is_last and round_.solver in _SOLVERS  # nothing is said in return
        if is_silent or is_local or (self.in_clear and round_.solver == "sgd"):
            return
        raise WireError("this party sends updates only in sums; its policy forbids them in clear")

    def _hand_over(self, message: wire.Collect) -> wire.Collected:
        if not self.in_clear:
            raise WireError("this party does not hand over masked ratings; its policy forbids it")
        return wire.Collected(self.items, self.masked_ratings)

    def _update(self, message: bytes, n_parties: int) -> wire.Update:
        """What this party adds to a sum over `n_parties`."""
        if wire.kind_of(message) == wire.Survey.kind:
            return self._describe_items(wire.Survey.decode(message))
        round_ = wire.Round.decode(message)
        update = self._take_part(round_)
        if self._guarantee is None or len(update.items) == len(update.totals) == 0:
            return update
        if self._n_protected == self._guarantee.rounds:
            raise WireError(f"this party's privacy budget, {self._n_protected} rounds, is spent")
        self._n_protected += 1
        return self._guarantee.protect(update, len(self._features), n_parties)

    def _describe_items(self, message: wire.Survey) -> wire.Update:
        """Which items it rated and, if asked for, its ratings around the scale's middle."""
        if self._guarantee is not None:
            raise WireError("this party adds noise to what it says; a survey has none")
        rows = (self._scale.to_unit(self._ratings) - 0.5)[:, np.newaxis]
        return wire.Update(0, self.items, rows * message.with_ratings, np.zeros(0))

    def _take_part(self, message: wire.Round) -> wire.Update:
        """MaskedUpdate of Algorithm 1, or the variational counterpart."""
        if message.solver == "context":
            return answer_context(message, self._features[self.items], self._ratings, self._scale)
        public, n_items = message.public, len(message.public.item_rows)
        if n_items != len(self._features):
            expected = len(self._features)
            raise WireError(f"the server's catalogue must have {expected} items; got {n_items}")
        if message.is_last and self._solver is None:
            self.join_late(message.solver, public)  # it had no part in the rounds
        if message.round == 1 or self._solver is None:
            self._solver, self._best = _SOLVERS[message.solver](public.factors), None
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
        return self._scale.clip(sgd.scores(item_factors[items], self.user_factors) + mask)

    def _mask_of(self, items: Array) -> Array:
        return self.mask.predict(np.array([0, len(items)]), items, self._features, Plain())
