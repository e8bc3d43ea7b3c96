"""Help on terminals that are too narrow for typer's three columns, which it would cut."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from typer import rich_utils

_WIDE_ENOUGH = 100  # columns; below, the longest flags are cut
_theirs = rich_utils.rich_format_help


def install() -> None:
    """Make typer use this help layout on narrow terminals."""
    rich_utils.rich_format_help = _format_help


def _format_help(*, obj: Any, ctx: Any, markup_mode: Any) -> None:
    console = Console(highlight=False)
    if console.width >= _WIDE_ENOUGH:
        _theirs(obj=obj, ctx=ctx, markup_mode=markup_mode)
        return
    console.print(escape(obj.get_usage(ctx)))
    console.print(f"\n{escape(obj.help or '')}")
    for title, records in _sections(obj, ctx).items():
        console.print(f"\n[bold]{escape(title)}[/]")
        for name, text in records:
            console.print(Padding(f"[cyan]{escape(name)}[/]", (0, 0, 0, 2)))
            console.print(Padding(escape(text), (0, 0, 0, 6)))
    if obj.epilog:
        console.print(f"\n{escape(obj.epilog)}")


def _sections(obj: Any, ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """Names with their texts, by the panel that they belong to."""
    found: dict[str, list[tuple[str, str]]] = {}
    for parameter in obj.get_params(ctx):
        is_option = parameter.param_type_name == "option"
        record = parameter.get_help_record(ctx)
        if record is None:
            record = (parameter.make_metavar(ctx), "")
        title = getattr(parameter, "rich_help_panel", None)
        found.setdefault(title or ("Options" if is_option else "Arguments"), []).append(record)
    if hasattr(obj, "commands"):
        children = obj.commands.items()
        found["Commands"] = [(name, child.get_short_help_str(200)) for name, child in children]
    return found
