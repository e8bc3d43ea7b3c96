"""Options of commands follow from the fields of groups, which a command takes whole.

A command that is `expanded` may have parameters of three kinds: an option as typer knows it; a
frozen dataclass whose fields are such options, or groups again; and `Settings`, or some of them:
`Annotated[Settings, Only("mask", "seed")]`. Typer sees one flat list of options; the command gets
its groups. A default of such a parameter gives the options' defaults, and what no option changes.
"""

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from functools import wraps
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from fedmmf.settings import Settings
from fedmmf.settings.groups import REGISTERED, Unset, choices_for
from fedmmf.settings.run import RunSettings

Values = dict[str, Any]  # what the user chose, by the name of the option
Spread = tuple[list[inspect.Parameter], Callable[[Values], Any]]

_PANELS: dict[str, str | None] = {
    name: title for title, names in Settings.groups().items() for name in names
}
# Beside --json, where every command has --seed.
_PANELS |= dict.fromkeys(Settings.groups()[RunSettings.heading()])
_GIVEN: ContextVar[frozenset[str]] = ContextVar("given", default=frozenset())


class Only:
    """A choice of the settings that become options of a command."""

    def __init__(self, *names: str) -> None:
        self.names = names


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Let typer see the options of a command's groups one by one."""
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    parts = {parameter.name: _spread(parameter) for parameter in parameters}
    options = [option for some, _ in parts.values() for option in some]

    @wraps(command)
    def flat(context: typer.Context, **values: Any) -> None:
        sources = {name: context.get_parameter_source(name) for name in values}
        given = (name for name, source in sources.items() if source and source.name != "DEFAULT")
        _GIVEN.set(frozenset(given))
        command(**{name: gather(values) for name, (_, gather) in parts.items()})

    options.insert(0, _option("context", typer.Context, inspect.Parameter.empty))
    flat.__annotations__ = {option.name: option.annotation for option in options}
    flat.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return flat


def _spread(parameter: inspect.Parameter) -> Spread:
    """The options of a parameter, and how to make its value of theirs."""
    kind = parameter.annotation
    chosen = [mark for mark in get_args(kind)[1:] if isinstance(mark, Only)]
    if chosen or kind is Settings:
        names = chosen[0].names if chosen else tuple(Settings.model_fields)
        return _spread_settings(names, _start(parameter, Settings))
    if is_dataclass(kind):
        return _spread_group(kind, _start(parameter, kind))
    return [parameter.replace(kind=parameter.KEYWORD_ONLY)], lambda values: values[parameter.name]


def _start(parameter: inspect.Parameter, kind: Any) -> Any:
    return kind() if parameter.default is parameter.empty else parameter.default


def _spread_settings(names: tuple[str, ...], start: Settings) -> Spread:
    options = [setting_option(name, getattr(start, name)) for name in names]
    return options, lambda values: start.changed(
        **{name: values[name] for name in names if was_given(name)}
    )


def was_given(name: str) -> bool:
    """Whether the user gave this option, rather than leaving it at its default."""
    return name in _GIVEN.get()


def for_implicit(settings: Settings) -> Settings:
    """Where data have no ratings, rank items unless the user's options say otherwise.

    There is nothing to mask, and what somebody chose says all about them already.
    """
    meant = {"objective": "ranking", "mask": "none", "implicit_prior": "items"}
    return settings.changed(**{name: value for name, value in meant.items() if not was_given(name)})


def _spread_group(kind: Any, start: Any) -> Spread:
    hints = get_type_hints(kind, include_extras=True)
    parts = {
        field.name: _spread(_option(field.name, hints[field.name], getattr(start, field.name)))
        for field in fields(kind)
    }
    options = [option for some, _ in parts.values() for option in some]
    return options, lambda values: kind(
        **{name: gather(values) for name, (_, gather) in parts.items()}
    )


def _option(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def setting_option(name: str, default: Any) -> inspect.Parameter:
    """The option of a setting: flag, help, type and panel follow from its field.

    Bounds are left to the settings, whose errors say what a number means.
    """
    field = Settings.model_fields[name]
    kind, more = _shown_as(name, field.annotation)
    unset = [mark.words for mark in field.metadata if isinstance(mark, Unset)]
    more |= {"show_default": unset[0]} if unset else {}
    flag = name.replace("_", "-")
    switch = f"--{flag}/--no-{flag}" if kind is bool else f"--{flag}"
    text, panel = str(field.description), _PANELS[name]
    help_text = f"{text[0].upper()}{text[1:]}."
    option = typer.Option(switch, help=help_text, rich_help_panel=panel, **more)
    return _option(name, Annotated[kind, option], default)


def _shown_as(name: str, kind: Any) -> tuple[Any, dict[str, Any]]:
    """The type of an option, and what else typer has to know."""
    literal: Any = Literal
    if name in REGISTERED:
        return literal[choices_for(name)], {}
    if get_origin(kind) not in (Union, UnionType):
        return kind, {}
    numbers = [(get_args(part) or (part,))[0] for part in get_args(kind)]
    parser = _or_auto(int, "a whole number") if int in numbers else _or_auto(float, "a number")
    return Any, {"metavar": "NUMBER|auto", "parser": parser}


def _or_auto(number: type[int] | type[float], name: str) -> Callable[[str], float | str]:
    """Make a parser of `auto` or a number of one type."""

    def parse(text: str) -> float | str:
        try:
            return text if text == "auto" else number(text)
        except ValueError:
            raise typer.BadParameter(f"must be {name} or auto; got {text!r}") from None

    return parse
