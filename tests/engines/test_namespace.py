"""Tests that start a Ray run where nobody can reach it: in a network namespace that has only lo."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
# A user's root may not make namespaces everywhere; root may.
UNSHARE = ["unshare", "-n" if os.geteuid() == 0 else "-rn"]
UP = 'ip link set lo up && exec "$@"'
WITH_RAY = ["engines/test_contract.py", "engines/test_ray.py", "simulation", "party", "bench"]


def can_unshare():
    try:
        done = subprocess.run([*UNSHARE, "sh", "-c", UP, "sh", "true"], capture_output=True)
    except FileNotFoundError:
        return False
    return done.returncode == 0


def test_every_test_of_the_engine_ray_passes_in_a_namespace():
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install 'fedmmf[ray]'")
    if not can_unshare():
        pytest.skip("network namespaces need unshare, ip and the right to use them")
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-k", "ray"]
    done = subprocess.run(
        [*UNSHARE, "sh", "-c", UP, "sh", *pytest_, *(str(TESTS / name) for name in WITH_RAY)],
        capture_output=True,
        text=True,
        env={**os.environ, "FEDMMF_RAY_WORKERS": "3"},  # more than there may be cores
        cwd=TESTS.parent,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 130, done.stdout
    assert "Ray opens ports" not in done.stdout
