"""The contract of an aggregation scheme, over every one that is registered."""

import pytest
from contract import WayContract, pytest_generate_tests_for
from federations import HERE, VARIANTS, settings_of

from fedmmf.aggregation import AGGREGATIONS

pytest_generate_tests = pytest_generate_tests_for


class TestClearAndSecure(WayContract):
    variants = ("plain", "adaptive", "adaptive collecting", "secure", "secure vb")


class TestSigned(WayContract):
    variants = ("secure signed",)
    bears_three = False

    def settings(self, variant, **changes):
        return settings_of(variant, **{"min_raters": 2, **changes})  # else too little is summed

    @pytest.fixture
    def ratings(self, tiny):
        return tiny


class TestHomomorphic(WayContract):
    variants = ("homomorphic-paillier", "homomorphic-ckks", "homomorphic-ckks vb")

    def settings(self, variant, **changes):
        return settings_of(variant, **{"min_raters": 2, **changes})  # else too little is summed

    @pytest.fixture
    def ratings(self, tiny):
        for package in ("phe", "gmpy2", "tenseal"):
            pytest.importorskip(package, reason="the extra `he`")
        return tiny


class TestNoisy(WayContract):
    variants = ("dp local", "dp distributed")
    is_noisy = True

    @pytest.fixture
    def ratings(self, small):
        pytest.importorskip("dp_accounting", reason="the extra `dp`")
        return small


OF_VB_WITH_NOISE = ("dp vb local", "dp vb", "dp vb signed")  # see test_dp_vb.py


class TestOtherPackages(WayContract):
    variants = tuple(sorted(set(VARIANTS) - set(HERE)))


def test_every_registered_way_has_a_variant_here():
    assert {settings_of(variant).scheme_name for variant in VARIANTS} == set(AGGREGATIONS.names())
    tested = {
        *TestClearAndSecure.variants,
        *TestSigned.variants,
        *TestHomomorphic.variants,
        *TestNoisy.variants,
        *TestOtherPackages.variants,
        *OF_VB_WITH_NOISE,
    }
    assert tested == set(VARIANTS)
