"""Personalized masks: a private model per party, its masked ratings, and J. numpy only.

Names are imported when they are first used: the server's side imports `masks.population` and
`masks.feature_maps`, and nothing that knows masks.
"""

from typing import TYPE_CHECKING

from fedmmf.registry import lazy_names

if TYPE_CHECKING:
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
__getattr__ = lazy_names(
    {
        "fedmmf.masks.families": ["FAMILIES"],
        "fedmmf.masks.fitting": [
            "FittedMasks",
            "MaskPlan",
            "Runner",
            "apply_mask",
            "apply_one_mask",
            "fit_masks",
            "mask_base",
        ],
        "fedmmf.masks.indicator": ["epsilon_reached", "privacy_indicator", "sample_complexity"],
        "fedmmf.masks.models": ["MaskFamily"],
    }
)
