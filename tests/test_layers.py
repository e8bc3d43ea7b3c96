"""What each room of the package may import. The privacy claim rests on this table."""

import ast
import subprocess
import sys
import tomllib
from collections import Counter
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fedmmf"
PROJECT = ROOT / "pyproject.toml"
EXPERIMENTS = ROOT / "experiments" / "src" / "fedmmf_experiments"  # may import anything
BASE = {"arrays", "errors", "rng", "registry", "progress", "settings", "storage", "reports"}
BASE |= {"data.ids", "data.rated_items", "data.scales", "masks.feature_maps", "masks.population"}
BASE |= {"settings.groups", "*.settings"}

# room -> rooms of this package that it may import, in the order in which data flows. A room is a
# package or a module of the root; modules with a row of their own are rooms too.
ALLOWED = {
    "arrays": set(),
    "errors": set(),
    "rng": set(),
    "registry": {"errors"},
    "progress": {"errors"},
    # Names of members and of their settings are looked up by import path. `Settings` is made of the
    # settings of every component (`*.settings`), which know no code of the component.
    "settings.groups": {"errors", "registry", "settings.explaining"},
    "settings.explaining": set(),
    "*.settings": {"settings.groups", "settings.explaining"},
    "settings": {"registry", "settings.groups", "*.settings"},
    "storage": {"arrays", "errors"},
    "reports": {"errors", "registry", "settings.groups", "*.settings"},
    # Public structure, which both sides know.
    "data.scales": {"errors"},
    "data.rated_items": {"arrays"},
    "data.ids": {"arrays", "errors"},
    "masks.population": {"arrays", "data.rated_items", "data.scales"},
    "masks.feature_maps": {"arrays"},
    "data": {"arrays", "data.ids", "data.rated_items", "data.scales", "errors", "registry"}
    | {"rng", "storage"},
    "masks": {"arrays", "data.rated_items", "data.scales", "errors", "masks.feature_maps"}
    | {"masks.population", "registry"},
    "solvers": {"arrays", "data.scales", "errors", "masks.feature_maps", "registry"},
    "wire.codec": {"arrays", "errors"},
    "wire": {"arrays", "data.scales", "errors", "masks.population", "solvers", "wire.codec"},
    "secagg": {"arrays", "errors", "wire.codec"},
    "identity": {"errors", "secagg", "storage"},  # of secagg the keys alone: see below
    "engines": {"arrays", "data.rated_items", "errors", "masks", "registry", "solvers", "storage"},
    "aggregation": {"arrays", "data.rated_items", "data.scales", "engines", "errors"}
    | {"masks.feature_maps", "masks.population", "registry", "secagg", "solvers", "wire"}
    | {"wire.codec"},
    "party": {"aggregation", "arrays", "data.rated_items", "data.scales", "engines", "errors"}
    | {"masks", "masks.feature_maps", "masks.population", "secagg", "solvers", "wire"},
    "transports": {"errors", "registry", "wire", "wire.codec"},
    "web": {"errors"},
    "server": {"aggregation", "arrays", "errors", "masks.feature_maps", "rng", "solvers"}
    | {"transports", "wire"},
    "federation": {"aggregation", "arrays", "data.scales", "errors", "identity", "reports"}
    | {"masks.feature_maps", "secagg", "server", "settings", "settings.explaining"}
    | {"settings.groups", "solvers", "storage", "transports", "web", "wire"},
    "attacks": {"arrays", "data.rated_items", "data.scales", "engines", "errors", "masks"}
    | {"masks.population", "registry", "rng", "solvers"},
    # All parties and the server in one process, with every message.
    "federation.local": BASE
    | {"aggregation", "attacks", "data", "engines", "masks", "party", "secagg", "server"}
    | {"solvers", "transports", "wire"},
    "simulation": BASE
    | {"aggregation", "attacks", "data", "engines", "federation.local", "masks", "party"}
    | {"secagg", "server", "solvers", "wire"},
    "federation.site": BASE
    | {"aggregation", "attacks", "data", "engines", "federation", "federation.local"}
    | {"identity", "masks", "party", "secagg", "solvers", "transports", "wire"},
    "model": BASE
    | {"aggregation", "data", "engines", "federation.local", "masks", "party", "simulation"}
    | {"solvers", "wire"},
    "audit": BASE
    | {"aggregation", "attacks", "data", "engines", "federation.local", "masks", "model"}
    | {"party", "secagg", "server", "simulation", "solvers", "transports", "wire"},
    "interop": BASE | {"masks", "model"},
    "cli": BASE
    | {"audit", "data", "engines", "federation", "federation.site", "identity", "interop"}
    | {"masks", "model"},
    "__init__": set(),  # imports lazily, by name
    "__main__": {"cli"},
}
# What knows ratings, features or masks.
KNOWING = {"data", "masks", "party", "simulation", "federation.local", "federation.site"}
KNOWING |= {"model", "audit"}
# Files of the server's side: of each aggregation scheme, the half that runs there.
SERVER_SIDE = {"federation", "server", "secagg", "transports", "wire", "solvers"}


def room_of(path):
    """The room that a file is in."""
    return room_named(".".join(path.relative_to(SOURCE).with_suffix("").parts))


