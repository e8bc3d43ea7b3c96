"""What the server sees of one honest party does not depend on that party's vector."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fuzz import fuzz, fuzz_sessions
from oracle import answer, entropy_from, make_clients, make_setup, make_values, run

from fedmmf.secagg import RoundServer, Stage, client
from fedmmf.secagg.framing import HEADER_BYTES

HERE = Path(__file__).parent
VECTORS = HERE.parents[1] / "spec" / "vectors"
SOURCE = HERE.parents[1] / "src" / "fedmmf" / "secagg"
LENGTH = 20_000


def view(values):
    """Return the masked vector of the first party as bytes."""
    setup = make_setup(n=4, length=LENGTH)
    _, sent, clients = run(setup, until=Stage.MASKED_INPUT)
    data = clients[1].masked_input(sent[1], values)
    return np.frombuffer(data[HEADER_BYTES:], np.uint8)


def chi_square(data, cells=256):
    counts = np.bincount(data, minlength=cells)
    mean = len(data) / cells
    return float(((counts - mean) ** 2 / mean).sum())


LIMIT = 255 + 6 * (2 * 255) ** 0.5  # six standard deviations above the mean


@pytest.fixture
def inputs():
    constant = np.zeros(LENGTH, np.uint32)
    ramp = np.arange(LENGTH, dtype=np.uint32) % 100
    return constant, ramp


def test_masked_vectors_are_uniform_and_say_nothing_of_two_very_different_inputs(inputs):
    views = [view(values) for values in inputs]
    for seen in views:
        assert chi_square(seen) < LIMIT
        assert chi_square(seen[:-1] ^ seen[1:]) < LIMIT  # neighbours are independent too
    for seen, values in zip(views, inputs, strict=True):
        low = seen[::4]
        for i in range(0, 100, 25):
            assert chi_square(low[values == values[i]]) < LIMIT  # given the input, still uniform


def test_the_same_test_fails_without_masks(inputs, monkeypatch):
    monkeypatch.setattr(client, "apply_masks", lambda *_: None)
    assert all(chi_square(view(values)) > 10 * LIMIT for values in inputs)


@pytest.mark.parametrize("kept", ["self", "pair"])
def test_either_mask_alone_hides_the_vector(inputs, kept, monkeypatch):
    """Self mask alone: all peers dropped. Pairwise masks alone: the self mask was recovered."""
    real = client.apply_masks

    def only(vector, ring, added, subtracted):
        if kept == "self":
            real(vector, ring, added[-1:], ())
        else:
            real(vector, ring, added[:-1], subtracted)

    monkeypatch.setattr(client, "apply_masks", only)
    assert all(chi_square(view(values)) < LIMIT for values in inputs)


def test_all_other_messages_of_a_party_are_the_same_for_any_input():
    setup = make_setup(n=4)
    transcripts = []
    for tag in ("one", "two"):
        clients, values, server = make_clients(setup), make_values(setup, tag), RoundServer(setup)
        sent, seen = dict.fromkeys(setup.parties, b""), []
        while server.stage is not Stage.DONE:
            stage = server.stage
            for party, data in sent.items():
                reply = answer(clients[party], stage, data, values[party])
                server.receive(party, reply)
                if stage is not Stage.MASKED_INPUT:
                    seen.append(reply)
            if stage is Stage.UNMASK:
                server.result()
            else:
                sent = server.next_messages()
        transcripts.append(seen)
    assert transcripts[0] == transcripts[1]


def test_known_answers_have_not_changed():
    order = [sys.executable, VECTORS / "generate_secagg.py"]
    done = subprocess.run(order, capture_output=True, check=True, encoding="utf-8")
    assert done.stdout == (VECTORS / "secagg.json").read_text(encoding="utf-8")


def test_decoders_survive_noise():
    accepted, refused = fuzz(6000, entropy_from("fuzz in the suite"))
    assert accepted > 50
    assert refused > 4000


def test_live_sessions_survive_a_siege():
    met = fuzz_sessions(6000, entropy_from("siege in the suite"))
    assert met["refused"] > 4000
    assert met["late"] > 100
    assert met["accepted"] > 500


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.name)
def test_no_file_imports_a_clock_or_a_generator_that_is_not_for_secrets(path):
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Attribute):
            names.add(ast.unparse(node))
    wrong = ("random", "numpy.random", "np.random", "time", "datetime")
    assert not [n for n in names if n in wrong or n.startswith(tuple(f"{w}." for w in wrong))]
    own = {n for n in names if n.startswith("fedmmf.")}
    allowed = ("fedmmf.secagg", "fedmmf.errors", "fedmmf.arrays", "fedmmf.wire.codec")
    assert not [n for n in own if not n.startswith(allowed)]
