"""Packages of the extra `he`, imported only where a homomorphic scheme is used."""

import importlib
from types import ModuleType

from fedmmf.errors import SettingsError


def import_extra(package: str) -> ModuleType:
    """Import a package of the extra, or say how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise SettingsError(
            f"homomorphic aggregation needs the package {package}, which is not installed; "
            "run pip install 'fedmmf[he]'"
        ) from None
