"""Throw broken messages at a live party and a live server: `python tests/party/siege.py 1000000`.

A small federation trains. Before each message that a party is sent, many wrong ones arrive:
damaged, replayed, of other runs and other aggregation schemes. The party may refuse them, in its
own words, or take one that happens to be right. Whatever it refuses must leave it bit for bit as it
was, and make it allocate little. Then the right message arrives, and training ends as if nothing
had happened. Likewise each of its answers reaches the server damaged, many times over.
"""

import os
import sys
import tracemalloc
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from fedmmf.aggregation.adaptive.messages import Collected
from fedmmf.aggregation.homomorphic.messages import Ciphertexts
from fedmmf.aggregation.secure.messages import SecureAgreed, SecureSetup, SecureTrip
from fedmmf.data.synthetic import synthetic
from fedmmf.errors import WireError
from fedmmf.secagg.keys import KeyPair
from fedmmf.wire import (
    Adopted,
    Finished,
    Invitation,
    Joined,
    Layout,
    Refused,
    Update,
    Wanted,
    read,
)
from fedmmf.wire.frames import kind_of

for folder in ("aggregation", "secagg"):  # where it is run as a program
    sys.path.append(str(Path(__file__).parents[1] / folder))

from federations import VARIANTS, federation_of, settings_of  # noqa: E402
from fuzz import damage  # noqa: E402

VICTIM = "000002"
MAX_BYTES = 50e6
ANSWERS = (
    Joined, Adopted, Refused, Wanted, Update, Finished, Collected, SecureAgreed, SecureTrip,
    Ciphertexts,
)  # fmt: skip
REPLACED = (Invitation.kind, SecureSetup.kind)  # the right one takes the place of a wrong one
OWN = (*REPLACED, Layout.kind)  # a layout of another federation is as good as this one's
SLOW = {"homomorphic-paillier", "homomorphic-ckks", "homomorphic-ckks vb"}


def picture(value, seen=None):
    """All that an object holds, down to the bytes, as something that can be compared."""
    seen = set() if seen is None else seen
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, KeyPair):
        return value.secret
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if id(value) in seen:
        return "seen before"
    if isinstance(value, dict):
        return [(key, picture(entry, seen)) for key, entry in value.items()]
    if isinstance(value, list | tuple):
        return [picture(entry, seen) for entry in value]
    if type(value).__module__.startswith("fedmmf") and hasattr(value, "__dict__"):
        seen.add(id(value))
        names = [f.name for f in fields(value)] if is_dataclass(value) else vars(value)
        held = {name: vars(value)[name] for name in names if name in vars(value)}
        return (type(value).__name__, picture(held, seen))
    return value if isinstance(value, bytes | str | int | float | frozenset | set) else id(value)


