"""Errors, rankings and baselines."""

from fedmmf.evaluation.accuracy import mae, rmse, scored
from fedmmf.evaluation.baselines import RatingMeans
from fedmmf.evaluation.paired import PairedDifference, paired_difference
from fedmmf.evaluation.ranking import METRICS, CutOff, ListTally, cut_offs, surprise

__all__ = [
    "METRICS",
    "CutOff",
    "ListTally",
    "PairedDifference",
    "RatingMeans",
    "cut_offs",
    "mae",
    "paired_difference",
    "rmse",
    "scored",
    "surprise",
]
