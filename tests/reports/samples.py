"""Results of small runs with made-up figures."""

import math
from pathlib import Path

from fedmmf.reports.list_scores import RecommendedItem, RecommendedList
from fedmmf.reports.results import (
    AuditResult,
    BaselineAccuracy,
    DemoResult,
    Histogram,
    PrivacyGroups,
    ProtocolCost,
    RoundTraffic,
    StageSeconds,
    TradeoffPoint,
    TrainResult,
)
from fedmmf.reports.verdict import AttackOutcome, GroupingCounts, Verdict

HOSTILE = "<script>alert(1)</script>"
OLD = Path(__file__).parent / "version-0.1"  # as version 0.1 printed them, long lists shortened
HIDDEN = "A server that follows the protocol sees no single update."
J = Histogram(
    edges=[index / 200 for index in range(25)],
    counts=[round(90 * math.exp(-(((index - 10) / 4) ** 2))) for index in range(24)],
)


def tradeoff(*, attacked):
    """A curve over thresholds; an audit tried no attack at the first of them."""
    points = []
    for index in range(41):
        share = 1 / (1 + math.exp(-80 * (index / 400 - 0.05)))
        recovered = {"recovered_share": 0.9 * share if index else None} if attacked else {}
        up = 65000 - 60000 * share
        points.append(
            TradeoffPoint(
                threshold_j=index / 400,
                share_in_clear=share,
                up_bytes_per_user_round=up,
                **recovered,
            )
        )
    return tuple(points)


def train(**changes):
    made = {
        "rmse": 0.9213,
        "mae": 0.7251,
        "test_fraction": 0.2,
        "data": "sample",
        "synthetic": True,
        "n_users": 600,
        "n_items": 800,
        "n_ratings": 60000,
        "seed": 0,
        "mask": "lr",
        "solver": "sgd",
        "factors": 20,
        "rounds": 120,
        "best_round": 80,
        "seconds": StageSeconds(mask=0.0873, train=0.385, total=2.2075),
        "privacy": PrivacyGroups(
            threshold_j=0.05,
            secure_users=264,
            insecure_users=336,
            mean_j=0.0515,
            mean_j_out_of_fold=0.0596,
            mean_relative_j=0.8765,
            j_follows_variance=0.9543,
            users_in_clear=0,
        ),
        "traffic": RoundTraffic(up_bytes_per_user_round=6423.0, down_bytes_per_user_round=64072),
        "settings": {
            "mask": "lr",
            "mask_strength": None,
            "threshold_j": 0.05,
            "sharing": "adaptive",
            "aggregation": "secure",
            "rounds": "auto",
        },
        "protection": [HIDDEN],
        "version": "0.2.0",
        "versions": {"python": "3.11.7", "fedmmf": "0.2.0", "numpy": "2.0.0"},
        "baselines": [
            BaselineAccuracy(name="global mean", rmse=1.1257, mae=0.9447),
            BaselineAccuracy(name="user mean", rmse=1.0421, mae=0.8349),
            BaselineAccuracy(name="item mean", rmse=1.0243, mae=0.8172),
            BaselineAccuracy(name="mask alone", rmse=0.9991, mae=0.7972),
        ],
        "history": [
            None if index == 10 else 0.92 + 0.2 * math.exp(-index / 15) + 1e-5 * (index - 80) ** 2
            for index in range(120)
        ],
        "j": J,
        "tradeoff": tradeoff(attacked=False),
        "cost": ProtocolCost(party_cpu_s=0.041, server_cpu_s=1.9, how="Measured on one core."),
        "made": "2026-01-02 03:04 UTC",
        "command": "fedmmf train --data 'my ratings.csv'",
    }
    return TrainResult(**made | changes)


def demo():
    items = (
        RecommendedItem(item_id=7, title="Seven", prediction=4.71),
        RecommendedItem(item_id=12, prediction=4.55),
    )
    chosen = RecommendedList(user=1, model="User-mean FedMMF", recommendations=items)
    runs = [train(mask=mask, rmse=rmse) for mask, rmse in (("none", 0.99), ("mean", 0.91))]
    return DemoResult(runs=runs, recommended=chosen)


def attack(name, mean, baseline=0.36, n_users=264, gain=(0.6, 0.66)):
    return AttackOutcome(
        name=name,
        knows="The masked ratings, the item features, and that the mask is a ridge regression.",
        outputs="A rating for each masked rating.",
        measure="Share of a user's ratings that are exact after rounding to the scale's step.",
        n_users=n_users,
        mean=mean,
        interval=(max(mean - 0.02, 0), min(mean + 0.02, 1)),
        baseline_mean=baseline,
        advantage_interval=gain,
        quantiles={"0.05": mean, "0.5": mean, "0.95": mean},
        users=[0, 1],
        success=[mean, None],
        baseline=[baseline, None],
    )


def audit(**changes):
    clear = [
        attack("inversion", 1.0),
        attack("shift", 0.36, gain=(-0.01, 0.02)),
        attack("ranking h=1", 0.31, 0.4, gain=(-0.1, -0.08)),
    ]
    made = {
        "data": "sample",
        "settings": {"mask": "lr", "sharing": "adaptive", "aggregation": "secure"},
        "recovered_share": 0.9,
        "audit_limit": 0.5,
        "grouping": GroupingCounts(by_indicator=264, by_audit=3, exposed_by_indicator=262),
        "privacy": PrivacyGroups(
            threshold_j=0.05,
            secure_users=264,
            insecure_users=336,
            mean_j=0.0515,
            users_in_clear=264,
        ),
        "recovered_users": 264,
        "made": "2026-01-02 03:04 UTC",
        "command": "fedmmf audit",
        "sentences": [
            "264 of 264 users who would share in the clear are recovered by inversion: "
            "at least 90% of their ratings exact.",
        ],
        "verdict": Verdict(
            light="red",
            sentence="264 of 600 people would send their own numbers to the server.",
            rule="Red: an attack finds clearly more than the public knows.",
            changes=["--sharing strict: nobody's own numbers leave."],
            not_tested=["A server that breaks the protocol."],
        ),
        "verdicts": {"in the clear": "Some attack finds them.", "in sums": "Hidden."},
        "groups": {"in the clear": clear, "in sums": [attack("inversion", 0.0, 0.0, n_users=0)]},
        "messages": {"sums of strict mode": [attack("inversion", 0.34, n_users=40)]},
        "j": J,
        "tradeoff": tradeoff(attacked=True),
    }
    return AuditResult(**made | changes)
