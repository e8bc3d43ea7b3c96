"""A caller's script, as a type checker sees it: every setting has its type."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fedmmf
from fedmmf import FedMMF, Settings

pytest.importorskip("mypy")

RIGHT = """
from typing import Any

from fedmmf import FedMMF, Settings, load

train, test = load("synthetic").split(test=0.2, seed=0)
model = FedMMF(
    mask="lr",
    mask_strength="auto",
    solver="vb",
    factors=20,
    rounds="auto",
    implicit_prior="both",
    seed=0,
).fit(train)
print(model.evaluate(test)["rmse"], model.recommend(user=1, n=3))

settings = Settings(mask="mean", solver="vb", held_out=0, dp_noise="local", threshold_j=0.1)
factors: int = settings.factors
rounds: int = settings.changed(rounds=3).max_rounds

theirs: dict[str, Any] = {"momentum": 0.5}
FedMMF(solver="heavy-ball", **theirs)
FedMMF(**settings.model_dump())
"""
WRONG = {  # a line that is refused: what is said of it
    'FedMMF(factors="20")': 'Argument "factors" to "FedMMF" has incompatible type "str"',
    "FedMMF(mask=3)": 'Argument "mask" to "FedMMF" has incompatible type "int"',
    'FedMMF(rounds="never")': "expected \"int | Literal['auto']\"",
    "FedMMF(factor=20)": 'Unexpected keyword argument "factor" for "FedMMF"',
    "FedMMF(20)": 'Too many positional arguments for "FedMMF"',
    'Settings(sharing="open")': 'Argument "sharing" to "Settings" has incompatible type',
    'Settings(cross_fit="no")': 'Argument "cross_fit" to "Settings" has incompatible type "str"',
    "Settings(epsilon=1.0)": 'Unexpected keyword argument "epsilon" for "Settings"',
    'name: str = Settings(mask="mean", solver="vb").factors': "Incompatible types in assignment",
}


OPTIONS = ["--strict", "--follow-imports=silent", "--config-file="]
CACHE = Path(__file__).parents[2] / ".mypy_cache" / "callers"  # the second time is quicker


def checked(path, code):
    """What mypy says of a script of somebody who has installed the package."""
    path.write_text(code)
    source = str(Path(fedmmf.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *OPTIONS, f"--cache-dir={CACHE}", str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, "MYPYPATH": source},
        cwd=path.parent,
        check=False,
    )
    return done.stdout.splitlines()


def test_a_callers_script_is_checked_line_by_line(tmp_path):
    wrong = [f"from fedmmf import FedMMF, Settings\n{line}\n" for line in WRONG]
    found = checked(tmp_path / "script.py", RIGHT + "".join(wrong))
    begin = RIGHT.count("\n")
    of_wrong = {number: line for number, line in _errors(found).items() if number > begin}
    assert _errors(found) == of_wrong, found
    for at, (line, said) in enumerate(WRONG.items()):
        assert said in of_wrong[begin + 2 * at + 2], (line, found)


def _errors(lines):
    """The first error of each line."""
    errors = [line.split(":", 3) for line in lines if ": error:" in line]
    return {int(number): text for _, number, _, text in reversed(errors)}


def test_what_a_type_checker_sees_is_what_there_is():
    """An interactive editor reads the signature at run time."""
    names = list(inspect.signature(FedMMF).parameters)
    assert names == list(Settings.model_fields)
    for name, parameter in inspect.signature(FedMMF).parameters.items():
        assert parameter.default == Settings.model_fields[name].default
