"""What a run starts from: held-out ratings, features, masks, and who is summed with whom."""

from dataclasses import replace

import numpy as np
import pytest

from fedmmf.aggregation import AGGREGATIONS
from fedmmf.aggregation.rare_items import raters_needed
from fedmmf.aggregation.simulated import Simulated
from fedmmf.attacks.self_audit import AttackAudit
from fedmmf.data import ItemFeatures
from fedmmf.data.features import ROW_ENERGY, UserProfiles, content_features, profile_values
from fedmmf.errors import SettingsError
from fedmmf.masks.fitting import OneByOne
from fedmmf.masks.population import CommonItems
from fedmmf.party import Policy
from fedmmf.party.policy import Private
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf.simulation.prepared import choose_held_out
from fedmmf.simulation.real import real_federation
from fedmmf.simulation.surveys import statistics_features, surveyed
from fedmmf.solvers import SOLVERS

SETTINGS = Settings(mask="lr", factors=3, held_out=0.2)


def test_held_out_ratings_are_a_share_of_those_who_have_enough(small):
    chosen = choose_held_out(small, SETTINGS)
    assert chosen.mean() == pytest.approx(0.2, abs=0.04)
    assert np.array_equal(chosen, choose_held_out(small, SETTINGS))
    assert not np.array_equal(chosen, choose_held_out(small, SETTINGS.changed(seed=1)))
    assert not choose_held_out(small, SETTINGS.changed(held_out=0.0)).any()
    few = small.select((small.user_codes > 0) | (np.arange(len(small)) < 4))
    assert not choose_held_out(few, SETTINGS.changed(held_out=0.5))[:4].any()


def test_ratings_are_trained_on_or_held_out(small):
    run = prepare(small, SETTINGS)
    assert np.array_equal(run.training.values, small.values[~run.is_held_out])
    lists, values = run.data.part(held_out=True)
    assert np.array_equal(values, small.values[run.is_held_out])
    assert run.training.n_users == lists.n_users == small.n_users
    assert len(run.masks.unit_ratings) == len(run.training)
    whole = prepare(small, SETTINGS.changed(held_out=0.0))
    assert whole.training is small
    assert whole.users.held_out_of(whole.layout) is None


def test_masks_of_held_out_ratings_come_from_training_ratings(small):
    run = prepare(small, SETTINGS)
    held_out, tested = small.select(run.is_held_out), run.users.held_out_of(run.layout)
    expected = run.masks.predict(held_out.rated_items, run.features.seen, OneByOne())
    is_summed = np.isin(held_out.item_codes, run.layout.items)
    np.testing.assert_allclose(tested.mask, expected[is_summed], rtol=1e-6)
    assert np.array_equal(tested.ratings, held_out.values[is_summed])
    items = run.layout.items[tested.lists.items]
    assert np.array_equal(items, held_out.item_codes[is_summed])
    users = held_out.user_codes[is_summed]
    assert np.array_equal(tested.lists.users, users)
    changed = small.values.copy()
    changed[run.is_held_out] = 6 - changed[run.is_held_out]
    other = prepare(replace(small, values=changed), SETTINGS)
    assert np.array_equal(other.masks.theta, run.masks.theta)


def test_lists_are_each_users_rated_items(small):
    lists = small.rated_items
    assert lists.n_users == small.n_users
    for user in (0, 31, 59):
        mine = small.item_codes[small.user_codes == user]
        assert np.array_equal(lists.items[lists.of(user)], mine)
    assert np.array_equal(lists.counts(small.n_items), np.diff(small.by_item.indptr))
    members = np.arange(small.n_users) < 10
    some = np.bincount(small.item_codes[small.user_codes < 10], minlength=small.n_items)
    assert np.array_equal(lists.counts(small.n_items, members), some)


def test_the_server_knows_the_catalogue_and_no_more(small):
    run = prepare(small, SETTINGS)
    plan = run.plan
    assert plan.catalogue.n_items == small.n_items
    assert plan.catalogue.scale == small.scale
    assert plan.ratings_per_user == len(small) / small.n_users
    assert plan.is_centred  # masked ratings are around 0
    none = prepare(small, SETTINGS.changed(mask="none"))
    assert not none.plan.is_centred
    means = [none.coordinator().next_round().item_rows[:, 0].mean() for none in (run, none)]
    np.testing.assert_allclose(means, [0.0, none.layout.line[0]], atol=0.1)
    other = prepare(small.select(small.user_codes > 3), SETTINGS)
    assert other.catalogue.digest == run.catalogue.digest


def test_values_of_profiles_that_few_have_are_left_out(small):
    """Sums over users would be about their holders alone."""
    columns = np.zeros((60, 4), np.float32)
    for column, holders in enumerate((4, 5, 56, 0)):
        columns[:holders, column] = 1.0
    columns -= columns.mean(axis=0)
    known = replace(small, profiles=UserProfiles(tuple("abcd"), columns))
    np.testing.assert_allclose(profile_values(known), columns[:, [1]])
    assert profile_values(small).shape == (60, 0)
    run = prepare(known, SETTINGS.changed(solver="vb"))
    assert "profile=1 " in run.plan.invitation().variant


