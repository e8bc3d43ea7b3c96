"""Packages of the extra `federation`, imported where they are used."""

import importlib
from typing import Any

from fedmmf.errors import SettingsError

_NAMES = {
    "nvflare": "NVFlare",
    "starlette": "Starlette",
    "uvicorn": "uvicorn",
    "prometheus_client": "prometheus_client",
}


def import_extra(module: str) -> Any:
    """Import a module that needs the extra; raises `SettingsError` where that is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _NAMES:
            raise
        raise SettingsError(
            f"a federation across machines needs {_NAMES[missing]}; install it with "
            "pip install 'fedmmf[federation]'"
        ) from None
