"""What sums of many rounds give away together: the span of all of them, and whose lists lie near.

A row that is the same for all items of a user makes the sums of a round, column by column, linear
in the users' lists. Many such rounds span the lists themselves: whoever's list is nearer to that
span than other people's was in the sums. So `vb` has two membership
rounds in a run (`MAX_MEMBERSHIP_ROUNDS`).

An area of 1/2 is a guess. Two looks do say something, and the bounds on them are what was measured
here, with some room: 0.62 by all sums of a run, 0.81 by the two looks alone (ML-100K: 0.72). By
gradients, whose factor of a list is another for every item, it is a guess; by looks in every round
it is 0.99. The attacker knows somebody's whole list and asks whether it was in the sums. All of
this is about lists that are alike, as those of real users are: of lists that are drawn at random
even two looks tell who was in.
"""

from pathlib import Path

import numpy as np
import pytest

from fedmmf.data.synthetic import synthetic
from fedmmf.errors import DivergenceError
from fedmmf.server.rounds import one_round
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf.solvers.vb import party as vb_party
from fedmmf.solvers.vb import server as vb_server

EVERY_ROUND = 1000
AT_CHANCE, BY_ALL_SUMS, BY_TWO_LOOKS, TOLD = 0.56, 0.68, 0.87, 0.95
SEEDS = (1, 2, 3)


class Recording:
    """A crowd whose sums are kept as the server sees them."""

    def __init__(self, crowd):
        self._crowd, self.rows = crowd, []

    def sums(self, round_):
        found = self._crowd.sums(round_)
        self.rows.append(np.asarray(found.rows, np.float64))
        return found


def recorded(ratings, **settings):
    """All sums of rows of a run over the users with even codes, and everybody's lists."""
    run = prepare(ratings.select(ratings.user_codes % 2 == 0), Settings(mask="mean", **settings))
    coordinator, crowd = run.coordinator(), Recording(run.parties())
    while not coordinator.is_finished:
        one_round(coordinator, crowd)
    lists = np.zeros((ratings.n_users, ratings.n_items))
    lists[ratings.user_codes, ratings.item_codes] = 1
    return crowd.rows, lists[:, run.layout.items]


def standardised(values, popularity):
    """Entries of items as far as popularity does not explain them, in its deviations."""
    explain_errors = np.outer(values @ popularity / (popularity @ popularity), popularity)
    return (values - explain_errors) / np.sqrt(popularity * (1 - popularity) + 1e-3)


def area(rows, lists):
    """How often a user who was in the sums is nearer to their span than one who was not.

    The server knows how popular items are, and sets it aside.
    """
    inside, outside = lists[::2], lists[1::2]
    popularity = inside.mean(axis=0)
    columns = standardised(np.hstack(rows).T, popularity).T  # (n_items, n_columns)
    basis, values, _ = np.linalg.svd(columns, full_matrices=False)
    basis = basis[:, values > 1e-6 * values[0]][:, : len(columns) // 2]

    def nearness(some):
        some = standardised(some[some.any(axis=1)], popularity)
        return np.square(some @ basis).sum(axis=1) / np.square(some).sum(axis=1)

    ours, theirs = nearness(inside), nearness(outside)
    return float(np.mean(ours[:, np.newaxis] > theirs))


def areas(choose=lambda rows: rows, **settings):
    """Of some sets of ratings."""
    found = []
    for seed in SEEDS:
        ratings = synthetic(400, 600, 12000, min_per_user=5, seed=seed)
        rows, lists = recorded(ratings, factors=8, **settings)
        found.append(area(choose(rows), lists))
    return np.array(found)


def looks_alone(rows):
    return [rows[t] for t in vb_server.MEMBERSHIP_ROUNDS]


def test_two_looks_tell_no_more_than_is_said_of_them():
    assert areas(solver="vb").mean() < BY_ALL_SUMS
    assert areas(looks_alone, solver="vb").mean() < BY_TWO_LOOKS


@pytest.mark.parametrize(
    "settings",
    [
        {"solver": "vb", "implicit_prior": "none"},
        {"solver": "vb", "implicit_prior": "users"},
        {"solver": "sgd", "rounds": 22, "held_out": 0.0},
    ],
    ids=["vb, none", "vb, users", "sgd"],
)
def test_gradients_tell_nothing(settings):
    assert areas(**settings).mean() < AT_CHANCE


def test_ranking_tells_who_is_in_and_the_docs_say_so():
    """What multiplies p_u is nearly the same for all items there; no repair, so a warning."""
    found = areas(solver="vb", implicit_prior="users", objective="ranking").mean()
    assert found > AT_CHANCE + 0.1
    page = (Path(__file__).parents[2] / "docs" / "limitations.md").read_text()
    assert "**The ranking objective**" in page


def test_looks_in_every_round_would_tell_who_is_in(monkeypatch):
    """Else nothing could be seen above."""
    monkeypatch.setattr(vb_server, "MEMBERSHIP_ROUNDS", range(EVERY_ROUND))
    monkeypatch.setattr(vb_party, "MAX_MEMBERSHIP_ROUNDS", EVERY_ROUND)
    assert areas(solver="vb").mean() > TOLD


def test_a_server_that_looks_more_often_is_given_nothing(monkeypatch):
    monkeypatch.setattr(vb_server, "MEMBERSHIP_ROUNDS", range(EVERY_ROUND))
    ratings = synthetic(40, 60, 900, min_per_user=5, seed=1)
    run = prepare(ratings, Settings(mask="mean", solver="vb", factors=3))
    server, crowd = run.coordinator(), Recording(run.parties())
    for _ in range(vb_party.MAX_MEMBERSHIP_ROUNDS):
        one_round(server, crowd)
    with pytest.raises(DivergenceError):
        crowd.sums(server.next_round())
    assert len(crowd.rows) == vb_party.MAX_MEMBERSHIP_ROUNDS == 2
