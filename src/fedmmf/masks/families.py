"""The families of masks by name."""

from typing import TYPE_CHECKING

from fedmmf.registry import Registry

if TYPE_CHECKING:
    from fedmmf.masks.models import MaskFamily  # who names a mask need not load any

NAMES = ("none", "mean", "lr", "fm", "nn")
FAMILIES: "Registry[MaskFamily]" = Registry(
    "mask", "fedmmf.masks", {name: f"fedmmf.masks.models:{name.upper()}" for name in NAMES}
)
