"""Whole rounds of training between real parties in one process, all summed securely.

What the sum itself costs, `fedmmf bench secagg` shows; what parties and server spend, `fedmmf
reproduce efficiency`.
"""

from dataclasses import dataclass

from fedmmf.data import Ratings
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf.simulation.real import real_federation
from fedmmf_experiments.bench.measuring import Progress, quiet, timed


@dataclass(frozen=True)
class FederationTimes:
    """What real parties and real messages take."""

    data: str
    synthetic: bool
    n_parties: int
    setup_s: float  # invitations and the survey of items
    round_s: list[float]  # of each round


def measure(
    ratings: Ratings, settings: Settings, rounds: int, progress: Progress = quiet
) -> FederationTimes:
    """Set a federation up and run some rounds of it."""
    federation = real_federation(prepare(ratings, settings, progress))
    setup_seconds = timed(federation.prepare_sums)
    seconds = []
    for number in range(1, rounds + 1):
        seconds.append(timed(federation.one_round))
        progress("rounds", number, rounds)
    about = (ratings.name, ratings.synthetic, ratings.n_users)
    return FederationTimes(*about, setup_seconds, seconds)
