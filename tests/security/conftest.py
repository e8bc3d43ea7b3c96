import sys
from pathlib import Path

import pytest

from fedmmf.data.synthetic import synthetic

for folder in ("aggregation", "secagg", "security"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))


@pytest.fixture(scope="session")
def tiny():
    """Twelve users, nearly all items rated by several of them."""
    return synthetic(12, 15, 90, min_per_user=5, seed=5)
