"""Remember the newest trust list that was accepted, so that older ones are refused.

What is remembered is that list itself: it is signed, so that a damaged memory is noticed, it tells
the serial and who was revoked, and a party can start from it when no list has come.
"""

from dataclasses import dataclass, field
from pathlib import Path

from fedmmf.errors import IdentityError
from fedmmf.identity import files
from fedmmf.identity.key_files import Identity
from fedmmf.identity.signing import fingerprint
from fedmmf.identity.trust_lists import TrustList


@dataclass(frozen=True)
class Membership:
    """What a party's policy needs for signing: `Policy(identity=..., trusted=...)`."""

    identity: bytes = field(repr=False)
    trusted: frozenset[bytes] = field(repr=False)
    trust_list: TrustList


def read_newest(path: Path, *, issuer: bytes, kept: Path) -> TrustList:
    """Read a list, refuse it if a newer one was read before, and keep it.

    Args:
        path: the list; whoever brought it need not be trusted.
        issuer: public key that signs the list, known from elsewhere than the file.
        kept: where the newest list so far is; it is made at the first reading. Whoever can write
            there can make the reader forget.
    """
    with files.locked(kept):
        if not kept.exists():
            found = TrustList.read(path, issuer=issuer)
            found.save(kept)
            return found
        old = TrustList.read(kept, issuer=issuer)
        found = TrustList.read(path, issuer=issuer, at_least=old.serial, federation=old.federation)
        _require_successor(path, old, found)
        if found != old:
            found.save(kept)
        return found


def take_part(identity: Identity, path: Path, *, issuer: bytes, kept: Path) -> Membership:
    """Turn a party's identity and a list into what its policy needs.

    Args:
        identity: the party's own.
        path: the list.
        issuer: public key that signs the list, known from elsewhere than the file.
        kept: where the newest list so far is, as for `read_newest`.
    """
    found = read_newest(path, issuer=issuer, kept=kept)
    if identity.public not in found.trusted:
        raise IdentityError(
            f"{path} (serial {found.serial}) must have this party's key {identity.fingerprint}; "
            "it has not, or has revoked it. Ask its issuer"
        )
    return Membership(identity.secret, found.trusted, found)


def _require_successor(path: Path, old: TrustList, new: TrustList) -> None:
    """Refuse what an honest issuer never signs."""
    if new.serial == old.serial and new != old:
        raise IdentityError(
            f"{path} has the serial {new.serial}, as another list has that was read before: "
            "the issuer has signed both, and should be asked why"
        )
    if lost := {one.key for one in old.revoked} - {one.key for one in new.revoked}:
        raise IdentityError(
            f"{path} must name everybody who was ever revoked; the key {fingerprint(min(lost))} "
            "is missing, and its issuer should be asked why"
        )
