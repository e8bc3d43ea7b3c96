"""Factorization of the masked ratings: solvers by name, each with both its halves.

`sgd` is the paper's, `vb` the variational one; equations in plain numpy. Kernels that compute the
party's half for all users at once are an engine's business.
"""

from fedmmf.registry import Registry
from fedmmf.solvers.contract import Solver

SOLVERS: Registry[Solver] = Registry(
    "solver",
    "fedmmf.solvers",
    {"sgd": "fedmmf.solvers.sgd:SGD", "vb": "fedmmf.solvers.vb:VB"},
)

__all__ = ["SOLVERS", "Solver"]
