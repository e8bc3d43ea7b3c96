"""Two rounds among real parties, as the server has them."""

import numpy as np
import pytest

from fedmmf.audit import expose, recording
from fedmmf.audit.recording import record_plain, record_strict
from fedmmf.errors import WireError
from fedmmf.federation.local import make_parties, server_plan
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf.solvers.sgd import Factors, party_update, start_user_factors


def started(ratings, sharing, **changes):
    """(plan, parties, what is known of them)."""
    settings = Settings(mask="mean", sharing=sharing, factors=4, held_out=0.0, **changes)
    view = expose(prepare(ratings, settings))
    return server_plan(ratings, settings), make_parties(ratings, settings), view


def test_plain_uploads_are_the_parties_updates(small):
    plan, parties, known = started(small, "plain")
    seen = record_plain(plan, parties, known)
    assert np.array_equal(seen.lists.items, known.lists.items)
    assert np.array_equal(seen.lists.indptr, known.lists.indptr)
    user = 4
    mine, items = known.lists.of(user), known.lists.items[known.lists.of(user)]
    masked = parties[f"{user:06}"].masks.masked_ratings
    p = Factors.starting_at(start_user_factors(1, 4)[0])
    for t in (1, 2):
        q = seen.item_factors[t - 1][items]
        expected = party_update(masked, q, p, seen.plan, t)
        np.testing.assert_allclose(seen.updates[t - 1][mine], expected, rtol=1e-4, atol=1e-5)
    assert not np.array_equal(*seen.item_factors)


@pytest.mark.parametrize("signed", [False, True])
def test_secure_sums_are_those_of_the_plain_updates_and_vectors_are_not(small, signed):
    plain = record_plain(*started(small, "plain"))
    plan, parties, known = started(small, "strict", signed=signed, min_raters=1)
    seen = record_strict(plan, parties, known)
    sums = recording.twin_sums(plain, with_own=True).updates[0]
    read = recording.sums_as_updates(seen, known).updates[0]
    np.testing.assert_allclose(read, sums, atol=1e-3)
    vectors = recording.vectors_as_updates(seen, known).updates[0]
    assert np.abs(vectors).mean() > 100 * np.abs(plain.updates[0]).mean()
    assert np.abs(np.corrcoef(vectors.ravel(), plain.updates[0].ravel())[0, 1]) < 0.1


def test_a_sum_without_the_user_is_the_sum_of_the_others(small):
    uploads = record_plain(*started(small, "plain"))
    with_own, without = (recording.twin_sums(uploads, with_own=own) for own in (True, False))
    own = with_own.updates[1] - without.updates[1]
    np.testing.assert_allclose(own, uploads.updates[1], atol=1e-4)


def test_it_is_told_before_each_step(small):
    told = []
    record_strict(*started(small, "strict"), tell=told.append)
    assert told == ["secure sums are prepared", *["a round between real parties"] * 2]


def test_a_party_that_does_not_take_part_is_not_passed_over(small):
    plan, parties, known = started(small, "plain")
    silent = dict(started(small, "strict")[1].items())
    parties["000003"] = silent["000003"]  # its policy refuses to send updates in the clear
    with pytest.raises(WireError, match="1 did not answer"):
        record_plain(plan, parties, known)
