"""What findings come to, on findings that are made up."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from fedmmf.attacks import AttackResult
from fedmmf.audit.messages import STRICT
from fedmmf.audit.verdicts import CLEAR, SUMMED, AuditFindings, joint_interval, on_ratings
from fedmmf.reports.results import TradeoffPoint
from fedmmf.settings import Settings

USERS = np.arange(4)
J = np.array([0.01, 0.02, 0.03, 0.2])


def result(name, success, baseline=0.3):
    baseline = np.full(4, baseline)
    return AttackResult(name, "K.", "O.", "M.", USERS, np.array(success), baseline)


def findings(in_sums=0.2, **changes):
    results = [
        result("shift", [0.95, 0.5, 0.2, 1.0]),
        result("decode", [0.95, 0.95, 0.4, 1.0]),
        result("ranking h=1", [1.0, 1.0, 1.0, 1.0]),
    ]
    exposed = np.max([found.success for found in on_ratings(results, "lr")], axis=0)
    settings = Settings(mask="lr", sharing="adaptive").changed(**changes)
    messages = {name: [result("grouping", [in_sums] * 4)] for name in STRICT}
    return AuditFindings(settings, J, exposed, exposed < 0.5, results, messages)


def test_the_worst_attack_is_named_first_and_rankings_recover_nobody():
    first, second = findings().sentences()
    assert first.startswith("2 of 3 users who would share in the clear are recovered by decode")
    assert second.startswith("1 of 3 users who would share in the clear are recovered by shift")


def test_the_verdict_is_given_for_either_group():
    verdicts = findings().verdicts()
    lead = "Some attack finds at least 90% of the ratings of 2 of 3 users who would share in the"
    assert verdicts[CLEAR] == f"{lead} clear."
    assert findings().n_recovered() == 2
    assert verdicts[SUMMED].startswith("No gain found in the sums of 200 rounds over these 4")
    once = findings(rounds=1).verdicts()[SUMMED]
    assert once.startswith("No gain found in the sum of round 1 over these 4 users")
    nobody = findings(threshold_j=0.0)
    assert nobody.verdicts()[CLEAR] == "Nobody would share in the clear."
    assert nobody.sentences() == ("Nobody would share in the clear.",)


def test_the_verdict_on_sums_is_paired_and_has_the_number():
    """User by user the gain is plain, although the interval of the mean holds the baseline."""
    spread = np.array([0.1, 0.4, 0.6, 0.9])
    users = AttackResult("calibrated", "K.", "O.", "M.", USERS, spread + 0.01, spread)
    assert users.interval[0] < users.baseline_mean
    found = findings()
    helped = replace(found, messages={**found.messages, STRICT[1]: [users]})
    told = helped.verdicts()[SUMMED]
    assert told.startswith("The sums of 200 rounds over these 4 users say more than the public")
    assert "calibrated +0.0100 (+0.0100 to +0.0100)" in told
    assert "idden" not in told


def test_one_lucky_attack_of_many_is_no_verdict():
    """Bonferroni: with 40 attacks, one 95 % interval above 0 is what chance gives."""
    draw = np.random.default_rng(0)
    noise = draw.normal(0, 1, 400)
    noise = 2.5 / 20 + (noise - noise.mean()) / noise.std()  # 2.5 standard errors above 0
    zeros = np.zeros(400)
    lucky = AttackResult("lucky", "K.", "O.", "M.", np.arange(400), noise, zeros)
    assert lucky.advantage_interval[0] > 0
    found = findings()
    alone, among = (
        replace(found, messages={**found.messages, STRICT[1]: tried}).verdicts()[SUMMED]
        for tried in ([lucky], [lucky, *[result("grouping", [0.2] * 4)] * 39])
    )
    assert "say more than the public knows" in alone
    assert among.startswith("No gain found")
    assert "for all 40 attacks together" in among
    low, high = joint_interval(lucky, 40)
    expected = norm.interval(1 - 0.05 / 40, loc=2.5 / 20, scale=1 / 20)
    assert (low, high) == pytest.approx(expected, abs=0.02)
    assert joint_interval(lucky, 1) == pytest.approx(lucky.advantage_interval)


def test_under_strict_sharing_it_is_what_would_have_been():
    strict = findings(sharing="strict")
    had = "had they shared in the clear as adaptive lets them"
    assert strict.verdicts()[CLEAR].endswith(f"of 2 of 3 users, {had}.")
    assert strict.sentences()[0].startswith(f"2 of 3 users are recovered by decode, {had}: at")


def test_vectors_that_help_are_told_as_what_should_not_be():
    assert "which should be noise" in findings(in_sums=0.4).verdicts()[SUMMED]


def test_rules_are_counted_beside_each_other():
    grouping = findings().grouping()
    assert (grouping.by_indicator, grouping.by_audit, grouping.exposed_by_indicator) == (3, 1, 2)


def test_the_settings_say_whose_rule_counts():
    assert findings().in_clear.tolist() == [True, True, True, False]
    assert findings(grouping="audit").in_clear.tolist() == [False, False, True, False]
    assert findings(sharing="plain").in_clear.all()
    assert findings(sharing="strict").in_clear.tolist() == [True, True, True, False]


def test_thresholds_are_told_with_whom_they_expose():
    points = [TradeoffPoint(threshold_j=j, share_in_clear=0.5) for j in (0.0, 0.02, 0.2)]
    told = findings().with_recovered(points)
    assert [point.recovered_share for point in told] == [0.0, 0.5, 0.75]
