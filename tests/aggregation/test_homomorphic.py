"""Homomorphic sums, with real parties, real messages and real ciphertexts."""

import os
import subprocess
import sys
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from federations import federation_of, settings_of
from hypothesis import given
from hypothesis import strategies as st

from fedmmf.aggregation.contract import round_sizes
from fedmmf.aggregation.homomorphic import ckks, import_he, paillier, schemes, simulated
from fedmmf.aggregation.homomorphic.messages import (
    Ciphertexts,
    HomomorphicKey,
    Sealed,
    seal,
    unseal,
)
from fedmmf.aggregation.homomorphic.server import BlindSum
from fedmmf.aggregation.rare_items import raters_needed
from fedmmf.aggregation.vector import codec_of
from fedmmf.errors import DataError, SettingsError, WireError
from fedmmf.federation.local import make_parties
from fedmmf.secagg import BelowThresholdError
from fedmmf.simulation import prepare, train
from fedmmf.simulation.surveys import surveyed
from fedmmf.solvers import SOLVERS
from fedmmf.transports.wrappers import Faulty, Recorded
from fedmmf.wire import (
    Adopt,
    Adopted,
    Ask,
    Finish,
    Finished,
    Joined,
    Layout,
    Refused,
    Round,
    Survey,
    name_of,
    named_parcel,
    parcel,
    read,
)
from fedmmf.wire.frames import kind_of

for package in ("phe", "gmpy2", "tenseal"):
    pytest.importorskip(package, reason="needs the extra he: pip install 'fedmmf[he]'")

WEAK_BITS = 384  # encrypts in a moment; no key to use


@pytest.fixture(autouse=True)
def weak_keys(monkeypatch):
    """Let short keys pass; `strong_keys` makes parties and keepers as strict as they are."""
    monkeypatch.setattr(paillier, "MIN_BITS", WEAK_BITS)


@pytest.fixture
def strong_keys(weak_keys, monkeypatch):
    monkeypatch.setattr(paillier, "MIN_BITS", 2048)


def weak_paillier():
    return paillier.PaillierSecret.generate(WEAK_BITS)


def weak_packed():
    return paillier.PaillierSecret.generate(WEAK_BITS, packed=True)


every_scheme = pytest.mark.parametrize("make", [weak_paillier, weak_packed, ckks.CkksSecret])


def settings_for(secret, solver="sgd", **changes):
    way = "homomorphic-ckks" if secret.name == "ckks" else "homomorphic-paillier"
    return settings_of(way, solver=solver, factors=2, **changes)


def begun(ratings, secret, wrap=lambda transport: transport, **changes):
    """A federation whose parties hold the public half of this key, without a survey; its keeper."""
    federation = federation_of(ratings, settings_for(secret, **changes), wrap)
    with patch("fedmmf.aggregation.homomorphic.server.generate", lambda scheme: secret):
        keeper = federation.server.invite()
    for party in federation.parties.values():
        party.hold(keeper.handout())
    return federation, keeper


def prepared(*about, **changes):
    """The same, surveyed, with a layout that everybody has adopted."""
    federation, keeper = begun(*about, **changes)
    keeper.prepare()
    return federation, keeper


def codec(n_items=5, solver="sgd", n_users=5):
    """Of a sum in a run of that shape."""
    declared = SOLVERS[solver]
    layout = Layout(np.arange(n_items, dtype=np.int32), np.array([3.0]), 1.0)
    variant = "" if solver == "sgd" else "implicit=both profile=0 design=0 levels=0 joint=0"
    sizes = round_sizes(n_items, layout, declared.update_shape(4, variant))
    return codec_of(sizes, declared.bounds(4.0), n_users, declared.ring)


# What a sum is


@every_scheme
@pytest.mark.parametrize("solver", ["sgd", "vb"])
def test_training_ends_where_the_simulation_ends(tiny, make, solver):
    """The contract runs this with keys of full strength; here are all three schemes."""
    federation, keeper = begun(tiny, make(), solver=solver)
    keeper.prepare()
    federation.server.run()
    result, history = federation.server.coordinator.result, federation.server.coordinator.history
    (member,) = train(tiny, keeper.context.settings).members
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(result.item_factors, member.broadcast.item_factors, **close)
    np.testing.assert_allclose(history, member.history, rtol=1e-4)


