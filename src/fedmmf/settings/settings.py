"""`Settings`: frozen, validated, unknown names refused, stored with every result.

Users see one flat list. Each setting belongs to the group of one component, of this package or of
another one, which names its groups in the entry points `fedmmf.settings`.
"""

from itertools import chain
from types import new_class
from typing import TYPE_CHECKING, Any, Self

from pydantic import model_validator

from fedmmf.masks.settings import can_be_joint
from fedmmf.settings.groups import STRICT, all_groups, registry_of
from fedmmf.solvers.settings import with_solver

# Other packages' groups are there at run time alone. Bases are listed backwards: fields come in the
# order of `GROUPS`, masks first.
if TYPE_CHECKING:
    from fedmmf.aggregation.adaptive.settings import AdaptiveSettings
    from fedmmf.aggregation.dp.settings import DpSettings
    from fedmmf.aggregation.secure.settings import SecureSettings
    from fedmmf.aggregation.settings import SumSettings
    from fedmmf.engines.settings import EngineSettings
    from fedmmf.engines.torch.settings import TorchSettings
    from fedmmf.masks.settings import MaskSettings
    from fedmmf.settings.run import RunSettings
    from fedmmf.solvers.settings import ObjectiveSettings, SolverSettings
    from fedmmf.solvers.sgd.settings import SgdSettings
    from fedmmf.solvers.vb.settings import VbSettings

    class AllGroups(
        RunSettings,
        TorchSettings,
        EngineSettings,
        ObjectiveSettings,
        VbSettings,
        SgdSettings,
        SolverSettings,
        DpSettings,
        SecureSettings,
        AdaptiveSettings,
        SumSettings,
        MaskSettings,
    ):
        """Every component's settings."""

else:
    AllGroups = new_class("AllGroups", all_groups()[::-1])


class Settings(AllGroups):
    """Everything that decides the result of a training run, given the ratings.

    `FedMMF`, the command line, charters, files and LensKit's scorer all make these. A solver that
    nobody named follows from the rest: the default one, for lists one that ranks, and under a
    privacy budget one that knows the noise. In `changed`, a solver that was named stays, and is
    refused where it does not fit.
    """

    title = "Settings"

    @classmethod
    def completed(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return the values with what follows from them."""
        return with_solver(values)

    @classmethod
    def groups(cls) -> dict[str, tuple[str, ...]]:
        """Names of the settings by the title of their component."""
        found: dict[str, tuple[str, ...]] = {}
        for group in all_groups():
            found[group.heading()] = (*found.get(group.heading(), ()), *group.model_fields)
        return found

    @property
    def is_strict(self) -> bool:
        """Whether nobody's update leaves outside sums."""
        return self.sharing == STRICT

    @property
    def scheme_name(self) -> str:
        """Name of the aggregation scheme: `aggregation` under strict sharing, else `sharing`."""
        return self.aggregation if self.is_strict else self.sharing

    @property
    def scheme(self) -> Any:
        """The aggregation scheme itself, to read what it declares."""
        return registry_of("aggregation")[self.scheme_name]

    @property
    def chosen_solver(self) -> Any:
        """The solver itself, to read what it declares."""
        return registry_of("solver")[self.solver]

    @property
    def max_rounds(self) -> int:
        """`rounds`, or what the scheme or the solver declares."""
        if self.rounds != "auto":
            return self.rounds
        return int(self.scheme.default_rounds or self.chosen_solver.default_rounds)

    @property
    def held_out_share(self) -> float:
        """`held_out`, or the solver's default; under a privacy budget nothing is held out."""
        if self.held_out != "auto":
            return self.held_out
        return 0.0 if self.scheme.has_budget else float(self.chosen_solver.default_held_out)

    @property
    def has_joint_mask(self) -> bool:
        """Whether masks are estimated together with the factors."""
        return can_be_joint(self) if self.mask_fit == "auto" else self.mask_fit == "joint"

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        chosen = self.model_dump()
        concerned = (group for group in all_groups() if group.is_concerned(chosen))
        misfits = chain.from_iterable(group.misfits(self) for group in concerned)
        misfit = next(misfits, None)
        if misfit is not None:
            raise ValueError(misfit)
        return self

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """Build settings, as the constructor does."""
        return cls(**values)

    def changed(self, **values: Any) -> Self:
        """Return a copy with some values replaced, validated anew.

        What was named before stays; what nobody named follows from the rest, as in `Settings(...)`.
        """
        return type(self)(**{**self.named(), **values})

    def named(self) -> dict[str, Any]:
        """Return the settings that somebody named; the others are defaults, or follow from them."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    def to_dict(self) -> dict[str, Any]:
        """Return the settings by name, for files and other machines.

        Settings of other packages' members are left out where the member is not in use, so that
        somebody without the package can read the rest.
        """
        chosen = self.model_dump()
        foreign = (group for group in all_groups() if not group.__module__.startswith("fedmmf."))
        unused = (group for group in foreign if not group.is_in_use(chosen))
        left_out = {name for group in unused for name in group.model_fields}
        return {name: value for name, value in chosen.items() if name not in left_out}
