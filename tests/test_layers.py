"""What each room of the package may import. The privacy claim rests on this table."""

import ast
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fedmmf"
EXPERIMENTS = ROOT / "experiments" / "src" / "fedmmf_experiments"  # may import anything
BASE = {"arrays", "errors", "rng", "registry", "progress", "settings", "storage", "reports"}
BASE |= {"data.ids", "data.rated_items", "data.scales", "masks.feature_maps", "masks.population"}

# room -> rooms of this package that it may import, in the order in which data flows. A room is a
# package or a module of the root; modules with a row of their own are rooms too.
ALLOWED = {
    "arrays": set(),
    "errors": set(),
    "rng": set(),
    "registry": {"errors"},
    "progress": {"errors"},
    "settings": {"errors", "registry"},  # names of members are looked up by import path
    "storage": {"arrays", "errors"},
    "reports": {"errors", "registry"},
    # Public structure, which both sides know.
    "data.scales": {"errors"},
    "data.rated_items": {"arrays"},
    "data.ids": {"arrays", "errors"},
    "masks.population": {"arrays", "data.rated_items", "data.scales"},
    "masks.feature_maps": {"arrays"},
    "data": {"arrays", "data.ids", "data.scales", "errors", "registry", "rng", "storage"},
    "masks": {"arrays", "data.rated_items", "data.scales", "errors", "masks.feature_maps"}
    | {"masks.population", "registry"},
    "solvers": {"arrays", "data.scales", "errors", "masks.feature_maps", "registry"},
    "wire": {"arrays", "data.scales", "errors", "masks.population", "solvers"},
    "secagg": {"arrays", "errors"},
    "identity": {"errors", "secagg", "storage"},  # of secagg the keys alone: see below
    "engines": {"arrays", "data.rated_items", "errors", "masks", "registry", "solvers"},
    "aggregation": {"arrays", "data.rated_items", "data.scales", "engines", "errors"}
    | {"masks.population", "registry", "secagg", "solvers", "wire"},
    "party": {"aggregation", "arrays", "data.rated_items", "data.scales", "engines", "errors"}
    | {"masks", "masks.feature_maps", "masks.population", "secagg", "solvers", "wire"},
    "transports": {"errors", "registry", "wire"},
    "server": {"aggregation", "arrays", "errors", "rng", "solvers", "transports", "wire"},
    "federation": {"aggregation", "arrays", "data.scales", "errors", "identity", "reports"}
    | {"masks.feature_maps", "secagg", "server", "settings", "solvers", "storage"}
    | {"transports", "wire"},
    "attacks": {"arrays", "data.rated_items", "data.scales", "engines", "errors", "masks"}
    | {"masks.population", "registry", "rng", "solvers"},
    "simulation": BASE
    | {"aggregation", "attacks", "data", "engines", "masks", "party", "secagg", "server"}
    | {"solvers", "transports", "wire"},
    "federation.site": BASE
    | {"aggregation", "data", "engines", "federation", "identity", "masks", "party"}
    | {"secagg", "simulation", "solvers", "transports", "wire"},
    "model": BASE
    | {"aggregation", "data", "engines", "masks", "party", "simulation", "solvers", "wire"},
    "audit": BASE
    | {"aggregation", "attacks", "data", "masks", "party", "secagg", "server", "simulation"}
    | {"solvers", "transports", "wire"},
    "interop": BASE | {"masks", "model"},
    "cli": BASE
    | {"audit", "data", "engines", "federation", "federation.site", "identity", "interop"}
    | {"masks", "model"},
    "__init__": set(),  # imports lazily, by name
    "__main__": {"cli"},
}
# What knows ratings, features or masks.
KNOWING = {"data", "masks", "party", "simulation", "federation.site", "model", "audit"}
# Files of the server's side: of each aggregation scheme, the half that runs there.
SERVER_SIDE = {"federation", "server", "secagg", "transports", "wire", "solvers"}


def room_of(path):
    """The room that a file is in."""
    return room_named(".".join(path.relative_to(SOURCE).with_suffix("").parts))


def room_named(name):
    """The room of a module, named without `fedmmf.`."""
    parts = name.split(".")
    return ".".join(parts[:2]) if ".".join(parts[:2]) in ALLOWED else parts[0]


def own_rooms(names):
    """Rooms of this package among some modules."""
    return {
        room_named(name.removeprefix("fedmmf.")) for name in names if name.startswith("fedmmf.")
    }


def imports(path, *, with_types=False):
    """Modules that a file imports; those for type checkers alone do not count."""
    tree = ast.parse(path.read_text())
    skipped = set() if with_types else for_types_only(tree)
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "fedmmf":
                yield from (f"fedmmf.{alias.name}" for alias in node.names)
            else:
                yield str(node.module)


def for_types_only(tree):
    blocks = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    return {inner for block in blocks for inner in ast.walk(block)}


