"""Another package's members: one of each kind, in one file, found through its entry points.

Two of them have settings, in `shop_settings`.
"""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fedmmf.aggregation.contract import AggregationScheme, bounds_of
from fedmmf.aggregation.party_side import PartySide
from fedmmf.aggregation.rare_items import HidingServer
from fedmmf.aggregation.secure.simulated import groups
from fedmmf.aggregation.simulated import Cost
from fedmmf.aggregation.vector import codec_of
from fedmmf.attacks import Attack
from fedmmf.attacks.view import levels_of
from fedmmf.data.rated_items import RatedItems
from fedmmf.data.registry import DatasetInfo, MadeSet
from fedmmf.data.scales import RatingScale
from fedmmf.data.synthetic import synthetic
from fedmmf.engines.contract import CohortSums
from fedmmf.engines.reference import ReferenceEngine, ReferenceHalves
from fedmmf.errors import WireError
from fedmmf.masks import MaskFamily
from fedmmf.secagg import BelowThresholdError
from fedmmf.solvers.sgd import Sgd, SgdPlan, SgdServer
from fedmmf.wire import Ask, Message, Survey, name_of
from fedmmf.wire.codec import BLOB, NAME_BYTES, fixed
from fedmmf.wire.frames import HEADER_BYTES


# A mask: halfway between the shrunken median and mean of a user's ratings.
def fit_median(x, y, strength, shrinkage):
    middle = (np.median(y) + np.mean(y)) / 2
    return np.full(1, middle * len(y) / (len(y) + strength))


def predict_median(x, theta):
    return np.full(len(x), theta[0])


MEDIAN = MaskFamily(
    "median", "zero-order", fit_median, predict_median, lambda d: 1, 2.0, (1.0, 2.0, 5.0),
    needs_features=False,
)  # fmt: skip


# A solver: sgd whose server remembers the way it came (Polyak 1964).
class HeavyBallServer(SgdServer):
    def __init__(self, plan, context, rank, momentum):
        super().__init__(plan, context, rank)
        self._momentum = np.float32(momentum)
        self._before = self._q.value.copy()

    def advance(self, sums, t):
        before = self._q.value.copy()
        super().advance(sums, t)
        if t > 1:
            self._q.value += self._momentum * (before - self._before)
        self._before = before

    def state(self):
        return {**super().state(), "before": self._before.copy()}

    def restore(self, state):
        super().restore(state)
        self._before = state["before"].copy()


class HeavyBall(Sgd):
    name = "heavy-ball"

    def server(self, settings, update_shape, context):
        plan = SgdPlan.filled_in(settings, context)
        return HeavyBallServer(plan, context, update_shape.rank, settings.momentum)


HEAVY_BALL = HeavyBall()


