"""The estimator, what it has learned, and typed results."""

from fedmmf.model.estimator import FedMMF
from fedmmf.model.learned import Learned
from fedmmf.model.newcomer import Newcomer

__all__ = ["FedMMF", "Learned", "Newcomer"]
