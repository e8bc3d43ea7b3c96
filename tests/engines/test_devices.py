"""What people are told who ask for a device, with and without torch."""

import subprocess
import sys

import pytest

from fedmmf.errors import SettingsError
from fedmmf.settings import Settings

TRAIN = ("train", "--data", "synthetic", "--rounds", "2", "--json")
# Not `sys.modules['torch'] = None`: libraries look there for what is loaded.
WITHOUT = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NoTorch())
from fedmmf.cli import main
main()
"""


def without_torch(*words):
    order = [sys.executable, "-c", WITHOUT, *words]
    return subprocess.run(order, capture_output=True, text=True, check=False)


def test_without_torch_its_engine_says_how_to_get_it():
    done = without_torch(*TRAIN, "--engine", "torch")
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert "the engine 'torch' needs the package torch" in said
    assert "pip install 'fedmmf[gpu]'" in said
    assert "Traceback" not in done.stderr


def test_other_engines_need_no_torch():
    assert without_torch(*TRAIN, "--engine", "numba").returncode == 0


@pytest.mark.parametrize("chosen", [{"device": "cpu"}, {"pieces": 2}], ids=str)
@pytest.mark.parametrize("engine", ["numba", "numpy", "ray"])
def test_an_engine_without_a_device_takes_none(engine, chosen):
    with pytest.raises(SettingsError, match=f"needs engine 'torch'; got engine '{engine}'"):
        Settings.checked(engine=engine, **chosen)
    assert Settings.checked(engine="torch", solver="vb", **chosen).engine == "torch"


def test_pieces_are_of_vb():
    with pytest.raises(
        SettingsError, match="pieces needs solver 'vb'; got pieces 2 and solver 'sgd'"
    ):
        Settings.checked(engine="torch", pieces=2)
