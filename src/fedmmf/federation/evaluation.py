"""Errors on test ratings, summed over sites by secure aggregation: the server sees the sum alone.

One round of `secagg` among the sites that may answer. What each of them checks, and which users its
part covers, is in `federation.site.evaluation`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from fedmmf.aggregation.secure.messages import graph_of
from fedmmf.arrays import Array
from fedmmf.errors import SettingsError, WireError
from fedmmf.federation.charter import MIN_SITES, Charter
from fedmmf.federation.hello import MAX_BYTES, ErrorSums, SentText, shown
from fedmmf.secagg import RING64, RoundServer, Setup
from fedmmf.wire import name_of

AGREE, TRIP = b"\0", b"\1"  # first byte of a question
NO, YES = b"\0", b"\1"  # first byte of an answer
_SESSION_BYTES = 16
_SCALE = 2.0**20  # steps per unit of summed errors: 10^9 ratings have room in 64 bits
_Key = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Site = Annotated[str, Field(max_length=31)]
Ask = Callable[[Mapping[str, bytes]], dict[str, bytes]]
"""Asks sites; returns what came in time."""


class ErrorAgreement(SentText):
    """Server to site: the public terms of a secure sum of errors."""

    most_bytes: ClassVar[int] = 1 << 20

    session: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]  # never used twice
    model: _Key  # name of the model that is evaluated
    party: Annotated[int, Field(ge=0)]  # whom this copy is for: a place in `sites`
    sites: Annotated[tuple[_Site, ...], Field(min_length=MIN_SITES, max_length=10_000)]
    identities: tuple[_Key, ...] = ()  # of the sites, where they sign

    def setup(self, charter: Charter) -> Setup:
        """Work out the round's setup; masks depend on all that was agreed on."""
        told = charter.digest + self.model_copy(update={"party": 0}).encode()
        n, active = len(self.sites), bool(self.identities)
        degree, threshold = graph_of(n, active=active)
        return Setup(
            round_id=bytes.fromhex(self.session),
            parties=tuple(range(n)),
            threshold=threshold,
            length=len(ErrorSums.columns),
            ring=RING64,
            neighbours=None if degree == n - 1 else degree,
            graph_seed=name_of(b"errors graph" + told),
            active=active,
            identities=tuple(map(bytes.fromhex, self.identities)),
            minimum=fewest_sites(charter),
            binding=name_of(b"errors" + told),
        )


def fewest_sites(charter: Charter) -> int:
    """Return the minimum number of sites in a sum of errors."""
    if charter.party == "user":  # the smallest cohort counts users
        return MIN_SITES
    return max(MIN_SITES, charter.training.smallest_cohort)


def as_ring(sums: ErrorSums) -> Array:
    """Encode sums as elements of the ring. (3,) uint64."""
    steps = (sums.n_ratings, round(sums.squared * _SCALE), round(sums.absolute * _SCALE))
    return np.array(steps, RING64.dtype)


def from_ring(total: Array) -> ErrorSums:
    """Read sums; whatever a site that lies has made of them is a number all the same."""
    n, squared, absolute = map(int, total)
    most = ErrorSums.most_ratings
    return ErrorSums(n_ratings=min(n, most), squared=squared / _SCALE, absolute=absolute / _SCALE)


@dataclass(frozen=True)
class SummedErrors:
    """The result of a secure sum of errors.

    Attributes:
        sums: over all sites that are in it.
        sites: who they are.
        declined: why others are not.
    """

    sums: ErrorSums
    sites: tuple[str, ...]
    declined: Mapping[str, str]


class ErrorSession:
    """The server's side of one sum of errors.

    Args:
        charter: of the federation.
        model: name of what is judged.
        identities: public keys of the sites, where they sign.
        ask: how to reach them.
    """

    def __init__(
        self, charter: Charter, model: bytes, identities: Mapping[str, bytes], ask: Ask
    ) -> None:
        self._charter, self._model = charter, model
        self._identities, self.ask = identities, ask
        self.declined: dict[str, str] = {}

    def run(self, sites: Sequence[str]) -> SummedErrors:
        """Sum the errors of those who may answer."""
        agreement, keys = self._agree(sorted(sites))
        server = RoundServer(agreement.setup(self._charter))
        self._receive(server, agreement, keys)
        try:
            total = self._sum(server, agreement)
        except WireError as error:
            why = "; ".join(f"{site}: {reason}" for site, reason in self.declined.items())
            raise SettingsError(
                f"the errors gave no sum, since too few sites stayed ({why or error}). Ask again "
                "when all sites are here"
            ) from None
        summed = tuple(agreement.sites[number] for number in server.survivors)
        return SummedErrors(from_ring(total), summed, self.declined)

    def _sum(self, server: RoundServer, agreement: ErrorAgreement) -> Array:
        """Run every trip of the round; return the sums. (3,)."""
        for _ in range(4 if server.setup.active else 3):
            questions = {agreement.sites[n]: data for n, data in server.next_messages().items()}
            self._receive(server, agreement, self.answers(TRIP, questions))
        return server.result()

    def _agree(self, sites: list[str]) -> tuple[ErrorAgreement, dict[str, bytes]]:
        """Propose a sum, without those who will not, until all agree; return their keys too."""
        while True:
            self._require_enough(sites)
            agreement = self.proposal(sites)
            questions = {
                site: agreement.model_copy(update={"party": number}).encode()
                for number, site in enumerate(sites)
            }
            keys = self.answers(AGREE, questions)
            if keys.keys() == questions.keys():
                return agreement, keys
            sites = sorted(keys)

    def _require_enough(self, sites: Sequence[str]) -> None:
        fewest = fewest_sites(self._charter)
        if len(sites) >= fewest:
            return
        why = "; ".join(f"{site}: {reason}" for site, reason in self.declined.items())
        if not sites:
            raise SettingsError(f"no site has test ratings that it may speak of. {why}")
        raise SettingsError(
            f"errors are summed over at least {fewest} sites, so that nobody sees those of one; "
            f"{len(sites)} can answer now. {why}"
        )

    def proposal(self, sites: Sequence[str]) -> ErrorAgreement:
        """Return the public terms of a sum over these sites."""
        is_signed = self._charter.training.signed
        return ErrorAgreement(
            session=os.urandom(_SESSION_BYTES).hex(),
            model=self._model.hex(),
            party=0,
            sites=tuple(sites),
            identities=tuple(self._identities[site].hex() for site in sites) if is_signed else (),
        )

    def answers(self, kind: bytes, questions: Mapping[str, bytes]) -> dict[str, bytes]:
        """Collect the sites' answers; note a refusal or a missing answer with its reason."""
        replies = self.ask({site: kind + data for site, data in questions.items()})
        for site in questions:
            said = replies.get(site)
            if said is None:
                self.declined[site] = "it is away, or did not answer in time"
            elif said[:1] != YES:
                self.declined[site] = shown(said[1 : 1 + MAX_BYTES])
        return {site: said[1:] for site, said in replies.items() if said[:1] == YES}

    def _receive(
        self, server: RoundServer, agreement: ErrorAgreement, replies: Mapping[str, bytes]
    ) -> None:
        for site, data in replies.items():
            try:
                server.receive(agreement.sites.index(site), data)
            except WireError as error:
                self.declined[site] = shown(str(error))
