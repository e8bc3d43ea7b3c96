"""Cards: signed by the key they name, and refused if anything about them was changed."""

import json
from dataclasses import replace

import pytest

from fedmmf.errors import IdentityError
from fedmmf.identity import Card, Identity, TrustList
from fedmmf.identity.documents import render
from fedmmf.secagg import keys


@pytest.fixture
def card(cards):
    return cards["alice"]


def test_a_card_comes_back_as_it_was(card, tmp_path):
    card.save(tmp_path / "alice.card")
    assert Card.read(tmp_path / "alice.card") == card
    assert (tmp_path / "alice.card").read_bytes() == card.encode()
    with pytest.raises(IdentityError, match="never overwritten"):
        card.save(tmp_path / "alice.card")


def test_every_changed_byte_is_refused(card):
    data = card.encode()
    for position in range(len(data)):
        for change in (1, 2, 0x20, 0x80):  # other digits, capitals, bytes that are not ASCII
            broken = bytearray(data)
            broken[position] ^= change
            with pytest.raises(IdentityError):
                Card.decode(bytes(broken))


def test_every_missing_and_every_added_byte_is_refused(card):
    data = card.encode()
    for position in range(len(data) + 1):
        with pytest.raises(IdentityError):
            Card.decode(data[:position] + b" " + data[position:])
        if position < len(data):
            with pytest.raises(IdentityError):
                Card.decode(data[:position] + data[position + 1 :])
            with pytest.raises(IdentityError):
                Card.decode(data[:position])


@pytest.mark.parametrize("field", ["format", "version", "name", "site", "key", "signature"])
@pytest.mark.parametrize(
    "value", [None, True, 1, 2.0, [], {}, "", "x", "bob", "ab" * 32, "0" * 128]
)
def test_every_field_with_another_value_is_refused(card, field, value):
    document = json.loads(card.encode())
    if (field, value) == ("version", 1):
        value = 10**400
    with pytest.raises(IdentityError):
        Card.decode(render({**document, field: value}))
    del document[field]
    with pytest.raises(IdentityError):
        Card.decode(render(document))


def test_a_card_cannot_be_taken_over(card, people):
    """Another's key under one's own name, or one's own key under another's card."""
    fields = json.loads(card.encode())
    for changes in ({"name": "mallory"}, {"site": "x"}, {"key": people["bob"].public.hex()}):
        with pytest.raises(IdentityError, match="signature must be that of the key it names"):
            Card.decode(render({**fields, **changes}))


def test_a_signature_made_in_a_secure_sum_is_no_card(card, people):
    """Even if a server could choose all that is signed there."""
    text = json.dumps(
        {name: value for name, value in json.loads(card.encode()).items() if name != "signature"},
        separators=(",", ":"),
        sort_keys=True,
    ).encode()
    for purpose in (b"keys", b"survivors"):
        signature = keys.sign(people["alice"].secret, purpose, b"", text)
        fields = {**json.loads(card.encode()), "signature": signature.hex()}
        with pytest.raises(IdentityError, match="signature"):
            Card.decode(render(fields))
    signature = keys.sign(people["alice"].secret, b"identity card 1", b"", text)
    assert signature == card.signature  # the test can fail


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "must be JSON"),
        (b"null", "an object is needed"),
        (b"[" * 100_000, "must be JSON"),
        (b'{"a":' * 3000 + b"1" + b"}" * 3000, "must be JSON"),
        (b'{"format": "fedmmf-card", "format": "fedmmf-card"}', "twice"),
        (b'{"format": NaN}', "whole"),
        (b'{"format": 1e999}', "whole"),
        (b'{"format": ' + b"9" * 3999 + b"}", "format must be"),
        ('{"format": "fedmmf-cärd"}'.encode(), "must be ASCII"),
        (b'\xef\xbb\xbf{"format": "fedmmf-card"}', "must be ASCII"),
        (b'{"format": "fedmmf-trust-list"}', "format must be 'fedmmf-card'"),
        (b'{"format": "fedmmf-card", "version": 2}', "reads version 1 of fedmmf-card; got 2"),
        (b'{"format": "fedmmf-card", "version": true}', "reads version 1"),
        (b'{"format": "fedmmf-card", "version": 1}', "not written in its one form"),
        (b'{\n  "format": "fedmmf-card",\n  "version": 1\n}\n', "must have key, name, sig"),
        (b'{"format": "\\u001b[31m' + b"x" * 200 + b'"}', r"\\x1b\[31mxxx.*\.\.\.$"),
    ],
)
def test_what_is_no_card_is_refused_in_words(data, reason, tmp_path):
    with pytest.raises(IdentityError, match=reason) as caught:
        Card.decode(data)
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()
    (tmp_path / "card").write_bytes(data)
    with pytest.raises(IdentityError):
        Card.read(tmp_path / "card")


def test_a_file_that_is_too_long_is_not_read_on(tmp_path):
    (tmp_path / "card").write_bytes(b" " * 5000)
    with pytest.raises(IdentityError, match="at most 4,096 bytes"):
        Card.read(tmp_path / "card")
    with pytest.raises(IdentityError, match="must be a file"):
        Card.read(tmp_path)


@pytest.mark.parametrize("name", ["", "A", "a b", "a/b", "ä", "-a", ".a", "a" * 41, "a\n", "[red]"])
def test_names_are_the_same_however_they_are_typed(name):
    with pytest.raises(IdentityError, match="name must be 1 to 40 of a-z"):
        Card.of(Identity.new(), name, "x")
    with pytest.raises(IdentityError, match="site must be 1 to 40 of a-z"):
        Card.of(Identity.new(), "x", name)


def test_a_card_that_was_not_proven_gets_on_no_list(card, issuer):
    with pytest.raises(IdentityError, match="signature must be that of the key"):
        TrustList.first("cardiology", [replace(card, site="elsewhere")], issuer)
