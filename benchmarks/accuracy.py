"""RMSE and MAE with the default settings, mean over three splits: the table of README.md.

usage: python benchmarks/accuracy.py [NAME:TEST ...]      e.g. ml-100k:0.2 ml-1m:0.1
"""

import sys
import time

import numpy as np

from fedmmf import FedMMF, load
from fedmmf.masks import FAMILIES

SEEDS = (0, 1, 2)


def row(name: str, test: float, mask: str) -> str:
    ratings = load(name)
    scores, j, began = [], [], time.perf_counter()
    for seed in SEEDS:
        train, held_back = ratings.split(test=test, seed=seed)
        model = FedMMF(mask=mask, seed=seed).fit(train)
        scores.append(tuple(model.evaluate(held_back).values()))
        j.append(model.privacy()["mean_j"])
    rmse, mae = np.mean(scores, axis=0)
    seconds = (time.perf_counter() - began) / len(SEEDS)
    figures = f"{rmse:.4f} | {mae:.4f} | {np.mean(j):.4f} | {seconds:.1f}"
    return f"| {name} | {test:g} | {mask} | {figures} |"


def main() -> None:
    print("| data | test share | mask | RMSE | MAE | mean J | seconds |")
    print("|---|---|---|---|---|---|---|")
    for argument in sys.argv[1:] or ["ml-100k:0.2", "lastfm:0.2", "ml-1m:0.1"]:
        name, _, test = argument.rpartition(":")
        for mask in FAMILIES:
            print(row(name, float(test), mask), flush=True)


if __name__ == "__main__":
    main()