class Siege:
    """A transport around another, at one party's door."""

    old: ClassVar[list[bytes]] = []  # what parties were sent, here and in other federations

    def __init__(self, inner, budget, entropy):
        self._inner, self._party = inner, inner.parties[VICTIM]
        self._budget, self._entropy = budget, entropy
        self._own = []  # what began something here; the like of another federation begins anew
        self.n_thrown = self.n_refused = self.n_taken = 0
        self.most_bytes, self.is_over = 0, False

    def exchange(self, stage, messages, timeout):
        sent = {name: messages[name] for name in messages}
        if VICTIM in sent and not self.is_over:
            self._besiege(sent[VICTIM])
        replies = self._inner.exchange(stage, sent, timeout)
        if VICTIM in sent and not self.is_over:
            (self._own if kind_of(sent[VICTIM]) in OWN else self.old).append(sent[VICTIM])
            self._besiege_server(replies[VICTIM])
        return replies

    def _besiege(self, right):
        before = picture(self._party)
        for number in range(self._budget):
            wrong = self._wrong(right)
            if wrong == right or wrong in (*self.old[-2:], *self._own[-2:]):
                continue
            layout, state = self._layout, self._party.current.state
            answer = self._thrown(wrong, is_measured=number % 40 == 0)
            if isinstance(answer, Refused | Wanted):
                self.n_refused += 1
                assert self._party.current.state is state, f"refused and yet changed: {answer}"
                if number % 10 == 0:  # a picture takes longer than an answer
                    self._require_unchanged(before, answer, wrong)
                continue
            self.n_taken += 1
            if isinstance(answer, Adopted) and self._layout == layout:
                before = picture(self._party)  # what it had adopted already
                continue
            begins = isinstance(answer, Joined | SecureAgreed)
            if not begins or (kind_of(right) not in REPLACED and wrong not in self._own):
                self.is_over = True  # it was right after all: the party is elsewhere now
                return
            before = picture(self._party)
        self._require_unchanged(before, "one of the last", b"")

    @property
    def _layout(self):
        run = self._party.run
        return run.layout.encode() if run and run.layout else b""

    def _require_unchanged(self, before, answer, wrong):
        if picture(self._party) != before:
            raise AssertionError(f"refused and yet changed: {answer} {wrong.hex()}")

    def _thrown(self, wrong, is_measured):
        self.n_thrown += 1
        if not is_measured:  # tracing makes everything slow
            return read(self._party.answer(wrong), ANSWERS)
        tracemalloc.start()
        answer = read(self._party.answer(wrong), ANSWERS)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        self.most_bytes = max(self.most_bytes, peak)
        if self.most_bytes > MAX_BYTES:
            raise AssertionError(f"{self.most_bytes:,} bytes for {wrong[:200].hex()}")
        return answer

    def _wrong(self, right):
        kind = self._entropy(1)[0] % 8
        known = self.old + self._own
        if kind == 0 and known:
            other = known[int.from_bytes(self._entropy(2), "big") % len(known)]
            # A server that nobody can tell from the right one may always begin anew.
            is_whole = self._entropy(1)[0] % 2 or kind_of(other) in REPLACED
            return other if is_whole else damage(other, self._entropy)
        if kind == 1:
            return self._entropy(1 + self._entropy(1)[0])
        return damage(right, self._entropy)

    def _besiege_server(self, right):
        for _ in range(self._budget // 4):
            self.n_thrown += 1
            try:
                read(damage(right, self._entropy), ANSWERS)
            except WireError:
                self.n_refused += 1


def settings_under_siege(variant):
    """Where some are in the clear, the others are still a crowd without the victim."""
    chosen = {"threshold_j": 0.02} if "adaptive" in variant else {}
    return settings_of(variant, rounds=2, min_raters=1, **chosen)


def besiege(variant, budget, entropy=os.urandom):
    """Train once under siege; return the siege."""
    ratings = synthetic(8, 15, 70, min_per_user=5, seed=5)
    settings = settings_under_siege(variant)
    sieges = []

    def around(inner):
        sieges.append(Siege(inner, budget, entropy))
        return sieges[0]

    federation = federation_of(ratings, settings, around)
    member = federation.run()
    if not sieges[0].is_over:
        check_undisturbed(federation, member, variant)
    return sieges[0]


def check_undisturbed(federation, member, variant):
    """The party has answered all that it was asked, and the result is that of a quiet run."""
    incidents = federation.server.roster.incidents
    assert not incidents, incidents
    if "dp" not in variant:
        ratings = synthetic(8, 15, 70, min_per_user=5, seed=5)
        quiet = federation_of(ratings, settings_under_siege(variant)).run()
        found, wanted = member.broadcast.item_factors, quiet.broadcast.item_factors
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def main(count, entropy=os.urandom):
    """Besiege every variant in turn until so many messages were thrown."""
    total, budget = 0, 400
    while total < count:
        for variant in VARIANTS:
            siege = besiege(variant, budget // 8 if variant in SLOW else budget, entropy)
            total += siege.n_thrown
            end = "taken elsewhere" if siege.is_over else "undisturbed"
            memory = f"{siege.most_bytes / 1e6:.1f} MB at most"
            sys.stdout.write(f"{total:>9,} thrown; {variant}: {end}, {memory}\n")
            sys.stdout.flush()
            del Siege.old[:-500]


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
