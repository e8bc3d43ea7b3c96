"""The verdict for deciders, on findings that are made up."""

import numpy as np
import pytest

from fedmmf.attacks import AttackResult
from fedmmf.audit.deciding import RULE, Decision, NoiseCost, with_noise
from fedmmf.audit.messages import STRICT
from fedmmf.audit.rounds import FEWER, NOISY, POWER, round_targets
from fedmmf.audit.verdicts import AuditFindings
from fedmmf.reports.spending import EpsilonBounds
from fedmmf.settings import Settings

N = 400


def result(name, gain, n=N, spread=0.001):
    """An attack that gains so much, give or take very little, over a public share of 0.4."""
    noise = spread * np.random.default_rng(0).standard_normal(n)
    public = np.full(n, 0.4)
    return AttackResult(name, "K.", "O.", "M.", np.arange(n), public + gain + noise, public)


def decided(
    gain=0.0, power=0.3, items=0.0, exposed=0.0, cost=None, n_users=N, bounds=None, **changes
):
    settings = Settings(mask="lr").changed(**changes)
    sums = [result("disaggregation", gain), result("disaggregation, items", items)]
    messages = {
        STRICT[1]: sums,
        FEWER: [result("disaggregation", gain / 2)],
        POWER: [result("disaggregation", power, n=50)],
    }
    j = np.where(np.arange(N) < 100, 0.01, 0.5)
    lost = np.full(N, exposed)
    found = AuditFindings(settings, j, lost, lost < 0.5, [], messages, bounds)
    return Decision(found, n_users, cost).verdict()


def test_sums_that_are_read_are_red():
    verdict = decided(gain=0.15)
    assert verdict.light == "red"
    assert "55 in 100 of the person's ratings right" in verdict.sentence
    assert "public knowledge gets 40 in 100" in verdict.sentence
    assert verdict.rule.startswith(RULE)
    assert verdict.rule.endswith("Here: 15 in 100 more (15.0 to 15.0).")
    assert "disaggregation" not in verdict.sentence + verdict.rule


def test_little_is_amber_and_nothing_is_green():
    assert decided(gain=0.03).light == "amber"
    assert "43 in 100" in decided(gain=0.03).sentence
    green = decided()
    assert green.light == "green"
    assert "next to nothing" in green.sentence
    assert green.rule.endswith("Here: nothing was found by attacks that have shown their power.")
    assert green.changes == ("Nothing. Audit again when people, items or rounds change.",)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"power": 0.0}, "control of power"),
        ({"power": -0.1}, "control of power"),
        ({"rounds": 1000}, "only 400 of the planned rounds"),
        ({"sharing": "adaptive"}, "own numbers leave in the clear"),
        ({"aggregation": "dp"}, "epsilon 8 is above 1"),
    ],
)
def test_it_is_never_green_where_the_test_could_not_have_shown_it(changes, reason):
    verdict = decided(**changes)
    assert verdict.light == "amber"
    assert reason in verdict.rule


def test_it_is_never_green_where_no_attack_was_tried():
    settings = Settings(mask="lr")
    found = AuditFindings(settings, np.ones(5), np.zeros(5), np.ones(5, bool), [], {})
    verdict = Decision(found, 5).verdict()
    assert verdict.light == "amber"
    assert "no attack on ratings in sums could be tried" in verdict.rule
    assert verdict.sentence.startswith("We do not know")


def test_a_wide_interval_is_not_green():
    wide = [result("disaggregation", 0.0, spread=0.5)]
    found = AuditFindings(
        Settings(mask="lr"),
        np.ones(N),
        np.zeros(N),
        np.ones(N, bool),
        [],
        {STRICT[1]: wide, POWER: [result("disaggregation", 0.3, n=50)]},
    )
    verdict = Decision(found, N).verdict()
    assert verdict.light == "amber"
    assert "cannot be excluded" in verdict.rule


def test_people_in_the_clear_are_counted():
    verdict = decided(exposed=0.95, sharing="adaptive")
    assert verdict.light == "red"
    assert verdict.sentence.startswith("100 of 400 people would send their own numbers")
    assert "nearly every rating of all of them" in verdict.sentence
    assert "of the others, we found next to nothing" in verdict.sentence
    assert verdict.changes[0].startswith("--sharing strict")
    plain = decided(exposed=0.95, sharing="plain")
    assert plain.light == "red"
    assert plain.sentence.startswith("Everybody would send their own numbers")


