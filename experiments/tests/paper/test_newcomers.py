"""Users whom training did not know."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from fedmmf import FedMMF
from fedmmf.errors import DataError, SettingsError
from fedmmf.masks import FAMILIES
from fedmmf.solvers import SOLVERS
from fedmmf_experiments.cli import reproduce, reproduce_newcomers
from fedmmf_experiments.paired import paired_gain
from fedmmf_experiments.paper import newcomers
from fedmmf_experiments.paper.newcomers import (
    GIVEN,
    KNOWN,
    PULLS,
    Situation,
    best_pull,
    counts_of,
    newcomer_rows,
)

QUICK = {"factors": 2, "rounds": 3, "held_out": 0.0}
LAST = max(KNOWN)


@pytest.fixture(scope="module")
def timed(small):
    """A sixth of the users have all of their ratings at the end, in no order."""
    late = small.user_codes % 6 == 0
    order = np.random.default_rng(0).permutation(len(small))
    return replace(small, timestamps=order + len(small) * late)


@pytest.fixture(scope="module")
def found(timed):
    return Situation.latest(timed)


@pytest.fixture(scope="module")
def told():
    return []


@pytest.fixture(scope="module")
def rows(found, told):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(newcomers, "FedMMF", lambda **given: FedMMF(**given, **QUICK))
        return list(newcomer_rows([found], 0, told.append))


def by_hand(unseen, n_known, n_before):
    """(items and ratings known, those to predict) of each user, by time; the last may be empty."""
    for user in np.unique(unseen.user_codes):
        mine = np.flatnonzero(unseen.user_codes == user)
        mine = sorted(mine, key=lambda at: unseen.timestamps[at])
        pairs = [(int(unseen.item_codes[at]), float(unseen.values[at])) for at in mine]
        if pairs[n_before:]:
            yield pairs[:n_known], pairs[n_before:]


def squares_by_user(found, predict, n_known, n_before):
    """Of each user who is tested, squared errors of `predict(known pairs, items)`."""
    squares = []
    for known, later in by_hand(found.unseen, n_known, n_before):
        items, values = zip(*later, strict=True)
        squares.append(np.square(np.array(values) - predict(known, np.array(items))))
    return squares


def require_errors(row, found, predict):
    def error(n_known, n_before):
        squares = squares_by_user(found, predict, n_known, n_before)
        return pytest.approx(np.sqrt(np.mean(np.concatenate(squares))), abs=6e-5)

    assert row.unseen == error(0, 0)
    assert row.joined == error(GIVEN, GIVEN)
    assert row.by_known == {n: error(n, LAST) for n in KNOWN}


def way_of(model, ids):
    """A model as newcomers meet it: it has never heard of them, or they join."""

    def predict(known, items):
        if not known:
            return model.predict(np.full(len(items), -1), ids[items])
        return model.join({ids[item].item(): value for item, value in known}).predict(ids[items])

    return predict


def way_of_bias(train, shrinkage, pull):
    overall = float(train.values.mean(dtype=np.float64))
    means = np.full(train.n_items, overall)
    for item in range(train.n_items):
        mine = train.values[train.item_codes == item]
        means[item] += (mine - overall).sum() / max(len(mine) + shrinkage, 1)

    def predict(known, items):
        beyond = sum(value - means[item] for item, value in known)
        return np.clip(means[items] + (beyond / (len(known) + pull) if pull else 0.0), 1, 5)

    return predict


def test_newcomers_have_no_earlier_rating_and_join_with_their_first(found):
    new = np.unique(found.unseen.user_codes)
    assert len(new) > 3
    assert not np.isin(found.train.user_codes, new).any()
    nothing, *others = (case for (case,) in found.cases)
    assert nothing.given is None
    assert len(nothing.test) == len(found.unseen)
    for case, n_known, n_before in zip(
        others, (GIVEN, *KNOWN), (GIVEN, *[LAST] * len(KNOWN)), strict=True
    ):
        for user in new:
            mine = np.sort(found.unseen.timestamps[found.unseen.user_codes == user])
            later = np.sort(case.test.timestamps[case.test.user_codes == user])
            assert np.array_equal(later, mine[n_before:])
            if n_known:
                first = np.sort(case.given.timestamps[case.given.user_codes == user])
                assert np.array_equal(first, mine[:n_known])


def test_numbers_of_known_ratings_are_compared_on_the_same_ratings(found):
    lengths = np.bincount(found.unseen.user_codes)
    assert 0 < (lengths > LAST).sum() < (lengths > 0).sum()  # some have too few
    for name, n_before in (("unseen", 0), ("joined", GIVEN), ("by_known", LAST)):
        assert counts_of([found])[name] == {
            "newcomers": (lengths > n_before).sum(),
            "ratings": np.maximum(lengths - n_before, 0).sum(),
        }
    first, *others = (case for (case,) in found.cases[2:])
    for case in others:
        assert np.array_equal(case.test.timestamps, first.test.timestamps)


def test_in_folds_everybody_is_new_once_and_rates_in_random_order(small):
    folds = Situation.folds(small, seed=3)
    new = [np.unique(fold.unseen.user_codes) for fold in folds]
    assert np.array_equal(np.sort(np.concatenate(new)), np.arange(small.n_users))
    for fold, users in zip(folds, new, strict=True):
        assert len(fold.train) + len(fold.unseen) == len(small)
        assert not np.isin(fold.train.user_codes, users).any()
        times = fold.unseen.timestamps
        assert np.array_equal(np.sort(times), np.arange(len(times)))
        assert (np.diff(times) < 0).mean() > 0.3
    again = Situation.folds(small, 2, seed=3)
    assert len(again) == 2
    assert np.array_equal(again[1].unseen.timestamps, folds[1].unseen.timestamps)


def test_errors_of_folds_are_taken_together(small, monkeypatch):
    monkeypatch.setattr(newcomers, "FedMMF", lambda **given: FedMMF(**given, **QUICK))
    folds = Situation.folds(small, 2)
    *_, row = newcomer_rows(folds, 0, str, [("mean", "vb")])
    alone = [list(newcomer_rows([fold], 0, str, [("mean", "vb")]))[-1] for fold in folds]
    counts = [counts_of([fold])["by_known"]["ratings"] for fold in folds]
    assert counts_of(folds)["by_known"]["ratings"] == sum(counts)
    for n in KNOWN:
        squares = [count * one.by_known[n] ** 2 for count, one in zip(counts, alone, strict=True)]
        assert row.by_known[n] == pytest.approx(np.sqrt(sum(squares) / sum(counts)), abs=1e-4)
        ends = [one.by_known_differences[n].mean for one in alone]
        assert min(ends) - 1e-9 <= row.by_known_differences[n].mean <= max(ends) + 1e-9


def test_errors_of_several_orders_are_taken_together(small, monkeypatch):
    monkeypatch.setattr(newcomers, "FedMMF", lambda **given: FedMMF(**given, **QUICK))
    (both,) = Situation.folds(small, 1, draws=2)
    assert np.array_equal(both.unseen.timestamps, Situation.folds(small, 1)[0].unseen.timestamps)
    assert not np.array_equal(both.orders[0].timestamps, both.orders[1].timestamps)
    each = [Situation(both.train, (order,)) for order in both.orders]
    assert counts_of([both]) == counts_of(each[:1])
    *_, row = newcomer_rows([both], 0, str, [("mean", "vb")])
    alone = [list(newcomer_rows([one], 0, str, [("mean", "vb")]))[-1] for one in each]
    for n in KNOWN:
        squares = [one.by_known[n] ** 2 for one in alone]
        assert row.by_known[n] == pytest.approx(np.sqrt(np.mean(squares)), abs=1e-4)
        means = [one.by_known_differences[n].mean for one in alone]
        assert row.by_known_differences[n].mean == pytest.approx(np.mean(means), abs=1e-9)


def test_nobody_new_is_an_error(small):
    alike = np.empty(len(small), np.int64)  # everybody rates all the time
    for user in range(small.n_users):
        mine = slice(*small.by_user[user : user + 2])
        alike[mine] = np.arange(mine.stop - mine.start)
    with pytest.raises(DataError, match=r"nobody new with more than 30.* the most are 0"):
        Situation.latest(replace(small, timestamps=alike))


def test_newcomers_with_too_few_ratings_to_be_tested_are_an_error(timed, monkeypatch):
    monkeypatch.setattr(newcomers, "KNOWN", (0, len(timed)))
    with pytest.raises(DataError, match="nobody new with more than"):
        Situation.latest(timed)


def test_every_mask_and_solver_has_a_row(rows, told):
    pairs = [(mask, solver) for solver in SOLVERS.names() for mask in FAMILIES.names()]
    assert [(row.model, row.solver) for row in rows if row.solver in SOLVERS.names()] == pairs
    assert told == [f"{mask}, {solver}" for mask, solver in pairs]
    for row in rows:
        assert all(0.3 < e < 2.0 for e in (row.unseen, row.joined, *row.by_known.values()))


@pytest.mark.parametrize(("mask", "solver"), [("mean", "vb"), ("lr", "sgd")])
def test_a_row_has_the_errors_of_its_model(rows, found, mask, solver):
    """And how each newcomer's differ from those of item and user bias."""
    (row,) = (row for row in rows if (row.model, row.solver) == (mask, solver))
    model = FedMMF(mask=mask, solver=solver, **QUICK).fit(found.train)
    way = way_of(model, found.train.item_ids)
    require_errors(row, found, way)
    bias = way_of_bias(found.train, 5.0, best_pull(found.train))
    some = row.by_known_differences
    cases = [(row.unseen_difference, 0, 0), (row.joined_difference, GIVEN, GIVEN)]
    for difference, known, before in (*cases, *((some[n], n, LAST) for n in KNOWN)):
        ours, theirs = (squares_by_user(found, each, known, before) for each in (way, bias))
        means = [a.mean() - b.mean() for a, b in zip(ours, theirs, strict=True)]
        expected = paired_gain([np.array(means)], 0)
        assert difference.over == expected.over == "users"
        for end in ("mean", "low", "high"):
            assert getattr(difference, end) == pytest.approx(getattr(expected, end), abs=1e-5)
        assert difference.low < difference.mean < difference.high


