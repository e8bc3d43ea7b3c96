"""Key files: for their owner alone, never overwritten, and clear about what is wrong."""

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, x25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fedmmf.errors import IdentityError, PassphraseError
from fedmmf.identity import Card, Identity, card_beside, enrol
from fedmmf.secagg import public_identity

WORDS = "one two three four five"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "alice.key"


def rights(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("passphrase", [None, WORDS, "ü" * 16])
def test_a_key_comes_back_as_it_was(path, passphrase):
    made = Identity.new()
    made.save(path, passphrase)
    read = Identity.read(path, passphrase)
    assert read.secret == made.secret
    assert read.public == public_identity(made.secret)


def test_other_programs_read_the_file(path):
    made = Identity.new()
    made.save(path)
    done = subprocess.run(
        ["openssl", "pkey", "-in", path, "-pubout", "-outform", "DER"],  # noqa: S607
        capture_output=True,
        check=True,
    )
    assert done.stdout[-32:] == made.public


@pytest.mark.parametrize("umask", [0, 0o022, 0o077, 0o777])
def test_a_key_file_is_its_owners_alone_whatever_the_umask(path, umask):
    before = os.umask(umask)
    try:
        Identity.new().save(path)
    finally:
        os.umask(before)
    assert rights(path) == 0o600


def test_it_is_never_wider_even_for_a_moment(path, monkeypatch):
    """Rights are those of its creation, not of a change that comes after."""
    opened, original = {}, os.open

    def spy(name, flags, mode=0o777, **more):
        opened[str(name)] = (flags, mode)
        return original(name, flags, mode, **more)

    monkeypatch.setattr(os, "open", spy)
    Identity.new().save(path)
    flags, mode = opened[str(path)]
    assert mode == 0o600
    assert flags & os.O_EXCL
    assert flags & os.O_CREAT


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o602, 0o610, 0o777])
def test_a_file_that_others_may_use_is_refused_with_the_command_that_mends_it(path, mode):
    Identity.new().save(path)
    path.chmod(mode)
    with pytest.raises(IdentityError, match=f"chmod 600 {path}"):
        Identity.read(path)
    path.chmod(0o600)
    Identity.read(path)
    path.chmod(0o400)
    Identity.read(path)


def test_nothing_is_overwritten(path):
    path.write_text("precious")
    with pytest.raises(IdentityError, match="never overwritten"):
        Identity.new().save(path)
    assert path.read_text() == "precious"


def test_a_link_is_not_followed_to_write_a_secret_elsewhere(path, tmp_path):
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IdentityError, match="never overwritten"):
        Identity.new().save(path)
    assert not (tmp_path / "elsewhere").exists()


def test_of_many_who_make_one_file_at_once_one_succeeds(path):
    made = [Identity.new() for _ in range(16)]

    def attempt(one):
        try:
            one.save(path)
        except IdentityError:
            return None
        return one.secret

    with ThreadPoolExecutor(16) as pool:
        won = [secret for secret in pool.map(attempt, made) if secret is not None]
    assert won == [Identity.read(path).secret]


def test_a_disk_that_is_full_leaves_no_half_of_a_key(path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(IdentityError, match="No space left"):
        Identity.new().save(path)
    assert not path.exists()


def test_key_and_card_are_made_together_or_not_at_all(path):
    card_beside(path).write_text("precious")
    with pytest.raises(IdentityError, match=r"alice\.key\.card is there already"):
        enrol(path, "alice", "hospital-a")
    assert not path.exists()
    assert card_beside(path).read_text() == "precious"
    card_beside(path).unlink()
    card = enrol(path, "alice", "hospital-a")
    assert Card.read(card_beside(path)) == card
    assert Identity.read(path).public == card.key
    with pytest.raises(IdentityError, match=r"alice\.key is there already"):
        enrol(path, "alice", "hospital-a")
    assert Card.read(card_beside(path)) == card


def test_a_bad_name_leaves_no_file(path):
    with pytest.raises(IdentityError, match="name must be"):
        enrol(path, "Alice!", "hospital-a")
    assert not list(path.parent.iterdir())


# Passphrases


def test_a_passphrase_hides_the_key(path):
    made = Identity.new()
    made.save(path, WORDS)
    assert b"ENCRYPTED" in path.read_bytes()
    with pytest.raises(PassphraseError, match="is encrypted; its passphrase is needed"):
        Identity.read(path)
    with pytest.raises(PassphraseError, match="is encrypted; its passphrase is needed"):
        Identity.read(path, "")
    with pytest.raises(PassphraseError, match="does not open with this passphrase"):
        Identity.read(path, WORDS + " ")


def test_a_passphrase_for_a_file_without_one_is_noticed(path):
    Identity.new().save(path)
    with pytest.raises(PassphraseError, match="is not encrypted"):
        Identity.read(path, WORDS)


@pytest.mark.parametrize(
    ("passphrase", "reason"),
    [("", "at least 16"), ("x" * 15, "at least 16"), ("x" * 1001, "at most 1000")],
)
def test_a_passphrase_has_a_length(path, passphrase, reason):
    with pytest.raises(PassphraseError, match=reason):
        Identity.new().save(path, passphrase)
    assert not path.exists()


# What is no key file


def other_kind(key):
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "must be a PEM file with a private key"),
        (b"\xff\x00" * 100, "must be a PEM file with a private key"),
        (b"-----BEGIN PRIVATE KEY-----\nMC4C\n-----END PRIVATE KEY-----\n", "must be a PEM"),
        (
            b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nMC4C\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "PEM|open",
        ),
        (other_kind(x25519.X25519PrivateKey.generate()), "must hold an Ed25519 key"),
        (other_kind(ec.generate_private_key(ec.SECP256R1())), "must hold an Ed25519 key"),
        (b"x" * 5000, "at most 4,096 bytes"),
    ],
)
@pytest.mark.parametrize("passphrase", [None, WORDS])
def test_what_is_no_key_is_refused(path, data, reason, passphrase):
    path.touch(0o600)
    path.write_bytes(data)
    with pytest.raises(
        IdentityError, match="encrypted" if passphrase and "Ed2" in reason else reason
    ):
        Identity.read(path, passphrase)


def test_a_folder_a_pipe_and_nothing_are_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name, reason in {"pipe": "must be a file", "": "must be a file", "no": "No such"}.items():
        with pytest.raises(IdentityError, match=reason):
            Identity.read(tmp_path / name)


def test_every_broken_byte_of_a_key_file_gives_an_error_or_another_key(path):
    made = Identity.new()
    made.save(path)
    data = path.read_bytes()
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        try:
            found = Identity.read(path).secret
        except IdentityError:
            continue
        assert len(found) == 32


def test_a_secret_is_not_shown(path):
    made = Identity.new()
    assert str(made.secret) not in repr(made)
    assert made.secret.hex() not in repr(made)
    assert "secret" not in repr(made)


def test_keys_come_from_the_operating_system():
    code = "import random; random.seed(1); from fedmmf.identity import Identity; "
    code += "print(Identity.new().public.hex())"
    runs = {subprocess.check_output([sys.executable, "-c", code]) for _ in range(2)}
    assert len(runs) == 2
