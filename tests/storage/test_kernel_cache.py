"""Compiled functions: a disk without room for them is no error."""

import os
import resource
import subprocess
import sys

CODE = """
import sys
from fedmmf.storage.kernel_cache import cached_jit
sys.path.insert(0, ".")
import one
print(cached_jit()(one.add_one)(41))
"""


def test_a_function_runs_though_it_cannot_be_kept(tmp_path):
    (tmp_path / "one.py").write_text("def add_one(n):\n    return n + 1\n")
    for limit, cache in ((0, tmp_path / "kernels"), (None, "/proc/none")):
        done = subprocess.run(
            [sys.executable, "-B", "-c", CODE],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
            preexec_fn=lambda limit=limit: (
                limit is not None and resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            ),
        )
        assert done.stdout == "42\n", done.stderr
    assert not list((tmp_path / "kernels").rglob("*.nbc"))
