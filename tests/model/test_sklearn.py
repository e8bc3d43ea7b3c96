"""The estimator among scikit-learn's tools."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone, is_regressor
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_predict, cross_val_score
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_is_fitted

from fedmmf import FedMMF
from fedmmf.errors import SettingsError

SMALL = {"mask": "mean", "factors": 2, "rounds": 3}


@pytest.fixture(scope="module")
def table(small):
    return small.to_frame()


@pytest.fixture(scope="module")
def pairs(table):
    return table[:, :2].to_numpy()


@pytest.fixture(scope="module")
def y(table):
    return table["rating"].to_numpy()


def test_a_score_is_that_of_scikit_learn(pairs, y):
    model = FedMMF(**SMALL).fit(pairs[::2], y[::2])
    assert model.score(pairs[1::2], y[1::2]) == pytest.approx(
        r2_score(y[1::2], model.predict(pairs[1::2]))
    )
    with pytest.raises(SettingsError, match="ratings that differ; all to score are 3"):
        model.score(pairs[:2], [3, 3])


def test_a_model_that_ranks_is_scored_by_its_lists(small):
    train, test = small.split(0.3)
    model = FedMMF(mask="mean", objective="ranking", factors=2, rounds=3).fit(train)
    expected = model.evaluate(test)["ranking"].to_json_dict()["ndcg_at_10"]
    frame = test.to_frame()
    assert model.score(frame[:, :2], frame["rating"]) == model.score(test) == expected
    assert 0 < expected < 1


def test_a_copys_solver_follows_its_objective_unless_it_was_named():
    assert clone(FedMMF()).set_params(objective="ranking").settings.solver == "vb"
    with pytest.raises(SettingsError, match="needs solver 'vb'; got 'sgd'"):
        clone(FedMMF(solver="sgd")).set_params(objective="ranking")


def test_cross_validation_is_what_a_loop_would_do(table, pairs, y):
    """For arrays and frames; a scale goes through to every fit."""
    folds = GroupKFold(3)
    places = list(folds.split(pairs, y, groups=pairs[:, 1]))
    by_hand = [
        FedMMF(**SMALL).fit(pairs[kept], y[kept], scale=(1, 5)).score(pairs[out], y[out])
        for kept, out in places
    ]
    for some in (pairs, table[:, :2], table[:, :2].to_pandas()):
        found = cross_val_score(FedMMF(**SMALL), some, y, cv=places, params={"scale": (1, 5)})
        np.testing.assert_allclose(found, by_hand)
    predicted = cross_val_predict(FedMMF(**SMALL), pairs, y, cv=places)
    assert predicted.shape == y.shape


def test_a_search_over_a_grid_ends_with_the_best(pairs, y):
    grid = {"factors": np.array([1, 3]), "mask": ["none", "mean"]}
    how = {"scoring": "neg_root_mean_squared_error", "cv": 2, "error_score": "raise"}
    search = GridSearchCV(FedMMF(rounds=3), grid, **how).fit(pairs, y)
    assert search.best_params_["mask"] == "mean"
    best = search.best_estimator_
    assert best.get_params() == FedMMF(rounds=3, **search.best_params_).get_params()
    assert np.array_equal(search.predict(pairs), best.predict(pairs))


def test_clones_are_unfitted_and_have_every_setting(pairs, y):
    model = FedMMF(**SMALL, learning_rate=0.0123, dp_delta=1e-7).fit(pairs, y)
    check_is_fitted(model)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    with pytest.raises(Exception, match="not fitted"):
        check_is_fitted(copy)
    assert is_regressor(model)
    again = pickle.loads(pickle.dumps(model))  # noqa: S301 - what searches do between processes
    assert np.array_equal(again.predict(pairs), model.predict(pairs))


OTHER_COLUMNS = "X is two columns of ids, user and item; this check brings numbers in any columns"
OWN_ERRORS = "errors are FedMMFError, which tell what to do; this check wants another class"
CHECKED_EARLY = "settings are refused where they are given, and not first when fitting"
EXPECTED = {
    OTHER_COLUMNS: """
        check_fit_score_takes_y check_dont_overwrite_parameters check_n_features_in_after_fitting
        check_positive_only_tag_during_fit check_estimators_dtypes check_dtype_object
        check_pipeline_consistency check_estimators_pickle check_f_contiguous_array_estimator
        check_regressor_data_not_an_array check_regressors_no_decision_function
        check_supervised_y_2d check_regressors_int check_methods_sample_order_invariance
        check_methods_subset_invariance check_dict_unchanged check_fit2d_predict1d
        check_fit2d_1sample check_fit2d_1feature check_n_features_in
    """,
    OWN_ERRORS: """
        check_estimators_unfitted check_complex_data check_estimators_empty_data_messages
        check_estimators_nan_inf check_estimator_sparse_tag check_estimator_sparse_array
        check_estimator_sparse_matrix check_regressors_train check_supervised_y_no_nan
        check_fit1d
    """,
    CHECKED_EARLY: "check_do_not_raise_errors_in_init_or_set_params check_set_params",
}


QUIETLY = {"on_fail": None, "on_skip": None}


def test_the_checks_of_scikit_learn_that_apply_pass():
    reasons = {name: reason for reason, names in EXPECTED.items() for name in names.split()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it does not inherit, and that some are skipped
        found = check_estimator(
            FedMMF(**SMALL, sharing="plain"), expected_failed_checks=reasons, **QUIETLY
        )
    status = {}
    for one in found:
        status.setdefault(one["status"], set()).add(one["check_name"])
    assert not status.get("failed"), status["failed"]
    assert status["xfail"] == set(reasons)  # none is excused without need
    assert len(status["passed"]) >= 15, status["passed"]
