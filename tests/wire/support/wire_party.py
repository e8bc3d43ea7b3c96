"""A party of secure sums, written from spec/ alone: no numpy, no code of the package.

It follows its order and words. It takes `sgd` with the step `sum`, one user, no mask. It leaves
out most of what spec/checks.md tells a party to refuse: it shows that spec/ says enough to take
part, not how to be careful.
"""

import struct
from fractions import Fraction
from hashlib import sha256
from math import ceil, comb

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import load_der_private_key

SERVER = 4294967295
MIN_RATERS = 2  # by the charter of the conversations
PRIME = 2**256 + 297
X25519 = bytes.fromhex("302e020100300506032b656e04220420")
ED25519 = bytes.fromhex("302e020100300506032b657004220420")
(INVITATION, JOINED, WANTED, SURVEY, ROUND, FINISH, FINISHED) = (1, 2, 4, 5, 6, 9, 10)
(LAYOUT, ADOPT, ADOPTED) = (20, 21, 22)
(SECURE_SETUP, SECURE_AGREED, SECURE_TRIP) = (13, 14, 15)


# Frames


def frame(kind, body=b""):
    return b"FMMF" + bytes([4, kind]) + u32(len(body)) + body


def frames(data):
    while data:
        end = 10 + struct.unpack_from("<I", data, 6)[0]
        assert data[:5] == b"FMMF\x04"
        yield data[:end]
        data = data[end:]


class Body:
    """Reads fields one after the other."""

    def __init__(self, data):
        self.data = data

    def take(self, size):
        taken, self.data = self.data[:size], self.data[size:]
        assert len(taken) == size
        return taken

    def numbers(self, code, count):
        update_shape = f"<{count}{code}"
        return struct.unpack(update_shape, self.take(struct.calcsize(update_shape)))

    def one(self, code):
        return self.numbers(code, 1)[0]

    def many(self, code):
        return self.numbers(code, self.one("I"))

    def counted(self, size=1):
        count = self.one("I")
        data = self.take(size * count)
        return data if size == 1 else [data[i : i + size] for i in range(0, len(data), size)]


def u32(number):
    return struct.pack("<I", number)


# Primitives


def digest(*parts):
    return sha256(b"".join(struct.pack("<Q", len(part)) + part for part in parts)).digest()


def derive(secret, context, purpose, parts):
    info = b"fedmmf secagg 1\0" + purpose + b"\0" + parts
    return HKDF(SHA256(), 32, salt=context, info=info).derive(secret)


class Pair:
    """An X25519 key pair."""

    def __init__(self, secret):
        self.secret = secret
        self.private = load_der_private_key(X25519 + secret, None)
        self.public = self.private.public_key().public_bytes_raw()

    def agree(self, public):
        return self.private.exchange(X25519PublicKey.from_public_bytes(public))


def sign(identity, purpose, context, text):
    key = load_der_private_key(ED25519 + identity, None)
    return key.sign(b"fedmmf secagg 1 signature" + digest(purpose, context, text))


def mask(seed, length, width):
    cipher = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    stream = cipher.update(bytes(length * width))
    return [int.from_bytes(stream[i : i + width], "little") for i in range(0, len(stream), width)]


def shares(secret, threshold, points, draw):
    noise = draw(48 * (threshold - 1))
    coefficients = [int.from_bytes(secret, "big")]
    coefficients += [int.from_bytes(noise[i : i + 48], "big") for i in range(0, len(noise), 48)]
    return {
        point: (sum(c * point**i for i, c in enumerate(coefficients)) % PRIME).to_bytes(33, "big")
        for point in points
    }


