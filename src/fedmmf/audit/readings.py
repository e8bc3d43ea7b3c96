"""Readings of a transcript of secure sums, so that the other attacks can be tried on it.

It tries what it can. It reads each party's masked vector as if it were an update, in the same fixed
point; and it reads the sum over all parties as if it were one party's update. It even knows which
items each party rated, except where it attacks that.

Masked vectors are noise. A sum is not: it gives item means, and in a small cohort each user is a
good part of them. `twin_sums` measures that part; only a larger cohort makes it smaller.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedmmf.arrays import Array
from fedmmf.attacks.calibrated import SummedView
from fedmmf.attacks.gradients import Uploads
from fedmmf.attacks.known_masks import KnownMasks
from fedmmf.attacks.membership import CohortView
from fedmmf.attacks.view import Exposed, View
from fedmmf.audit.recording import Transcript


def vectors_as_updates(transcript: Transcript, known: View) -> Uploads:
    """Read masked vectors as updates; `known` says who rated what."""
    return _uploads(transcript, known, transcript.rows)


def sums_as_updates(transcript: Transcript, known: View) -> Uploads:
    """Read the sum over all parties as each party's update."""
    return _uploads(transcript, known, [sums.rows[known.lists.items] for sums in transcript.sums])


def sums_as_they_are(transcript: Transcript, known: Exposed) -> SummedView:
    """Return the sum of round 1 for attacks that weigh it, before weights are chosen."""
    return SummedView(
        users=known.users,
        lists=known.lists,
        scale=known.scale,
        prior=known.prior,
        plan=transcript.plan,
        item_factors=transcript.item_factors[0],
        rows=transcript.sums[0].rows,
        masks=KnownMasks(known.plan, known.population, known.features, known.scale),
        weights=np.ones(len(known.users)),
    )


def twin_sums(uploads: Uploads, *, with_own: bool) -> Uploads:
    """Sum a cohort's plain updates, with or without the update of the attacked user.

    No server has the second. The difference between the two is what a user's taking part adds to
    what the sum says about everybody.
    """
    summed, items = [], uploads.lists.items
    for update, factors in zip(uploads.updates, uploads.item_factors, strict=True):
        total = np.zeros((len(factors), update.shape[1]))  # (n_items, k)
        np.add.at(total, items, update)
        own = 0.0 if with_own else update
        summed.append(np.asarray(total[items] - own, np.float32))
    return replace(uploads, updates=(summed[0], summed[1]))


def vectors_as_members(transcript: Transcript, known: View, popularity: Array) -> CohortView:
    """Read masked counts as the items that a party rated."""
    return CohortView(known.users, popularity, transcript.counts)


def sums_as_members(transcript: Transcript, known: View, popularity: Array) -> CohortView:
    """Read the sum's counts, which are the same for all users."""
    return CohortView(known.users, popularity, transcript.sums[0].n_raters[np.newaxis] + 0.0)


def _uploads(transcript: Transcript, known: View, updates: Sequence[Array]) -> Uploads:
    return Uploads(
        users=known.users,
        lists=known.lists,
        scale=known.scale,
        prior=known.prior,
        plan=transcript.plan,
        item_factors=transcript.item_factors,
        updates=(updates[0], updates[1]),
    )
