"""One party that breaks the rules, within the format: the others' run goes on to its end.

In a secure sum nobody sees whose numbers are wrong, so rounds may be lost; the federation may not.
"""

from dataclasses import replace

import numpy as np
import pytest
from contract import NONSENSE, REFUSAL, Misbehaving
from federations import federation_of, settings_of

from fedmmf.aggregation.adaptive.messages import Collected
from fedmmf.aggregation.contract import HELD_OUT_TOTALS
from fedmmf.aggregation.secure.server import batches_of
from fedmmf.data.synthetic import synthetic
from fedmmf.secagg import messages
from fedmmf.secagg.client import RoundClient
from fedmmf.simulation import prepare
from fedmmf.transports.wrappers import Faulty, Recorded
from fedmmf.wire import Joined, Refused, Survey, Update
from fedmmf.wire.frames import kind_of

EVIL = "000002"


@pytest.fixture(scope="module")
def ratings():
    return synthetic(12, 15, 96, min_per_user=5, seed=5)


def answering(kind, change):
    """The bad party's answers of a kind are changed on their way up."""

    def up(stage, name, data):
        is_his = name == EVIL and kind_of(data) == kind.kind
        return change(kind.decode(data)).encode() if is_his else data

    return lambda transport: Faulty(transport, up=up)


def run(ratings, variant, wrap, **changes):
    changes = {"rounds": 5, "min_raters": 1, **changes}
    federation = federation_of(ratings, settings_of(variant, **changes), wrap)
    return federation, federation.run()


def assert_went_on(federation, member, *, gone=(EVIL,)):
    assert np.isfinite(member.broadcast.item_rows).all()
    assert np.isfinite(member.history).sum() == 5  # those that were lost are made again
    assert np.isfinite(member.history[-1])
    assert set(federation.server.side.survivors) == set(federation.parties) - set(gone)


def with_entries(totals, entries):
    """Some totals are others; a survey has fewer of them than a round."""
    changed = np.array(totals, np.float64)
    for at, value in entries.items():
        changed[at : at + 1] = value
    return changed


@pytest.mark.parametrize(
    "change",
    [
        lambda u: replace(u, totals=with_entries(u.totals, {1: -1e12})),
        lambda u: replace(u, totals=with_entries(u.totals, {0: -1e12})),
        lambda u: replace(u, totals=with_entries(u.totals, {0: 1.79e308})),
        lambda u: replace(u, totals=with_entries(u.totals, {2: -1e12})),  # users
        lambda u: replace(u, totals=with_entries(u.totals, {3: 1e12})),  # their p_u
        lambda u: replace(u, rows=np.full_like(u.rows, 3e38)),
        lambda u: replace(u, rows=np.full_like(u.rows, 1e6)),
    ],
)
def test_an_update_in_the_clear_that_no_honest_user_sends_is_left_out(ratings, change):
    federation, member = run(ratings, "plain", answering(Update, change))
    assert_went_on(federation, member)
    assert "larger than those of honest users" in federation.server.roster.refused[EVIL]


def test_who_counts_more_raters_than_it_has_users_is_left_out(ratings):
    change = answering(Update, lambda u: replace(u, counts=np.full(len(u.items), 2, np.uint32)))
    federation, member = run(ratings, "plain", change)
    assert_went_on(federation, member)
    assert "more raters" in federation.server.roster.refused[EVIL]


def test_masked_ratings_far_off_the_scale_are_not_trained_on(ratings):
    change = answering(Collected, lambda c: replace(c, masked_ratings=c.masked_ratings + 3e38))
    _, member = run(ratings, "adaptive collecting", change, threshold_j=1.0)
    assert np.isfinite(member.broadcast.item_rows).all()


@pytest.mark.parametrize("variant", ["plain", "secure", "secure vb", "secure signed"])
@pytest.mark.parametrize("n_users", [2**31 - 1, 2**28])
def test_who_claims_to_be_half_the_world_is_not_let_in(ratings, variant, n_users):
    change = answering(Joined, lambda joined: replace(joined, n_users=n_users))
    federation, member = run(ratings, variant, change)
    assert_went_on(federation, member)
    assert "are the most" in federation.server.roster.refused[EVIL]


@pytest.mark.parametrize("identity", [b"", b"\7" * 32])
def test_a_stranger_among_those_who_sign_does_not_stop_the_others(ratings, identity):
    change = answering(Joined, lambda joined: replace(joined, identity=identity))
    federation, member = run(ratings, "secure signed", change)
    assert_went_on(federation, member)


