"""Write known answers for key files, cards and trust lists.

`python spec/vectors/generate_identity.py` prints identity.json; a test compares the two.
spec/identity.md says how to read it. Keys are fixed here and nowhere else: never use them.
"""

import json
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fedmmf.identity import Card, Identity, TrustList
from fedmmf.identity.cards import CARD_FORMAT
from fedmmf.identity.documents import (
    CARD_PURPOSE,
    LIST_PURPOSE,
    headed,
    render,
    sign_text,
    signed_text,
)

START = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
PEOPLE = [("alice", "hospital-a"), ("bob", "hospital-a"), ("carol.2", "clinic_b")]
# alice's, by `openssl pkcs8 -topk8 -iter 600000`: it has a random salt, and so stands here
ENCRYPTED = """\
-----BEGIN ENCRYPTED PRIVATE KEY-----
MIGcMFgGCSqGSIb3DQEFDTBLMCoGCSqGSIb3DQEFDDAdBAj37V7KqThvzgIDCSfA
MAwGCCqGSIb3DQIJBQAwHQYJYIZIAWUDBAEqBBAj8NGQucU/wcwVRO+/2i/ZBEBV
tNVw2B9BhWpsxVtNoThd+jivatmBTKAxKb8aax0ZTfYVY6BrGSVR3iXa6gVihNH1
J3Gk485Pf2pl749q82Sy
-----END ENCRYPTED PRIVATE KEY-----
"""
PASSPHRASE = "correct horse battery staple"  # noqa: S105


def generate():
    """Return all vectors as a dictionary."""
    lists = trust_lists()
    return {
        "keys": [key_vector(name) for name in ("issuer", "alice", "bob", "carol.2")],
        "encrypted": {"name": "alice", "pem": ENCRYPTED, "passphrase": PASSPHRASE},
        "cards": [card_vector(*person) for person in PEOPLE],
        "lists": [list_vector(found) for found in lists],
        "refused": list(refused(lists[-1])),
        "improper_keys": [key.hex() for key in improper_keys()],
    }


def identity(name):
    return Identity(sha256(name.encode()).digest())


def card(name, site):
    return Card.of(identity(name), name, site)


def key_vector(name):
    one = identity(name)
    key = Ed25519PrivateKey.from_private_bytes(one.secret)
    return {
        "name": name,
        "secret": one.secret.hex(),
        "public": one.public.hex(),
        "fingerprint": one.fingerprint,
        "pem": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
    }


def card_vector(name, site):
    made = card(name, site)
    return {"file": made.encode().decode(), "text": text_of(made), "fields": made.fields()}


def text_of(document):
    """What its signature is over, before the purpose is bound in."""
    return signed_text(json.loads(document.encode())).decode()


def trust_lists():
    """A list that is made, grows, and loses a member."""
    alice, bob, carol = (card(*person) for person in PEOPLE)
    issuer = identity("issuer")
    first = TrustList.first("cardiology", [alice, carol], issuer, now=START)
    second = first.adding([bob], issuer, most_per_site=2, now=START + timedelta(days=1))
    reason = 'laptop "lost" in Zürich \\ \U0001f697'
    return first, second, second.revoking("alice", reason, issuer, now=START + timedelta(days=2))


def list_vector(found):
    return {
        "serial": found.serial,
        "file": found.encode().decode(),
        "text": text_of(found),
        "trusted": sorted(key.hex() for key in found.trusted),
        "revoked": [one.key.hex() for one in found.revoked],
    }


# What an issuer, or whoever has its key, could sign and no reader may accept


def refused(good):
    """Lists with valid signatures of the issuer that break a rule, and cards likewise."""
    carol, bob = (one.fields() for one in good.members)
    (gone,) = (one.fields() for one in good.revoked)
    alice = card("alice", "hospital-a").fields()
    twin = Card.of(identity("dave"), "bob", "clinic_c").fields()
    wrong = {
        "a revoked key is a member": {"members": [bob, carol, alice]},
        "a member is there twice": {"members": [bob, carol, bob]},
        "two members have one name": {"members": [carol, bob, twin]},
        "a key is revoked twice": {"revoked": [gone, gone]},
        "too many of one site": {"most_per_site": 1, "members": [bob, alice], "revoked": []},
        "a member of another site than it signed": {"members": [{**bob, "site": "x"}]},
        "a member with another's signature": {
            "members": [{**bob, "signature": carol["signature"]}]
        },
        "a member with a field too many": {"members": [{**bob, "role": "admin"}]},
        "a member with a field too few": {"members": [{"name": "bob"}]},
        "a member that is a text": {"members": ["bob"]},
        "members that are no list": {"members": {}},
        "a serial of 0": {"serial": 0},
        "a serial that is true": {"serial": True},
        "a serial beyond 2^53": {"serial": 2**53},
        "a limit of 0": {"most_per_site": 0},
        "a day that does not exist": {"issued": "2026-02-30T00:00:00Z"},
        "a time in another zone": {"issued": "2026-01-31T12:00:00+01:00"},
        "a name with capitals": {"federation": "Cardiology"},
        "an empty name": {"federation": ""},
        "a name of 41 characters": {"federation": "a" * 41},
        "a reason over two lines": {"revoked": [{**gone, "reason": "a\nb"}]},
        "a reason that turns the line round": {"revoked": [{**gone, "reason": "a\u202eb"}]},
        "a reason with half a character": {"revoked": [{**gone, "reason": "\ud83d"}]},
        "a reason of nothing": {"revoked": [{**gone, "reason": ""}]},
        "another version": {"version": 2},
        "another format": {"format": CARD_FORMAT},
        "a field too many": {"comment": "hello"},
    }
    document = json.loads(good.encode())
    for why, changes in wrong.items():
        yield {"why": why, "kind": "list", "file": signed_list({**document, **changes})}
    yield {"why": "a card of a key of low order", "kind": "card", "file": weak_card()}
    yield {"why": "a card signed as a list", "kind": "card", "file": card_signed_as_a_list()}


def signed_list(document):
    signature = sign_text(identity("issuer").secret, LIST_PURPOSE, signed_text(document))
    return render({**document, "signature": signature.hex()}).decode()


def weak_card():
    """The neutral element as a key: this signature fits any text, and takes no secret."""
    key, signature = (1).to_bytes(32, "little"), (1).to_bytes(64, "little")
    fields = {"name": "eve", "site": "x", "key": key.hex(), "signature": signature.hex()}
    return render(headed(CARD_FORMAT, fields)).decode()


def card_signed_as_a_list():
    one = identity("alice")
    document = headed(CARD_FORMAT, {"name": "alice", "site": "x", "key": one.public.hex()})
    signature = sign_text(one.secret, LIST_PURPOSE, signed_text(document))
    assert signature != sign_text(one.secret, CARD_PURPOSE, signed_text(document))
    return render({**document, "signature": signature.hex()}).decode()


def improper_keys():
    """Points of low order, with either sign, and what is not written in the one way."""
    prime, sign = 2**255 - 19, 2**255
    eighth = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
    for y in (0, 1, prime - 1, eighth, prime - eighth, prime, prime + 1, 2**255 - 1):
        for bit in (0, sign):
            yield (y + bit).to_bytes(32, "little")


if __name__ == "__main__":
    print(json.dumps(generate(), indent=2))  # noqa: T201
