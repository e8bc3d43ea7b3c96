"""Sites of many users under differential privacy: a clip per user, noise that is due, budgets.

A site of 200 users is summed with parties of a few. Drop-outs and changing cohorts leave every
user's guarantee as it was: over all sums that a user had a part in, of all runs.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedmmf.aggregation.dp import accounting
from fedmmf.aggregation.dp.guarantee import counted_on, guarantee_of, least_survivors
from fedmmf.data.synthetic import synthetic
from fedmmf.engines import ENGINES
from fedmmf.errors import FedMMFError
from fedmmf.federation.local import Holdings, LocalFederation, make_silos, server_plan
from fedmmf.secagg import BelowThresholdError
from fedmmf.settings import Settings
from fedmmf.solvers.vb.private import plan
from fedmmf.transports.in_process import InProcess
from fedmmf.transports.wrappers import Faulty
from fedmmf.wire import Adopt, Adopted, Joined, name_of, parcel, read

pytest.importorskip("dp_accounting", reason="dp-accounting is of the extra `dp`")
pytest.importorskip("opendp", reason="opendp is of the extra `dp`")

N_SITE, N_OTHERS = 200, 39  # users of the site; other parties, of two users each
N_ITEMS = 30
CUTS = np.concatenate(([0], N_SITE + 2 * np.arange(N_OTHERS + 1)))
ROUNDS = 4
SITE = "000000"


@pytest.fixture(scope="module")
def ratings():
    return synthetic(int(CUTS[-1]), N_ITEMS, 3_000, min_per_user=4, seed=8)


def settings_of(**changes):
    base = {"aggregation": "dp", "mask": "mean", "factors": 3, "rounds": ROUNDS, "dp_clip": 0.7}
    return Settings(**{**base, **changes})


# Who drops out of a round, and who is missing in it: who missed one sent no keys for the next.
LOST = (
    ({"000003", "000004"}, {"000003", "000004"}),
    (set(), {"000003", "000004"}),
    ({SITE}, {SITE}),
    (set(), {SITE}),
)


class Noted:
    """A guarantee whose grids note what a party adds: its integers, and its noise."""

    def __init__(self, inner):
        self.inner, self.releases = inner, []

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def grid(self, scale, n_parties, *about):
        grid = self.inner.grid(scale, n_parties, *about)
        return NotedGrid(grid, self.releases, n_parties)


class NotedGrid:
    def __init__(self, grid, releases, n_parties):
        self.cohort, self.sigma = grid.cohort, grid.sigma
        self._grid, self._releases, self._n_parties = grid, releases, n_parties

    def add(self, steps):
        """Rows, which begin a release."""
        found = self._grid.add(steps)
        about = (self._n_parties, self.sigma, self.cohort.scale)
        self._releases.append((*about, [steps.ravel()], [found.ravel()]))
        return found

    def add_to_totals(self, steps):
        found = self._grid.add_to_totals(steps)
        self._releases[-1][3].append(steps.astype(np.int64)[2:])
        self._releases[-1][4].append(found[2:])
        return found


def parties_of(ratings, settings, engine="numba", cuts=CUTS):
    parties = make_silos(Holdings(ratings, settings), cuts, ENGINES[engine])
    for party in parties.values():
        party.policy = replace(party.policy, noise=Noted(party.policy.noise))
    return parties


def federation_among(ratings, settings, parties, up=lambda stage, name, data: data):
    transport = Faulty(InProcess(parties), up=up)
    return LocalFederation.among(server_plan(ratings, settings), parties, transport)


class Losing:
    """Answers of some parties are lost in the round at hand."""

    names = frozenset()

    def __call__(self, stage, name, data):
        return None if stage == "trip 1" and name in self.names else data


def vector(parts):
    return np.concatenate(parts)


def test_a_site_adds_what_each_of_its_users_would_have_sent(ratings):
    """In every stage: one clip per user, whatever the others rated, and none for the site."""
    settings, losing = settings_of(dp_epsilon=50.0), Losing()
    together = parties_of(ratings, settings, "numpy")
    alone = parties_of(ratings, settings, "numpy", np.arange(N_SITE + 1))
    federation = federation_among(ratings, settings, together, losing)
    federation.prepare_sums()
    for party in alone.values():
        join(party, federation)
    for _ in range(ROUNDS):
        round_ = federation.server.coordinator.next_round()
        federation.server.coordinator.advance(round_, federation.server.side.sums(round_))
        scale = float(federation.server.side.session.codec.rows.scale)
        codec = federation.server.side.session.codec
        total = 0
        for party in alone.values():
            party.run.contribute(round_, codec, None, len(together))
            own = vector(party.run.policy.noise.releases[-1][3])
            assert np.sum(own.astype(float) ** 2) <= (settings.dp_clip * scale) ** 2
            total = total + own
        site = vector(together[SITE].policy.noise.releases[-1][3])
        assert np.array_equal(site, total), plan.STAGES
        assert np.linalg.norm(site) > 3 * settings.dp_clip * scale


def join(party, federation):
    """As a party of the run, without its transport: it agrees to no session of its own."""
    party.expectation = replace(party.expectation, users_per_party=None)
    read(party.answer(federation.plan.invitation().encode()), (Joined,))
    layout = federation.server.side.layout.encode()
    read(party.answer(parcel(Adopt(name_of(layout)), layout)), (Adopted,))


@pytest.mark.parametrize("changes", [{}, {"solver": "sgd", "step": "sum"}])
def test_sums_have_the_noise_that_is_due_where_parties_drop_out(ratings, changes):
    """Also where the large site is missing, and a round that loses too many is no sum."""
    settings, losing = settings_of(**changes), Losing()
    parties = parties_of(ratings, settings)
    names, guarantee = sorted(parties), guarantee_of(settings)
    federation = federation_among(ratings, settings, parties, losing)
    federation.prepare_sums()
    side, coordinator, shares = federation.server.side, federation.server.coordinator, []
    for lost, missing in LOST:
        losing.names = frozenset(lost)
        round_ = coordinator.next_round()
        sums = side.sums(round_)
        coordinator.advance(round_, sums)
        assert set(names) - set(side.survivors) == missing
        added = [parties[name].policy.noise.releases[-1] for name in side.survivors]
        scale = float(side.session.codec.rows.scale)
        both = [np.sum([vector(one[part]) for one in added], axis=0) for part in (3, 4)]
        n_rows = sums.rows.size
        np.testing.assert_allclose(sums.rows.ravel() * scale, both[1][:n_rows], rtol=1e-6)
        due = guarantee.multiplier * settings.dp_clip * scale
        n_honest = least_survivors(len(names)) - math.ceil(len(names) / 20)
        assert n_honest == counted_on(len(names)) <= len(added)
        sigmas = np.array([one[1] for one in added])
        assert (sigmas * math.sqrt(n_honest) >= due).all()  # any so many of them are enough
        assert sums.noise_std * scale == pytest.approx(math.sqrt(np.sum(sigmas**2)), rel=1e-3)
        released = slice(None) if sums.totals[2:].any() else slice(0, n_rows)
        shares.append(((both[1] - both[0]) / math.sqrt(np.sum(sigmas**2)))[released])
    noise = np.concatenate(shares)
    assert noise.std() == pytest.approx(1.0, abs=6 / math.sqrt(2 * len(noise)))
    assert abs(noise.mean()) < 6 / math.sqrt(len(noise))


def test_a_round_that_loses_more_is_no_sum_and_still_costs_its_parties(ratings):
    settings, losing = settings_of(), Losing()
    parties = parties_of(ratings, settings)
    federation = federation_among(ratings, settings, parties, losing)
    federation.prepare_sums()
    losing.names = frozenset({"000001", "000002", "000003"})  # of 40, two may drop out
    with pytest.raises(BelowThresholdError):
        federation.server.side.sums(federation.server.coordinator.next_round())
    assert {party.users.n_noisy for party in parties.values()} == {1}


def spent_by(party, settings):
    """Epsilon of all releases that a party made, from the noise that its sums are sure to have."""
    rho = 0.0
    for n_parties, sigma, scale, *_ in party.policy.noise.releases:
        shares = counted_on(n_parties) if settings.dp_noise == "distributed" else 0.25
        rho += (settings.dp_clip * scale / sigma) ** 2 / shares / 2
    return epsilon_of(rho, settings.dp_delta)


def epsilon_of(rho, delta):
    """Canonne, Kamath and Steinke 2020, proposition 12, by a grid of orders."""
    orders = 1 + np.geomspace(1e-3, 1e5, 200_000)
    found = orders * rho + (np.log1p(-1 / orders) * (orders - 1) - np.log(delta * orders)) / (
        orders - 1
    )
    return float(found.min())


@pytest.mark.parametrize("noise", ["distributed", "local"])
def test_a_user_is_in_as_many_sums_as_are_paid_for_over_all_runs_and_cohorts(ratings, noise):
    """Two runs among different parties, of which some are in both: each party counts its own."""
    settings = settings_of(dp_noise=noise)
    parties = parties_of(ratings, settings)
    names = sorted(parties)
    cohorts, rounds = (names[:30], names[10:]), []
    for cohort, n_rounds in zip(cohorts, (3, ROUNDS), strict=True):
        some = {name: parties[name] for name in cohort}
        federation = federation_among(ratings, settings, some)
        federation.prepare_sums()
        coordinator, n_done = federation.server.coordinator, 0
        for _ in range(n_rounds):
            round_ = coordinator.next_round()
            try:
                sums = federation.server.side.sums(round_)
            except FedMMFError:
                break  # too few have anything left
            coordinator.advance(round_, sums)
            n_done += 1
        rounds.append(n_done)
    sent = {name: len(party.policy.noise.releases) for name, party in parties.items()}
    assert sent == {name: party.users.n_noisy for name, party in parties.items()}
    assert max(sent.values()) == ROUNDS  # those in both: three rounds, and one
    assert {sent[name] for name in names[10:30]} == {ROUNDS}
    assert {sent[name] for name in names[:10]} == {3}
    assert rounds == ([3, 1] if noise == "distributed" else [3, ROUNDS])
    for name in (names[0], names[10], names[-1]):
        epsilon = spent_by(parties[name], settings)
        claimed = accounting.epsilon(
            guarantee_of(settings).multiplier, sent[name], settings.dp_delta
        )
        assert epsilon == pytest.approx(claimed, rel=2e-3)
        assert epsilon <= settings.dp_epsilon * (1 + 1e-6)
