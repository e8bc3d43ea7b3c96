"""Many users behind one party: what comes out is what each of them alone would have given."""

from dataclasses import replace

import numpy as np
import pytest

from fedmmf.engines import ENGINES
from fedmmf.engines.contract import Cohort
from fedmmf.federation.local import Holdings, LocalFederation, make_silos, server_plan
from fedmmf.settings import Settings
from fedmmf.simulation import prepare, train

ROUNDS = 2
CUTS = np.array([0, 314, 628, 943])
FACTORS = {"sgd": 8, "vb": 4}


class Trained:
    """Some rounds of a federation: sums of each, item factors, p_u of everybody."""

    def __init__(self, ratings, settings, parties):
        federation = LocalFederation.among(server_plan(ratings, settings), parties)
        federation.prepare_sums()
        coordinator, side = federation.server.coordinator, federation.server.side
        self.sums = []
        for _ in range(ROUNDS):
            round_ = coordinator.next_round()
            self.sums.append(side.sums(round_))
            coordinator.advance(round_, self.sums[-1])
        assert not federation.server.roster.incidents
        assert len(side.survivors) == len(parties)
        self.item_factors = coordinator.result.item_factors
        self.user_factors = np.concatenate([party.user_factors for party in parties.values()])


def settings_for(solver, **chosen):
    """Strict, and nothing is left out."""
    common = {"mask": "lr", "rounds": ROUNDS, "held_out": 0.0, "min_raters": 1}
    return Settings(solver=solver, **(common | {"factors": FACTORS[solver]} | chosen))


def mixed(holdings, cuts):
    """Silos on kernels, and devices in numpy where a party has one user."""
    silos = make_silos(holdings, cuts, ENGINES["numba"])
    devices = make_silos(holdings, cuts, ENGINES["numpy"])
    return {name: silo if silo.n_users > 1 else devices[name] for name, silo in silos.items()}


def assert_same(one, other):
    for mine, theirs in zip(one.sums, other.sums, strict=True):
        assert np.array_equal(mine.n_raters, theirs.n_raters)
        np.testing.assert_allclose(mine.totals, theirs.totals, rtol=1e-5, atol=2e-4)
    np.testing.assert_allclose(one.item_factors, other.item_factors, atol=1e-4)
    np.testing.assert_allclose(one.user_factors, other.user_factors, atol=1e-4)


@pytest.mark.parametrize("solver", ["sgd", "vb"])
def test_three_silos_are_943_people_and_the_simulation(ml_100k, solver):
    settings = settings_for(solver)
    holdings = Holdings(ml_100k, settings)
    silos = make_silos(holdings, CUTS, ENGINES["numba"])
    assert [party.n_users for party in silos.values()] == [314, 314, 315]
    found = Trained(ml_100k, settings, silos)
    assert np.array_equal(found.sums[0].n_raters, np.diff(ml_100k.by_item.indptr))

    people = make_silos(holdings, np.arange(944), ENGINES["numpy"])
    assert len(people) == 943
    assert_same(found, Trained(ml_100k, settings, people))

    some_alone = mixed(holdings, np.array([0, 450, 900, *range(901, 944)]))
    assert sorted({party.n_users for party in some_alone.values()}) == [1, 450]
    assert_same(found, Trained(ml_100k, settings, some_alone))

    (member,) = train(ml_100k, settings).members
    np.testing.assert_allclose(found.item_factors, member.broadcast.item_factors, atol=1e-4)
    np.testing.assert_allclose(found.user_factors, member.user_factors, atol=1e-4)


@pytest.mark.parametrize("engine", ENGINES.names())
@pytest.mark.parametrize("solver", ["sgd", "vb"])
@pytest.mark.parametrize("mask", ["fm", "nn"])
def test_a_whole_training_among_silos_ends_like_the_simulation(small, solver, mask, engine, tried):
    """With a survey, items left out, and early stopping."""
    # One silo has one user, who counts on no more than one behind each of the others.
    chosen = {"held_out": 0.2, "min_raters": 10, "rounds": 6, "patience": 2, "factors": 2}
    settings = settings_for(solver, mask=mask, **chosen)
    run = prepare(small, settings)
    holdings = Holdings(small, settings, run.is_held_out)
    parties = make_silos(holdings, np.array([0, 7, 8, 31, 60]), tried(engine))
    found = LocalFederation.among(run.plan, parties).run()
    (member,) = train(small, settings).members
    np.testing.assert_allclose(found.broadcast.item_rows, member.broadcast.item_rows, atol=1e-4)
    np.testing.assert_allclose(found.user_factors, member.user_factors, atol=1e-4)
    np.testing.assert_allclose(found.history, member.history, rtol=1e-5)
    assert found.best_round == member.best_round


@pytest.mark.parametrize("sharing", ["plain", "adaptive"])
def test_silos_in_the_clear_say_how_many_users_rated_what(small, sharing):
    """Under adaptive sharing a silo is as careful as its most careful user: here, in sums."""
    settings = Settings(mask="lr", sharing=sharing, factors=3, rounds=ROUNDS, min_raters=1)
    parties = make_silos(Holdings(small, settings), np.array([0, 20, 40, 60]), ENGINES["numba"])
    found = Trained(small, settings, parties)
    assert {party.in_clear for party in parties.values()} == {sharing == "plain"}
    assert np.array_equal(found.sums[0].n_raters, np.diff(small.by_item.indptr))
    everybody = settings.changed(held_out=0.0, threshold_j=0.0)  # in sums
    (member,) = train(small, everybody).members
    np.testing.assert_allclose(found.item_factors, member.broadcast.item_factors, atol=1e-4)


@pytest.mark.parametrize("engine", ENGINES.names())
def test_every_user_of_a_silo_is_clipped_alone_on_every_engine(small, engine, tried):
    """There is next to no noise here, so that the sum shows what it would hide."""
    pytest.importorskip("dp_accounting", reason="the extra `dp`")
    chosen = {"aggregation": "dp", "solver": "sgd", "dp_noise": "local", "dp_clip": 0.3}
    settings = Settings(mask="lr", factors=3, rounds=ROUNDS, **chosen)
    run = prepare(small, settings)
    parties = make_silos(Holdings(small, settings), np.array([0, 20, 40, 60]), tried(engine))
    for party in parties.values():
        silent = replace(party.policy.noise, multiplier=1e-9)
        party.policy = replace(party.policy, noise=silent)
    given = replace(run.training_input, cohorts=[Cohort(clip=0.3)])
    broadcast = run.coordinator().result
    (expected,) = ENGINES["numpy"].halves(given).update(broadcast, 1).rows
    found = Trained(small, settings, parties).sums[0].rows
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.linalg.norm(found) < 60 * 0.3