class FromInside:
    """A transport that changes what goes on inside the bad party."""

    def __init__(self, inner, change):
        self._inner, self._change = inner, change

    def exchange(self, stage, messages, timeout):
        if EVIL in messages and stage != "invite":
            self._change(self._inner.parties[EVIL])
        return self._inner.exchange(stage, messages, timeout)


def contributing(change, *, in_surveys=True):
    """Within its bounds, the party adds what it likes."""

    def patch(party):
        context = party.run
        honest = type(context).contribute

        def contribute(work, rounding, left_out, n_parties):
            part = honest(context, work, rounding, left_out, n_parties)
            is_his = in_surveys or not isinstance(work, Survey)
            return change(part, rounding) if is_his else part

        context.contribute = contribute

    return lambda transport: FromInside(transport, patch)


def with_total(at, times):
    def change(part, rounding):
        totals = part.totals.copy()
        totals[at] = times * int(rounding.totals.bound)
        return replace(part, totals=totals)

    return change


def with_rows(part, rounding):
    return replace(part, rows=np.full_like(part.rows, -int(rounding.rows.bound)))


@pytest.mark.parametrize("variant", ["secure", "secure vb"])
@pytest.mark.parametrize(
    "change",
    [with_total(0, -1), with_total(1, -3), with_total(0, 3)],
    ids=["count", "error", "many"],
)
def test_totals_in_a_secure_sum_end_nobodys_run(ratings, variant, change):
    _, member = run(ratings, variant, contributing(change))
    assert np.isfinite(member.broadcast.item_rows).all()
    assert len(member.history) == 5


@pytest.mark.parametrize("variant", ["secure", "secure vb"])
def test_rows_in_a_secure_sum_can_spoil_a_run_and_not_more(ratings, variant):
    """Nobody sees whose they are (docs/limitations.md, poisoning)."""
    _, member = run(ratings, variant, contributing(with_rows))
    assert np.isfinite(member.broadcast.item_rows).all()
    assert np.isfinite(member.history).all()


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("weight", 0),
        ("error", 0),
        ("n_users", 0),
        ("n_ratings", 0),
        ("moment", 0),
        ("user_gram", 0),
    ],
)
def test_totals_of_the_variational_solver_end_nobodys_run(ratings, name, at):
    settings = settings_of("secure vb", rounds=5, min_raters=1)
    place = prepare(ratings, settings).plan.update_shape.blocks["totals"].place(name).start
    changes = contributing(with_total(HELD_OUT_TOTALS + place + at, -1), in_surveys=False)
    federation = federation_of(ratings, settings, changes)
    federation.prepare_sums()
    before = federation.server.coordinator.next_round().item_rows.copy()
    federation.one_round()  # lost: no party could compute with what came of it
    assert np.isnan(federation.server.coordinator.history[0])
    assert np.array_equal(federation.server.coordinator.next_round().item_rows, before)


def test_a_sum_of_squares_below_zero_is_taken_for_rounding(ratings):
    """What users' factors deviate by is at least what the rounding of totals can hide."""
    settings = settings_of("secure vb", rounds=5, min_raters=1)
    place = prepare(ratings, settings).plan.update_shape.blocks["totals"].place("deviation").start
    changes = contributing(with_total(HELD_OUT_TOTALS + place + 1, -1), in_surveys=False)
    member = federation_of(ratings, settings, changes).run()
    assert np.isfinite(member.broadcast.item_rows).all()
    assert np.isfinite(member.history).all()


class WrongCommitment(RoundClient):
    def share_keys(self, data):
        honest = messages.Shares.decode(self.setup, self.party, super().share_keys(data))
        return messages.Shares(bytes(32), honest.boxes).encode(self.setup, self.party)


class GarbageBoxes(RoundClient):
    def _seal(self, peer, key, secret, text):
        honest = super()._seal(peer, key, secret, text)
        return messages.Box.of(bytes(len(honest.sealed)), honest.prints)


class WrongPrints(RoundClient):
    def _seal(self, peer, key, secret, text):
        honest = super()._seal(peer, key, secret, text)
        return messages.Box.of(honest.sealed, honest.prints[::-1])


class WrongShares(RoundClient):
    def unmask(self, data):
        honest = messages.Revealed.decode(self.setup, self.party, super().unmask(data))
        return messages.Revealed(dict.fromkeys(honest.shares, 1)).encode(self.setup, self.party)


def speaking(kind, *, in_surveys):
    """The bad party's side of the protocol is another, from the start or in rounds alone."""

    def patch(party):
        agreed = party.run.side.agreed
        if agreed is None or (agreed.setup.for_survey and not in_surveys):
            return
        session, honest = agreed.session, type(agreed.session)._client

        def client(number):
            made = honest(session, number)
            made.__class__ = kind
            return made

        session._client = client

    return lambda transport: FromInside(transport, patch)


