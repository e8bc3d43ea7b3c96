"""What a party finds out about itself, with what is public and its own ratings alone."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from fedmmf.attacks.self_audit import AttackAudit
from fedmmf.data.rated_items import RatedItems
from fedmmf.data.scales import RatingScale
from fedmmf.data.synthetic import synthetic
from fedmmf.engines import ENGINES
from fedmmf.masks import MaskPlan, fit_masks
from fedmmf.masks.fitting import MaskInput
from fedmmf.party.policy import Private
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf.simulation.real import real_federation

from .conftest import exposed

# A weak penalty: some users pass, others do not.
MIXED = Settings(
    mask="nn",
    mask_strength=0.2,
    sharing="adaptive",
    grouping="audit",
    audit_limit=0.7,
    held_out=0.0,
    factors=6,
)


def private_of(ratings, mask, **changes):
    run = prepare(ratings, Settings(mask=mask, held_out=0.0, **changes))
    return Private(run.lists, ratings.values, run.masks, run.features.seen)


def one_of(private, user):
    """A user as a party of its own."""
    rows, masks = private.lists.of(user), private.masks
    own = replace(
        masks,
        theta=masks.theta[[user]],
        strengths=masks.strengths[[user]],
        indptr=np.array([0, rows.stop - rows.start]),
        ratings=masks.ratings[rows],
        unit_fitted=masks.unit_fitted[rows],
        unit_held_out=masks.unit_held_out[rows],
    )
    lists = RatedItems.of_one(private.lists.items[rows])
    return Private(lists, private.ratings[rows], own, private.features)


@pytest.mark.parametrize("mask", ["none", "mean", "lr", "fm", "nn"])
@pytest.mark.parametrize("cross_fit", [False, True])
def test_one_party_finds_what_the_crowd_finds(small, mask, cross_fit):
    private, audit = private_of(small, mask, cross_fit=cross_fit), AttackAudit(0.5)
    found = audit.shares_found(private)
    for user in range(0, small.n_users, 7):
        assert audit.shares_found(one_of(private, user))[0] == found[user]
    assert found.mean() > 0.5


def test_it_knows_no_other_persons_ratings(small):
    flipped = small.values.copy()
    others = slice(small.by_user[1], None)
    flipped[others] = small.scale.min + small.scale.max - flipped[others]
    audit = AttackAudit(0.5)
    before, after = (
        audit.shares_found(private_of(ratings, "fm"))
        for ratings in (small, replace(small, values=flipped))
    )
    assert before[0] == after[0]


def test_it_knows_less_than_an_audit_of_everybody(small):
    view, informed = AttackAudit(0.5).view(private_of(small, "lr")), exposed(small, "lr")
    assert np.allclose(view.prior, 0.2)
    np.testing.assert_array_equal(view.masked, informed.masked)
    np.testing.assert_array_equal(view.extremes, informed.extremes)


def test_everybody_behind_a_party_has_to_be_below_the_limit(small, without_inversion):
    private = private_of(small, "nn", mask_strength=0.2)
    found = AttackAudit(0.5).shares_found(private)
    assert found.min() < 0.6 < found.max()
    assert not AttackAudit(float(found.max())).safe_users(private).all()
    assert AttackAudit(float(found.max()) + 0.01).safe_users(private).all()


def test_real_parties_decide_what_a_simulation_says(small, without_inversion):
    run = prepare(small, MIXED)
    simulated, federation = run.in_clear, real_federation(run)
    federation.prepare_sums()
    assert 0 < simulated.sum() < small.n_users
    # Masks of the two engines differ in the last bits, and a rating may tip over.
    parties = federation.parties
    decided = np.array([parties[name].in_clear for name in sorted(parties)])
    assert (decided == simulated).mean() > 0.95


def test_half_stars_are_attacked_as_well():
    halves = synthetic(80, 120, 4000, seed=4, scale=RatingScale(0.5, 5.0, 0.5))
    for mask in ("lr", "fm", "nn"):
        assert AttackAudit(0.5).shares_found(private_of(halves, mask)).mean() > 0.8, mask


def test_a_user_without_ratings_is_below_no_limit():
    plan, scale, features = MaskPlan("lr"), RatingScale(1.0, 5.0, 1.0), np.eye(4)
    lists, ratings = RatedItems(np.array([0, 0, 1]), np.array([2])), np.array([4.0])
    given = MaskInput(lists, ratings, scale, features)
    masks = fit_masks(plan, given, ENGINES["numpy"].mask_runner())
    private, audit = Private(lists, ratings, masks, features), AttackAudit(1.0, "numpy")
    assert np.isnan(audit.shares_found(private)[0])
    assert audit.shares_found(private)[1] == 1  # its smallest rating is all that it has
    assert not audit.safe_users(private).all()


ON_A_DEVICE = """
import sys
import numpy as np
from fedmmf.attacks.self_audit import AttackAudit
from fedmmf.engines import ENGINES
from fedmmf.data.rated_items import RatedItems
from fedmmf.masks import MaskPlan, fit_masks
from fedmmf.masks.fitting import MaskInput
from fedmmf.party.policy import Private
from fedmmf.data.scales import RatingScale

lists, ratings, features = RatedItems.of_one(np.arange(9)), np.arange(9) % 5 + 1.0, np.eye(9)
given = MaskInput(lists, ratings, RatingScale(1.0, 5.0, 1.0), features)
masks = fit_masks(MaskPlan("lr"), given, ENGINES["numpy"].mask_runner())
AttackAudit(0.5, "numpy").safe_users(Private(lists, ratings, masks, features))
heavy = ("numba", "polars", "scipy", "sklearn", "pydantic", "typer", "rich", "pandas")
print([name for name in heavy if name in sys.modules])
"""


def test_a_device_audits_itself_with_numpy_alone():
    command = [sys.executable, "-c", ON_A_DEVICE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
