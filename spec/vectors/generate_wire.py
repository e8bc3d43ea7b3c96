"""Write known answers for every message, and whole conversations of one party with the server.

`python spec/vectors/generate_wire.py` prints wire.json; a test compares the two. spec/README.md
says how to read it. Numbers are such that no step of a party's arithmetic rounds but those that
the specification defines.
"""

import json
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "wire" / "support"))

from wire_samples import to_json

from fedmmf import wire
from fedmmf.aggregation.adaptive.messages import Collect, Collected
from fedmmf.aggregation.homomorphic.messages import Ciphertexts, HomomorphicKey, seal
from fedmmf.aggregation.secure.messages import SecureAgreed, SecureSetup, SecureTrip, graph_of
from fedmmf.aggregation.secure.server import SecureServer
from fedmmf.aggregation.server_side import ServerContext
from fedmmf.data.rated_items import RatedItems
from fedmmf.data.scales import RatingScale
from fedmmf.masks.fitting import MaskPlan
from fedmmf.party import Expectation, Party, PartyData, Policy
from fedmmf.secagg import SessionClient, public_identity
from fedmmf.server.roster import Roster
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.vb.newcomers import user_totals
from fedmmf.transports.in_process import InProcess
from fedmmf.transports.wrappers import Faulty, Recorded


def generate():
    """Return all vectors as a dictionary."""
    return {
        "catalogues": [catalogue_vector(ids) for ids in (["10", "20", "30", "40"], ["é", "", "b"])],
        "messages": [message_vector(message) for message in messages()],
        "channel": channel_vector(),
        "newcomers": [newcomer_vector(n) for n in (4, 1)],
        "graphs": [graph_vector(*given) for given in GRAPHS],
        "conversations": [
            conversation(["ann", "bob", "cid"], signed=False, lost=None),
            conversation(["ann", "bob", "cid", "dee"], signed=True, lost="dee"),
        ],
    }


class Stream:
    """A source of bytes that a text fixes, and what was drawn from it."""

    def __init__(self, text):
        self._text, self._count, self._left, self.drawn = text, 0, b"", []

    def __call__(self, size):
        while len(self._left) < size:
            self._left += sha256(f"{self._text}/{self._count}".encode()).digest()
            self._count += 1
        taken, self._left = self._left[:size], self._left[size:]
        self.drawn.append(taken.hex())
        return taken


def words(text, size):
    """Bytes that a text fixes."""
    return Stream(text)(size)


# Messages


def message_vector(message):
    name, frame = type(message).__name__, message.encode()
    return {"message": name, "fields": to_json(message), "frame": frame.hex()}


def messages():
    """At least one of every kind."""
    return [
        invitation(catalogue_of(["10", "20", "30", "40"]), "secure"),
        replace(invitation(catalogue_of(["10"]), "secure"), solver="vb", variant=VARIANT),
        wire.Joined(1, b""),
        wire.Joined(250, words("identity", 32)),
        wire.Refused("this party rates 1 to 5, not 1 to 10: 5 ≥ r ≥ 1"),
        wire.Refused("", 3),
        wire.Wanted(words("name", 32)),
        wire.Survey(False),
        wire.Survey(True),
        wire.Round(
            3, 1, False, 2, np.array([2.0, 0.02, 0.5, 0.0, 1.0, 30.0, 1.0, -0.25]), rows_of(3, 2)
        ),
        wire.Round(4, 0, True, 2, np.array([1.25, 1e6, 0.5]), rows_of(1, 5)),
        wire.Ask(words("name", 32)),
        wire.Update(
            3, codes(0, 2, 5), counts(), rows_of(3, 2), np.array([2.0, 0.3125, 1.0, 0.5, -1.5])
        ),
        wire.Update(0, codes(1, 4), counts(1, 7), rows_of(2, 1), np.zeros(0)),
        wire.Update(1, codes(), counts(), np.zeros((0, 3), np.float32), np.array([-0.0])),
        wire.Finish(words("name", 32)),
        wire.Finished(),
        Collect(),
        Collected(codes(3, 9), np.array([0.5, -1.25], np.float32)),
        setup(identities=()),
        survey_setup(),
        setup(identities=tuple(words(f"identity {i}", 32) for i in range(4))),
        SecureAgreed(),
        SecureTrip(1, bytes(32), b""),
        SecureTrip(3, words("name", 32), b"what is inside a trip"),
        homomorphic_key(),
        sealed(),
        Ciphertexts(3, words("ciphertexts", 40)),
        layout(),
        wire.Newcomers(np.array([3.0, -0.25])),
        wire.Adopt(words("name", 32)),
        wire.Adopted(False),
        wire.Adopted(True),
    ]


