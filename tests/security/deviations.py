"""A server that deviates in one field of one message: `python tests/security/deviations.py 100000`.

Five parties sign. In every other run they are five people; in the rest, two sites of three users
each and three people. The server is honest but once: one field of one message, to one party, to all
but one, or to all, says something else than it should. Fields are found by looking at the messages,
and what they say instead by their type. Whatever sum the server ends with, and every difference of
two of them, is compared, entry by entry, with the sums of all groups of parties that are smaller
than owners allow: none of them may be read. What a site says in a round is compared with the sum of
what each of its users alone would have said: no user may change what is said of the others.
"""

import os
import struct
import sys
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from itertools import combinations
from multiprocessing import Pool
from pathlib import Path
from random import Random
from unittest import mock

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "aggregation"))  # where it is run as a program

from federations import settings_of

from fedmmf.aggregation.secure.messages import SecureSetup, SecureTrip
from fedmmf.aggregation.secure.party import SecureParty
from fedmmf.data.rated_items import RatedItems
from fedmmf.data.scales import RatingScale
from fedmmf.data.synthetic import synthetic
from fedmmf.engines.reference import NUMPY
from fedmmf.errors import FedMMFError
from fedmmf.federation.local import Holdings, LocalFederation, make_silos
from fedmmf.party.user_group import UserGroup
from fedmmf.secagg import SessionClient, SessionServer, keys, messages
from fedmmf.secagg.policy import MINIMUM_COHORT
from fedmmf.secagg.session import Trip, setup_of
from fedmmf.secagg.setup import SERVER
from fedmmf.simulation import prepare
from fedmmf.transports.in_process import InProcess
from fedmmf.wire import (
    Adopt,
    Finish,
    Invitation,
    Layout,
    Round,
    Survey,
    name_of,
    read,
    split_parcel,
)

N_PARTIES = 5
CUTS = {  # party i has the users cuts[i] to cuts[i + 1] - 1
    "people": np.arange(N_PARTIES + 1),
    "sites": np.array([0, 3, 6, 7, 8, 9]),
}
HUGE = 3e38  # near the end of float32
SMALL = 2**12
PUBLISHED = (Survey, Layout, Round)
WIRE = (Invitation, SecureSetup, SecureTrip, Adopt, Finish, *PUBLISHED)
INNER = (messages.Keys, messages.Boxes, messages.Survivors, messages.Request)
EVERY_FIELD = {
    f"{cls.__name__}.{part.name}" for cls in (*WIRE, Trip, *INNER) for part in fields(cls)
}


# Another value of the same type


def other(value, draw):
    """Something else than a value, of its type."""
    kinds = (
        (bool, _other_switch),
        (int, _other_number),
        (float, lambda v, d: d.choice([v + 1, -v, v * 2**21, 1e30, 0.0])),
        (str, lambda v, d: d.choice(["plain", "dp", "secure", "vb", "sgd", "", v + "x"])),
        (bytes, _other_bytes),
        (np.ndarray, _other_array),
        (frozenset, lambda v, d: v ^ {d.randrange(N_PARTIES)}),
        (tuple, _other_tuple),
        (dict, _other_table),
    )
    for kind, change in kinds:
        if isinstance(value, kind):
            return change(value, draw)
    return other_field(value, draw)[0]


def other_field(message, draw, wanted=None):
    """A message with one field changed, and the name of the field."""
    chosen = wanted or draw.choice([part.name for part in fields(message)])
    changed = replace(message, **{chosen: other(getattr(message, chosen), draw)})
    return changed, f"{type(message).__name__}.{chosen}"


def _other_switch(value, draw):
    return not value


def _other_number(value, draw):
    return max(draw.choice([value + 1, value - 1, 0, 1, 2, 3, 2 * value, 2**31 - 1]), 0)


def _other_bytes(value, draw):
    at = draw.randrange(len(value)) if value else 0
    bit = 1 << draw.randrange(8)
    flipped = value[:at] + bytes([value[at] ^ bit]) + value[at + 1 :] if value else b"x"
    return draw.choice([flipped, flipped, bytes(len(value)), b"", value[:-1], value * 2])


def _other_array(value, draw):
    if value.dtype == np.int32:  # items
        return draw.choice([np.arange(4), np.arange(3), value[:-1], np.zeros(0)]).astype(np.int32)
    changed = value.copy()
    changed.flat[draw.randrange(value.size)] += draw.choice([1.0, -1.0, 1e6, HUGE])
    return draw.choice([changed, value * 0, -value, value * 1e-20, value[:-1]])


