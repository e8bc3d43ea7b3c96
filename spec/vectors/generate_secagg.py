"""Write known answers for everything that must not change between versions.

`python spec/vectors/generate_secagg.py` prints secagg.json; a test compares the two.
"""

import json
import sys
from hashlib import sha256
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "secagg"))

from oracle import answer, entropy_from, make_clients, make_setup, make_values

from fedmmf.secagg import PRIME61, RING32, RING64, RoundServer, Stage, prg, shamir
from fedmmf.secagg.graph import neighbours
from fedmmf.secagg.keys import End, KeyPair, channel_key, pair_seed, seal, self_seed

RINGS = (RING32, RING64, PRIME61)


def generate():
    """Return all vectors as a dictionary."""
    return {
        "prg": {r.name: words(prg.expand(bytes(range(32)), r, 6)) for r in RINGS},
        "shamir": shamir_vector(),
        "keys": key_vector(),
        "graph": [list(neighbours(9, 4, b"seed", i)) for i in range(9)],
        "contexts": [make_setup(active=active).context.hex() for active in (False, True)],
        "round": transcript(make_setup(n=4, length=5)),
        "round graph prime": transcript(make_setup(n=7, length=5, ring=PRIME61, neighbours=4)),
        "round active": transcript(make_setup(n=4, length=5, ring=RING64, active=True)),
    }


def words(values):
    return [int(value) for value in values]


def shamir_vector():
    secrets = [bytes(range(32)), bytes(range(100, 132))]
    shares = shamir.share(secrets, 3, (1, 2, 4, 9), entropy_from("shamir"))
    return {str(point): share.hex() for point, share in shares.items()}


def key_vector():
    one, other = KeyPair.from_secret(bytes(range(32))), KeyPair.from_secret(bytes(range(32, 64)))
    secret, context = one.agree(other.public), sha256(b"context").digest()
    ends = End(5, one.public), End(9, other.public)
    key = channel_key(secret, context, *ends)
    return {
        "agreed": secret.hex(),
        "pair": pair_seed(secret, context, *ends).hex(),
        "self": self_seed(secret, context, 5).hex(),
        "channel": key.hex(),
        "box": seal(key, b"text", context, 5, 9).hex(),
    }


def transcript(setup):
    """Return a digest of each party's answers, and the sum, when the second party drops out."""
    clients, values, server = make_clients(setup), make_values(setup), RoundServer(setup)
    sent, digests = dict.fromkeys(setup.parties, b""), {}
    while True:
        stage = server.stage
        for party, data in sent.items():
            if stage < Stage.MASKED_INPUT or party != setup.parties[1]:
                reply = answer(clients[party], stage, data, values[party])
                digests[f"{stage.title} {party}"] = sha256(data + reply).hexdigest()
                server.receive(party, reply)
        if stage is Stage.UNMASK:
            return {"digests": digests, "sum": words(server.result())}
        sent = server.next_messages()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(generate(), indent=1) + "\n")
