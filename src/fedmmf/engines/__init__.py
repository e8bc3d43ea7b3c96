"""Engines: all users at once. `numba` is fast; `numpy` is the oracle, and runs on a device."""

from fedmmf.engines.contract import Engine
from fedmmf.registry import Registry

ENGINES: Registry[Engine] = Registry(
    "engine",
    "fedmmf.engines",
    {
        "numba": "fedmmf.engines.kernels.engine:NUMBA",
        "numpy": "fedmmf.engines.reference:NUMPY",
    },
)

__all__ = ["ENGINES", "Engine"]
