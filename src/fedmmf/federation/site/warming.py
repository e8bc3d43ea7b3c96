"""Compile what rounds need before anybody waits for it.

The first use of a kernel on a machine takes up to a minute. Within a round that would be a missed
deadline, so a site does it before it says hello.
"""

import logging
import time

import numpy as np

from fedmmf import rng
from fedmmf.data import ItemFeatures, Ratings
from fedmmf.data.scales import RatingScale
from fedmmf.engines import ENGINES
from fedmmf.errors import FedMMFError
from fedmmf.federation.local import Holdings, LocalFederation, make_silos, server_plan
from fedmmf.settings import Settings

_ROUNDS = 2
_PARTIES = 3
_N_USERS, _N_ITEMS, _N_FEATURES = 24, 12, 2
_SHARE_RATED = 0.7
_SLOW = 2.0  # seconds from which it is worth a second line
log = logging.getLogger("fedmmf.federation.site")


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
    ratings = _made_up()
    cuts = np.linspace(0, _N_USERS, _PARTIES + 1).astype(int)
    parties = make_silos(Holdings(ratings, small), cuts, ENGINES["numba"])
    federation = LocalFederation.among(server_plan(ratings, small), parties)
    federation.prepare_sums()
    for _ in range(_ROUNDS):
        federation.one_round()
    one, factors = np.zeros(1, np.int32), np.zeros((1, 1), np.float32)
    ENGINES["numba"].pair_scores(one, one, factors, factors)  # for `federation evaluate`


def _made_up() -> Ratings:
    """Draw a few ratings. `data.synthetic` would load scikit-learn, which nothing here needs."""
    chance = rng.stream(1, "warming")
    users, items = np.nonzero(chance.random((_N_USERS, _N_ITEMS)) < _SHARE_RATED)  # (n,)
    values = chance.standard_normal((_N_ITEMS, _N_FEATURES)).astype(np.float32)
    return Ratings(
        user_codes=users.astype(np.int32),
        item_codes=items.astype(np.int32),
        values=chance.integers(1, 5, len(users), endpoint=True).astype(np.float32),
        user_ids=np.arange(_N_USERS),
        item_ids=np.arange(_N_ITEMS),
        scale=RatingScale(1.0, 5.0, 1.0),
        features=ItemFeatures(tuple(f"x{at}" for at in range(_N_FEATURES)), values),
        synthetic=True,
    )


def _small(settings: Settings) -> Settings:
    """The same solver, mask and aggregation scheme, for few users."""
    few = {"smallest_cohort": _PARTIES, "min_raters": 1, "batch": 1}
    return settings.changed(factors=2, rounds=_ROUNDS, **few)