def test_noise_is_told_as_odds():
    verdict = decided(aggregation="dp", dp_epsilon=1.0)
    assert verdict.light == "green"
    assert "at most 2.72-fold (epsilon 1)" in verdict.sentence
    assert "one case in 100,000" in verdict.sentence
    assert decided(gain=0.1, aggregation="dp", dp_epsilon=1.0).light == "red"
    weak = decided(items=0.001, aggregation="dp")
    assert "at most 2,981-fold (epsilon 8)" in weak.sentence
    assert weak.rule.endswith("Here: epsilon 8 is above 1.")
    assert weak.changes[0].startswith("More noise: at most 2.72-fold with --dp-epsilon 1;")
    assert not any("--batch" in line for line in weak.changes)


def test_changes_are_told_with_what_was_measured():
    cost = NoiseCost(epsilon=8.0, rmse=0.95, rmse_now=0.91)
    noise, people, rounds, batches = decided(gain=0.2, cost=cost).changes
    assert noise.endswith(
        "with --aggregation dp --dp-epsilon 8. On a fifth of these ratings, "
        "RMSE 0.9500; now 0.9100."
    )
    assert "over 50 people the same attack finds 70 in 100, over these 400 people 60" in people
    assert "with --rounds 50 instead of 200 the same attack finds 50 in 100, not 60" in rounds
    assert "--batch 20" in batches
    unmeasured = decided(gain=0.2).changes[0]
    assert "--aggregation dp --dp-epsilon 8; fedmmf train with the same flags" in unmeasured
    assert not any("--batch" in line for line in decided(gain=0.2, batch=20).changes)


def test_a_sample_is_told_with_its_effect():
    (told,) = (line for line in decided(n_users=1000).not_tested if "were drawn" in line)
    assert told.startswith("600 of 1,000 people: 400 were drawn.")
    assert "within 4.9 in 100" in told  # 0.98 / sqrt(400)


def test_what_was_tested_under_noise_is_not_called_untested():
    """Ratings in sums of lists are attacked there; what that attack leaves out is said."""
    ranks, words = {"objective": "ranking", "mask": "none"}, "How people rated items"
    plain = decided(**ranks).not_tested
    noisy = decided(**ranks, aggregation="dp", dp_epsilon=1.0).not_tested
    assert any(words in line for line in plain)
    assert not any(words in line for line in noisy)
    assert any("leave unused: totals" in line for line in noisy)
    assert not any("leave unused" in line for line in plain)


def test_noise_can_be_added_to_any_settings():
    for changes in (
        {"solver": "vb", "likelihood": "ordinal"},
        {"sharing": "adaptive", "collect_masked": True},
        {"held_out": 0.1, "item_statistics": True},
        {"aggregation": "dp", "dp_epsilon": 3.0},
    ):
        noisy = with_noise(Settings(mask="lr").changed(**changes), 1.0)
        assert noisy.scheme.has_budget
        assert noisy.dp_epsilon == 1.0


def bounded(lower, surely):
    about = {"proven": 1.0, "delta": 1e-5, "lower_by_counting": 0.2, "estimate": lower}
    return EpsilonBounds(lower=lower, surely=surely, runs=1000, releases=12, level=0.95, **about)


def test_a_planted_user_who_is_found_too_well_is_red():
    """Whatever else was found: the guarantee does not hold."""
    dp = {"aggregation": "dp", "dp_epsilon": 1.0}
    assert decided(bounds=bounded(0.7, 0.3), **dp).light == "green"
    chance = decided(bounds=bounded(1.05, 0.6), **dp)  # 1 of 20 honest limits may be so
    assert chance.light == "green"
    broken = decided(bounds=bounded(1.2, 1.1), **dp)
    assert broken.light == "red"
    assert "at most 1, as proven, and at least 1.2, as found" in broken.sentence
    assert "something is broken" in broken.rule


def test_noisy_sums_are_attacked_as_they_are():
    """Those of the run's solver; without noise nothing of it is tried."""
    noisy = Settings(aggregation="dp", mask="mean")
    assert round_targets(noisy, has_others=True) == NOISY
    assert round_targets(noisy.changed(solver="sgd"), has_others=True) == ("rounds", *NOISY)
    assert not set(NOISY) & set(round_targets(Settings(solver="vb"), has_others=True))