def _other_tuple(value, draw):
    if not value:
        return (bytes(32),)
    at, pool = draw.randrange(len(value)), [*value, bytes(len(value[0]))]
    swapped = (*value[:at], draw.choice(pool), *value[at + 1 :])
    return draw.choice([swapped, value[:-1], value[::-1], ()])


def _other_table(value, draw):
    if not value:
        return value
    key, same = draw.choice(list(value)), draw.choice(list(value.values()))
    fewer = {party: entry for party, entry in value.items() if party != key}
    moved = fewer | {draw.randrange(N_PARTIES): value[key]}
    return draw.choice([fewer, moved, value | {key: same}, value | {key: other(value[key], draw)}])


# A transport that deviates once


class Deviating:
    """Changes one field of what some parties are sent in one exchange.

    Args:
        inner: carries the bytes.
        draw: where chances come from.
        at: which exchange; None: none.
        wanted: which field, as `EVERY_FIELD` has it; None: any.
    """

    def __init__(self, inner, draw, at, wanted=None):
        self._inner, self._draw, self._at, self._wanted = inner, draw, at, wanted
        self.count, self.changed, self.setup = 0, None, None

    def exchange(self, stage, parcels, timeout):
        if self.count == self._at or (self._wanted and not self.changed and self._is_due(parcels)):
            parcels = self._deviate(dict(parcels))
        self.count += 1
        return self._inner.exchange(stage, parcels, timeout)

    def _is_due(self, parcels):
        """Whether the wanted field is in what is sent now."""
        broadcasts, frame = split_parcel(next(iter(parcels.values())))
        messages = [read(part, WIRE) for part in (*broadcasts, frame)]
        leaves_out = not getattr(messages[-1], "for_survey", False)  # a survey leaves nothing out
        return self._wanted_kind in {type(message).__name__ for message in messages} and leaves_out

    @property
    def _wanted_kind(self):
        return self._wanted and self._wanted.split(".")[0]

    def _deviate(self, parcels):
        names, seed = sorted(parcels), self._draw.random()
        one = self._draw.choice(names)
        told = self._draw.choice([[one], [name for name in names if name != one], names])
        for name in told:  # each its own message, changed in the same way
            draw = Random(seed)  # noqa: S311
            for _ in range(20):
                try:
                    changed, what = self._changed(parcels[name], draw)
                except (FedMMFError, struct.error, ValueError, KeyError, TypeError, AttributeError):
                    continue  # nothing that could be sent
                if changed != parcels[name]:
                    parcels[name], self.changed = changed, what
                    break
        return parcels

    def _changed(self, data, draw):
        broadcasts, frame = split_parcel(data)
        message = read(frame, WIRE)
        wanted = self._wanted and self._wanted.split(".")[1]
        is_published = self._wanted_kind in {cls.__name__ for cls in PUBLISHED}
        if broadcasts and (is_published if wanted else draw.random() < 0.5):
            work, what = other_field(read(broadcasts[0], WIRE), draw, wanted)
            told = replace(message, about=name_of(work.encode()))
            return work.encode() + told.encode(), what
        if isinstance(message, SecureTrip) and not self._wanted and draw.random() < 0.8:
            inside, what = self._inside(message.data, draw)
            message = replace(message, data=inside)
        else:
            message, what = other_field(message, draw, wanted)
        return b"".join(broadcasts) + message.encode(), what

    def _inside(self, data, draw):
        """A trip of a session with one field changed, or a message inside it."""
        setup = self.setup()
        trip = Trip.decode(setup, SERVER, data)
        part = draw.choice(["current", "following"])
        given = getattr(trip, part)
        if not given or draw.random() < 0.2:
            trip, what = other_field(trip, draw)
            return trip.encode(setup), what
        of_round = setup_of(setup, trip.number + (part == "following"))
        cls = next(cls for cls in INNER if cls.kind == given[5])
        inner, what = other_field(cls.decode(of_round, SERVER, given), draw)
        changed = replace(trip, **{part: inner.encode(of_round, SERVER)})
        return changed.encode(setup), what


# One run, and what the server reads in it


