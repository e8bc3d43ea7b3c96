"""Runs as the commands print them, small and with made-up figures."""

import math

HOSTILE = "<script>alert(1)</script>"


def train(**changes):
    thresholds = [index / 400 for index in range(41)]
    shares = [1 / (1 + math.exp(-80 * (threshold - 0.05))) for threshold in thresholds]
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
        "seconds": {"mask": 0.0873, "train": 0.385, "total": 2.2075},
        "privacy": {
            "threshold_j": 0.05,
            "secure_users": 264,
            "insecure_users": 336,
            "mean_j": 0.0515,
            "mean_j_out_of_fold": 0.0596,
        },
        "traffic": {"up_bytes_per_user_round": 6423.0, "down_bytes_per_user_round": 64072},
        "settings": {
            "mask": "lr",
            "mask_strength": None,
            "threshold_j": 0.05,
            "sharing": "adaptive",
            "aggregation": "secure",
            "rounds": "auto",
        },
        "version": "0.1.0",
        "baselines": [
            {"name": "global mean", "rmse": 1.1257, "mae": 0.9447},
            {"name": "user mean", "rmse": 1.0421, "mae": 0.8349},
            {"name": "item mean", "rmse": 1.0243, "mae": 0.8172},
            {"name": "mask alone", "rmse": 0.9991, "mae": 0.7972},
        ],
        "history": [
            None if index == 10 else 0.92 + 0.2 * math.exp(-index / 15) + 1e-5 * (index - 80) ** 2
            for index in range(120)
        ],
        "j": {
            "edges": [index / 200 for index in range(25)],
            "counts": [round(90 * math.exp(-(((index - 10) / 4) ** 2))) for index in range(24)],
            "mean": 0.0515,
        },
        "tradeoff": [
            {
                "threshold_j": threshold,
                "share_in_clear": share,
                "up_bytes_per_user_round": 65000 - 60000 * share,
                "recovered_share": 0.9 * share if index else None,
            }
            for index, (threshold, share) in enumerate(zip(thresholds, shares, strict=True))
        ],
        "cost": {"party_cpu_s": 0.041, "server_cpu_s": 1.9, "how": "Measured on one core."},
    }
    return made | changes


def demo():
    recommendations = [
        {"item_id": 7, "title": "Seven", "prediction": 4.71},
        {"item_id": 12, "title": None, "prediction": 4.55},
    ]
    chosen = {"user": 1, "model": "User-mean FedMMF", "recommendations": recommendations}
    runs = [train(mask=mask, rmse=rmse) for mask, rmse in (("none", 0.99), ("mean", 0.91))]
    return {"runs": runs, "recommended": chosen}


def attack(name, mean, baseline=0.36, n_users=264):
    return {
        "name": name,
        "knows": "The masked ratings, the item features, and that the mask is a ridge regression.",
        "outputs": "A rating for each masked rating.",
        "measure": "Share of a user's ratings that are exact after rounding to the scale's step.",
        "n_users": n_users,
        "mean": mean,
        "interval": [max(mean - 0.02, 0), min(mean + 0.02, 1)],
        "baseline_mean": baseline,
        "advantage_interval": [0.6, 0.66],
        "quantiles": {"0.05": mean, "0.5": mean, "0.95": mean},
        "users": [0, 1],
        "success": [mean, None],
        "baseline": [baseline, None],
    }


def audit():
    clear = [attack("inversion", 1.0), attack("shift", 0.52), attack("ranking h=1", 0.71, 0.4)]
    return {
        "settings": {"mask": "lr", "sharing": "strict", "aggregation": "secure"},
        "recovered_share": 0.9,
        "audit_limit": 0.5,
        "grouping": {"by_indicator": 264, "by_audit": 3, "exposed_by_indicator": 262},
        "sentences": [
            "264 of 264 users who would share in the clear are recovered by inversion: "
            "at least 90% of their ratings exact.",
        ],
        "groups": {"in the clear": clear, "in sums": [attack("inversion", 0.0, 0.0, n_users=0)]},
        "messages": {"sums of strict mode": [attack("inversion", 0.34, n_users=40)]},
    }
