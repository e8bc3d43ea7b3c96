"""Homomorphic sums, with real parties, real messages and real ciphertexts."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmmf import coordinator, simulation, training, wire
from fedmmf.aggregation import ckks, extra, paillier, schemes
from fedmmf.aggregation.homomorphic import BlindSum, Homomorphic, decode, hand_out
from fedmmf.aggregation.homomorphic_cost import cost
from fedmmf.aggregation.homomorphic_party import largest_sum, seal, unseal
from fedmmf.aggregation.layout import Bounds, Layout
from fedmmf.config import Settings
from fedmmf.data.synthetic import synthetic
from fedmmf.errors import DataError, SettingsError, WireError
from fedmmf.federation import make_parties
from fedmmf.secagg import BelowThresholdError
from fedmmf.transport import InProcess

for package in ("phe", "gmpy2", "tenseal"):
    pytest.importorskip(package, reason="needs the extra he: pip install 'fedmmf[he]'")

WEAK_BITS = 384  # encrypts in a moment; no key to use


def weak_paillier():
    return paillier.PaillierSecret.generate(WEAK_BITS, weak_for_tests=True)


def weak_packed():
    return paillier.PaillierSecret.generate(WEAK_BITS, packed=True, weak_for_tests=True)


every_scheme = pytest.mark.parametrize("make", [weak_paillier, weak_packed, ckks.CkksSecret])


@pytest.fixture(scope="module")
def tiny():
    return synthetic(12, 15, 90, min_per_user=5, seed=5)


def settings_of(solver):
    return Settings(mask="mean", solver=solver, factors=2, rounds=3, held_out=0.2)


class Wire(InProcess):
    """Keeps what the server sees, and loses or changes answers."""

    def __init__(self, parties):
        super().__init__(parties)
        self.seen = []
        self.lost = set()
        self.changed = {}

    def exchange(self, stage, messages, timeout):
        replies = super().exchange(stage, messages, timeout)
        self.seen += [*messages.values(), *replies.values()]
        replies |= {name: self.changed[name] for name in self.changed if name in replies}
        return {name: data for name, data in replies.items() if name not in self.lost}


def federation(ratings, settings, secret):
    parties = make_parties(ratings, settings, simulation.choose_held_out(ratings, settings))
    transport = Wire(parties)
    homomorphic = Homomorphic(transport, sorted(parties), ratings.scale.span, secret)
    hand_out(parties, homomorphic.key)
    return transport, homomorphic


def task_of(message):
    return wire.Task(len(message.public.item_rows), message.encode())


def fixed_point_sums(ratings, settings, message, parties):
    """The slow way: add the parties' fixed-point updates as integers."""
    n_items, width = message.public.item_rows.shape
    layout = Layout(n_items, width, coordinator.n_update_totals(message.solver, message.public))
    bounds = Bounds.of(message.solver, ratings.scale.span)
    codec = bounds.codec(layout, message.solver, ratings.n_users)
    total = np.zeros(layout.length, np.int64)
    for party in parties:
        update = party._take_part(message)
        total += codec.quantize(layout.pack(update.items, update.rows, update.totals))
    return layout.unpack(total / codec.scale)


