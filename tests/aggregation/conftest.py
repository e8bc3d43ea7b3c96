import sys
from pathlib import Path

import pytest

from fedmmf.data.synthetic import synthetic

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def tiny():
    """Twelve users, for aggregation schemes that take their time."""
    return synthetic(12, 15, 90, min_per_user=5, seed=5)
