"""Commands that are imported when they are used, so that `fedmmf --help` does not wait for them."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup


class LazyGroup(TyperGroup):
    """A group that knows what its commands are called and about, and imports one to run it."""

    homes: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """By name: `module:attribute`, of a function or of a typer application, and words for help."""

    def __init__(self, **about: Any) -> None:
        super().__init__(**about)
        stubs = {name: TyperCommand(name, help=words) for name, (_, words) in self.homes.items()}
        self.commands = {**stubs, **self.commands}
        self._is_listing = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command itself; while help lists all of them, its name and words alone."""
        if cmd_name not in self.homes or self._is_listing:
            return super().get_command(ctx, cmd_name)
        return _loaded(cmd_name, self.homes[cmd_name][0])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print help without loading what it lists."""
        self._is_listing = True
        super().format_help(ctx, formatter)
        self._is_listing = False


def _loaded(name: str, home: str) -> Any:
    module_name, _, attribute = home.partition(":")
    module = import_module(module_name)
    found = getattr(module, attribute)
    if isinstance(found, typer.Typer):
        command: Any = typer.main.get_group(found)
    else:
        alone = typer.Typer(add_completion=False)
        alone.command(name, epilog=module.EXAMPLE)(found)
        command = typer.main.get_command(alone)
    command.name = name
    return command
