import json

import numpy as np
import pytest

from fedmmf.attacks.audit import CLEAR, SUMMED, audit
from fedmmf.attacks.self_audit import self_audit, self_audits
from fedmmf.attacks.view import expose
from fedmmf.config import Settings
from fedmmf.data.synthetic import synthetic
from fedmmf.scale import RatingScale


@pytest.fixture(scope="module")
def found(small):
    return audit(small, Settings(mask="lr", sharing="adaptive", factors=6))


def test_everybody_who_would_share_in_the_clear_is_recovered(found):
    n = found.in_clear.sum()
    assert 0 < n < len(found.in_clear)
    told = f"{n} of {n} users who would share in the clear are recovered by inversion: at least 90%"
    assert any(sentence.startswith(told) for sentence in found.sentences)


def test_groups_split_the_users_by_j(found):
    assert np.array_equal(found.in_clear, found.j <= found.settings.threshold_j)
    result = found.results[0]
    sizes = [len(found.of_group(result, group).users) for group in (CLEAR, SUMMED)]
    assert sizes == [found.in_clear.sum(), (~found.in_clear).sum()]


def test_the_indicator_lets_users_share_whom_a_self_audit_would_not(found):
    grouping = found.grouping
    assert grouping["exposed_by_indicator"] == grouping["by_indicator"] > 0
    assert grouping["by_audit"] == 0


def test_messages_leak_in_the_clear_and_not_in_strict_mode(found):
    leak, chain, named = found.messages["plain updates"]
    assert chain.mean > 0.99
    assert leak.mean > 0.99
    assert named.mean == 1
    for result in found.messages["masked vectors of strict mode"]:
        assert result.advantage_interval[0] <= 0, result.name


def test_the_verdict_is_given_for_either_group(found, small):
    n = found.in_clear.sum()
    assert f"at least 90% of the ratings of {n} of {n} users" in found.verdicts[CLEAR]
    assert "Hidden" in found.verdicts[SUMMED]
    nobody = audit(small, Settings(mask="lr", sharing="adaptive", threshold_j=0.0, factors=6))
    assert nobody.verdicts[CLEAR] == "Nobody would share in the clear."


def test_it_fits_into_json(found):
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["recovered_share"] == 0.9
    assert set(told["groups"]) == {CLEAR, SUMMED}


def test_plain_sharing_exposes_everybody(small):
    found = audit(small, Settings(mask="mean", sharing="plain", factors=6))
    assert found.in_clear.all()
    assert found.sentences[0].startswith(f"{small.n_users} of {small.n_users} users")


def test_one_party_finds_what_the_crowd_finds(small):
    settings = Settings(mask="fm")
    everybody = expose(small, settings)
    first = np.arange(small.n_users) == 0
    alone = self_audit(everybody.only(first), small.values[: small.by_user[1]])
    assert alone == self_audits(small, settings)[0]
    assert alone > 0.5


def test_with_nobody_in_the_clear_there_is_nothing_to_recover(small):
    found = audit(small, Settings(mask="mean", sharing="adaptive", threshold_j=0.0, factors=6))
    assert found.sentences == ["Nobody would share in the clear."]
    json.dumps(found.to_dict(), allow_nan=False)


def test_half_stars_are_attacked_as_well():
    halves = synthetic(80, 120, 4000, seed=4, scale=RatingScale(0.5, 5.0, 0.5))
    for mask in ("lr", "fm", "nn"):
        assert self_audits(halves, Settings(mask=mask)).mean() > 0.8, mask


def test_parties_that_audit_themselves_are_not_exposed(small):
    told = []
    settings = Settings(mask="nn", mask_strength=0.2, sharing="adaptive", grouping="audit")
    found = audit(small, settings, lambda done, of: told.append((done, of)))
    assert found.in_clear.any()
    assert (found.exposed[found.in_clear] < settings.audit_limit).all()
    assert told[-1][0] == told[-1][1] == len(told)
