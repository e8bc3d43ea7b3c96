"""The search for hyperparameters of peers: random draws, then changes of the best so far.

Every candidate is scored on a validation part of the training ratings of a split that is not
reported (`curve.TUNING_SEED`). Nothing of this is inside epsilon, for us or for them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedmmf import rng

Values = dict[str, Any]
Score = Callable[[Values], float]
N_DRAWS = 50  # at random
N_CHANGES = 50  # of the best so far
MANY_RATINGS = 500_000  # from which on a search has two fifths of that
_CHANGED = 0.35  # share of hyperparameters that a change draws anew or moves
_STEP = 0.5  # standard deviation of the logarithm by which a strength is moved

# What may be drawn: a tuple has all values, a pair of floats in a list the ends of an interval.
Space = dict[str, tuple[Any, ...] | list[float]]
DPALS: Space = {
    "factors": (1, 2, 3, 4, 6),
    "rounds": (1, 2, 3, 5, 8),
    "gamma": (0.0, 0.25, 0.4, 0.55),
    "user_strength": [1.0, 200.0],
    "item_strength": [0.5, 200.0],
    "max_user": (0.15, 0.3, 0.5, 1.0, 2.0),
    "max_error": (0.5, 0.8, 1.2),
    "counts_share": (0.02, 0.08),
    "curvature_share": (0.05, 0.1, 0.25, 0.5),
}
DPALS_MEANS = DPALS | {"mean_strength": (1.0, 4.0, 8.0), "bias": (True, True, False)}
DPALS_FEATURES = DPALS_MEANS | {"prior_ridge": [0.5, 300.0]}
ITEM_MEANS: Space = {
    "gamma": (0.0, 0.25, 0.4, 0.55),
    "item_strength": [0.5, 200.0],
    "max_error": (0.5, 0.8, 1.2, 2.0),
    "counts_share": (0.02, 0.08),
    "curvature_share": (0.05, 0.1, 0.25, 0.5),
}
USER_ITEM_MEANS = ITEM_MEANS | {"mean_strength": (1.0, 2.0, 4.0, 8.0)}


def search(space: Space, score: Score, seed: int, share: float = 1.0) -> tuple[Values, int]:
    """Return the best values, and how many were tried.

    Args:
        space: what may be drawn.
        score: error with some values.
        seed: of the draws.
        share: of the usual number of trials.
    """
    stream = rng.stream(seed, "search")
    tried: list[tuple[float, Values]] = []
    for _ in range(round(share * N_DRAWS)):
        values = {name: _draw(of, stream) for name, of in space.items()}
        tried.append((score(values), values))
    for _ in range(round(share * N_CHANGES)):
        values = change(best_of(tried), space, stream)
        tried.append((score(values), values))
    return best_of(tried), len(tried)


def best_of(tried: Sequence[tuple[float, Values]]) -> Values:
    """Return the values with the lowest error."""
    return min(tried, key=lambda one: one[0])[1]


def change(values: Values, space: Space, stream: np.random.Generator) -> Values:
    """Draw some values anew, and move some strengths."""
    found = dict(values)
    for name, of in space.items():
        if stream.random() >= _CHANGED:
            continue
        if isinstance(of, tuple):
            found[name] = _draw(of, stream)
        else:
            moved = values[name] * float(np.exp(_STEP * stream.standard_normal()))
            found[name] = float(f"{min(max(moved, of[0]), of[1]):.3g}")
    return found


def _draw(of: tuple[Any, ...] | list[float], stream: np.random.Generator) -> Any:
    if isinstance(of, tuple):
        return of[int(stream.integers(len(of)))]
    low, high = of
    return float(f"{low * (high / low) ** stream.random():.3g}")
