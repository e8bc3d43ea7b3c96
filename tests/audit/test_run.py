"""A whole audit: what it finds, how it says so, and how far it is."""

import json

import numpy as np
import pytest

from fedmmf.attacks.gradients import leaked_ratings
from fedmmf.attacks.self_audit import AttackAudit
from fedmmf.audit import audit, expose, messages
from fedmmf.audit.exposure import restrict
from fedmmf.audit.messages import AttackedCohort
from fedmmf.audit.run import investigate
from fedmmf.audit.trials import Trials
from fedmmf.audit.verdicts import CLEAR, SUMMED, joint_interval
from fedmmf.data.synthetic import synthetic
from fedmmf.errors import DataError
from fedmmf.model import FedMMF
from fedmmf.party.policy import Private
from fedmmf.reports.results import AuditResult
from fedmmf.settings import Settings
from fedmmf.simulation import prepare

ADAPTIVE = Settings(mask="lr", sharing="adaptive", factors=6)


@pytest.fixture(scope="module")
def found(small):
    return audit(small, ADAPTIVE)


def test_everybody_who_would_share_in_the_clear_is_recovered(found, small):
    n = found.privacy.secure_users
    assert 0 < n < small.n_users
    told = f"{n} of {n} users who would share in the clear are recovered by inversion: at least 90%"
    assert any(sentence.startswith(told) for sentence in found.sentences)


def test_the_groups_are_those_of_a_training_with_the_same_masks(found, small):
    trained = FedMMF(**ADAPTIVE.changed(rounds=1).model_dump()).fit(small).privacy()
    for name in ("mean_j", "mean_relative_j", "j_follows_variance", "users_in_clear"):
        assert getattr(found.privacy, name) == pytest.approx(getattr(trained, name))
    assert found.recovered_users == found.privacy.users_in_clear
    assert ADAPTIVE.threshold_j in [point.threshold_j for point in found.tradeoff]


def test_groups_split_the_users_by_j(found, small):
    for clear, summed in zip(found.groups[CLEAR], found.groups[SUMMED], strict=True):
        assert clear.name == summed.name
        assert len(clear.users) == found.privacy.secure_users
        assert sorted((*clear.users, *summed.users)) == list(range(small.n_users))


def test_the_indicator_lets_users_share_whom_a_self_audit_would_not(found):
    assert found.grouping.exposed_by_indicator == found.grouping.by_indicator > 0
    assert found.grouping.by_audit == 0


def test_messages_leak_in_the_clear_and_not_in_strict_mode(found):
    leak, chain, named = found.messages["plain updates"]
    assert chain.name == "gradients, then inversion"
    assert chain.mean > 0.99
    assert leak.mean > 0.99
    assert named.mean == 1
    for result in found.messages["masked vectors of strict mode"]:
        assert result.advantage_interval[0] <= 0, result.name


def test_sums_are_weighed_against_the_prior_and_the_verdict_has_the_gain(found):
    sums = {result.name: result for result in found.messages["sums of strict mode"]}
    assert {"calibrated", "unmixing"} <= set(sums)
    for result in sums.values():
        assert result.advantage == pytest.approx(result.mean - result.baseline_mean)
    helped = [result for result in sums.values() if joint_interval(result, len(sums))[0] > 0]
    assert "membership" in {result.name for result in helped}
    for result in helped:
        assert f"{result.name} {result.advantage:+.4f}" in found.verdicts[SUMMED]
    assert "idden" not in found.verdicts[SUMMED]


def test_a_small_sum_says_something_of_who_is_in_it(found):
    (taking_part,) = found.messages["sums with and without the user"]
    assert taking_part.name == "taking part"
    assert taking_part.mean > taking_part.baseline_mean


def test_it_says_what_it_is(found, small):
    assert found.simulated
    assert found.synthetic
    assert found.data == small.name
    assert found.settings == ADAPTIVE.model_dump()
    assert "obfuscation" in found.protection[0]
    assert found.version
    assert "numpy" in found.versions


def test_thresholds_say_whom_they_would_expose(found):
    shares = [point.recovered_share for point in found.tradeoff]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert found.tradeoff[-1].share_in_clear == 1


def test_json_holds_all_of_it(found):
    told = json.loads(json.dumps(found.to_json_dict(), allow_nan=False))
    assert AuditResult.from_json_dict(told) == found
    assert told["recovered_share"] == 0.9
    assert set(told["groups"]) == {CLEAR, SUMMED}


def test_the_same_settings_give_the_same_figures_but_for_secrets(found, small):
    """Masks of secure sums come from the operating system; all else comes from the seed."""
    again = audit(small, ADAPTIVE)
    one, other = (result.to_json_dict() for result in (found, again))
    for result in (one, other):
        del result["messages"]["masked vectors of strict mode"]
    assert one == other


def test_plain_sharing_exposes_everybody(small):
    found = audit(small, Settings(mask="mean", sharing="plain", factors=6))
    assert len(found.groups[CLEAR][0].users) == small.n_users
    assert found.sentences[0].startswith(f"{small.n_users} of {small.n_users} users")


def test_with_nobody_in_the_clear_there_is_nothing_to_recover(small):
    found = audit(small, Settings(mask="mean", sharing="adaptive", threshold_j=0.0, factors=6))
    assert found.sentences == ("Nobody would share in the clear.",)
    assert found.verdicts[CLEAR] == "Nobody would share in the clear."
    assert found.groups[CLEAR][0].n_users == 0
    json.dumps(found.to_json_dict(), allow_nan=False)


