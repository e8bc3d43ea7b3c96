"""A server that deviates in one field reads nobody in these runs; `make deviations` has more."""

from deviations import EXCHANGES, campaign, one_run

from fedmmf.sums.secure import agreed


def test_a_run_in_which_nothing_goes_wrong():
    changed, n_sums, groups, count = one_run(0, wanted="nothing.at all")
    assert (changed, n_sums, groups, count) == (None, 3, [], EXCHANGES)


def test_no_deviation_shows_a_group_smaller_than_owners_allow():
    changed, sums, found = campaign(range(150))
    assert found == []
    assert sums > 150  # most runs still end with sums, so that there is something to read
    assert len(changed) > 15


def test_the_campaign_finds_what_is_there_to_find(monkeypatch):
    """Without the binding, a list of left-out items for all but one reads that one, or a row."""
    monkeypatch.setattr(agreed, "name_of", lambda told: bytes(32))
    runs = [one_run(seed, wanted="SecureSetup.left_out") for seed in range(40)]
    assert sum(bool(groups) for _, _, groups, _ in runs) >= 10
