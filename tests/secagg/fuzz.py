"""Throw broken messages at decoders and at live sessions: `python tests/secagg/fuzz.py 1000000`.

Decoders: half the inputs are noise, half are right messages that were damaged. A decoder may return
or raise `SecAggError`; anything else is a bug. What it returns must be what it would write again.

Sessions: parties and servers in the middle of rounds get messages that are damaged, cut, forged,
swapped, replayed or out of turn. They may take one or raise an error of the project; anything else
is a bug, and so is any trace that a refused message leaves. Whoever refused goes on with the
session, whose sums must stay exact.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from oracle import checked, entropy_from, identity_of, make_setup, make_values, plain_sum, run

from fedmmf.errors import FedMMFError
from fedmmf.secagg import (
    PRIME61,
    RING32,
    BelowThresholdError,
    Receipt,
    RoundClient,
    RoundServer,
    SecAggError,
    SessionClient,
    SessionServer,
    Setup,
    Stage,
    framing,
    messages,
)
from fedmmf.secagg.keys import KeyPair
from fedmmf.secagg.session import TRIP_BYTES, Trip, setup_of
from fedmmf.secagg.setup import SERVER

KINDS = [
    messages.Advertise, messages.Keys, messages.Shares, messages.Boxes, messages.Masked,
    messages.Survivors, messages.Confirmed, messages.Request, messages.Revealed,
]  # fmt: skip
FROM_PARTY = {1, 3, 5, 7, 9}


def samples():
    """Return (setup, decoder, sender, a right message) for every message of both variants."""
    found = []
    for active in (False, True):
        setup = make_setup(n=4, length=3, active=active)
        recorded = record(setup)
        for kind in KINDS:
            sender = setup.parties[1] if kind.kind in FROM_PARTY else SERVER
            if kind.kind in recorded:
                found.append((setup, kind.decode, sender, recorded[kind.kind]))
        trip = Trip(1, 3, recorded[1], recorded[5]).encode(setup)
        found.append((setup, Trip.decode, SERVER, trip))
    return found


def record(setup):
    """Return one message of each kind from a real round, as party 1 saw it."""
    party, seen = setup.parties[1], {}
    for stage in (Stage.SHARE_KEYS, Stage.MASKED_INPUT, Stage.CONFIRM, Stage.UNMASK):
        if stage is Stage.CONFIRM and not setup.active:
            continue
        _, sent, _ = run(setup, until=stage)
        seen[framing.kind_of(setup, SERVER, sent[party])] = sent[party]
    for data in answers(setup, party):
        seen[framing.kind_of(setup, party, data)] = data
    return seen


def answers(setup, party):
    """Return what a party sends in a round."""
    from oracle import answer, make_clients, make_values

    values, sent = make_values(setup)[party], b""
    client = make_clients(setup)[party]
    for stage in Stage:
        if stage >= Stage.DONE or (stage is Stage.CONFIRM and not setup.active):
            continue
        if stage is not Stage.ADVERTISE:
            sent = run(setup, until=stage)[1][party]
        yield answer(client, stage, sent, values)


def damage(data, entropy, setup=None):
    """Return a message of a setup with a few bytes changed, cut, doubled or put in."""
    broken = bytearray(data)
    for _ in range(1 + entropy(1)[0] % 3):
        at = int.from_bytes(entropy(3), "big") % (len(broken) + 1)
        choice = entropy(1)[0] % 5
        if choice == 0 and at < len(broken):
            broken[at] ^= entropy(1)[0] or 1
        elif choice == 1:
            del broken[at:]
        elif choice == 2:
            broken[at:at] = entropy(1 + entropy(1)[0] % 8)
        elif choice == 3:
            broken += broken[at:]
        else:
            del broken[at : at + 1 + entropy(1)[0] % 40]
    return mended(bytes(broken), entropy, setup)


def mended(data, entropy, setup=None):
    """Return a message, often with the check that fits it: what lies behind it is tried as well."""
    fits = setup and len(data) >= framing.HEADER_BYTES and data[:4] == b"FMSA" and entropy(1)[0] % 4
    return checked(setup, data) if fits else data


def fuzz(count, entropy=os.urandom):
    """Try `count` inputs; return how many were accepted and how many refused."""
    cases, accepted = samples(), 0
    for i in range(count):
        setup, decode, sender, right = cases[i % len(cases)]
        noise = entropy(2)
        keep = framing.HEADER_BYTES if noise[1] % 2 else 0
        made = mended(right[:keep] + entropy(noise[0]), entropy, setup)
        broken = damage(right, entropy, setup) if noise[0] % 2 else made
        try:
            message = decode(setup, sender, broken)
        except SecAggError:
            continue
        accepted += 1
        again = (
            message.encode(setup) if isinstance(message, Trip) else message.encode(setup, sender)
        )
        if again != broken:
            raise AssertionError(f"{decode} read what it does not write: {broken.hex()}")
    return accepted, count - accepted


MACHINES = SessionClient, SessionServer, RoundClient, RoundServer
TRIPS = "first", "check", "second"


def picture(value):
    """Return all that an object holds, down to the bytes, as something that can be compared."""
    for kinds, draw in PICTURES:
        if isinstance(value, kinds):
            return draw(value)
    raise TypeError(f"{type(value)} is not in the picture")


PICTURES = [
    (bytes | str | int | set | frozenset | Enum | Exception | None, lambda value: value),
    (Setup, lambda value: value.context),
    (KeyPair, lambda value: (value.secret, value.public)),
    (messages.Advertise | messages.Shares | messages.Request | messages.Revealed, repr),
    (np.ndarray, lambda value: (value.dtype.str, value.shape, value.tobytes())),
    (dict, lambda value: [(picture(key), picture(entry)) for key, entry in value.items()]),
    (list | tuple, lambda value: [type(value), *map(picture, value)]),
    (MACHINES, lambda value: (type(value), picture(vars(value)))),
    (Callable, id),
]


def twin(value, known=None):
    """Return a copy that shares nothing which could change."""
    known = {} if known is None else known
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, MACHINES):
        known[id(value)] = made = object.__new__(type(value))
        vars(made).update(twin(vars(value), known))
        return made
    if isinstance(value, dict):
        return {twin(key, known): twin(entry, known) for key, entry in value.items()}
    if isinstance(value, set | np.ndarray):
        return value.copy()
    return value


class Siege:
    """A session of four parties whose every message is preceded by wrong ones.

    Args:
        setup: of the session.
        entropy: decides what is thrown.
        tally: counts what was accepted and refused.
    """

    def __init__(self, setup, entropy, tally):
        self.setup, self.entropy, self.tally = setup, entropy, tally
        self.server, self.seen = SessionServer(setup), []
        self.clients = {
            party: SessionClient(
                setup,
                party,
                entropy=entropy_from(f"siege {party}"),
                identity=identity_of(party) if setup.active else None,
            )
            for party in setup.parties
        }

    def run_round(self, number):
        """Run one round, in which some parties miss a trip; check its sum."""
        values = make_values(self.setup, f"siege {number}")
        gone = {party for party in self.setup.parties if self.draw(12) == 0}
        since = self.draw(3)
        for trip in TRIPS if self.setup.active else TRIPS[::2]:
            for party, data in getattr(self.server, trip)().items():
                if party in gone and TRIPS.index(trip) >= since:
                    continue
                more = {"values": values[party]} if trip == "first" else {}
                self.server_receives(party, self.client_answers(party, trip, data, more))
        try:
            total = self.server.result()
        except BelowThresholdError:
            return
        if total is not None:
            wanted = plain_sum(self.setup, values, self.server.survivors)
            if total.tolist() != wanted:
                raise AssertionError("a refused message left a trace in the sum")

    def client_answers(self, party, trip, data, more):
        """Let a party answer, after wrong messages."""
        for wrong in self.wrong(data):
            method = trip if self.draw(4) else TRIPS[self.draw(3)]
            arguments = {"values": np.zeros(self.setup.length, self.setup.ring.dtype)}
            arguments = (more or arguments) if method == "first" else {}
            self.clients[party] = self.throw(self.clients[party], method, wrong, arguments)
        if more:
            short = {"values": more["values"][1:]}
            self.clients[party] = self.throw(self.clients[party], trip, data, short)
        self.seen.append(data)
        return getattr(self.clients[party], trip)(data, **more)

    def server_receives(self, party, data):
        """Let the server take an answer, after wrong messages and from wrong parties."""
        for wrong in self.wrong(data):
            sender = party if self.draw(4) else self.draw(16)
            self.server = self.throw(self.server, "receive", wrong, {"party": sender})
        self.seen.append(data)
        self.server.receive(party, data)

    def throw(self, machine, method, data, arguments):
        """Try a message on a copy; return the copy if it refused, and the original otherwise."""
        before, copied = picture(machine), twin(machine)
        call = partial(getattr(copied, method), **arguments)
        try:
            receipt = call(data=data)
        except FedMMFError:
            self.tally["refused"] += 1
        except Exception as error:
            raise AssertionError(f"{method} fails with {error!r} at {data.hex()}") from error
        else:
            self.tally["late" if receipt is Receipt.LATE else "accepted"] += 1
            if receipt is not Receipt.LATE:
                return machine
        if picture(copied) != before:
            raise AssertionError(f"{method} refuses but is changed by {data.hex()}")
        return copied

    def wrong(self, data):
        """Yield a few messages that are not the one given."""
        for _ in range(self.draw(4)):
            message = Trip.decode(self.setup, SERVER, data)
            part = "current" if (message.current and self.draw(2)) else "following"
            given, setup = getattr(message, part), self.setup_of(message, part)
            other = self.seen[self.draw(len(self.seen))] if self.seen else data
            swapped = getattr(Trip.decode(self.setup, SERVER, other), part)
            found = (
                damage(data, self.entropy, setup),
                replace(message, **{part: damage(given, self.entropy, setup)}).encode(self.setup),
                replace(message, **{part: self.flipped(given, setup)}).encode(self.setup),
                replace(message, **{part: swapped}).encode(self.setup),
                replace(message, **{part: b""}).encode(self.setup),
                replace(message, number=self.number(message)).encode(self.setup),
                replace(message, trip=1 + self.draw(3)).encode(self.setup),
                data[:TRIP_BYTES] + self.entropy(self.draw(60)),
                other,
            )
            chosen = found[self.draw(len(found))]
            if chosen != data:
                yield chosen

    def setup_of(self, message, part):
        """Return the setup of the round that a part of a message belongs to."""
        return setup_of(self.setup, min(message.number + (part == "following"), 2**32 - 1))

    def flipped(self, part, setup):
        """Return a part with one bit changed behind its header."""
        if len(part) <= framing.HEADER_BYTES:
            return part
        body = len(part) - framing.HEADER_BYTES
        at = framing.HEADER_BYTES + int.from_bytes(self.entropy(3), "big") % body
        broken = part[:at] + bytes([part[at] ^ 1 << self.draw(8)]) + part[at + 1 :]
        return mended(broken, self.entropy, setup)

    def number(self, message):
        """Return a number of a round, near or far."""
        some = message.number + 1, abs(message.number - 1), 2**32 - 2, 2**32 - 1, self.draw(200)
        return some[self.draw(len(some))]

    def draw(self, below):
        return int.from_bytes(self.entropy(2), "big") % below


def fuzz_sessions(count, entropy=os.urandom):
    """Throw at least `count` messages at sessions; return how many met which answer."""
    tally, begun = Counter(), 0
    while sum(tally.values()) < count:
        ring = (RING32, PRIME61)[begun // 2 % 2]
        setup = make_setup(n=4, length=3, round_id=b"siege", ring=ring, active=begun % 2 == 1)
        siege = Siege(setup, entropy, tally)
        for number in range(4):
            siege.run_round(number)
        begun += 1
    return tally


if __name__ == "__main__":
    how_many = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    taken, refused = fuzz(how_many, entropy_from("fuzz"))
    sys.stdout.write(f"decoders: accepted {taken}, refused {refused}\n")
    answers_met = dict(fuzz_sessions(how_many, entropy_from("fuzz")))
    sys.stdout.write(f"sessions: {answers_met}\n")
