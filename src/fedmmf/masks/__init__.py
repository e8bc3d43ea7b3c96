"""Personalized masks: a private model per party, its masked ratings, and J. numpy only."""

from fedmmf.masks.families import FAMILIES
from fedmmf.masks.fitting import (
    FittedMasks,
    MaskPlan,
    Runner,
    apply_mask,
    apply_one_mask,
    fit_masks,
    mask_base,
)
from fedmmf.masks.indicator import epsilon_reached, privacy_indicator, sample_complexity
from fedmmf.masks.models import MaskFamily

__all__ = [
    "FAMILIES",
    "FittedMasks",
    "MaskFamily",
    "MaskPlan",
    "Runner",
    "apply_mask",
    "apply_one_mask",
    "epsilon_reached",
    "fit_masks",
    "mask_base",
    "privacy_indicator",
    "sample_complexity",
]
