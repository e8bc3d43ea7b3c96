"""A server that deviates in one field reads nobody in these runs; `make deviations` has more."""

import pytest
from deviations import CUTS, EXCHANGES, Outcome, campaign, one_run

from fedmmf.aggregation.secure import messages as secure


@pytest.mark.parametrize("kind", CUTS)
def test_a_run_in_which_nothing_goes_wrong(kind):
    outcome = one_run(0, wanted="nothing.at all", kind=kind)
    assert outcome == Outcome(changed=None, n_sums=4, found=[], n_exchanges=EXCHANGES)


def test_no_deviation_shows_a_group_smaller_than_owners_allow():
    changed, sums, found = campaign(range(150))
    assert found == []
    assert sums > 150  # most runs still end with sums, so that there is something to read
    assert len(changed) > 15


def test_the_campaign_finds_what_is_there_to_find(monkeypatch):
    """Without the binding, a list of left-out items for all but one reads that one, or a row."""
    monkeypatch.setattr(secure, "name_of", lambda told: bytes(32))
    runs = [one_run(seed, wanted="SecureSetup.left_out", kind="people") for seed in range(40)]
    assert sum(bool(run.found) for run in runs) >= 10


@pytest.mark.parametrize("seed", [213, 252, 278])
def test_a_factor_that_makes_some_users_overflow_changes_nothing_for_others(seed):
    """These seeds publish a factor near the end of float32 for an item that not everybody rated."""
    outcome = one_run(seed, wanted="Round.item_rows", kind="sites")
    assert (outcome.changed, outcome.found) == ("Round.item_rows", [])
