"""The users behind a party: their ratings, masks and factors p_u."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedmmf.arrays import Array
from fedmmf.engines.contract import Cohort, Crowd, CrowdInput, CrowdUpdate, Engine
from fedmmf.errors import NotFittedError
from fedmmf.lists import UserLists
from fedmmf.masks.fitting import FittedMasks, MaskInput, MaskPlan, fit_masks
from fedmmf.party.policy import Policy, Private
from fedmmf.solvers.contract import Public
from fedmmf.wire import Catalogue


@dataclass(frozen=True, eq=False)
class PartyData:
    """Ratings of one user or of many, with the catalogue that they are about.

    Attributes:
        catalogue: as this party knows it.
        features: public item features of the whole catalogue; no columns where there are none.
        lists: the rated items of each user, strictly increasing.
        ratings: of these items, on the catalogue's scale. (n,)
        held_out: which ratings to keep for early stopping instead of training. (n,) bool
        streams: where each user's mask starts from; empty: where the operating system says.
    """

    catalogue: Catalogue
    features: Array
    lists: UserLists
    ratings: Array
    held_out: Array | None = None
    streams: Sequence[np.random.Generator] = ()

    def part(self, *, held_out: bool) -> tuple[UserLists, Array]:
        """Lists and ratings of the held-out part, or of the rest."""
        if self.held_out is None and not held_out:
            return self.lists, self.ratings
        everything = np.zeros(len(self.ratings), bool) if self.held_out is None else self.held_out
        keep = everything == held_out
        kept_before = np.concatenate(([0], np.cumsum(keep)))
        lists = UserLists(kept_before[self.lists.indptr], self.lists.items[keep])
        return lists, self.ratings[keep]


class Users:
    """Everything private: ratings, masks, p_u. Whoever reads this object reads it all.

    Args:
        data: the ratings.
        plan: what masks to fit.
        engine: what computes the users' halves.
    """

    def __init__(self, data: PartyData, plan: MaskPlan, engine: Engine) -> None:
        self._data, self._engine = data, engine
        self.features = np.asarray(data.features, np.float64)
        self.lists, self.ratings = data.part(held_out=False)
        self._test_lists, self._test_ratings = data.part(held_out=True)
        scale = data.catalogue.scale
        given = MaskInput(self.lists, self.ratings, scale, self.features, data.streams)
        self.masks: FittedMasks = fit_masks(plan, given, engine.mask_runner())
        self._crowd: Crowd | None = None
        self._given: CrowdInput | None = None
        self._in_clear: bool | None = None  # once it is known
        self.n_noisy = 0  # updates with noise that have left
        self.surveyed: set[tuple[bool, frozenset[bytes]]] = set()  # of ratings? among whom?
        self.mates: tuple[bytes, ...] = ()  # identities that its sums were made with, or not at all

    @property
    def n_users(self) -> int:
        """How many there are."""
        return self.lists.n_users

    @cached_property
    def counts(self) -> Array:
        """How many of them rated each item. (n_items,)."""
        return self.lists.counts(self._data.catalogue.n_items)

    def are_in_clear(self, policy: Policy) -> bool:
        """Whether the owner's policy lets their updates leave outside sums."""
        if self._in_clear is None:
            private = Private(self.lists, self.ratings, self.masks, self.features)
            self._in_clear = policy.lets_updates_out(private)
        return self._in_clear

    @property
    def user_factors(self) -> Array:
        """p_u. (n_users, k)."""
        return self._started().user_factors

    @user_factors.setter
    def user_factors(self, value: Array) -> None:
        self._started().user_factors = value

    def begin(self, solver: str, rank: int) -> None:
        """Start a run: p_u as before the first round."""
        n_items, masked = self._data.catalogue.n_items, self.masks.masked_ratings
        self._given = CrowdInput(solver, rank, n_items, self.lists, masked)
        self._crowd = self._engine.crowd(self._given)

    def update(self, public: Public, t: int, cohort: Cohort) -> CrowdUpdate:
        """Take part in round t; the totals begin with those of held-out ratings."""
        crowd = self._crowd_for(cohort)
        found = crowd.update(public, t)
        totals = np.hstack((self._held_out_totals(public.item_factors), found.totals))
        return CrowdUpdate(found.rows, totals)

    def settle(self, public: Public) -> None:
        """Find p_u for finished item factors, without any round."""
        self._started().settle(public, np.arange(self.n_users))

    def scores(self, lists: UserLists, item_factors: Array) -> Array:
        """q_i . p_u + f_u(i) for items of each user, which may be off the scale. (n,)."""
        mask = self.masks.predict(lists, self.features, self._engine.mask_runner())
        return self._factor_scores(lists, item_factors) + mask

    def state(self) -> dict[str, Array]:
        """What changes from round to round; copies."""
        return {} if self._crowd is None else self._crowd.state()

    def restore(self, state: Mapping[str, Array]) -> None:
        """Be as before."""
        if self._crowd is not None:
            self._crowd.restore(state)

    def _crowd_for(self, cohort: Cohort) -> Crowd:
        """The same users, summed in another way if need be."""
        crowd, given = self._started(), self._given
        if given is not None and not given.cohorts[0].is_like(cohort):
            self._given = replace(given, cohorts=(cohort,))
            self._crowd = self._engine.crowd(self._given)
            self._crowd.restore(crowd.state())
        return self._started()

    def _started(self) -> Crowd:
        if self._crowd is None:
            raise NotFittedError("a party has factors after it has joined a federation")
        return self._crowd

    @cached_property
    def _test_mask(self) -> Array:
        runner = self._engine.mask_runner()
        return self.masks.predict(self._test_lists, self.features, runner)

    def _held_out_totals(self, q: Array) -> Array:
        """Number of held-out ratings and their squared error, of every user. (n_users, 2)."""
        lists = self._test_lists
        predicted = self._data.catalogue.scale.clip(self._factor_scores(lists, q) + self._test_mask)
        squares = np.square(self._test_ratings - predicted, dtype=np.float64)
        errors = np.bincount(lists.users, squares, self.n_users)
        return np.column_stack((lists.lengths, errors))

    def _factor_scores(self, lists: UserLists, q: Array) -> Array:
        return self._engine.pair_scores(lists.users, lists.items, self.user_factors, q)
