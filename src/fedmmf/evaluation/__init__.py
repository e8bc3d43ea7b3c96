"""Errors, rankings and baselines."""

from fedmmf.evaluation.accuracy import mae, rmse, scored
from fedmmf.evaluation.baselines import RatingMeans
from fedmmf.evaluation.ranking import ndcg, recall

__all__ = ["RatingMeans", "mae", "ndcg", "recall", "rmse", "scored"]
