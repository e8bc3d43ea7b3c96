"""Many users behind one answer: bounds and clipping per user, counts in the update."""

from dataclasses import replace

import numpy as np
import pytest
from federations import settings_of

from fedmmf.aggregation.adaptive.messages import Collect, Collected
from fedmmf.aggregation.contract import round_sizes
from fedmmf.aggregation.vector import codec_of
from fedmmf.engines import ENGINES
from fedmmf.errors import DataError
from fedmmf.federation.local import Holdings, LocalFederation, make_parties, make_silos
from fedmmf.simulation import prepare
from fedmmf.simulation.real import real_federation
from fedmmf.wire import Adopt, Adopted, Ask, Joined, Refused, Round, Update, name_of, parcel, read

CUTS = np.array([0, 20, 40, 60])


def silos_of(run, engine=ENGINES["numba"], cuts=CUTS):
    holdings = Holdings(run.ratings, run.settings, run.is_held_out, run.features.statistics)
    return make_silos(holdings, cuts, engine)


def adopted(silo, run):
    """What a silo says when it has joined a run and adopts its layout."""
    frame = run.layout.encode()
    assert read(silo.answer(run.plan.invitation().encode()), (Joined,)).n_users == silo.n_users
    return read(silo.answer(parcel(Adopt(name_of(frame)), frame)), (Adopted,))


@pytest.mark.parametrize("engine", ENGINES.names())
@pytest.mark.parametrize("variant", ["secure", "secure vb"])
def test_silos_train_what_their_users_would_train_alone(small, variant, engine, tried):
    run = prepare(small, settings_of(variant, min_raters=1))
    alone = real_federation(run).run()
    together = LocalFederation.among(run.plan, silos_of(run, tried(engine))).run()
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(
        together.broadcast.item_factors, alone.broadcast.item_factors, **close
    )
    np.testing.assert_allclose(together.user_factors, alone.user_factors, **close)
    np.testing.assert_allclose(together.history, alone.history, rtol=1e-4)


def test_a_silos_update_counts_its_users(small):
    run = prepare(small, settings_of("plain"))
    silo = silos_of(run)["000001"]
    assert silo.n_users == 20
    adopted(silo, run)
    frame = run.coordinator().next_round().encode()
    update = read(silo.answer(parcel(Ask(name_of(frame)), frame)), (Update,))
    members = np.isin(np.arange(60), np.arange(20, 40))
    counts = run.lists.counts(small.n_items, members)
    assert np.array_equal(update.items, np.flatnonzero(counts))
    assert np.array_equal(update.n_raters, counts[counts > 0])


def test_every_user_of_a_silo_is_clipped_alone(small):
    """Under dp the sensitivity is of one user, not of one silo."""
    pytest.importorskip("dp_accounting", reason="the extra `dp`")
    settings = settings_of("dp distributed", dp_epsilon=100.0, dp_delta=0.9, dp_clip=0.05)
    run = prepare(small, settings)
    alone = real_federation(run)
    together = LocalFederation.among(run.plan, silos_of(run, cuts=np.arange(0, 61, 3)))
    sums = []
    for federation in (alone, together):
        federation.prepare_sums()
        sums.append(federation.server.side.sums(federation.server.coordinator.next_round()))
    noise = np.abs(sums[0].rows - sums[1].rows).max()
    clipped, unclipped = np.abs(sums[0].rows).max(), 0.05 * 60
    assert noise < 0.3 * clipped < unclipped
    assert set(sums[1].n_raters) == {60}


def test_a_silo_hands_over_no_masked_ratings(small):
    run = prepare(small, settings_of("adaptive collecting", threshold_j=1.0))
    silo = silos_of(run)["000000"]
    assert adopted(silo, run).in_clear
    answer = read(silo.answer(Collect().encode()), (Collected, Refused))
    assert "only a single user" in answer.reason


def test_one_user_who_must_not_be_seen_keeps_the_silo_out_of_the_clear(small):
    run = prepare(small, settings_of("adaptive"))
    j = run.masks.j_train
    silos = silos_of(run.__class__(**vars(run)))
    for name, begin, end in (("000000", 0, 20), ("000001", 20, 40)):
        everybody = bool((j[begin:end] <= 0.04).all())
        assert adopted(silos[name], run).in_clear == silos[name].in_clear == everybody


