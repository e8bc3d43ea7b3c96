"""What one bundle costs whoever reads it: `python tests/security/hostile_answers.py KIND`.

Each kind is a bundle that somebody made to be expensive, of 1, 8 and 64 MB. It goes the way of all
bundles: through `Sites` and `Roster` to the sum at the server, or to real parties at a site. For
each size the program prints the bytes that came and the bytes by which the process grew at its
peak, those that came among them.
"""

import json
import re
import resource
import struct
import sys
from pathlib import Path

import numpy as np

from fedmmf.aggregation.secure.messages import SecureTrip
from fedmmf.data.synthetic import synthetic
from fedmmf.errors import FedMMFError
from fedmmf.federation.charter import Charter
from fedmmf.federation.hello import PROTOCOL, Hello
from fedmmf.federation.local import LocalFederation, make_parties
from fedmmf.federation.sites import Admission, Sites
from fedmmf.secagg import SessionServer, Setup, framing, messages
from fedmmf.secagg.session import Trip, setup_of
from fedmmf.server.roster import Roster
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf.transports.bundles import unpack
from fedmmf.transports.in_process import InProcess
from fedmmf.wire import Adopt, Finished, Refused, Round, Update
from fedmmf.wire.frames import NO_NAME

SIZES = (1 << 20, 8 << 20, 64 << 20)
MOST = 3 << 30  # bytes of address space above what the process has: more is out of the question
N_PARTIES = 16


# Bundles, written by hand: `pack` writes no hostile ones


def sized(data, update_shape="<I"):
    return struct.pack(update_shape, len(data)) + data


def entry(name, message, place=0):
    return sized(name.encode(), "<H") + struct.pack("<I", place) + sized(message)


def bundle(broadcasts, entries):
    counted = [struct.pack("<I", len(broadcasts)), *map(sized, broadcasts)]
    return b"".join((*counted, struct.pack("<I", len(entries)), *entries))


def name_of(number):
    return f"a/{number:06}"


def shared_publication(size):
    """One broadcast that 1,024 entries refer to."""
    answer = Finished().encode()
    return bundle([bytes(size)], [entry(name_of(n), answer, place=1) for n in range(1024)])


def shared_by_the_asked(size):
    answer = Finished().encode()
    return bundle([bytes(size)], [entry(name_of(n), answer, place=1) for n in range(N_PARTIES)])