def invitation(catalogue, sums):
    scale, bounds = catalogue.scale, SOLVERS["sgd"].bounds(catalogue.scale.span)
    return wire.Invitation(
        run=words("run", 16),
        catalogue=catalogue.digest,
        scale_min=scale.min,
        scale_max=scale.max,
        scale_step=scale.step,
        solver="sgd",
        rank=2,
        variant="",
        rounds=2,
        sums=sums,
        row_bound=bounds.row,
        total_bound=bounds.total,
        columns=1,
        minimum=3,
    )


def setup(identities):
    return SecureSetup(
        session=words("session", 16),
        for_survey=False,
        layout=wire.name_of(layout().encode()),
        party=1,
        n_parties=4,
        n_users=10,
        minimum=3,
        batch=2,
        left_out=codes(2),
        identities=identities,
    )


def survey_setup():
    """Of the first survey: there is no layout yet, and nothing is left out."""
    return replace(setup(()), for_survey=True, layout=bytes(32), left_out=codes())


VARIANT = "implicit=both profile=3 design=0 levels=0 joint=0"


def layout():
    return wire.Layout(codes(0, 1, 3), np.array([3.25]), 1.0)


def codes(*items):
    return np.array(items, np.int32)


def counts(*numbers):
    return np.array(numbers, np.uint32)


def rows_of(n, width):
    """Numbers that float32 has exactly, of both signs."""
    return ((np.arange(n * width) - 2) / 8).astype(np.float32).reshape(n, width)


# The catalogue, and the keeper's channel

SCALE = RatingScale(1.0, 5.0, 1.0)


def features_of(n_items):
    return (np.arange(2 * n_items, dtype=np.float64) / 4 - 1).reshape(n_items, 2)


def catalogue_of(ids):
    return wire.Catalogue.of(ids, SCALE, features_of(len(ids)))


def catalogue_vector(ids):
    features = features_of(len(ids)).tolist()
    scale = [SCALE.min, SCALE.max, SCALE.step]
    digest = catalogue_of(ids).digest.hex()
    return {"items": ids, "scale": scale, "features": features, "digest": digest}


def homomorphic_key():
    return HomomorphicKey("paillier-packed", 12, words("channel", 32), words("modulus", 24))


def sealed():
    with mock.patch("os.urandom", Stream("nonce")):
        return seal(homomorphic_key(), 0, layout().encode())


def channel_vector():
    """What opens a `Sealed`."""
    key, inside = homomorphic_key(), layout()
    frames = {"key": key.encode(), "inside": inside.encode(), "sealed": sealed().encode()}
    return {name: frame.hex() for name, frame in frames.items()}


# Totals of newcomers


def newcomer_vector(n):
    """Totals of a user with n ratings, two factors and a joint mask of one column."""
    update_shape = SOLVERS["vb"].update_shape(2, VARIANT.replace("joint=0", "joint=1"))
    seen, mean = rows_of(n, 2).astype(np.float64), np.array([1.0, -0.5, 0.25])
    covariance = np.diag([0.125, 0.5, 0.25]) + 0.0625
    totals = user_totals(update_shape, seen, mean, covariance)
    parts = {"seen": seen, "mean": mean, "covariance": covariance, "totals": totals}
    return {name: part.tolist() for name, part in parts.items()}


# The neighbour graph

GRAPHS = [
    (n, batch, signs)
    for n in (4, 12, 50, 200, 943, 100_000)
    for batch in (1, 3)
    for signs in (False, True)
]


def graph_vector(n, batch, signs):
    degree, threshold = graph_of(n, active=signs, batch=batch)
    known = {"parties": n, "batch": batch, "signed": signs}
    return {**known, "degree": degree, "threshold": threshold}


# Conversations

ITEMS = ["10", "20", "30", "40"]
RATINGS = {  # by item code; a rating in brackets is held out
    "ann": {0: 5, 1: 3, 3: 4},
    "bob": {0: 4, 1: 1, 2: 1, 3: [5]},
    "cid": {0: 3, 1: 5, 3: 2},
    "dee": {1: 4, 3: 1},
}
# Whose side is written down. Item 30 is rated by nobody else, and is in no layout; item 40, which
# he holds out, has enough raters among four, and too few among three.
FOLLOWED = "bob"
# Step sum, gamma, lambda, no prior, no biases, ratings per user; mean of all p_u, its weights.
PLAN = np.array([0.0, 0.25, 0.5, 0.0, 0.0, 3.0, 1.0, 0.0, 1.5, 1.5])
FACTORS = [
    [[1.0, 0.5], [0.5, -0.5], [1.5, 0.25], [0.25, 1.0]],
    [[1.5, 0.25], [1.0, -1.0], [1.5, 0.25], [0.5, 0.5]],
    [[2.0, 0.5], [1.25, -0.5], [1.5, 0.25], [0.75, 0.25]],
]