def room_named(name):
    """The room of a module, named without `fedmmf.`."""
    parts = name.split(".")
    if len(parts) > 1 and parts[-1] == "settings" and parts[0] != "settings":
        return "*.settings"
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
    names = ("plain", "adaptive", "secure", "dp", "homomorphic")
    ways = [f"fedmmf.aggregation.{name}.server" for name in names]
    modules = ("fedmmf.server", "fedmmf.federation.server", "fedmmf.transports.bundles", *ways)
    loaded = loaded_by(f"import {', '.join(modules)}")
    lazy = {"fedmmf.data", "fedmmf.masks"}  # packages whose names are imported at first use
    assert not own_rooms(loaded - lazy) & KNOWING


def test_production_never_imports_the_simulation():
    """The simulation runs production's own user group, so there is one truth."""
    production = [
        room for room in ALLOWED if room.split(".")[0] in ("party", "server", "federation")
    ]
    assert not [room for room in production if "simulation" in ALLOWED[room]]


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


# What a party on a small machine installs: the list is in the pyproject.toml of its distribution.
PARTY = ROOT / "party" / "pyproject.toml"
PARTY_ENTRIES = ["fedmmf.party", "fedmmf.identity", "fedmmf.solvers.sgd", "fedmmf.solvers.vb"]
PARTY_ENTRIES += ["fedmmf.aggregation.dp.guarantee"]  # the noise of a policy
PARTY_ENTRIES += [
    f"fedmmf.aggregation.{scheme.name}.party"
    for scheme in (SOURCE / "aggregation").iterdir()
    if (scheme / "party.py").exists()
]


def modules_of_party():
    """Modules that the party's distribution packages."""
    built = tomllib.loads(PARTY.read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    files = set()
    for source, target in built["force-include"].items():
        path = (PARTY.parent / source).resolve()
        assert path == ROOT / "src" / target, f"{source} would be installed as {target}"
        assert path.exists(), f"{PARTY} packages {source}, which is not there"
        files |= set(path.rglob("*.py")) if path.is_dir() else {path} - {SOURCE / "py.typed"}
    return {module_of(path) for path in files}


def module_of(path):
    name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
    return name.removesuffix(".__init__")


def imported_by(names):
    """These modules and all of this package that they import, whenever they do."""
    modules, found, left = {module_of(path): path for path in FILES}, set(), list(names)
    while left:
        name = left.pop()
        if name in modules and name not in found:
            found.add(name)
            left += [name.rpartition(".")[0], *names_imported(modules[name])]
    return found


def names_imported(path):
    """What a file imports; a name from a package may be a module of it."""
    yield from imports(path)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_partys_distribution_has_what_a_party_imports_and_no_more():
    """But settings beside a solver or a mask, which are for who writes a charter."""
    packaged, imported = modules_of_party(), imported_by(PARTY_ENTRIES)
    assert not imported - packaged
    assert not [name for name in packaged - imported if not name.endswith(".settings")]


def test_the_partys_distribution_asks_for_the_versions_that_the_library_asks_for():
    party, whole = (tomllib.loads(path.read_text())["project"] for path in (PARTY, PROJECT))
    assert {*party["dependencies"]} <= {*whole["dependencies"]}
    assert len(party["dependencies"]) == 2
    for extra, wanted in party["optional-dependencies"].items():
        assert wanted == whole["optional-dependencies"][extra]


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
views = MaskPlan("mean").views(features)
data = PartyData(catalogue, views, lists, np.array([1, 5, 4], np.float32))
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
RANKING = "implicit=both profile=0 design=1 levels=0 joint=0"
ORDINAL = "implicit=both profile=0 design=0 levels=5 joint=0"


@pytest.mark.parametrize(("solver", "variant"), [("sgd", ""), ("vb", RANKING), ("vb", ORDINAL)])
def test_a_device_loads_files_of_its_distribution_alone(solver, variant):
    """Of these, none of another solver or scheme, and no identities unless it has one."""
    code = TAKE_PART.format(solver=solver, variant=variant)
    loaded = loaded_by(f"exec({code!r})")
    own = {name for name in loaded if name.split(".")[0] == "fedmmf"}
    assert own <= modules_of_party()
    rooms = {".".join(name.split(".")[1:3]) for name in own}
    others = {"plain", "adaptive", "homomorphic", "dp"}
    assert not rooms & {"identity", "storage", *(f"aggregation.{name}" for name in others)}
    assert rooms & {"solvers.sgd", "solvers.vb"} == {f"solvers.{solver}"}
    packages = {name.split(".")[0] for name in loaded} & set(packages_distributions())
    assert {name for name in packages if not name.startswith("_")} <= {
        "fedmmf", "numpy", "cryptography", "cffi",
    }  # fmt: skip


WEB = {"starlette", "uvicorn", "prometheus_client"}


def test_only_a_running_server_loads_what_serves_pages():
    """Neither a site nor an operator's command waits for it, or needs it installed."""
    modules = ("federation.site.process", "federation.operator", "federation.server")
    loaded = loaded_by(f"import {', '.join(f'fedmmf.{name}' for name in modules)}")
    assert not {name.split(".")[0] for name in loaded} & WEB


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
