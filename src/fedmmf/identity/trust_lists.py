"""Trust lists: who may take part, signed by an issuer other than the server.

A list is made by the same code that reads one, so what breaks a rule can be neither. It only ever
grows in revocations, and its serial goes up with each change.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from fedmmf.errors import IdentityError, UnknownNameError
from fedmmf.identity import files
from fedmmf.identity.cards import CARD_FIELDS, Card
from fedmmf.identity.documents import (
    LIST_PURPOSE,
    Entry,
    fingerprint,
    headed,
    is_text_signed,
    moment,
    parse,
    render,
    sign_text,
    signed_text,
)
from fedmmf.identity.key_files import Identity

LIST_FORMAT = "fedmmf-trust-list"
LIST_FIELDS = (
    "federation", "serial", "issued", "most_per_site", "members", "revoked", "issuer", "signature",
)  # fmt: skip
REVOKED_FIELDS = ("key", "name", "site", "since", "reason")
LIST_BYTES = 16 * 2**20  # more than 40,000 members


@dataclass(frozen=True)
class Revocation:
    """A key that was removed from the list and can never return."""

    key: bytes
    name: str
    site: str
    since: str
    reason: str

    @classmethod
    def from_entry(cls, entry: Entry) -> "Revocation":
        """Read a revocation from its checked fields."""
        key, name, site = entry.key("key"), entry.word("name"), entry.word("site")
        return cls(key, name, site, entry.moment("since"), entry.text("reason"))

    def fields(self) -> dict[str, str]:
        """The revocation's fields in a trust list."""
        return {**vars(self), "key": self.key.hex()}


