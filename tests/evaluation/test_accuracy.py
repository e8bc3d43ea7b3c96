import numpy as np
import pytest

from fedmmf import evaluation


def test_errors_by_hand():
    truth, predicted = np.array([1.0, 2.0, 5.0]), np.array([1.0, 4.0, 4.0])
    assert evaluation.rmse(truth, predicted) == pytest.approx(np.sqrt(5 / 3))
    assert evaluation.mae(truth, predicted) == pytest.approx(1.0)


def test_ndcg_by_hand():
    gains = np.array([0.0, 1.0, 0.0, 1.0])
    best = 1 + 1 / np.log2(3)
    assert evaluation.ndcg(gains, 3) == pytest.approx((1 / np.log2(3)) / best)
    assert evaluation.ndcg(np.array([1.0, 1.0, 0.0]), 2) == pytest.approx(1.0)
    assert evaluation.ndcg(np.zeros(4), 3) == 0.0


def test_recall_by_hand():
    assert evaluation.recall(np.array([0, 1, 0, 1, 1]), 2) == pytest.approx(1 / 3)
    assert evaluation.recall(np.zeros(3), 2) == 0.0
