"""The kernels for a card, interpreted on the processor: slow, and the same lines."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: make test-torch")
triton = pytest.importorskip("triton", reason="triton is not installed: make test-torch")

CODE = Path(__file__).with_name("interpreted.py")


def interpreted(part):
    """In a process of its own, since Triton decides when it is loaded."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    order = [sys.executable, "-W", "ignore", str(CODE), part]
    return subprocess.run(order, env=environment, capture_output=True, text=True, check=False)


def is_numpys_fault(done):
    """Whether Triton's interpreter took an array for a number, which newer numpy refuses.

    Triton 3.6 fails so with numpy 2.4 and 2.5.
    """
    said = ("runtime/interpreter.py", "only 0-dimensional arrays")
    return done.returncode != 0 and all(words in done.stderr for words in said)


@pytest.mark.parametrize(
    "part",
    ["plain", "fixed", "ranking", "joint", "wide", "heavy", "overflow", "small matrices"],
)
def test_interpreted_kernels_do_what_plain_torch_does(part):
    done = interpreted(part)
    if is_numpys_fault(done):
        pytest.skip(
            f"Triton {triton.__version__} does not interpret kernels with numpy {np.__version__}: "
            "take a newer Triton"
        )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip().endswith("equal")
