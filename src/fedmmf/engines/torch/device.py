"""Finds the device, and says what to do where there is none or it is full."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fedmmf.errors import SettingsError


def found(name: str) -> Any:
    """The device of that name, a `torch.device`; `SettingsError` says what is missing."""
    torch = _torch()
    if name == "cpu":
        return torch.device("cpu")
    if torch.version.cuda is None:
        raise SettingsError(
            f"the device 'cuda' needs a PyTorch that is built for it; this one, {torch.__version__}"
            ", is not. Install another (pytorch.org says which), or take --device cpu"
        )
    if not torch.cuda.is_available():
        raise SettingsError(
            f"the device 'cuda' needs an NVIDIA card and a driver for CUDA {torch.version.cuda}; "
            f"{_complaint(torch)}. Look what nvidia-smi says, update the driver, or take "
            "--device cpu"
        )
    try:
        importlib.import_module("triton")
    except ImportError:
        raise SettingsError(
            "the device 'cuda' needs the package triton, which is not installed; it comes with "
            "PyTorch on Linux. Run pip install 'fedmmf[gpu]', or take --device cpu"
        ) from None
    return torch.device("cuda")


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise SettingsError(
            "the engine 'torch' needs the package torch, which is not installed; "
            "run pip install 'fedmmf[gpu]'"
        ) from None


def _complaint(torch: Any) -> str:
    """What torch says when it is asked for a card."""
    try:
        torch.zeros(1, device="cuda")
    except (RuntimeError, AssertionError) as error:
        return str(error).strip().split("\n")[0].rstrip(".")
    return "torch finds none"


@contextmanager
def explained(n_pieces: int) -> Iterator[None]:
    """Say what to do where the device's memory is too small."""
    torch = _torch()
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        free, total = (number / 2**30 for number in torch.cuda.mem_get_info())
        torch.cuda.empty_cache()
        raise SettingsError(
            f"the card has {total:.0f} GiB of memory, of which {free:.1f} are free: too little for "
            f"users in {n_pieces} pieces. Give --pieces {2 * n_pieces} or more, which are on the "
            "card in turn, or take --engine numba"
        ) from error
