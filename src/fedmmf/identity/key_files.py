"""Key files: an Ed25519 secret key that only its owner may read."""

from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InternalError, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from fedmmf.errors import IdentityError, PassphraseError
from fedmmf.identity import files
from fedmmf.identity.documents import fingerprint
from fedmmf.secagg.keys import public_identity

PEM_START = b"-----BEGIN "
KEY_FILE_BYTES = 4096
SHORTEST_PASSPHRASE = 16  # PKCS #8 files get 2048 rounds of PBKDF2 from OpenSSL: length must do it
LONGEST_PASSPHRASE = 1000  # OpenSSL takes 1023 bytes


@dataclass(frozen=True, eq=False)
class Identity:
    """The secret key of a party, or of the issuer of a trust list."""

    secret: bytes = field(repr=False)  # 32 bytes; `Policy.identity` of a party
    public: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "public", public_identity(self.secret))

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the public key, which people compare."""
        return fingerprint(self.public)

    @classmethod
    def new(cls) -> "Identity":
        """Draw a new key from the operating system's random source."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    def save(self, path: Path, passphrase: str | None = None) -> None:
        """Write the key as PEM (PKCS #8) for its owner alone; no file is ever overwritten."""
        lock: KeySerializationEncryption = NoEncryption()
        if passphrase is not None:
            lock = BestAvailableEncryption(_checked(passphrase))
        key = Ed25519PrivateKey.from_private_bytes(self.secret)
        data = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock)
        files.create(path, data, files.OWNER_ONLY)

    @classmethod
    def read(cls, path: Path, passphrase: str | None = None) -> "Identity":
        """Read a key file; one that others than its owner may read is refused."""
        data = files.read(path, KEY_FILE_BYTES, secret=True)
        given = None if passphrase is None else passphrase.encode(errors="surrogateescape")
        try:
            key = load_pem_private_key(data, given)
        except TypeError:
            rule = "is encrypted; its passphrase is needed"
            if given:
                rule = "is not encrypted; read it without a passphrase"
            raise PassphraseError(f"{path} {rule}") from None
        except (ValueError, UnsupportedAlgorithm, InternalError):  # the last if OpenSSL is confused
            if given and b"ENCRYPTED" in data:
                raise PassphraseError(f"{path} does not open with this passphrase") from None
            raise IdentityError(f"{path} must be a PEM file with a private key") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise IdentityError(f"{path} must hold an Ed25519 key; it holds another kind")
        return cls(key.private_bytes_raw())


def _checked(passphrase: str) -> bytes:
    """The bytes of a passphrase that a new file may have."""
    if len(passphrase) < SHORTEST_PASSPHRASE:
        raise PassphraseError(
            f"a passphrase must have at least {SHORTEST_PASSPHRASE} characters, such as five "
            f"words drawn at random; got {len(passphrase)}"
        )
    data = passphrase.encode(errors="surrogateescape")
    if len(data) > LONGEST_PASSPHRASE:
        raise PassphraseError(f"a passphrase must have at most {LONGEST_PASSPHRASE} bytes")
    return data
