"""What a party can find out about itself before it shares anything, since it knows its ratings.

It may let its updates leave in the clear only if the best attack on its own masked ratings finds
less than `audit_limit` of them. This file needs no parties and no messages, so that a run can group
its users with it.
"""

import numpy as np

from fedmmf.arrays import Array
from fedmmf.attacks.contract import Attack
from fedmmf.attacks.grouping import GROUPING
from fedmmf.attacks.inversion import BLIND_INVERSION, INVERSION, LINEAR
from fedmmf.attacks.prior import DECODE, NAIVE
from fedmmf.attacks.recovery import recovery
from fedmmf.attacks.view import Exposed, expose
from fedmmf.config import Settings
from fedmmf.data import Ratings
from fedmmf.masks import FittedMasks


def rating_attacks(mask: str) -> tuple[Attack, ...]:
    """The attacks that find ratings, as far as they apply to a family of masks."""
    linear = (INVERSION, BLIND_INVERSION) if mask in LINEAR else ()
    return (recovery(), NAIVE, GROUPING, *linear, DECODE)


def best_success(view: Exposed, truth: Array) -> Array:
    """Success of the best attack on each user's ratings. (n_users,)."""
    results = [attack.run(view, truth).success for attack in rating_attacks(view.mask)]
    return np.asarray(np.max(results, axis=0))


def self_audit(view: Exposed, ratings: Array) -> float:
    """Share of a party's ratings that the best attack finds in its own masked ratings.

    Args:
        view: what the server would hold of this party alone.
        ratings: the party's own. (n,)
    """
    return float(best_success(view, ratings)[0])


def self_audits(ratings: Ratings, settings: Settings, masks: FittedMasks | None = None) -> Array:
    """`self_audit` of every user of a simulation; `masks` where they are fitted. (n_users,)."""
    return best_success(expose(ratings, settings, masks), ratings.values)
