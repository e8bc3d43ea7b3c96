"""What every attack has to be: explained, scored in [0, 1], repeatable, and lost on noise."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fedmmf import rng
from fedmmf.attacks import strict
from fedmmf.attacks.contract import AttackResult
from fedmmf.attacks.gradients import GRADIENTS
from fedmmf.attacks.grouping import GROUPING
from fedmmf.attacks.inversion import INVERSION
from fedmmf.attacks.membership import MEMBERSHIP, CohortView, from_updates
from fedmmf.attacks.prior import DECODE, NAIVE, SCAN
from fedmmf.attacks.ranking import ranking
from fedmmf.attacks.recovery import recovery
from fedmmf.attacks.view import expose, noise, public_prior
from fedmmf.config import Settings

ON_MASKED = [
    recovery(),
    recovery(1),
    recovery(2),
    ranking(1),
    ranking(3, strict=True),
    INVERSION,
    GROUPING,
    NAIVE,
    SCAN,
    DECODE,
]
EVERY = [*ON_MASKED, GRADIENTS, MEMBERSHIP]
every_attack = pytest.mark.parametrize("attack", EVERY, ids=lambda attack: attack.name)


@pytest.fixture
def case(attack, small, plain_small, strict_small, rated_small):
    """(view, truth, control): where the attack works, and where it must not."""
    if attack is GRADIENTS:
        uploads, masked, _ = plain_small
        seen, known, _, _ = strict_small
        return uploads, masked, strict.vectors_as_updates(seen, known)
    if attack is MEMBERSHIP:
        popularity = rated_small.mean(axis=0)
        users = np.arange(small.n_users)
        draw = rng.stream(1, "scores").random(rated_small.shape)
        view = from_updates(rated_small, popularity, users)
        return view, rated_small, CohortView(users, popularity, draw)
    # In `small`, hardly two items have equal features: only without features do groups form.
    view = expose(small, Settings(mask="mean" if attack is GROUPING else "lr"))
    return view, small.values, noise(view, seed=1)


@every_attack
class TestEveryAttack:
    def test_it_says_what_it_knows_finds_and_counts(self, attack):
        assert attack.name
        for sentence in (attack.knows, attack.outputs, attack.measure):
            assert sentence[0].isupper()
            assert sentence.endswith(".")

    def test_scores_are_shares_of_every_user(self, attack, case):
        view, truth, _ = case
        result = attack.run(view, truth)
        for scores in (result.success, result.baseline):
            assert scores.shape == view.users.shape
            assert ((scores >= 0) & (scores <= 1)).all()

    def test_the_same_seed_gives_the_same_result(self, attack, case):
        view, truth, _ = case
        first, again = attack.run(view, truth, seed=5), attack.run(view, truth, seed=5)
        assert json.dumps(first.to_dict()) == json.dumps(again.to_dict())

    def test_it_beats_the_baseline_where_the_protection_is_off(self, attack, case):
        view, truth, _ = case
        assert attack.run(view, truth).advantage_interval[0] > 0

    def test_the_control_gives_it_nothing(self, attack, case):
        _, truth, control = case
        assert attack.run(control, truth).advantage_interval[0] <= 0


def result_of(success, baseline):
    users = np.arange(len(success))
    return AttackResult("x", "K.", "O.", "M.", users, np.array(success), np.array(baseline))


def test_users_without_ratings_do_not_count():
    result = result_of([1.0, np.nan, 0.5], [0.5, np.nan, 0.5])
    assert result.mean == 0.75
    assert result.share_of_users(0.9) == 0.5
    assert result.to_dict()["success"] == [1.0, None, 0.5]
    assert result.to_dict()["n_users"] == 2


def test_intervals_hold_the_mean_and_shrink_with_more_users():
    draw = rng.stream(0, "scores").random(400)
    few, many = result_of(draw[:40], draw[:40] * 0), result_of(draw, draw * 0)
    for result in (few, many):
        assert result.interval[0] < result.mean < result.interval[1]
    assert np.ptp(many.interval) < 0.5 * np.ptp(few.interval)
    assert many.advantage_interval == many.interval


def test_a_prior_does_not_know_the_attacked_users_own_ratings(small):
    changed = small.values.copy()
    mine = slice(0, small.by_user[1])
    changed[mine] = small.scale.min + small.scale.max - changed[mine]
    other = replace(small, values=changed)
    assert np.array_equal(public_prior(small)[mine], public_prior(other)[mine])
