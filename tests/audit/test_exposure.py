"""What is public about ratings, and what a run would expose."""

from dataclasses import replace

import numpy as np

from fedmmf.audit import expose
from fedmmf.audit.exposure import PRIOR_PARTS, public_prior, restrict
from fedmmf.data.features import UserProfiles
from fedmmf.settings import Settings
from fedmmf.simulation import prepare


def test_a_prior_does_not_know_the_attacked_users_own_ratings(small):
    changed = small.values.copy()
    mine = slice(0, small.by_user[1])
    changed[mine] = small.scale.min + small.scale.max - changed[mine]
    other = replace(small, values=changed)
    assert np.array_equal(public_prior(small)[mine], public_prior(other)[mine])


def test_a_prior_knows_what_other_people_think_of_an_item(small):
    prior, levels = public_prior(small), np.arange(1, 6)
    np.testing.assert_allclose(prior.sum(axis=1), 1)
    means = np.bincount(small.item_codes, small.values) / np.bincount(small.item_codes)
    assert np.corrcoef(prior @ levels, means[small.item_codes])[0, 1] > 0.8
    of_item = [len(np.unique(prior[small.item_codes == item], axis=0)) for item in range(5)]
    assert max(of_item) <= PRIOR_PARTS


def test_some_users_alone_keep_their_ratings_and_names(small):
    users = np.array([3, 8, 20])
    some = restrict(small, users)
    assert some.user_ids.tolist() == small.user_ids[users].tolist()
    for code, user in enumerate(users):
        here, there = (r.by_user for r in (some, small))
        mine, before = slice(*here[code : code + 2]), slice(*there[user : user + 2])
        assert np.array_equal(some.values[mine], small.values[before])
        assert np.array_equal(some.item_codes[mine], small.item_codes[before])
    assert some.profiles is None


def test_some_users_alone_keep_their_profiles(small):
    users, values = np.array([3, 8, 20]), np.arange(2.0 * small.n_users).reshape(-1, 2)
    known = UserProfiles(("age", "height"), values)
    some = restrict(small.with_profiles(known), users)
    assert some.profiles.names == known.names
    assert some.profiles.values.tolist() == values[users].tolist()


def test_what_is_held_out_is_not_exposed(small):
    run = prepare(small, Settings(mask="lr", held_out=0.2))
    view = expose(run)
    assert len(view.masked) == len(run.training) < len(small)
    assert np.array_equal(view.lists.items, run.training.item_codes)
    for user in (0, 7):
        mine = run.training.values[view.lists.of(user)]
        assert view.extremes[user].tolist() == [mine.min(), mine.max()]


def test_some_users_of_a_view_are_what_they_were(small):
    view = expose(prepare(small, Settings(mask="lr")))
    keep = np.arange(small.n_users) % 3 == 1
    part, rows = view.only(keep), view.rows_of(keep)
    assert part.users.tolist() == np.flatnonzero(keep).tolist()
    assert np.array_equal(part.masked, view.masked[rows])
    assert np.array_equal(part.lists.lengths, view.lists.lengths[keep])
    nobody = view.only(np.zeros(small.n_users, bool))
    assert nobody.lists.n_users == len(nobody.masked) == 0