class Watch:
    """What parties put into each sum, and what the server got out.

    Args:
        n_row_entries: of a round's vector, before its totals.
    """

    def __init__(self, n_row_entries):
        self.put, self.got, self.turn = {}, {}, 0
        self.changed_by_others = 0  # rounds in which a site said something else than its users
        self._n_row_entries = n_row_entries

    def __enter__(self):
        values, first, result = SecureParty._values, SessionServer.first, SessionServer.result
        update = UserGroup.update

        def put(side, agreed, message):
            vector = values(side, agreed, message)
            if vector.any():
                self.put.setdefault(self.turn, {})[id(side.context)] = vector.copy()
            return vector

        def begin(protocol, about=b""):
            self.turn += 1
            return first(protocol, about)

        def get(protocol):
            total = result(protocol)
            if total is not None:
                self.got[self.turn] = total
            return total

        def compare(users, *asked):
            return self._compared(update, users, asked)

        self._patches = [
            mock.patch.object(UserGroup, "update", compare),
            mock.patch.object(SecureParty, "_values", put),
            mock.patch.object(SessionServer, "first", begin),
            mock.patch.object(SessionServer, "result", get),
        ]
        for patch in self._patches:
            patch.start()
        return self

    def __exit__(self, *error):
        for patch in self._patches:
            patch.stop()

    def _compared(self, update, users, asked):
        """A site's update, once it was compared with what its users alone would say."""
        alone = _alone(users, *asked)
        try:
            found = update(users, *asked)
        except FedMMFError:
            self.changed_by_others += alone is not None
            raise
        same = alone is not None and np.array_equal(found.rows[0], alone[0])
        same &= np.array_equal(found.totals[0], alone[1])
        self.changed_by_others += not same
        return found

    def small_groups(self):
        """How many parties' parts are read together, where these are too few.

        Of differences, the rows alone: who is read there is read in every entry, and totals (1 of
        every user, and p_u in steps of 1/256) are small numbers, which are like others by chance.
        """
        found = [(total, self._parts(turn)) for turn, total in self.got.items()]
        for (a, one), (b, two) in combinations(list(self.got.items()), 2):
            if len(one) == len(two):
                rows = slice(self._n_row_entries)
                difference = (one - two)[rows]
                found += [(difference, [part[rows] for part in self._parts(t)]) for t in (a, b)]
        return [size for total, parts in found if (size := _size(total, parts))]

    def _parts(self, turn):
        return list(self.put.get(turn, {}).values())


def _alone(users, broadcast, t, cohorts):
    """Rows and totals that users would say who are alone, added up; None where nobody could."""
    given, state = users._started_input(), users.state()
    updates = []
    for user in range(users.n_users):
        crowd = NUMPY.halves(_of_one(given, user, cohorts))
        mine = f"{user}/"
        crowd.restore({f"0/{k.removeprefix(mine)}": state[k] for k in state if k.startswith(mine)})
        with suppress(FedMMFError):
            updates.append(crowd.update(broadcast, t))
    if not updates:
        return None
    return sum(update.rows[0] for update in updates), sum(update.totals[0] for update in updates)


def _of_one(given, user, cohorts):
    """What one user trains on."""
    mine = given.lists.of(user)
    items = given.lists.items[mine]
    return replace(
        given,
        lists=RatedItems(np.array([0, len(items)]), items),
        masked_ratings=given.masked_ratings[mine],
        profiles=given.profiles[[user]],
        lines=given.lines[[user]],
        cohorts=tuple(cohorts),
    )


