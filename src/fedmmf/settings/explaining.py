"""Explain settings errors: the field, its rule, the value that arrived, what it means."""

from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

_RULES = {  # our words for each kind of error that a field can have
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "finite_number": "a finite number",
    "float_type": "a number",
    "float_parsing": "a number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "bool_type": "True or False",
    "bool_parsing": "True or False",
    "string_type": "a text",
    "literal_error": "{expected}",
    "tuple_type": "a list",
    "list_type": "a list",
    "too_short": "{min_length} or more",
    "too_long": "{max_length} or fewer",
    "missing": "given",
    "model_type": "a table of settings",
    "dict_type": "a table of settings",
    "model_attributes_type": "a table of settings",
}


def explain_errors(error: ValidationError, model: type[BaseModel]) -> str:
    """Return one sentence per wrong field; what it may be instead is joined by `or`."""
    rules: dict[str, list[str]] = {}
    given: dict[str, Any] = {}
    for detail in error.errors():
        if not detail["loc"]:  # a rule about several fields explains itself
            return rule_of(detail)
        name = str(detail["loc"][0])
        rules.setdefault(name, []).append(rule_of(detail).removeprefix("should be "))
        given[name] = detail["input"]
    return "; ".join(_explain_field(name, rules[name], given[name], model) for name in rules)


def rule_of(detail: ErrorDetails) -> str:
    """Return the rule that a value breaks, in our words: `should be ...`."""
    about = {name: _number(value) for name, value in detail.get("ctx", {}).items()}
    if detail["type"] in _RULES:
        return f"should be {_RULES[detail['type']].format_map(about)}"
    return detail["msg"].removeprefix("Value error, ")


def _number(value: Any) -> Any:
    return f"{value:g}" if isinstance(value, float) else value


def _explain_field(name: str, rules: list[str], given: Any, model: type[BaseModel]) -> str:
    if name not in model.model_fields:
        return unknown_setting(name, model)
    meaning = model.model_fields[name].description
    return f"{name} should be {' or '.join(rules)}; got {given!r} ({meaning})"


def unknown_setting(name: str, model: type[BaseModel]) -> str:
    """Say that there is no such setting, and which is nearest; if none is near, which there are."""
    close = get_close_matches(name, model.model_fields, 1)
    if close:
        meaning = model.model_fields[close[0]].description
        about = f" ({meaning})" if meaning else ""
        return f"unknown setting {name!r}; did you mean {close[0]!r}?{about}"
    return f"unknown setting {name!r}. The settings are {', '.join(model.model_fields)}"


def either(names: tuple[str, ...]) -> str:
    """Alternatives in words: 'a', 'b' or 'c'."""
    *some, last = map(repr, names)
    return f"{', '.join(some)} or {last}" if some else last
