"""View of a server to which all masked ratings of a run leaked, and public knowledge."""

from dataclasses import replace

import numpy as np

from fedmmf import rng
from fedmmf.arrays import Array
from fedmmf.attacks.view import Exposed, extremes_of, levels_of, nearest_level
from fedmmf.data import Ratings
from fedmmf.simulation import Prepared

PRIOR_PARTS = 5  # a user's prior comes from the users of the other parts
PRIOR_SHRINKAGE = 5.0  # shrinkage of an item's distribution towards everybody's, in ratings


def expose(run: Prepared) -> Exposed:
    """Make the view of a server if every user shared in the clear and leaked its masked ratings."""
    training = run.training
    return Exposed(
        users=np.arange(training.n_users),
        lists=run.lists,
        scale=training.scale,
        prior=public_prior(training, run.settings.seed),
        masked=run.masks.masked_ratings,
        features=run.features.seen,
        population=run.masks.population,
        plan=run.masks.plan,
        engine=run.engine,
        extremes=extremes_of(run.lists, training.values, training.scale),
    )


def public_prior(ratings: Ratings, seed: int = 0) -> Array:
    """Probability of each level for each rating's item, from other people's ratings alone.

    Users are dealt into parts; what is public for one part is the ratings of all others. An item's
    distribution is shrunk towards that of all items. (n, n_levels)
    """
    n_levels = len(levels_of(ratings.scale))
    parts = prior_parts(ratings, seed)[ratings.user_codes]  # (n,)
    level = nearest_level(ratings.values, ratings.scale)
    cells = ratings.item_codes * np.int64(n_levels) + level
    prior = np.empty((ratings.n_ratings, n_levels))
    for part in range(PRIOR_PARTS):
        others = cells[parts != part]
        counts = np.bincount(others, minlength=ratings.n_items * n_levels) + 0.0
        by_item = counts.reshape(ratings.n_items, n_levels)
        everybody = (by_item.sum(axis=0) + 1.0) / (by_item.sum() + n_levels)  # (n_levels,)
        by_item += PRIOR_SHRINKAGE * everybody
        here = parts == part
        prior[here] = by_item[ratings.item_codes[here]]
    return np.asarray(prior / prior.sum(axis=1, keepdims=True))


def prior_parts(ratings: Ratings, seed: int = 0) -> Array:
    """Draw the part that each user belongs to. (n_users,)."""
    return rng.stream(seed, "prior parts").permutation(ratings.n_users) % PRIOR_PARTS


def drawn_users(ratings: Ratings, seed: int, most: int) -> Array:
    """Draw the users whom an audit attacks: everybody, or `most` of them; increasing codes."""
    return np.sort(rng.stream(seed, "cohort").permutation(ratings.n_users)[:most])


def restrict(ratings: Ratings, users: Array) -> Ratings:
    """Return the ratings of some users alone, with new codes in the order of `users`."""
    chosen = ratings.select(np.isin(ratings.user_codes, users))
    codes = np.searchsorted(users, chosen.user_codes).astype(np.int32)
    ids, known = ratings.user_ids[users], ratings.profiles
    profiles = None if known is None else known.take(users)
    return replace(chosen, user_codes=codes, user_ids=ids, profiles=profiles)
