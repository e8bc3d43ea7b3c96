import numpy as np
import pytest

from fedmmf.data import RatingScale, load
from fedmmf.data.synthetic import GENRES, synthetic
from fedmmf.errors import SettingsError


@pytest.fixture(scope="module")
def small():
    return load("synthetic")


def rmse(errors):
    return float(np.sqrt(np.mean(np.square(errors))))


def shrunk_means(values, codes, size, strength):
    return np.bincount(codes, values, size) / (np.bincount(codes, minlength=size) + strength)


def test_shape_of_the_demo_set(small):
    assert (small.n_users, small.n_items, len(small)) == (600, 800, 60_000)
    assert small.synthetic
    assert "synthetic" in repr(small)
    assert small.scale == RatingScale.found_in(small.values) == RatingScale(1, 5, 1)
    assert len(set(small.item_titles.tolist())) == 800
    assert sum(name.startswith("genre=") for name in small.features.names) == len(GENRES) == 12
    assert small.timestamps.min() > 1_000_000_000


def test_both_tails_are_heavy(small):
    per_user, per_item = np.diff(small.by_user), np.diff(small.by_item.indptr)
    assert per_user.min() >= 15
    assert per_item.min() >= 1
    assert per_user.max() > 4 * np.median(per_user)
    assert per_item.max() > 10 * np.median(per_item)


def test_means_err_as_much_as_intended(small):
    train, test = small.split(test=0.1, seed=0)
    overall = float(train.values.mean())
    centred = train.values - overall
    of_users = overall + shrunk_means(centred, train.user_codes, small.n_users, 1.0)
    user_errors = test.values - of_users[test.user_codes]
    assert 0.95 < rmse(user_errors) < 1.05
    left = train.values - of_users[train.user_codes]
    of_items = shrunk_means(left, train.item_codes, small.n_items, 3.0)
    assert 0.88 < rmse(user_errors - of_items[test.item_codes]) < rmse(user_errors) - 0.03


def test_a_factorization_finds_what_means_cannot(small):
    train, test = small.split(test=0.1, seed=0)
    predicted = alternating_least_squares(train, factors=8, ridge=12.0, sweeps=10)
    errors = test.values - np.clip(predicted[test.user_codes, test.item_codes], 1, 5)
    assert 0.85 < rmse(errors) < 0.92


def alternating_least_squares(train, factors, ridge, sweeps):
    """A plain factorization with biases; slow and obvious."""
    rated = np.zeros((train.n_users, train.n_items), dtype=bool)
    values = np.zeros(rated.shape)
    rated[train.user_codes, train.item_codes] = True
    values[train.user_codes, train.item_codes] = train.values
    users = values.sum(axis=1) / rated.sum(axis=1)
    items = ((values - users[:, None]) * rated).sum(axis=0) / (rated.sum(axis=0) + 3.0)
    base = users[:, None] + items
    p = np.zeros((train.n_users, factors))
    q = np.random.default_rng(0).normal(0, 0.1, (train.n_items, factors))
    for _ in range(sweeps):
        for side, other, mask, error in (
            (p, q, rated, values - base),
            (q, p, rated.T, (values - base).T),
        ):
            weight = ridge * (0.2 if side is p else 1.0) * np.eye(factors)
            for row, chosen in enumerate(mask):
                x = other[chosen]
                side[row] = np.linalg.solve(x.T @ x + weight, x.T @ error[row, chosen])
    return base + p @ q.T


def test_people_rate_what_they_like(small):
    """Ratings are higher than those of people who would be made to rate at random."""
    liked = synthetic(300, 400, 12_000, seed=1).values.mean()
    everything = synthetic(300, 400, 119_000, seed=1).values.mean()  # nearly every pair
    assert liked > everything + 0.05


def test_features_explain_users_tastes(small):
    """Within users, genres and year explain ratings beyond chance."""
    gains = []
    for user in np.argsort(-np.diff(small.by_user))[:50]:
        mine = slice(*small.by_user[user : user + 2])
        x = small.features.values[small.item_codes[mine]]
        y = small.values[mine] - small.values[mine].mean()
        fit, hold = np.arange(len(y)) % 2 == 0, np.arange(len(y)) % 2 == 1
        slope = np.linalg.solve(x[fit].T @ x[fit] + 5 * np.eye(x.shape[1]), x[fit].T @ y[fit])
        gains.append(1 - rmse(y[hold] - x[hold] @ slope) / rmse(y[hold]))
    assert np.mean(gains) > 0.02


def test_equal_seeds_give_equal_data(small):
    assert load("synthetic").to_frame().equals(small.to_frame())
    assert (
        synthetic(60, 50, 1_200, seed=1)
        .to_frame()
        .equals(synthetic(60, 50, 1_200, seed=1).to_frame())
    )
    assert (
        not synthetic(60, 50, 1_200, seed=1)
        .to_frame()
        .equals(synthetic(60, 50, 1_200, seed=2).to_frame())
    )


@pytest.mark.parametrize(
    ("n_users", "n_items", "n_ratings", "minimum"),
    [
        (1, 5, 5, 1),
        (20, 30, 600, 15),
        (50, 40, 750, 15),
        (30, 30, 450, 15),
        (2000, 900, 90_000, 20),
    ],
)
def test_any_size_is_met_exactly(n_users, n_items, n_ratings, minimum):
    made = synthetic(n_users, n_items, n_ratings, min_per_user=minimum)
    assert (made.n_users, made.n_items, len(made)) == (n_users, n_items, n_ratings)
    assert np.diff(made.by_user).min() >= minimum
    assert np.diff(made.by_item.indptr).min() >= 1


@pytest.mark.parametrize("sizes", [(10, 20, 149), (10, 20, 201), (10, 10, 100), (0, 20, 100)])
def test_impossible_sizes_are_refused(sizes):
    with pytest.raises(SettingsError, match=r"need n_users|n_ratings must be in"):
        synthetic(*sizes)


def test_shape_of_ml_10m():
    made = load("synthetic:ml-10m")
    assert (made.n_users, made.n_items, len(made)) == (69_878, 10_677, 10_000_054)
    assert made.synthetic
    assert made.scale == RatingScale.found_in(made.values) == RatingScale(0.5, 5.0, 0.5)
    per_user, per_item = np.diff(made.by_user), np.diff(made.by_item.indptr)
    assert per_user.min() >= 20
    assert per_item.min() >= 1
    assert per_user.max() > 20 * np.median(per_user)
    assert per_item.max() > 50 * np.median(per_item)