MIN_RATERS = 2


def conversation(names, *, signed, lost):
    """What one party is sent and answers, and what it draws; `lost` misses round 1."""
    streams = {number: Stream(f"party {number}") for number in range(len(names))}
    with deterministic(streams):
        parties = {name: party_of(name, names, signed=signed) for name in names}
        away = set()
        transport = Recorded(Faulty(InProcess(parties), down=losing(away)))
        roster = Roster(transport, names)
        roster.invite(invitation(catalogue_of(ITEMS), "secure"))
        server = SecureServer(desk_of(roster, signed=signed))
        server.prepare()
        sums = [server.survey_ratings()] if signed else []
        for number, factors in enumerate(FACTORS[:2], start=1):
            away.clear()
            away.update({lost} if number == 1 else ())
            sums.append(server.sums(round_of(number, factors, server.layout)))
        server.finish(round_of(3, FACTORS[2]))
    return {
        "catalogue": catalogue_vector(ITEMS),
        "ratings": RATINGS[FOLLOWED],
        "identity": identity_of(FOLLOWED).hex() if signed else "",
        "drawn": streams[names.index(FOLLOWED)].drawn,
        "exchanges": exchanges_of(transport.seen),
        "raters": server.n_raters.tolist(),
        "layout": to_json(server.layout),
        "sums": [sums_vector(found) for found in sums],
    }


def losing(away):
    """Let the first trip of a sum not reach whoever is away."""

    def down(stage, name, data):
        frame = wire.split_parcel(data)[1]
        is_trip = frame[5] == wire.Kind.SECURE_TRIP and any(frame[11:43])
        return None if is_trip and frame[10] == 1 and name in away else data

    return down


@contextmanager
def deterministic(streams):
    """Let secrets come from streams instead of the operating system."""

    def client(setup, party, *, identity):
        return SessionClient(setup, party, entropy=streams[party], identity=identity)

    with ExitStack() as stack:
        stack.enter_context(mock.patch("os.urandom", Stream("server")))
        stack.enter_context(mock.patch("fedmmf.aggregation.secure.party.SessionClient", client))
        yield


def party_of(name, names, *, signed):
    mine = RATINGS[name]
    held_out = np.array([isinstance(rating, list) for rating in mine.values()])
    ratings = np.array([np.ravel(rating)[0] for rating in mine.values()], np.float64)
    lists = RatedItems.of_one(np.array(list(mine), np.int64))
    catalogue = catalogue_of(ITEMS)
    views = MaskPlan("none").views(features_of(len(ITEMS)))
    data = PartyData(catalogue, views, lists, ratings, held_out)
    policy = Policy(survey_ratings=True)
    if signed:
        trusted = frozenset(public_identity(identity_of(other)) for other in names)
        policy = replace(policy, identity=identity_of(name), trusted=trusted)
    agreed = invitation(catalogue, "secure")
    fields = ("solver", "variant", "rank", "rounds", "sums", "columns", "minimum")
    known = {name: getattr(agreed, name) for name in fields}
    expected = Expectation(**known, min_raters=MIN_RATERS, users_per_party=1)
    return Party(data, MaskPlan("none"), policy, expected)


def identity_of(name):
    return sha256(f"identity {name}".encode()).digest()


def desk_of(roster, *, signed):
    settings = SimpleNamespace(signed=signed, min_raters=MIN_RATERS, batch=1, smallest_cohort=3)
    catalogue, views = catalogue_of(ITEMS), MaskPlan("none").views(np.zeros((4, 0)))
    return ServerContext(roster, catalogue, invitation(catalogue, "secure"), settings, views)


def round_of(number, factors, layout=None):
    """Of the items of a layout; without one, the last: of all items."""
    rows, is_last = np.array(factors, np.float32), layout is None
    rows = rows if is_last else rows[layout.items]
    return wire.Round(number, number - 1, is_last, 2, PLAN, rows)


def exchanges_of(seen):
    """What the followed party was sent, and what it answered."""
    return [
        {
            "down": exchange.sent[FOLLOWED].hex(),
            "up": exchange.received[FOLLOWED].hex(),
        }
        for exchange in seen
        if FOLLOWED in exchange.sent
    ]


def sums_vector(sums):
    return {
        "rows": sums.rows.tolist(),
        "raters": sums.n_raters.tolist(),
        "totals": sums.totals.tolist(),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(generate(), indent=1, ensure_ascii=False) + "\n")
