import numpy as np
import pytest

from fedmmf.model import evaluation


def test_errors_by_hand():
    truth, predicted = np.array([1.0, 2.0, 5.0]), np.array([1.0, 4.0, 4.0])
    assert evaluation.rmse(truth, predicted) == pytest.approx(np.sqrt(5 / 3))
    assert evaluation.mae(truth, predicted) == pytest.approx(1.0)
