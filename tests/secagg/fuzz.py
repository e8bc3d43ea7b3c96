"""Throw broken messages at every decoder: `python tests/secagg/fuzz.py 1000000`.

Half the inputs are noise, half are right messages that were damaged. A decoder may return or raise
`SecAggError`; anything else is a bug. What it returns must be what it would write again.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from oracle import entropy_from, make_setup, run

from fedmmf.secagg import SecAggError, Stage, framing, messages
from fedmmf.secagg.session import Trip
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


def damage(data, entropy):
    """Return a message with a few bytes changed, cut, doubled or put in."""
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
    return bytes(broken)


def fuzz(count, entropy=os.urandom):
    """Try `count` inputs; return how many were accepted and how many refused."""
    cases, accepted = samples(), 0
    for i in range(count):
        setup, decode, sender, right = cases[i % len(cases)]
        noise = entropy(2)
        keep = framing.HEADER_BYTES if noise[1] % 2 else 0
        broken = damage(right, entropy) if noise[0] % 2 else right[:keep] + entropy(noise[0])
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


if __name__ == "__main__":
    how_many = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    taken, refused = fuzz(how_many, entropy_from("fuzz"))
    sys.stdout.write(f"accepted {taken}, refused {refused}\n")
