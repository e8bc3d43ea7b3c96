import numpy as np
import pytest

from fedmmf.model.evaluation import RatingMeans, scored


def test_three_means_by_hand(small):
    users, items = np.array([0, 7, small.n_users, 3]), np.array([5, small.n_items, 2, 2])
    found = RatingMeans.of(small).predictions(users, items)
    everything = small.values.mean()
    assert list(found) == ["global mean", "user mean", "item mean"]
    np.testing.assert_allclose(found["global mean"], everything, rtol=1e-6)
    by_user = [small.values[small.user_codes == user].mean() for user in (0, 7, 3)]
    np.testing.assert_allclose(
        found["user mean"], [*by_user[:2], everything, by_user[2]], rtol=1e-6
    )
    by_item = [small.values[small.item_codes == item].mean() for item in (5, 2)]
    np.testing.assert_allclose(
        found["item mean"], [by_item[0], everything, by_item[1], by_item[1]], rtol=1e-6
    )


def test_what_nobody_rated_gets_the_mean_of_all(small):
    rest = small.select(small.item_codes != 4)
    found = RatingMeans.of(rest).predictions(np.array([0]), np.array([4]))
    assert found["item mean"][0] == pytest.approx(rest.values.mean(), rel=1e-6)


def test_both_errors_by_name():
    found = scored(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    assert found == {"rmse": pytest.approx(np.sqrt(2.0)), "mae": pytest.approx(1.0)}
