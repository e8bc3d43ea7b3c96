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
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import typer

from fedmmf.cli.help_pages import LONG, HelpAll
from fedmmf.errors import SettingsError
from fedmmf.settings import Settings
from fedmmf.settings.groups import REGISTERED, Unset, all_groups, choices_for, registry_of
from fedmmf.settings.run import RunSettings
from fedmmf.solvers.settings import ROUNDS_OF_CHOICES, factors_for_lists

if TYPE_CHECKING:  # help is shown without them
    from fedmmf.data import Ratings

Values = dict[str, Any]  # what the user chose, by the name of the option
Spread = tuple[list[inspect.Parameter], Callable[[Values], Any]]

_PANELS: dict[str, str | None] = {
    name: title for title, names in Settings.groups().items() for name in names
}
# Beside --json, where every command has --seed.
_PANELS |= dict.fromkeys(RunSettings.model_fields)
RANKING_DEFAULTS = {"objective": "ranking", "solver": "vb", "factors": "by the size of the data"}
_GIVEN: ContextVar[frozenset[str]] = ContextVar("given", default=frozenset())


class Only:
    """A choice of the settings that become options of a command.

    Args:
        names: of the settings.
        defaults: words that help shows instead of a default, for one that depends on other options.
    """

    def __init__(self, *names: str, **defaults: str) -> None:
        self.names, self.defaults = names, defaults


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Let typer see the options of a command's groups one by one."""
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    parts = {parameter.name: _spread(parameter) for parameter in parameters}
    options = [option for some, _ in parts.values() for option in some]
    if len(options) > LONG:
        options.append(_option("help_all", HelpAll, False))

    @wraps(command)
    def flat(context: typer.Context, help_all: bool = False, **values: Any) -> None:
        sources = {name: context.get_parameter_source(name) for name in values}
        given = (name for name, source in sources.items() if source and source.name != "DEFAULT")
        before = _GIVEN.set(frozenset(given))
        try:
            command(**{name: gather(values) for name, (_, gather) in parts.items()})
        finally:
            _GIVEN.reset(before)

    options.insert(0, _option("context", typer.Context, inspect.Parameter.empty))
    flat.__annotations__ = {option.name: option.annotation for option in options}
    flat.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return flat


def _spread(parameter: inspect.Parameter) -> Spread:
    """The options of a parameter, and how to make its value of theirs."""
    kind = parameter.annotation
    chosen = [mark for mark in get_args(kind)[1:] if isinstance(mark, Only)]
    if chosen or kind is Settings:
        only = chosen[0] if chosen else Only(*Settings.model_fields)
        return _spread_settings(only, _start(parameter, Settings))
    if is_dataclass(kind):
        return _spread_group(kind, _start(parameter, kind))
    return [parameter.replace(kind=parameter.KEYWORD_ONLY)], lambda values: values[parameter.name]


def _start(parameter: inspect.Parameter, kind: Any) -> Any:
    return kind() if parameter.default is parameter.empty else parameter.default


def _spread_settings(only: Only, start: Settings) -> Spread:
    options = [
        setting_option(name, getattr(start, name), only.defaults.get(name)) for name in only.names
    ]
    return options, lambda values: start.changed(
        **{name: values[name] for name in only.names if was_given(name)}
    )


def was_given(name: str) -> bool:
    """Whether the user gave this option, rather than leaving it at its default."""
    return name in _GIVEN.get()


def for_implicit(settings: Settings) -> Settings:
    """Where data have no ratings, rank items unless the user's options say otherwise.

    There is nothing to mask, and what somebody chose says all about them already. Such data are
    sparse, so that there are more rounds than usual. Under a privacy budget masks stay, which cost
    no privacy, and rounds are what the budget pays for.
    """
    has_budget = settings.scheme.has_budget
    meant: dict[str, Any] = {"objective": "ranking"}
    if not has_budget:
        meant |= {"mask": "none", "implicit_prior": "items"}
    settings = settings.changed(
        **{name: value for name, value in meant.items() if not was_given(name)}
    )
    if settings.objective != "ranking" or settings.rounds != "auto" or has_budget:
        return settings
    return settings.changed(rounds=ROUNDS_OF_CHOICES)


def for_lists(settings: Settings, ratings: "Ratings", tell: Callable[[str], None]) -> Settings:
    """Return settings of a model that ranks, unless the user's options ask for predicted ratings.

    Where an option does not fit ranking, ratings are predicted.

    Args:
        settings: of the run, as the options give them.
        ratings: what is trained on; without ratings, `for_implicit` decides.
        tell: is told what was chosen, in one line.
    """
    why = "lists were asked for"
    if ratings.is_implicit:
        why, settings = f"{ratings.name} has no ratings", for_implicit(settings)
    elif not was_given("objective") and not _wants_ratings(settings):
        try:
            settings = settings.changed(objective="ranking")
        except SettingsError as misfit:
            tell(f"lists are of predicted ratings, since ranking does not fit: {misfit}")
    if settings.objective != "ranking":
        return settings
    if not was_given("factors") and not settings.scheme.has_budget:
        settings = settings.changed(factors=factors_for_lists(ratings.n_users))
    if not was_given("objective"):
        kind = f"mask {settings.mask}" if ratings.is_implicit else f"solver {settings.solver}"
        instead = "" if ratings.is_implicit else " (--objective rating predicts ratings)"
        tell(f"{why}: objective ranking, {kind}, {settings.factors} factors{instead}")
    return settings


def _wants_ratings(settings: Settings) -> bool:
    """Whether the user named a solver that does not rank, or an option of such a solver."""
    if was_given("solver"):
        return not settings.chosen_solver.ranks
    solvers = registry_of("solver")
    groups = [group for group in all_groups() if group.kind == "solver" and group.member]
    unfit = (group for group in groups if not solvers[group.member].ranks)
    return any(was_given(name) for group in unfit for name in group.model_fields)


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


def setting_option(name: str, default: Any, words: str | None = None) -> inspect.Parameter:
    """The option of a setting: flag, help, type and panel follow from its field.

    Bounds are left to the settings, whose errors say what a number means. Help shows the words,
    where there are any, instead of the default.
    """
    field = Settings.model_fields[name]
    kind, more = _shown_as(name, field.annotation)
    unset = [mark.words for mark in field.metadata if isinstance(mark, Unset)]
    shown = [words] if words else unset
    more |= {"show_default": shown[0]} if shown else {}
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
