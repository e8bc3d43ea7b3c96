"""A short siege; `make fuzz` makes a long one."""

import pytest
from federations import HERE
from siege import MOST_BYTES, SLOW, besiege


@pytest.mark.parametrize("variant", HERE)
def test_wrong_messages_change_nothing(variant):
    siege = besiege(variant, 10 if variant in SLOW else 60)
    assert siege.n_thrown > 20
    assert siege.n_refused > 0.5 * siege.n_thrown
    assert siege.most_bytes < MOST_BYTES
