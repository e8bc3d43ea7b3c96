"""A party holds the server to its charter: whatever an invitation says follows from that."""

from dataclasses import replace

import numpy as np
import pytest
from federations import settings_of

from fedmmf.aggregation.secure.messages import SecureSetup
from fedmmf.data.synthetic import synthetic
from fedmmf.engines.reference import NUMPY
from fedmmf.errors import CheckpointError, FedMMFError
from fedmmf.federation.local import Holdings, LocalFederation, make_parties, make_silos
from fedmmf.simulation import prepare
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.vb.shapes import write_variant
from fedmmf.wire import Joined, Refused, parcel, read

VB = {"solver": "vb", "mask": "lr", "implicit_prior": "users", "objective": "rating"}


@pytest.fixture(scope="module")
def run():
    ratings = synthetic(40, 30, 500, min_per_user=5, seed=3)
    return prepare(ratings, settings_of("secure", held_out=0.0, **VB))


def answer_to(run, **lies):
    (party, *_) = make_parties(run.ratings, run.settings).values()
    message = replace(run.plan.invitation(), **lies)
    return read(party.answer(parcel(message)), (Joined, Refused)), party


def variant(run, **changes):
    """That of the run, but for some words."""
    words = dict(word.split("=") for word in run.plan.variant.split(" "))
    known = {name: int(words[name]) for name in ("profile", "design", "levels", "joint")}
    return write_variant(**{"implicit": words["implicit"], **known, **changes})


def test_what_the_charter_says_is_accepted(run):
    answer, party = answer_to(run)
    assert isinstance(answer, Joined)
    assert party.invitation is not None


LIES = {
    "rounds": (lambda run: {"rounds": 4_000_000_000}, "highest round number", 106, 4_000_000_000),
    "rank": (lambda run: {"rank": 200}, "rank", 4, 200),
    "columns": (lambda run: {"columns": 1}, "columns of what users have in common", 16, 1),
    "adaptive": (lambda run: {"sums": "adaptive"}, "aggregation scheme", "secure", "adaptive"),
    "homomorphic": (
        lambda run: {"sums": "homomorphic-paillier"},
        "aggregation scheme",
        "secure",
        "homomorphic-paillier",
    ),
    "plain": (lambda run: {"sums": "plain"}, "aggregation scheme", "secure", "plain"),
    "dp": (lambda run: {"sums": "dp"}, "aggregation scheme", "secure", "dp"),
    "minimum": (lambda run: {"minimum": 4}, "smallest cohort", 3, 4),
    "membership rounds": (
        lambda run: {"variant": variant(run, implicit="both")},
        "implicit prior",
        "users",
        "both",
    ),
    "ordinal": (
        lambda run: {"variant": variant(run, levels=5)},
        "levels of the ordinal likelihood",
        0,
        5,
    ),
    "profiles": (
        lambda run: {"variant": variant(run, profile=4096)},
        "columns of profiles",
        0,
        4096,
    ),
    "ranking": (
        lambda run: {"variant": variant(run, design=16, joint=0)},
        "columns of features that rank unrated items",
        0,
        16,
    ),
    "masks alone": (
        lambda run: {"variant": variant(run, joint=0)},
        "columns of features in a joint mask",
        16,
        0,
    ),
    "nonsense": (lambda run: {"variant": "x" * 500}, "implicit prior", "users", "nothing"),
}


@pytest.mark.parametrize("lie", LIES)
def test_anything_else_is_refused_by_name_with_both_values(run, lie):
    lies, name, expected, said = LIES[lie]
    answer, party = answer_to(run, **lies(run))
    assert isinstance(answer, Refused), answer
    words = f"this party expects {name} {expected} by its charter; the server's invitation says "
    assert answer.reason.startswith(f"{words}{said}. Give")
    assert party.invitation is None


def test_another_solver_is_refused_by_name(run):
    bounds = SOLVERS["sgd"].bounds(run.ratings.scale.span)
    lies = {"solver": "sgd", "variant": "", "row_bound": bounds.row, "total_bound": bounds.total}
    answer, _ = answer_to(run, **lies)
    assert "expects solver vb by its charter; the server's invitation says sgd" in answer.reason


def test_a_party_without_a_charter_joins_nothing(run):
    (party, *_) = make_parties(run.ratings, run.settings).values()
    party.expectation = None
    answer = read(party.answer(parcel(run.plan.invitation())), (Joined, Refused))
    assert "has no charter" in answer.reason


def test_a_checkpoint_of_another_charter_is_refused(run):
    _, party = answer_to(run)
    state = party.state()
    other = run.settings.changed(factors=5)
    (default_user, *_) = make_parties(run.ratings, other).values()
    with pytest.raises(CheckpointError, match="expects rank 6 by its charter"):
        default_user.restore(state)


# How many users there are


def setup_said(ratings, settings, lie, cuts=None):
    """What parties say to a set-up of rounds in which the server lies about its users."""
    run = prepare(ratings, settings)
    parties = make_parties(ratings, settings)
    if cuts is not None:
        parties = make_silos(Holdings(ratings, settings), cuts, NUMPY)
    federation = LocalFederation.among(run.plan, parties)
    federation.prepare_sums()
    side, roster = federation.server.side, federation.server.roster
    honest = roster.ask

    def ask(stage, questions, *about, **more):
        lied = {
            name: replace(question, n_users=lie) if isinstance(question, SecureSetup) else question
            for name, question in questions.items()
        }
        return honest(stage, lied, *about, **more)

    roster.ask = ask
    try:
        side.sums(federation.server.coordinator.next_round())
    except FedMMFError:
        return set(roster.refused.values())
    return set()


SIX = {"held_out": 0.0, "min_raters": 1}


@pytest.mark.parametrize(("solver", "factors"), [("sgd", 8), ("vb", 8)])
def test_six_users_refuse_more_columns_than_they_are_whatever_the_server_says(solver, factors):
    ratings = synthetic(6, 12, 60, min_per_user=5, seed=2)
    settings = settings_of("secure", solver=solver, factors=factors, **SIX)
    for lie, reason in ((6, "shows each of them"), (60, "expects 1 users per party")):
        reasons = setup_said(ratings, settings, lie)
        assert reasons
        assert all(reason in said for said in reasons), reasons


@pytest.mark.parametrize(("solver", "factors"), [("sgd", 8), ("vb", 7)])
def test_sites_count_their_own_users_and_one_for_each_other_site(solver, factors):
    """Sites of two users each: the charter does not say how many they have."""
    ratings = synthetic(12, 12, 90, min_per_user=5, seed=2)
    settings = settings_of("secure", solver=solver, factors=factors, **SIX)
    cuts = np.arange(0, 13, 2)
    reasons = setup_said(ratings, settings, 1000, cuts)
    assert reasons
    assert all("a sum over 7 users of rows with 8 numbers" in said for said in reasons), reasons
    fewer = settings.changed(factors=factors - 2)
    assert not setup_said(ratings, fewer, 12, cuts)
    assert all("at least 7 users" in said for said in setup_said(ratings, fewer, 6, cuts))