SILENT = [WrongCommitment, GarbageBoxes, WrongPrints]  # nobody can unmask what they sent


@pytest.mark.parametrize("variant", ["secure", "secure signed"])
@pytest.mark.parametrize("kind", [*SILENT, WrongShares])
def test_who_breaks_the_protocol_in_a_round_is_left_out_and_the_others_go_on(
    ratings, variant, kind
):
    federation, member = run(ratings, variant, speaking(kind, in_surveys=False))
    assert_went_on(federation, member)
    assert EVIL in federation.server.side.excluded
    is_lost = np.isnan(member.history).any()
    assert is_lost == (kind is not WrongShares)  # of wrong shares the others make up the right ones


@pytest.mark.parametrize("variant", ["secure", "secure signed"])
@pytest.mark.parametrize("kind", [*SILENT, WrongShares])
def test_who_breaks_the_protocol_from_the_start_is_left_out_with_its_batch(ratings, variant, kind):
    """Parties in batches that are large enough to hide in are surveyed again."""
    federation, member = run(ratings, variant, speaking(kind, in_surveys=True), batch=3)
    side = federation.server.side
    (mates,) = (batch for batch in batches_of(sorted(federation.parties), 3) if EVIL in batch)
    assert len(mates) == 3
    # Shares that nobody needs are not looked at: numbers in batches are drawn, and late ones spare.
    is_spare = kind is WrongShares and not side.excluded
    assert side.excluded == (set() if is_spare else {EVIL})
    assert_went_on(federation, member, gone=() if is_spare else mates)
    assert kind is not WrongShares or np.isfinite(member.history).all()


@pytest.mark.parametrize("variant", ["secure", "secure signed"])
def test_who_sends_wrong_shares_in_a_survey_is_left_out_and_the_others_go_on(ratings, variant):
    federation, member = run(ratings, variant, speaking(WrongShares, in_surveys=True))
    assert_went_on(federation, member)
    assert "sent others than its own shares" in federation.server.roster.refused[EVIL]
    assert np.isfinite(member.history).all()


@pytest.mark.parametrize("variant", ["secure", "secure signed"])
@pytest.mark.parametrize("kind", SILENT)
def test_who_spoils_the_survey_is_left_out_and_the_others_go_on(ratings, variant, kind):
    """Those who sign have unmasked it, and help with another that differs by several parties."""
    federation, member = run(ratings, variant, speaking(kind, in_surveys=True))
    assert_went_on(federation, member)
    assert EVIL in federation.server.side.excluded


def slander(number, *, among=100):
    """A refusal that blames one party in its field, and everybody in its text."""
    text = " ".join(f"message from party {other} refused" for other in range(among))
    return Refused(text[:1000], number).encode()


@pytest.mark.parametrize("number", [0, 1, 99, 2**32 - 1])
def test_a_party_that_blames_others_shuts_nobody_out(ratings, number):
    """Not even by naming one that there is not."""

    def up(stage, name, data):
        is_his = name == EVIL and stage.startswith(("trip", "fill", "survey"))
        return slander(number) if is_his else data

    federation, member = run(ratings, "secure", lambda transport: Faulty(transport, up=up))
    assert_went_on(federation, member)


class Slanderers:
    """Parties that refuse, every other time that they are asked something, and blame the same one.

    In between they answer, so that nobody takes them for gone. They know who has most of them for
    holders of its shares; `side`, the server's, is set when there is one.
    """

    def __init__(self, names):
        self._names, self._asked, self.n_refusals = names, dict.fromkeys(names, 0), 0
        self.side = None

    def _victim(self):
        session = self.side.session
        bad = {session.numbers[name] for name in self._names & session.numbers.keys()}
        honest = sorted(set(session.numbers.values()) - bad)
        return max(honest, key=lambda number: len(session.holders(number) & bad))

    def __call__(self, stage, name, data):
        if name not in self._names or not stage.startswith("trip") or self.side is None:
            return data
        self._asked[name] += 1
        if self._asked[name] % 2:
            return data
        self.n_refusals += 1
        return slander(self._victim())


def test_a_handful_of_accusers_among_eighty_put_nobody_out():
    """Five are more than the twentieth part that sums withstand."""
    bad = {f"{number:06}" for number in (3, 20, 41, 60, 79)}
    lies = Slanderers(bad)
    many = synthetic(80, 12, 560, min_per_user=5, seed=5)
    settings = settings_of("secure signed", rounds=3, min_raters=1)
    federation = federation_of(many, settings, lambda transport: Faulty(transport, up=lies))
    federation.prepare_sums()
    lies.side = side = federation.server.side
    for _ in range(6):
        federation.one_round()
    assert lies.n_refusals >= 10
    assert side.excluded == set()
    assert set(side.survivors) >= set(federation.parties) - bad