def many_strangers(size):
    return bundle([], [entry(f"b/{n:06}", bytes(size // 1024)) for n in range(1024)])


def many_entries(size):
    return struct.pack("<II", 0, size // 11) + entry("a", b"") * (size // 11 + 1)


def many_publications(size):
    return struct.pack("<I", size // 4) + bytes(size)


def refusals(size):
    text = Refused("x" * 1000).encode()
    return bundle([], [entry(name_of(n), text) for n in range(N_PARTIES)] + [bytes(size)])


def one_long_trip(size):
    return bundle([], [entry(name_of(0), SecureTrip(1, NO_NAME, bytes(size)).encode())])


def an_update_instead(size):
    n = size // 4
    update = Update(1, np.arange(n, dtype=np.int32), *_empty(n))
    return bundle([], [entry(name_of(0), update.encode())])


def _empty(n):
    return np.zeros(0, np.uint32), np.zeros((n, 1), np.float32)[:0], np.zeros(0)


def a_long_vector(size):
    """A message of the protocol that is right in all but its length."""
    setup = session_setup()
    head = framing.frame(setup_of(setup, 1), messages.Advertise.kind, 0, bytes(size))
    trip = Trip(1, 0, b"", head).encode(setup)
    return bundle([], [entry(name_of(0), SecureTrip(1, NO_NAME, trip).encode())])


def a_long_table(size):
    """Shares for ever more holders."""
    setup, step = session_setup(), struct.Struct(f"<I{messages.BOX_BYTES}x")
    table = bytearray(32)
    for party in range(size // step.size):
        table += step.pack(party)
    part = framing.frame(setup_of(setup, 1), messages.Shares.kind, 0, bytes(table))
    trip = Trip(1, 0, b"", part).encode(setup)
    return bundle([], [entry(name_of(0), SecureTrip(1, NO_NAME, trip).encode())])


ANSWERS = (
    shared_publication,
    shared_by_the_asked,
    many_strangers,
    many_entries,
    many_publications,
    refusals,
    one_long_trip,
    an_update_instead,
    a_long_vector,
    a_long_table,
)


def to_a_site(size):
    """A server's bundle: what is published is legitimate there, and shared by all parties."""
    rows = np.zeros((size // 8, 2), np.float32)
    frame = Round(1, 0, False, 2, np.zeros(4), rows).encode()
    question = Adopt(NO_NAME).encode()
    return bundle([frame], [entry(f"{n:06}", question, place=1) for n in range(N_PARTIES)])


# Those who read them


def session_setup():
    return Setup(bytes(16), tuple(range(N_PARTIES)), 9, 8)


class Link:
    """Everybody is connected; a site answers what it is told to, and keeps nothing."""

    def __init__(self):
        self.answers = []

    def is_connected(self, name):
        return True

    def ask(self, topic, questions, timeout):
        return {"a": self.answers.pop()}


def server_side():
    charter = Charter.checked(
        name="test",
        sites=("a", "b", "c"),
        party="user",
        max_parties_per_site=1000,
        training=Settings(),
    )
    link = Link()
    sites = Sites(link, Admission(charter, bytes(32), None), lambda: None)
    hello = Hello(
        protocol=PROTOCOL,
        version="0",
        charter=charter.digest.hex(),
        catalogue=bytes(32).hex(),
        identity="",
        instance="01",
        parties=N_PARTIES,
        users=N_PARTIES,
    )
    sites.hello("a", hello.encode())
    names = sites.parties(["a"])
    assert names == [name_of(n) for n in range(N_PARTIES)]

    def take(data):
        roster, protocol = Roster(sites, names), SessionServer(session_setup())
        asked = {
            names[number]: SecureTrip(1, NO_NAME, trip) for number, trip in protocol.first().items()
        }
        link.answers.append(data)
        del data
        for name, reply in roster.ask("trip 1", asked, SecureTrip).items():
            try:
                protocol.receive(names.index(name), reply.data)
            except FedMMFError as error:
                roster.refuse(name, str(error))

    return take


def site_side():
    ratings = synthetic(N_PARTIES, 12, 130, min_per_user=5, seed=5)
    settings = Settings(mask="mean", factors=2, rounds=2, min_raters=1, held_out=0.1)
    run = prepare(ratings, settings)
    parties = make_parties(run.ratings, settings, run.is_held_out, run.features.statistics)
    LocalFederation.among(run.plan, parties, InProcess(parties)).invite()

    def take(data):
        for name, message in unpack(data).items():
            assert Refused.decode(parties[name].answer(message)).reason

    return take


# What it costs


def memory(what):
    """VmRSS, as it is, or VmHWM, its peak since the last `forget_peak`; bytes."""
    (kilobytes,) = re.findall(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(kilobytes) << 10


def forget_peak():
    Path("/proc/self/clear_refs").write_text("5")


def cost(take, make, size):
    take(make(1 << 12))  # what is loaded or made once
    before = memory("VmRSS")
    data = [make(size)]
    n_bytes = len(data[0])
    forget_peak()
    take(data.pop())
    return {"bytes": n_bytes, "grown": memory("VmHWM") - before}


def main(kind):
    """Print what each size costs."""
    makers = {make.__name__: make for make in (*ANSWERS, to_a_site)}
    take = site_side() if kind == to_a_site.__name__ else server_side()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST, used + MOST))
    print(json.dumps([cost(take, makers[kind], size) for size in SIZES]))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
