"""Personalized masks: a private model per party, its masked ratings, and J. numpy only."""

from fedmmf.masks.fitting import FittedMasks, Runner, fit_masks
from fedmmf.masks.indicator import epsilon_reached, privacy_indicator, sample_complexity
from fedmmf.masks.models import FAMILIES, MaskFamily

__all__ = [
    "FAMILIES",
    "FittedMasks",
    "MaskFamily",
    "Runner",
    "epsilon_reached",
    "fit_masks",
    "privacy_indicator",
    "sample_complexity",
]
