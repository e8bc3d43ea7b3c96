"""Sums that say what one person rated: surveys, what users have in common, joint masks, looks.

A shop's catalogue has makers. Eight of them have one item each, which one user has rated; items of
other makers have many raters. An honest server that is curious tries to work out these eight
ratings from what it is given in strict mode, where items with fewer than `min_raters` raters are
nobody's business.
"""

from dataclasses import replace
from itertools import combinations

import numpy as np
import polars as pl
import pytest

from fedmmf.data import ItemFeatures, Ratings
from fedmmf.errors import FedMMFError
from fedmmf.masks.population import CommonItems, singled_out
from fedmmf.server.rounds import one_round
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf.simulation.real import real_federation
from fedmmf.solvers.vb.server import MEMBERSHIP_ROUNDS
from fedmmf.wire import Adopt, Layout, Survey, name_of

N_RARE, N_USERS, N_MAKERS, PER_MAKER = 8, 14, 4, 4
N_COMMON = N_MAKERS * PER_MAKER
LONE = N_COMMON  # an item with many raters whose maker has no other
N_ITEMS = N_COMMON + 1 + N_RARE
SECRET = np.array([1, 2, 4, 5, 5, 4, 2, 1], float)  # what the single raters gave
STRICT = {"mask": "lr", "factors": 2, "min_raters": 3, "held_out": 0.0, "engine": "numpy"}
VB = {**STRICT, "solver": "vb", "rounds": MEMBERSHIP_ROUNDS[0] + 2}


