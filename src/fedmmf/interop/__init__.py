"""Fitted models in other tools: LensKit, MLflow, TensorBoard, FAISS, hnswlib, and plain files.

Each module needs its own library, from the extra `interop`, and loads it when it is used.
"""

from importlib import import_module
from typing import Any

from fedmmf.errors import FedMMFError


def needed(module: str, package: str) -> Any:
    """Import a module of another package, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise FedMMFError(
            f"this needs the package {package}, which cannot be loaded: {error}. Install it: "
            "pip install 'fedmmf[interop]'"
        ) from error