def test_a_large_silo_under_noise_is_bounded_as_so_many_users(small):
    """Its sum may be as large as that of all its users, each within the bound of one."""
    pytest.importorskip("dp_accounting", reason="the extra `dp`")
    settings = settings_of("dp distributed", dp_epsilon=100.0, dp_delta=0.9, dp_clip=0.05)
    run, sums = prepare(small, settings), []
    for parties in (make_parties(small, settings), silos_of(run, cuts=np.array([0, 58, 59, 60]))):
        federation = LocalFederation.among(run.plan, parties)
        federation.prepare_sums()
        sums.append(federation.server.side.sums(federation.server.coordinator.next_round()))
    alone, together = (found.rows for found in sums)
    bound = federation.parties["000000"].policy.noise.bounds(3).row
    assert np.abs(alone).max() > 4 * bound  # else nothing could be seen
    np.testing.assert_allclose(together, alone, atol=bound)  # eight deviations of the noise


@pytest.mark.parametrize("engine", ENGINES.names())
def test_numbers_that_divide_by_zero_tell_nothing(small, engine, tried):
    """A refusal would: whether it happens depends on what is rated."""
    run = prepare(small, settings_of("plain"))
    silo = silos_of(run, tried(engine))["000000"]
    adopted(silo, run)
    rows = np.zeros((small.n_items, 3), np.float32)
    rows[:, 1] = 1e-45
    before = silo.user_factors.copy()
    numbers = np.array([2, 1e-300, 0, 1e308, 0, 30, 1, 0, 0, 1, 1, 1])
    crafted = Round(1, 0, False, 3, numbers, rows).encode()
    answer = read(silo.answer(parcel(Ask(name_of(crafted)), crafted)), (Update,))
    assert not answer.rows.any()
    assert np.array_equal(silo.user_factors, before)


def test_a_silo_has_users(small):
    run = prepare(small, settings_of("plain"))
    with pytest.raises(DataError, match="at least one user"):
        silos_of(run, cuts=np.array([0, 0]))


def aimed_at(run, item):
    """A round of zeros but for one item, of whose raters' numbers nothing finite comes."""
    round_ = run.coordinator().next_round()
    rows = np.zeros_like(round_.item_rows)
    rows[:, run.plan.update_shape.rank :] = round_.item_rows[:, run.plan.update_shape.rank :]
    rows[item, : run.plan.update_shape.rank] = 3e38
    return replace(round_, item_rows=rows)


@pytest.mark.parametrize("engine", ENGINES.names())
@pytest.mark.parametrize("variant", ["secure", "secure vb", "dp local", "dp distributed"])
def test_a_round_aimed_at_one_item_tells_nothing_of_the_site(small, variant, engine, tried):
    """A single user of a site has rated the item, or has not: only that user's part may differ."""
    run = prepare(small, settings_of(variant, min_raters=1, held_out=0.0))
    by_item = np.zeros((60, len(run.layout.items)), bool)
    for user in range(60):
        by_item[user, run.training_input.lists.items[run.training_input.lists.of(user)]] = True
    item = int(np.flatnonzero(by_item[:20].sum(axis=0) == 1)[0])  # of whom one is at this site
    (victim,) = np.flatnonzero(by_item[:20, item])
    ratings = run.ratings
    code = run.layout.items[item]
    is_other = (ratings.user_codes != victim) | (ratings.item_codes != code)
    sums = []
    for rated in (ratings, ratings.select(is_other)):
        holdings = Holdings(rated, run.settings, None, run.features.statistics)
        silo = make_silos(holdings, CUTS, tried(engine))["000000"]
        adopted(silo, run)
        sums.append(told_by(silo.run, aimed_at(run, item)))
    (rows, totals, cohort), (others, other_totals, _) = sums
    moved = rows - others
    assert others.any()
    assert np.abs(moved).max() <= 2 * np.rint(cohort.bound * cohort.scale)
    if np.isfinite(cohort.clip):
        assert np.sqrt(np.sum(np.square(moved.astype(float)))) <= cohort.clip * cohort.scale * 1.01
    n_users = {"sgd": 2, "vb": 4}[run.settings.solver]  # place of the number, behind held-out ones
    counted = (totals[n_users] - other_totals[n_users]) / (cohort.total_scale or 1.0)
    assert counted == -1.0


def told_by(party_run, round_):
    """What a party's users add to a round, before noise and masks: steps, totals, how they came."""
    noise = party_run.policy.noise
    if noise is None:
        sizes = round_sizes(party_run.catalogue.n_items, party_run.layout, party_run.update_shape)
        bounds = party_run.solver.bounds(party_run.catalogue.scale.span)
        cohort = codec_of(sizes, bounds, 60, party_run.solver.ring).cohort(None)
    else:
        cohort = noise.grid(noise.own_scale, 3, round_.item_rows.size).cohort
    party_run._begin_round(round_)
    update = party_run._update(round_, cohort)
    return update.rows[0], update.totals[0], cohort
