"""What a party expects of a run, computed from its own charter; the server cannot change it.

The charter is the settings that everybody agreed on before any message, and the catalogue. Whatever
an invitation says follows from them, so a party that works it out for itself needs to believe
nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fedmmf.aggregation import AGGREGATIONS
from fedmmf.aggregation.contract import columns_of, last_number
from fedmmf.errors import WireError
from fedmmf.party.user_group import PartyData
from fedmmf.solvers import SOLVERS
from fedmmf.wire import Catalogue, Invitation

# Fields of an invitation, and what people call them.
_NAMES = {
    "solver": "solver",
    "sums": "aggregation scheme",
    "rank": "rank",
    "rounds": "highest round number",
    "columns": "columns of what users have in common",
    "minimum": "smallest cohort",
}
# Words of a solver's variant, likewise.
_WORDS = {
    "implicit": "implicit prior",
    "profile": "columns of profiles",
    "design": "columns of features that rank unrated items",
    "levels": "levels of the ordinal likelihood",
    "joint": "columns of features in a joint mask",
}


@dataclass(frozen=True)
class Expectation:
    """The values that an invitation and the later broadcasts must have.

    Attributes:
        solver: its name.
        variant: of the solver: implicit prior, columns of profiles and features, levels.
        rank: length k of a vector of factors.
        rounds: the highest number that a round may have.
        sums: name of the aggregation scheme.
        columns: of what users have in common.
        minimum: the fewest parties in a sum.
        min_raters: the fewest raters of an item that is summed.
        users_per_party: where every party has as many; None: each says how many it has.
    """

    solver: str
    variant: str
    rank: int
    rounds: int
    sums: str
    columns: int
    minimum: int
    min_raters: int
    users_per_party: int | None = None

    @classmethod
    def of(
        cls, settings: Any, data: PartyData, users_per_party: int | None = None
    ) -> "Expectation":
        """Compute the expectation from a charter and a catalogue.

        Args:
            settings: of the run, by the charter; with the name of a mask.
            data: of the party: its scale, and how many columns it has of features and profiles.
            users_per_party: where the charter says so.
        """
        solver, n_levels = SOLVERS[settings.solver], data.catalogue.scale.n_levels
        n_profile, features = data.profiles.shape[1], data.features
        n_common = features.content.shape[1] * features.sees_features
        return cls(
            solver=settings.solver,
            variant=solver.variant(settings, n_profile, features.n_columns, n_levels),
            rank=solver.rank(settings),
            rounds=last_number(settings),
            sums=settings.scheme_name,
            columns=columns_of(settings, n_common),
            minimum=settings.smallest_cohort,
            min_raters=settings.min_raters,
            users_per_party=users_per_party,
        )

    def check(self, invitation: Invitation) -> None:
        """Refuse a run that differs from the charter, and name what differs.

        Raises:
            WireError: with what this party expects, and what the invitation says.
        """
        misfit = next(self._misfits(invitation), None)
        if misfit is not None:
            name, expected, said = misfit
            raise WireError(
                f"this party expects {name} {expected} by its charter; the server's invitation "
                f"says {said}. Give server and party the same charter"
            )

    def _misfits(self, invitation: Invitation) -> Iterator[tuple[str, Any, Any]]:
        for field, name in _NAMES.items():
            expected, said = getattr(self, field), getattr(invitation, field)
            if said != expected:
                yield name, _shown(expected), _shown(said)
        if invitation.variant == self.variant:
            return
        ours, theirs = _words(self.variant), _words(invitation.variant)
        for word, name in _WORDS.items():
            if word in ours and ours[word] != theirs.get(word):
                yield name, ours[word], _shown(theirs.get(word, "nothing"))
        yield "variant", repr(self.variant), repr(invitation.variant[:80])

    def check_users(self, n_parties: int, n_users: int) -> None:
        """Refuse another number of users than the charter's parties have together."""
        each = self.users_per_party
        if each is not None and n_users != n_parties * each:
            raise WireError(
                f"this party expects {each} users per party by its charter, {n_parties * each} in "
                f"all; the server's set-up says {n_users} users of {n_parties} parties. Give "
                "server and party the same charter"
            )


def _words(variant: str) -> dict[str, str]:
    """Split a solver's variant, words `name=value`, into a dictionary."""
    return dict(word.partition("=")[::2] for word in variant.split(" "))


def _shown(value: Any) -> Any:
    """Shorten a value for a message, since the server may have written anything."""
    return value[:40] if isinstance(value, str) else value


def check_agreement(invitation: Invitation, catalogue: Catalogue) -> None:
    """Refuse a run that this party cannot take part in."""
    scale = catalogue.scale
    theirs = (invitation.scale_min, invitation.scale_max, invitation.scale_step)
    if theirs != (scale.min, scale.max, scale.step):
        raise WireError(f"this party rates {scale}; the server's scale is {theirs}")
    if invitation.catalogue != catalogue.digest:
        raise WireError("the server's catalogue is not this party's: other items or features")
    for kind, name in ((SOLVERS, invitation.solver), (AGGREGATIONS, invitation.sums)):
        if name not in kind:
            known = ", ".join(kind.names())
            raise WireError(f"this party knows no {kind.kind} {name[:40]!r}; it knows {known}")
    bounds = SOLVERS[invitation.solver].bounds(scale.span)
    if (invitation.row_bound, invitation.total_bound) != (bounds.row, bounds.total):
        raise WireError("the server's bounds are not those of the solver on this scale")
