"""The kernels for a card, interpreted on the processor: slow, and the same lines."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: make test-torch")
pytest.importorskip("triton", reason="triton is not installed: make test-torch")

CODE = Path(__file__).with_name("interpreted.py")


@pytest.mark.parametrize(
    "part", ["plain", "fixed", "ranking", "joint", "wide", "heavy", "small matrices"]
)
def test_interpreted_kernels_do_what_plain_torch_does(part):
    """In a process of its own, since Triton decides when it is loaded."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    order = [sys.executable, "-W", "ignore", str(CODE), part]
    done = subprocess.run(order, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip().endswith("equal")
