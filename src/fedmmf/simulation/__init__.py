"""A federation worked out in one process: with an engine instead of messages, or with both.

It shows what a federation would give. It holds everybody's ratings and protects nobody.
"""

from fedmmf.simulation.crowd import SimulatedCrowd
from fedmmf.simulation.federation import LocalFederation, train_real
from fedmmf.simulation.prepared import Prepared, Progress, no_progress, prepare
from fedmmf.simulation.training import Member, Trained, train

__all__ = [
    "LocalFederation",
    "Member",
    "Prepared",
    "Progress",
    "SimulatedCrowd",
    "Trained",
    "no_progress",
    "prepare",
    "train",
    "train_real",
]
