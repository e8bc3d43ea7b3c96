"""Masks in batches are those that each user fits alone."""

from dataclasses import replace

import numpy as np
import pytest

from fedmmf.masks import FAMILIES
from fedmmf.masks.fitting import OneByOne
from fedmmf.masks.models import predict_lr

torch = pytest.importorskip("torch", reason="torch is not installed: make test-torch")
ours = pytest.importorskip("fedmmf.engines.torch.masks")

N_ITEMS, N_FEATURES = 120, 4
# Silent users, users with one rating, with fewer than there are folds, and with many.
LENGTHS = np.array([0, 1, 7, 30, 0, 2, 1, 120, 3, 5, 6, 64, 11, 4, 90, 25, 0])
INDPTR = np.concatenate(([0], np.cumsum(LENGTHS)))
KINDS = ("none", "mean", "lr", "fm", "nn")


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    return torch.device(request.param)


def inputs(family, strengths, n_folds=5, n_features=N_FEATURES, shrinkage=3.5):
    """The arguments of a trainer: what is given, and what is written into."""
    generator = np.random.default_rng(8)
    items = [np.sort(generator.permutation(N_ITEMS)[:n]) for n in LENGTHS]
    features = generator.standard_normal((N_ITEMS, n_features))
    items = np.concatenate(items).astype(np.int32)
    # Some users are explained by features, and some are not: they choose other penalties.
    known = np.repeat(generator.random(len(LENGTHS)) < 0.5, LENGTHS)
    targets = generator.standard_normal(len(items)) + 3 * known * features[items, :1].sum(axis=1)
    penalties = np.column_stack((strengths, np.full(len(strengths), shrinkage)))
    given = (items, features, targets, penalties, n_folds)
    theta = np.zeros((len(LENGTHS), family.n_parameters(n_features)))
    outputs = (theta, np.zeros(len(LENGTHS), np.int64), *np.zeros((2, len(items))))
    return given, outputs


def trained(runner, family, *about, **more):
    given, outputs = inputs(family, *about, **more)
    runner.train(family, INDPTR, *given, *outputs)
    return outputs


def assert_same(found, expected):
    theta, chosen, fitted, held_out = zip(found, expected, strict=True)
    assert np.array_equal(*chosen)
    for mine, theirs in (theta, fitted, held_out):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n_folds", [1, 2, 5])
@pytest.mark.parametrize("is_auto", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_masks_are_those_of_users_alone(device, kind, is_auto, n_folds):
    family = FAMILIES[kind]
    strengths = family.strengths if is_auto else (2.5,)
    expected = trained(OneByOne(), family, strengths, n_folds)
    if is_auto and n_folds > 1 and kind != "none":
        assert len(set(expected[1])) > 1  # users do differ
    assert_same(trained(ours.TorchRunner(device), family, strengths, n_folds), expected)


@pytest.mark.parametrize("entries", [1, 600, 5000])
def test_batches_change_nothing_and_are_told(device, monkeypatch, entries):
    family, told = FAMILIES["lr"], []
    expected = trained(OneByOne(), family, family.strengths)
    monkeypatch.setattr(ours, "ENTRIES", entries)
    assert_same(trained(ours.TorchRunner(device, told.append), family, family.strengths), expected)
    assert len(told) > 3
    assert sum(told) == len(LENGTHS)


def test_batches_are_bounded_and_not_for_the_most_part_padding(monkeypatch):
    monkeypatch.setattr(ours, "ENTRIES", 1000)
    lengths = np.random.default_rng(2).integers(0, 300, 500)
    batches = list(ours._batches(lengths, lambda length: 3 * length))
    assert sorted(np.concatenate(batches)) == np.flatnonzero(lengths).tolist()
    for users in batches:
        longest = lengths[users].max()
        assert len(users) == 1 or 3 * longest * len(users) <= 1000
        assert lengths[users].min() >= longest / 2
    assert max(len(users) for users in batches) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_masks_are_applied_as_by_users_alone(device, monkeypatch, kind):
    family, told = FAMILIES[kind], []
    monkeypatch.setattr(ours, "ENTRIES", 300)
    (items, features, *_), (theta, *_) = inputs(family, family.strengths)
    theta[:] = np.random.default_rng(3).standard_normal(theta.shape)
    found, expected = np.full((2, len(items)), np.nan)
    ours.TorchRunner(device, told.append).apply(family, INDPTR, items, features, theta, found)
    OneByOne().apply(family, INDPTR, items, features, theta, expected)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert sum(told) == len(LENGTHS)
    assert len(told) > 1 or kind in ("none", "mean")


def test_without_penalties_who_has_too_few_ratings_has_no_mask(device):
    """A linear system without a solution is an error in numpy, too."""
    for runner in (OneByOne(), ours.TorchRunner(device)):
        given, outputs = inputs(FAMILIES["lr"], (0.0,), shrinkage=0.0)
        given[1][:, 2] = 0.0
        with pytest.raises(np.linalg.LinAlgError):
            runner.train(FAMILIES["lr"], INDPTR, *given, *outputs)


def test_without_penalties_nothing_outside_a_fold_is_no_error(device):
    """Of the mean, whose folds may be all that there is."""
    family = FAMILIES["mean"]
    expected = trained(OneByOne(), family, (0.0,))
    assert_same(trained(ours.TorchRunner(device), family, (0.0,)), expected)


def test_a_family_that_predicts_in_its_own_way_does(device):
    def predict_twice(x, theta):
        return 2.0 * predict_lr(x, theta)

    family, told = replace(FAMILIES["lr"], name="other", predict=predict_twice), []
    runner = ours.TorchRunner(device, told.append)
    (items, features, *_), _ = inputs(family, (5.0,))
    expected, found = trained(OneByOne(), family, (5.0,)), trained(runner, family, (5.0,))
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    out = np.zeros(len(items))
    runner.apply(family, INDPTR, items, features, found[0], out)
    np.testing.assert_allclose(out, found[2])
    assert sum(told) == 2 * len(LENGTHS)
