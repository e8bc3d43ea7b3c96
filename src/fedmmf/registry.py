"""Members of each kind (masks, solvers, aggregation schemes, ...) by name, loaded when first used.

What this package has is listed by import path, so that naming a member loads nothing and a party
loads only what it uses. Another package adds a member by an entry point of the kind's group
(`fedmmf.masks`, `fedmmf.solvers`, `fedmmf.aggregation`, ...), or by calling `register`.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Generic, TypeVar

from fedmmf.errors import SettingsError, UnknownNameError

Member = TypeVar("Member")


class Registry(Generic[Member]):
    """The members of one kind.

    Args:
        kind: what a member is called in errors, such as `mask`.
        group: of the entry points, such as `fedmmf.masks`.
        homes: import path of each member of this package, as `module:attribute`.
    """

    def __init__(self, kind: str, group: str, homes: Mapping[str, str]) -> None:
        self.kind, self.group = kind, group
        self._homes = dict(homes)
        self._members: dict[str, Member] = {}
        self._is_complete = False

    def register(self, name: str, member: Member) -> None:
        """Add a member; a name that is taken is refused."""
        if name in self.names():
            raise SettingsError(
                f"there is a {self.kind} called {name!r} already; take another name"
            )
        self._members[name] = member

    def unregister(self, name: str) -> None:
        """Forget a member that `register` added."""
        del self._members[name]

    def names(self) -> tuple[str, ...]:
        """All names: those of this package first, then the others."""
        self._look_around()
        return tuple(dict.fromkeys((*self._homes, *self._members)))

    def __getitem__(self, name: str) -> Member:
        if name not in self._members:
            self._members[name] = self._loaded(name)
        return self._members[name]

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def _loaded(self, name: str) -> Member:
        home = self._homes.get(name) or self._elsewhere(name)
        try:
            member: Member = imported(home)
        except (ImportError, AttributeError) as error:
            raise SettingsError(
                f"the {self.kind} {name!r} cannot be loaded from {home}: {error}. Mend or remove "
                "the package that brings it."
            ) from error
        return member

    def _elsewhere(self, name: str) -> str:
        self._look_around()
        if name not in self._homes:
            known = ", ".join(self.names())
            raise UnknownNameError(f"there is no {self.kind} called {name!r}; there are {known}")
        return self._homes[name]

    def _look_around(self) -> None:
        """Read the entry points, once; a name of this package is not replaced by them."""
        if not self._is_complete:
            from importlib.metadata import entry_points  # a party that names nothing needs none

            self._is_complete = True
            for point in entry_points(group=self.group):
                self._homes.setdefault(point.name, point.value)


def imported(home: str) -> Any:
    """What an import path `module:attribute` leads to."""
    module, _, attribute = home.partition(":")
    return getattr(import_module(module), attribute)


def import_extra(module: str, user: str, extra: str) -> Any:
    """Import a module of an optional package, or say which extra brings it to its user."""
    try:
        return import_module(module)
    except ImportError:
        raise SettingsError(
            f"{user} needs the package {module.split('.')[0]}, which is not installed; run "
            f"pip install 'fedmmf[{extra}]'"
        ) from None


def lazy(home: str) -> Callable[..., Any]:
    """A callable that is imported when it is first called."""

    def call(*arguments: Any, **named: Any) -> Any:
        return imported(home)(*arguments, **named)

    return call


def lazy_names(homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Make a package's `__getattr__` that imports its names when they are first used (PEP 562).

    Args:
        homes: the names that each module of the package has.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def find(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"there is no name {name!r} here; there are {sorted(home_of)}")
        return getattr(import_module(home_of[name]), name)

    return find
