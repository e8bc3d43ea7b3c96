"""Trust lists: one issuer, one form, one way forward."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fedmmf.errors import IdentityError, UnknownNameError
from fedmmf.identity import Card, Identity, TrustList, files
from fedmmf.identity.documents import LIST_PURPOSE, render, sign_text, signed_text


@pytest.fixture
def path(tmp_path, trust_list):
    trust_list.save(tmp_path / "trust.json")
    return tmp_path / "trust.json"


@pytest.fixture
def shorter(cards, issuer):
    """One member and one revoked: every kind of entry."""
    both = TrustList.first("f", [cards["alice"], cards["carol"]], issuer)
    return both.revoking("carol", "left", issuer)


def test_a_list_comes_back_as_it_was(path, trust_list, issuer):
    assert TrustList.read(path, issuer=issuer.public) == trust_list
    assert path.read_bytes() == trust_list.encode()


def test_members_are_trusted_and_have_a_site(trust_list, people):
    assert trust_list.trusted == {one.public for one in people.values()}
    assert trust_list.site_of(people["carol"].public) == "clinic-b"
    with pytest.raises(UnknownNameError, match="is not on the list"):
        trust_list.site_of(Identity.new().public)


def test_a_list_of_another_issuer_is_refused(path, cards, issuer, trust_list):
    """Whoever brings a list can sign one, but not with the key that the reader has pinned."""
    forger = Identity.new()
    TrustList.first("cardiology", cards.values(), forger, most_per_site=2).save(path)
    with pytest.raises(IdentityError, match=f"{issuer.fingerprint}; .*{forger.fingerprint}"):
        TrustList.read(path, issuer=issuer.public)
    document = json.loads(trust_list.encode())
    path.write_bytes(render({**document, "issuer": forger.public.hex()}))
    with pytest.raises(IdentityError, match="signature must be that of its issuer"):
        TrustList.read(path, issuer=forger.public)


def test_a_list_for_another_federation_is_refused(path, issuer):
    TrustList.read(path, issuer=issuer.public, federation="cardiology")
    with pytest.raises(IdentityError, match="for the federation oncology; it is for cardiology"):
        TrustList.read(path, issuer=issuer.public, federation="oncology")


def test_every_changed_byte_is_refused(shorter):
    data = shorter.encode()
    for position in range(len(data)):
        for change in (1, 0x20, 0x80):
            broken = bytearray(data)
            broken[position] ^= change
            with pytest.raises(IdentityError):
                TrustList.decode(bytes(broken))


def test_every_missing_and_every_added_byte_is_refused(shorter):
    data = shorter.encode()
    for position in range(len(data)):
        for broken in (data[:position], data[:position] + data[position + 1 :]):
            with pytest.raises(IdentityError):
                TrustList.decode(broken)
        with pytest.raises(IdentityError):
            TrustList.decode(data[:position] + b" " + data[position:])
    with pytest.raises(IdentityError):
        TrustList.decode(data + data)


FIELDS = "format version federation serial issued most_per_site members revoked issuer signature"
MEMBER = "name site key signature"
REVOKED = "name site key since reason"
VALUES = [None, True, 0, -1, 1.5, 2**53, [], {}, [None], "", "x", "ab" * 32, "AB" * 32, "cd" * 64]


def signed(document, issuer):
    """What the issuer itself could sign: only the rules can refuse it."""
    signature = sign_text(issuer.secret, LIST_PURPOSE, signed_text(document))
    return render({**document, "signature": signature.hex()})


def places(document):
    """Every object of a list, with the names of its fields."""
    yield document, FIELDS
    yield document["members"][0], MEMBER
    yield document["revoked"][0], REVOKED


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_every_field_with_another_value_is_refused(shorter, issuer, value):
    """Without the issuer's signature always; with it wherever the value is not one of its kind."""
    fine = {"name", "site", "federation"} if value == "x" else set()
    fine |= {"reason"} if isinstance(value, str) and value else set()
    fine |= {"members", "revoked"} if value == [] else set()
    for place in range(3):
        for field in (FIELDS, MEMBER, REVOKED)[place].split():
            document = json.loads(shorter.encode())
            target = list(places(document))[place][0]
            target[field] = value
            with pytest.raises(IdentityError):
                TrustList.decode(render(document))
            is_fine = field in fine and not (place == 1 and field in MEMBER)
            is_fine |= (place, field) == (2, "key") and value == "ab" * 32
            if field != "signature" and not is_fine:
                with pytest.raises(IdentityError):
                    TrustList.decode(signed(document, issuer))


