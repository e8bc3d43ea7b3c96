"""Settings of a run: each component brings a group of them; users see one flat list of names.

`Settings` is imported at first use: a component's group imports `settings.groups`, and `Settings`
imports every component's group.
"""

from typing import TYPE_CHECKING

from fedmmf.registry import lazy_names

if TYPE_CHECKING:
    from fedmmf.settings.settings import Settings

__all__ = ["Settings"]
__getattr__ = lazy_names({"fedmmf.settings.settings": ["Settings"]})
