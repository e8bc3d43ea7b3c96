"""A federation worked out in one process, with an engine instead of messages.

A simulation is one `UserGroup` of everybody, the class that parties use, and simulated aggregation.
It shows what a federation would give. It holds everybody's ratings and protects nobody.
"""

from fedmmf.simulation.parties import SimulatedParties
from fedmmf.simulation.prepared import Prepared, prepare
from fedmmf.simulation.real import train_real
from fedmmf.simulation.training import Trained, train

__all__ = [
    "Prepared",
    "SimulatedParties",
    "Trained",
    "prepare",
    "train",
    "train_real",
]
