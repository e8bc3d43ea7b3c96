"""Rings, masks, fixed point, shares and keys, each against an obvious version of itself."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import entropy_from, is_prime, slow_secret

from fedmmf.errors import DataError, SettingsError
from fedmmf.secagg import PRIME61, RING32, RING64, FixedPoint, keys, prg, ring_named, shamir
from fedmmf.secagg.keys import End, KeyPair

RINGS = [RING32, RING64, PRIME61]
QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck)}
ring_ids = pytest.mark.parametrize("ring", RINGS, ids=lambda ring: ring.name)


def elements(ring, integers):
    return np.array([i % ring.modulus for i in integers], ring.dtype)


@ring_ids
@settings(max_examples=50, **QUIET)
@given(pairs=st.lists(st.tuples(*[st.integers(0, 2**64 - 1)] * 2), min_size=1))
def test_a_ring_computes_what_integers_do(ring, pairs):
    a, b = (elements(ring, column) for column in zip(*pairs, strict=True))
    total = a.copy()
    ring.add_into(total, b)
    assert total.tolist() == [(int(x) + int(y)) % ring.modulus for x, y in zip(a, b, strict=True)]
    ring.subtract_into(total, b)
    assert np.array_equal(total, a)
    ring.subtract_into(total, a)
    assert not total.any()


@ring_ids
def test_the_centred_lift_is_the_inverse_of_lowering(ring):
    edge = ring.largest
    integers = np.array([0, 1, -1, edge, -edge, 12345, -98765], np.int64)
    assert np.array_equal(ring.lift(ring.lower(integers)), integers)
    with pytest.raises(DataError, match="shape"):
        ring.checked(ring.lower(integers), 3)
    with pytest.raises(SettingsError, match="ring must be one of"):
        ring_named("2^33")
    assert ring_named(ring.name) is ring


@ring_ids
def test_masks_in_chunks_are_the_masks_in_one_piece_and_cancel(ring):
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    length = 2 * prg.CHUNK_BYTES // ring.width + 77
    seeds = [bytes([i]) * 32 for i in range(3)]
    expected = np.zeros(length, object)
    for seed, sign in zip(seeds, (1, 1, -1), strict=True):
        cipher = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
        stream = np.frombuffer(cipher.update(bytes(length * ring.width)), ring.dtype)
        bits = (1 << (ring.modulus - 1).bit_length()) - 1
        expected = expected + sign * (stream & ring.dtype.type(bits)).astype(object)
    total = np.zeros(length, ring.dtype)
    prg.apply_masks(total, ring, seeds[:2], seeds[2:])
    assert total.tolist() == (expected % ring.modulus).tolist()
    prg.apply_masks(total, ring, seeds[2:], seeds[:2])
    assert not total.any()


def test_more_seeds_than_are_open_at_once():
    seeds = [i.to_bytes(32, "big") for i in range(300)]
    total = np.zeros(10, RING32.dtype)
    prg.apply_masks(total, RING32, seeds)
    one_by_one = sum(prg.expand(seed, RING32, 10).astype(object) for seed in seeds)
    assert total.tolist() == (one_by_one % 2**32).tolist()


def test_words_beyond_the_prime_are_left_out_not_folded():
    p = PRIME61.modulus
    source = [p, 5, p | 7 << 61, 9, p, 11, 13, 15]

    def words(count):
        taken = source[:count]
        del source[:count]
        return np.array(taken, PRIME61.dtype)

    assert prg.unbiased(words, PRIME61)(4).tolist() == [5, 9, 11, 13]


class TestFixedPoint:
    @settings(max_examples=100, **QUIET)
    @given(
        n=st.integers(1, 5000),
        clip=st.floats(1e-6, 1e6),
        ring=st.sampled_from(RINGS),
        values=st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=5),
    )
    def test_no_sum_overflows_and_every_value_is_near(self, n, clip, ring, values):
        codec, values = FixedPoint(n, clip, ring), np.array(values)
        extreme = np.array([clip, -clip])
        integers = codec.quantize(extreme).astype(object) * n
        assert (abs(integers) <= ring.largest).all()
        worst = ring.lower((integers).astype(np.int64))
        assert codec.decode(worst).tolist() == (integers.astype(float) / codec.scale).tolist()
        error = codec.decode(codec.encode(values)) - np.clip(values, -clip, clip)
        assert (np.abs(error) <= 0.5 / codec.scale).all()
        larger = FixedPoint(n, clip * 1.0, ring).scale * 2
        assert n * clip * larger > min(ring.largest, 2**53) - n  # the scale is the largest

    def test_clips_may_differ_by_coordinate(self):
        codec = FixedPoint(10, np.array([1.0, 1000.0]))
        values = np.array([0.3, 999.0])
        assert np.allclose(codec.decode(codec.encode(values)), values, rtol=1e-5)
        assert codec.scale[0] >= 512 * codec.scale[1]

    def test_what_cannot_be_encoded_is_refused(self):
        codec = FixedPoint(10, 1.0)
        for wrong in (np.nan, np.inf):
            with pytest.raises(DataError, match="finite"):
                codec.encode(np.array([wrong]))
        with pytest.raises(SettingsError, match="n_parties must be at least 1; got 0"):
            FixedPoint(0, 1.0)
        with pytest.raises(DataError, match="one entry per clip"):
            FixedPoint(10, np.ones(3)).encode(np.ones(4))
        with pytest.raises(SettingsError, match="no room"):
            FixedPoint(2**31, 1.0)
        with pytest.raises(DataError, match="exceeds"):
            FixedPoint(3, 1.0).decode(np.array([2**31], np.uint32))
        with pytest.raises(DataError, match="exceeds"):  # lifts to the one int64 without a negative
            FixedPoint(3, 1.0, RING64).decode(np.array([2**63], np.uint64))

    @pytest.mark.parametrize(
        "clip",
        [0.0, -1.0, np.inf, np.nan, 5e-324, 1e-300, 1e300, 1.7e308, 10**400, "much", None, [],
         np.array([1.0, np.nan]), np.ones((2, 2))],
        ids=str,
    )  # fmt: skip
    def test_a_clip_that_floats_cannot_bear_is_refused(self, clip):
        for n, ring in ((1, RING64), (10**9, RING32), (10**30, PRIME61)):
            with pytest.raises(SettingsError, match=r"clip must be .* 2\^-500"):
                FixedPoint(n, clip, ring)

    @ring_ids
    @pytest.mark.parametrize("clip", [2.0**-500, 2.0**500])
    def test_the_extreme_clips_are_still_exact(self, ring, clip):
        for n in (1, 100_000 if ring is not RING32 else 1000):
            codec = FixedPoint(n, clip, ring)
            total = ring.lower(codec.quantize(np.array([clip, -clip])) * n)
            assert codec.decode(total) == pytest.approx(np.array([n * clip, -n * clip]), rel=1e-3)


class TestShamir:
    def test_the_modulus_is_prime_and_the_smallest_one_above(self):
        assert is_prime(shamir.PRIME)
        assert not any(is_prime(2**256 + i, 5) for i in range(1, 297, 2))

    def test_any_threshold_of_holders_recovers_all_secrets_and_fewer_do_not(self):
        secrets, points = [bytes(32), b"\xff" * 32, bytes(range(32))], (1, 2, 5, 11, 400)
        shares = shamir.share(secrets, 3, points, entropy_from("x"))
        for i, secret in enumerate(secrets):
            part = slice(33 * i, 33 * i + 33)
            values = {p: shamir.from_bytes(shares[p][part]) for p in points}
            for chosen in combinations(points, 3):
                picked = [values[p] for p in chosen]
                assert shamir.combine(picked, chosen) == secret
                assert slow_secret(chosen, picked, shamir.PRIME) == int.from_bytes(secret, "big")
            for chosen in combinations(points, 2):
                assert shamir.combine([values[p] for p in chosen], chosen) != secret

    def test_fewer_shares_fit_every_secret(self):
        """Perfect secrecy: for any other secret there is a polynomial through the same shares."""
        shares = shamir.share([bytes(32)], 3, (1, 2), entropy_from("y"))
        values = [shamir.from_bytes(shares[p]) for p in (1, 2)]
        other = 12345
        third = slow_secret((0 - 3, 1 - 3, 2 - 3), (other, *values), shamir.PRIME)  # value at 3
        assert shamir.combine([*values, third], (1, 2, 3)) == other.to_bytes(32, "big")

    def test_a_sum_beyond_32_bytes_is_no_secret(self):
        assert shamir.combine([2**256 + 5] * 2, (1, 2)) is None

    def test_inverses(self):
        values = [3, 2**200, shamir.PRIME - 1]
        assert shamir.invert_all(values) == [pow(v, -1, shamir.PRIME) for v in values]

    def test_a_hundred_parties_share_and_combine(self):
        points, secrets = tuple(range(1, 101)), [bytes(range(32))] * 2
        shares = shamir.share(secrets, 51, points, entropy_from("z"))
        chosen = points[20:71]
        values = [shamir.from_bytes(shares[p][:33]) for p in chosen]
        assert shamir.combine(values, chosen) == secrets[0]


class TestKeys:
    one, other = KeyPair.from_secret(b"1" * 32), KeyPair.from_secret(b"2" * 32)
    context = b"c" * 32

    def test_both_ends_agree_and_every_part_of_the_context_counts(self):
        secret = self.one.agree(self.other.public)
        assert secret == self.other.agree(self.one.public)
        a, b = End(1, self.one.public), End(2, self.other.public)
        seeds = [
            keys.pair_seed(secret, self.context, a, b),
            keys.pair_seed(secret, b"d" * 32, a, b),
            keys.pair_seed(secret, self.context, End(3, a.public), b),
            keys.pair_seed(secret, self.context, End(1, b"k" * 32), b),
            keys.channel_key(secret, self.context, a, b),
            keys.channel_key(secret, self.context, b, a),
            keys.self_seed(secret, self.context, 1),
        ]
        assert len(set(seeds)) == len(seeds)
        assert keys.pair_seed(secret, self.context, b, a) == seeds[0]

    def test_a_box_opens_only_as_it_was_sealed(self):
        key, box = b"k" * 32, keys.seal(b"k" * 32, b"text", self.context, 1, 2)
        assert keys.unseal(key, box, self.context, 1, 2) == b"text"
        for args in (
            (b"j" * 32, box, self.context, 1, 2),
            (key, box[:-1], self.context, 1, 2),
            (key, box[:-1] + bytes([box[-1] ^ 1]), self.context, 1, 2),
            (key, box, b"d" * 32, 1, 2),
            (key, box, self.context, 2, 1),
        ):
            assert keys.unseal(*args) is None

    def test_points_of_low_order_give_no_secret(self):
        for public in (bytes(32), b"\x01" + bytes(31)):
            assert self.one.agree(public) is None
            assert not keys.is_proper(public)
        assert keys.is_proper(self.other.public)

    def test_signatures_are_for_one_purpose_round_and_text(self):
        identity, public = b"i" * 32, keys.public_identity(b"i" * 32)
        signature = keys.sign(identity, b"keys", self.context, b"text")
        assert keys.is_signed(public, signature, b"keys", self.context, b"text")
        for args in (
            (public, signature, b"survivors", self.context, b"text"),
            (public, signature, b"keys", b"d" * 32, b"text"),
            (public, signature, b"keys", self.context, b"texT"),
            (keys.public_identity(b"j" * 32), signature, b"keys", self.context, b"text"),
        ):
            assert not keys.is_signed(*args)

    def test_secrets_are_not_shown(self):
        assert b"1" * 32 not in repr(self.one).encode()
