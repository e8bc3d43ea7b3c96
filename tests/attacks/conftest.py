from dataclasses import replace

import numpy as np
import pytest

from fedmmf import rng
from fedmmf.attacks.membership import item_matrix
from fedmmf.audit import expose, recording
from fedmmf.config import Settings
from fedmmf.simulation import prepare
from fedmmf.simulation.federation import make_parties, server_plan


def exposed(ratings, mask, **changes):
    """What a server would hold of everybody; nothing is held out."""
    return expose(prepare(ratings, Settings(mask=mask, held_out=0.0, **changes)))


def noise(view, seed=0):
    """The control of every attack on masked ratings: numbers that have nothing to do with them."""
    draw = rng.stream(seed, "control").uniform(-0.5, 0.5, len(view.masked))
    offset = 0.0 if view.plan.family.is_centred else view.scale.midpoint
    return replace(view, masked=np.asarray(offset + view.scale.span * draw, np.float32))


def record(ratings, mask, sharing, how, **changes):
    """What a recording gives, the true masked ratings, and what is known of the users."""
    changes |= {"factors": 6, "held_out": 0.0}
    settings = Settings(mask=mask, sharing=sharing, **changes)
    parties = make_parties(ratings, settings)
    view = expose(prepare(ratings, settings))
    seen = how(server_plan(ratings, settings), parties, view)
    masked = [parties[name].masks.masked_ratings for name in sorted(parties)]
    return seen, np.concatenate(masked), view


def record_plain(ratings, mask, **changes):
    return record(ratings, mask, "plain", recording.record_plain, **changes)


@pytest.fixture(scope="session")
def plain_small(small):
    return record_plain(small, "lr")


@pytest.fixture(scope="session")
def strict_small(small):
    return record(small, "lr", "strict", recording.record_strict)


@pytest.fixture(scope="session")
def rated_small(small):
    return item_matrix(exposed(small, "none").lists, small.n_items)
