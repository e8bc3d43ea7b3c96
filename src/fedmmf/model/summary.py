"""Everything that a training run reports; the keys are a contract."""

from typing import TYPE_CHECKING, Any

import numpy as np

from fedmmf import __version__
from fedmmf.aggregation import AGGREGATIONS
from fedmmf.data import Ratings
from fedmmf.masks import FAMILIES
from fedmmf.masks.indicator import histogram
from fedmmf.model.accuracy import Accuracy
from fedmmf.model.evaluation import scored
from fedmmf.model.learned import Learned
from fedmmf.reports.results import MASK_ALONE, BaselineAccuracy, TrainResult, versions
from fedmmf.solvers import SOLVERS

if TYPE_CHECKING:
    from fedmmf.model.estimator import FedMMF


def summarize(
    model: "FedMMF", test: Ratings | None, accuracy: Accuracy | None, total_seconds: float | None
) -> TrainResult:
    """A model's result, with errors on the test ratings beside those of the baselines."""
    learned, settings = model.learned, model.settings
    n_test = 0 if test is None else len(test)
    seconds = dict(learned.seconds)
    seconds["total"] = sum(seconds.values()) if total_seconds is None else total_seconds
    member = learned.members[0]
    return TrainResult(
        **_accuracy(learned, test, accuracy),
        test_fraction=n_test / (n_test + learned.n_ratings),
        data=learned.data,
        synthetic=learned.synthetic,
        simulated=learned.is_simulated,
        n_users=learned.n_users,
        n_items=learned.n_items,
        n_ratings=n_test + learned.n_ratings,
        seed=settings.seed,
        mask=settings.mask,
        solver=settings.solver,
        factors=settings.factors,
        rounds=learned.rounds,
        best_round=member.best_round if np.isfinite(member.history).any() else None,
        seconds={name: round(value, 4) for name, value in seconds.items()},
        privacy=model.privacy(),
        traffic=model.traffic(),
        cost=model.cost(),
        **_spent(model),
        history=[round(float(value), 6) for value in member.history],
        j=histogram(learned.j_train),
        tradeoff=model.tradeoff() if SOLVERS[settings.solver].may_be_clear else (),
        settings=settings.to_dict(),
        protection=AGGREGATIONS[settings.scheme_name].disclosure(settings),
        version=__version__,
        versions=versions(),
    )


def _spent(model: "FedMMF") -> dict[str, Any]:
    """Spent part of the privacy budget, where the aggregation scheme has one."""
    spent = AGGREGATIONS[model.settings.scheme_name].spent
    if spent is None:
        return {}
    rounds = sum(len(member.history) for member in model.learned.members)
    found = spent(model.settings, rounds)
    if model.learned.is_simulated:
        found["added_by"] += "; in this simulation, from a seed"
    return {"dp": found}


def _accuracy(learned: Learned, test: Ratings | None, found: Accuracy | None) -> dict[str, Any]:
    if test is None or found is None:
        return {"rmse": None, "mae": None}
    if learned.objective == "ranking":
        return {"rmse": None, "mae": None, **found}
    return {**found, "baselines": baselines(learned, test)}


def baselines(learned: Learned, test: Ratings) -> list[BaselineAccuracy]:
    """Errors of three means and of the masks alone, on the same test ratings."""
    users = learned.user_codes(test.user_ids)[test.user_codes]  # (n_test,)
    items = learned.item_codes(test.item_ids)[test.item_codes]
    predictions = learned.means.predictions(users, items)
    if not FAMILIES[learned.mask].is_empty:
        predictions[MASK_ALONE] = learned.predict_masks(users, items)
    return [
        BaselineAccuracy(name=name, **scored(np.asarray(test.values), predicted))
        for name, predicted in predictions.items()
    ]
