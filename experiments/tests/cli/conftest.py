import os
import subprocess
import sys

import pytest


def fedmmf(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "fedmmf", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200", **environment},
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def ratings_file(small, tmp_path):
    path = tmp_path / "ratings.csv"
    small.to_frame().write_csv(path)
    return path