def _size(total, parts):
    """How few of the parts some entry of a total is the sum of, where these are too few; else 0.

    Parts are of 32 bits, and those of a survey all the same but for levels and variances. Small
    numbers, as counts and the higher digits of totals are, say nothing: they are others' sums by
    chance. So are few steps of a coarse grid, as counts are in a survey's fixed point.
    """
    parts = [part for part in parts if part.shape == total.shape]
    for size in range(1, MINIMUM_COHORT):
        for group in combinations(parts, size):
            same = np.sum(group, axis=0, dtype=total.dtype)
            grid = np.maximum(np.min([part & -part for part in group], axis=0), 1)
            is_large = np.all([np.minimum(part, -part) // grid > SMALL for part in group], axis=0)
            is_read = ((same == total) | (-same == total)) & is_large
            if is_read.any():
                return size
    return 0


@cache
def ratings_of(kind):
    """Nobody's level is a sum of others' by chance.

    Among people, everybody rated everything. At sites, some users did not rate the last item, so
    that a broadcast can be aimed at the others.
    """
    n_users = int(CUTS[kind][-1])
    whole = synthetic(n_users, 4, 4 * n_users, min_per_user=4, seed=1)
    steps = np.random.default_rng(1).integers(0, 4097, len(whole.values))
    scale = RatingScale(1.0, 5.0, 2.0**-10)
    whole = replace(whole, values=(1 + steps * scale.step).astype(np.float32), scale=scale)
    if kind == "people":
        return whole
    is_left_out = (whole.item_codes == 3) & np.isin(whole.user_codes, (0, 3, 4))
    return whole.select(~is_left_out)


SETTINGS = settings_of(
    "secure signed", held_out=0.0, min_raters=1, factors=1, rounds=2, mask="none"
)
EXCHANGES = 24  # of a run in which nothing goes wrong


@cache
def prepared(kind):
    return prepare(ratings_of(kind), SETTINGS)


@dataclass(frozen=True)
class Outcome:
    """What one run came to."""

    changed: str | None  # the field
    n_sums: int
    found: list  # what is wrong: sizes of small groups that are read, and "site" for each round
    # in which a site did not say the sum of what its users alone would have said
    n_exchanges: int


def one_run(seed, wanted=None, kind=None):
    """One federation with one deviation."""
    kind = kind or list(CUTS)[seed % len(CUTS)]
    draw, run, ratings = Random(seed), prepared(kind), ratings_of(kind)  # noqa: S311
    at = None if wanted else draw.randrange(EXCHANGES)
    with the_same_secrets():
        holdings = Holdings(ratings, SETTINGS, run.is_held_out, run.features.statistics)
        parties = make_silos(holdings, CUTS[kind], NUMPY)
        transport = Deviating(InProcess(parties), draw, at, wanted)
        federation = LocalFederation.among(run.plan, parties, transport)
        transport.setup = lambda: federation.server.side.session.protocol.setup
        with Watch(ratings.n_items * SETTINGS.factors) as watch, suppress(FedMMFError):
            federation.run()
    found = watch.small_groups() + ["site"] * watch.changed_by_others
    return Outcome(transport.changed, len(watch.got), found, transport.count)


# All runs draw the same secrets, so that what OpenSSL finds for one it has found for all

_agree = keys.KeyPair.agree
is_signed, sign = lru_cache(1 << 14)(keys.is_signed), lru_cache(1 << 14)(keys.sign)
from_secret = lru_cache(1 << 14)(keys.KeyPair.from_secret)


@lru_cache(1 << 14)
def agree(secret, peer):
    return _agree(from_secret(secret), peer)


@contextmanager
def the_same_secrets():
    """Secrets from one stream that begins anew, and a memory of what was computed with them."""
    stream = Random(1)  # noqa: S311
    patches = [
        mock.patch("os.urandom", stream.randbytes),
        mock.patch.dict(SessionClient.__init__.__kwdefaults__, entropy=stream.randbytes),
        mock.patch.object(keys, "is_signed", is_signed),
        mock.patch.object(keys, "sign", sign),
        mock.patch.object(keys.KeyPair, "from_secret", from_secret),
        mock.patch.object(keys.KeyPair, "agree", lambda pair, peer: agree(pair.secret, peer)),
    ]
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


def campaign(seeds):
    """Many runs; how often each field was changed, how many sums were got, and what was found."""
    changed, sums, found = Counter(), 0, []
    for seed in seeds:
        outcome = one_run(seed)
        changed[outcome.changed] += 1
        sums += outcome.n_sums
        if outcome.found:
            found.append((seed, outcome.changed, outcome.found))
    return changed, sums, found


def say(text="", end="\n", file=None):
    (file or sys.stdout).write(text + end)


def main(count):
    """Run them in as many processes as there are cores, and print what was changed."""
    parts, every = os.cpu_count() or 1, Counter()
    sums, found, done = 0, [], 0
    chunks = [range(start, min(start + 200, count)) for start in range(0, count, 200)]
    with Pool(parts) as pool:
        for changed, n_sums, small in pool.imap_unordered(campaign, chunks):
            every += changed
            sums, found, done = sums + n_sums, found + small, done + sum(changed.values())
            say(f"\r{done:,} of {count:,}, {len(found)} found", end="", file=sys.stderr)
    say(file=sys.stderr)
    for what, times in sorted(every.items(), key=str):
        say(f"{what or 'nothing':28} {times:8,}")
    missing = sorted(EVERY_FIELD - every.keys())
    say(f"{count:,} runs, {sums:,} sums, fields never changed: {missing or 'none'}")
    say(f"runs that show fewer than {MINIMUM_COHORT} parties, or a user of a site: {len(found)}")
    say("\n".join(map(str, found[:5])), end="\n" if found else "")
    return bool(found or missing)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
