"""Metrics of lists, each against the slowest way to say it."""

from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmmf.model.evaluation import (
    METRICS,
    PER_LIST,
    ListTally,
    average_precision,
    cut_offs,
    hit_rate,
    ndcg,
    precision,
    recall,
    reciprocal_rank,
    surprise,
)
from fedmmf.reports.list_scores import ListScores, metric_title

N_ITEMS = 12


def slow(name, listed, relevant, n):
    """One metric of one list, word by word."""
    listed = listed[:n]
    hits = [item in relevant for item in listed]
    ideal = sum(1 / log2(rank + 1) for rank in range(1, min(n, len(relevant)) + 1))
    return {
        "ndcg": sum(hit / log2(rank + 1) for rank, hit in enumerate(hits, 1)) / ideal,
        "recall": len(relevant.intersection(listed)) / len(relevant),
        "precision": len(relevant.intersection(listed)) / n,
        "hit_rate": 1.0 if relevant.intersection(listed) else 0.0,
        "map": sum(sum(hits[: at + 1]) / (at + 1) for at in range(len(hits)) if hits[at])
        / len(relevant),
        "mrr": max((1 / rank for rank, hit in enumerate(hits, 1) if hit), default=0.0),
    }[name]


LISTS = st.permutations(range(N_ITEMS)).flatmap(
    lambda order: st.integers(1, N_ITEMS).map(lambda length: order[:length])
)
JUDGED = st.tuples(LISTS, st.sets(st.integers(0, N_ITEMS - 1), min_size=1))


@given(JUDGED, st.integers(1, 15), st.sampled_from(sorted(PER_LIST)))
def test_every_metric_is_what_its_words_say(judged, n, name):
    listed, relevant = judged
    hits = np.isin(listed, list(relevant))
    found = PER_LIST[name](hits, len(relevant), n)
    assert found == pytest.approx(slow(name, listed, relevant, n))
    assert 0.0 <= found <= 1.0 + 1e-12


def test_metrics_by_hand():
    """Relevant: three items, of which the second and the fourth place of the list have two."""
    hits = np.array([False, True, False, True, False])
    best = 1 + 1 / log2(3) + 1 / log2(4)
    assert ndcg(hits, 3, 5) == pytest.approx((1 / log2(3) + 1 / log2(5)) / best)
    assert ndcg(hits, 3, 2) == pytest.approx((1 / log2(3)) / (1 + 1 / log2(3)))
    assert recall(hits, 3, 3) == pytest.approx(1 / 3)
    assert precision(hits, 3, 5) == pytest.approx(2 / 5)
    assert precision(hits, 3, 10) == pytest.approx(2 / 10)  # a short list leaves places empty
    assert (hit_rate(hits, 3, 1), hit_rate(hits, 3, 2)) == (0.0, 1.0)
    assert average_precision(hits, 3, 5) == pytest.approx((1 / 2 + 2 / 4) / 3)
    assert (reciprocal_rank(hits, 3, 5), reciprocal_rank(hits, 3, 1)) == (0.5, 0.0)


def test_surprise_is_in_bits_and_an_item_without_raters_is_like_one_with_a_single_rater():
    np.testing.assert_allclose(surprise(np.array([8, 4, 1, 0]), 8), [0.0, 1.0, 3.0, 3.0])


@given(st.lists(JUDGED, min_size=1, max_size=6), st.sampled_from([1, 3, 10, 14]))
def test_a_tally_is_the_mean_over_lists_and_coverage_is_over_all_of_them(judged, top):
    bits = surprise(np.arange(N_ITEMS), 20)
    wanted = cut_offs(top)
    tally = ListTally(wanted, bits)
    for listed, relevant in judged:
        tally.add(np.array(listed), np.isin(listed, list(relevant)), len(relevant))
    found = tally.means()
    assert set(found) == set(wanted)
    for (name, n), value in found.items():
        if name == "coverage":
            expected = len({item for listed, _ in judged for item in listed[:n]}) / N_ITEMS
        elif name == "novelty":
            expected = np.mean([np.mean(bits[list(listed[:n])]) for listed, _ in judged])
        else:
            expected = np.mean([slow(name, listed, good, n) for listed, good in judged])
        assert value == pytest.approx(expected)


def test_no_list_has_no_figures():
    means = ListTally(cut_offs(3), np.zeros(4)).means()
    assert set(means) == set(cut_offs(3))
    assert np.isnan(list(means.values())).all()


def test_the_usual_lengths_are_always_there_and_every_metric_is_there_at_the_length_asked_for():
    usual = {f"{name}_at_{n}" for name, n in cut_offs(10)}
    assert usual == {*ListScores.model_fields, "recall_at_10"}
    more = {f"{name}_at_{n}" for name, n in cut_offs(5)}
    assert more == {*ListScores.model_fields, *(f"{name}_at_5" for name in METRICS)}
    for name in more:
        assert metric_title(name)