def accused_by(n_accusers, site_of):
    """A session of forty whose first party is blamed by so many of its holders; who is guilty."""
    many = synthetic(40, 12, 280, min_per_user=5, seed=5)
    federation = federation_of(many, settings_of("secure signed", min_raters=1))
    federation.prepare_sums()
    side = federation.server.side
    side.context = replace(side.context, site_of=site_of)
    session = side.start(federation.server.coordinator.next_round())
    accusers = sorted(session.holders(0))[:n_accusers]
    said = {session.names[number]: Refused("its keys are wrong", 0) for number in accusers}
    session.improper |= said.keys()
    for name, refusal in said.items():
        federation.server.roster._read("trip 3", name, refusal.encode(), Joined, None)
    return session, side.guilty(session)


def test_as_many_accusers_as_can_make_a_sum_fail_put_a_party_out():
    session, guilty = accused_by(100, str)
    needed = session.n_to_fail(0)
    assert 2 < needed < len(session.holders(0))
    assert guilty == {session.names[0]}
    assert accused_by(needed, str)[1] == {session.names[0]}
    assert accused_by(needed - 1, str)[1] == set()


def test_a_site_with_many_parties_is_one_accuser():
    """All holders of the first party are of one site, or of two, of which it is in one itself."""
    assert accused_by(100, lambda name: "a" if name != "000000" else "b")[1] == set()
    assert accused_by(100, lambda name: "ab"[int(name) % 2])[1] == {"000000"}


def under_sites(federation, site_of):
    """The same federation before its first round, where parties are of sites."""
    federation.prepare_sums()
    side = federation.server.side
    side.context = replace(side.context, site_of=site_of)
    return federation


def test_one_sites_thirty_parties_put_nobody_else_out():
    bad = {f"{number:06}" for number in range(30)}
    many = synthetic(60, 12, 420, min_per_user=5, seed=5)
    lies = Slanderers(bad)
    settings = settings_of("secure", rounds=3, min_raters=1)
    federation = federation_of(many, settings, lambda transport: Faulty(transport, up=lies))
    under_sites(federation, lambda name: "a" if name in bad else name)
    lies.side = side = federation.server.side
    for _ in range(6):
        federation.one_round()
    assert lies.n_refusals >= 30
    assert side.excluded == set()
    assert set(side.survivors) >= set(federation.parties) - bad


def test_both_sides_of_a_dispute_sit_out_where_too_few_sites_accuse(ratings):
    """One site says that it got no right shares of another's only party: either may lie."""
    settings = settings_of("secure", rounds=5, min_raters=1)
    wrap = speaking(GarbageBoxes, in_surveys=False)
    federation = federation_of(ratings, settings, wrap)
    under_sites(federation, lambda name: "b" if name == EVIL else "a")
    for _ in range(5):
        federation.one_round()
    side, history = federation.server.side, federation.server.coordinator.history
    assert np.isnan(history[0])
    assert np.isfinite(history[1:]).all()
    assert side.excluded == set()
    assert EVIL not in side.survivors
    assert len(side.survivors) >= 3


@pytest.mark.parametrize("variant", ["secure", "secure signed"])
def test_three_faults_at_once_among_twelve_end_nobodys_run(ratings, variant):
    """More than the graph is made for: a round may be lost, the run may not."""
    settings = settings_of(variant, rounds=5, min_raters=1)
    quiet = federation_of(ratings, settings, Recorded)
    quiet.run()
    stages = {exchange.stage for exchange in quiet.transport.inner.seen}
    names = ("000001", "000006", "000011")
    faults = dict(zip(names, (REFUSAL, None, NONSENSE), strict=True))
    for stage in stages:
        fault = Misbehaving(stage, 1, faults)
        federation = federation_of(ratings, settings, lambda t, f=fault: Faulty(t, up=f))
        member = federation.run()
        assert np.isfinite(member.broadcast.item_rows).all(), stage
        assert np.isfinite(member.history[-1]), stage
        assert set(federation.server.side.survivors) >= set(federation.parties) - set(names), stage


def test_an_adapter_that_gives_no_bytes_is_one_partys_fault(ratings):
    class Odd:
        def __init__(self, inner):
            self._inner = inner

        def exchange(self, stage, messages, timeout):
            return self._inner.exchange(stage, messages, timeout) | {EVIL: "text"}

    federation = federation_of(ratings, settings_of("plain"), Odd)
    federation.run()
    assert EVIL not in federation.server.side.survivors
