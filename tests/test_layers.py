"""What each room of the package may import. The privacy claim rests on this table."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "fedmmf"
BASE = {"errors", "arrays", "rng", "scale", "config", "threads", "checkpoint"}

# room -> rooms of this package that it may import
ALLOWED = {
    "__init__": set(),  # imports lazily, by name
    "__main__": {"cli"},
    "arrays": set(),
    "errors": set(),
    "rng": set(),
    "scale": {"errors"},
    "config": {"errors"},
    "threads": {"errors", "arrays"},
    "checkpoint": {"errors", "arrays"},
    "evaluation": {"arrays"},
    "data": {"errors", "arrays", "rng", "scale"},
    "masks": {"errors", "arrays", "scale", "threads"},
    "factorization": {"errors", "arrays", "threads"},
    "wire": {"errors", "arrays", "factorization"},
    "transport": {"errors"},
    "aggregation": {"errors", "arrays", "coordinator", "factorization", "secagg", "wire"},
    "secagg": {"errors", "arrays"},
    "context": {"arrays", "scale", "masks", "factorization", "wire"},
    "party": {"errors", "arrays", "rng", "scale"}
    | {"aggregation", "context", "factorization", "masks", "secagg", "wire"},
    "coordinator": {"errors", "arrays", "rng", "config", "factorization", "wire"},
    "traffic": {
        "arrays",
        "config",
        "aggregation",
        "coordinator",
        "factorization",
        "secagg",
        "wire",
    },
    "groups": {"arrays", "config", "errors", "aggregation", "factorization", "secagg"},
    "simulation": BASE | {"data", "masks", "factorization", "wire", "coordinator", "groups"},
    "sharing": {"arrays", "attacks", "config", "data", "masks"},
    "training": BASE
    | {"data", "masks", "factorization", "coordinator", "sharing", "simulation", "traffic"},
    "learned": BASE | {"data", "masks", "factorization", "simulation", "traffic", "training"},
    "model": BASE
    | {"data", "evaluation", "federation", "learned", "masks"}
    | {"party", "simulation", "traffic", "training"},
    "baselines": {"arrays", "data", "evaluation", "learned"},
    "paper": BASE
    | {"aggregation", "attacks", "context", "data", "evaluation", "federation", "masks", "model"}
    | {"simulation", "traffic", "training", "transport"},
    "bench": BASE
    | {"coordinator", "data", "evaluation", "masks", "secagg", "sharing", "simulation"},
    "attacks": BASE
    | {"aggregation", "coordinator", "data", "factorization", "federation", "masks", "party"}
    | {"secagg", "simulation", "traffic", "transport", "wire"},
    "federation": BASE
    | {"aggregation", "coordinator", "data", "groups", "masks", "party"}
    | {"secagg", "sharing", "simulation", "traffic", "training", "transport"},
    "reports": {"errors"},
    "cli": BASE
    | {"attacks", "baselines", "bench", "data", "masks", "model", "paper", "reports", "training"},
}
# rooms of the device side
DEVICE = {"party", "context", "secagg", "wire", "rng", "errors", "arrays", "scale"}


def room_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "fedmmf":
                yield from (f"fedmmf.{alias.name}" for alias in node.names)
            else:
                yield str(node.module)


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_imports_only_what_its_row_allows(path):
    room = room_of(path)
    assert room in ALLOWED, f"{room} has no row in the table: decide what it may import"
    if room == "__init__":
        return
    own = {name.split(".")[1] for name in imports(path) if name.startswith("fedmmf.")}
    excess = own - ALLOWED[room] - {room, "__version__"}
    assert not excess, f"{path.name} imports {excess}; {room} may import {ALLOWED[room]}"


def test_the_server_side_knows_no_ratings_features_or_masks():
    knowing = {"data", "masks", "party", "simulation", "training"}
    assert not (ALLOWED["coordinator"] | ALLOWED["secagg"] | ALLOWED["aggregation"]) & knowing


SECAGG = [path for path in FILES if room_of(path) == "secagg"]


@pytest.mark.parametrize("path", SECAGG, ids=lambda path: path.name)
def test_no_secret_comes_from_a_simulations_generator(path):
    assert not {name for name in imports(path) if name in ("random", "numpy.random")}
    assert "np.random" not in path.read_text()


ON_DEVICE = [path for path in FILES if room_of(path) in DEVICE]
ON_DEVICE += [SOURCE / "factorization" / name for name in ("contract.py", "sgd.py", "vb.py")]


@pytest.mark.parametrize("path", ON_DEVICE, ids=lambda path: path.name)
def test_the_device_side_needs_numpy_and_cryptography_alone(path):
    packages = {name.split(".")[0] for name in imports(path)}
    assert not packages - sys.stdlib_module_names - {"fedmmf", "numpy", "cryptography"}


def test_importing_a_party_loads_no_heavy_package():
    heavy = ["numba", "polars", "scipy", "sklearn", "pydantic", "typer", "rich", "pandas"]
    code = f"import sys, fedmmf.party; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