# An engine: numpy, over two halves of the users.
class HalvesCrowd:
    def __init__(self, given):
        n, lists = given.lists.n_users, given.lists
        self._parts = [slice(0, n // 2), slice(n // 2, n)]
        self._crowds = []
        for part in self._parts:
            indptr = lists.indptr[part.start : part.stop + 1]
            mine = slice(int(indptr[0]), int(indptr[-1]))
            own = RatedItems(indptr - indptr[0], lists.items[mine])
            ordered = mine if given.update_shape.n_levels else slice(0, 0)
            half = replace(
                given,
                lists=own,
                masked_ratings=given.masked_ratings[mine],
                profiles=given.profiles[part],
                lines=given.lines[part],
                levels=given.levels[ordered],
                mask=given.mask[ordered],
                cohorts=tuple(_only(cohort, part) for cohort in given.cohorts),
            )
            self._crowds.append(ReferenceHalves(half))
        self._rank = given.update_shape.rank

    @property
    def user_factors(self):
        parts = [c.user_factors for c in self._crowds if c._halves]
        return np.concatenate(parts) if parts else np.zeros((0, self._rank), np.float32)

    @user_factors.setter
    def user_factors(self, value):
        for crowd, part in zip(self._crowds, self._parts, strict=True):
            crowd.user_factors = value[part]

    def update(self, broadcast, t):
        found = [crowd.update(broadcast, t) for crowd in self._crowds]
        rows = [a + b for a, b in zip(found[0].rows, found[1].rows, strict=True)]
        totals = [a + b for a, b in zip(found[0].totals, found[1].totals, strict=True)]
        return CohortSums(rows, totals, sum(part.n_overflowed for part in found))

    def solve_users(self, broadcast, users):
        for crowd, part in zip(self._crowds, self._parts, strict=True):
            mine = users[(users >= part.start) & (users < part.stop)]
            crowd.solve_users(broadcast, mine - part.start)

    def state(self):
        states = enumerate(crowd.state() for crowd in self._crowds)
        return {f"{n}|{name}": value for n, state in states for name, value in state.items()}

    def restore(self, state):
        for number, crowd in enumerate(self._crowds):
            prefix = f"{number}|"
            own = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            crowd.restore(own)


def _only(cohort, part):
    return cohort if cohort.members is None else replace(cohort, members=cohort.members[part])


class Halves(ReferenceEngine):
    name = "halves"

    def halves(self, given):
        return HalvesCrowd(given)


HALVES = Halves()


# An aggregation scheme: an enclave beside the server opens sealed vectors, and gives out their sum
# alone.
# What too few users rated is in no layout.
@dataclass(frozen=True)
class SealedVector(Message):
    kind: ClassVar[int] = 128
    nonce: Annotated[bytes, fixed(12)]
    box: Annotated[bytes, BLOB]


def _codec(context, sizes, work, n_users):
    bounds = bounds_of(context.catalogue, context.solver, isinstance(work, Survey))
    return codec_of(sizes, bounds, n_users, "2^64")


class EnclaveParty(PartySide):
    answers = (Ask,)
    _secret = b""

    def hold(self, secret):
        self._secret = secret

    def answer(self, message):
        if not self._secret:
            raise WireError("the enclave's key is needed first")
        key, n_users = self._secret[:32], int.from_bytes(self._secret[32:], "little")
        work = self.context.work(message.about)
        codec = _codec(self.context, self.context.sizes(work), work, n_users)
        part = self.context.contribute(work, codec, None, n_parties=1)
        nonce = name_of(message.about + codec.vector(part).tobytes())[:12]
        box = AESGCM(key).encrypt(nonce, codec.vector(part).tobytes(), message.about)
        return SealedVector(nonce, box)


class EnclaveServer(HidingServer):
    def __init__(self, context):
        super().__init__(context)
        self._key = AESGCM.generate_key(256)

    def handout(self):
        return self._key + self.context.n_users.to_bytes(4, "little")

    def sum(self, stage, work):
        frame = work.encode()
        codec = _codec(self.context, self.expected(work), work, self.context.n_users)
        questions = dict.fromkeys(self.context.roster.joined, Ask(name_of(frame)))
        replies = self.context.roster.ask(stage, questions, SealedVector, broadcast=frame)
        total, self.survivors = np.zeros(codec.length, np.int64), []
        for name, reply in replies.items():
            try:
                text = AESGCM(self._key).decrypt(reply.nonce, reply.box, name_of(frame))
                total += np.frombuffer(text, np.int64)
                self.survivors.append(name)
            except (InvalidTag, ValueError):
                self.context.roster.refuse(name, "its box cannot be opened")
        minimum = self.context.settings.enclave_minimum
        if len(self.survivors) < minimum:
            raise BelowThresholdError("enclave", len(self.survivors), minimum)
        counts_raters = isinstance(work, Survey) and not work.with_ratings
        return codec.sums(total, None if counts_raters else self.known_raters())


def enclave_cost(given):
    codec = codec_of(given.sizes, given.solver.bounds(given.span), given.n_users, "2^64")
    up = HEADER_BYTES + 12 + 4 + 8 * codec.length + 16
    return Cost(up, given.round_bytes + HEADER_BYTES + NAME_BYTES, how="by arithmetic")


ENCLAVE = AggregationScheme(
    "enclave", True, EnclaveParty, EnclaveServer, groups, enclave_cost,
    lambda settings: ("An enclave opens every update and gives out the sum.",),
    across_machines=False,
)  # fmt: skip


# An attack: masked ratings, on top of what the public thinks of each item.
PUBLIC_MEANS = Attack(
    name="public means",
    knows="The masked ratings and other people's ratings.",
    outputs="A real number for each rating.",
    measure="Share of a user's ratings that are exact after rounding to the scale's step.",
    guess=lambda view: view.masked + view.prior @ levels_of(view.scale),
)


# A data set: made up, like so much in shops.
INFO = DatasetInfo(
    "shop", "A made-up shop", None, None, 400, 20, 30, RatingScale(1.0, 5.0, 1.0), "CC0",
    synthetic=True,
)  # fmt: skip
SHOP = MadeSet(INFO, lambda name: synthetic(20, 30, 400, seed=1))
