"""How large a site and its messages may be, checked by both sides before the first round.

A site checks before it says hello, the server when it hears it: nobody is let in and then left out
of every round.
"""

from typing import Literal

from fedmmf.secagg.policy import LARGEST_COHORT
from fedmmf.server.roster import MAX_USERS_PER_PARTY
from fedmmf.solvers.contract import UpdateShape
from fedmmf.transports.contract import MAX_MESSAGE_BYTES

PARTIES_PER_BUNDLE = 16  # so that a message of a site with many users stays some megabytes
_ENTRY_BYTES = 8  # of a number that goes up, at most: secure sums are in rings of 32 or 64 bits


def beyond_limits(n_parties: int, n_users: int, n_others: int = 0) -> str:
    """Return why a site is too large to take part; empty: it is not.

    Args:
        n_parties: of the site.
        n_users: behind them.
        n_others: parties of all other sites, as far as they are known.
    """
    if n_users > MAX_USERS_PER_PARTY * n_parties:
        return (
            f"MAX_USERS_PER_PARTY: a party has at most {MAX_USERS_PER_PARTY:,} users; "
            f"{n_users:,} users came with {n_parties:,} parties. Divide them among several sites "
            "(`fedmmf federation init --add SITE`)"
        )
    if n_parties + n_others > LARGEST_COHORT:
        among = f" beside {n_others:,} of other sites" if n_others else ""
        return (
            f"LARGEST_COHORT: a sum has at most {LARGEST_COHORT:,} parties; got {n_parties:,}"
            f'{among}. Let a site be one party for its users (party = "site")'
        )
    return ""


def too_large_messages(
    update_shape: UpdateShape, n_items: int, party: Literal["site", "user"]
) -> str:
    """Return why rounds with so many items cannot be sent; empty: they can."""
    together = 1 if party == "site" else PARTIES_PER_BUNDLE
    largest = n_items * max(
        update_shape.width * _ENTRY_BYTES * together, update_shape.broadcast_width * 4
    )
    if largest <= MAX_MESSAGE_BYTES:
        return ""
    return (
        f"MAX_MESSAGE_BYTES: a message has at most {MAX_MESSAGE_BYTES:,} bytes; a round of "
        f"{n_items:,} items with rows of {update_shape.width} columns would need {largest:,}. "
        "Use fewer factors, or a catalogue with fewer items"
    )
