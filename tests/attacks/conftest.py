from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from fedmmf import rng
from fedmmf.attacks.membership import item_matrix
from fedmmf.audit import expose, recording
from fedmmf.audit.cohorts import FirstRound
from fedmmf.audit.sgd_rounds import SgdCohort
from fedmmf.audit.vb_rounds import VbCohort
from fedmmf.data import Ratings
from fedmmf.data.synthetic import synthetic
from fedmmf.federation.local import make_parties, server_plan
from fedmmf.settings import Settings
from fedmmf.simulation import prepare


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


def first_rounds(ratings, mask, **changes):
    """Round 1 of everybody, and the control: the same with ratings that are drawn anew."""
    run = prepare(ratings, Settings(mask=mask, held_out=0.0, **changes))
    return FirstRound.of(run), FirstRound.of(run, is_control=True)


@pytest.fixture(scope="session")
def sparse():
    """100 users with 12 ratings each, so that an item of their sum has five raters or so."""
    draw, n_users, n_items, length = rng.stream(0, "sparse"), 100, 250, 12
    items = np.concatenate([draw.permutation(n_items)[:length] for _ in range(n_users)])
    users = np.repeat(np.arange(n_users), length)
    effects = (
        0.5 * draw.standard_normal(n_items)[items] + 0.4 * draw.standard_normal(n_users)[users]
    )
    values = np.clip(np.rint(3.4 + effects + 0.9 * draw.standard_normal(len(items))), 1, 5)
    return Ratings.from_frame(pl.DataFrame({"user_id": users, "item_id": items, "rating": values}))


@pytest.fixture(scope="session")
def summed_sparse(sparse):
    """(view of one sum over everybody, truth, the same sum of ratings that are drawn anew)."""
    first, control = first_rounds(sparse, "mean", min_raters=1)
    view, truth = first.summed(np.arange(sparse.n_users))
    return view, truth, control.summed(view.users)[0]


@pytest.fixture(scope="session")
def followed_sparse(sparse):
    """A hundred people in 120 rounds of sgd, in which some stay away."""
    settings = Settings(mask="mean", held_out=0.0, min_raters=1, factors=6, rounds=120)
    return SgdCohort(prepare(sparse, settings), np.arange(sparse.n_users))


@pytest.fixture(scope="session")
def named_rounds(followed_sparse, sparse):
    """(view of all rounds, truth, the same of ratings that are drawn anew)."""
    control = replace(followed_sparse, is_control=True)
    return followed_sparse.named(), sparse.values, control.named()


@pytest.fixture(scope="session")
def unnamed_rounds(followed_sparse, sparse):
    """(view of all rounds, who rated what, the same with the items of the sums exchanged).

    Exchanged names would not do: counts of raters have each user in them.
    """
    view = followed_sparse.unnamed()
    places = rng.stream(0, "exchanged").permutation(sparse.n_items)
    sums = replace(view.sums, level=view.sums.level[:, places], counts=view.sums.counts[places])
    rated = item_matrix(sparse.rated_items, sparse.n_items)
    return view, rated, replace(view, sums=sums)


@pytest.fixture(scope="session")
def vb_sparse(sparse):
    """Twenty people who train with vb, and the control."""
    settings = Settings(mask="mean", held_out=0.0, min_raters=1, factors=6, solver="vb")
    run, users = prepare(sparse, settings), np.arange(0, 100, 5)
    return VbCohort(run, users), VbCohort(run, users, is_control=True)


@pytest.fixture(scope="session")
def vb_ranked():
    """Fifty people of 200 whose lists are alike, who train with vb for lists."""
    settings = Settings(mask="mean", held_out=0.0, min_raters=1, factors=12, solver="vb")
    run = prepare(synthetic(200, 200, 6000, seed=3), settings)
    return VbCohort(run, np.arange(0, 200, 4), objective="ranking")