def test_every_missing_and_every_unknown_field_is_refused(shorter, issuer):
    for place in range(3):
        for field in (FIELDS, MEMBER, REVOKED)[place].split():
            document = json.loads(shorter.encode())
            target = list(places(document))[place][0]
            target["extra"] = 1
            with pytest.raises(IdentityError, match="must not have 'extra'"):
                TrustList.decode(signed(document, issuer))
            del target["extra"], target[field]
            if (place, field) == (0, "signature"):
                continue  # signing puts it back
            with pytest.raises(IdentityError, match=f"must have {field}|{field} must be|reads ver"):
                TrustList.decode(signed(document, issuer))


def test_a_file_that_is_too_long_is_refused(path, issuer, monkeypatch, trust_list, cards):
    monkeypatch.setattr("fedmmf.identity.trust_lists.LIST_BYTES", len(trust_list.encode()) - 1)
    with pytest.raises(IdentityError, match="must have at most"):
        TrustList.read(path, issuer=issuer.public)
    with pytest.raises(IdentityError, match="must have at most"):
        TrustList.first("cardiology", cards.values(), issuer, most_per_site=2)


# Serial


def test_an_older_list_is_refused(path, trust_list, issuer):
    old = path.read_bytes()
    trust_list.revoking("bob", "left", issuer).save(path)
    assert TrustList.read(path, issuer=issuer.public, at_least=2).serial == 2
    path.write_bytes(old)
    with pytest.raises(IdentityError, match="serial of at least 2; it has 1"):
        TrustList.read(path, issuer=issuer.public, at_least=2)


def test_each_change_raises_the_serial_and_tells_the_time(trust_list, issuer):
    now = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
    second = trust_list.adding([], issuer, most_per_site=5, now=now)
    third = second.revoking("alice", "left", issuer, now=now)
    assert [one.serial for one in (trust_list, second, third)] == [1, 2, 3]
    assert second.issued == third.revoked[0].since == "2031-05-06T07:08:09Z"
    with pytest.raises(IdentityError, match="would not change"):
        third.adding([], issuer)
    with pytest.raises(IdentityError, match="would not change"):
        third.adding([], issuer, most_per_site=5)


def test_only_its_issuer_changes_a_list(trust_list):
    with pytest.raises(IdentityError, match="must be signed with that key"):
        trust_list.revoking("alice", "left", Identity.new())


# Limit per site


def test_a_site_brings_no_more_identities_than_the_limit(cards, issuer):
    both = [cards["alice"], cards["bob"]]
    with pytest.raises(IdentityError, match=r"at most 1 members .*hospital-a would have 2"):
        TrustList.first("f", both, issuer)
    one = TrustList.first("f", both[:1], issuer)
    with pytest.raises(IdentityError, match="hospital-a would have 2"):
        one.adding(both[1:], issuer)
    two = one.adding(both[1:], issuer, most_per_site=2)
    with pytest.raises(IdentityError, match="hospital-a would have 2"):
        two.adding([cards["carol"]], issuer, most_per_site=1)
    for wrong in (0, -1, True, 1.0):
        with pytest.raises(IdentityError, match=r"a whole number from 1|numbers are whole"):
            TrustList.first("f", both, issuer, most_per_site=wrong)


def test_the_limit_is_kept_by_readers_too(trust_list, issuer):
    document = {**json.loads(trust_list.encode()), "most_per_site": 1}
    with pytest.raises(IdentityError, match="hospital-a would have 2"):
        TrustList.decode(signed(document, issuer))


def test_a_key_that_was_revoked_makes_room_for_another(cards, issuer):
    one = TrustList.first("f", [cards["alice"]], issuer).revoking("alice", "new key", issuer)
    again = Card.of(Identity.new(), "alice", "hospital-a")
    assert one.adding([again], issuer).trusted == {again.key}


# Members and revocations


def test_keys_and_names_are_there_once(trust_list, cards, issuer):
    for same in (cards["alice"], Card.of(Identity.new(), "alice", "x")):
        with pytest.raises(IdentityError, match="alice must be there once: it is there already"):
            trust_list.adding([same], issuer)
    new = Card.of(Identity.new(), "dora", "x")
    with pytest.raises(IdentityError, match="must be there once"):
        trust_list.adding([new, new], issuer)


