"""A second, slow, obvious version of the arithmetic, and drivers that run whole rounds."""

from hashlib import sha256

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fedmmf.secagg import RoundClient, RoundServer, Setup, Stage, least_threshold, public_identity
from fedmmf.secagg.ring import RING32


def entropy_from(text):
    """Return a source of bytes that a text fixes."""
    state = {"count": 0, "left": b""}

    def entropy(size):
        while len(state["left"]) < size:
            state["left"] += sha256(f"{text}/{state['count']}".encode()).digest()
            state["count"] += 1
        taken, state["left"] = state["left"][:size], state["left"][size:]
        return taken

    return entropy


def identity_of(party):
    return sha256(f"identity {party}".encode()).digest()


def make_setup(n=5, threshold=None, length=7, ring=RING32, round_id=b"round", active=False, **more):
    parties = tuple(3 * i + 1 for i in range(n))
    holders = n if more.get("neighbours") is None else more["neighbours"] + 1
    threshold = threshold or least_threshold(holders, active=active)
    if active:
        more["identities"] = tuple(public_identity(identity_of(p)) for p in parties)
    return Setup(round_id, parties, threshold, length, ring=ring, active=active, **more)


def make_clients(setup, tag="client"):
    return {
        party: RoundClient(
            setup,
            party,
            entropy=entropy_from(f"{tag} {setup.round_id.hex()} {party}"),
            identity=identity_of(party) if setup.active else None,
        )
        for party in setup.parties
    }


def make_values(setup, tag="values"):
    entropy = entropy_from(tag)
    modulus = setup.ring.modulus
    return {
        party: np.array(
            [int.from_bytes(entropy(16), "big") % modulus for _ in range(setup.length)],
            setup.ring.dtype,
        )
        for party in setup.parties
    }


def checked(setup, data):
    """Return a message with the check that fits it, by the documentation alone."""
    check = AESGCM(setup.context).encrypt(bytes(12), b"", data[:26] + data[42:])
    return data[:26] + check + data[42:]


def plain_sum(setup, values, survivors):
    """Add one entry after the other with Python's integers."""
    return [
        sum(int(values[p][i]) for p in survivors) % setup.ring.modulus for i in range(setup.length)
    ]


def answer(client, stage, data, values):
    if stage is Stage.ADVERTISE:
        return client.advertise()
    if stage is Stage.SHARE_KEYS:
        return client.share_keys(data)
    if stage is Stage.MASKED_INPUT:
        return client.masked_input(data, values)
    if stage is Stage.CONFIRM:
        return client.confirm(data)
    return client.unmask(data)


def run(setup, values=None, drops=None, until=None):
    """Run a round; `drops` maps a party to the first stage it does not answer.

    Returns the server and, at the end or when `until` is reached, what was sent for that stage.
    """
    clients = make_clients(setup)
    values = values or make_values(setup)
    drops, server = drops or {}, RoundServer(setup)
    sent = dict.fromkeys(setup.parties, b"")
    while server.stage is not until:
        stage = server.stage
        for party, data in sent.items():
            if party not in drops or stage < drops[party]:
                server.receive(party, answer(clients[party], stage, data, values[party]))
        if stage is Stage.UNMASK:
            return server, server.result(), clients
        sent = server.next_messages()
    return server, sent, clients


def finish(server, sent, clients, values):
    """Finish a round from where it stands; return its sum."""
    while True:
        stage = server.stage
        for party, data in sent.items():
            server.receive(party, answer(clients[party], stage, data, values[party]))
        if stage is Stage.UNMASK:
            return server.result()
        sent = server.next_messages()


def slow_secret(points, shares, prime):
    """Interpolate at zero, one factor at a time, each division by Fermat's little theorem."""
    secret = 0
    for i, x in enumerate(points):
        weight = 1
        for j, other in enumerate(points):
            if j != i:
                weight = weight * other * pow(other - x, prime - 2, prime) % prime
        secret = (secret + weight * shares[i]) % prime
    return secret


def is_prime(n, rounds=40):
    """Miller and Rabin, with fixed bases."""
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in range(2, 2 + rounds):
        x = pow(base, odd, n)
        if x in (1, n - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True


def boxed(sender, receiver, text):
    """The box in which a party sends a text as the shares for another."""
    peer = receiver.party
    return sender._seal(peer, sender._peers[peer], sender._agreed[peer], text)
