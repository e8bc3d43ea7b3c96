from dataclasses import replace

import numpy as np
import pytest

from fedmmf import rng
from fedmmf.attacks.gradients import (
    GRADIENTS,
    MIN_RATINGS,
    leaked_ratings,
    solve_two_rounds,
    to_exposed,
)
from fedmmf.attacks.inversion import INVERSION
from fedmmf.attacks.view import MAX_SPANS
from fedmmf.audit.exposure import restrict

from .conftest import record_plain


def test_two_rounds_give_the_ratings_up_to_a_sign():
    draw = rng.stream(0, "rounds")
    ratings = draw.integers(1, 6, 30) - 3.2
    q = [draw.standard_normal((30, 4)) for _ in range(2)]
    p = [draw.standard_normal(4) for _ in range(2)]
    eta = [0.1 * f - np.outer(ratings - f @ v, v) for f, v in zip(q, p, strict=True)]
    found = solve_two_rounds(q, eta, 0.1)
    found *= np.sign(found @ ratings)
    np.testing.assert_allclose(found, ratings, atol=1e-6)


@pytest.mark.parametrize("step", ["sum", "mean", "adam"])
@pytest.mark.parametrize("mask", ["none", "lr", "nn"])
def test_real_messages_give_every_masked_rating_with_its_sign(small, step, mask):
    uploads, masked, _ = record_plain(small, mask, step=step)
    long = uploads.rows_of(uploads.lists.lengths >= 5)
    np.testing.assert_allclose(leaked_ratings(uploads)[long], masked[long], atol=2e-3)
    assert GRADIENTS.run(uploads, masked).mean > 0.99


def test_biases_do_not_help(small):
    uploads, masked, _ = record_plain(small, "mean", biases=True)
    assert GRADIENTS.run(uploads, masked).mean > 0.99


def test_one_round_twice_gives_nothing(small):
    """Two equal rounds leave the scale of p open: one round is not enough."""
    uploads, masked, _ = record_plain(small, "lr")
    once = replace(
        uploads,
        item_factors=(uploads.item_factors[0],) * 2,
        updates=(uploads.updates[0],) * 2,
    )
    assert GRADIENTS.run(once, masked).mean < 0.2


def test_numbers_that_are_no_updates_lead_to_bounded_ratings(plain_small):
    uploads, _, known = plain_small
    zeros = np.zeros_like(uploads.updates[0])
    for updates in ((zeros, zeros), (1e30 * uploads.updates[0], uploads.updates[1])):
        view = to_exposed(replace(uploads, updates=updates), known)
        assert (np.abs(view.masked) <= MAX_SPANS * view.scale.span).all()


def test_users_with_too_few_ratings_are_left_out(small):
    keep = np.ones(len(small), bool)
    keep[MIN_RATINGS - 1 : small.by_user[1]] = False
    uploads, _, known = record_plain(small.select(keep), "lr")
    assert np.isnan(leaked_ratings(uploads)[: MIN_RATINGS - 1]).all()
    assert to_exposed(uploads, known).users.tolist() == list(range(1, small.n_users))


def test_ml_100k_without_a_mask_is_read_in_full(ml_100k):
    uploads, masked, _ = record_plain(ml_100k, "none")
    found = leaked_ratings(uploads)
    assert (np.rint(found) == ml_100k.values).mean() >= 0.999
    assert np.abs(found - masked).max() < 1e-3


def test_ml_100k_leakage_then_inversion_gives_the_ratings(ml_100k):
    users = np.arange(0, ml_100k.n_users, 4)
    some = restrict(ml_100k, users)
    uploads, _, known = record_plain(some, "lr")
    assert INVERSION.run(to_exposed(uploads, known), some.values).mean >= 0.99
