"""What every aggregation scheme has to do, with real parties and real messages.

A way from another package inherits these tests; `tests/extending` has one.
"""

from collections import Counter

import numpy as np
import pytest
from federations import federation_of, settings_of

from fedmmf.aggregation import AGGREGATIONS
from fedmmf.federation.local import make_parties
from fedmmf.masks.population import CommonItems, Population
from fedmmf.simulation import prepare
from fedmmf.simulation.real import ROUND_STAGES, real_federation
from fedmmf.simulation.training import train
from fedmmf.transports.wrappers import Faulty, Recorded
from fedmmf.wire import Refused, split_parcel

REFUSAL = Refused("not today").encode()
NONSENSE = b"nonsense" * 9


class Misbehaving:
    """In one exchange, some parties refuse, are gone, or answer nonsense."""

    def __init__(self, stage, occurrence, faults):
        self._stage, self._occurrence, self._faults = stage, occurrence, faults
        self._seen = Counter()
        self.happened = False

    def __call__(self, stage, name, data):
        self._seen[stage, name] += 1
        is_now = (stage, self._seen[stage, name]) == (self._stage, self._occurrence)
        if not is_now or name not in self._faults:
            return data
        self.happened = True
        return self._faults[name]


class Twice:
    """A network that delivers every message twice, and keeps the second answer."""

    def __init__(self, inner):
        self._inner, self.pairs = inner, []

    def exchange(self, stage, messages, timeout):
        sent = {name: messages[name] for name in messages}
        first = self._inner.exchange(stage, sent, timeout)
        second = self._inner.exchange(stage, sent, timeout)
        self.pairs += [(first[name], second[name]) for name in first]
        return second


class Forgetful:
    """A cache that has lost what was published: the first try comes without it."""

    def __init__(self, inner):
        self._inner, self._tried, self.n_lost = inner, set(), 0

    def exchange(self, stage, messages, timeout):
        sent = {}
        for name in messages:
            broadcasts, message = split_parcel(messages[name])
            is_new = (name, message) not in self._tried
            self._tried.add((name, message))
            self.n_lost += bool(broadcasts) and is_new
            sent[name] = message if is_new else messages[name]
        return self._inner.exchange(stage, sent, timeout)


CLOSE = 1e-4  # errors of fixed point and of ciphertexts, in the sums of rows


class Twins:
    """The same parties again, which say in floating point what the others will say."""

    def __init__(self, ratings, settings):
        run = prepare(ratings, settings)
        self._parties = make_parties(ratings, settings, run.is_held_out, run.features.statistics)
        self._collected = settings.sharing == "adaptive" and settings.collect_masked

    def parts(self, parties, round_):
        """By party with a layout: items, and its rows of the round that is to come."""
        found = {}
        for name, twin in self._parties.items():
            if parties[name].run is None or parties[name].run.layout is None:
                continue  # the server thinks that it has not joined
            if round_.round == 1 or not (self._collected and parties[name].in_clear):
                twin.restore(parties[name].state())  # else its rounds are computed by the server
            part = twin.run.contribute(round_, None, None, n_parties=len(parties))
            found[name] = part.items, part.rows
        return found


def in_common(run):
    """Line and shrinkage that users have in common, by hand: rating by rating, in a regression."""
    n_columns = len(run.layout.line)
    common = CommonItems.of(
        run.layout.items, run.features.content[:, : n_columns - 1], run.settings.min_raters
    )
    lists, is_common = run.lists.within(common.items, run.ratings.n_items)
    known = run.training.values[is_common].astype(np.float64)
    means, spreads = [], []
    for user in range(lists.n_users):
        values = known[lists.of(user)]
        means.append(values.mean())
        if len(values) > 1:
            spreads.append((values.mean(), values.var(ddof=1), values.var(ddof=1) / len(values)))
    line = np.array([np.mean(means)])
    if n_columns > 1:
        line = line_by_hand(common.features[lists.items], known - run.ratings.scale.midpoint, means)
    levels, within, by_chance = np.array(spreads).T
    shrinkage = 2 * within.mean() / max(levels.var() - by_chance.mean(), 1e-9)
    return line, np.clip(shrinkage, 0.5, 50.0)


def line_by_hand(features, values, means):
    """Slopes from all ratings alike; at the mean rated item, the mean of users' means."""
    x = np.clip(features, -4, 4)
    ridge = np.sqrt(5.0 * len(values) / len(means)) * np.eye(x.shape[1])
    rows = np.vstack((np.column_stack((np.ones(len(x)), x)), np.insert(ridge, 0, 0, axis=1)))
    found = np.linalg.lstsq(rows, np.concatenate((values, np.zeros(len(ridge)))), rcond=None)[0]
    return np.concatenate(([np.mean(means) - x.mean(axis=0) @ found[1:]], found[1:]))