@pytest.mark.parametrize(
    ("make", "solver"),
    [
        (weak_paillier, "sgd"),
        (weak_packed, "sgd"),
        (weak_packed, "vb"),
        (ckks.CkksSecret, "sgd"),
        (ckks.CkksSecret, "vb"),
    ],
)
def test_a_sum_is_exactly_the_sum_of_fixed_point_updates(tiny, make, solver):
    """The plain numpy engine adds the same integers, one user after the other."""
    federation, keeper = begun(tiny, make(), solver=solver, engine="numpy")
    keeper.prepare()
    coordinator = federation.server.coordinator
    crowd = prepare(tiny, keeper.context.settings).parties()
    for _ in range(2):
        round_ = coordinator.next_round()
        sums, expected = keeper.sums(round_), crowd.sums(round_)
        assert np.array_equal(sums.rows, expected.rows)
        assert np.array_equal(sums.n_raters, expected.n_raters)
        assert np.array_equal(sums.totals, expected.totals)
        coordinator.advance(round_, sums)


@given(st.lists(st.lists(st.integers(-99, 99), min_size=4, max_size=4), min_size=1, max_size=9))
def test_slots_do_not_carry_whatever_the_signs(vectors):
    limit = 99 * len(vectors)
    joined = sum(paillier.join(vector, paillier.slot_bits(limit)) for vector in vectors)
    assert paillier.split(joined, 4, limit) == np.sum(vectors, axis=0).tolist()


@pytest.mark.parametrize("limit", [1, 7, 8, 2**31 - 1, 2**53])
def test_slots_hold_the_largest_sums_and_not_a_bit_less(limit):
    width = paillier.slot_bits(limit)
    for extremes in ([limit, -limit, limit], [-limit, -limit, -limit], [limit, limit, limit]):
        assert paillier.split(paillier.join(extremes, width), 3, limit) == extremes
    assert 2 * limit >= 1 << (width - 1)


@pytest.mark.parametrize("make", [weak_paillier, ckks.CkksSecret])
def test_a_sum_beyond_the_limit_is_refused(make):
    secret = make()
    public = schemes.load_public(secret.name, secret.public)
    limit = 2**31 - 1
    part = public.read(public.encrypt(np.array([limit]), limit), 1, limit)
    total = public.add(public.add(part, part), part)
    with pytest.raises(DataError, match="honest parties cannot reach"):
        secret.decrypt(public.write(total), 1, limit)


