"""Settings of all solvers: how factors are learned, and for what."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from fedmmf.settings.explaining import either
from fedmmf.settings.groups import (
    Chosen,
    Scope,
    SettingsGroup,
    all_groups,
    member_in_use,
    solvers_that,
)

Objective = Literal["rating", "ranking"]
Likelihood = Literal["gaussian", "ordinal"]
ROUNDS_OF_CHOICES = 40  # where every rating is 1: docs/lists.md says on which data it was found
_LIST_FACTORS = 64  # chosen on ML-100K and LastFM, whole and with 50 to 400 of their users


class SolverSettings(SettingsGroup):
    """How the factors are learned, and for how long."""

    kind = "solver"

    solver: Annotated[
        str,
        Field(
            description="how the factors are learned; where no one is named, the objective "
            "ranking takes one that ranks: vb"
        ),
    ] = "sgd"
    factors: Annotated[int, Field(ge=1, le=1024, description="latent factors k")] = 20
    rounds: Annotated[
        Annotated[int, Field(ge=1, le=1_000_000)] | Literal["auto"],
        Field(
            description="federated rounds at most (T); auto: 200 for sgd, 22 for vb, on the "
            "command line 40 where data have no ratings; under dp 30 and 12"
        ),
    ] = "auto"
    ensemble: Annotated[
        int,
        Field(ge=1, le=100, description="runs from different starts, averaged"),
        Scope.NOT_FEDERATED,
        Scope.NOT_AUDITED,
    ] = 1
    held_out: Annotated[
        Annotated[float, Field(ge=0, le=0.5)] | Literal["auto"],
        Field(
            description="share of each party's ratings for early stopping; auto: 0.05 for sgd, "
            "else 0",
        ),
    ] = "auto"
    patience: Annotated[
        int,
        Field(ge=1, description="rounds without improvement before stopping"),
        Scope.NOT_AUDITED,
    ] = 50

    @classmethod
    def has_say(cls, name: str, chosen: Chosen) -> bool:
        """Whether there are held-out ratings, for stopping by them."""
        return name != "patience" or _holds_out(chosen)


def _holds_out(chosen: Chosen) -> bool:
    share = chosen.get("held_out", "auto")
    if share != "auto":
        return bool(share > 0)
    solver, scheme = (member_in_use(kind, chosen) for kind in ("solver", "aggregation"))
    has_budget = scheme is not None and scheme.has_budget
    return not has_budget and (solver is None or bool(solver.default_held_out > 0))


class ObjectiveSettings(SettingsGroup):
    """What is learned: ratings, or lists."""

    title = "Objective"

    objective: Annotated[
        Objective,
        Field(
            description="rating: predict ratings; ranking: order items, where every unrated item "
            "counts a little as a low rating",
        ),
    ] = "rating"
    likelihood: Annotated[
        Likelihood,
        Field(
            description="vb: ratings are numbers, or, ordinal: levels in an order, with cut points "
            "between them that are learned",
        ),
    ] = "gaussian"
    unrated_weight: Annotated[
        Annotated[float, Field(gt=0, lt=1)] | Literal["auto"],
        Field(
            description="ranking: what an unrated item weighs beside a rated one; auto: all "
            "together about eight times as much as all rated ones, within 0.2 to 0.55",
        ),
    ] = "auto"
    unrated_value: Annotated[
        Annotated[float, Field(allow_inf_nan=False)] | Literal["auto"],
        Field(
            description="ranking: the rating that an unrated item counts as; auto: the lowest",
        ),
    ] = "auto"

    @classmethod
    def misfits(cls, settings: Any) -> Iterator[str]:
        """Yield an error for a solver that cannot learn what is wanted."""
        is_ranking, is_ordinal = settings.objective == "ranking", settings.likelihood == "ordinal"
        if is_ranking and not settings.chosen_solver.ranks:
            yield (
                f"objective 'ranking' needs solver {either(solvers_that('ranks'))}; got "
                f"{settings.solver!r}. Leave the solver out, and one that ranks is taken"
            )
        if is_ordinal and (is_ranking or not settings.chosen_solver.ranks):
            yield (
                f"likelihood 'ordinal' needs solver {either(solvers_that('ranks'))} and objective "
                f"'rating'; got {settings.solver!r} and {settings.objective!r}"
            )
        if is_ranking and settings.held_out_share > 0:
            yield (
                "objective 'ranking' needs held_out 0: the error of held-out ratings does not say "
                "how good lists are"
            )

    @classmethod
    def has_say(cls, name: str, chosen: Chosen) -> bool:
        """Whether ratings are predicted, for a likelihood; else whether lists are made."""
        if name == "objective":
            return True
        is_of_ratings = name == "likelihood"
        wanted = "rating" if is_of_ratings else "ranking"
        solver = member_in_use("solver", chosen) if is_of_ratings else None
        is_able = solver is None or bool(solver.ranks)
        return is_able and bool(chosen.get("objective", wanted) == wanted)


def with_solver(values: dict[str, Any]) -> dict[str, Any]:
    """Choose a solver that nobody named: for lists one that ranks, for a budget one of noisy sums.

    Under a budget, settings that nobody named take the defaults that the solver has there.
    """
    scheme = member_in_use("aggregation", values)
    has_budget = bool(getattr(scheme, "has_budget", False))
    ability = "ranks" if values.get("objective") == "ranking" else "knows_noise" * has_budget
    if ability and "solver" not in values:
        able = solvers_that(ability)
        values = {**values, "solver": next(_solvers_with(values, has_budget), able[0])}
    solver = member_in_use("solver", values) if has_budget else None
    find: Any = getattr(solver, "noisy_defaults", lambda chosen: {})
    defaults = find(values)
    named = {name: value for name, value in values.items() if (name, value) != ("rounds", "auto")}
    return {**defaults, **(named if defaults else values)}


def _solvers_with(values: Chosen, has_budget: bool) -> Iterator[str]:
    """Under a budget, the solvers that somebody named a setting of."""
    for group in all_groups() if has_budget else ():
        if group.kind == "solver" and group.member and values.keys() & group.model_fields.keys():
            yield group.member


def factors_for_lists(n_users: int) -> int:
    """Return as many factors as serve lists, where nobody names a number.

    Real parties refuse sums over no more users than factors, so that few users have fewer.
    """
    return min(_LIST_FACTORS, max(1, n_users // 2))
