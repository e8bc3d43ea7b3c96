"""Cards: a public key with its owner's name, signed by that key, for the trust list's issuer."""

from dataclasses import dataclass
from pathlib import Path

from fedmmf.errors import IdentityError
from fedmmf.identity import files
from fedmmf.identity.documents import (
    CARD_PURPOSE,
    Entry,
    fingerprint,
    headed,
    is_text_signed,
    parse,
    render,
    sign_text,
    signed_text,
)
from fedmmf.identity.key_files import Identity

CARD_FORMAT = "fedmmf-card"
CARD_FIELDS = ("name", "site", "key", "signature")
CARD_BYTES = 4096


@dataclass(frozen=True)
class Card:
    """A public key with its owner's name and site, signed by that key.

    The signature shows that whoever made the card holds the secret. That name and site are true
    is for the keeper of the list to find out.
    """

    name: str
    site: str
    key: bytes
    signature: bytes

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the public key, which people compare."""
        return fingerprint(self.key)

    @classmethod
    def of(cls, identity: Identity, name: str, site: str) -> "Card":
        """Make the card of an identity."""
        fields = {"name": name, "site": site, "key": identity.public.hex()}
        text = signed_text(headed(CARD_FORMAT, fields))
        signature = sign_text(identity.secret, CARD_PURPOSE, text).hex()
        made = Entry.of({**fields, "signature": signature}, CARD_FIELDS, "the card")
        return cls.from_entry(made)

    @classmethod
    def from_entry(cls, entry: Entry) -> "Card":
        """Check fields and signature, of a card's file or of a member on a list."""
        name, site, key = entry.word("name"), entry.word("site"), entry.key("key")
        card = cls(name, site, key, entry.signature())
        text = signed_text(headed(CARD_FORMAT, card.fields()))
        if not is_text_signed(key, card.signature, CARD_PURPOSE, text):
            raise IdentityError(
                f"{entry.where}: its signature must be that of the key it names, over all of it; "
                "it is not. Ask its owner for the card as it was made"
            )
        return card

    @classmethod
    def read(cls, path: Path) -> "Card":
        """Read a card's file and check it."""
        return cls.decode(files.read(path, CARD_BYTES), str(path))

    @classmethod
    def decode(cls, data: bytes, where: str = "the card") -> "Card":
        """Check the bytes of a card's file."""
        return cls.from_entry(parse(data, CARD_FORMAT, CARD_FIELDS, where))

    def encode(self) -> bytes:
        """Return the bytes of its file."""
        return render(headed(CARD_FORMAT, self.fields()))

    def save(self, path: Path) -> None:
        """Write the card; no file is ever overwritten."""
        files.create(path, self.encode(), files.PUBLIC)

    def fields(self) -> dict[str, str]:
        """The card's fields in a trust list."""
        key, signature = self.key.hex(), self.signature.hex()
        return {"name": self.name, "site": self.site, "key": key, "signature": signature}


def enrol(path: Path, name: str, site: str, passphrase: str | None = None) -> Card:
    """Make a new key file and its card beside it; both, or neither.

    Args:
        path: of the key file; the card's is `card_beside(path)`. Nothing there is overwritten.
        name: whom the key is for: a-z 0-9 . _ - alone.
        site: where that is, likewise.
        passphrase: what the key file is encrypted with; None: it is not.
    """
    identity = Identity.new()
    card = Card.of(identity, name, site)
    identity.save(path, passphrase)
    try:
        card.save(card_beside(path))
    except BaseException:
        path.unlink()  # new, and known to nobody
        raise
    return card


def card_beside(path: Path) -> Path:
    """Path of the card that belongs to a key file."""
    return path.with_name(f"{path.name}.card")