def line_by_hand(run, content):
    """Slopes over common items, with a ridge; at the mean one, the mean of users' means."""
    common = CommonItems.of(run.layout.items, content, run.settings.min_raters)
    lists, is_common = run.lists.within(common.items, run.ratings.n_items)
    values = run.training.values[is_common].astype(np.float64)
    x = np.clip(common.features, -4, 4)[lists.items]
    centred = x - x.mean(axis=0)
    ridge = 5.0 * len(values) / lists.n_users * np.eye(x.shape[1])
    # An intercept that is free is that of centred columns; the ridge is on the others alone.
    slopes = np.linalg.solve(centred.T @ centred + ridge, centred.T @ values)
    means = np.bincount(lists.users, values) / lists.lengths
    return np.concatenate(([means.mean() - x.mean(axis=0) @ slopes], slopes))


@pytest.mark.parametrize("mask", ["none", "mean", "lr", "fm"])
@pytest.mark.parametrize("sharing", ["strict", "plain", "adaptive"])
def test_masks_shrink_towards_what_users_have_in_common(small, mask, sharing):
    """By features where masks see them and sums hide users; masks that decide have the middle."""
    run = prepare(small, SETTINGS.changed(mask=mask, sharing=sharing))
    sees = mask in {"lr", "fm"} and sharing == "strict"
    line = line_by_hand(run, run.features.content if sees else run.features.content[:, :0])
    np.testing.assert_allclose(run.layout.line, line, rtol=1e-6, atol=1e-7)
    assert run.plan.invitation().columns == len(line) == (17 if sees else 1)
    assert run.features.expanded.shape[1] == (16 + 64 * (mask == "fm"))
    common = run.masks.population
    if sharing == "adaptive":
        assert (common.line.tolist(), common.shrinkage) == ([3.0], 1.0)
    else:
        assert (common.line.tolist(), common.shrinkage) == (
            run.layout.line.tolist(),
            run.layout.shrinkage,
        )
        assert abs(common.shrinkage - 1) > 0.1


def test_item_statistics_are_nothing_that_users_have_in_common(small):
    """They come from a later sum."""
    run = prepare(small, SETTINGS.changed(item_statistics=True))
    assert run.features.seen.shape[1] == run.features.content.shape[1] + 2
    np.testing.assert_allclose(run.layout.line, line_by_hand(run, run.features.content), rtol=1e-6)


@pytest.mark.parametrize(("n_features", "columns"), [(127, 128), (128, 1)])
def test_where_there_are_too_many_features_users_have_a_level_in_common(small, n_features, columns):
    features = np.random.default_rng(0).standard_normal((small.n_items, n_features))
    named = ItemFeatures(tuple(map(str, range(n_features))), features)
    run = prepare(replace(small, features=named), SETTINGS)
    assert run.features.content.shape[1] == n_features
    assert run.plan.invitation().columns == len(run.layout.line) == columns
    seen = run.features.content[:, : columns - 1]
    np.testing.assert_allclose(run.layout.line, line_by_hand(run, seen), rtol=1e-6, atol=1e-7)


def test_the_runs_of_an_ensemble_start_apart_and_again_the_same(small):
    run = prepare(small, SETTINGS)
    first, second = (run.coordinator(member).result.item_rows for member in (0, 1))
    assert not np.array_equal(first, second)
    assert np.array_equal(first, prepare(small, SETTINGS).coordinator(0).result.item_rows)


def test_features_have_the_same_energy_whatever_they_are(small):
    features = content_features(small)
    assert np.square(features).sum(axis=1).mean() == pytest.approx(ROW_ENERGY)
    bare = prepare(small_without_features(small), SETTINGS.changed(mask="mean"))
    assert bare.features.seen.shape == (small.n_items, 0)


def small_without_features(small):
    return type(small).from_frame(small.to_frame(), scale=small.scale)


