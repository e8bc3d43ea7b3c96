"""The server: item factors, rounds, who takes part. It takes names, a transport and a catalogue.

It never sees a party or ratings, and imports nothing that knows ratings, features or masks.
"""

from fedmmf.server.federation import FederationServer, ServerPlan
from fedmmf.server.roster import Roster
from fedmmf.server.rounds import Coordinator, Participants, train

__all__ = ["Coordinator", "FederationServer", "Participants", "Roster", "ServerPlan", "train"]
