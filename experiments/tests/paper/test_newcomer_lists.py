"""Lists of users whom training did not know, beside the most popular items."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from fedmmf import FedMMF
from fedmmf.data.synthetic import synthetic
from fedmmf.errors import DataError
from fedmmf.model.evaluation import ndcg
from fedmmf_experiments.cli import reproduce, reproduce_newcomers
from fedmmf_experiments.paper import newcomer_lists
from fedmmf_experiments.paper.newcomer_lists import list_rows, n_judged
from fedmmf_experiments.paper.newcomers import KNOWN, Situation

QUICK = {"factors": 3, "rounds": 4}
LAST = max(KNOWN)


@pytest.fixture(scope="module")
def ratings():
    return synthetic(60, 90, 2700, min_per_user=34, seed=3)


@pytest.fixture(scope="module")
def fold(ratings):
    return Situation.folds(ratings, 1)[0]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    def made(**given):
        return FedMMF(**{**given, **QUICK})

    monkeypatch.setattr(newcomer_lists, "FedMMF", made)


def by_hand(fold, scores_of):
    """Mean nDCG@10 by known items, worked out person by person with plain sorting."""
    unseen, found = fold.unseen, {n: [] for n in KNOWN}
    for user in np.unique(unseen.user_codes):
        mine = np.flatnonzero(unseen.user_codes == user)
        mine = mine[np.argsort(unseen.timestamps[mine])]
        items, values = unseen.item_codes[mine], unseen.values[mine]
        wanted = items[LAST:][values[LAST:] >= 4]
        if len(wanted) == 0:
            continue
        for n in KNOWN:
            scores = np.array(scores_of(items[:n], values[:n]), np.float64)
            ranked = [i for i in np.argsort(-scores, kind="stable") if i not in items[:LAST]]
            hits = np.isin(ranked[:10], wanted)
            found[n].append(ndcg(hits, len(wanted), 10))
    return {n: pytest.approx(np.mean(some), abs=6e-5) for n, some in found.items()}, len(found[0])


def test_lists_are_judged_by_what_comes_after_the_first_thirty(fold):
    popular, ours = list_rows([fold], 0, str)
    train = fold.train
    counts = np.bincount(train.item_codes, minlength=train.n_items)
    expected, n_users = by_hand(fold, lambda items, values: counts)
    assert popular.by_known == expected
    assert n_judged([fold]) == n_users
    model = FedMMF(objective="ranking", **QUICK).fit(train)

    def scores_of(items, values):
        if len(items) == 0:
            return model.learned.scorer(np.arange(train.n_items))(model.learned.n_users)
        known = dict(zip(train.item_ids[items].tolist(), values.tolist(), strict=True))
        return model.join(known).scores(train.item_ids).astype(np.float32)

    assert ours.by_known == by_hand(fold, scores_of)[0]
    assert len(set(popular.by_known.values())) == 1


def test_nothing_relevant_is_an_error(ratings, monkeypatch):
    monkeypatch.setattr(newcomer_lists, "KNOWN", (0, 90))
    with pytest.raises(DataError, match="anything relevant"):
        list(list_rows(Situation.folds(ratings, 1), 0, str))


@pytest.mark.parametrize("more", [[], ["--implicit"]], ids=str)
def test_the_command_prints_a_table_and_json(ratings, monkeypatch, more):
    monkeypatch.setattr(reproduce_newcomers, "load", lambda name: ratings)
    words = ["newcomer-lists", "--folds", "1", *more]
    said = json.loads(CliRunner().invoke(reproduce.app, [*words, "--json"]).stdout)
    assert [row["model"] for row in said["rows"]] == ["most popular", "vb, ranking"]
    printed = CliRunner().invoke(reproduce.app, words).stdout
    for row in said["rows"]:
        for value in row["by_known"].values():
            assert f"{value:.4f}" in printed
