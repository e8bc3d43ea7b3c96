"""Tests go through public names: uses of private ones are counted, and have a limit."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("tests", "experiments/tests")
MAX_USES = 60
PRIVATE = re.compile(r"_[^_].*(?<!_)")  # neither __init__ nor _repr_html_, which others define
PATCHED = re.compile(r"([\w.]*\.)?(_[a-zA-Z]\w*(?<!_))")


def private_uses(source):
    """Yield each use of another object's private name: attributes, imports, and names patched.

    An object's own names (`self._x`) are not counted.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and PRIVATE.fullmatch(node.attr):
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names if PRIVATE.fullmatch(alias.name)]
            yield from ((node.lineno, name) for name in names)
        elif isinstance(node, ast.Call):
            yield from patched(node)


def patched(call):
    """Yield a private name that `setattr`, `getattr` or `patch.object` gets as a string."""
    function = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    if function not in ("setattr", "delattr", "getattr", "object"):
        return
    for argument in call.args[:2]:
        text = argument.value if isinstance(argument, ast.Constant) else None
        if isinstance(text, str) and PATCHED.fullmatch(text):
            yield call.lineno, text


def test_tests_use_few_private_names():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, name in private_uses(path.read_text())
    ]
    assert len(found) <= MAX_USES, "\n".join(["use public names instead of some of these:", *found])


@pytest.mark.parametrize(
    ("source", "n_uses"),
    [
        ("party._run.side._agreed", 2),
        ("from fedmmf.party.run import PartyRun, _counted", 1),
        ("monkeypatch.setattr(party, '_run', None)", 1),
        ("monkeypatch.setattr('fedmmf.party.run._counted', None)", 1),
        ("self._mine = model._repr_html_() + module.__doc__ + party.run", 0),
    ],
)
def test_private_uses_are_found(source, n_uses):
    assert len(list(private_uses(source))) == n_uses