def test_item_statistics_are_two_columns_more_without_held_out_ratings(small):
    run = prepare(small, SETTINGS.changed(item_statistics=True))
    extra = run.features.seen[:, run.features.content.shape[1] :]
    assert np.array_equal(extra, statistics_features(surveyed(run.training, run.settings)))
    np.testing.assert_allclose(extra.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(extra.std(axis=0), 1, atol=1e-9)


def test_a_survey_gives_item_counts_and_means(small):
    sums = surveyed(small, SETTINGS)
    for item in (0, 5, 44):
        assert sums.n_raters[item] >= raters_needed(SETTINGS.min_raters)
        mine = small.values[small.item_codes == item]
        assert sums.n_raters[item] == len(mine)
        assert sums.rows[item, 0] == pytest.approx(np.sum((mine - 3.0) / 4.0), rel=1e-6)
    statistics = statistics_features(sums)
    means = [small.values[small.item_codes == i].mean() for i in (0, 5)]
    assert (statistics[0, 0] < statistics[5, 0]) == (means[0] < means[1])


@pytest.mark.parametrize("sharing", ["strict", "adaptive", "plain"])
def test_a_survey_gives_nothing_of_rare_items_unless_all_is_in_the_clear(small, sharing):
    counts = small.rated_items.counts(small.n_items)
    rare = counts < raters_needed(12)
    assert 0 < rare.sum() < len(rare)
    settings = SETTINGS.changed(sharing=sharing, min_raters=12)
    sums, every = (surveyed(small, s) for s in (settings, SETTINGS.changed(sharing="plain")))
    hidden = rare if sharing != "plain" else np.zeros(len(rare), bool)
    assert np.array_equal(sums.n_raters, np.where(hidden, 0, counts))
    assert np.array_equal(sums.rows[:, 0], np.where(hidden, 0.0, every.rows[:, 0]))
    same = np.unique(statistics_features(sums)[hidden], axis=0)
    assert len(same) == (sharing != "plain")  # they look like items that nobody rated


def test_everybody_chooses_how_to_share(small):
    """Strict: nobody shares in the clear; plain: all; adaptive: J, or an audit, decides."""
    strict = prepare(small, SETTINGS)
    assert not strict.in_clear.any()
    assert prepare(small, SETTINGS.changed(sharing="plain")).in_clear.all()
    adaptive = prepare(small, SETTINGS.changed(sharing="adaptive", threshold_j=0.04))
    assert np.array_equal(adaptive.in_clear, adaptive.masks.j_train <= 0.04)
    assert 0 < adaptive.in_clear.sum() < small.n_users


def test_an_audit_decides_by_what_it_finds(small):
    chosen = {"sharing": "adaptive", "grouping": "audit", "audit_limit": 0.6}
    run = prepare(small, SETTINGS.changed(**chosen))
    private = Private(run.lists, run.training.values, run.masks, run.features.seen)
    found = AttackAudit(0.6, "numba").shares_found(private)
    assert found.shape == (small.n_users,)
    assert np.array_equal(run.in_clear, found < 0.6)


def audited_policy(settings):
    return Policy.of(settings, AttackAudit.of(settings))


def test_a_policy_is_what_the_settings_say():
    assert audited_policy(SETTINGS).sharing == "strict"
    assert audited_policy(SETTINGS).audit is None
    adaptive = SETTINGS.changed(sharing="adaptive", threshold_j=0.01)
    assert (audited_policy(adaptive).threshold_j, audited_policy(adaptive).audit) == (0.01, None)
    assert audited_policy(adaptive.changed(grouping="audit")).audit is not None
    assert (audited_policy(SETTINGS).smallest_batch, audited_policy(SETTINGS).survey_ratings) == (
        1,
        False,
    )
    chosen = audited_policy(SETTINGS.changed(batch=4, item_statistics=True))
    assert (chosen.smallest_batch, chosen.survey_ratings) == (4, True)


def test_a_party_of_one_decides_as_the_simulation_does_for_it(small):
    for grouping in ("indicator", "audit"):
        chosen = {"sharing": "adaptive", "grouping": grouping, "audit_limit": 0.6}
        run = prepare(small, SETTINGS.changed(**chosen, threshold_j=0.04))
        federation = real_federation(run)
        federation.prepare_sums()
        alone = [party.in_clear for party in federation.parties.values()]
        assert np.array_equal(alone, run.in_clear)


def groups_of(small, **chosen):
    settings = Settings(**chosen)
    in_clear = np.full(small.n_users, settings.sharing == "plain")
    solver = SOLVERS[settings.solver]
    update_shape = solver.update_shape(solver.rank(settings), solver.variant(settings, 0, 0, 0))
    given = (
        small.rated_items,
        small.n_items,
        small.scale.span,
        in_clear,
        settings,
        solver,
        update_shape,
    )
    crowd = Simulated(*given)
    return AGGREGATIONS[settings.scheme_name].simulate(crowd)


def test_rare_items_are_left_out_of_hidden_sums_and_stay_in_plain_ones(small):
    counts = small.rated_items.counts(small.n_items)
    limit = int(np.sort(counts)[5]) + 1
    (hidden,) = groups_of(small, min_raters=limit)
    (plain,) = groups_of(small, min_raters=limit, sharing="plain")
    rare = counts < raters_needed(limit)
    assert (counts < limit).sum() >= 6
    assert not rare.all()
    assert np.array_equal(hidden.counts, np.where(rare, 0, counts))
    assert np.array_equal(hidden.cohort.left_out, rare)
    assert np.array_equal(plain.counts, counts)
    assert (hidden.cohort.is_fixed, plain.cohort.is_fixed) == (True, False)


def test_a_crowd_without_features_needs_a_mask_without_them(small):
    with pytest.raises(SettingsError, match="needs item features"):
        prepare(small_without_features(small), SETTINGS)