def shop(secret=SECRET):
    """Everybody rates most items of large makers; the first eight users one of a small one."""
    draw = np.random.default_rng(7)
    triples = []
    for user in range(N_USERS):
        items = draw.permutation(N_COMMON)[: N_COMMON - 4]
        triples += [(user, item, float(draw.integers(1, 6))) for item in sorted(items)]
        triples += [(user, LONE, float(draw.integers(1, 6)))] if user % 2 else []
    triples += [(user, LONE + 1 + user, value) for user, value in enumerate(secret)]
    triples += [(N_USERS, 0, 2.0)]  # somebody with a single rating
    users, items, values = map(np.array, zip(*sorted(triples), strict=True))
    matrix = np.full((N_USERS + 1, N_ITEMS), np.nan)
    matrix[users, items] = values
    makers = [item // PER_MAKER if item < LONE else item for item in range(N_ITEMS)]
    features = ItemFeatures.genres([[f"{maker:02}"] for maker in makers], "maker")
    return ratings_of(matrix).with_features(features)


def ratings_of(matrix):
    users, items = np.nonzero(~np.isnan(matrix))
    frame = pl.DataFrame(
        {
            "user_id": [f"u{user:02}" for user in users],
            "item_id": [f"i{item:02}" for item in items],
            "rating": matrix[users, items],
        }
    )
    return Ratings.from_frame(frame, scale=(1, 5, 1))


def surveyed_totals(ratings, **changes):
    """Totals of every survey that real parties take part in, as the server gets them."""
    run = prepare(ratings, Settings(**{**STRICT, "signed": True, **changes}))
    federation = real_federation(run)
    side, found = federation.invite(), []
    honest = side.sum

    def listening(stage, work):
        sums = honest(stage, work)
        found.append(sums.totals)
        return sums

    side.sum = listening
    side.prepare()
    assert not federation.server.roster.incidents
    return run, [totals for totals in found if len(totals)]


def sums_read(run, totals):
    """What moments say of each item's sum of ratings, by the columns that single the item out."""
    x = np.column_stack((np.ones(N_ITEMS), run.features.content))  # (n_items, m)
    moments = totals[-x.shape[1] :]
    return np.linalg.pinv(x).T @ moments  # (n_items,)


def test_moments_tell_no_rating_of_a_single_rater():
    """Before, 8 of 8: the columns of one maker and the constant make up its only item."""
    ratings = shop()
    run, (totals,) = surveyed_totals(ratings)
    read = 3.0 + 4.0 * sums_read(run, totals)[-N_RARE:]  # on the scale
    assert int((np.abs(read - SECRET) < 0.1).sum()) == 0
    _, (same,) = surveyed_totals(shop(SECRET[::-1].copy()))
    assert np.array_equal(totals, same)  # whatever they gave


def test_moments_tell_no_items_sum_that_its_owner_lets_nobody_have():
    """An item with many raters, alone in its column: a survey of ratings by another name."""
    ratings = shop()
    run, (totals,) = surveyed_totals(ratings)
    assert not run.settings.item_statistics  # so owners let no ratings into surveys
    is_lone = ratings.item_codes == LONE
    truth = float(((ratings.values[is_lone] - 3.0) / 4.0).sum())
    assert is_lone.sum() >= 5
    assert abs(truth) > 0.2
    assert sums_read(run, totals)[LONE] != pytest.approx(truth, abs=0.05)


def test_what_users_have_in_common_tells_no_rating_of_who_has_one():
    """Before, levels were summed twice, with and without those who have a single rating."""
    _, (totals,) = surveyed_totals(shop())
    levels = totals[: -(1 + N_MAKERS + 1 + N_RARE)]
    differences = np.subtract.outer(levels, levels)
    assert not np.isclose(differences, (2.0 - 3.0) / 4.0, atol=1e-4).any()


def rounds_of(ratings, settings):
    """Totals and rows of all rounds of a simulation, which are those of real parties."""
    run = prepare(ratings, settings)
    coordinator, crowd, found = run.coordinator(), run.parties(), []
    honest = crowd.sums

    def listening(round_):
        found.append(honest(round_))
        return found[-1]

    crowd.sums = listening
    while not coordinator.is_finished:
        one_round(coordinator, crowd)
    return found, run


def joint_masks(sums, run):
    """The sum of private weights and their squares, of all rounds."""
    parts = [run.plan.update_shape.blocks["totals"].split(found.totals[2:]) for found in sums]
    return np.concatenate([[*part["joint_sum"], *part["joint_deviation"]] for part in parts])


def looks(sums, run):
    """Sums of p_u over the raters of each item."""
    return sums[MEMBERSHIP_ROUNDS[0]].rows.ravel()


def n_ratings_read(choose, **changes):
    """How many of the eight an attacker finds who knows everything else.

    It tries each rating that somebody may have given, and takes the one whose sums are nearest to
    those that it was given, where that is one.
    """
    settings = Settings(**{**VB, **changes})
    given, n_read = choose(*rounds_of(shop(), settings)), 0
    for place in range(N_RARE):
        errors = []
        for value in range(1, 6):
            guess = SECRET.copy()
            guess[place] = value
            errors.append(np.abs(choose(*rounds_of(shop(guess), settings)) - given).max())
        nearest = np.flatnonzero(np.array(errors) <= min(errors) + 1e-9)
        n_read += nearest.tolist() == [int(SECRET[place]) - 1]
    return n_read


@pytest.mark.parametrize("choose", [joint_masks, looks], ids=["joint masks", "looks"])
def test_rounds_tell_no_rating_of_a_single_rater(choose):
    assert n_ratings_read(choose) == 0


@pytest.mark.parametrize("choose", [joint_masks, looks], ids=["joint masks", "looks"])
def test_the_same_attacker_reads_them_where_rare_items_are_summed(choose):
    """Else nothing could be seen above."""
    assert n_ratings_read(choose, min_raters=1) == N_RARE


def test_rounds_of_real_parties_are_those_that_were_attacked():
    settings = Settings(**VB)
    simulated, run = rounds_of(shop(), settings)
    federation = real_federation(run)
    federation.prepare_sums()
    side, real = federation.server.side, []
    honest = side.sums

    def listening(round_):
        real.append(honest(round_))
        return real[-1]

    side.sums = listening
    federation.server.run()
    for ours, theirs in zip(simulated, real, strict=True):
        np.testing.assert_allclose(ours.rows, theirs.rows, atol=1e-3)
        np.testing.assert_allclose(ours.totals, theirs.totals, rtol=1e-3, atol=1e-3)


# Which items go into what users have in common


def leverage(columns, rows):
    """The largest share of the squared length of a combination that is on some rows."""
    basis = np.linalg.svd(columns, full_matrices=False)[0][:, : np.linalg.matrix_rank(columns)]
    return np.linalg.norm(basis[rows], 2) ** 2


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_few_items_that_are_left_have_most_of_any_combination(seed, size):
    """Against all groups, tried one by one."""
    draw = np.random.default_rng(seed)
    features = (draw.random((30, 9)) < 0.12).astype(float) * draw.choice([1.0, 1e-4], 9)
    items = np.flatnonzero(draw.random(30) < 0.9).astype(np.int32)
    found = CommonItems.of(items, features, min_raters=size + 1)
    assert set(found.items.tolist()) <= set(items.tolist())
    if not found.features.any():
        return  # too few items for the features: these do not count
    x = np.column_stack((np.ones(len(found.items)), found.features))
    largest = max(leverage(x, list(rows)) for rows in combinations(range(len(x)), size))
    assert largest <= 0.9 + 1e-6
    assert np.array_equal(found.features, features[found.items])


def test_nothing_is_left_out_where_features_single_nobody_out():
    draw = np.random.default_rng(1)
    features, items = draw.standard_normal((200, 5)), np.arange(200, dtype=np.int32)
    found = CommonItems.of(items, features, min_raters=3)
    assert np.array_equal(found.items, items)
    assert not singled_out(features, 2).any()


def test_features_do_not_count_where_they_are_too_many_for_the_items():
    items = np.arange(10, dtype=np.int32)
    found = CommonItems.of(items, np.eye(10), min_raters=3)
    assert np.array_equal(found.items, items)
    assert not found.features.any()
    assert len(CommonItems.of(items[:2], np.eye(10), min_raters=3).items) == 0  # nor do two items


def test_moments_are_of_one_list_of_items_which_is_the_layouts():
    run = prepare(shop(), Settings(**STRICT))
    federation = real_federation(run)
    side = federation.invite()
    items = run.layout.items
    side.sum("survey", Survey(with_ratings=False, items=items))
    with pytest.raises(FedMMFError):
        side.sum("survey", Survey(with_ratings=False, items=items[1:]))
    assert "which are others" in set(federation.server.roster.refused.values()).pop()
    frame = replace(run.layout, items=items[1:]).encode()
    party = federation.parties["000000"]
    refused = party.answer(frame + Adopt(name_of(frame)).encode())
    assert b"which are others" in refused
    frame = Layout(items, run.layout.line, run.layout.shrinkage).encode()
    assert b"which are others" not in party.answer(frame + Adopt(name_of(frame)).encode())
