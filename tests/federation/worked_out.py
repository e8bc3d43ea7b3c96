"""A hundred sites of ten thousand users: `python tests/federation/worked_out.py`.

Measured here: the rounds of one site's ten thousand users, and the protocol of a hundred parties
that sign, over a catalogue like ML-10M's, in one process. Worked out: a round of all of them, each
site on a machine like this one, the server too, for two speeds of the server's link.
"""

import statistics
import sys
import time

import numpy as np

from fedmmf.data.synthetic import synthetic
from fedmmf.engines import ENGINES
from fedmmf.federation.local import Holdings, LocalFederation, make_silos
from fedmmf.settings import Settings
from fedmmf.simulation import prepare

N_SITES, USERS_PER_SITE, N_ITEMS, PER_USER = 100, 10_000, 10_677, 143
SETTINGS = Settings.checked(
    solver="sgd", factors=20, rounds=4, mask="mean", signed=True, held_out=0
)
SPEEDS = {"1 Gbit/s": 125e6, "100 Mbit/s": 12.5e6}


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def seconds_of_users():
    """A round of one site's users."""
    n_ratings = USERS_PER_SITE * PER_USER
    ratings = synthetic(USERS_PER_SITE, N_ITEMS, n_ratings, min_per_user=20, seed=1)
    run = prepare(ratings, SETTINGS)
    coordinator = run.coordinator()
    crowd, seconds = run.parties(), []
    for _ in range(5):
        round_ = coordinator.next_round()
        began = time.perf_counter()
        sums = crowd.sums(round_)
        seconds.append(time.perf_counter() - began)
        coordinator.advance(round_, sums)
    return statistics.median(seconds[1:])


def protocol():
    """CPU seconds of a party and of the server, and bytes of a party, in a round of all sites."""
    ratings = synthetic(20 * N_SITES, N_ITEMS, 60 * 20 * N_SITES, min_per_user=20, seed=1)
    run = prepare(ratings, SETTINGS)
    holdings = Holdings(ratings, SETTINGS, run.is_held_out, run.features.statistics)
    cuts = np.arange(0, 20 * N_SITES + 1, 20)
    federation = LocalFederation.among(run.plan, make_silos(holdings, cuts, ENGINES["numba"]))
    federation.prepare_sums()
    federation.one_round()
    stages = ("trip 1", "trip 2", "trip 3")
    before = federation.transport.of(*stages)
    n_rounds = 3
    for _ in range(n_rounds):
        federation.one_round()
    after = federation.transport.of(*stages)
    per_round = [
        (now - then) / n_rounds
        for now, then in zip(vars(after).values(), vars(before).values(), strict=True)
    ]
    up, down, inside, outside = per_round
    return {
        "up": up / N_SITES,
        "down": down / N_SITES,
        "party": inside / N_SITES,
        "server": outside,
    }


def main():
    users, parts = seconds_of_users(), protocol()
    say(f"a site's {USERS_PER_SITE:,} users: {users:.2f} s a round (measured)")
    say(
        f"protocol, {N_SITES} parties that sign: {parts['party']:.2f} s of a party, "
        f"{parts['server']:.2f} s of the server (measured)"
    )
    say(f"a party: {parts['up'] / 1e6:.2f} MB up, {parts['down'] / 1e6:.2f} MB down (measured)")
    for name, speed in SPEEDS.items():
        link = N_SITES * (parts["up"] + parts["down"]) / speed
        total = users + parts["party"] + parts["server"] + link
        say(f"worked out, server's link {name}: {total:.1f} s a round, {link:.1f} s of them on it")


if __name__ == "__main__":
    main()
