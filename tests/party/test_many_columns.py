"""Masks that see many columns: fitted alone, and asked about by nobody."""

import numpy as np
import polars as pl
import pytest

from fedmmf.aggregation import AGGREGATIONS
from fedmmf.data.synthetic import synthetic
from fedmmf.errors import WireError
from fedmmf.masks.feature_maps import MAX_JOINT
from fedmmf.party import Policy
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf.simulation.real import real_federation


def with_features(n_features):
    ratings = synthetic(30, 40, 500, seed=2)
    values = np.random.default_rng(0).standard_normal((ratings.n_items, n_features))
    columns = {f"f{number}": values[:, number] for number in range(n_features)}
    return ratings.with_features(pl.DataFrame({"item_id": ratings.item_ids, **columns}))


@pytest.mark.parametrize("n_features", [MAX_JOINT - 1, MAX_JOINT])
def test_masks_of_many_columns_are_fitted_alone(n_features):
    """By the simulation and by real parties alike."""
    settings = Settings(solver="vb", mask="lr", factors=2, rounds=2)
    run = prepare(with_features(n_features), settings)
    is_joint = n_features < MAX_JOINT
    assert run.plan.update_shape.n_joint == (1 + n_features if is_joint else 0)
    assert run.masks.theta.any() != is_joint
    member = real_federation(run).run()
    assert member.user_factors.shape == (30, run.plan.update_shape.n_own)


def test_a_party_tells_no_moments_of_more_columns_than_are_usual():
    settings = Settings(solver="sgd", mask="lr", factors=2, rounds=1)
    for n_features, may_ask in ((127, True), (128, False)):
        run = prepare(with_features(n_features), settings)
        users = next(iter(real_federation(run).parties.values())).users
        if may_ask:
            users.check_columns(1 + n_features, AGGREGATIONS["secure"], Policy())
            continue
        with pytest.raises(WireError, match="has 1 column here; got 129"):
            users.check_columns(1 + n_features, AGGREGATIONS["secure"], Policy())