@pytest.mark.parametrize("sharing", ["adaptive", "strict"])
def test_parties_that_audit_themselves_decide_by_public_knowledge(
    small, sharing, without_inversion
):
    settings = Settings(
        mask="nn",
        mask_strength=0.2,
        sharing=sharing,
        grouping="audit",
        audit_limit=0.7,
        held_out=0.0,
        factors=6,
    )
    found, run = investigate(small, settings)
    private = Private(run.lists, run.training.values, run.masks, run.features.seen)
    own = AttackAudit(settings.audit_limit).shares_found(private)
    assert found.in_clear.any()
    assert np.array_equal(found.in_clear, own < settings.audit_limit)
    assert found.grouping().by_audit == found.in_clear.sum()
    if sharing == "adaptive":
        assert np.array_equal(found.in_clear, run.in_clear)


@pytest.mark.parametrize(("mask", "solver"), [("mean", "sgd"), ("fm", "sgd"), ("lr", "vb")])
def test_it_tells_of_every_step(small, mask, solver):
    told = []
    audit(small, Settings(mask=mask, factors=6, solver=solver), lambda *given: told.append(given))
    total = told[-1][2]
    assert [given[1:] for given in told] == [(done, total) for done in range(total)]
    assert total > 20
    assert told[0][0] == "masks"
    assert told[-1][0].endswith("hardly any noise: a control of power")


@pytest.mark.parametrize("seed", [1, 4, 5])
def test_three_parties_with_little_in_common_can_be_audited(small, seed):
    three = restrict(small, np.array([4, 8, 15]))
    few = three.select(np.random.default_rng(seed).random(len(three)) < 0.15)
    found = audit(few, ADAPTIVE.changed(min_raters=1))
    assert found.privacy.n_users == 3
    for attack in found.messages["sums of strict mode"]:
        assert attack.n_users <= 3
    with pytest.raises(DataError, match=r"no item has the 5 raters .* ratings of more people"):
        audit(few, ADAPTIVE)
    with pytest.raises(DataError, match="no item has enough raters to be summed"):
        audit(few, ADAPTIVE.changed(sharing="plain"))


@pytest.mark.parametrize("mask", ["lr", "fm"])
def test_parties_that_are_attacked_have_a_population_of_their_own(small, monkeypatch, mask):
    """What leaks of some users is what their own masks leave, not those of the whole run.

    Their line by hand: a regression in which features have a ridge, at the mean of users' means.
    """
    monkeypatch.setattr(messages, "COHORT", 12)
    settings = Settings(mask=mask, sharing="adaptive", factors=6, min_raters=1)
    found, run = investigate(small, settings)
    leak, chain, _ = found.messages["plain updates"]
    assert len(leak.users) == 12
    some = AttackedCohort.of(run, expose(run), Trials(0), sharing="strict")
    theirs = some.ratings
    x = np.column_stack((np.ones(small.n_items), np.clip(run.features.content, -4, 4)))[
        theirs.item_codes
    ]
    ridge = np.full(x.shape[1], 5.0 * len(theirs) / theirs.n_users)
    ridge[0] = 0.0
    line = np.linalg.solve(x.T @ x + np.diag(ridge), x.T @ (theirs.values - 3.0))
    means = np.bincount(theirs.user_codes, theirs.values) / np.diff(theirs.by_user)
    line[0] = means.mean() - x[:, 1:].mean(axis=0) @ line[1:]
    np.testing.assert_allclose(some.view.population.line, line, rtol=1e-5, atol=1e-6)
    whole = prepare(small, run.settings.changed(sharing="strict"))
    assert np.abs(line - whole.layout.line).max() > 0.01
    clear = AttackedCohort.of(run, expose(run), Trials(0), sharing="plain")
    assert clear.view.population.line == pytest.approx(means.mean(), rel=1e-6)
    np.testing.assert_allclose(leaked_ratings(clear.uploads), clear.view.masked, atol=2e-3)
    assert leak.mean == 1
    assert chain.mean > 0.95


def test_two_parties_cannot(small):
    with pytest.raises(DataError, match="at least 3 users; got 2"):
        audit(restrict(small, np.array([1, 2])), ADAPTIVE)


def test_parties_that_sign_are_audited_as_well(small):
    found = audit(small, ADAPTIVE.changed(signed=True))
    assert found.messages["sums of strict mode"]


def test_a_run_with_another_solver_and_another_sum_is_audited_as_well(small):
    settings = Settings(mask="mean", solver="vb", aggregation="homomorphic-paillier", factors=4)
    found = audit(small, settings)
    assert found.messages["plain updates"][0].mean > 0.99


@pytest.fixture(scope="module")
def found_vb(small):
    return audit(small, Settings(mask="lr", solver="vb", factors=4, min_raters=1))


def test_the_sums_of_vb_are_those_that_are_attacked(found_vb, small):
    sums = {result.name: result for result in found_vb.messages["sums of strict mode"]}
    assert set(sums) == {"membership", "vb unmixing", "vb ranking"}
    assert sums["vb unmixing"].advantage_interval[0] > 0
    told = found_vb.verdicts[SUMMED]
    assert told.startswith(f"The sums of 22 rounds over these {small.n_users} users say more")
    assert f"vb unmixing {sums['vb unmixing'].advantage:+.4f}" in told


def test_lists_are_attacked_where_somebody_did_not_take_part(monkeypatch):
    monkeypatch.setattr(messages, "COHORT", 50)
    told = []
    settings = Settings(mask="mean", solver="vb", objective="ranking", factors=12, min_raters=1)
    found = audit(synthetic(200, 200, 6000, seed=3), settings, lambda *given: told.append(given))
    assert found.attacked_users == 200
    (_, lists) = found.messages["sums of strict mode"]
    assert lists.name == "vb lists"
    assert lists.n_users == 50
    assert lists.advantage_interval[0] > 0
    assert told[-1][1] == told[-1][2] - 1  # every step was told of
