"""What an attack is: a view, a guess made from the view alone, and a score against the truth.

The split keeps an attack honest. `guess` is given a `View`, which holds what left the parties and
what is public, and nothing else; only `score` meets the truth. `View` and `Exposed` are in `view`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from fedmmf import rng
from fedmmf.arrays import Array
from fedmmf.attacks.view import View, nearest_rating, per_user_mean

RESAMPLES = 1000
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class Attacked(Protocol):
    """A view of any kind."""

    @property
    def users(self) -> Array:
        """Codes of the attacked users. (n_users,)."""


Score = Callable[[Any, Array, Array], Array]
"""(view, guesses, truth) -> success of each user. (n_users,)"""


def exact_share(view: View, guesses: Array, truth: Array) -> Array:
    """Share of a user's ratings that are exact after rounding to the scale's step. (n_users,)."""
    hits = nearest_rating(guesses, view.scale) == nearest_rating(truth, view.scale)
    return per_user_mean(hits, view.indptr)


def prior_share(view: View, truth: Array) -> Array:
    """What `exact_share` gives to guessing every item's most frequent public rating. (n_users,)."""
    return exact_share(view, view.prior_guess, truth)


@dataclass(frozen=True, eq=False)
class AttackResult:
    """How well an attack did, user by user, beside what public knowledge alone would give."""

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
        """Mean success over users."""
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
    def quantiles(self) -> dict[float, float]:
        """Quantiles of the success over users; none where nobody is attacked."""
        if not self._is_scored.any():
            return {}
        values = np.nanquantile(self.success, QUANTILES)
        return dict(zip(QUANTILES, map(float, values), strict=True))

    def share_of_users(self, at_least: float) -> float:
        """Share of the attacked users on whom the success is at least this."""
        return _mean(self.success[self._is_scored] >= at_least)

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON can hold it."""
        texts = {name: getattr(self, name) for name in ("name", "knows", "outputs", "measure")}
        return texts | {
            "n_users": int(self._is_scored.sum()),
            "mean": self.mean,
            "interval": list(self.interval),
            "baseline_mean": self.baseline_mean,
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
    """One attack, in words and as functions.

    Attributes:
        name: What to call it.
        knows: What the attacker has, in a sentence.
        outputs: What it claims to find, in a sentence.
        measure: How success is counted, in a sentence.
        guess: From a view to guesses, one per rating of the view unless the attack says otherwise.
        score: From (view, guesses, truth) to each user's success.
        baseline: From (view, truth) to what the score would be without the attack.
    """

    name: str
    knows: str
    outputs: str
    measure: str
    guess: Callable[[Any], Array] = field(repr=False)
    score: Score = field(default=exact_share, repr=False)
    baseline: Callable[[Any, Array], Array] = field(default=prior_share, repr=False)

    def run(self, view: Attacked, truth: Array, seed: int = 0) -> AttackResult:
        """Attack every user of a view and compare with the truth."""
        return AttackResult(
            name=self.name,
            knows=self.knows,
            outputs=self.outputs,
            measure=self.measure,
            users=view.users,
            success=self.score(view, self.guess(view), truth),
            baseline=self.baseline(view, truth),
            seed=seed,
        )


def _mean(values: Array) -> float:
    values = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    return float(np.mean(values)) if len(values) else 0.0


def _rounded(values: Array) -> list[float | None]:
    return [None if np.isnan(value) else round(float(value), 6) for value in values]
