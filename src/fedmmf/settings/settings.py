"""Settings: frozen, validated, unknown keys refused, stored with every result.

They are flat for whoever uses them, and each belongs to one component (`groups`). What fits
together is said here.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any, Self

from pydantic import model_validator

from fedmmf.settings.explaining import either
from fedmmf.settings.groups import (
    AUTO,
    DpSettings,
    MaskSettings,
    ObjectiveSettings,
    RunSettings,
    SolverSettings,
    SumSettings,
    registry_of,
)

_SIGNED = ("secure", "dp")  # aggregation schemes whose parties can sign
_JOINED = (AUTO, "mean", "lr", "fm", "nn")  # masks that can be estimated with the factors
_DP_ROUNDS, _DP_HELD_OUT = 30, 0.0  # each round and each sum without noise would cost privacy
_WITHOUT_DEVICE = ("numba", "numpy", "ray")  # engines that have none to choose

_PARTS = (MaskSettings, SumSettings, DpSettings, SolverSettings, ObjectiveSettings, RunSettings)


# The bases are listed backwards: fields come in the order of `_PARTS`, masks first.
class Settings(
    RunSettings, ObjectiveSettings, SolverSettings, DpSettings, SumSettings, MaskSettings
):
    """Everything that decides the result of a training run, given the ratings."""

    title = "Settings"

    def __init__(self, **values: Any) -> None:
        """Check what was chosen, and complete it by what follows from it.

        Every way to say settings comes through here: `FedMMF`, the command line, charters, files
        and LensKit's scorer.
        """
        super().__init__(**_completed(values))

    @classmethod
    def groups(cls) -> dict[str, tuple[str, ...]]:
        """Names of the settings by the title of their component."""
        found: dict[str, tuple[str, ...]] = {}
        for part in _PARTS:
            found[part.title] = (*found.get(part.title, ()), *part.model_fields)
        return found

    @property
    def sums(self) -> str:
        """Name of the aggregation scheme that is asked for."""
        return self.aggregation if self.sharing == "strict" else self.sharing

    @property
    def max_rounds(self) -> int:
        """`rounds`, or the solver's default."""
        if self.rounds != "auto":
            return self.rounds
        return _DP_ROUNDS if self.aggregation == "dp" else int(self._declared.default_rounds)

    @property
    def held_out_share(self) -> float:
        """`held_out`, or the solver's default."""
        if self.held_out != "auto":
            return self.held_out
        return _DP_HELD_OUT if self.aggregation == "dp" else float(self._declared.default_held_out)

    @property
    def has_joint_mask(self) -> bool:
        """Whether masks are estimated together with the factors."""
        return self._can_join_mask if self.mask_fit == "auto" else self.mask_fit == "joint"

    @property
    def _can_join_mask(self) -> bool:
        is_alone = self.mask_strength is not None or self.cross_fit or self.item_statistics
        is_able = self.mask in _JOINED and self.objective == "rating" and not is_alone
        return is_able and self.sharing == "strict" and bool(self._declared.joins_masks)

    @property
    def _declared(self) -> Any:
        """The solver that is chosen, for its declared abilities."""
        return registry_of("solver")[self.solver]

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        misfits = chain(
            self._sharing_misfits(),
            self._dp_misfits(),
            self._ranking_misfits(),
            self._device_misfits(),
        )
        misfit = next(misfits, None)
        if misfit is not None:
            raise ValueError(misfit)
        return self

    @property
    def _sums_securely(self) -> bool:
        """Whether there are secure sums, whose parties can sign and be in batches."""
        is_local = self.aggregation == "dp" and self.dp_noise == "local"
        return self.aggregation in _SIGNED and self.sharing != "plain" and not is_local

    def _sharing_misfits(self) -> Iterator[str]:
        if self.sharing != "strict" and self.aggregation != "secure":
            yield f"aggregation {self.aggregation!r} needs sharing 'strict'; got {self.sharing!r}"
        if self.sharing == "adaptive" and not self._declared.may_be_clear:
            yield (
                f"sharing 'adaptive' needs solver {_solvers_that('may_be_clear')}: one update of "
                f"{self.solver!r} holds masked ratings"
            )
        if self.collect_masked and self.sharing != "adaptive":
            yield f"collect_masked needs sharing 'adaptive'; got {self.sharing!r}"
        if self.signed and not self._sums_securely:
            yield (
                f"signed needs secure sums; got sharing {self.sharing!r} and aggregation "
                f"{self.aggregation!r}"
            )
        if self.batch > 1 and not self._sums_securely:
            yield (
                f"batch needs secure sums; got batch {self.batch} with sharing {self.sharing!r} "
                f"and aggregation {self.aggregation!r}"
            )

    def _dp_misfits(self) -> Iterator[str]:
        if self.aggregation != "dp":
            return
        if not self._declared.may_be_noisy or self.step == "mean":
            yield (
                f"aggregation 'dp' needs solver {_solvers_that('may_be_noisy')} and step 'sum' or "
                "'adam': it bounds and hides gradients, and does not give away how many users "
                "rated an item"
            )
        if self.held_out_share > 0 or self.item_statistics:
            yield (
                "aggregation 'dp' needs held_out 0 and no item_statistics: each would be a sum "
                "without noise"
            )

    def _ranking_misfits(self) -> Iterator[str]:
        if self.objective == "ranking" and not self._declared.ranks:
            yield (
                f"objective 'ranking' needs solver {_solvers_that('ranks')}; got {self.solver!r}. "
                "Leave the solver out, and one that ranks is taken"
            )
        is_ordinal = self.likelihood == "ordinal"
        if is_ordinal and not (self._declared.ranks and self.objective == "rating"):
            yield (
                f"likelihood 'ordinal' needs solver {_solvers_that('ranks')} and objective "
                f"'rating'; got {self.solver!r} and {self.objective!r}"
            )
        if self.mask_fit == "joint" and not self._can_join_mask:
            yield (
                f"mask_fit 'joint' needs solver {_solvers_that('joins_masks')}, objective 'rating'"
                ", sharing 'strict', a mask, and no mask_strength, cross_fit or item_statistics"
            )
        if self.objective == "ranking" and self.held_out_share > 0:
            yield (
                "objective 'ranking' needs held_out 0: the error of held-out ratings does not say "
                "how good lists are"
            )

    def _device_misfits(self) -> Iterator[str]:
        if self.engine in _WITHOUT_DEVICE and (self.device != "cuda" or self.pieces > 1):
            what = f"device {self.device!r}" if self.pieces == 1 else f"pieces {self.pieces}"
            yield f"{what} needs engine 'torch'; got engine {self.engine!r}"
        if self.pieces > 1 and self.solver != "vb":
            yield f"pieces needs solver 'vb'; got pieces {self.pieces} and solver {self.solver!r}"

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """Build settings, as the constructor does."""
        return cls(**values)

    def changed(self, **values: Any) -> Self:
        """Return a copy with some values replaced, validated anew."""
        return type(self)(**{**self.model_dump(), **_completed(values)})


def _completed(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with what follows from them: who wants lists gets a solver that ranks."""
    wants_lists = values.get("objective") == "ranking" and "solver" not in values
    return {**values, "solver": _able_to("ranks")[0]} if wants_lists else values


def _able_to(ability: str) -> tuple[str, ...]:
    """Names of the solvers that declare an ability."""
    solvers = registry_of("solver")
    return tuple(name for name in solvers.names() if getattr(solvers[name], ability))


def _solvers_that(ability: str) -> str:
    """Name in words the solvers that declare an ability."""
    return either(_able_to(ability))
