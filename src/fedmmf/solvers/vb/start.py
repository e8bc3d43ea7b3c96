"""The state of the server's half of `vb`, and its start."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.solvers.contract import SolverContext
from fedmmf.solvers.vb.ordinal import starting_cuts
from fedmmf.solvers.vb.party import PINNED
from fedmmf.solvers.vb.reading import prior_mean
from fedmmf.solvers.vb.shapes import VbShape

ITEM_SPREAD = 0.3  # standard deviation of the item means at the start, of a quarter of the scale
ITEM_VARIANCE = 0.1
USUAL_UNRATED = 8.0  # intended ratio of the weight of all unrated items to all rated ones
# Prior size of a whole mask, in quarters of the scale; its columns share it. With more room for
# each, many columns fit noise before their precisions are learned.
JOINT_SPREAD, MIN_SHARES = 0.4, 16


@dataclass(frozen=True, eq=False)
class Items:
    """Arrays that change from round to round."""

    mean: Array  # E[q_i] (n_items, k)
    n_raters: Array  # (n_items,)
    prior: Array  # what q_i is expected to be (n_items, k)
    raters: Array  # what an item's raters say about it, standardised (n_items, k or 0)
    item_weights: Array  # W^T (1 + d + k or 0, k)
    tau: Array  # ()
    user_precision: Array  # a (k,)
    item_precision: Array  # c (k,)
    mean_user: Array  # of all p_u (k,)
    curvature: Array  # what a rating adds to the precision of q_i (k, k)
    base: Array  # the precision of q_i without ratings (k, k)
    user_weights: Array  # of what is known of a user, in the prior mean of p_u (e, k)
    profile_mean: Array  # (d,)
    cuts: Array  # between the levels of ordered ratings (n_levels - 1 or 0,)
    joint_mean: Array  # of weights of masks that belong to p_u (j,)
    joint_precision: Array  # (j,)
    n_done: Array  # rounds ()


def start_share(context: SolverContext, unrated: tuple[float, ...]) -> float:
    """Share of a quarter of the scale at which item factors start: 1, unless data are very sparse.

    Where unrated items weigh far more than rated ones, q_i . p_u is near 0 for nearly all pairs.
    Item factors of the size of ratings would make all p_u tiny, and nothing makes them grow again:
    the model is the same for s q_i and p_u / s. Sums of p_u p_u^T would then be lost in the
    rounding of totals. With the root of the share that is too much, both sides are near 1.
    """
    if not unrated:
        return 1.0
    rated = min(context.ratings_per_user / context.n_items, 1.0)
    outweighs = unrated[0] * (1.0 - rated) / max(rated, 1e-9)
    return float(np.sqrt(min(1.0, round(USUAL_UNRATED / max(outweighs, 1e-9), 9))))


def start(update_shape: VbShape, context: SolverContext, own: float) -> Items:
    """Return random means and first hyperparameters; `own` is the unit of item factors."""
    k, n_items, unit = update_shape.rank, context.n_items, context.span / 4
    mean = ITEM_SPREAD * own * context.stream.standard_normal((n_items, k))
    mean[:, 0] += context.level
    n_looked = k if update_shape.has_membership_rounds else 0
    weights = np.zeros((1 + context.regressors.shape[1] + n_looked, k))
    weights[0, 0] = context.level
    user_precision = np.ones(k)
    user_precision[0] = PINNED
    return Items(
        mean=mean,
        n_raters=np.zeros(n_items),
        prior=np.tile(weights[0], (n_items, 1)),
        raters=np.zeros((n_items, n_looked)),
        item_weights=weights,
        tau=np.asarray(unit**2),
        user_precision=user_precision,
        item_precision=np.full(k, 1.0 / own**2),
        mean_user=prior_mean(k),
        curvature=np.zeros((k, k)),
        base=np.eye(k) / (ITEM_VARIANCE * own**2),
        user_weights=np.zeros((update_shape.n_seen + update_shape.n_profile, k)),
        profile_mean=np.zeros(update_shape.n_profile),
        cuts=starting_cuts(context.lowest, context.span, update_shape.n_levels),
        joint_mean=np.zeros(update_shape.n_joint),
        joint_precision=np.full(
            update_shape.n_joint, _joint_shares(update_shape) / (JOINT_SPREAD * unit) ** 2
        ),
        n_done=np.asarray(0),
    )


def _joint_shares(update_shape: VbShape) -> int:
    return max(update_shape.n_joint, MIN_SHARES)


def weight_of_unrated(settings: Any, context: SolverContext) -> float:
    """Weight of an unrated item beside a rated one: all unrated ones weigh eight times as much.

    Very sparse data want no less than a fifth, dense data hardly more than half. docs/lists.md
    says on which data this was found.
    """
    if settings.unrated_weight != "auto":
        return float(settings.unrated_weight)
    rated = context.ratings_per_user / context.n_items
    return float(np.clip(USUAL_UNRATED * rated / max(1.0 - rated, 1e-9), 0.2, 0.55))


def value_of_unrated(settings: Any, context: SolverContext) -> float:
    """Rating that an unrated item counts as: the lowest of the scale, unless set."""
    return context.lowest if settings.unrated_value == "auto" else float(settings.unrated_value)
