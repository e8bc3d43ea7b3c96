"""Federations of real parties in one process, as the tests of sums, parties and the server want."""

from dataclasses import replace

from fedmmf.aggregation import AGGREGATIONS
from fedmmf.federation.local import LocalFederation, make_parties
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf.transports.in_process import InProcess

BASE = {"mask": "mean", "factors": 3, "rounds": 3}
DP = {"aggregation": "dp", "solver": "sgd", "step": "sum"}
DP_VB = {"aggregation": "dp", "solver": "vb"}
HELD_OUT = {"held_out": 0.2}

# Every aggregation scheme that is registered, with its variants.
VARIANTS = {
    "plain": {"sharing": "plain", **HELD_OUT},
    "adaptive": {"sharing": "adaptive", "mask": "lr", "threshold_j": 0.04, **HELD_OUT},
    "adaptive collecting": {
        "sharing": "adaptive",
        "mask": "lr",
        "threshold_j": 0.04,
        "collect_masked": True,
        **HELD_OUT,
    },
    "secure": HELD_OUT,
    "secure vb": {"solver": "vb", **HELD_OUT},
    "secure signed": {"signed": True, **HELD_OUT},
    "homomorphic-paillier": {"aggregation": "homomorphic-paillier", **HELD_OUT},
    "homomorphic-ckks": {"aggregation": "homomorphic-ckks", **HELD_OUT},
    "homomorphic-ckks vb": {"aggregation": "homomorphic-ckks", "solver": "vb", **HELD_OUT},
    "dp local": {**DP, "dp_noise": "local"},
    "dp distributed": DP,
    "dp vb local": {**DP_VB, "dp_noise": "local"},
    "dp vb": DP_VB,
    "dp vb signed": {**DP_VB, "signed": True},
}
HERE = tuple(VARIANTS)
VARIANTS |= {
    name: {"aggregation": name, **HELD_OUT}  # of other packages
    for name in AGGREGATIONS.names()
    if name not in {"plain", "adaptive", "secure", "dp", *VARIANTS}
}


def settings_of(variant, **changes):
    return Settings(**{**BASE, **VARIANTS[variant], **changes})


def federation_of(ratings, settings, wrap=lambda transport: transport):
    """One party per user; `wrap` puts a transport around the plain one."""
    run = prepare(ratings, settings)
    parties = make_parties(run.ratings, settings, run.is_held_out, run.features.statistics)
    return LocalFederation.among(run.plan, parties, wrap(InProcess(parties)))


def believing(party, invitation):
    """A party whose charter calls for this invitation, so that only its owner's policy is left."""
    names = ("solver", "variant", "rank", "rounds", "sums", "columns", "minimum")
    said = {name: getattr(invitation, name) for name in names}
    party.expectation = replace(party.expectation, **said)
    return party
