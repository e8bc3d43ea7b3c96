"""Optional packages of a federation across machines, imported where they are used."""

import importlib
from typing import Any

from fedmmf.errors import SettingsError


def needs_nvflare(module: str) -> Any:
    """Import a module that needs NVFlare; raises `SettingsError` where that is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if not (error.name or "").startswith("nvflare"):
            raise
        raise SettingsError(
            "a federation across machines needs NVFlare; install it with "
            "pip install 'fedmmf[federation]'"
        ) from None
