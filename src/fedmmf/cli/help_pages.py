"""Help: the most used options of a long command first, and no cut flags on narrow terminals.

A command with many options shows those of FIRST; `--help-all` shows all of them by panel.
"""

from copy import copy
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from typer import rich_utils

_WIDE_ENOUGH = 100  # columns; below, the longest flags are cut
_theirs = rich_utils.rich_format_help
FEWEST = 9  # options of a short page; a command that has few of FIRST shows its own first ones
LONG = 15  # options; a command with more of them has a short page and --help-all
FIRST = (
    "model", "data", "user", "ratings", "n", "items", "sites", "host", "test", "top", "splits",
    "objective", "solver", "mask", "factors", "sharing", "out", "save", "report", "json", "seed",
)  # fmt: skip
"""Options that the short page of a long command shows, in this order."""
_ALL = "fedmmf.help_all"


def _show_all(context: typer.Context, is_wanted: bool) -> None:
    if is_wanted and not context.resilient_parsing:
        context.meta[_ALL] = True
        typer.echo(context.get_help(), color=context.color)
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option("--help-all", is_eager=True, callback=_show_all, help="Show all options."),
]


def install() -> None:
    """Make typer use this help layout on narrow terminals."""
    rich_utils.rich_format_help = _format_help


def _format_help(*, obj: Any, ctx: Any, markup_mode: Any) -> None:
    obj = _short(obj, ctx) if _ALL not in ctx.meta else obj
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


def _short(command: Any, ctx: Any) -> Any:
    """A command with an example and its most used options; a short command as it is."""
    options = {option.name: option for option in command.params}
    if "help_all" not in options:
        return command
    chosen = [name for name in options if options[name].required or name in FIRST]
    others = [name for name in options if name not in chosen and name != "help_all"]
    chosen += others[: max(FEWEST - len(chosen), 0)]
    ranks = {name: rank for rank, name in enumerate(FIRST)}
    short = copy(command)
    chosen.sort(key=lambda name: ranks.get(name, ranks["out"] - 0.5))  # inputs, others, outputs
    short.params = [copy(options[name]) for name in chosen]
    for option in short.params:
        option.rich_help_panel = None
    short.params.append(options["help_all"])
    short.help = "\n\n".join(filter(None, (command.help, command.epilog)))
    short.epilog = f"{ctx.command_path} --help-all shows all {len(options)} options."
    return short


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