def neighbours(n, degree, seed, party):
    """Who masks with a party."""
    if degree == n - 1:
        return [other for other in range(n) if other != party]
    order = sorted(range(n), key=lambda i: digest(b"fedmmf secagg 1 graph", seed, str(i).encode()))
    place, side = order.index(party), degree // 2
    steps = [*range(-side, 0), *range(1, side + 1), *([n // 2] if degree % 2 else [])]
    return sorted(order[(place + step) % n] for step in steps)


def graph_of(n, batch, signs):
    """Degree and threshold."""
    share = round(1 - 0.95**batch, 9)
    c, d, bits = ceil(n / 20), ceil(n * share), 80 if signs else 40
    k = 2
    while k < n - 1:
        wanted = Fraction(1, 2 ** (bits + 1))
        most = next(m for m in range(k + 1) if n * tail(n - 1, c, k, m + 1) <= wanted)
        if signs:
            t = max(2 * (k + 1) // 3 + 1, k // 2 + most + 2)
        else:
            t = max((k + 1) // 2 + 1, most + 1)
            row, lost = k // 2, c + d
            ways = comb(n - row, lost - row) if lost >= row else 0
            t = t if Fraction(n * ways, comb(n, lost)) <= wanted else k + 1
        if t <= k and n * tail(n - 1, d, k, k - t + 1) <= Fraction(1, 2**10):
            return k, t
        k += 2 * max(1, k // 64)
    return n - 1, (2 * n // 3 if signs else n // 2) + 1


def tail(population, marked, drawn, least):
    """P[H(population, marked, drawn) >= least], exactly; 1 where it begins at or below the mode."""
    marked = min(marked, population)
    if least > min(marked, drawn):
        return 0
    if least <= (drawn + 1) * (marked + 1) // (population + 2):
        return 1
    ways = sum(
        comb(marked, i) * comb(population - marked, drawn - i)
        for i in range(least, min(marked, drawn) + 1)
    )
    return Fraction(ways, comb(population, drawn))


# The catalogue, and the keeper's channel


def catalogue_digest(items, scale, features):
    state = b"fedmmf catalogue 1" + struct.pack("<3d", *scale)
    state += u32(len(items)) + u32(len(features[0]))
    for item in items:
        state += u32(len(item.encode())) + item.encode()
    numbers = [x for row in features for x in row]
    return sha256(state + struct.pack(f"<{len(numbers)}f", *numbers)).digest()


def open_sealed(key, sealed):
    """The frame in a `Sealed`, with a `HomomorphicKey`."""
    body = Body(key[10:])
    body.counted()
    body.one("I")
    channel, public = body.take(32), body.counted()
    box = Body(sealed[10:])
    round_, nonce, text = box.one("I"), box.take(12), box.counted()
    opening = AESGCM(derive(channel, digest(public), b"homomorphic rounds", b""))
    return opening.decrypt(nonce, text, b"fedmmf homomorphic round" + u32(round_))


# Fixed point


class Fixed:
    """Real numbers to integers."""

    def __init__(self, bound, n_users, largest=2**31 - 1):
        self.bound, budget, self.scale = Fraction(bound), largest // n_users, Fraction(1)
        while self.bound * self.scale * 2 <= budget:
            self.scale *= 2
        while self.bound * self.scale > budget:
            self.scale /= 2

    def steps(self, x):
        return round(max(-self.bound, min(self.bound, Fraction(x))) * self.scale)


class Digits:
    """Totals to limbs."""

    def __init__(self, n_users):
        self.bits = ((2**31 - 1) // n_users).bit_length() - 1
        self.count = ceil(((2**53 // n_users).bit_length() + 1) / self.bits)

    def split(self, x):
        low = [x >> self.bits * place & 2**self.bits - 1 for place in range(self.count - 1)]
        return [*low, x >> self.bits * (self.count - 1)]


def single(x):
    """The nearest float32."""
    return struct.unpack("<f", struct.pack("<f", x))[0]


# Totals of newcomers


def newcomer_totals(seen, mean, covariance):
    """Of one user: rows E[q] of the rated items, p and C. Plain lists and numbers."""
    n, own = len(seen), range(len(mean))
    columns = range(len(seen[0]))
    t = [sum(row[f] for row in seen) / n for f in columns]
    grid = (1, 2, 3, 5, 8, 13, 20, 30)

    def packed(entry, size):
        return [entry(row, column) for row in size for column in range(row + 1)]

    def within(f, g):
        return sum((row[f] - t[f]) * (row[g] - t[g]) for row in seen) / max(n - 1, 1)

    totals = [1.0, *(max(1 - m / n, 0.0) for m in grid), *t, *mean]
    totals += packed(lambda f, g: t[f] * t[g], columns) + packed(within, columns)
    totals += [t[f] * mean[g] for f in columns for g in own]
    totals += packed(lambda f, g: covariance[f][g] + mean[f] * mean[g], own)
    return [float(total) if n > 1 else 0.0 for total in totals]


# The secure session


class Setup:
    """What a session is agreed on; `SecureSetup` with what follows from it."""

    def __init__(self, data, sizes, rank, invitation):
        told = invitation + frame(SECURE_SETUP, data[:49] + u32(0) + data[53:])
        self.binding, self.seed = sha256(told).digest(), sha256(b"graph" + told).digest()
        body = Body(data)
        self.session, self.for_survey, self.layout = body.take(16), body.one("B"), body.take(32)
        names = ("party", "n", "n_users", "minimum", "batch")
        vars(self).update(zip(names, body.numbers("I", 5), strict=True))
        self.left_out, self.identities = body.many("i"), body.counted(32)
        self.degree, self.threshold = graph_of(self.n, self.batch, bool(self.identities))
        self.digits, self.is_of_moments = Digits(self.n_users), self.layout not in sizes
        assert self.for_survey or not self.is_of_moments
        self.n_items = 0 if self.is_of_moments else sizes[self.layout]
        width, n_totals = (1, 7 * self.is_of_moments) if self.for_survey else (rank, 3 + 2 * rank)
        self.length = self.n_items * width + n_totals * self.digits.count
        self.peers = neighbours(self.n, self.degree, self.seed, self.party)

    def context(self, id_):
        sizes = (self.n, self.degree, self.threshold, self.length, self.minimum, self.batch)
        numbers = struct.pack("<QQQQQQB", *sizes, bool(self.identities))
        names = b"".join(map(u32, range(self.n))) + b"".join(self.identities)
        return digest(b"fedmmf secagg 3", numbers, id_, self.seed, b"2^32", names, self.binding)


class SecureRound:
    """One round: its own keys, its own secrets."""

    def __init__(self, setup, number, draw, identity):
        self.setup, self.draw, self.identity = setup, draw, identity
        self.context = setup.context(setup.session + u32(number))
        self.channel, self.mask, self.secret = Pair(draw(32)), Pair(draw(32)), draw(32)

    def message(self, kind, body):
        return self.headed(kind, self.setup.party, body) + body

    def read(self, kind, data):
        assert data[:42] == self.headed(kind, SERVER, data[42:])
        return data[42:]

    def headed(self, kind, sender, body):
        head = b"FMSA" + bytes([2, kind]) + self.context[:16] + u32(sender)
        return head + AESGCM(self.context).encrypt(bytes(12), b"", head + body)

    def table(self, body, size):
        step = 4 + size
        records = [body[i : i + step] for i in range(0, len(body), step)]
        return {struct.unpack("<I", record[:4])[0]: record[4:] for record in records}

    def advertise(self):
        keys = self.channel.public + self.mask.public
        if self.setup.identities:
            keys += sign(self.identity, b"keys", self.context, keys)
        return self.message(1, keys)

    def share(self, data):
        body, size = self.read(2, data), 128 if self.setup.identities else 64
        self.keys = {peer: (k[:32], k[32:64]) for peer, k in self.table(body, size).items()}
        assert set(self.keys) <= set(self.setup.peers)
        points = [holder + 1 for holder in (*self.keys, self.setup.party)]
        both = [
            shares(secret, self.setup.threshold, points, self.draw)
            for secret in (self.secret, self.mask.secret)
        ]
        self.held = {self.setup.party: b"".join(part[self.setup.party + 1] for part in both)}
        me, boxes = u32(self.setup.party), b""
        for peer in sorted(self.keys):
            text = b"".join(part[peer + 1] for part in both)
            key = self.channel_key(peer, me + self.channel.public, u32(peer) + self.keys[peer][0])
            boxes += u32(peer) + AESGCM(key).encrypt(bytes(12), text, self.context + me + u32(peer))
            boxes += self.prints(me + u32(peer), text)
        commitment = digest(b"fedmmf secagg 1 commitment", self.context, me, self.secret)
        return self.message(3, commitment + boxes)

    def prints(self, place, text):
        return b"".join(
            digest(b"fedmmf secagg 2 share", self.context, place + bytes([kind]), share)[:16]
            for kind, share in enumerate((text[:33], text[33:]))
        )

    def channel_key(self, peer, sender, receiver):
        agreed = self.channel.agree(self.keys[peer][0])
        return derive(agreed, self.context, b"channel", sender + receiver)

    def masked(self, data, vector, about):
        self.about = about
        me = self.setup.party
        total = [x + y for x, y in zip(vector, self.words(self.self_seed()), strict=True)]
        for peer, box in self.table(self.read(4, data), 114).items():
            self.held[peer] = self.opened(peer, box)
            sign_ = 1 if peer < me else -1
            words = self.words(self.pair_seed(peer, about))
            total = [x + sign_ * y for x, y in zip(total, words, strict=True)]
        words = b"".join(u32(x % 2**32) for x in total)
        if self.setup.identities:
            text = digest(words, about)
            return self.message(5, sign(self.identity, b"vector", self.context, text) + words)
        return self.message(5, words)

    def words(self, seed):
        return mask(seed, self.setup.length, 4)

    def self_seed(self):
        return derive(self.secret, self.context, b"self mask", u32(self.setup.party))

    def pair_seed(self, peer, about):
        ends = {self.setup.party: self.mask.public, peer: self.keys[peer][1]}
        parts = b"".join(u32(party) + ends[party] for party in sorted(ends))
        secret = self.mask.agree(self.keys[peer][1])
        return derive(secret, self.context, b"pair mask", parts + about)

    def opened(self, peer, box):
        me = u32(self.setup.party)
        key = self.channel_key(peer, u32(peer) + self.keys[peer][0], me + self.channel.public)
        text = AESGCM(key).decrypt(bytes(12), box[:82], self.context + u32(peer) + me)
        assert self.prints(u32(peer) + me, text) == box[82:]
        return text

    def confirm(self, data):
        text = self.read(6, data) + self.about
        return self.message(7, sign(self.identity, b"survivors", self.context, text))

    def reveal(self, data):
        body, size = self.read(8, data), ceil(self.setup.n / 8)
        survivors = body[:size]
        revealed = b""
        for owner in sorted(self.held):
            survives = survivors[owner // 8] >> owner % 8 & 1
            revealed += u32(owner) + (self.held[owner][:33] if survives else self.held[owner][33:])
        return self.message(9, revealed)


# The party


class PageParty:
    """Answers parcels.

    Args:
        digest_: of its catalogue.
        n_items: of its catalogue.
        ratings: by item; one in a list is held out.
        draw: where secrets come from.
        identity: what it signs with; empty: nothing.
    """

    def __init__(self, digest_, n_items, ratings, draw, identity=b""):
        self.digest, self.n_items, self.draw, self.identity = digest_, n_items, draw, identity
        self.ratings = {i: r for i, r in ratings.items() if not isinstance(r, list)}
        self.held_out = {i: r[0] for i, r in ratings.items() if isinstance(r, list)}
        self.published, self.answers = {}, {}
        self.sizes = {bytes(32): n_items}  # items of what was adopted, by name; of all before that

    def answer(self, data):
        name = sha256(data).digest()
        if name not in self.answers:
            *broadcasts, message = frames(data)
            for broadcast in broadcasts:
                self.published[sha256(broadcast).digest()] = broadcast
            self.answers[name] = self.reply(message[5], message[10:])
        return self.answers[name]

    def reply(self, kind, body):
        if kind == INVITATION:
            self.invitation = frame(INVITATION, body)
            return self.join(Body(body))
        if kind == SECURE_SETUP:
            self.setup = Setup(body, self.sizes, self.rank, self.invitation)
            self.rounds = {}
            return frame(SECURE_AGREED)
        if kind == ADOPT:
            return self.adopt(body)
        if kind == SECURE_TRIP:
            return self.trip(Body(body))
        assert (kind, self.published[body][5]) == (FINISH, ROUND)
        return frame(FINISHED)

    def join(self, body):
        body.take(16)
        assert body.take(32) == self.digest
        low, high, _ = body.numbers("d", 3)
        assert body.counted() == b"sgd"
        self.rank = body.one("I")
        assert body.counted() == b""  # `sgd` has one variant
        body.one("I")
        assert body.counted() == b"secure"
        span = high - low
        self.scale, self.bounds = (low, high), (4 * span, 1024 * max(span, 1) ** 2)
        assert body.numbers("d", 2) == self.bounds
        assert body.one("I") == 1
        self.p = [1.0] + [0.0] * (self.rank - 1)
        public = b""
        if self.identity:
            key = load_der_private_key(ED25519 + self.identity, None)
            public = key.public_key().public_bytes_raw()
        return frame(JOINED, u32(1) + u32(len(public)) + public)

    def adopt(self, about):
        if about not in self.published:
            return frame(WANTED, about)
        body = Body(self.published[about][10:])
        self.layout, line, shrinkage = body.many("i"), body.many("d"), body.one("d")
        assert self.published[about][5] == LAYOUT
        assert max(self.layout) < self.n_items
        assert len(line) == 1
        assert 0.5 <= shrinkage <= 50
        self.sizes[about] = len(self.layout)
        return frame(ADOPTED, b"\0")

    def trip(self, body):
        trip, about, data = body.one("B"), body.take(32), Body(body.counted())
        head = b"FMSS" + self.setup.context(self.setup.session)[:16] + bytes([trip])
        assert data.take(21) == head
        number, *sizes = data.numbers("I", 3)
        current, following = (data.take(size) for size in sizes)
        if trip == 1 and current and about not in self.published:
            return frame(WANTED, about)
        parts = self.parts(trip, number, about, current, following)
        inner = head + struct.pack("<III", number, *map(len, parts)) + b"".join(parts)
        return frame(SECURE_TRIP, bytes([trip]) + about + u32(len(inner)) + inner)

    def parts(self, trip, number, about, current, following):
        if trip == 1:
            following_round = SecureRound(self.setup, number + 1, self.draw, self.identity)
            self.rounds[number + 1] = following_round
            said = following_round.advertise()
            if not current:
                return b"", said
            vector = self.vector(self.published[about])
            return self.rounds[number].masked(current, vector, about), said
        if trip == 2:
            return self.rounds[number].confirm(current), b""
        said = self.rounds[number + 1].share(following) if following else b""
        return self.rounds[number].reveal(current) if current else b"", said

    def vector(self, broadcast):
        n_users, given, is_survey = self.setup.n_users, Body(broadcast[10:]), False
        items = self.layout if self.setup.layout in self.sizes and any(self.setup.layout) else None
        items, bounds = range(self.n_items) if items is None else items, self.bounds
        if broadcast[5] == SURVEY:
            is_survey, bounds = True, (1.0, 65536.0)
            found, totals = self.describe(given.one("B"), given.many("i"))
            items = () if self.setup.is_of_moments else items
        else:
            found, totals = self.update(given)
        rows, of_totals = Fixed(bounds[0], n_users), Fixed(bounds[1], n_users, 2**53)
        nothing, vector = [0.0] * (1 if is_survey else self.rank), []
        for place, item in enumerate(items):
            is_in = item in found and place not in self.setup.left_out
            vector += map(rows.steps, found[item] if is_in else nothing)
        for total in totals:
            vector += self.setup.digits.split(of_totals.steps(total))
        return vector

    def describe(self, with_ratings, asked):
        low, high = self.scale
        unit = {item: (rating - low) / (high - low) - 0.5 for item, rating in self.ratings.items()}
        if with_ratings:
            return {item: [single(x)] for item, x in unit.items()}, []
        if not asked:
            return {item: [1.0] for item in self.ratings}, []
        return {}, self.moments([unit[item] for item in asked if item in unit], len(asked))

    def moments(self, unit, n_asked):
        """Of one column: items are common unless there are too few of them."""
        largest_group = max(MIN_RATERS - 1, 1)
        if not unit or largest_group > 0.9 * n_asked:
            return [0.0] * 7
        n, a = len(unit), sum(unit) / len(unit)
        v = max(sum(x * x for x in unit) / n - a * a, 0.0) * n / (n - 1) if n > 1 else 0.0
        return [1.0, a, a * a, *([1.0, v, v / n] if n > 1 else [0.0] * 3), n * a]

    def update(self, round_):
        round_.take(4 + 4 + 1 + 4)
        step, rate, weight, prior, biases, per_user, *users = round_.many("d")
        n_items, width = round_.numbers("I", 2)
        q = {item: round_.numbers("f", width) for item in self.layout}
        assert (step, prior, biases, n_items, width) == (0, 0, 0, len(self.layout), self.rank)
        assert 0 <= per_user < 1e9
        assert len(users) == 2 * self.rank
        mine = {item: rating for item, rating in self.ratings.items() if item in q}
        ks, n = range(width), len(mine)
        if not mine:
            rate = 0.0  # who has rated nothing stays
        e = self.errors(q, mine)
        gradient = [n * weight * self.p[k] - sum(e[i] * q[i][k] for i in e) for k in ks]
        self.p = [single(self.p[k] - single(rate * gradient[k])) for k in ks]
        e = self.errors(q, mine)
        rows = {
            i: [single(single(weight * q[i][k]) - single(e[i] * self.p[k])) for k in ks] for i in e
        }
        low, high = self.scale
        held_out = [(i, r) for i, r in self.held_out.items() if i in q]
        squares = [(r - max(low, min(high, self.score(q[i])))) ** 2 for i, r in held_out]
        counted = [1.0, *self.p, *(x * x for x in self.p)] if mine else [0.0] * (1 + 2 * width)
        return rows, [float(len(squares)), sum(squares), *counted]

    def errors(self, q, ratings):
        return {i: single(r - self.score(q[i])) for i, r in ratings.items()}

    def score(self, q):
        return single(sum(x * y for x, y in zip(q, self.p, strict=True)))
