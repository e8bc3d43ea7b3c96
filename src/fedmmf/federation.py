"""Real parties in one process: the reference, for tests and for measuring the protocols."""

from itertools import pairwise

from fedmmf import simulation
from fedmmf.arrays import Array
from fedmmf.config import Settings
from fedmmf.data import Ratings
from fedmmf.party import Party


def make_parties(
    ratings: Ratings, settings: Settings, held_out: Array | None = None
) -> dict[str, Party]:
    """One party per user, with its own ratings alone; names sort like the users."""
    training = ratings if held_out is None else ratings.select(~held_out)
    features = simulation.feature_matrix(training, settings)
    parties = {}
    for user, (begin, end) in enumerate(pairwise(ratings.by_user)):
        mine = slice(begin, end)
        parties[f"{user:06}"] = Party(
            ratings.item_codes[mine],
            ratings.values[mine],
            ratings.scale,
            features,
            mask=settings.mask,
            mask_strength=settings.mask_strength,
            cross_fit=settings.cross_fit,
            folds=settings.folds,
            held_out=None if held_out is None else held_out[mine],
            stream=simulation.mask_stream(settings.seed, ratings.user_ids[user]),
        )
    return parties
