"""Explain settings errors: the field, its rule, the value that arrived, what it means."""

from typing import Any

from pydantic import BaseModel, ValidationError


def explain_errors(error: ValidationError, model: type[BaseModel]) -> str:
    """One sentence per field; the alternatives of a field are joined by `or`."""
    rules: dict[str, list[str]] = {}
    given: dict[str, Any] = {}
    for detail in error.errors():
        rule = detail["msg"].removeprefix("Value error, ")
        if not detail["loc"]:  # a rule about several fields explains itself
            return rule
        name = str(detail["loc"][0])
        rules.setdefault(name, []).append(rule.removeprefix("Input "))
        given[name] = detail["input"]
    return "; ".join(_explain_field(name, rules[name], given[name], model) for name in rules)


def _explain_field(name: str, rules: list[str], given: Any, model: type[BaseModel]) -> str:
    if name not in model.model_fields:
        return f"unknown setting {name!r}; the settings are {', '.join(model.model_fields)}"
    meaning = model.model_fields[name].description
    return f"{name} {' or '.join(rules)}; got {given!r} ({meaning})"


def either(names: tuple[str, ...]) -> str:
    """Alternatives in words: 'a', 'b' or 'c'."""
    *some, last = map(repr, names)
    return f"{', '.join(some)} or {last}" if some else last