def test_means_are_of_items_as_they_are_shrunken_and_with_users_own(rows, found):
    by_model = {row.model: row for row in rows if row.solver == "-"}
    assert len(by_model) == 3
    ways = {
        "item means": (0.0, None),
        "item means, shrunken": (5.0, None),
        "item and user bias": (5.0, best_pull(found.train)),
    }
    for name, (shrinkage, pull) in ways.items():
        require_errors(by_model[name], found, way_of_bias(found.train, shrinkage, pull))
        assert by_model[name].unseen_difference is by_model[name].joined_difference is None
    assert len(set(by_model["item means"].by_known.values())) == 1
    assert len(set(by_model["item and user bias"].by_known.values())) == len(KNOWN)


def test_the_command_prints_tables_of_80_columns_and_all_of_it_in_json(
    rows, timed, found, monkeypatch
):
    monkeypatch.setattr(reproduce_newcomers, "load", lambda name: timed)
    monkeypatch.setattr(reproduce_newcomers, "newcomer_rows", lambda *given: iter(rows))
    monkeypatch.setenv("COLUMNS", "200")  # as wide as they like
    printed = CliRunner().invoke(reproduce.app, ["newcomers"]).stdout
    lines = [line.rstrip() for line in printed.splitlines()]
    assert max(map(len, lines)) <= 80
    for row in rows:
        marked = []
        for n, figure in row.by_known.items():
            interval = row.by_known_differences.get(n)
            is_better, is_worse = interval and interval.high < 0, interval and interval.low > 0
            marked.append(f"{figure:.4f}{' <' if is_better else ' >' if is_worse else ''}")
        for some in ([f"{figure:.4f}" for figure in (row.unseen, row.joined)], marked):
            cells = [row.model if row.solver == "-" else f"{row.model}, {row.solver}", *some]
            assert any(cells == [c.strip() for c in line.split("│")[1:-1]] for line in lines)
    said = json.loads(CliRunner().invoke(reproduce.app, ["newcomers", "--json"]).stdout)
    assert said["tests"] == counts_of([found])
    assert len(said["rows"]) == len(rows)
    assert said["rows"][0]["by_known"]["30"] == rows[0].by_known[30]
    assert said["rows"][0]["joined_difference"] is None
    assert said["rows"][-1]["joined_difference"]["low"] == rows[-1].joined_difference.low
    assert said["rows"][-1]["by_known_differences"]["3"]["low"] == (
        rows[-1].by_known_differences[3].low
    )


def test_the_pull_of_biases_is_chosen_on_training_users(timed):
    """Whose first ratings are given, and whose others are predicted; users differ here."""
    train = Situation.latest(timed).train
    levels = 2.0 * (train.user_codes % 2) - 1.0
    apart = replace(train, values=(3.0 + levels).astype(np.float32))
    assert best_pull(apart) == min(PULLS)
    alike = np.random.default_rng(0).integers(1, 6, len(train)).astype(np.float32)
    assert best_pull(replace(train, values=alike)) == max(PULLS)


def test_an_unknown_mask_is_named(capsys):
    done = CliRunner().invoke(reproduce.app, ["newcomers", "--mask", "magic"])
    assert isinstance(done.exception, SettingsError)
    assert "--mask must be one of" in str(done.exception)
    assert "got 'magic'" in str(done.exception)
