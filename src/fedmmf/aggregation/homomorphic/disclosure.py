"""What homomorphic aggregation reveals, in sentences for people."""

from typing import Any

from fedmmf.aggregation.secure.disclosure import NOT_HIDDEN


def words(settings: Any) -> tuple[str, ...]:
    """Return sentences that say what the server and the keeper see."""
    return (
        "Sharing is strict: every update goes into a sum, made under homomorphic encryption. The "
        "server adds ciphertexts and has no key. One party, the keeper, decrypts the sums. The "
        "keeper must not collude with the server, and the server must hand it the sum of all.",
        NOT_HIDDEN,
    )
