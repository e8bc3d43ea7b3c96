"""Engines that compute all users at once: `numba` (fast), `ray` (many machines), `torch` (GPU).

`numpy` is the oracle, and runs on a device.
"""

from typing import Any

from fedmmf.engines.contract import DeviceEngine, Engine
from fedmmf.registry import Registry

ENGINES: Registry[Engine] = Registry(
    "engine",
    "fedmmf.engines",
    {
        "numba": "fedmmf.engines.kernels.engine:NUMBA",
        "numpy": "fedmmf.engines.reference:NUMPY",
        "ray": "fedmmf.engines.ray.engine:RAY",
        "torch": "fedmmf.engines.torch.engine:TORCH",
    },
)


def engine_of(settings: Any) -> Engine:
    """Return the engine that the settings name, on their device."""
    engine = ENGINES[settings.engine]
    if isinstance(engine, DeviceEngine):
        return engine.on(settings.device, settings.pieces)
    return engine


def lasting_engine(name: str) -> str:
    """Return the name of an engine that can use a trained model where there is no such device."""
    return "numba" if isinstance(ENGINES[name], DeviceEngine) else name


__all__ = ["ENGINES", "Engine", "engine_of", "lasting_engine"]
