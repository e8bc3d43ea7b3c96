"""Print what it takes to add one more of each kind: a table, and a diff for each kind.

Example: python experiments/scripts/extending.py

The package in tests/extending/shop has one member of each kind, and the tests beside it run every
member through the contract of its kind. A transport needs no name, and is in the test of its
contract. This script cuts these files apart: for each member it prints the file that an author
would write, with the imports and definitions that the member needs, and the lines of its entry
points. Nothing in src/ is part of any of these diffs.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Sequence
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2] / "tests"
SHOP = TESTS / "extending/shop"
TRANSPORT = TESTS / "transports/test_contract.py"  # has no name: whoever makes parties passes it on
KINDS = {
    "masks": "mask",
    "solvers": "solver",
    "aggregation": "aggregation scheme",
    "engines": "engine",
    "attacks": "attack",
    "datasets": "data set",
    "commands": "command",
}
SETTINGS = "fedmmf.settings"  # its names are kind.member, and it goes with that member
SHARED = {"shop", "shop_settings"}  # modules that have more than one member
HOOKS = "pyproject.toml"  # where a package names its members


@dataclass(frozen=True)
class Added:
    """What one member takes: files to write, and its entry points."""

    kind: str
    name: str
    files: dict[str, str]  # source by name
    points: Sequence[tuple[str, str, str]] = ()  # group, name, module:attribute

    @property
    def n_lines(self) -> int:
        """Lines of code in its files."""
        return sum(text.count("\n") for text in self.files.values())

    def diff(self) -> str:
        """Return what is added, as a unified diff."""
        hooks = []
        for group, name, home in self.points:
            pair = f"{json.dumps(name)} = {json.dumps(home)}"
            hooks += [f'[project.entry-points."{group}"]', pair]
        whole = [_added(name, text.splitlines()) for name, text in self.files.items()]
        return "\n".join([*whole, *([_added(HOOKS, hooks)] if hooks else [])])


def _added(name: str, lines: list[str]) -> str:
    head = ["--- /dev/null", f"+++ b/{name}", f"@@ -0,0 +1,{len(lines)} @@"]
    return "\n".join([*head, *(f"+{line}" for line in lines)])


def members() -> Iterator[Added]:
    """Yield the first member of each kind."""
    points = ConfigParser(delimiters="=")
    points.optionxform = str  # type: ignore[assignment,method-assign] # names keep their case
    points.read(next(SHOP.glob("*.dist-info")) / "entry_points.txt")
    settings = points[SETTINGS].items() if SETTINGS in points else ()
    for group, kind in KINDS.items():
        name, home = next(iter(points[f"fedmmf.{group}"].items()))
        own = [(SETTINGS, at, place) for at, place in settings if at.endswith(f".{name}")]
        yield member(kind, name, [(f"fedmmf.{group}", name, home), *own])
    yield Added("transport", "Threads", {"threads.py": cut_out(TRANSPORT.read_text(), "Threads")})


def member(kind: str, name: str, points: list[tuple[str, str, str]]) -> Added:
    """Return the files that a member's entry points lead to, each as a file of its own."""
    files, written = {}, []
    for number, (group, at, home) in enumerate(points):
        module, _, attribute = home.partition(":")
        new = "_".join(name.replace("-", " ").split()) + ("_settings" if number else "")
        text = (SHOP / f"{module}.py").read_text()
        files[f"{new}.py"] = cut_out(text, attribute) if module in SHARED else text
        written.append((group, at, f"{new}:{attribute}"))
    return Added(kind, name, files, written)


def cut_out(source: str, wanted: str) -> str:
    """Return the part of a module that one of its names needs: imports, then definitions."""
    body = ast.parse(source).body
    defines = {name: node for node in body for name in _defined(node)}
    used, open_names = {wanted}, [wanted]
    while open_names:
        for name in _names(defines[open_names.pop()]) & defines.keys() - used:
            used.add(name)
            open_names.append(name)
    parts = []
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            kept = [alias for alias in node.names if (alias.asname or alias.name) in used]
            if kept:
                node.names = kept
                parts.append(ast.unparse(node))
        elif any(name in used for name in _defined(node)):
            parts.append("\n\n" + _text(source, node))
    return "\n".join(parts) + "\n"


def _text(source: str, node: ast.stmt) -> str:
    """Source of a definition, with its decorators, and with the comment above it."""
    lines = source.splitlines()
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(one.lineno for one in decorators)]) - 1
    while first and lines[first - 1].startswith("#"):
        first -= 1
    return "\n".join(lines[first : node.end_lineno])


def _defined(node: ast.stmt) -> list[str]:
    """Names that a statement of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [name.id for name in ast.walk(node) if _is_stored(name)]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    return []


def _is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def main() -> None:
    """Print the table, then the diffs; `--table` leaves them out."""
    found = list(members())
    print("| to add | example | write | lines | entry points | touch in src/ |")
    print("| --- | --- | --- | --- | --- | --- |")
    for one in found:
        files = ", ".join(f"`{name}`" for name in one.files)
        print(
            f"| {one.kind} | `{one.name}` | {files} | {one.n_lines} | {len(one.points)} | nothing |"
        )
    if "--table" in sys.argv[1:]:
        return
    for one in found:
        print(f"\n## One more {one.kind}: {one.name}\n\n```diff\n{one.diff()}\n```")


if __name__ == "__main__":
    main()