FILES = sorted(SOURCE.rglob("*.py"))
ALL_FILES = [*FILES, *sorted(EXPERIMENTS.rglob("*.py"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_imports_only_what_its_row_allows(path):
    room = room_of(path)
    assert room in ALLOWED, f"{room} has no row in the table: decide what it may import"
    if room == "__init__":
        return
    own = own_rooms(imports(path, with_types=True))
    excess = own - ALLOWED[room] - {room, "__version__"}
    assert not excess, f"{path.name} imports {excess}; {room} may import {ALLOWED[room]}"


def test_the_library_does_not_know_the_experiments():
    """Their commands are found by entry points alone."""
    assert not [path for path in FILES if "fedmmf_experiments" in path.read_text()]


def test_the_table_is_a_graph_without_cycles():
    tuple(TopologicalSorter(ALLOWED).static_order())


def test_the_table_allows_nothing_that_is_not_used():
    used = {room: set() for room in ALLOWED}
    for path in FILES:
        used[room_of(path)] |= own_rooms(imports(path, with_types=True))
    unused = {room: ALLOWED[room] - used[room] - BASE for room in ALLOWED if room != "__init__"}
    assert not {room: names for room, names in unused.items() if names}


def loaded_by(code):
    """Modules of this package that are there after some code has run, in a process of its own."""
    code += "; import sys; print(*sorted(m for m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_server_side_knows_no_ratings_features_or_masks():
    """Neither by the table nor by what is loaded when a server starts."""
    for room in SERVER_SIDE:
        assert not ALLOWED[room] & KNOWING, room
    names = ("plain", "adaptive", "secure", "dp")
    ways = [f"fedmmf.aggregation.{name}.server" for name in names] + [
        "fedmmf.aggregation.homomorphic.keeper"
    ]
    modules = ("fedmmf.server", "fedmmf.federation.server", "fedmmf.transports.bundles", *ways)
    loaded = loaded_by(f"import {', '.join(modules)}")
    lazy = {"fedmmf.data", "fedmmf.masks"}  # packages whose names are imported at first use
    assert not own_rooms(loaded - lazy) & KNOWING


def test_identities_need_the_standard_library_and_cryptography_alone():
    """Whoever keeps a list of identities needs no numbers and no part of a federation."""
    loaded = loaded_by("import fedmmf.identity")
    own = {name for name in loaded if name.split(".")[0] == "fedmmf"}
    assert {name for name in own if "identity" not in name} == {
        "fedmmf", "fedmmf.errors", "fedmmf.secagg", "fedmmf.secagg.errors", "fedmmf.secagg.keys",
        "fedmmf.storage", "fedmmf.storage.atomic",
    }  # fmt: skip
    assert "numpy" not in loaded


SECAGG = [path for path in FILES if room_of(path) == "secagg"]


@pytest.mark.parametrize("path", SECAGG, ids=lambda path: path.name)
def test_secagg_has_no_simulations_generator_and_no_clock(path):
    assert not set(imports(path)) & {"random", "numpy.random", "time", "datetime"}
    assert "np.random" not in path.read_text()


# All that a device loads to take part in secure sums, besides its solver.
DEVICE = [
    "fedmmf",
    "fedmmf.arrays",
    "fedmmf.data",
    "fedmmf.engines",
    "fedmmf.engines.contract",
    "fedmmf.engines.reference",
    "fedmmf.errors",
    "fedmmf.masks.feature_maps",
    "fedmmf.data.rated_items",
    "fedmmf.masks",
    "fedmmf.masks.families",
    "fedmmf.masks.fitting",
    "fedmmf.masks.indicator",
    "fedmmf.masks.lines",
    "fedmmf.masks.models",
    "fedmmf.party",
    "fedmmf.party.device",
    "fedmmf.party.expectation",
    "fedmmf.party.guards",
    "fedmmf.party.policy",
    "fedmmf.party.run",
    "fedmmf.party.users",
    "fedmmf.masks.population",
    "fedmmf.registry",
    "fedmmf.data.scales",
    "fedmmf.secagg",
    "fedmmf.secagg.client",
    "fedmmf.secagg.codec",
    "fedmmf.secagg.errors",
    "fedmmf.secagg.framing",
    "fedmmf.secagg.graph",
    "fedmmf.secagg.keys",
    "fedmmf.secagg.messages",
    "fedmmf.secagg.policy",
    "fedmmf.secagg.prg",
    "fedmmf.secagg.ring",
    "fedmmf.secagg.session",
    "fedmmf.secagg.setup",
    "fedmmf.secagg.shamir",
    "fedmmf.solvers",
    "fedmmf.solvers.contract",
    "fedmmf.aggregation",
    "fedmmf.aggregation.contract",
    "fedmmf.aggregation.party_side",
    "fedmmf.aggregation.secure",
    "fedmmf.aggregation.secure.agreed",
    "fedmmf.aggregation.secure.messages",
    "fedmmf.aggregation.secure.party",
    "fedmmf.aggregation.secure.disclosure",
    "fedmmf.aggregation.vector",
    "fedmmf.wire",
    "fedmmf.wire.catalogue",
    "fedmmf.wire.frames",
    "fedmmf.wire.kinds",
    "fedmmf.wire.messages",
]
TAKE_PART = """
import numpy as np
from fedmmf.data.rated_items import RatedItems
from fedmmf.masks.fitting import MaskPlan
from fedmmf.party import Expectation, Party, PartyData, Policy
from fedmmf.data.scales import RatingScale
from fedmmf.solvers import SOLVERS
from fedmmf.wire import Adopt, Adopted, Catalogue, Invitation, Joined, Layout, name_of, parcel
scale, features = RatingScale(1, 5, 1), np.zeros((4, 2))
catalogue = Catalogue.of(range(4), scale, features)
lists = RatedItems.of_one(np.array([0, 2, 3], np.int32))
data = PartyData(catalogue, features, lists, np.array([1, 5, 4], np.float32))
solver, variant = {solver!r}, {variant!r}
known = dict(rank=2, rounds=9, sums="secure", columns=1, minimum=3, min_raters=3)
expected = Expectation(solver=solver, variant=variant, **known)
party = Party(data, MaskPlan("mean"), Policy(), expected)
bounds = SOLVERS[solver].bounds(scale.span)
agreed = (solver, 2, variant, 9, "secure", bounds.row, bounds.total, 1, 3)
invitation = Invitation(bytes(16), catalogue.digest, 1.0, 5.0, 1.0, *agreed)
Joined.decode(party.answer(invitation.encode()))
layout = Layout(np.arange(4, dtype=np.int32), np.array([3.5]), 1.0).encode()
Adopted.decode(party.answer(parcel(Adopt(name_of(layout)), layout)))
assert len(party.masks.theta) == 1
"""
OF_SOLVERS = {
    "sgd": {"fedmmf.solvers.sgd"},
    "vb": {
        f"fedmmf.solvers.vb{part}"
        for part in ("", ".shapes", ".ordinal", ".party", ".reading", ".server", ".start")
    },
}
RANKING = "implicit=both profile=0 design=1 levels=0 joint=0"
ORDINAL = "implicit=both profile=0 design=0 levels=5 joint=0"


@pytest.mark.parametrize(("solver", "variant"), [("sgd", ""), ("vb", RANKING), ("vb", ORDINAL)])
def test_a_device_loads_these_files_and_no_others(solver, variant):
    code = TAKE_PART.format(solver=solver, variant=variant)
    loaded = loaded_by(f"exec({code!r})")
    own = {name for name in loaded if name.split(".")[0] == "fedmmf"}
    assert own == set(DEVICE) | OF_SOLVERS[solver]
    packages = {name.split(".")[0] for name in loaded} & set(packages_distributions())
    assert {name for name in packages if not name.startswith("_")} <= {
        "fedmmf", "numpy", "cryptography", "cffi",
    }  # fmt: skip


HEAVY = {"matplotlib", "numba", "pandas", "polars", "pydantic", "rich", "scipy", "sklearn", "typer"}
HELP = "import fedmmf.cli.app as a; a.app(['--help'], standalone_mode=False)"
STARTS = {
    "import fedmmf": set(),
    "import fedmmf.party": set(),
    "from fedmmf import FedMMF": {"polars", "pydantic"},
    "from fedmmf import Ratings, load": {"polars"},
    "import fedmmf.cli.app": {"rich", "typer"},
    HELP: {"rich", "typer"},
    "from typer.main import get_command as g; import fedmmf.cli.app as a; "
    "g(a.app).get_command(None, 'train')": {"rich", "typer", "polars", "pydantic"},
}


@pytest.mark.parametrize("code", STARTS)
def test_nobody_waits_for_what_is_not_needed_yet(code):
    """`fedmmf bench imports` says how long each takes."""
    loaded = {name.split(".")[0] for name in loaded_by(code)}
    assert loaded & HEAVY <= STARTS[code]


def test_help_needs_no_numbers_and_no_commands_of_other_packages():
    loaded = {name.split(".")[0] for name in loaded_by(HELP)}
    assert not loaded & {"numpy", "fedmmf_experiments"}


def test_no_name_is_used_for_two_classes():
    names = Counter(
        node.name
        for path in ALL_FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert not {name for name, count in names.items() if count > 1}


def test_functions_have_six_parameters_at_most_outside_kernels():
    wide = []
    for path in ALL_FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef) or is_kernel(node):
                continue
            names = [a.arg for a in (*node.args.args, *node.args.kwonlyargs)]
            count = len([name for name in names if name not in ("self", "cls")])
            if count > 6:
                wide.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {count}")
    assert not wide


def is_kernel(node):
    """Compiled by numba or Triton, which take arrays one by one; or handed over for that."""
    is_jitted = any("jit" in ast.unparse(decorator) for decorator in node.decorator_list)
    return is_jitted or node.name in ("train", "apply")


def test_no_file_is_long():
    """Kernels may be a little longer: their cache notices changes of their own file alone."""
    most = {path: 450 if "engines" in path.parts else 400 for path in ALL_FILES}
    assert not [path for path in ALL_FILES if path.read_text().count("\n") > most[path]]
