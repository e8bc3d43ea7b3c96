"""A case for a card is packed on a machine that has no torch."""

import subprocess
import sys

import numpy as np

WITHOUT_TORCH = """
import sys
sys.modules |= {"torch": None, "triton": None}  # as if they were not installed
from fedmmf.cli import main
main()
"""


def test_a_case_is_packed_without_torch(small, tmp_path):
    data, file = tmp_path / "ratings.csv", tmp_path / "case.npz"
    small.to_frame().write_csv(data)
    chosen = ["--data", str(data), "--factors", "3", "--ensemble", "1", "--pack", str(file)]
    order = [sys.executable, "-c", WITHOUT_TORCH, "bench", "engines", *chosen]
    done = subprocess.run(order, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with np.load(file) as found:
        assert found["form"][0] == "4"
        assert len(found["items"]) == len(found["masked"]) > 0
