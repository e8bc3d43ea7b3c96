"""The readable reference (parties, server, bytes) against the kernels, on real ratings.

Updates of `vb` never leave a real party in the clear, so its parties are summed securely; with
min_raters 1 nothing is left out of the sums.
"""

import numpy as np
import pytest

from fedmmf.engines import ENGINES
from fedmmf.federation.local import Holdings, LocalFederation, make_silos
from fedmmf.model import FedMMF
from fedmmf.settings import Settings
from fedmmf.simulation import prepare, train, train_real
from fedmmf.simulation.real import real_federation
from fedmmf.simulation.surveys import statistics_features, surveyed
from fedmmf.transports.in_process import InProcess
from fedmmf.transports.wrappers import Faulty

IN_SUMS = {"solver": "vb", "sharing": "strict", "min_raters": 1}
IN_CLEAR = {"solver": "sgd", "sharing": "plain"}

PARAMETERS_ATOL = 1e-6  # matrices have entries near 0 beside others of about 1


def assert_same(member, trained, atol):
    """`member` is what real parties found."""
    (kernels,) = trained.members
    np.testing.assert_allclose(
        kernels.broadcast.item_rows, member.broadcast.item_rows, rtol=1e-4, atol=atol
    )
    numbers = kernels.broadcast.parameters, member.broadcast.parameters
    np.testing.assert_allclose(*numbers, rtol=1e-5, atol=PARAMETERS_ATOL)
    np.testing.assert_allclose(kernels.user_factors, member.user_factors, rtol=1e-4, atol=atol)
    np.testing.assert_allclose(kernels.history, member.history, rtol=1e-5)
    assert kernels.best_round == member.best_round


@pytest.mark.parametrize("step", ["sum", "mean", "adam"])
@pytest.mark.parametrize("mask", ["none", "lr"])
def test_sgd_kernels_and_reference_agree_on_ml_100k(ml_100k, step, mask):
    settings = Settings(**IN_CLEAR, mask=mask, step=step, rounds=4, factors=8)
    member = real_federation(prepare(ml_100k, settings)).run()
    # Adam divides by roots of small moments: float32 shows in the seventh digit of large factors.
    assert_same(member, train(ml_100k, settings), atol=2e-6)


@pytest.mark.parametrize("mask", ["none", "mean", "lr"])
def test_vb_kernels_and_reference_agree_on_ml_100k(ml_100k, mask):
    """Three silos, whose users are computed one by one in numpy; test_silos.py has all 943."""
    settings = Settings(**IN_SUMS, mask=mask, rounds=6, factors=5)
    run, cuts = prepare(ml_100k, settings), np.array([0, 314, 628, 943])
    parties = make_silos(Holdings(ml_100k, settings, run.is_held_out), cuts, ENGINES["numpy"])
    member = LocalFederation.among(run.plan, parties).run()
    assert_same(member, train(ml_100k, settings), atol=1e-4)


@pytest.mark.parametrize(
    ("mask", "cross_fit", "chosen"),
    [
        *((mask, cross_fit, IN_CLEAR) for mask in ("mean", "fm", "nn") for cross_fit in (0, 1)),
        ("mean", 0, IN_SUMS),
        ("fm", 1, IN_SUMS),
        ("nn", 1, IN_SUMS),
    ],
)
def test_kernels_and_reference_agree_with_early_stopping(small, mask, cross_fit, chosen):
    training = {"rounds": 200, "factors": 4, "patience": 3, "held_out": 0.2}
    if chosen is IN_CLEAR:
        training["regularization"] = 0.01  # so that all of them learn too much in the end
    settings = Settings(**chosen, mask=mask, cross_fit=bool(cross_fit), **training)
    member = real_federation(prepare(small, settings)).run()
    assert 0 < member.best_round < len(member.history) < 200
    assert_same(member, train(small, settings), atol=1e-5 if chosen is IN_CLEAR else 1e-4)


def test_biases_agree(small):
    settings = Settings(**IN_CLEAR, mask="none", biases=True, rounds=20, factors=4)
    assert_same(real_federation(prepare(small, settings)).run(), train(small, settings), atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES.names())
