"""The families of masks by name."""

from fedmmf.masks.models import MaskFamily
from fedmmf.registry import Registry

FAMILIES: Registry[MaskFamily] = Registry(
    "mask",
    "fedmmf.masks",
    {name: f"fedmmf.masks.models:{name.upper()}" for name in ("none", "mean", "lr", "fm", "nn")},
)
