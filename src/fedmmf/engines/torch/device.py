"""Find the device, and say what to do if there is none or its memory is full."""

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fedmmf.engines.kernels.threads import VARIABLE, n_threads
from fedmmf.errors import SettingsError


def found(name: str) -> Any:
    """Return the `torch.device` of that name; raise `SettingsError` that says what is missing."""
    torch = _torch()
    if name == "cpu":
        if VARIABLE in os.environ:
            torch.set_num_threads(n_threads())
        return torch.device("cpu")
    if torch.version.cuda is None:
        raise SettingsError(
            f"the device 'cuda' needs a PyTorch that is built for it; this one, {torch.__version__}"
            ", is not. Install another (pytorch.org says which), or take the device 'cpu'",
            flags="--device cpu",
        )
    if not torch.cuda.is_available():
        raise SettingsError(
            f"the device 'cuda' needs an NVIDIA card and a driver for CUDA {torch.version.cuda}; "
            f"{_complaint(torch)}. Look what nvidia-smi says, update the driver, or take the "
            "device 'cpu'",
            flags="--device cpu",
        )
    try:
        importlib.import_module("triton")
    except ImportError:
        raise SettingsError(
            "the device 'cuda' needs the package triton, which is not installed; it comes with "
            "PyTorch on Linux. Run pip install 'fedmmf[gpu]', or take the device 'cpu'",
            flags="--device cpu",
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
    """Return torch's error message when it is asked for a GPU."""
    try:
        torch.zeros(1, device="cuda")
    except (RuntimeError, AssertionError) as error:
        return str(error).strip().split("\n")[0].rstrip(".")
    return "torch finds none"


@contextmanager
def explain_errors(n_pieces: int | None = None) -> Iterator[None]:
    """Raise an error that says what to do where the device's memory is too small.

    Args:
        n_pieces: of users, where there may be more of them.
    """
    torch = _torch()
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        free, total = (number / 2**30 for number in torch.cuda.mem_get_info())
        torch.cuda.empty_cache()
        said = f"the card has {total:.0f} GiB of memory, of which {free:.1f} are free: too little"
        more, flags = "Take the engine 'numba'", "--engine numba"
        if n_pieces is not None:
            said += f" for users in {n_pieces} pieces"
            more = f"Take {2 * n_pieces} pieces or more, which are there in turn"
            flags = f"--pieces {2 * n_pieces}"
        text = f"{said}. {more}, or end what else is on the card"
        raise SettingsError(text, flags=flags) from error