@pytest.mark.parametrize("limit", [2**31 - 1, 2**53 - 1])
def test_ckks_noise_is_what_its_formula_says(limit):
    """Against a sum in integers, over the slots of one ciphertext."""
    secret, n_parties = ckks.CkksSecret(), 20
    public = ckks.CkksPublic(secret.public)
    draw, total = np.random.default_rng(1), np.zeros(ckks.SLOTS, np.int64)
    encrypted = None
    for _ in range(n_parties):
        integers = draw.integers(-limit // n_parties, limit // n_parties, ckks.SLOTS)
        part = public.read(public.encrypt(integers, limit), ckks.SLOTS, limit)
        encrypted = part if encrypted is None else public.add(encrypted, part)
        total += integers
    (vector,) = ckks.read_vectors(secret.context, public.write(encrypted), ckks.SLOTS, limit)
    error = np.array(vector.decrypt()) - total
    assert error.std() == pytest.approx(ckks.noise_std(n_parties, limit), rel=0.2)
    decrypted = secret.decrypt(public.write(encrypted), ckks.SLOTS, limit)
    assert np.abs(decrypted - total).max() <= secret.largest_error(n_parties, limit)


@pytest.mark.parametrize("solver", ["sgd", "vb"])
@pytest.mark.parametrize("n_users", [943, 6040, 100_000])
def test_ckks_sums_of_both_solvers_are_exact(solver, n_users):
    """No noise is left in what the parties are sent."""
    made = codec(solver=solver, n_users=n_users)
    assert ckks.CkksSecret().largest_error(n_users, made.largest) == 0.0


def test_a_survey_gives_the_item_statistics_and_leaves_rare_items_out(tiny):
    """Of rare items it gives neither ratings nor counts, and rounds nothing at all."""
    federation, keeper = begun(tiny, weak_packed(), held_out=0.0, item_statistics=True)
    settings, counts = keeper.context.settings, np.diff(tiny.by_item.indptr)
    keeper.prepare()
    sums, expected = keeper.survey_ratings(), surveyed(tiny, settings)
    assert np.array_equal(sums.n_raters, expected.n_raters)
    np.testing.assert_allclose(sums.rows, expected.rows, atol=1e-6)
    rare = counts < raters_needed(settings.min_raters)
    assert 0 < rare.sum() < len(rare)
    assert expected.rows[~rare].any()
    assert np.array_equal(sums.n_raters, np.where(rare, 0, counts))
    assert not sums.rows[rare].any()
    assert np.array_equal(keeper.layout.items, np.flatnonzero(~rare))
    found = keeper.sums(federation.server.coordinator.next_round())
    assert np.array_equal(found.n_raters, counts[~rare])


def test_a_survey_without_ratings_gives_the_counts_alone(tiny):
    _, keeper = begun(tiny, weak_packed(), held_out=0.0)
    sums, counts = keeper.sum("survey", Survey(False)), np.diff(tiny.by_item.indptr)
    assert np.array_equal(sums.n_raters, counts)
    assert np.array_equal(sums.rows, counts[:, np.newaxis])


def test_a_party_lets_no_ratings_into_a_survey_without_its_owners_say(tiny):
    federation, keeper = prepared(tiny, weak_packed(), held_out=0.0)
    with pytest.raises(BelowThresholdError, match="0 parties answered"):
        keeper.survey_ratings()
    (reason,) = set(federation.server.roster.refused.values())
    assert "owner lets no ratings out" in reason


# Who is in it


def losing(stage, names):
    return lambda where, name, data: None if where == stage and name in names else data


def twin_rows(ratings, settings, layout, round_):
    """What each party adds, in floating point. (n_parties, n_items, width)."""
    run = prepare(ratings, settings)
    parties = make_parties(ratings, settings, run.is_held_out, run.features.statistics)
    rows = np.zeros((len(parties), *round_.item_rows.shape))
    for number, party in enumerate(parties.values()):
        read(party.answer(run.plan.invitation().encode()), (Joined,))
        party.run._take_layout(layout)  # past the keeper, whose key it has not
        part = party.run.contribute(round_, None, None, n_parties=1)
        rows[number, part.items] = part.rows
    return rows


@every_scheme
def test_who_does_not_answer_is_left_out(tiny, make):
    lost = losing("round", ("000003", "000007"))
    federation, keeper = prepared(tiny, make(), lambda inner: Faulty(inner, up=lost), min_raters=2)
    round_ = federation.server.coordinator.next_round()
    sums = keeper.sums(round_)
    assert set(federation.parties) - set(keeper.survivors) == {"000003", "000007"}
    rows = twin_rows(tiny, keeper.context.settings, keeper.layout, round_)
    assert np.abs(rows[[3, 7]]).max(axis=(1, 2)).min() > 0.01  # with them it would be another sum
    others = np.delete(rows, [3, 7], axis=0).sum(axis=0)
    np.testing.assert_allclose(sums.rows, others, atol=1e-4)


def rated_by(ratings, item, n_raters):
    """The same ratings, but only so many users have rated an item; and who they are."""
    users = ratings.user_codes[ratings.item_codes == item][:n_raters]
    assert len(users) == n_raters
    return ratings.select((ratings.item_codes != item) | np.isin(ratings.user_codes, users)), users


@pytest.mark.parametrize("min_raters", [1, 3])
def test_an_item_whose_only_rater_missed_the_survey_is_not_summed_when_it_returns(tiny, min_raters):
    item = int(np.argmax(np.diff(tiny.by_item.indptr)))
    ratings, (user,) = rated_by(tiny, item, 1)
    lost = losing("survey", (f"{user:06}",))
    federation, keeper = begun(
        ratings, weak_packed(), lambda inner: Faulty(inner, up=lost),
        held_out=0.0, min_raters=min_raters,
    )  # fmt: skip
    keeper.prepare()
    assert keeper.n_raters[item] == 0
    keeper.sums(federation.server.coordinator.next_round())
    assert f"{user:06}" in keeper.survivors
    assert item not in keeper.layout.items
    assert item in federation.parties[f"{user:06}"].users.lists.items  # it is not said at all


def test_two_of_three_raters_that_drop_out_do_not_show_the_third(tiny):
    item = int(np.argmax(np.diff(tiny.by_item.indptr)))
    ratings, users = rated_by(tiny, item, 3)
    lost = losing("round", {f"{user:06}" for user in users[:2]})
    federation, keeper = begun(
        ratings, weak_packed(), lambda inner: Faulty(inner, up=lost), held_out=0.0
    )
    keeper.prepare()
    assert keeper.n_raters[item] == 3
    keeper.sums(federation.server.coordinator.next_round())
    assert len(keeper.survivors) == 10
    assert item not in keeper.layout.items
    assert item in federation.parties[f"{users[2]:06}"].users.lists.items


def test_too_few_answers_give_no_sum(tiny):
    def only_two(stage, name, data):
        return data if stage != "round" or int(name) < 2 else None

    federation, keeper = prepared(tiny, weak_packed(), lambda inner: Faulty(inner, up=only_two))
    with pytest.raises(BelowThresholdError, match="2 parties answered, at least 3"):
        keeper.sums(federation.server.coordinator.next_round())


@every_scheme
@pytest.mark.parametrize(
    ("nonsense", "rule"),
    [
        (b"nonsense" * 9, "malformed"),
        (Ciphertexts(1, b"").encode(), "due"),
        (Ciphertexts(1, b"\7" * 4000).encode(), "due"),
        (Ciphertexts(2, b"").encode(), "round 1 are due; got 2"),
        (Refused("not today").encode(), "refused: not today"),
    ],
)
def test_nonsense_is_left_out_and_named(tiny, make, nonsense, rule):
    def changed(stage, name, data):
        return nonsense if (stage, name) == ("round", "000004") else data

    federation, keeper = prepared(tiny, make(), lambda inner: Faulty(inner, up=changed))
    keeper.sums(federation.server.coordinator.next_round())
    assert rule in federation.server.roster.refused["000004"]
    assert "000004" not in keeper.survivors
    assert len(keeper.survivors) == 11


def test_numbers_that_are_no_paillier_ciphertexts_are_refused():
    public = schemes.load_public("paillier", weak_paillier().public)
    good = public.read(public.encrypt(np.arange(3), 99), 3, 99)
    for bad in (0, public.n, public.n**2 - public.n, public.n**2 + 1):
        with pytest.raises(WireError, match="not invertible"):
            public.read(public.write([*good[:2], bad]), 3, 99)


def test_ciphertexts_of_another_scale_or_shape_are_no_ckks_ciphertexts():
    public = ckks.CkksPublic(ckks.CkksSecret().public)
    limit = 2**31 - 1
    with pytest.raises(WireError, match="another shape or scale"):
        public.read(public.encrypt(np.arange(3), 2**20), 3, limit)
    short = import_he("tenseal").ckks_vector(public.context, [1.0, 2.0], ckks.scale_of(limit))
    with pytest.raises(WireError, match="another shape or scale"):
        public.read(public.write([short]), 3, limit)


def test_damaged_ckks_ciphertexts_are_refused_or_read_without_a_crash():
    public = ckks.CkksPublic(ckks.CkksSecret().public)
    good = bytearray(public.encrypt(np.arange(3), 99))
    draw = np.random.default_rng(2)
    n_refused = 0
    for at in (*range(60), *draw.integers(0, len(good), 20)):
        damaged = good.copy()
        damaged[at] ^= int(draw.integers(1, 256))
        try:
            public.read(bytes(damaged), 3, 99)
        except WireError:
            n_refused += 1
    assert n_refused > 20


# Keys


def joined(ratings, secret):
    """A party that has joined, and holds no key yet."""
    settings = settings_for(secret)
    run = prepare(ratings, settings)
    party = make_parties(ratings, settings, run.is_held_out, run.features.statistics)["000000"]
    read(party.answer(run.plan.invitation().encode()), (Joined,))
    return party


def key_of(secret, **changes):
    key = HomomorphicKey(secret.name, 12, b"c" * 32, secret.public)
    return replace(key, **changes).encode()


@every_scheme
def test_a_key_that_cannot_encrypt_is_refused_when_it_is_handed_out(tiny, make):
    secret = make()
    party, good = joined(tiny, secret), secret.public
    wrong = {
        "scheme must be paillier, paillier-packed or ckks; got 'rot13'": {"scheme": "rot13"},
        "got ''": {"scheme": ""},
        "users are summed": {"n_users": 0},
    }
    for reason, changes in wrong.items():
        with pytest.raises(WireError, match=reason):
            party.hold(key_of(secret, **changes))
    for public in (b"", b"garbage", bytes(len(good)), b"\xff" * 40, good[: len(good) // 2]):
        with pytest.raises(WireError, match=r"cannot be read|odd and has at least"):
            party.hold(key_of(secret, public=public))
    with pytest.raises(WireError, match="malformed"):
        party.hold(key_of(secret)[:-1])
    with pytest.raises(WireError, match="needs the keeper's key first"):
        party.run.side.read(b"")  # none of them was taken
    party.hold(key_of(secret))


def test_a_key_of_another_scheme_is_refused_when_it_is_handed_out(tiny):
    party = joined(tiny, weak_packed())
    for scheme, secret in (("ckks", weak_packed()), ("paillier", Even())):
        with pytest.raises(WireError, match=r"cannot be read|odd"):
            party.hold(key_of(secret, scheme=scheme))


class Even:
    """A modulus that two primes cannot have."""

    name, public = "paillier", (1 << WEAK_BITS).to_bytes(49, "little")


def test_a_party_encrypts_under_no_short_key(tiny, strong_keys):
    secret = paillier.PaillierSecret(short_key(), packed=True)
    with pytest.raises(WireError, match=f"at least 2048 bits; got {WEAK_BITS} bits"):
        joined(tiny, secret).hold(key_of(secret))


def short_key():
    return import_he("phe").generate_paillier_keypair(n_length=WEAK_BITS)[1]


def context_of(**changes):
    """A CKKS context in bytes, with other parameters than ours."""
    tenseal = import_he("tenseal")
    given = {"poly_modulus_degree": 4096, "coeff_mod_bit_sizes": [60, 40], **changes}
    scheme = given.pop("scheme", tenseal.SCHEME_TYPE.CKKS)
    private = given.pop("save_secret_key", False)
    context = tenseal.context(scheme, n_threads=1, **given)
    options = {"save_galois_keys": False, "save_relin_keys": False}
    return bytes(context.serialize(save_secret_key=private, **options))


def test_a_ckks_key_with_other_parameters_is_refused(tiny):
    secret = ckks.CkksSecret()
    party, bfv = joined(tiny, secret), import_he("tenseal").SCHEME_TYPE.BFV
    wrong = [
        {"poly_modulus_degree": 8192},
        {"coeff_mod_bit_sizes": [40, 40]},
        {"scheme": bfv, "plain_modulus": 1032193, "coeff_mod_bit_sizes": []},
        {"save_secret_key": True},
    ]
    for changes in wrong:
        with pytest.raises(WireError, match="other parameters than the ones due, or is a secret"):
            party.hold(key_of(secret, public=context_of(**changes)))
    party.hold(key_of(secret, public=context_of()))


def test_damaged_ckks_keys_are_refused_or_read_without_a_crash():
    good = bytearray(ckks.CkksSecret().public)
    draw, n_refused = np.random.default_rng(2), 0
    for at in (*range(60), *draw.integers(0, len(good), 20)):
        damaged = good.copy()
        damaged[at] ^= int(draw.integers(1, 256))
        try:
            ckks.CkksPublic(bytes(damaged))
        except WireError:
            n_refused += 1
    assert n_refused > 20


def test_who_has_not_joined_takes_no_key(tiny):
    secret = weak_packed()
    run = prepare(tiny, settings_for(secret))
    party = make_parties(tiny, run.settings, run.is_held_out, run.features.statistics)["000000"]
    with pytest.raises(WireError, match="not joined"):
        party.hold(key_of(secret))


@pytest.mark.parametrize("variant", ["plain", "secure", "adaptive"])
def test_other_ways_have_no_secret_to_hold(tiny, variant):
    run = prepare(tiny, settings_of(variant))
    party = make_parties(tiny, run.settings, run.is_held_out, run.features.statistics)["000000"]
    party.answer(run.plan.invitation().encode())
    with pytest.raises(WireError, match="no secret"):
        party.hold(key_of(weak_packed()))


def test_a_party_without_a_key_refuses(tiny):
    federation, keeper = prepared(tiny, weak_packed())
    frame = sealed(keeper, federation.server.coordinator.next_round())
    party = joined(tiny, keeper.secret)
    assert "needs the keeper's key first" in said(party, frame).reason
    answer = read(party.answer(keeper.handout()), (Refused,))  # a server cannot hand out keys
    assert "kind 16 is not for here" in answer.reason
    party.answer(parcel(Ask(name_of(keeper.handout())), keeper.handout()))
    assert "needs the keeper's key first" in said(party, frame).reason


def test_a_short_key_is_refused(strong_keys):
    with pytest.raises(SettingsError, match="at least 2048 bits; got 1024"):
        paillier.PaillierSecret.generate(1024)


@pytest.mark.parametrize("scheme", ["paillier", "paillier-packed", "ckks"])
def test_schemes_are_made_by_name(scheme, strong_keys):
    secret = schemes.generate(scheme)
    assert secret.name == scheme
    schemes.load_public(scheme, secret.public)


def test_an_unknown_scheme_is_refused():
    with pytest.raises(SettingsError, match="scheme must be"):
        schemes.generate("rot13")
    with pytest.raises(WireError, match="scheme must be"):
        schemes.load_public("rot13", weak_paillier().public)


# Sealed rounds


def sealed(keeper, work, number=None):
    """A broadcast, as the keeper makes it; under another number, if one is given."""
    own = work.round if isinstance(work, Round) else 0
    return seal(keeper.key, own if number is None else number, work.encode()).encode()


def said(party, frame):
    """What a party says to a broadcast."""
    return read(party.answer(parcel(Ask(name_of(frame)), frame)), (Ciphertexts, Refused))


def test_a_message_of_another_round_is_refused(tiny):
    """Its number is bound into the box, and a party answers a round once."""
    federation, keeper = prepared(tiny, weak_packed())
    party, round_ = federation.parties["000000"], federation.server.coordinator.next_round()
    box = Sealed.decode(sealed(keeper, round_))
    relabelled = replace(box, round=2).encode()
    assert "not sealed for that round" in said(party, relabelled).reason
    under_another = sealed(keeper, round_, number=2)
    assert "box of round 2 holds another round" in said(party, under_another).reason
    assert isinstance(said(party, box.encode()), Ciphertexts)
    again = sealed(keeper, round_)  # the same round in another box: another message
    assert "rounds must increase" in said(party, again).reason


def test_a_box_replayed_is_refused(tiny):
    """Rounds that are over, and the survey after them, whatever the order."""
    federation, keeper = begun(tiny, weak_packed(), Recorded)
    keeper.prepare()
    coordinator = federation.server.coordinator
    for _ in range(2):
        round_ = coordinator.next_round()
        coordinator.advance(round_, keeper.sums(round_))
    party, recorded = federation.parties["000000"], federation.transport.inner
    factors = party.user_factors.copy()
    old = [seen for seen in recorded.seen if seen.stage in ("survey", "round")]
    assert len(old) == 4
    old += [seen for seen in recorded.seen if seen.stage == "layout"]
    for seen in (*old, *reversed(old)):
        answer = party.answer(seen.sent["000000"])
        is_cached = answer == seen.received["000000"]  # a network repeats messages
        assert is_cached or read(answer, (Refused,)).reason  # the same layout changes nothing
    assert np.array_equal(party.user_factors, factors)
    keeper.sums(coordinator.next_round())
    assert "000000" in keeper.survivors


def test_the_latest_box_alone_is_open(tiny):
    """Two broadcasts are held, and the earlier one is over."""
    federation, keeper = prepared(tiny, weak_packed())
    party, round_ = federation.parties["000000"], federation.server.coordinator.next_round()
    first, second = (sealed(keeper, replace(round_, round=n)) for n in (1, 2))
    party.run.take(name_of(first), first)
    party.run.take(name_of(second), second)
    answer = read(party.answer(Ask(name_of(first)).encode()), (Refused, Ciphertexts))
    assert "that round is over" in answer.reason


def test_a_box_of_another_key_and_a_short_one_are_refused(tiny):
    federation, keeper = prepared(tiny, weak_packed())
    frame = federation.server.coordinator.next_round().encode()
    default_user = HomomorphicKey("ckks", 12, os.urandom(32), b"")
    other_public = replace(keeper.key, public=b"another")
    boxes = [
        seal(default_user, 1, frame),
        seal(other_public, 1, frame),
        Sealed(1, b"n" * 12, b"short"),
    ]
    for box in boxes:
        with pytest.raises(WireError, match="not sealed"):
            unseal(keeper.key, box)
    box = seal(keeper.key, 1, frame)
    assert unseal(keeper.key, box) == frame
    assert seal(keeper.key, 1, frame).nonce != box.nonce


def adopted(party, frame):
    """What a party says to a box with a layout."""
    return read(party.answer(parcel(Adopt(name_of(frame)), frame)), (Adopted, Refused))


def test_a_layout_comes_sealed_and_a_server_cannot_publish_one_of_its_own(tiny):
    federation, keeper = begun(tiny, weak_packed())
    party = federation.parties["000000"]
    layout = Layout(np.arange(4, dtype=np.int32), np.array([3.5]), 1.0)
    assert "kind 18 is due; got 20" in adopted(party, layout.encode()).reason
    relabelled = sealed(keeper, layout, number=1)
    assert "box of round 1 holds another round" in adopted(party, relabelled).reason
    beyond = replace(layout, items=np.array([0, tiny.n_items], np.int32))
    assert "items must increase" in adopted(party, sealed(keeper, beyond)).reason
    assert "a layout is nothing to sum" in said(party, sealed(keeper, layout)).reason
    assert isinstance(adopted(party, sealed(keeper, layout)), Adopted)
    assert isinstance(adopted(party, sealed(keeper, layout)), Adopted)  # another box, one layout
    other = replace(layout, line=np.array([3.25]))
    assert "has adopted another layout" in adopted(party, sealed(keeper, other)).reason


def test_a_server_cannot_publish_rounds_of_its_own(tiny):
    """In the clear, they are not read; and so the end of training."""
    federation, keeper = prepared(tiny, weak_packed())
    party, coordinator = federation.parties["000000"], federation.server.coordinator
    frame = coordinator.next_round().encode()
    assert "kind 18 is due; got 6" in said(party, frame).reason
    last = coordinator.next_round(is_last=True).encode()
    answer = read(party.answer(parcel(Finish(name_of(last)), last)), (Finished, Refused))
    assert "kind 18 is due" in answer.reason
    boxed = sealed(keeper, coordinator.next_round(is_last=True))
    answer = party.answer(parcel(Finish(name_of(boxed)), boxed))
    assert isinstance(read(answer, (Finished, Refused)), Finished)


# What the server sees


@every_scheme
def test_the_server_sees_ciphertexts_only(tiny, make):
    """No part of what goes down or up appears among the bytes that it relays."""
    federation, keeper = begun(tiny, make(), Recorded)
    keeper.prepare()
    summed = int(np.argmax(keeper.known_raters()))
    first = federation.server.coordinator.next_round()
    federation.server.run()
    last = federation.server.coordinator.next_round(is_last=True)
    settings = keeper.context.settings
    own = twin_rows(tiny, settings, keeper.layout, first)[0]
    items = np.flatnonzero(own.any(axis=1)).astype(np.int32)
    codes = keeper.layout.items[summed]
    secrets = [first.item_rows[summed].tobytes(), last.item_rows[codes].tobytes()]
    secrets += [keeper.key.channel, keeper.layout.items[:3].tobytes()]
    secrets += [own[items[0]].astype(np.float32).tobytes(), items[:3].tobytes()]
    kinds = set()
    for seen in federation.transport.inner.seen:
        if seen.stage == "invite":
            continue
        for data in seen.sent.values():
            broadcasts, message = named_parcel(data)
            kinds |= {kind_of(frame) for frame in broadcasts.values()} | {kind_of(message)}
        kinds |= {kind_of(data) for data in seen.received.values()}
        for data in (*seen.sent.values(), *seen.received.values()):
            assert not any(secret in data for secret in secrets)
    due = (Ask, Sealed, Ciphertexts, Adopt, Adopted, Finish, Finished)
    assert kinds == {kind.kind for kind in due}
    assert any(secret in first.encode() for secret in secrets)  # in the clear they would show


@every_scheme
def test_equal_updates_have_different_ciphertexts(make):
    secret = make()
    public = schemes.load_public(secret.name, secret.public)
    ciphertexts = {public.encrypt(np.zeros(1, np.int64), 99) for _ in range(5)}
    assert len(ciphertexts) == 5


def test_a_paillier_ciphertext_is_blinded():
    """Without its blinding factor r^n a ciphertext (1 + n)^m r^n would be 1 modulo n."""
    public = schemes.load_public("paillier", weak_paillier().public)
    for ciphertext in public.read(public.encrypt(np.arange(-3, 3), 99), 6, 99):
        assert ciphertext % public.n != 1


def blind_sum(secret, made):
    key = HomomorphicKey(secret.name, made.n_users, bytes(32), secret.public)
    return BlindSum(key, 1, made)


def test_the_adder_of_paillier_holds_the_modulus_alone():
    secret = weak_packed()
    blind = blind_sum(secret, codec())
    assert vars(blind.public) == {"n": secret._key.public_key.n, "packed": True}
    assert not hasattr(blind.public, "decrypt")


def test_the_adder_of_ckks_cannot_decrypt():
    secret, made = ckks.CkksSecret(), codec()
    blind, limit = blind_sum(secret, made), made.largest
    assert not blind.public.context.is_private()
    values = np.arange(made.length)
    data = blind.public.encrypt(values, limit)
    for name in ("a", "b", "c"):
        blind.receive(name, Ciphertexts(1, data))
    with pytest.raises(ValueError, match="secret_key"):
        blind._total[0].decrypt()
    assert np.array_equal(secret.decrypt(blind.total(), made.length, limit), 3 * values)


@every_scheme
def test_a_blind_sum_takes_what_is_due_and_gives_nothing_of_two(make):
    secret, made = make(), codec()
    blind = blind_sum(secret, made)
    with pytest.raises(BelowThresholdError, match="0 parties answered"):
        blind.total()
    data = blind.public.encrypt(np.ones(made.length, np.int64), made.largest)
    for name in ("a", "b"):
        blind.receive(name, Ciphertexts(1, data))
    for bad in (Ciphertexts(2, data), Ciphertexts(1, data[:-1]), Ciphertexts(1, data + b"?")):
        with pytest.raises(WireError, match="due"):
            blind.receive("c", bad)
    assert blind.added == ["a", "b"]
    with pytest.raises(BelowThresholdError, match="2 parties answered"):
        blind.total()
    blind.receive("c", Ciphertexts(1, data))
    total = secret.decrypt(blind.total(), made.length, made.largest)
    assert np.array_equal(total, np.full(made.length, 3))


@every_scheme
def test_a_party_is_in_a_sum_once(make):
    """Twice would make one update of three parties weigh two thirds, and two parties three."""
    secret, made = make(), codec()
    blind = blind_sum(secret, made)
    one = blind.public.encrypt(np.ones(made.length, np.int64), made.largest)
    again = blind.public.encrypt(np.ones(made.length, np.int64), made.largest)
    for name in ("a", "b"):
        blind.receive(name, Ciphertexts(1, one))
    for data in (one, again):
        with pytest.raises(WireError, match="a is in the sum already"):
            blind.receive("a", Ciphertexts(1, data))
    assert blind.added == ["a", "b"]
    with pytest.raises(BelowThresholdError, match="2 parties answered"):
        blind.total()
    blind.receive("c", Ciphertexts(1, one))
    total = secret.decrypt(blind.total(), made.length, made.largest)
    assert np.array_equal(total, np.full(made.length, 3))


# Packages and costs


def test_a_missing_package_is_named_with_its_extra():
    with pytest.raises(SettingsError, match=r"pip install 'fedmmf\[he\]'"):
        import_he("no_such_package")


def test_nothing_is_imported_before_it_is_needed():
    packages = ["phe", "gmpy2", "tenseal"]
    modules = [
        "fedmmf.party",
        "fedmmf.aggregation.homomorphic.party",
        "fedmmf.aggregation.homomorphic.server",
        "fedmmf.aggregation.homomorphic.simulated",
    ]
    code = f"import sys, {', '.join(modules)}; print([m for m in {packages} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@every_scheme
def test_a_cost_is_extrapolated_from_whole_ciphertexts(make):
    secret, made = make(), codec(n_items=500, n_users=10)
    found = simulated.measure(secret, made, n_measured=2)
    public = schemes.load_public(secret.name, secret.public)
    whole = len(public.encrypt(np.zeros(made.length, np.int64), made.largest))
    assert found.n_ciphertexts == -(-made.length // public.slots(made.largest))
    assert found.times * found.n_bytes == pytest.approx(whole, rel=0.01)
    assert found.error == 0.0
    assert min(found.encrypt_s, found.add_s, found.decrypt_s) > 0
