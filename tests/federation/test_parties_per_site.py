"""How many parties a site may be: a charter says it, and corruption is counted by site."""

import math
from dataclasses import replace

import numpy as np
import pytest
from inside import Inside
from machines import make_federation, split_by_user

from fedmmf import __version__
from fedmmf.aggregation.dp.guarantee import guarantee_of, least_survivors
from fedmmf.aggregation.secure.messages import SecureSetup, graph_of
from fedmmf.data.synthetic import synthetic
from fedmmf.errors import SettingsError
from fedmmf.federation import training
from fedmmf.federation.catalogue import ItemList
from fedmmf.federation.charter import Charter
from fedmmf.federation.hello import PROTOCOL, Hello
from fedmmf.federation.server import identities_of
from fedmmf.federation.site.process import policy_for
from fedmmf.federation.sites import Admission
from fedmmf.settings import Settings
from fedmmf.transports.bundles import pack, unpack
from fedmmf.wire import Kind, Refused
from fedmmf.wire.frames import kind_of

pytest.importorskip("nvflare", reason="certificates are made by NVFlare's provisioning")

FOUR = ("a", "b", "c", "z")  # 20 honest users at each of three, and one that decides for itself
DP = Settings.checked(
    solver="sgd", factors=2, rounds=3, mask="mean", aggregation="dp", dp_noise="distributed"
)
QUICK = {"answer": 5.0, "heartbeat": 60.0, "gathering": 0.2, "patience": 5.0, "retries": 3}


def charter_of(most, sites=FOUR, **changes):
    settings = DP.changed(**changes)
    return Charter.checked(
        name="x", sites=sites, party="user", max_parties_per_site=most, training=settings
    )


def noise_together(charter, n_honest, n_parties):
    """Of all honest parties, where as many as may drop out do."""
    stays = n_honest - (n_parties - least_survivors(n_parties))
    noise = guarantee_of(charter.training, charter.corrupt_parties)
    return math.sqrt(stays) * noise.noise_std(n_parties), noise.clip * noise.multiplier


def test_the_noise_of_the_honest_is_enough_whatever_one_site_brings():
    """60 honest parties and 3,000 of one site: their noise was 0.15 of what is due."""
    due = guarantee_of(DP).clip * guarantee_of(DP).multiplier
    by_parties = math.sqrt(60) * guarantee_of(DP).noise_std(3060)
    assert by_parties / due == pytest.approx(1.03 / 7.01, rel=0.01)
    found, due = noise_together(charter_of(20), 60, 80)
    assert found >= due * (1 - 1e-12)
    assert found < due * 1.01  # and no more than that
    # Where a charter lets one site bring them all, each party counts on itself alone.
    alone = guarantee_of(DP, charter_of(3000).corrupt_parties)
    assert alone.noise_std(3060) == pytest.approx(due)


@pytest.mark.parametrize("n_sites", [3, 4, 20, 21, 40, 100])
@pytest.mark.parametrize("most", [1, 7, 50])
def test_a_twentieth_of_the_sites_may_be_corrupt_with_all_they_bring(n_sites, most):
    names = tuple(f"s{number}" for number in range(n_sites))
    charter, n = charter_of(most, names), n_sites * most
    n_corrupt = math.ceil(n_sites / 20) * most
    assert charter.corrupt_parties == n_corrupt
    found, due = noise_together(charter, n - n_corrupt, n)
    assert found >= due * (1 - 1e-12)


def test_secure_sums_withstand_a_whole_site():
    """Holders of a secret who are in league are fewer than can recover it."""
    by_party, by_site = graph_of(943, active=False), graph_of(943, active=False, corrupt=236)
    assert by_site[1] > by_party[1]
    assert by_site == graph_of(943, active=False, corrupt=236)
    degree, threshold = by_site
    assert threshold / (degree + 1) > 0.5 > 236 / 943


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"party": "user"}, "party 'user' needs max_parties_per_site"),
        ({"party": "site", "max_parties_per_site": 2}, "a site is one party"),
        ({"party": "user", "max_parties_per_site": 0}, "max_parties_per_site"),
    ],
)
def test_a_charter_says_how_many(values, reason):
    settings = Settings.checked(solver="vb", mask="mean")
    with pytest.raises(SettingsError, match=reason):
        Charter.checked(name="x", sites=("a", "b", "c"), training=settings, **values)


