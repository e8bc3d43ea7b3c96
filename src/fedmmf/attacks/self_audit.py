"""A party's audit of itself before it shares anything, since it knows its own ratings.

It may let its updates leave in the clear only if the best attack on its own masked ratings finds
less than a limit. The attacker that it plays knows what is public: item features, the rating scale
and how masks are made. It has no other user's ratings, as the party has none, so that every level
of the scale is as probable as any other. The paper's recovery attack alone is granted a user's
smallest and largest rating, as the paper does. No server has them, but without them users pass whom
a server reads that knows how people rate an item; caution only means to be summed with others. Such
a server may still do better than this audit says.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedmmf.arrays import Array
from fedmmf.attacks import rating_attacks
from fedmmf.attacks.view import Exposed, extremes_of, uniform_prior
from fedmmf.data.rated_items import RatedItems
from fedmmf.engines import ENGINES, lasting_engine
from fedmmf.masks.fitting import FittedMasks


class OwnRatings(Protocol):
    """A party's knowledge of its users; `party.policy.Private`."""

    @property
    def lists(self) -> RatedItems:
        """The items that each user rated."""

    @property
    def ratings(self) -> Array:
        """Ratings of the listed items, on their scale. (n,)."""

    @property
    def masks(self) -> FittedMasks:
        """Private models of the party's users."""

    @property
    def features(self) -> Array:
        """Public item features. (n_items, d)."""


@dataclass(frozen=True)
class AttackAudit:
    """A party's own audit; `party.policy.SelfAudit`."""

    limit: float  # share of a user's ratings that the best attack may find; it has to stay below
    engine: str = "numba"  # what refits masks; `numpy` where nothing else is installed

    @classmethod
    def of(cls, settings: Any) -> "AttackAudit | None":
        """Return the audit that the settings of a run ask for; None: J decides, or nothing does."""
        is_asked = settings.scheme.in_clear == "some" and settings.grouping == "audit"
        return cls(settings.audit_limit, settings.engine) if is_asked else None

    def safe_users(self, private: OwnRatings) -> Array:
        """Users whose ratings are safe enough from every attack. (n_users,) bool."""
        return np.asarray(self.shares_found(private) < self.limit)

    def shares_found(self, private: OwnRatings) -> Array:
        """Share of each user's ratings that the best attack finds exactly. (n_users,).

        The same for a user alone and among others. NaN for a user without ratings, who is below no
        limit.
        """
        view = self.view(private)
        attacks = rating_attacks(private.masks.plan.kind)
        found = [attack.success(view, private.ratings) for attack in attacks]
        return np.asarray(np.max(found, axis=0))

    def view(self, private: OwnRatings) -> Exposed:
        """Make the view of a server to which these users' masked ratings leaked."""
        masks, scale = private.masks, private.masks.scale
        return Exposed(
            # One code for all users: random starts are the same for a user alone and among others.
            users=np.zeros(private.lists.n_users, np.int64),
            lists=private.lists,
            scale=scale,
            prior=uniform_prior(len(private.ratings), scale),
            masked=masks.masked_ratings,
            features=private.features,
            population=masks.population,
            plan=masks.plan,
            engine=ENGINES[lasting_engine(self.engine)],
            extremes=extremes_of(private.lists, private.ratings, scale),
        )
