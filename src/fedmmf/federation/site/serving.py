"""Recommendations on a site, from its own files alone."""

from dataclasses import dataclass

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data.rated_items import top_n
from fedmmf.data.scales import RatingScale
from fedmmf.errors import NotFittedError
from fedmmf.federation.catalogue import ItemList
from fedmmf.federation.folder import Folder
from fedmmf.federation.site.ratings import SiteRatings
from fedmmf.federation.site.store import SiteStore
from fedmmf.masks import FAMILIES, MaskFamily, MaskPlan, apply_one_mask
from fedmmf.masks.population import ASSUMED_PULL, Population
from fedmmf.reports.list_scores import RecommendedItem, RecommendedList
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import whole_factors
from fedmmf.solvers.sgd import scores


@dataclass(frozen=True, eq=False)
class _Mask:
    """A user's mask, ready to be applied."""

    family: MaskFamily
    scale: RatingScale
    population: Population
    theta: Array  # (1, n_parameters)


class SiteModel:
    """The site's finished model, read once for any number of lists.

    Args:
        folder: of the federation.
        site: its name.
    """

    def __init__(self, folder: Folder, site: str) -> None:
        store = SiteStore(folder.machine(site).state())
        found = store.result()
        if found is None:
            raise NotFittedError(
                f"{site} has no model yet. Train with `fedmmf federation run`; a site fetches the "
                "result by itself while `fedmmf federation site` runs"
            )
        self._public, about, self._users = found
        charter = folder.charter()
        self._name, self._family = charter.name, FAMILIES[charter.training.mask]
        self._items = ItemList.load(folder.catalogue_file)
        self._holdings = SiteRatings.load(store.holdings)
        self._solver = SOLVERS[about["solver"]]
        self._update_shape = self._solver.update_shape(self._public.rank, about["variant"])
        features = MaskPlan(self._family.name).views(self._items.features)
        self._seen = features.seen
        self._factors = whole_factors(self._update_shape, self._public, features.design)

    def recommend(self, user: str, n: int) -> RecommendedList:
        """Return the n items with the highest predictions among those the user has not rated."""
        place, row = self._holdings.training.user(user), _row_of(user, self._users["user_ids"])
        predicted = self._scores(row)  # (n_items,)
        predicted[_seen(self._holdings, place)] = -np.inf
        best, items = top_n(predicted, n), self._items
        clipped = self._solver.ratings_of(
            self._update_shape, self._public, predicted[best], items.scale
        )
        listed = tuple(
            RecommendedItem(
                item_id=str(items.ids[at]), prediction=float(value), title=str(items.titles[at])
            )
            for at, value in zip(best, clipped, strict=True)
        )
        return RecommendedList(user=user, model=self._name, recommendations=listed)

    def _scores(self, row: int) -> Array:
        """Compute q_i . p_u + f_u(i) for every item. (n_items,)."""
        population = Population(self._users["line"], ASSUMED_PULL)
        mask = _Mask(self._family, self._items.scale, population, self._users["theta"][[row]])
        own = scores(self._factors, self._users["user_factors"][row])
        return np.asarray(own + apply_one_mask(mask, 0, self._seen))


def recommend(folder: Folder, site: str, user: str, n: int) -> RecommendedList:
    """Make the list of one user; for many users, `SiteModel` reads the files only once."""
    return SiteModel(folder, site).recommend(user, n)


def _row_of(user: str, known: Array) -> int:
    """Row of a user in the finished model, which may be older than the ratings."""
    (found,) = np.nonzero(known == str(user))
    if len(found) == 0:
        raise NotFittedError(
            f"nothing was learned for {user!r} yet; start the site once with the new ratings"
        )
    return int(found[0])


def _seen(holdings: SiteRatings, place: int) -> Array:
    """Items that a user has rated, in the training or the test part."""
    return np.concatenate(
        [
            part.lists.items[part.lists.indptr[place] : part.lists.indptr[place + 1]]
            for part in (holdings.training, holdings.test)
        ]
    )
