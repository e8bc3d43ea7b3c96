"""Errors, rankings and baselines."""

from fedmmf.evaluation.accuracy import mae, rmse, scored
from fedmmf.evaluation.baselines import mean_predictions
from fedmmf.evaluation.ranking import ndcg, recall

__all__ = ["mae", "mean_predictions", "ndcg", "recall", "rmse", "scored"]
