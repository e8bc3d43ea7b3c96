"""Engines: all users at once. `numba` is fast; `ray` is `numba` on many machines.

`numpy` is the oracle, and runs on a device.
"""

from fedmmf.engines.contract import Engine
from fedmmf.registry import Registry

ENGINES: Registry[Engine] = Registry(
    "engine",
    "fedmmf.engines",
    {
        "numba": "fedmmf.engines.kernels.engine:NUMBA",
        "numpy": "fedmmf.engines.reference:NUMPY",
        "ray": "fedmmf.engines.ray.engine:RAY",
    },
)

__all__ = ["ENGINES", "Engine"]
