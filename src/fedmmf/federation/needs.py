"""What a federation across machines needs besides the core, asked for where it is used."""

import importlib
from typing import Any

from fedmmf.errors import SettingsError


def needs_nvflare(module: str) -> Any:
    """A module of NVFlare, or of ours that needs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if not (error.name or "").startswith("nvflare"):
            raise
        raise SettingsError(
            "a federation across machines needs NVFlare; install it with "
            "pip install 'fedmmf[federation]'"
        ) from None
