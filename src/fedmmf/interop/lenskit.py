"""A scorer for LensKit's pipelines. It needs LensKit, from the extra `interop`.

from lenskit.pipeline import topn_pipeline
from fedmmf.interop.lenskit import FedMMFScorer

pipeline = topn_pipeline(FedMMFScorer(mask="mean", factors=20), predicts_ratings=True)
pipeline.train(dataset)
"""

from typing import Annotated, Any

import numpy as np
from lenskit.data import Dataset, ItemList, QueryInput, RecQuery
from lenskit.pipeline import Component
from lenskit.training import Trainable, TrainingOptions
from pydantic import Field

from fedmmf.arrays import Array
from fedmmf.errors import FedMMFError
from fedmmf.model import FedMMF
from fedmmf.settings import Settings


class ScorerSettings(Settings):
    """The settings of `FedMMF`; the mask is one that needs no item features."""

    mask: Annotated[str, Field(description=Settings.model_fields["mask"].description)] = "mean"


class FedMMFScorer(Component[ItemList], Trainable):  # type: ignore[misc, unused-ignore]
    """Scores items by federated masked matrix factorization, simulated in one process.

    Scores are predictions before they are clipped to the scale. Items that were not in the training
    data have no score. Users who were not get scores from their history, where the query has
    ratings of it, and else none.
    """

    config: ScorerSettings
    model: FedMMF | None = None

    def is_trained(self) -> bool:
        """Whether the scorer has a model."""
        return self.model is not None

    def train(self, data: Dataset, options: TrainingOptions | None = None) -> None:
        """Train on a data set; the seed is that of the settings."""
        if self.model is None or options is None or options.retrain:
            self.model = FedMMF(**self.config.model_dump()).fit(data)

    def __call__(self, query: QueryInput, items: ItemList) -> ItemList:
        """Return the items with scores; unknown items get NaN."""
        if self.model is None:
            raise FedMMFError("this scorer is not trained yet; call train(dataset) first")
        learned, ids = self.model.learned, np.asarray(items.ids())
        codes = learned.item_codes(ids)
        is_known = codes < learned.n_items
        scores = np.full(len(items), np.nan)
        if is_known.any():
            scores[is_known] = self._scores(RecQuery.create(query), ids[is_known], codes[is_known])
        return ItemList(items, scores=scores)

    def _scores(self, query: Any, ids: Array, codes: Array) -> Array | float:
        assert self.model is not None  # noqa: S101 - the caller has looked
        learned = self.model.learned
        if query.user_id is not None:
            (user,) = learned.user_codes(np.array([query.user_id]))
            if user < learned.n_users:
                return self._shown(learned.scorer(codes)(user))
        own = _history(query, learned.is_implicit)
        known = learned.item_codes(np.array(list(own))) < learned.n_items
        own = {item: own[item] for item, is_known in zip(own, known, strict=True) if is_known}
        return self._shown(self.model.join(own).scores(ids)) if own else np.nan

    def _shown(self, scores: Array) -> Array:
        """Scores as they are, unless they are on a scale of their own: those of ordered ratings."""
        assert self.model is not None  # noqa: S101 - the caller has looked
        return self.model.learned.shown(scores) if self.config.likelihood == "ordinal" else scores


def _history(query: Any, is_implicit: bool) -> dict[Any, float]:
    """A user's own ratings by item, as far as the query has them."""
    items = query.history_items
    ratings = None if items is None else items.field("rating")
    if items is None or (ratings is None and not is_implicit):
        return {}
    ids = items.ids().tolist()
    values = [1.0] * len(ids) if ratings is None or is_implicit else np.asarray(ratings).tolist()
    return dict(zip(ids, values, strict=True))
