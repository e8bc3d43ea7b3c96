import numpy as np
import pytest

from fedmmf import federation, simulation
from fedmmf.attacks import gradients, membership, strict
from fedmmf.attacks.view import View, expose, public_prior
from fedmmf.config import Settings

MASKS = ["none", "mean", "lr", "fm", "nn"]


def exposed(ratings, mask, **changes):
    return expose(ratings, Settings(mask=mask, **changes))


def messages_settings(mask, sharing, **changes):
    return Settings(mask=mask, sharing=sharing, factors=6, held_out=0.0, **changes)


def record_plain(ratings, mask, **changes):
    """Uploads of two rounds in the clear, and the true masked ratings."""
    settings = messages_settings(mask, "plain", **changes)
    parties = federation.make_parties(ratings, settings)
    server = simulation.make_server(ratings, settings)
    uploads = gradients.record(parties, server, ratings.scale, public_prior(ratings))
    return uploads, masked_of(parties), settings


def masked_of(parties):
    return np.concatenate([parties[name].masked_ratings for name in sorted(parties)])


@pytest.fixture(scope="session")
def plain_small(small):
    return record_plain(small, "lr")


@pytest.fixture(scope="session")
def strict_small(small):
    """A transcript of two secure rounds, with the true masked ratings."""
    settings = messages_settings("lr", "strict")
    parties = federation.make_parties(small, settings)
    server = simulation.make_server(small, settings)
    seen = strict.record_strict(parties, server, settings, small.scale.span)
    known = View(
        users=np.arange(small.n_users),
        indptr=small.by_user,
        items=small.item_codes,
        scale=small.scale,
        prior=public_prior(small),
    )
    return seen, known, masked_of(parties), settings


@pytest.fixture(scope="session")
def rated_small(small):
    return membership.item_matrix(small, np.arange(small.n_users))
