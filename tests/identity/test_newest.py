"""What a reader remembers, and what a party makes of it."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest

from fedmmf.aggregation.secure.messages import SecureAgreed, SecureSetup
from fedmmf.data.rated_items import RatedItems
from fedmmf.data.scales import RatingScale
from fedmmf.errors import IdentityError
from fedmmf.identity import Card, Identity, TrustList, read_newest, take_part
from fedmmf.masks.fitting import MaskPlan
from fedmmf.party import Expectation, Party, PartyData, Policy
from fedmmf.wire import (
    Adopt,
    Adopted,
    Catalogue,
    Invitation,
    Joined,
    Layout,
    Refused,
    name_of,
    parcel,
    read,
)


@pytest.fixture
def brought(tmp_path, trust_list):
    """Where lists arrive, from whomever."""
    trust_list.save(tmp_path / "trust.json")
    return tmp_path / "trust.json"


@pytest.fixture
def kept(tmp_path):
    return tmp_path / "kept.json"


def test_the_newest_list_is_kept(brought, kept, trust_list, issuer):
    assert read_newest(brought, issuer=issuer.public, kept=kept) == trust_list
    assert kept.read_bytes() == brought.read_bytes()
    after = trust_list.revoking("bob", "left", issuer)
    after.save(brought)
    for _ in range(2):
        assert read_newest(brought, issuer=issuer.public, kept=kept) == after
    assert kept.read_bytes() == brought.read_bytes()


def test_a_list_from_before_a_revocation_is_refused(brought, kept, trust_list, issuer):
    trust_list.revoking("bob", "left", issuer).save(brought)
    read_newest(brought, issuer=issuer.public, kept=kept)
    before = kept.read_bytes()
    trust_list.save(brought)
    with pytest.raises(IdentityError, match="serial of at least 2; it has 1"):
        read_newest(brought, issuer=issuer.public, kept=kept)
    assert kept.read_bytes() == before


def test_an_issuer_that_tells_two_stories_is_noticed(brought, kept, trust_list, issuer):
    """Two lists of one serial, or a revocation that is gone later."""
    second = trust_list.revoking("bob", "left", issuer)
    second.save(brought)
    read_newest(brought, issuer=issuer.public, kept=kept)
    other = trust_list.revoking("alice", "left", issuer)
    other.save(brought)
    with pytest.raises(IdentityError, match="the issuer has signed both"):
        read_newest(brought, issuer=issuer.public, kept=kept)
    trust_list.adding([], issuer, most_per_site=3).adding([], issuer, most_per_site=4).save(brought)
    with pytest.raises(IdentityError, match="everybody who was ever revoked"):
        read_newest(brought, issuer=issuer.public, kept=kept)
    assert TrustList.inspect(kept) == second


def test_another_federation_and_another_issuer_are_refused(brought, kept, cards, issuer):
    read_newest(brought, issuer=issuer.public, kept=kept)
    other = Identity.new()
    TrustList.first("oncology", [cards["bob"]], issuer).save(brought)
    with pytest.raises(IdentityError, match="for the federation cardiology; it is for oncology"):
        read_newest(brought, issuer=issuer.public, kept=kept)
    with pytest.raises(IdentityError, match=f"signed by the issuer {other.fingerprint}"):
        read_newest(brought, issuer=other.public, kept=kept)


def test_a_memory_that_was_damaged_is_not_begun_anew(brought, kept, issuer):
    read_newest(brought, issuer=issuer.public, kept=kept)
    for broken in (b"", kept.read_bytes()[:-1], kept.read_bytes().replace(b": 1,", b": 0,")):
        kept.write_bytes(broken)
        with pytest.raises(IdentityError, match=r"kept\.json"):
            read_newest(brought, issuer=issuer.public, kept=kept)
        assert kept.read_bytes() == broken


def test_a_list_that_is_refused_is_not_kept(brought, kept, issuer):
    brought.write_bytes(b"{}")
    with pytest.raises(IdentityError):
        read_newest(brought, issuer=issuer.public, kept=kept)
    assert not kept.exists()


def test_of_many_readers_at_once_none_lowers_the_serial(tmp_path, kept, trust_list, issuer):
    lists, found = [trust_list], trust_list
    for limit in range(3, 12):
        found = found.adding([], issuer, most_per_site=limit)
        lists.append(found)
    for one in lists:
        one.save(tmp_path / f"{one.serial}.json")

    def attempt(serial):
        with suppress(IdentityError):
            read_newest(tmp_path / f"{serial}.json", issuer=issuer.public, kept=kept)

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(attempt, [10, 1, 9, 2, 8, 3, 7, 4, 6, 5]))
    assert TrustList.inspect(kept).serial == 10


# A party

LAYOUT = Layout(np.array([0, 2], np.int32), np.array([3.5]), 1.0)


def party_of(policy):
    """One that has joined, among three who rate four items."""
    scale, features = RatingScale(1, 5, 1), np.zeros((4, 2))
    catalogue = Catalogue.of(range(4), scale, features)
    lists = RatedItems.of_one(np.array([0, 2, 3], np.int32))
    views = MaskPlan("mean").views(features)
    data = PartyData(catalogue, views, lists, np.array([1, 5, 4], np.float32))
    known = {"rounds": 9, "sums": "secure", "columns": 1, "minimum": 3, "min_raters": 3}
    expected = Expectation(solver="sgd", variant="", rank=2, **known)
    party = Party(data, MaskPlan("mean"), policy, expected)
    invitation = Invitation(
        bytes(16), catalogue.digest, 1.0, 5.0, 1.0, "sgd", 2, "", 9, "secure", 16.0, 16384.0, 1, 3
    )
    assert Joined.decode(party.answer(invitation.encode())).identity == policy.public_identity
    frame = LAYOUT.encode()
    said = party.answer(parcel(Adopt(name_of(frame)), frame))
    assert Adopted.decode(said) == Adopted(in_clear=False)
    return party


def setup_among(people):
    return SecureSetup(
        session=bytes(16),
        for_survey=False,
        layout=name_of(LAYOUT.encode()),
        party=0,
        n_parties=len(people),
        n_users=len(people),
        minimum=3,
        batch=1,
        left_out=np.zeros(0, np.int32),
        identities=tuple(one.public for one in people),
    )


def test_a_party_signs_with_its_file_among_those_on_the_list_and_nobody_else(
    brought, kept, trust_list, issuer, people, tmp_path
):
    people["alice"].save(tmp_path / "alice.key")
    alice = Identity.read(tmp_path / "alice.key")

    def answer(identities):
        mine = take_part(alice, brought, issuer=issuer.public, kept=kept)
        policy = Policy(identity=mine.identity, trusted=mine.trusted)
        return read(
            party_of(policy).answer(setup_among(identities).encode()), (SecureAgreed, Refused)
        )

    dave = Identity.new()
    longer = trust_list.adding([Card.of(dave, "dave", "clinic-b")], issuer)
    longer.save(brought)
    four = [*people.values(), dave]
    assert isinstance(answer(four), SecureAgreed)
    assert "1 of the identities" in answer([*four[:3], Identity.new()]).reason
    longer.revoking("bob", "left", issuer).save(brought)
    assert "1 of the identities" in answer(four).reason


def test_who_is_not_on_the_list_or_was_revoked_is_told(brought, kept, trust_list, issuer, people):
    with pytest.raises(IdentityError, match="must have this party's key"):
        take_part(Identity.new(), brought, issuer=issuer.public, kept=kept)
    trust_list.revoking("bob", "left", issuer).save(brought)
    with pytest.raises(IdentityError, match="or has revoked it"):
        take_part(people["bob"], brought, issuer=issuer.public, kept=kept)
    mine = take_part(people["carol"], brought, issuer=issuer.public, kept=kept)
    assert mine.identity == people["carol"].secret
    assert str(mine.identity) not in repr(mine)
