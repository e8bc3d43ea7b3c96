"""A site's answers about its test errors: once for each model, and never about one person.

Errors leave in a secure sum over sites alone (`federation.evaluation`). Somebody who could ask
again after one user has come or gone would learn that user's errors from the difference. So a site
remembers which ratings its answers covered. Later answers are about the same ones until at least
the smallest cohort of users have more of them, or fewer. Under differential privacy nothing
is said: errors without noise are outside the budget.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

import numpy as np

from fedmmf.arrays import Array
from fedmmf.errors import CheckpointError, FedMMFError, WireError
from fedmmf.federation.charter import Charter
from fedmmf.federation.evaluation import AGREE, NO, TRIP, YES, ErrorAgreement, as_ring
from fedmmf.federation.hello import ErrorSums, shown
from fedmmf.federation.site.guards import GuardStore
from fedmmf.federation.site.ratings import UserRatings
from fedmmf.party import Policy
from fedmmf.secagg import RoundClient
from fedmmf.secagg.messages import Request
from fedmmf.secagg.setup import SERVER
from fedmmf.storage import checkpoints

_KIND = "evaluated"
_MIN_TESTED = 3  # users whose errors may leave as a sum, whatever the charter says
_HASH_BYTES = 8
_GONE = -1  # the group of ratings that no answer is about any more


class DeclinedError(FedMMFError):
    """This site declines to report its errors; the text says why."""


@dataclass(frozen=True, eq=False)
class Covered:
    """The test ratings that answers have covered so far, as keyed hashes.

    Attributes:
        users: whose they are. (n,) uint64
        ratings: user, item and value of each. (n,) uint64
        groups: which of them came together, from 0 on; -1: it went. (n,) int64
    """

    users: Array
    ratings: Array
    groups: Array

    @classmethod
    def nothing(cls) -> "Covered":
        """Return the empty set, as before the first answer."""
        return cls(np.zeros(0, np.uint64), np.zeros(0, np.uint64), np.zeros(0, np.int64))

    @classmethod
    def of(cls, test: UserRatings, item_ids: Array, guards: GuardStore) -> "Covered":
        """Hash all test ratings of a site."""
        names = [str(item) for item in item_ids]
        users, ratings = [], []
        for user, (start, end) in zip(test.user_ids, pairwise(test.lists.indptr), strict=True):
            if end == start:
                continue
            key = bytes.fromhex(guards.name_of(str(user)))  # keyed, so the rest need not be
            users.append(np.full(end - start, int.from_bytes(key[:_HASH_BYTES], "little"), "<u8"))
            ratings += [
                hashlib.blake2b(
                    f"{value!r}/{names[item]}".encode(), key=key, digest_size=_HASH_BYTES
                ).digest()
                for item, value in zip(
                    test.lists.items[start:end].tolist(),
                    test.values[start:end].tolist(),
                    strict=True,
                )
            ]
        hashes = np.frombuffer(b"".join(ratings), "<u8")
        none = np.zeros(len(hashes), np.int64)
        return cls(np.concatenate([*users, np.zeros(0, "<u8")]), hashes, none)

    def next_after(self, last: "Covered", smallest: int) -> "tuple[Array, Covered]":
        """Choose which of these ratings the next answer is about. (n,) bool, and what to remember.

        Users come in groups and go in groups, each of at least the smallest size, and a rating that
        went does not come back. So of any two answers, not only of one and the next, the difference
        within a group is nothing, or that of so many users.

        Args:
            last: what the last answer was about, and what it knew of those before.
            smallest: the fewest users whose errors two answers may differ by.

        Raises:
            DeclinedError: any answer would differ from an earlier one by fewer users.
        """
        groups = last._groups_within(self, smallest)  # (n_last,)
        is_old = np.isin(self.ratings, last.ratings[groups != _GONE])  # (n,)
        is_new = ~np.isin(self.ratings, last.ratings)
        if len(np.unique(self.users[is_new])) < smallest:
            is_new[:] = False
        chosen = is_old | is_new
        if len(np.unique(self.users[chosen])) < smallest:
            raise DeclinedError(f"fewer than {smallest} users have test ratings that may count")
        come = np.full(np.count_nonzero(is_new), last.groups.max(initial=_GONE) + 1)
        return chosen, Covered(
            np.concatenate((last.users, self.users[is_new])),
            np.concatenate((last.ratings, self.ratings[is_new])),
            np.concatenate((groups, come)),
        )

    def _groups_within(self, now: "Covered", smallest: int) -> Array:
        """Groups, without ratings that went, and without groups that became too small. (n,)."""
        was_in, is_here = self.groups != _GONE, np.isin(self.ratings, now.ratings)
        n_lost = self._users_by_group(was_in & ~is_here)
        n_left = self._users_by_group(was_in & is_here)
        if ((n_lost > 0) & (n_lost < smallest)).any():
            raise DeclinedError(
                f"test ratings of fewer than {smallest} users who came together have gone since: "
                "the difference to an earlier answer would be about these few. It answers again "
                f"once that is so for {smallest}"
            )
        goes = was_in & (~is_here | (n_left < smallest)[self.groups])
        return np.where(goes, _GONE, self.groups)

    def _users_by_group(self, where: Array) -> Array:
        """Count the users of some ratings, group by group. (n_groups,)."""
        found = np.column_stack((self.groups[where].astype(np.uint64), self.users[where]))
        pairs = np.unique(found, axis=0)  # (n, 2)
        n_groups = int(self.groups.max(initial=_GONE)) + 1
        return np.bincount(pairs[:, 0].astype(np.int64), minlength=n_groups)


@dataclass(frozen=True, eq=False)
class Given:
    """An answer that was given, or is about to be."""

    model: str
    sites: tuple[str, ...]  # that are in the sum; none: this site has helped to show none yet
    sums: ErrorSums
    covered: Covered


@dataclass(frozen=True, eq=False)
class JudgedOn:
    """The test ratings of a site, and its predictions of them.

    Attributes:
        test: ratings that nobody trained on.
        item_ids: of the catalogue.
        predicted: works out what the model says of each. (n,)
    """

    test: UserRatings
    item_ids: Array
    predicted: Callable[[], Array]


class ErrorAnswers:
    """A site's side of secure sums of errors.

    Args:
        name: of the site.
        charter: of the federation.
        policy: of the site's owner.
        guards: where it is kept what was said.
    """

    def __init__(self, name: str, charter: Charter, policy: Policy, guards: GuardStore) -> None:
        self._name, self._charter, self._policy, self._guards = name, charter, policy, guards
        self._file = guards.folder / "evaluated.npz"
        self._smallest = max(_MIN_TESTED, policy.smallest_cohort)
        self._client: RoundClient | None = None
        self._agreement: ErrorAgreement | None = None
        self._giving: Given | None = None
        self._step = 0

    def answer(self, data: bytes, model: bytes, tested: JudgedOn) -> bytes:
        """Answer a question of the server; what will not be done is said with its reason."""
        try:
            if data[:1] == AGREE:
                return YES + self._agree(ErrorAgreement.decode(data[1:]), model, tested)
            if data[:1] == TRIP:
                return YES + self._take_trip(data[1:])
            raise WireError("a question about errors is an agreement or a trip")
        except FedMMFError as error:
            return NO + shown(str(error)).encode()

    def _agree(self, agreement: ErrorAgreement, model: bytes, tested: JudgedOn) -> bytes:
        """Check the terms, compute this site's sums, and return keys."""
        self._client = self._giving = None
        self._require_sayable()
        if not model or agreement.model != model.hex():
            raise DeclinedError("it has no model yet, or another one")
        self._check_company(agreement)
        setup = agreement.setup(self._charter)
        client = RoundClient(setup, agreement.party, identity=self._policy.identity)
        self._giving = self.part(agreement.model, tested)
        self._client, self._agreement, self._step = client, agreement, 0
        return client.advertise()

    def _require_sayable(self) -> None:
        if self._policy.noise is not None:
            raise DeclinedError("errors would leave without noise, outside the privacy budget")
        if self._charter.training.objective == "ranking":
            raise DeclinedError("its model ranks: scores are no ratings, and have no error")

    def _check_company(self, agreement: ErrorAgreement) -> None:
        """Refuse a sum among others than the sites of this federation, each once."""
        sites, keys, policy = agreement.sites, agreement.identities, self._policy
        n, known = len(sites), set(self._charter.sites)
        if len(set(sites)) != n or not known.issuperset(sites):
            raise WireError("errors are summed over sites of this federation, each once")
        if agreement.party >= n or sites[agreement.party] != self._name:
            raise WireError("the server gives this site another's number")
        if policy.identity is None:
            return
        needed = ceil(policy.share_of_trusted * len(policy.trusted))
        is_signed = len(keys) == n == len(set(keys)) and n >= needed
        if not is_signed or not policy.trusted.issuperset(map(bytes.fromhex, keys)):
            raise WireError(
                f"this site adds its errors to sums of at least {needed} sites that sign with "
                "identities that it trusts"
            )

    def part(self, model: str, tested: JudgedOn) -> Given:
        """This site's part of the sum; what was said of a model before is said again."""
        last = self.last()
        if last is not None and last.model == model:
            return last
        now = Covered.of(tested.test, tested.item_ids, self._guards)
        before = Covered.nothing() if last is None else last.covered
        chosen, covered = now.next_after(before, self._smallest)
        predicted, middle = tested.predicted(), self._charter.rating_scale.midpoint
        # A site that declined for one user's overflow would tell who has rated an item.
        predicted = np.where(np.isfinite(predicted), predicted, middle)
        errors = (tested.test.values - predicted)[chosen].astype(np.float64)
        sums = ErrorSums(
            n_ratings=len(errors),
            squared=float(np.square(errors).sum()),
            absolute=float(np.abs(errors).sum()),
        )
        return Given(model, (), sums, covered)

    def _take_trip(self, data: bytes) -> bytes:
        """Go through the round: share keys, masked input, signature where sites sign, unmasking."""
        client, giving = self._client, self._giving
        if client is None or giving is None:
            raise WireError("a trip needs an agreement first")
        steps: list[Callable[[bytes], bytes]] = [
            client.share_keys,
            lambda boxes: self._add(client, giving, boxes),
            *([client.confirm] if client.setup.active else []),
            lambda request: self._unmask(client, giving, request),
        ]
        if self._step >= len(steps):
            raise WireError("this sum of errors is over")
        reply = steps[self._step](data)
        self._step += 1
        return reply

    def _add(self, client: RoundClient, giving: Given, boxes: bytes) -> bytes:
        """Add this site's part under its masks, once it is written down whom it is about.

        Others can unmask the sum without this site, so that it may never hear of the end. It says
        the same of this model all the same, whoever has come or gone when it is asked again.
        """
        masked = client.masked_input(boxes, as_ring(giving.sums))
        last = self.last()
        if last is None or last.model != giving.model:
            self._keep(giving)
        return masked

    def _unmask(self, client: RoundClient, giving: Given, data: bytes) -> bytes:
        """Let the sum be seen, once it is written down among whom and about whom."""
        if self._agreement is None:
            raise WireError("a trip needs an agreement first")
        survivors = Request.decode(client.setup, SERVER, data).survivors
        sites = tuple(self._agreement.sites[number] for number in sorted(survivors))
        if giving.sites and giving.sites != sites:
            raise DeclinedError(
                f"it has answered about this model in a sum of {', '.join(giving.sites)}: one of "
                "others would show the difference. The server keeps the first answer"
            )
        reply = client.unmask(data)
        if not giving.sites:
            self._keep(Given(giving.model, sites, giving.sums, giving.covered))
        return reply

    # On disk

    def _keep(self, given: Given) -> None:
        """Save an answer before it leaves; the counter goes up once the file exists."""
        number = self._guards.n_evaluations + 1
        meta = {
            "kind": _KIND,
            "number": number,
            "model": given.model,
            "sites": list(given.sites),
            "sums": given.sums.model_dump(),
        }
        checkpoints.save(self._file, vars(given.covered), meta)
        self._guards.count_evaluation()

    def last(self) -> Given | None:
        """Return the last answer; None: there was none."""
        if not self._file.exists() and self._guards.n_evaluations == 0:
            return None
        try:
            arrays, meta = checkpoints.load(self._file, _KIND)
            if meta["number"] < self._guards.n_evaluations:
                raise CheckpointError("it is older than the last answer")
            sums, covered = ErrorSums(**meta["sums"]), Covered(**arrays)
            return Given(meta["model"], tuple(meta["sites"]), sums, covered)
        except (FedMMFError, KeyError, TypeError, ValueError) as error:
            raise DeclinedError(
                f"what its last answer covered is lost ({error}), so that another might show the "
                "errors of a single user"
            ) from None
