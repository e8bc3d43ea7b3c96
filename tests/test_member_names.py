"""Nothing outside a member's own files compares the member's name with a text.

Who has to tell members apart asks what they declare (`scheme.has_budget`, `solver.ranks`,
`family.needs_features`), so that a member of another package is treated as it deserves. An engine
has a table of the kernels that it has, by the solver that they are for.
"""

import ast
from pathlib import Path

import pytest

import fedmmf
from fedmmf.aggregation import AGGREGATIONS
from fedmmf.engines import ENGINES
from fedmmf.masks.families import FAMILIES
from fedmmf.solvers import SOLVERS

SOURCE = Path(fedmmf.__file__).parent
# Files in which a name may be compared: those of the member.
HOMES = {
    **dict.fromkeys(("none", "mean", "lr", "fm", "nn"), "masks/"),
    **{name: f"solvers/{name}/" for name in ("sgd", "vb")},
    **{name: f"aggregation/{name}/" for name in ("plain", "adaptive", "secure", "dp")},
    **dict.fromkeys(("homomorphic-paillier", "homomorphic-ckks"), "aggregation/homomorphic/"),
    "numba": "engines/kernels/",
    "numpy": "engines/reference.py",
    "ray": "engines/ray/",
    "torch": "engines/torch/",
}
# Texts that are no member's name where they stand, and the reason.
ALLOWED = {
    ("aggregation/dp/settings.py", "mean"): "a rule for steps",
    ("data/codes.py", "mean"): "what to do with a repeated pair",
    ("engines/torch/sgd.py", "mean"): "a rule for steps",
    ("solvers/sgd/__init__.py", "mean"): "a rule for steps",
    ("party/policy.py", "adaptive"): "what the owner allows, in words of the owner's policy",
    ("party/policy.py", "plain"): "what the owner allows, in words of the owner's policy",
}


def test_every_member_of_this_package_has_a_home():
    registries = (FAMILIES, SOLVERS, AGGREGATIONS, ENGINES)
    assert {name for registry in registries for name in registry.names()} <= HOMES.keys()


def compared(tree):
    """The texts that are compared with something: ==, !=, in, not in, match."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                yield from texts(side)
        elif isinstance(node, ast.MatchValue):
            yield from texts(node.value)


def texts(side):
    parts = side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else [side]
    for part in parts:
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


FOUND = {
    (str(path.relative_to(SOURCE)), name)
    for path in SOURCE.rglob("*.py")
    for name in compared(ast.parse(path.read_text()))
    if name in HOMES and not str(path.relative_to(SOURCE)).startswith(HOMES[name])
}


@pytest.mark.parametrize(("path", "name"), sorted(FOUND))
def test_no_other_file_compares_a_members_name(path, name):
    assert (path, name) in ALLOWED, f"{path} compares {name!r}; ask what the member declares"


def test_nothing_is_allowed_that_is_not_there():
    assert ALLOWED.keys() <= FOUND


def test_a_comparison_would_be_found():
    code = 'a == "dp"; b in ("secure", "vb"); {"dp": 1}; f("lr")'
    assert set(compared(ast.parse(code))) == {"dp", "secure", "vb"}
