"""Known answers, and the signatures checked from spec/identity.md and RFC 8032 alone."""

import json
import struct
import subprocess
import sys
from hashlib import sha256, sha512
from pathlib import Path

import pytest

from fedmmf.errors import IdentityError
from fedmmf.identity import Card, Identity, TrustList, fingerprint
from fedmmf.identity.documents import is_proper

HERE = Path(__file__).parents[2] / "spec" / "vectors"
VECTORS = json.loads((HERE / "identity.json").read_text())
ISSUER = bytes.fromhex(VECTORS["keys"][0]["public"])
CARDS = pytest.mark.parametrize("vector", VECTORS["cards"], ids=lambda one: one["fields"]["name"])
LISTS = pytest.mark.parametrize("vector", VECTORS["lists"], ids=lambda one: one["serial"])


def test_the_generator_gives_the_file():
    done = subprocess.run(
        [sys.executable, HERE / "generate_identity.py"],
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    assert done.stdout == (HERE / "identity.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("vector", VECTORS["keys"], ids=lambda one: one["name"])
def test_key_files_are_read_and_written_as_they_stand(vector, tmp_path):
    path = tmp_path / "key"
    Identity(bytes.fromhex(vector["secret"])).save(path)
    assert path.read_text() == vector["pem"]
    found = Identity.read(path)
    assert found.secret.hex() == vector["secret"]
    assert found.public.hex() == vector["public"]
    assert found.fingerprint == vector["fingerprint"]


def test_a_file_that_openssl_encrypted_is_read(tmp_path):
    vector, path = VECTORS["encrypted"], tmp_path / "key"
    path.touch(0o600)
    path.write_text(vector["pem"])
    (wanted,) = (one["public"] for one in VECTORS["keys"] if one["name"] == vector["name"])
    assert Identity.read(path, vector["passphrase"]).public.hex() == wanted


@CARDS
def test_cards_are_read_and_written_as_they_stand(vector):
    card = Card.decode(vector["file"].encode())
    assert card.fields() == vector["fields"]
    assert card.encode().decode() == vector["file"]


@LISTS
def test_lists_are_read_and_written_as_they_stand(vector, tmp_path):
    path = tmp_path / "list"
    path.write_text(vector["file"])
    found = TrustList.read(path, issuer=ISSUER, at_least=vector["serial"])
    assert sorted(key.hex() for key in found.trusted) == vector["trusted"]
    assert [one.key.hex() for one in found.revoked] == vector["revoked"]
    assert found.encode().decode() == vector["file"]


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda one: one["why"])
def test_what_breaks_a_rule_is_refused_although_it_is_signed(vector):
    kind = {"card": Card, "list": TrustList}[vector["kind"]]
    with pytest.raises(IdentityError) as caught:
        kind.decode(vector["file"].encode())
    assert "its issuer, over all of it" not in str(caught.value)


@pytest.mark.parametrize("key", VECTORS["improper_keys"])
def test_keys_that_prove_nothing_are_refused(key):
    assert not is_proper(bytes.fromhex(key))


def test_proper_keys_are_proper():
    assert all(is_proper(Identity.new().public) for _ in range(100))


# From the page: canonical JSON, what is signed, and Ed25519 itself, without any code of ours


def canonical(document):
    """Objects sorted by name, ASCII, no spaces; lists, texts and whole numbers inside."""
    if isinstance(document, dict):
        parts = (f"{canonical(key)}:{canonical(document[key])}" for key in sorted(document))
        return "{" + ",".join(parts) + "}"
    if isinstance(document, list):
        return "[" + ",".join(map(canonical, document)) + "]"
    if isinstance(document, int):
        return str(document)
    return '"' + "".join(map(escaped, document)) + '"'


def escaped(character):
    if character in '"\\':
        return "\\" + character
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def message_of(purpose, document):
    """The bytes that Ed25519 signs."""
    text = canonical({name: document[name] for name in document if name != "signature"})
    parts = (purpose.encode(), b"", text.encode())
    inner = b"".join(struct.pack("<Q", len(part)) + part for part in parts)
    return b"fedmmf secagg 1 signature" + sha256(inner).digest()


P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P


def decompress(data):
    y = int.from_bytes(data, "little") & ~(1 << 255)
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    assert x * x % P == square
    return (P - x if x % 2 != data[31] >> 7 else x), y


def add(one, other):
    (x1, y1), (x2, y2) = one, other
    product = D * x1 * x2 * y1 * y2
    x = (x1 * y2 + y1 * x2) * pow(1 + product, -1, P)
    return x % P, (y1 * y2 + x1 * x2) * pow(1 - product, -1, P) % P


def times(scalar, point):
    total = (0, 1)
    while scalar:
        total = add(total, point) if scalar & 1 else total
        point, scalar = add(point, point), scalar >> 1
    return total


def is_valid(key, signature, message):
    """RFC 8032, section 5.1.7."""
    base = decompress((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
    scalar = int.from_bytes(signature[32:], "little")
    challenge = int.from_bytes(sha512(signature[:32] + key + message).digest(), "little") % L
    right = add(decompress(signature[:32]), times(challenge, decompress(key)))
    return scalar < L and times(scalar, base) == right


def holds(document, signer, purpose, signature):
    message = message_of(purpose, document)
    return is_valid(bytes.fromhex(signer), bytes.fromhex(signature), message)


@CARDS
def test_the_page_is_enough_to_check_a_card(vector):
    card = json.loads(vector["file"])
    text = {name: card[name] for name in card if name != "signature"}
    assert canonical(text) == vector["text"]
    assert holds(card, card["key"], "identity card 1", card["signature"])
    assert not holds({**card, "site": "x"}, card["key"], "identity card 1", card["signature"])


@LISTS
def test_the_page_is_enough_to_check_a_list(vector):
    found = json.loads(vector["file"])
    text = {name: found[name] for name in found if name != "signature"}
    assert canonical(text) == vector["text"]
    assert holds(found, found["issuer"], "identity trust list 1", found["signature"])
    assert not holds(found, found["issuer"], "identity card 1", found["signature"])
    for member in found["members"]:
        card = {"format": "fedmmf-card", "version": 1, **member}
        assert holds(card, member["key"], "identity card 1", member["signature"])


def test_the_page_is_enough_for_a_fingerprint():
    for vector in VECTORS["keys"]:
        digits = sha256(bytes.fromhex(vector["public"])).hexdigest()[:32]
        assert vector["fingerprint"].replace("-", "") == digits
        assert fingerprint(bytes.fromhex(vector["public"])) == vector["fingerprint"]


def test_the_points_that_are_refused_are_those_of_low_order():
    """Eight times each is the neutral element; on a curve of cofactor 8 there are no others."""
    keys = [key for key in map(bytes.fromhex, VECTORS["improper_keys"]) if y_of(key) < P]
    points = {(x % P, y) for x, y in map(decompress, keys)}
    assert {times(8, point) for point in points} == {(0, 1)}
    assert len(points) == 8


def y_of(key):
    return int.from_bytes(key, "little") & ~(1 << 255)