def added(parts, names, shape):
    """The obvious sum of some parties' rows."""
    total = np.zeros(shape)
    for name in names:
        items, rows = parts[name]
        total[items] += rows
    return total


class WayContract:
    """Inherit, and say which variants of `federations.VARIANTS` there are."""

    variants: tuple[str, ...] = ()
    is_noisy = False  # whether sums are what the simulation gives, up to noise of the parties' own
    bears_three = True  # whether three parties may fail at once

    @pytest.fixture
    def ratings(self, small):
        return small

    def settings(self, variant, **changes):
        return settings_of(variant, **changes)

    def test_training_ends_where_the_simulation_ends(self, ratings, variant):
        settings = self.settings(variant)
        member = federation_of(ratings, settings).run()
        (simulated,) = train(ratings, settings).members
        if self.is_noisy:
            start = prepare(ratings, settings).coordinator().result.item_factors
            moved = np.abs(simulated.broadcast.item_factors - start).mean()
            real = np.abs(member.broadcast.item_factors - start).mean()
            assert real == pytest.approx(moved, rel=0.4)  # eight deviations of twelve such runs
            return
        close = {"rtol": 1e-4, "atol": 1e-4}
        np.testing.assert_allclose(
            member.broadcast.item_factors, simulated.broadcast.item_factors, **close
        )
        np.testing.assert_allclose(member.user_factors, simulated.user_factors, **close)
        np.testing.assert_allclose(member.history, simulated.history, rtol=1e-4)

    def test_who_has_no_ratings_adds_nothing_and_is_served(self, ratings, variant):
        """In the name of a user without ratings, no party falls out of the sums."""
        rated, settings = ratings.select(ratings.user_codes != 4), self.settings(variant, rounds=2)
        federation = federation_of(rated, settings)
        member = federation.run()
        assert not federation.server.roster.refused
        assert set(federation.server.side.survivors) == set(federation.parties)
        assert np.isfinite(federation.parties["000004"].predict(np.arange(3))).all()
        if not self.is_noisy:
            (simulated,) = train(rated, settings).members
            found, expected = member.broadcast.parameters, simulated.broadcast.parameters
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
            np.testing.assert_allclose(
                member.user_factors, simulated.user_factors, rtol=1e-3, atol=1e-4
            )

    @pytest.mark.parametrize("mask", ["mean", "lr"])
    def test_the_layout_has_what_users_have_in_common_and_comes_before_the_rounds(
        self, ratings, variant, mask
    ):
        """Every user counts once, however much it rated; what is held out does not count."""
        settings = self.settings(variant, mask=mask, rounds=2)
        federation = federation_of(ratings, settings, Recorded)
        federation.run()
        layout, run = federation.server.side.layout, prepare(ratings, settings)
        assert np.array_equal(layout.items, run.layout.items)
        # Masks that decide what leaves in the clear listen to no server, and need no features.
        is_deciding, unknown = settings.sharing == "adaptive", Population.unknown(ratings.scale)
        # In the clear, what users say of features would give their ratings away.
        is_level = mask == "mean" or settings.sharing != "strict" or self.is_noisy
        assert len(layout.line) == (1 if is_level else 1 + run.features.content.shape[1])
        assert federation.server.side.context.invitation.columns == len(layout.line)
        line, shrinkage = (unknown.line, 1.0) if self.is_noisy else in_common(run)
        np.testing.assert_allclose(layout.line, line, rtol=1e-6, atol=1e-7)
        assert layout.shrinkage == pytest.approx(shrinkage, rel=1e-6)
        np.testing.assert_allclose(layout.line, run.layout.line, rtol=1e-9, atol=1e-10)
        assert layout.shrinkage == pytest.approx(run.layout.shrinkage, rel=1e-9)
        values = run.training.values.astype(np.float64)
        assert abs(line[0] - values.mean()) > 1e-4  # or one could not tell
        for party in federation.parties.values():
            assert party.run.layout.encode() == layout.encode()
            expected = unknown if is_deciding else layout.population
            assert party.masks.population.is_like(expected)
        stages = [exchange.stage for exchange in federation.transport.inner.seen]
        assert stages.count("layout") == 1
        before, after = stages[: stages.index("layout")], stages[stages.index("layout") :]
        assert not {"round", "trip 1", "collect", "finish"} & set(before)
        assert {"round", "trip 1"} & set(after)

    def test_whoever_refuses_crashes_or_talks_nonsense_is_left_out(self, ratings, variant):
        """In any stage, in the first exchange and in a later one: the others go on."""
        settings = self.settings(variant, rounds=2)
        quiet = federation_of(ratings, settings, Recorded)
        quiet.run()
        stages = Counter(exchange.stage for exchange in quiet.transport.inner.seen)
        for stage, n_exchanges in stages.items():
            for occurrence in {1, n_exchanges}:
                for faults in self.faults(self.asked(quiet, stage)):
                    fault = Misbehaving(stage, occurrence, faults)
                    self.check_others_go_on(ratings, settings, fault, set(faults))

    def faults(self, asked):
        """One party refuses, one is gone, one answers nonsense: at once, or in turn."""
        names = (asked[1], asked[len(asked) // 2], asked[-1])
        every = dict(zip(names, (REFUSAL, None, NONSENSE), strict=True))
        return [every] if self.bears_three else [{name: every[name]} for name in names]

    @staticmethod
    def asked(federation, stage):
        return sorted(federation.transport.inner.last(stage).sent)

    def check_others_go_on(self, ratings, settings, fault, names):
        federation = federation_of(ratings, settings, lambda inner: Faulty(inner, up=fault))
        federation.prepare_sums()
        side, coordinator = federation.server.side, federation.server.coordinator
        twins = None if self.is_noisy else Twins(ratings, settings)
        others = {party for party in federation.parties if party not in names}
        while not coordinator.is_finished:
            round_ = coordinator.next_round()
            parts = None if self.is_noisy else twins.parts(federation.parties, round_)
            sums = side.sums(round_)
            self.check_sums(ratings, settings, side, sums, parts)
            assert others <= set(side.survivors)
            coordinator.advance(round_, sums)
        last = coordinator.next_round(is_last=True)
        side.newcomers(last)
        side.finish(last)
        assert fault.happened
        assert set(federation.server.roster.refused) == names

    def check_sums(self, ratings, settings, side, sums, parts):
        """The rows are those of exactly the survivors, less items left out.

        Counts may be older than the sum, and say nothing of who is in it.
        """
        lists, laid_out = prepare(ratings, settings).lists, side.layout.items
        assert len(sums.rows) == len(laid_out)
        if self.is_noisy:  # everybody seems to have rated everything
            assert set(sums.n_raters) == {len(side.survivors)}
            return
        in_clear = set(getattr(side, "in_clear", ()))  # nothing is left out of these
        every = added(parts, side.survivors, sums.rows.shape)
        clear = added(parts, in_clear & set(side.survivors), sums.rows.shape)
        is_every, is_clear = (
            np.abs(sums.rows - rows).max(axis=1) < CLOSE for rows in (every, clear)
        )
        assert (is_every | is_clear).all()
        for name in side.survivors:  # without any one of them it would be another sum
            items, rows = parts[name]
            seen = is_every[items] & (np.abs(rows).max(axis=1) > 2 * CLOSE)
            assert seen.any()
        counts = lists.counts(ratings.n_items)
        assert (sums.n_raters <= counts[laid_out]).all()
        assert sums.n_raters[is_every & ~is_clear].all()
        assert sums.n_raters.sum() > 0.5 * counts.sum()

    def test_a_repeated_message_gets_its_first_answer_again(self, ratings, variant):
        settings = self.settings(variant)
        twice = federation_of(ratings, settings, Twice)
        member = twice.run()
        assert all(first == second for first, second in twice.transport.inner.pairs)
        if not self.is_noisy:
            once = federation_of(ratings, settings).run()
            np.testing.assert_allclose(
                member.broadcast.item_factors, once.broadcast.item_factors, rtol=1e-6, atol=1e-7
            )

    def test_a_publication_that_got_lost_is_asked_for(self, ratings, variant):
        settings = self.settings(variant)
        federation = federation_of(ratings, settings, Forgetful)
        federation.run()
        assert federation.transport.inner.n_lost >= len(federation.parties)
        assert not federation.server.roster.incidents

    def test_the_expected_bytes_are_those_that_cross_the_wire(self, ratings, variant):
        settings = self.settings(variant)
        run = prepare(ratings, settings)
        federation = real_federation(run)
        federation.prepare_sums()
        for _ in range(2):
            federation.one_round()
        counted, n = federation.transport.of(*ROUND_STAGES), 2 * ratings.n_users
        expected = run.cost()
        # In adaptive sharing the mean user of both groups is taken to rate equally much, and
        # ciphertexts differ a little in length.
        assert expected.up_bytes == pytest.approx(counted.up_bytes / n, rel=self.tolerance(variant))
        assert expected.down_bytes == pytest.approx(counted.down_bytes / n, abs=1e-6)

    @staticmethod
    def tolerance(variant):
        return 0.06 if "adaptive" in variant or "homomorphic" in variant else 1e-12

    def test_it_has_words_for_people(self, variant):
        settings = self.settings(variant)
        words = AGGREGATIONS[settings.scheme_name].disclosure(settings)
        assert words
        assert all(sentence.endswith(".") for sentence in words)


def pytest_generate_tests_for(metafunc):
    """Give each test of a contract class its variants."""
    if "variant" in metafunc.fixturenames:
        metafunc.parametrize("variant", metafunc.cls.variants)
