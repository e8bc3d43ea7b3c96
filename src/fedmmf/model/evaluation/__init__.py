"""Errors, rankings and baselines."""

from fedmmf.model.evaluation.accuracy import mae, rmse, scored
from fedmmf.model.evaluation.baselines import RatingMeans
from fedmmf.model.evaluation.ranking import METRICS, CutOff, ListTally, cut_offs, surprise

__all__ = [
    "METRICS",
    "CutOff",
    "ListTally",
    "RatingMeans",
    "cut_offs",
    "mae",
    "rmse",
    "scored",
    "surprise",
]
