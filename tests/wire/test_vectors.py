"""Known answers: every message, and one party's side of whole conversations."""

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from wire_party import (
    Digits,
    PageParty,
    catalogue_digest,
    graph_of,
    neighbours,
    newcomer_totals,
    open_sealed,
)
from wire_samples import MESSAGES, from_json, to_json

from fedmmf import wire
from fedmmf.aggregation.homomorphic.messages import HomomorphicKey, Sealed, unseal
from fedmmf.aggregation.secure import messages as secure
from fedmmf.aggregation.secure.server import SecureServer
from fedmmf.aggregation.vector import Limbs
from fedmmf.secagg import RING32, graph
from fedmmf.server.roster import Roster
from fedmmf.transports.in_process import InProcess

HERE = Path(__file__).parents[2] / "spec" / "vectors"
VECTORS = json.loads((HERE / "wire.json").read_text())
BY_NAME = {cls.__name__: cls for cls in MESSAGES}


def load_generator():
    """By its path: spec/ is no package."""
    spec = importlib.util.spec_from_file_location("wire_vectors", HERE / "generate_wire.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generator = load_generator()


def test_the_generator_gives_the_file():
    done = subprocess.run(
        [sys.executable, HERE / "generate_wire.py"],
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    assert done.stdout == (HERE / "wire.json").read_text(encoding="utf-8")


# Messages


def test_every_kind_has_a_vector():
    assert {vector["message"] for vector in VECTORS["messages"]} == set(BY_NAME)


each_vector = pytest.mark.parametrize(
    "vector", VECTORS["messages"], ids=lambda vector: vector["message"]
)


@each_vector
def test_encoding_gives_exactly_the_vector(vector):
    message = from_json(BY_NAME[vector["message"]], vector["fields"])
    assert message.encode().hex() == vector["frame"]


@each_vector
def test_decoding_gives_the_fields_back(vector):
    read = wire.read(bytes.fromhex(vector["frame"]), MESSAGES)
    assert type(read) is BY_NAME[vector["message"]]
    assert to_json(read) == vector["fields"]


@pytest.mark.parametrize("vector", VECTORS["catalogues"])
def test_digests_of_catalogues_are_those_of_the_vectors(vector):
    scale = generator.RatingScale(*vector["scale"])
    found = wire.Catalogue.of(vector["items"], scale, np.array(vector["features"]))
    assert found.digest.hex() == vector["digest"]
    again = catalogue_digest(vector["items"], vector["scale"], vector["features"])
    assert again.hex() == vector["digest"]


def test_the_keepers_box_opens():
    key, inside, sealed = (
        bytes.fromhex(VECTORS["channel"][name]) for name in ("key", "inside", "sealed")
    )
    assert unseal(HomomorphicKey.decode(key), Sealed.decode(sealed)) == inside
    assert open_sealed(key, sealed) == inside
    assert to_json(wire.Layout.decode(inside)) == to_json(generator.layout())


@pytest.mark.parametrize("vector", VECTORS["newcomers"])
def test_totals_of_newcomers_are_those_of_the_page(vector):
    given = [vector[name] for name in ("seen", "mean", "covariance")]
    np.testing.assert_allclose(newcomer_totals(*given), vector["totals"], rtol=1e-12)


# Conversations


each_conversation = pytest.mark.parametrize(
    "vector", VECTORS["conversations"], ids=["three parties", "four that sign"]
)


def pairs(vector):
    return [tuple(map(bytes.fromhex, (e["down"], e["up"]))) for e in vector["exchanges"]]


def drawing(vector):
    """The secrets of the conversation, in order."""
    left = [bytes.fromhex(taken) for taken in vector["drawn"]]

    def draw(size):
        taken = left.pop(0)
        assert len(taken) == size
        return taken

    return draw, left


def names_of(vector):
    return ["ann", "bob", "cid"] if not vector["identity"] else ["ann", "bob", "cid", "dee"]


@each_conversation
def test_a_party_gives_the_answers_of_the_conversation(vector):
    """One party alone, without any server; each parcel twice, since networks repeat."""
    draw, left = drawing(vector)
    number = names_of(vector).index(generator.FOLLOWED)
    with generator.deterministic({number: draw}):
        party = generator.party_of(
            generator.FOLLOWED, names_of(vector), signed=bool(vector["identity"])
        )
        for down, up in pairs(vector):
            assert party.answer(down) == up
            assert party.answer(down) == up
    assert not left


@each_conversation
def test_a_party_written_from_the_page_gives_the_same_answers(vector):
    draw, left = drawing(vector)
    party = page_party(vector["ratings"], draw, bytes.fromhex(vector["identity"]))
    for down, up in pairs(vector):
        assert party.answer(down) == up
    assert not left


def page_party(ratings, draw, identity=b""):
    catalogue = VECTORS["conversations"][0]["catalogue"]
    digest = catalogue_digest(catalogue["items"], catalogue["scale"], catalogue["features"])
    mine = {int(item): rating for item, rating in ratings.items()}
    return PageParty(digest, len(catalogue["items"]), mine, draw, identity)


@each_conversation
def test_conversations_have_all_that_a_secure_sum_is_made_of(vector):
    signed = bool(vector["identity"])
    ups = Counter(up[5] for _, up in pairs(vector))
    kinds = wire.Kind
    assert set(ups) == {
        kinds.JOINED,
        kinds.SECURE_AGREED,
        kinds.SECURE_TRIP,
        kinds.ADOPTED,
        kinds.FINISHED,
    }
    published = [wire.split_parcel(down)[0] for down, _ in pairs(vector)]
    assert [frame[0][5] for frame in published if frame] == [
        kinds.SURVEY,  # counts, then moments
        kinds.SURVEY,
        kinds.LAYOUT,
        *[kinds.SURVEY] * signed,  # of those who sign, ratings as well
        kinds.ROUND,
        kinds.ROUND,
        kinds.ROUND,
    ]
    assert vector["layout"]["items"] == ([0, 1, 3] if signed else [0, 1])
    assert [sums["totals"][0] for sums in vector["sums"][signed:]] == [signed, signed]  # held out
    trips = Counter(up[10] for _, up in pairs(vector) if up[5] == kinds.SECURE_TRIP)
    assert trips == ({1: 9, 2: 5, 3: 9} if signed else {1: 7, 3: 7})


@each_conversation
def test_a_publication_that_did_not_come_is_asked_for(vector):
    """The message without what it names gets `Wanted`; then the whole parcel gets its answer."""
    draw, _ = drawing(vector)
    number = names_of(vector).index(generator.FOLLOWED)
    with generator.deterministic({number: draw}):
        party = generator.party_of(
            generator.FOLLOWED, names_of(vector), signed=bool(vector["identity"])
        )
        for down, up in pairs(vector):
            broadcasts, message = wire.split_parcel(down)
            for broadcast in broadcasts:
                name = wire.name_of(broadcast)
                assert party.answer(message) == wire.Wanted(name).encode()
            assert party.answer(down) == up


# A party written from the page, among others


@pytest.mark.parametrize(("n", "degree"), [(3, 2), (8, 7), (9, 4), (10, 3), (16, 5), (31, 6)])
def test_the_graph_of_the_page_is_that_of_the_code(n, degree):
    for seed in (b"", b"seed", bytes(32)):
        for position in range(n):
            expected = graph.neighbours(n, degree, seed, position)
            assert tuple(neighbours(n, degree, seed, position)) == expected


@pytest.mark.parametrize("signs", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
def test_degree_and_threshold_of_the_page_are_those_of_the_code(batch, signs):
    for n in (*range(4, 60), 100, 200, 500, 943):
        expected = secure.graph_of(n, active=signs, batch=batch)
        assert graph_of(n, batch, signs) == expected


@pytest.mark.parametrize("n_users", [1, 2, 3, 5, 60, 943, 100_000, 2**20, 2**29])
def test_the_digits_of_the_page_are_those_of_the_code(n_users):
    page, code, most = Digits(n_users), Limbs.of(n_users, RING32), 2**53 // n_users
    assert (page.bits, page.count) == (code.bits, code.n)
    for x in (0, 1, -1, most, -most, most - 1, 1 - most, most // 3, -(most // 3)):
        assert page.split(x) == code.split(np.array([x])).ravel().tolist()


def sums_among(others, *, with_page):
    """Two rounds of twelve parties on a sparse graph; one of them may be the page's."""
    names = [f"party {i:02}" for i in range(12)]
    profiles = dict(zip(names, others, strict=True))
    with mock.patch.dict(generator.RATINGS, profiles):
        parties = {name: generator.party_of(name, names, signed=False) for name in names}
    if with_page:
        mine = {str(item): rating for item, rating in profiles["party 04"].items()}
        parties["party 04"] = page_party(mine, generator.Stream("page"))
    roster = Roster(InProcess(parties), names)
    roster.invite(generator.invitation(generator.catalogue_of(generator.ITEMS), "secure"))
    server = SecureServer(generator.desk_of(roster, signed=False))
    server.prepare()
    found = [server.survey_ratings()]
    for number, factors in enumerate(generator.FACTORS[:2], start=1):
        found.append(server.sums(generator.round_of(number, factors, server.layout)))
        assert list(server.survivors) == names
    assert not roster.incidents
    means = [np.mean([r for r in own.values() if not isinstance(r, list)]) for own in others]
    assert server.layout.line[0] == pytest.approx(np.mean(means), rel=1e-9)
    return to_json(server.layout), [generator.sums_vector(sums) for sums in found]


def test_a_party_written_from_the_page_takes_part_in_secure_sums():
    assert graph_of(12, 1, signs=False) == (6, 4)
    others = [list(generator.RATINGS.values())[i % 4] for i in range(12)]
    assert sums_among(others, with_page=True) == sums_among(others, with_page=False)