@every_scheme
@pytest.mark.parametrize("solver", ["sgd", "vb"])
def test_training_ends_where_the_simulation_ends(tiny, make, solver):
    settings = settings_of(solver)
    _, homomorphic = federation(tiny, settings, make())
    homomorphic.survey(tiny.n_items, with_ratings=False)
    server = simulation.make_server(tiny, settings)
    coordinator.run(server, homomorphic)
    (member,) = training.train(tiny, settings).members
    np.testing.assert_allclose(
        server.result.item_factors, member.public.item_factors, rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(server.history, member.history, rtol=1e-4)


@pytest.mark.parametrize(
    ("make", "solver"),
    [
        (weak_paillier, "sgd"),
        (weak_packed, "sgd"),
        (weak_packed, "vb"),
        (ckks.CkksSecret, "sgd"),
    ],
)
def test_a_sum_is_exactly_the_sum_of_fixed_point_updates(tiny, make, solver):
    settings = settings_of(solver)
    _, homomorphic = federation(tiny, settings, make())
    twins = make_parties(tiny, settings, simulation.choose_held_out(tiny, settings))
    server = simulation.make_server(tiny, settings)
    for _ in range(2):
        message = server.next_message()
        sums = homomorphic.sums(message)
        expected = fixed_point_sums(tiny, settings, message, twins.values())
        assert np.array_equal(sums.rows, expected.rows)
        assert np.array_equal(sums.n_raters, expected.n_raters)
        assert np.array_equal(sums.totals, expected.totals)
        server.advance(message, sums)


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


def test_a_sum_beyond_its_own_bound_is_refused_and_noise_is_cut():
    codec = Bounds.of("vb", 4.0).codec(Layout(1, 1, 0), "vb", 5)
    reach = 5 * codec.bound
    assert np.array_equal(decode(codec, reach + 3, 3.0), reach / codec.scale)
    with pytest.raises(DataError, match="did not clip"):
        decode(codec, reach + 4, 3.0)


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
    (vector,) = ckks.read_vectors(secret._context, public.write(encrypted), ckks.SLOTS, limit)
    error = np.array(vector.decrypt()) - total
    assert error.std() == pytest.approx(ckks.noise_std(n_parties, limit), rel=0.2)
    decrypted = secret.decrypt(public.write(encrypted), ckks.SLOTS, limit)
    assert np.abs(decrypted - total).max() <= secret.largest_error(n_parties, limit)


def test_ckks_errors_are_below_a_millionth_of_a_bound_at_movielens_size():
    """Of a row, in `vb`; in `sgd` sums are exact."""
    for solver, largest in (("sgd", 0.0), ("vb", 1e-6)):
        codec = Bounds.of(solver, 4.0).codec(Layout(1, 1, 0), solver, 943)
        error = ckks.CkksSecret().largest_error(943, largest_sum(codec))
        assert error / codec.bound[0] <= largest


def test_a_survey_gives_the_item_statistics_and_leaves_rare_items_out(tiny):
    settings = settings_of("sgd").changed(held_out=0.0)
    _, homomorphic = federation(tiny, settings, weak_packed())
    sums, expected = homomorphic.survey(tiny.n_items, with_ratings=True), simulation.survey(tiny)
    assert np.array_equal(sums.n_raters, expected.n_raters)
    np.testing.assert_allclose(sums.rows, expected.rows, atol=1e-6)
    rare = expected.n_raters < homomorphic._min_raters
    sums = homomorphic.sums(simulation.make_server(tiny, settings).next_message())
    assert rare.any()
    assert np.array_equal(sums.n_raters, np.where(rare, 0, expected.n_raters))
    assert not sums.rows[rare].any()


@every_scheme
def test_who_does_not_answer_is_left_out(tiny, make):
    settings = settings_of("sgd")
    transport, homomorphic = federation(tiny, settings, make())
    transport.lost = {"000003", "000007"}
    sums = homomorphic.sums(simulation.make_server(tiny, settings).next_message())
    stayed = ~simulation.choose_held_out(tiny, settings) & ~np.isin(tiny.user_codes, [3, 7])
    expected = np.bincount(tiny.item_codes[stayed], minlength=tiny.n_items)
    assert np.array_equal(sums.n_raters, expected)
    assert len(homomorphic.survivors) == 10


def test_too_few_answers_give_no_sum(tiny):
    settings = settings_of("sgd")
    transport, homomorphic = federation(tiny, settings, weak_packed())
    transport.lost = set(homomorphic._parties[2:])
    with pytest.raises(BelowThresholdError):
        homomorphic.sums(simulation.make_server(tiny, settings).next_message())


@every_scheme
@pytest.mark.parametrize(
    ("nonsense", "rule"),
    [
        (b"nonsense" * 9, "malformed"),
        (wire.Ciphertexts(1, b"").encode(), "due"),
        (wire.Ciphertexts(1, b"\7" * 4000).encode(), "due"),
        (wire.Ciphertexts(2, b"").encode(), "round 1 are due; got 2"),
    ],
)
def test_nonsense_is_left_out_and_named(tiny, make, nonsense, rule):
    settings = settings_of("sgd")
    transport, homomorphic = federation(tiny, settings, make())
    transport.changed = {"000004": nonsense}
    homomorphic.sums(simulation.make_server(tiny, settings).next_message())
    assert rule in homomorphic.refused["000004"]
    assert "000004" not in homomorphic.survivors
    assert len(homomorphic.survivors) == 11


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
    short = public._tenseal.ckks_vector(public._context, [1.0, 2.0], ckks.scale_of(limit))
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


def test_a_message_of_another_round_is_refused(tiny):
    """Its number is bound into the box, and a party answers a round once."""
    settings = settings_of("sgd")
    transport, homomorphic = federation(tiny, settings, weak_packed())
    message = simulation.make_server(tiny, settings).next_message()
    party = transport.parties["000000"]
    sealed = seal(homomorphic.key, 1, task_of(message))
    relabelled = wire.SealedRound(message.round + 1, sealed.nonce, sealed.box)
    with pytest.raises(WireError, match="not sealed for that round"):
        party.answer(relabelled.encode())
    party.answer(sealed.encode())
    with pytest.raises(WireError, match="rounds must increase"):
        party.answer(sealed.encode())


def test_a_box_of_another_key_and_a_short_one_are_refused(tiny):
    settings = settings_of("sgd")
    _, homomorphic = federation(tiny, settings, weak_packed())
    message = simulation.make_server(tiny, settings).next_message()
    stranger = wire.HomomorphicKey("ckks", 12, 4.0, os.urandom(32), b"")
    for box in (seal(stranger, 1, task_of(message)), wire.SealedRound(1, b"n" * 12, b"short")):
        with pytest.raises(WireError, match="not sealed"):
            unseal(homomorphic.key, box)
    sealed = seal(homomorphic.key, 1, task_of(message))
    assert unseal(homomorphic.key, sealed).message == message.encode()
    assert seal(homomorphic.key, 1, task_of(message)).nonce != sealed.nonce


def test_a_party_without_a_key_refuses(tiny):
    settings = settings_of("sgd")
    _, homomorphic = federation(tiny, settings, weak_packed())
    message = simulation.make_server(tiny, settings).next_message()
    party = make_parties(tiny, settings)["000000"]
    with pytest.raises(WireError, match="needs a key first"):
        party.answer(seal(homomorphic.key, 1, task_of(message)).encode())
    with pytest.raises(WireError, match="does not answer"):
        party.answer(homomorphic.key.encode())  # a server cannot hand out keys


@every_scheme
def test_the_server_sees_ciphertexts_only(tiny, make):
    """No part of what goes down or up appears among the bytes that it relays."""
    settings = settings_of("sgd")
    transport, homomorphic = federation(tiny, settings, make())
    server = simulation.make_server(tiny, settings)
    coordinator.run(server, homomorphic)
    message = server.next_message(is_last=True)
    twins = make_parties(tiny, settings, simulation.choose_held_out(tiny, settings))
    update = twins["000000"]._take_part(simulation.make_server(tiny, settings).next_message())
    kinds = {wire.kind_of(data) for data in transport.seen}
    assert kinds == {wire.SealedRound.kind, wire.Ciphertexts.kind}
    secrets = [message.public.item_rows[0].tobytes(), update.rows[0].tobytes()]
    secrets += [update.items[:3].tobytes(), homomorphic.key.channel]
    for data in transport.seen:
        assert not any(secret in data for secret in secrets)


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


def test_the_adder_of_paillier_holds_the_modulus_alone():
    secret = weak_packed()
    blind = BlindSum(secret.name, secret.public, 1, 5, 99)
    assert vars(blind._public) == {"n": secret._key.public_key.n, "packed": True}
    assert not hasattr(blind._public, "decrypt")


def test_the_adder_of_ckks_cannot_decrypt():
    secret = ckks.CkksSecret()
    blind = BlindSum(secret.name, secret.public, 1, 5, 99)
    assert not blind._public._context.is_private()
    data = blind._public.encrypt(np.arange(5), 99)
    for name in ("a", "b", "c"):
        blind.receive(name, wire.Ciphertexts(1, data).encode())
    with pytest.raises(ValueError, match="secret_key"):
        blind._total[0].decrypt()
    assert np.array_equal(secret.decrypt(blind.total(), 5, 99), 3 * np.arange(5))


def test_a_short_key_is_refused():
    with pytest.raises(SettingsError, match="at least 2048 bits; got 1024"):
        paillier.PaillierSecret.generate(1024)


@pytest.mark.parametrize("scheme", wire.SCHEMES)
def test_schemes_are_made_by_name(scheme):
    assert schemes.generate(scheme).name == scheme


def test_an_unknown_scheme_is_refused():
    with pytest.raises(SettingsError, match="scheme must be"):
        schemes.generate("rot13")


def test_a_missing_package_is_named_with_its_extra():
    with pytest.raises(SettingsError, match=r"pip install 'fedmmf\[he\]'"):
        extra.import_extra("no_such_package")


def test_nothing_is_imported_before_it_is_needed():
    packages = ["phe", "gmpy2", "tenseal"]
    modules = "fedmmf.party, fedmmf.aggregation.homomorphic, fedmmf.aggregation.homomorphic_cost"
    code = f"import sys, {modules}; print([m for m in {packages} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@every_scheme
def test_a_cost_is_extrapolated_from_whole_ciphertexts(make):
    secret, layout = make(), Layout(500, 4, 2)
    found = cost(secret, 10, layout, "sgd", 4.0, n_measured=2)
    public = schemes.load_public(secret.name, secret.public)
    limit = largest_sum(Bounds.of("sgd", 4.0).codec(layout, "sgd", 10))
    whole = len(public.encrypt(np.zeros(layout.length, np.int64), limit))
    assert found["extrapolated"] is True
    assert found["ciphertexts"] == -(-layout.length // found["numbers_per_ciphertext"])
    assert found["up_bytes"] == pytest.approx(whole, rel=0.01)
    assert found["measured"]["error"] == 0.0
    assert min(found["party_cpu_s"], found["server_cpu_s"], found["keeper_cpu_s"]) > 0
