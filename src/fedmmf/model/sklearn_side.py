"""The methods that scikit-learn needs to split, search and score."""

from typing import TYPE_CHECKING, Any

import numpy as np

from fedmmf.data.adapters import ratings_of
from fedmmf.errors import SettingsError
from fedmmf.model.accuracy import DEFAULT_TOP

if TYPE_CHECKING:
    from fedmmf.model.estimator import FedMMF


class SklearnSide:
    """Base of an estimator whose X are pairs of user and item, (n, 2), and y their ratings.

    Every rating is a row, so that scikit-learn's splitters can hold some of them out; each training
    part finds the scale in its own ratings unless `fit` is given one. scikit-learn is loaded only
    where it asks.
    """

    def score(self: "FedMMF", X: Any, y: Any = None) -> float:  # type: ignore[misc] # noqa: N803
        """How good predictions are, higher is better: R^2 of ratings.

        With the objective `ranking`, nDCG of the ten best items that a user has not rated in
        training, since scores are no ratings.

        Args:
            X: pairs of user and item, (n, 2); or ratings in what `fit` takes them in, without y.
            y: the ratings of the pairs. (n,)
        """
        test = ratings_of(X, y)
        if self.settings.objective == "ranking":
            found = self.evaluate(test, top=DEFAULT_TOP)["ranking"].to_json_dict()
            return float(found[f"ndcg_at_{DEFAULT_TOP}"])
        error = self.evaluate(test)["rmse"] ** 2
        variance = float(np.var(test.values, dtype=np.float64))
        if variance == 0:
            raise SettingsError(
                "R^2 needs ratings that differ; all to score are "
                f"{float(test.values[0]):g}. Give more of them"
            )
        return 1.0 - error / variance

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=False),
            regressor_tags=RegressorTags(poor_score=True),  # columns of X are names, not numbers
            input_tags=InputTags(string=True, categorical=True),
        )

    def __sklearn_clone__(self: "FedMMF") -> "FedMMF":  # type: ignore[misc]
        return type(self)(**self._asked.named())

    def __sklearn_is_fitted__(self: "FedMMF") -> bool:  # type: ignore[misc]
        return self._learned is not None