@dataclass(frozen=True)
class TrustList:
    """A checked list: signed by its issuer, every member proven, no rule broken."""

    federation: str  # which one it is for
    serial: int  # goes up with each change
    issued: str  # when, by the issuer's clock
    most_per_site: int  # how many members one site may have
    members: tuple[Card, ...]  # those who may take part
    revoked: tuple[Revocation, ...]  # those who may not any more, for ever
    issuer: bytes = field(repr=False)  # public key that signs the list
    signature: bytes = field(repr=False)  # the issuer's, over all of it

    @classmethod
    def read(
        cls, path: Path, *, issuer: bytes, at_least: int = 1, federation: str | None = None
    ) -> "TrustList":
        """Read a list and refuse one that is not the issuer's, or older than one seen before.

        Args:
            path: the file; whoever brought it need not be trusted.
            issuer: public key that signs the list, known from elsewhere than the file.
            at_least: the highest serial seen so far. `read_newest` remembers it.
            federation: which one it must be for, where the issuer keeps several lists.
        """
        found = cls.inspect(path)
        if found.issuer != issuer:
            raise IdentityError(
                f"{path} must be signed by the issuer {fingerprint(issuer)}; it is signed by "
                f"{fingerprint(found.issuer)}"
            )
        if federation not in (None, found.federation):
            raise IdentityError(
                f"{path} must be for the federation {federation}; it is for {found.federation}"
            )
        if found.serial < at_least:
            raise IdentityError(
                f"{path} must have a serial of at least {at_least}; it has {found.serial}: an "
                "older list, on which somebody may be who was revoked since. Get the newest one"
            )
        return found

    @classmethod
    def inspect(cls, path: Path) -> "TrustList":
        """Read a list from whatever issuer it names, for display, not for trust."""
        return cls.decode(files.read(path, LIST_BYTES), str(path))

    @classmethod
    def decode(cls, data: bytes, where: str = "the list") -> "TrustList":
        """Check what a list's file has in it, from whatever issuer it names."""
        if len(data) > LIST_BYTES:
            raise IdentityError(
                f"{where} must have at most {LIST_BYTES:,} bytes; got {len(data):,}"
            )
        entry = parse(data, LIST_FORMAT, LIST_FIELDS, where)
        issuer, signature = entry.key("issuer"), entry.signature()
        if not is_text_signed(issuer, signature, LIST_PURPOSE, signed_text(entry.values)):
            raise IdentityError(
                f"{where}: its signature must be that of its issuer, over all of it; it is not. "
                "Get the list again from its issuer"
            )
        found = cls(
            entry.word("federation"),
            entry.number("serial"),
            entry.moment("issued"),
            entry.number("most_per_site"),
            tuple(map(Card.from_entry, entry.entries("members", CARD_FIELDS))),
            tuple(map(Revocation.from_entry, entry.entries("revoked", REVOKED_FIELDS))),
            issuer,
            signature,
        )
        found._check(where)
        return found

    def _check(self, where: str) -> None:
        """Refuse a list whose entries contradict each other or are too many of one site."""
        keys: dict[bytes, str] = {}
        for gone in self.revoked:
            _add_once(keys, gone.key, f"{where}: the revoked key of {gone.name}")
            keys[gone.key] = f"it was revoked at {gone.since} and stays so; a new key is needed"
        names: dict[str, str] = {}
        for card in self.members:
            _add_once(keys, card.key, f"{where}: the key of {card.name}")
            _add_once(names, card.name, f"{where}: the name {card.name}")
        sites = Counter(card.site for card in self.members)
        for site, count in sites.most_common(1):
            if count > self.most_per_site:
                raise IdentityError(
                    f"{where}: a site may have at most {self.most_per_site} members "
                    f"(most_per_site); {site} would have {count}"
                )

    # Making one

    @classmethod
    def first(
        cls,
        federation: str,
        cards: Iterable[Card],
        issuer: Identity,
        *,
        most_per_site: int = 1,
        now: datetime | None = None,
    ) -> "TrustList":
        """Make the first list of a federation."""
        fields = {
            "federation": federation,
            "serial": 1,
            "issued": moment(now),
            "most_per_site": most_per_site,
            "members": [card.fields() for card in cards],
            "revoked": [],
        }
        return _issued(issuer, fields)

    def adding(
        self,
        cards: Sequence[Card],
        issuer: Identity,
        *,
        most_per_site: int | None = None,
        now: datetime | None = None,
    ) -> "TrustList":
        """Make the next list, with more members or another limit."""
        limit = self.most_per_site if most_per_site is None else most_per_site
        if not cards and limit == self.most_per_site:
            raise IdentityError("the list would not change: no card and no other limit was given")
        members = [card.fields() for card in (*self.members, *cards)]
        return self._next(issuer, now, members=members, most_per_site=limit)

    def revoking(
        self, who: str, reason: str, issuer: Identity, *, now: datetime | None = None
    ) -> "TrustList":
        """Make the next list, without a member, given by name or key in hex."""
        card = self._member(who)
        gone = Revocation(card.key, card.name, card.site, moment(now), reason)
        members = [one.fields() for one in self.members if one is not card]
        revoked = [one.fields() for one in (*self.revoked, gone)]
        return self._next(issuer, now, members=members, revoked=revoked)

    def _next(self, issuer: Identity, now: datetime | None, **changes: Any) -> "TrustList":
        if issuer.public != self.issuer:
            raise IdentityError(
                f"the list is kept by the issuer {fingerprint(self.issuer)} and must be signed "
                f"with that key; got {issuer.fingerprint}"
            )
        fields = self._fields() | {"serial": self.serial + 1, "issued": moment(now)} | changes
        return _issued(issuer, fields)

    def _member(self, who: str) -> Card:
        for card in self.members:
            if who in (card.name, card.key.hex()):
                return card
        for gone in self.revoked:
            if who in (gone.name, gone.key.hex()):
                raise UnknownNameError(f"{who} was revoked already, at {gone.since}")
        names = ", ".join(card.name for card in self.members[:20])
        raise UnknownNameError(
            f"there must be a member with the name or key {who!a}; members are {names}"
        )

    # What it says

    @property
    def trusted(self) -> frozenset[bytes]:
        """Public keys that may take part: `Policy.trusted` of a party."""
        return frozenset(self._sites)

    def site_of(self, key: bytes) -> str:
        """Which site a member's key belongs to."""
        if key not in self._sites:
            why = "was revoked" if key in self._gone else "is not on the list"
            raise UnknownNameError(f"the key {fingerprint(key)} {why} (serial {self.serial})")
        return self._sites[key]

    @cached_property
    def _sites(self) -> dict[bytes, str]:
        return {card.key: card.site for card in self.members}

    @cached_property
    def _gone(self) -> frozenset[bytes]:
        return frozenset(one.key for one in self.revoked)

    def encode(self) -> bytes:
        """Return the bytes of its file."""
        return render(headed(LIST_FORMAT, self._fields() | {"signature": self.signature.hex()}))

    def save(self, path: Path) -> None:
        """Write the list in the place of the one before; a failure leaves that as it was."""
        files.replace(path, self.encode())

    def _fields(self) -> dict[str, Any]:
        members, revoked = ([one.fields() for one in some] for some in (self.members, self.revoked))
        return {
            "federation": self.federation,
            "serial": self.serial,
            "issued": self.issued,
            "most_per_site": self.most_per_site,
            "members": members,
            "revoked": revoked,
            "issuer": self.issuer.hex(),
        }


def _add_once(taken: dict[Any, str], value: object, what: str) -> None:
    if value in taken:
        raise IdentityError(f"{what} must be there once: {taken[value]}")
    taken[value] = "it is there already"


def _issued(issuer: Identity, fields: dict[str, Any]) -> TrustList:
    """Sign a list and read it as everybody else will."""
    document = headed(LIST_FORMAT, {**fields, "issuer": issuer.public.hex()})
    signature = sign_text(issuer.secret, LIST_PURPOSE, signed_text(document)).hex()
    return TrustList.decode(render({**document, "signature": signature}), "the new list")


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
    """Turn a party's identity and a list, as `read_newest` reads it, into what its policy needs."""
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