def test_what_is_in_the_clear_needs_no_number():
    settings = DP.changed(dp_noise="local")
    charter = Charter.checked(name="x", sites=FOUR, party="user", training=settings)
    assert (charter.most_parties, charter.corrupt_parties) == (1000, 0)
    site = Charter.checked(name="x", sites=FOUR, training=settings)
    assert (site.most_parties, site.corrupt_parties) == (1, 0)


def test_the_number_is_in_the_file_and_in_its_digest(tmp_path):
    charter = charter_of(20)
    (tmp_path / "federation.toml").write_text(charter.text())
    assert Charter.read(tmp_path / "federation.toml") == charter
    assert charter.digest != charter_of(21).digest


@pytest.fixture(scope="module")
def ratings():
    return synthetic(60, 12, 500, min_per_user=6, seed=3)


@pytest.fixture
def federation(tmp_path, ratings, monkeypatch):
    monkeypatch.setattr(training, "BREATH", 0.001)
    sites = FOUR[:3]
    folder = make_federation(tmp_path / "fed", ratings, DP, sites, party="user", deadlines=QUICK)
    return Inside(folder, split_by_user(ratings, tmp_path, sites))


def test_a_server_lets_in_no_site_with_more(federation):
    folder = federation.folder
    digest = ItemList.load(folder.catalogue_file).catalogue.digest
    admission = Admission(folder.charter(), digest, identities_of(folder))
    said = {
        "protocol": PROTOCOL,
        "version": __version__,
        "charter": folder.charter().digest.hex(),
        "catalogue": digest.hex(),
        "identity": "",
        "instance": "01",
    }
    for n, is_fine in ((20, True), (21, False), (3000, False)):
        reason = admission.refusal("a", Hello(**said, parties=n, users=n))
        assert (reason == "") == is_fine
        assert is_fine or f"at most 20 parties (max_parties_per_site); it has {n:,}" in reason


def test_a_site_with_more_users_says_so_at_its_own_machine(federation, ratings, tmp_path):
    crowded = split_by_user(ratings, tmp_path, ("a",))
    federation.ratings = crowded
    with pytest.raises(SettingsError, match="a has 60 users, and a site brings at most 20"):
        federation.start_site("a")


def test_parties_refuse_sums_of_more_than_all_sites_may_bring(federation):
    """A server that let 3,000 in, as the one before this rule did."""
    for site in FOUR[:3]:
        federation.start_site(site)
    going = federation.training()
    sent = federation.ask

    def inflated(topic, questions, timeout):
        return sent(topic, {name: _swelled(data) for name, data in questions.items()}, timeout)

    federation.ask = inflated
    with pytest.raises(Exception, match="parties"):
        going.run()
    reasons = [
        Refused.decode(frame).reason
        for _, data in federation.seen
        for frame in _frames(data)
        if kind_of(frame) == Kind.REFUSED
    ]
    assert any("bring 60 parties at most; the server sums 3,060" in reason for reason in reasons)


def _frames(data):
    try:
        return unpack(data).values()
    except Exception:
        return ()


def _swelled(data):
    """The same bundle, with more parties in each set-up."""
    frames = dict(unpack(data))
    for name, frame in frames.items():
        if kind_of(frame) == Kind.SECURE_SETUP:
            message = SecureSetup.decode(frame)
            message = replace(message, n_parties=3060, n_users=3060, minimum=2907)
            frames[name] = message.encode()
    return pack(frames)


def test_training_with_shared_noise_goes_on_and_both_sides_agree(federation):
    for site in FOUR[:3]:
        federation.start_site(site)
    federation.run()
    assert len(list(federation.store.rounds())) == 3
    policy = policy_for(federation.folder, federation.folder.charter(), None)
    assert (policy.max_parties, policy.corrupt, policy.noise.corrupt) == (60, 20, 20)
    assert np.isfinite(policy.noise.noise_std(60))