@pytest.mark.parametrize("by", ["name", "key"])
def test_who_is_revoked_is_trusted_no_more_and_never_again(trust_list, cards, issuer, by):
    bob = cards["bob"]
    after = trust_list.revoking("bob" if by == "name" else bob.key.hex(), "left", issuer)
    assert after.trusted == trust_list.trusted - {bob.key}
    assert [(one.key, one.name, one.reason) for one in after.revoked] == [(bob.key, "bob", "left")]
    with pytest.raises(UnknownNameError, match="was revoked"):
        after.site_of(bob.key)
    with pytest.raises(IdentityError, match=r"revoked at .* and stays so; a new key is needed"):
        after.adding([bob], issuer)
    for again in ("bob", bob.key.hex()):
        with pytest.raises(UnknownNameError, match="revoked already"):
            after.revoking(again, "left", issuer)
    with pytest.raises(UnknownNameError, match="members are alice, carol"):
        after.revoking("nobody", "left", issuer)
    later = after.adding([Card.of(Identity.new(), "bob", "x")], issuer)
    assert later.revoked == after.revoked


def test_a_revoked_key_is_no_member_even_if_the_issuer_signs_it(shorter, cards, issuer):
    document = json.loads(shorter.encode())
    document["members"].append(cards["carol"].fields())
    with pytest.raises(IdentityError, match="stays so"):
        TrustList.decode(signed(document, issuer))


@pytest.mark.parametrize("reason", ["", " ", "a\nb", "\x1b[31m", "\u202egnp", "x" * 201, "\ud800"])
def test_a_reason_is_a_line_that_a_terminal_shows_as_it_is(trust_list, issuer, reason):
    with pytest.raises(IdentityError, match="reason must be one line") as caught:
        trust_list.revoking("bob", reason, issuer)
    assert str(caught.value).isprintable()


# Files


def test_whatever_fails_while_writing_the_list_stays_as_it_was(
    path, trust_list, issuer, monkeypatch
):
    before = path.read_bytes()
    after = trust_list.revoking("bob", "left", issuer)
    for broken in ("os.fsync", "os.fchmod", "pathlib.Path.replace"):
        with monkeypatch.context() as patch:
            patch.setattr(broken, lambda *_: (_ for _ in ()).throw(OSError(5, "disk on fire")))
            with pytest.raises(IdentityError, match="cannot be written: disk on fire"):
                after.save(path)
        assert path.read_bytes() == before
        assert [one.name for one in path.parent.iterdir()] == ["trust.json"]


def test_a_writer_that_is_killed_leaves_the_old_list(path, trust_list, issuer):
    """At the last moment before the new one takes its place."""
    before = path.read_bytes()
    code = """
import os, pathlib, sys
from fedmmf.identity import files
pathlib.Path.replace = lambda *_: os._exit(9)
files.replace(pathlib.Path(sys.argv[1]), b"half")
"""
    assert subprocess.run([sys.executable, "-c", code, path]).returncode == 9
    assert path.read_bytes() == before
    trust_list.revoking("bob", "left", issuer).save(path)
    assert TrustList.read(path, issuer=issuer.public).serial == 2


def test_a_list_is_public_and_keeps_its_rights_and_its_link(path, trust_list, tmp_path):
    assert path.stat().st_mode & 0o777 == 0o644
    path.chmod(0o664)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    trust_list.save(link)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o664


def test_where_no_list_can_be_there_is_an_error(tmp_path, trust_list):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    wrong = [tmp_path, tmp_path / "no" / "such", tmp_path / "a", Path("/"), Path("x" * 5000)]
    for path in [*wrong, Path("a\0b")]:
        with pytest.raises(IdentityError):
            trust_list.save(path)
        with pytest.raises(IdentityError):
            TrustList.inspect(path)
        with pytest.raises(IdentityError), files.locked(path):
            pass


def test_many_who_change_a_list_at_once_lose_nothing(path, issuer):
    new = [Card.of(Identity.new(), f"n{number}", f"s{number}") for number in range(12)]

    def add(card):
        with files.locked(path):
            TrustList.read(path, issuer=issuer.public).adding([card], issuer).save(path)

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(add, new))
    found = TrustList.read(path, issuer=issuer.public)
    assert found.serial == 13
    assert {card.key for card in new} < found.trusted


def test_no_descriptor_stays_open(path, issuer, tmp_path):
    def count():
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    before = count()
    for _ in range(5):
        TrustList.read(path, issuer=issuer.public).save(path)
        for wrong in (tmp_path, tmp_path / "no"):
            with pytest.raises(IdentityError):
                files.read(wrong, 10)
        with files.locked(path):
            pass
    assert count() == before
