"""Users whom training did not know."""

from dataclasses import replace

import numpy as np
import pytest

from fedmmf import FedMMF
from fedmmf.data import Ratings
from fedmmf.errors import DataError
from fedmmf.masks import FAMILIES
from fedmmf.paper import newcomers
from fedmmf.paper.newcomers import GIVEN, PULLS, Situation, best_pull, newcomer_rows
from fedmmf.solvers import SOLVERS


@pytest.fixture(scope="module")
def timed(small):
    """A fifth of the users have all of their ratings at the end, in the order of the file."""
    late = small.user_codes % 5 == 0
    times = np.arange(len(small)) + len(small) * late
    return replace(small, timestamps=times)


def test_newcomers_have_no_earlier_rating_and_join_with_their_first(timed):
    found = Situation.of(timed)
    new = np.unique(found.unseen.user_codes)
    assert len(new) > 3
    assert not np.isin(found.train.user_codes, new).any()
    assert len(found.given) + len(found.test) == len(found.unseen)
    for user in new:
        first, later = (
            part.timestamps[part.user_codes == user] for part in (found.given, found.test)
        )
        assert len(first) == min(GIVEN, (found.unseen.user_codes == user).sum())
        assert len(later) == 0 or first.max() < later.min()


def test_nobody_new_is_an_error(small):
    alike = np.empty(len(small), np.int64)  # everybody rates all the time
    for user in range(small.n_users):
        mine = slice(*small.by_user[user : user + 2])
        alike[mine] = np.arange(mine.stop - mine.start)
    with pytest.raises(DataError, match="nobody new with more than 10"):
        Situation.of(replace(small, timestamps=alike))


def test_newcomers_with_too_few_ratings_to_be_tested_are_an_error(timed, monkeypatch):
    monkeypatch.setattr(newcomers, "GIVEN", len(timed))
    with pytest.raises(DataError, match="nobody new with more than"):
        Situation.of(timed)


def test_every_mask_and_solver_has_a_row_with_the_errors_of_the_model(timed, monkeypatch):
    quick = {"factors": 2, "rounds": 3, "held_out": 0.0}
    monkeypatch.setattr(newcomers, "FedMMF", lambda **given: FedMMF(**given, **quick))
    told: list[str] = []
    rows = list(newcomer_rows(timed, 0, told.append))
    pairs = [(mask, solver) for solver in SOLVERS.names() for mask in FAMILIES.names()]
    assert [(row.model, row.solver) for row in rows if row.solver in SOLVERS.names()] == pairs
    assert told == [f"{mask}, {solver}" for mask, solver in pairs]
    assert all(0.3 < error < 2.0 for row in rows for error in (row.unseen, row.joined))
    require_means(rows, Situation.of(timed))
    found = Situation.of(timed)
    (row,) = (row for row in rows if (row.model, row.solver) == ("mean", "vb"))
    model = FedMMF(mask="mean", solver="vb", **quick).fit(found.train)
    assert row.unseen == pytest.approx(error_of(found.unseen, model.predict), abs=6e-5)
    squares = []
    for user in np.unique(found.test.user_codes):
        own, later = (part.select(part.user_codes == user) for part in (found.given, found.test))
        ids = own.item_ids[own.item_codes].tolist()
        newcomer = model.join(dict(zip(ids, own.values.tolist(), strict=True)))
        predicted = newcomer.predict(later.item_ids[later.item_codes])
        squares += np.square(later.values - predicted).tolist()
    assert row.joined == pytest.approx(np.sqrt(np.mean(squares)), abs=6e-5)


def require_means(rows, found):
    """Means of items as they are, 5 ratings' worth nearer to the mean, and with users' own."""
    train, test, overall = found.train, found.test, float(found.train.values.mean())
    by_model = {row.model: (row.unseen, row.joined) for row in rows if row.solver == "-"}
    for name, shrinkage in (("item means", 0.0), ("item means, shrunken", 5.0)):
        items = np.full(train.n_items, overall)
        for item in range(train.n_items):
            mine = train.values[train.item_codes == item]
            if len(mine):
                items[item] += (mine - overall).sum() / (len(mine) + shrinkage)
        errors = [p.values - items[p.item_codes] for p in (found.unseen, test)]
        expected = [np.sqrt(np.mean(np.square(error))) for error in errors]
        assert by_model[name] == pytest.approx(expected, abs=6e-5)
    pull, squares = best_pull(train), []
    for user in np.unique(test.user_codes):
        own, later = (part.select(part.user_codes == user) for part in (found.given, test))
        bias = (own.values - items[own.item_codes]).sum() / (len(own) + pull)
        predicted = np.clip(items[later.item_codes] + bias, 1, 5)
        squares += np.square(later.values - predicted).tolist()
    expected = (by_model["item means, shrunken"][0], np.sqrt(np.mean(squares)))
    assert by_model["item and user bias"] == pytest.approx(expected, abs=6e-5)
    assert len(by_model) == 3


def error_of(ratings: Ratings, predict) -> float:
    users = ratings.user_ids[ratings.user_codes]
    items = ratings.item_ids[ratings.item_codes]
    return float(np.sqrt(np.mean(np.square(ratings.values - predict(users, items)))))


def test_the_pull_of_biases_is_chosen_on_training_users(timed):
    """Whose first ratings are given, and whose others are predicted; users differ here."""
    train = Situation.of(timed).train
    levels = 2.0 * (train.user_codes % 2) - 1.0
    apart = replace(train, values=(3.0 + levels).astype(np.float32))
    assert best_pull(apart) == min(PULLS)
    alike = np.random.default_rng(0).integers(1, 6, len(train)).astype(np.float32)
    assert best_pull(replace(train, values=alike)) == max(PULLS)
