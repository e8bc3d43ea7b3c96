"""A party's policy: what its owner allows, which no message of the server can widen."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from fedmmf.aggregation.contract import AggregationScheme
from fedmmf.arrays import Array
from fedmmf.data.rated_items import RatedItems
from fedmmf.data.scales import RatingScale
from fedmmf.errors import SettingsError, WireError
from fedmmf.masks.fitting import FittedMasks
from fedmmf.masks.population import Population
from fedmmf.secagg.keys import public_identity
from fedmmf.secagg.policy import MINIMUM_COHORT

if TYPE_CHECKING:
    from fedmmf.aggregation.dp.guarantee import Guarantee

SHARING = ("strict", "adaptive", "plain")


@dataclass(frozen=True, eq=False)
class Private:
    """A party's private data for its own audit; none of it leaves."""

    lists: RatedItems
    ratings: Array  # (n,)
    masks: FittedMasks
    features: Array  # (n_items, d) public


class SelfAudit(Protocol):
    """Attacks that a party runs on itself before it shares anything."""

    def safe_users(self, private: Private) -> Array:
        """Users of whom the best attack, with public knowledge only, finds little. (n_users,)."""


@dataclass(frozen=True)
class Policy:
    """What may leave a party, and with how many others it is summed.

    Attributes:
        sharing: strict: updates leave only in sums; adaptive: in the clear if every user's J is at
            most `threshold_j`, or if `audit` calls every user safe; plain: in the clear.
        threshold_j: of `adaptive`.
        audit: decides for `adaptive` instead of J; None: J decides.
        noise: what every update gets; None: nothing.
        identity: 32-byte Ed25519 secret; with it, the party takes part only in sums whose parties
            all sign.
        trusted: public keys of the parties that it knows from elsewhere than the server.
        share_of_trusted: the least share of them that may be in a sum: a server that chose a few
            could choose those that are in league with it.
        smallest_cohort: the fewest parties that it hides among.
        smallest_batch: the fewest parties that it is summed with or not at all; 1: by itself.
        survey_ratings: whether its ratings, as they are, may go into a survey's sums.
        largest_rank: the longest vectors of factors that it computes with.
        takes_thin_sums: whether it takes part in sums over no more users than there are factors,
            which can be taken apart by themselves.
        max_parties: the most that all sites together bring into a sum; None: any number.
        corrupt: parties that may be in league, where that is more than 5 % of those in a sum:
            all that the corrupt sites may bring.
    """

    sharing: Literal["strict", "adaptive", "plain"] = "strict"
    threshold_j: float = 0.05
    audit: SelfAudit | None = None
    noise: "Guarantee | None" = None
    identity: bytes | None = field(default=None, repr=False)
    trusted: frozenset[bytes] = field(default=frozenset(), repr=False)
    share_of_trusted: float = 0.75
    smallest_cohort: int = MINIMUM_COHORT
    smallest_batch: int = 1
    survey_ratings: bool = False
    largest_rank: int = 256
    takes_thin_sums: bool = False
    max_parties: int | None = None
    corrupt: int = 0

    def __post_init__(self) -> None:
        conditions = [
            (self.sharing in SHARING, f"sharing must be one of {SHARING}; got {self.sharing!r}"),
            (
                self.smallest_cohort >= MINIMUM_COHORT,
                f"smallest_cohort must be at least {MINIMUM_COHORT}; got {self.smallest_cohort}",
            ),
            (self.smallest_batch >= 1, f"smallest_batch is 1 or more; got {self.smallest_batch}"),
            (
                self.identity is not None or not self.trusted,
                "trusted identities are for parties that sign; give an identity too",
            ),
        ]
        for holds, rule in conditions:
            if not holds:
                raise SettingsError(rule)

    @classmethod
    def of(cls, settings: Any, audit: SelfAudit | None = None) -> "Policy":
        """Make the policy that the settings of a run ask for; identities and noise are added later.

        Args:
            settings: of the run.
            audit: for `adaptive` sharing; None: J decides.
        """
        return cls(
            settings.sharing,
            settings.threshold_j,
            audit,
            smallest_cohort=settings.smallest_cohort,
            smallest_batch=settings.batch,
            survey_ratings=settings.item_statistics,
        )

    @property
    def public_identity(self) -> bytes:
        """Public key of the party; empty: it does not sign."""
        return b"" if self.identity is None else public_identity(self.identity)

    def in_clear(self, private: Private) -> Array:
        """Users whose updates may leave outside sums (errata 37). (n_users,) bool."""
        if self.sharing != "adaptive":
            return np.full(private.lists.n_users, self.sharing == "plain")
        if self.audit is not None:
            return self.audit.safe_users(private)
        return np.asarray(private.masks.j_train <= self.threshold_j)

    def population(self, told: Population, scale: RatingScale) -> Population:
        """What masks shrink towards; where they decide what leaves, nothing that a server says.

        With a line of its choice it could make J small, and read from the choice what J is.
        """
        return Population.unknown(scale) if self.sharing == "adaptive" else told

    def check_rank(self, rank: int) -> None:
        """Refuse vectors that would take more memory than the owner allows."""
        if rank > self.largest_rank:
            raise WireError(f"this party computes with k up to {self.largest_rank}; got {rank}")

    def check_scheme(self, scheme: AggregationScheme, minimum: int) -> None:
        """Refuse an aggregation scheme that shows more than the owner allows."""
        if not scheme.hides and self.sharing == "strict":
            raise WireError(
                f"this party sends updates only in sums; the scheme {scheme.name!r} shows them"
            )
        if scheme.hides and minimum < self.smallest_cohort:
            raise WireError(
                f"this party takes part in sums of at least {self.smallest_cohort} parties; the "
                f"server's minimum is {minimum}"
            )
