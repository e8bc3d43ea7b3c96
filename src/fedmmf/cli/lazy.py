"""Commands that are imported when they are used, so that `fedmmf --help` does not wait for them."""

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from fedmmf.errors import SettingsError


class LazyGroup(TyperGroup):
    """A group that knows what its commands are called and about, and imports one to run it.

    Another package adds a command by an entry point: `module:attribute` of a function or of a typer
    application. A name of this package is not replaced by one.
    """

    homes: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """By name: `module:attribute`, of a function or of a typer application, and words for help."""

    group: ClassVar[str] = ""
    """The group of the entry points."""

    elsewhere: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """By name, for a known command of another package: how to install it, and words for help."""

    def __init__(self, **about: Any) -> None:
        super().__init__(**about)
        points = {point.name: point for point in entry_points(group=self.group)}
        outside = {name: (point.value, self._words(point)) for name, point in points.items()}
        self._homes = {**self.homes, **{n: outside[n] for n in outside if n not in self.homes}}
        stubs = {name: TyperCommand(name, help=words) for name, (_, words) in self._homes.items()}
        self.commands = {**stubs, **self.commands}
        self._is_listing = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command itself; while help lists all of them, its name and words alone."""
        if cmd_name in self._homes and not self._is_listing:
            return _loaded(cmd_name, self._homes[cmd_name][0])
        if cmd_name in self.elsewhere and cmd_name not in self.commands:
            raise SettingsError(
                f"`fedmmf {cmd_name}` is not installed. {self.elsewhere[cmd_name][0]}"
            )
        return super().get_command(ctx, cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print help without loading what it lists."""
        self._is_listing = True
        super().format_help(ctx, formatter)
        self._is_listing = False

    def _words(self, point: EntryPoint) -> str:
        """Of a command that is not known here, its package's summary: that needs no import."""
        if point.name in self.elsewhere:
            return self.elsewhere[point.name][1]
        return str(point.dist.metadata.json.get("summary", "")) if point.dist else ""


def _loaded(name: str, home: str) -> Any:
    module_name, _, attribute = home.partition(":")
    try:
        module = import_module(module_name)
        found = getattr(module, attribute)
    except (ImportError, AttributeError) as error:
        raise SettingsError(
            f"the command {name!r} cannot be loaded from {home}: {error}. Mend or remove the "
            "package that brings it."
        ) from error
    if isinstance(found, typer.Typer):
        command: Any = typer.main.get_group(found)
    else:
        alone = typer.Typer(add_completion=False)
        alone.command(name, epilog=getattr(module, "EXAMPLE", None))(found)
        command = typer.main.get_command(alone)
    command.name = name
    return command
