"""Recommendations on a site, from its own files alone."""

from dataclasses import dataclass

import numpy as np

from fedmmf.arrays import Array
from fedmmf.errors import NotFittedError
from fedmmf.federation.catalogue import ItemList
from fedmmf.federation.folder import Folder
from fedmmf.interactions import widened
from fedmmf.lists import best_first
from fedmmf.masks import FAMILIES, MaskFamily, apply_one_mask
from fedmmf.population import ASSUMED_PULL, Population
from fedmmf.results import RecommendedItem, RecommendedList
from fedmmf.scale import RatingScale
from fedmmf.site.ratings import SiteRatings
from fedmmf.site.store import SiteStore
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import design_of, whole_factors
from fedmmf.solvers.sgd import scores


@dataclass(frozen=True, eq=False)
class _Mask:
    """A user's mask, ready to be applied."""

    family: MaskFamily
    scale: RatingScale
    population: Population
    theta: Array  # (1, n_parameters)


def recommend(folder: Folder, site: str, user: str, n: int) -> RecommendedList:
    """The n items, not yet rated by a user of this site, with the highest predictions."""
    store = SiteStore(folder.machine(site).state())
    found = store.result()
    if found is None:
        raise NotFittedError(
            f"{site} has no model yet. Train with `fedmmf federation run`; a site fetches the "
            "result by itself while `fedmmf federation site` runs"
        )
    items, holdings = ItemList.load(folder.catalogue_file), SiteRatings.load(store.holdings)
    public, about, users = found
    place, row = holdings.training.user(user), _row_of(user, users["user_ids"])
    family, theta = FAMILIES[folder.charter().training.mask], users["theta"][[row]]
    mask = _Mask(family, items.scale, Population(users["line"], ASSUMED_PULL), theta)
    solver = SOLVERS[about["solver"]]
    form = solver.form(public.rank, about["variant"])
    seen = widened(family.name, items.features)
    design = design_of(seen, sees_features=family.needs_features)
    of_factors = scores(whole_factors(form, public, design), users["user_factors"][row])
    predicted = of_factors + apply_one_mask(mask, 0, seen)  # (n_items,)
    predicted[_seen(holdings, place)] = -np.inf
    best = best_first(predicted, n)
    clipped = solver.ratings_of(form, public, predicted[best], items.scale)
    listed = tuple(
        RecommendedItem(
            item_id=str(items.ids[at]), prediction=float(value), title=str(items.titles[at])
        )
        for at, value in zip(best, clipped, strict=True)
    )
    return RecommendedList(user=user, model=folder.charter().name, recommendations=listed)


def _row_of(user: str, known: Array) -> int:
    """Where a user is in what was learned, which may be older than the ratings."""
    (found,) = np.nonzero(known == str(user))
    if len(found) == 0:
        raise NotFittedError(
            f"nothing was learned for {user!r} yet; start the site once with the new ratings"
        )
    return int(found[0])


def _seen(holdings: SiteRatings, place: int) -> Array:
    """Items that a user has rated, for training or for a test."""
    return np.concatenate(
        [
            part.lists.items[part.lists.indptr[place] : part.lists.indptr[place + 1]]
            for part in (holdings.training, holdings.test)
        ]
    )
