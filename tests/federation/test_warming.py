"""Kernels are compiled before a site says hello, so that no deadline pays for it."""

import subprocess
import sys
from pathlib import Path

import pytest
from machines import Machines, make_federation, split_by_user

from fedmmf.data.synthetic import synthetic
from fedmmf.settings import Settings

pytest.importorskip("nvflare", reason="certificates are made by NVFlare's provisioning")

RATINGS = synthetic(24, 12, 200, min_per_user=6, seed=3)
COUNTED = """
import sys
from pathlib import Path

import numba.core.dispatcher
import pkgutil, importlib

sys.path.insert(0, sys.argv[1])
from inside import Inside
from machines import SITES, make_federation, split_by_user

from fedmmf.settings import Settings
from fedmmf.data.synthetic import synthetic
from fedmmf.engines import kernels
from fedmmf.federation.site.warming import compile_kernels

settings = Settings.checked(**eval(sys.argv[3]), rounds=2, factors=3, signed=True, min_raters=1)
ratings = synthetic(24, 12, 200, min_per_user=6, seed=3)


def compiled():
    names = [found.name for found in pkgutil.iter_modules(kernels.__path__)]
    modules = [importlib.import_module(f"{kernels.__name__}.{name}") for name in names]
    return {
        (module.__name__, name): tuple(map(str, thing.signatures))
        for module in modules
        for name, thing in vars(module).items()
        if isinstance(thing, numba.core.dispatcher.Dispatcher)
    }


nothing = compiled()
compile_kernels(settings)
before = compiled()
assert before != nothing
root = Path(sys.argv[2])
folder = make_federation(root / "fed", ratings, settings, deadlines={"gathering": 0.01})
made = Inside(folder, split_by_user(ratings, root), test=0.3)
for site in SITES:
    made.start_site(site)
site = made.processes["a"].site
site.take_model(made.run())
site.predicted()
assert compiled() == before
"""


@pytest.mark.parametrize(
    "settings", [{"solver": "vb", "mask": "lr"}, {"solver": "sgd", "mask": "mean"}]
)
def test_rounds_and_tests_of_a_site_compile_nothing_that_its_start_has_not(tmp_path, settings):
    here = str(Path(__file__).parent)
    words = [sys.executable, "-c", COUNTED, here, str(tmp_path), repr(settings)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_a_start_loads_no_package_that_rounds_do_without():
    """It took 1.1 s of a processor and 120 MB in every site."""
    asked = """
import sys
from fedmmf.settings import Settings
from fedmmf.federation.site.process import SiteProcess
from fedmmf.federation.site.warming import compile_kernels
compile_kernels(Settings.checked(solver="vb", mask="lr", signed=True))
print([name for name in ("sklearn", "pandas", "scipy.stats") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, timeout=600, check=True
    )
    assert done.stdout == "[]\n"


def test_a_site_compiles_before_it_looks_for_the_server(tmp_path):
    settings = Settings.checked(solver="vb", factors=2, rounds=2, signed=True, mask="mean")
    folder = make_federation(tmp_path / "fed", RATINGS, settings)
    with Machines(folder, split_by_user(RATINGS, tmp_path)) as machines:
        machines.start("server", "a")
        machines.wait_for_sites("a")
        said = machines.log_of("a").read_text()
        assert said.index("preparing compiled code") < said.index("looking for the server")
