"""Compile what rounds need before anybody waits for it.

The first use of a kernel on a machine takes up to a minute. Within a round that would be a missed
deadline, so a site does it before it says hello.
"""

import logging
import time

import numpy as np

from fedmmf.config import Settings
from fedmmf.data.synthetic import synthetic
from fedmmf.engines import ENGINES
from fedmmf.errors import FedMMFError
from fedmmf.simulation import LocalFederation, prepare
from fedmmf.simulation.federation import Holdings, make_silos

_ROUNDS = 2
_PARTIES = 3
_N_USERS, _N_ITEMS, _N_RATINGS = 24, 12, 200
_SLOW = 2.0  # seconds from which it is worth a second line
log = logging.getLogger("fedmmf.site")


def compile_kernels(settings: Settings) -> None:
    """Run a few rounds among made-up users in this process, with the federation's own settings."""
    began = time.perf_counter()
    log.info("preparing compiled code; the first start on a machine may take a minute")
    try:
        _run_rounds(_small(settings))
    except FedMMFError as error:  # made-up users may be too few; real ones need not be
        log.info("compiled code is prepared in the first round instead: %s", error)
    seconds = time.perf_counter() - began
    if seconds > _SLOW:
        log.info("compiled code is ready after %.0f s", seconds)


def _run_rounds(small: Settings) -> None:
    ratings = synthetic(_N_USERS, _N_ITEMS, _N_RATINGS, min_per_user=6, seed=1)
    run = prepare(ratings, small)
    holdings = Holdings(ratings, small, run.is_held_out, run.statistics)
    cuts = np.linspace(0, _N_USERS, _PARTIES + 1).astype(int)
    federation = LocalFederation.among(run.plan, make_silos(holdings, cuts, ENGINES["numba"]))
    federation.prepare_sums()
    for _ in range(_ROUNDS):
        federation.one_round()


def _small(settings: Settings) -> Settings:
    """The same solver, mask and way to sum, for few users."""
    few = {"smallest_cohort": _PARTIES, "min_raters": 1, "batch": 1}
    return settings.changed(factors=2, rounds=_ROUNDS, **few)
