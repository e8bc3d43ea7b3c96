"""The contract of an attack: a view, a guess from the view alone, and a score against the truth.

The split keeps an attack honest. `guess` is given a view, which holds what left the parties and
what is public, and nothing else; only `score` meets the truth. Views are in `view`, `gradients`,
`membership`, `calibrated`, `disaggregation`, `vb_sums`, `vb_lists` and `noisy_sums`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np

from fedmmf import rng
from fedmmf.arrays import Array
from fedmmf.attacks.view import View, nearest_level, per_user_mean
from fedmmf.masks import FAMILIES

RESAMPLES = 1000
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
Target = Literal[
    "masked ratings",
    "uploads",
    "cohort",
    "sums",
    "rounds",
    "unnamed rounds",
    "vb sums",
    "lists",
    "noisy sums",
    "noisy lists",
]
"""What is attacked, and so what a guess is given and what it is compared with.

masked ratings: an `Exposed`, and the ratings (n,).
uploads: an `Uploads`, and the masked ratings (n,).
cohort: a `CohortView`, and who rated what (n_users, n_items) bool.
sums: a `SummedView`, and the ratings (n,).
rounds: a `RoundsView`, and the ratings (n,).
unnamed rounds: an `UnnamedRounds`, and who rated what (n_users, n_items) bool.
vb sums: a `VbSummedView`, and the ratings (n,).
lists: a `ListsView`, and who took part (n_users,) bool.
noisy sums: a `NoisyView`, and the ratings (n,).
noisy lists: a `NoisyView`, and who rated what (n_users, n_items) bool.
"""


class Attacked(Protocol):
    """A view of any kind."""

    @property
    def users(self) -> Array:
        """Codes of the attacked users. (n_users,)."""


Score = Callable[[Any, Array, Array], Array]
"""(view, guesses, truth) -> success of each user. (n_users,)"""


def exact_share(view: View, guesses: Array, truth: Array) -> Array:
    """Share of a user's ratings that are exact after rounding to the scale's step. (n_users,).

    A guess that is not finite is none, and counts as wrong.
    """
    level = nearest_level(np.nan_to_num(guesses), view.scale)  # (n,)
    hits = np.isfinite(guesses) & (level == nearest_level(truth, view.scale))
    return per_user_mean(hits, view.lists)


def prior_share(view: View, truth: Array) -> Array:
    """`exact_share` of guessing every item's most frequent public rating. (n_users,)."""
    return exact_share(view, view.prior_guess, truth)


@dataclass(frozen=True, eq=False)
class AttackResult:
    """Success of an attack for each user, beside that of public knowledge alone."""

    name: str
    knows: str
    outputs: str
    measure: str
    users: Array  # (n_users,) codes
    success: Array  # (n_users,) in [0, 1]; NaN for users with nothing to attack
    baseline: Array  # (n_users,) the same measure without the attack
    seed: int = 0

    @property
    def mean(self) -> float:
        """Mean success over the attacked users, in [0, 1]."""
        return _mean(self.success)

    @property
    def baseline_mean(self) -> float:
        """Mean of the baseline over users."""
        return _mean(self.baseline)

    @cached_property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the mean success: bootstrap over users."""
        return self._bootstrap(self.success)

    @cached_property
    def advantage_interval(self) -> tuple[float, float]:
        """95 % interval of the mean of success minus baseline, user by user."""
        return self._bootstrap(self.success - self.baseline)

    @property
    def advantage(self) -> float:
        """Mean of success minus baseline, user by user: the paired gain."""
        return _mean(self.success - self.baseline)

    @property
    def quantiles(self) -> dict[float, float]:
        """Quantiles of the success over users; none where nobody is attacked."""
        if not self._is_scored.any():
            return {}
        values = np.nanquantile(self.success, QUANTILES)
        return dict(zip(QUANTILES, map(float, values), strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Convert all fields to types that JSON has."""
        texts = {name: getattr(self, name) for name in ("name", "knows", "outputs", "measure")}
        return texts | {
            "n_users": int(self._is_scored.sum()),
            "mean": self.mean,
            "interval": list(self.interval),
            "baseline_mean": self.baseline_mean,
            "advantage": self.advantage,
            "advantage_interval": list(self.advantage_interval),
            "quantiles": {f"{share:g}": value for share, value in self.quantiles.items()},
            "users": self.users.tolist(),
            "success": _rounded(self.success),
            "baseline": _rounded(self.baseline),
        }

    @property
    def _is_scored(self) -> Array:
        return ~np.isnan(self.success)

    def _bootstrap(self, values: Array) -> tuple[float, float]:
        values = values[~np.isnan(values)]
        if len(values) == 0:
            return 0.0, 0.0
        draws = rng.stream(self.seed, "bootstrap", self.name).integers(
            len(values), size=(RESAMPLES, len(values))
        )
        low, high = np.quantile(values[draws].mean(axis=1), (0.025, 0.975))
        return float(low), float(high)


@dataclass(frozen=True)
class Attack:
    """One attack, in words and as functions."""

    name: str  # what people call it
    knows: str  # what the attacker has, in a sentence
    outputs: str  # what it claims to find, in a sentence
    measure: str  # how success is counted, in a sentence
    # from a view to guesses, one per rating of the view unless the attack says otherwise
    guess: Callable[[Any], Array] = field(repr=False)
    # from (view, guesses, truth) to each user's success
    score: Score = field(default=exact_share, repr=False)
    # from (view, truth) to what the score would be without the attack
    baseline: Callable[[Any, Array], Array] = field(default=prior_share, repr=False)
    target: Target = "masked ratings"  # what it attacks
    # what a guess is; attacks that find ratings are the ones that a party tries on itself
    finds: Literal["ratings", "masked ratings", "items", "order"] = "ratings"
    linear_only: bool = False  # whether it applies to masks alone that are linear in what they see

    def applies_to(self, mask: str) -> bool:
        """Whether the attack applies to masks of a family."""
        return not self.linear_only or FAMILIES[mask].is_linear

    def success(self, view: Attacked, truth: Array) -> Array:
        """Guess, and compare with the truth. (n_users,)."""
        return self.score(view, self.guess(view), truth)

    def run(self, view: Attacked, truth: Array, seed: int = 0) -> AttackResult:
        """Attack every user of a view and compare with the truth."""
        return AttackResult(
            name=self.name,
            knows=self.knows,
            outputs=self.outputs,
            measure=self.measure,
            users=view.users,
            success=self.success(view, truth),
            baseline=self.baseline(view, truth),
            seed=seed,
        )


def _mean(values: Array) -> float:
    values = values[~np.isnan(values)]
    return float(np.mean(values)) if len(values) else 0.0


def _rounded(values: Array) -> list[float | None]:
    return [None if np.isnan(value) else round(float(value), 6) for value in values]
