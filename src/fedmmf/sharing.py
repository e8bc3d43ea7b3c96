"""Who shares updates in the clear: each party's own choice, for all of a simulation at once."""

import numpy as np

from fedmmf.arrays import Array
from fedmmf.config import Settings
from fedmmf.data import Ratings
from fedmmf.masks import FittedMasks


def who_shares_in_clear(ratings: Ratings, settings: Settings, masks: FittedMasks) -> Array:
    """By the settings' policy. (n_users,) bool.

    Args:
        ratings: what the parties train on.
        settings: of the run.
        masks: fitted on `ratings`.
    """
    if settings.sharing != "adaptive":
        return np.full(ratings.n_users, settings.sharing == "plain")
    if settings.grouping == "indicator":
        return np.asarray(masks.j_train <= settings.threshold_j)
    from fedmmf.attacks.self_audit import self_audits  # attacks are slow to load, and rarely needed

    return np.asarray(self_audits(ratings, settings, masks) < settings.audit_limit)
