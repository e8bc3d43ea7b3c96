"""What the settings groups of all components have in common, and where they are registered.

A component writes its group in a module of its own beside its code (`settings.py`), so that a party
loads the code without groups, and a server the groups without masks. A group holds fields, their
descriptions and rules: what does not fit together (`misfits`), and when a field affects a run
(`has_say`).
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, ClassVar, get_args

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from fedmmf.errors import SettingsError
from fedmmf.registry import Registry, imported
from fedmmf.settings.explaining import either, explain_errors

Chosen = Mapping[str, Any]
"""Settings of a run by name, as a file has them: some may be missing."""

AUTO = "auto"  # a mask that is chosen when the items are known
STRICT = "strict"  # the sharing under which `aggregation` names the scheme

# Import paths: members are looked up without loading them.
REGISTERED = {
    "mask": "fedmmf.masks:FAMILIES",
    "aggregation": "fedmmf.aggregation:AGGREGATIONS",
    "solver": "fedmmf.solvers:SOLVERS",
    "engine": "fedmmf.engines:ENGINES",
}
_TITLES = {
    "mask": "Mask",
    "aggregation": "Sharing and sums",
    "solver": "Solver",
    "engine": "Run",
}


class Scope(Enum):
    """Marks of a field, in its `Annotated`: where the setting has no meaning, or always one."""

    NOT_FEDERATED = "no meaning in a federation across machines"
    NOT_AUDITED = "an audit does not depend on it"
    ALWAYS_AUDITED = "an audit depends on it whatever else is chosen"
    ONLY_WHERE = "it decides where a run computes, and not what"


class Unset:
    """Mark of a field that may be None: what None means, in words."""

    def __init__(self, words: str) -> None:
        self.words = words


class SettingsGroup(BaseModel):
    """The settings of one component and their rules.

    Attributes:
        title: what people find the settings under; "": the title of the kind.
        kind: `mask`, `aggregation`, `solver` or `engine`; "": of a run as a whole.
        member: the member of the kind that the settings belong to; "": of all members.
        shares: other members of the kind whose settings this one uses as well.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    title: ClassVar[str] = ""
    kind: ClassVar[str] = ""
    member: ClassVar[str] = ""
    shares: ClassVar[tuple[str, ...]] = ()

    def __init__(self, **values: Any) -> None:
        """Check the values; an invalid one raises `SettingsError` with field, value and rule."""
        plain = {  # searches over grids hand out numpy's numbers
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in self.completed(values).items()
        }
        try:
            super().__init__(**plain)
        except ValidationError as error:
            raise SettingsError(explain_errors(error, type(self))) from None
        self.model_fields_set.intersection_update(values)  # not those that follow

    @classmethod
    def completed(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return the values and those that follow from them; here there are none."""
        return values

    def __setattr__(self, name: str, value: Any) -> None:
        raise SettingsError(f"settings do not change; make others, with {name}={value!r} in them")

    @field_validator(*REGISTERED, check_fields=False)
    @classmethod
    def _is_registered(cls, name: str, about: ValidationInfo) -> str:
        known = choices_for(str(about.field_name))
        if name not in known:
            raise ValueError(f"should be {either(known)}")
        return name

    @classmethod
    def heading(cls) -> str:
        """Title that people find these settings under."""
        return cls.title or _TITLES[cls.kind]

    @classmethod
    def is_concerned(cls, chosen: Chosen) -> bool:
        """Whether a run uses the component, or somebody changed one of its settings."""
        fields = cls.model_fields.items()
        return cls.is_in_use(chosen) or any(chosen[name] != field.default for name, field in fields)

    @classmethod
    def misfits(cls, settings: Any) -> Iterator[str]:
        """Yield a sentence for each rule of the component that the settings of a run break.

        Called where the component is concerned.
        """
        return iter(())

    @classmethod
    def has_say(cls, name: str, chosen: Chosen) -> bool:
        """Whether one of these settings affects a run, given that the component is in use."""
        return True

    @classmethod
    def is_in_use(cls, chosen: Chosen) -> bool:
        """Whether a run uses the component; True where its settings do not tell."""
        name = name_in_use(cls.kind, chosen) if cls.member else None
        return name is None or name == cls.member or cls.member in _shared_by(cls.kind, name)


# Import paths of the groups, in the order of the settings. The name of a member's group is its kind
# and its name; another package adds one by an entry point of the same name.
GROUPS: Registry[type[SettingsGroup]] = Registry(
    "settings group",
    "fedmmf.settings",
    {
        "mask": "fedmmf.masks.settings:MaskSettings",
        "aggregation": "fedmmf.aggregation.settings:SumSettings",
        "aggregation.adaptive": "fedmmf.aggregation.adaptive.settings:AdaptiveSettings",
        "aggregation.secure": "fedmmf.aggregation.secure.settings:SecureSettings",
        "aggregation.dp": "fedmmf.aggregation.dp.settings:DpSettings",
        "solver": "fedmmf.solvers.settings:SolverSettings",
        "solver.sgd": "fedmmf.solvers.sgd.settings:SgdSettings",
        "solver.vb": "fedmmf.solvers.vb.settings:VbSettings",
        "objective": "fedmmf.solvers.settings:ObjectiveSettings",
        "engine": "fedmmf.engines.settings:EngineSettings",
        "engine.torch": "fedmmf.engines.torch.settings:TorchSettings",
        "run": "fedmmf.settings.run:RunSettings",
    },
)


def all_groups() -> tuple[type[SettingsGroup], ...]:
    """Return every component's group; raise `SettingsError` where two bring one setting."""
    found: dict[str, type[SettingsGroup]] = {}
    for name in GROUPS.names():
        for field in GROUPS[name].model_fields:
            if field in found:
                raise SettingsError(
                    f"the settings group {name!r} brings {field!r}, which "
                    f"{found[field].__name__} has already; take another name"
                )
            found[field] = GROUPS[name]
    return tuple(dict.fromkeys(found.values()))


def marked(scope: Scope) -> frozenset[str]:
    """Names of the settings that have a mark."""
    fields = (pair for group in all_groups() for pair in group.model_fields.items())
    return frozenset(name for name, field in fields if scope in field.metadata)


def in_use(chosen: Chosen) -> dict[str, Any]:
    """Return the settings that affect a run, in order; those that no group has are included."""
    group_of = {name: group for group in all_groups() for name in group.model_fields}

    def has_say(name: str) -> bool:
        group = group_of.get(name)
        return group is None or (group.is_in_use(chosen) and group.has_say(name, chosen))

    return {name: value for name, value in chosen.items() if has_say(name)}


def name_in_use(kind: str, chosen: Chosen) -> str | None:
    """Return the name of the member of a kind that a run uses; None: the run does not tell."""
    if kind == "aggregation" and chosen.get("sharing", STRICT) != STRICT:
        return str(chosen["sharing"])
    return chosen.get(kind)


def member_in_use(kind: str, chosen: Chosen) -> Any | None:
    """Return the member of a kind that a run uses; None: unknown, or not installed."""
    name, members = name_in_use(kind, chosen), registry_of(kind)
    if name is None or name not in members:
        return None
    return members[name]


def sharers(chosen: Chosen) -> str:
    """Return whose updates leave in the clear in a run: `nobody`, `some` or `everybody`."""
    if chosen.get("sharing", STRICT) == STRICT:
        return "nobody"
    return str(getattr(member_in_use("aggregation", chosen), "in_clear", "nobody"))


def _shared_by(kind: str, name: str) -> tuple[str, ...]:
    """Return the members whose settings a member uses besides its own."""
    own = f"{kind}.{name}"
    return GROUPS[own].shares if own in GROUPS else ()


def names_for(setting: str) -> tuple[str, ...]:
    """Return the names that `mask`, `aggregation`, `solver` or `engine` may have."""
    known = registry_of(setting).names()
    named_by_sharing = _sharings() if setting == "aggregation" else ()
    return tuple(name for name in known if name not in named_by_sharing)


def _sharings() -> Iterable[str]:
    """Return the values of `sharing`; all but `strict` are names of schemes too."""
    return get_args(GROUPS["aggregation"].model_fields["sharing"].annotation)


def choices_for(setting: str) -> tuple[str, ...]:
    """Return the values that the setting may have: `names_for` it, and for masks `auto`."""
    return (*((AUTO,) if setting == "mask" else ()), *names_for(setting))


def registry_of(setting: str) -> Registry[Any]:
    """Return the members that `mask`, `aggregation`, `solver` or `engine` may name."""
    found: Registry[Any] = imported(REGISTERED[setting])
    return found


def solvers_that(ability: str) -> tuple[str, ...]:
    """Return the names of the solvers that declare an ability."""
    solvers = registry_of("solver")
    return tuple(name for name in solvers.names() if getattr(solvers[name], ability, False))
