"""A short siege; `make fuzz` makes a long one."""

import pytest
from federations import HERE
from siege import MAX_BYTES, SLOW, besiege


@pytest.mark.parametrize("variant", HERE)
def test_wrong_messages_change_nothing(variant):
    n_thrown = 0
    while n_thrown < 30:  # one that is taken after all ends a siege early
        siege = besiege(variant, 10 if variant in SLOW else 60)
        n_thrown += siege.n_thrown
        assert siege.n_refused + siege.n_taken >= 0.5 * siege.n_thrown
        assert siege.most_bytes < MAX_BYTES
