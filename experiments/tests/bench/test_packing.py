"""`fedmmf bench engines` on a machine that has no torch: it packs a case for a card."""

import subprocess
import sys

import numpy as np

WITHOUT_TORCH = """
import sys
sys.modules |= {"torch": None, "triton": None}  # as if they were not installed
from fedmmf.cli import main
main()
"""


def engines_without_torch(*words):
    order = [sys.executable, "-c", WITHOUT_TORCH, "bench", "engines", *words]
    return subprocess.run(order, capture_output=True, text=True, check=False)


def test_without_torch_it_says_how_to_get_it():
    done = engines_without_torch()
    assert done.returncode == 2
    assert "the engine 'torch' needs the package torch" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_case_is_packed_without_torch(small, tmp_path):
    data, file = tmp_path / "ratings.csv", tmp_path / "case.npz"
    small.to_frame().write_csv(data)
    chosen = ["--data", str(data), "--factors", "3", "--ensemble", "1", "--pack", str(file)]
    done = engines_without_torch(*chosen)
    assert done.returncode == 0, done.stderr
    with np.load(file) as found:
        assert found["form"][0] == "4"
        assert len(found["items"]) == len(found["masked"]) > 0
