"""fedmmf: federated recommendations from ratings that never leave the people who gave them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from fedmmf.data import ItemFeatures, Ratings, UserProfiles, load, load_split
    from fedmmf.data.scales import RatingScale
    from fedmmf.errors import FedMMFError
    from fedmmf.model import FedMMF
    from fedmmf.settings import Settings

# Imported when first used: a party on a phone imports this package too, and needs numpy alone.
_HOMES = {
    "FedMMF": "fedmmf.model",
    "FedMMFError": "fedmmf.errors",
    "ItemFeatures": "fedmmf.data",
    "RatingScale": "fedmmf.data.scales",
    "Ratings": "fedmmf.data",
    "Settings": "fedmmf.settings",
    "UserProfiles": "fedmmf.data",
    "load": "fedmmf.data",
    "load_split": "fedmmf.data",
}
__all__ = [
    "FedMMF",
    "FedMMFError",
    "ItemFeatures",
    "RatingScale",
    "Ratings",
    "Settings",
    "UserProfiles",
    "load",
    "load_split",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedmmf' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