@pytest.mark.parametrize("chosen", [IN_CLEAR, IN_SUMS])
def test_every_engine_simulates_the_same(small, engine, chosen):
    where = {"device": "cpu"} if engine == "torch" else {}
    settings = Settings(**chosen, mask="lr", rounds=4, factors=3, engine=engine, **where)
    member = real_federation(prepare(small, settings)).run()
    assert_same(member, train(small, settings), atol=1e-5)


def test_a_real_run_is_a_simulation_with_every_message(small):
    settings = Settings(mask="lr", rounds=3, factors=3, held_out=0.2, ensemble=2)
    real, simulated = train_real(small, settings), train(small, settings)
    assert (real.counted_cost is None, simulated.counted_cost is None) == (False, True)
    assert len(real.members) == 2
    for mine, theirs in zip(real.members, simulated.members, strict=True):
        np.testing.assert_allclose(mine.broadcast.item_rows, theirs.broadcast.item_rows, atol=1e-5)
        np.testing.assert_allclose(mine.user_factors, theirs.user_factors, atol=1e-5)
    np.testing.assert_allclose(real.masks.theta, simulated.masks.theta, rtol=1e-6, atol=1e-9)
    assert np.array_equal(real.in_clear, simulated.in_clear)


@pytest.mark.parametrize("chosen", [IN_CLEAR, {"sharing": "strict"}])
def test_a_survey_gives_item_counts_and_means(small, chosen):
    settings = Settings(**chosen, mask="mean", held_out=0.0, item_statistics=True)
    federation = real_federation(prepare(small, settings))
    federation.prepare_sums()
    sums = federation.server.side.survey_ratings()
    expected = surveyed(small, settings)
    assert np.array_equal(sums.n_raters, expected.n_raters)
    np.testing.assert_allclose(sums.rows, expected.rows, atol=1e-5)
    np.testing.assert_allclose(statistics_features(sums), statistics_features(expected), atol=1e-4)


@pytest.mark.parametrize("sharing", ["plain", "strict", "adaptive"])
def test_item_statistics_leave_held_out_ratings_alone(small, sharing):
    """Among real parties they come from a survey, over sums where not everybody is in the clear."""
    chosen = {"item_statistics": True, "rounds": 3, "factors": 3, "held_out": 0.2}
    settings = Settings(sharing=sharing, mask="lr", **chosen)
    real, simulated = train_real(small, settings), train(small, settings)
    np.testing.assert_allclose(real.features, simulated.features, atol=1e-4)
    (mine,), (theirs,) = real.members, simulated.members
    np.testing.assert_allclose(mine.broadcast.item_rows, theirs.broadcast.item_rows, atol=1e-4)


def test_parties_predict_what_the_model_predicts(small):
    settings = Settings(**IN_CLEAR, mask="lr", rounds=10, factors=4)
    federation = real_federation(prepare(small, settings))
    federation.run()
    model = FedMMF(**settings.model_dump()).fit(small)
    for user in (0, 31):
        expected = model.predict(np.full(5, small.user_ids[user]), small.item_ids[:5])
        predicted = federation.parties[f"{user:06}"].predict(np.arange(5))
        np.testing.assert_allclose(predicted, expected, rtol=1e-4)


def test_a_party_that_does_not_answer_is_left_out(small):
    settings = Settings(**IN_CLEAR, mask="mean", rounds=2, factors=4, held_out=0.0)
    run = prepare(small, settings)
    parties = real_federation(run).parties
    lossy = Faulty(
        InProcess(parties),
        up=lambda stage, name, data: None if (stage, name) == ("round", "000003") else data,
    )
    federation = LocalFederation.among(run.plan, parties, lossy)
    federation.prepare_sums()
    server = federation.server
    sums = server.side.sums(server.coordinator.next_round())
    others = small.select(small.user_codes != 3)
    assert np.array_equal(sums.n_raters, np.diff(others.by_item.indptr))
    assert "did not answer" in server.roster.refused["000003"]
