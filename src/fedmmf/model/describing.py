"""The settings' part of `help(FedMMF)`, made from their fields."""

import inspect
import textwrap
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

from fedmmf.settings import Settings

_WIDTH = 100
P = ParamSpec("P")


def with_the_parameters_of(
    made: Callable[P, Settings],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Tell type checkers that a method takes the keywords of `made`; nothing changes at run time.

    Names, types and defaults are those of the settings, so that they cannot go stale.
    """
    return lambda method: method


def with_settings(about: str) -> str:
    """A class's docstring with every setting, its default and what it means, by component."""
    text = inspect.cleandoc(about).replace("\nExamples:", "\nSettings:\n{settings}\n\nExamples:")
    return text.replace("{settings}", "\n".join(_lines()))


def _lines() -> list[str]:
    found: list[str] = []
    for title, names in Settings.groups().items():
        found += ["", f"  {title}"]
        for name in names:
            field = Settings.model_fields[name]
            words = f"{name} ({field.default!r}): {field.description}"
            indents = {"initial_indent": "    ", "subsequent_indent": "        "}
            found += textwrap.wrap(words, _WIDTH - 4, **indents)  # type: ignore[arg-type]
    return found[1:]


def short_signature() -> inspect.Signature:
    """Names and defaults of the settings; their types are in errors and would fill a screen."""
    kind = inspect.Parameter.KEYWORD_ONLY
    fields = Settings.model_fields.items()
    return inspect.Signature(
        [inspect.Parameter(name, kind, default=field.default) for name, field in fields]
    )
