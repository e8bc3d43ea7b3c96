"""Lists from a log in which next to nothing is rated, most of it with 0."""

import numpy as np
import pytest

from fedmmf import FedMMF
from fedmmf_experiments.bookshop import BOOKS, RATINGS, USERS, bookshop


@pytest.mark.slow
def test_ranking_trains_on_a_bookshops_log_and_beats_popularity():
    """105,000 users, 320,000 books, 1.15 million ratings, 62 % of them 0."""
    ratings = bookshop()
    assert (ratings.n_users, ratings.n_items) == (USERS, BOOKS)
    assert len(ratings) == pytest.approx(RATINGS, rel=0.01)
    assert np.mean(ratings.values == 0) == pytest.approx(0.62, abs=0.01)
    train, test = ratings.split(test=0.2, seed=0)
    model = FedMMF(objective="ranking", mask="mean", factors=8, rounds=10).fit(train)
    some = test.select(test.user_codes % 10 == 0)
    found = model.evaluate(some, top=10)["ranking"]
    assert found.n_users > 1000
    assert found.ndcg_at_10 > 1.5 * found.popularity.ndcg_at_10
