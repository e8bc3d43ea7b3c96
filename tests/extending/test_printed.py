"""What `experiments/scripts/extending.py` prints is code that has the member."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "experiments" / "scripts" / "extending.py"
PRINTED = runpy.run_path(str(SCRIPT))
MEMBERS = {added.kind: added for added in PRINTED["members"]()}


def test_there_is_one_of_each_kind():
    assert set(MEMBERS) == {*PRINTED["KINDS"].values(), "transport"}


@pytest.mark.parametrize("kind", MEMBERS)
def test_each_file_alone_has_what_its_entry_point_names(kind, tmp_path):
    added = MEMBERS[kind]
    homes = [home for _, _, home in added.points] or ["threads:Threads"]
    for home, (name, text) in zip(homes, added.files.items(), strict=True):
        module, _, attribute = home.partition(":")
        assert name == f"{module}.py"
        (tmp_path / name).write_text(text)
        assert attribute in runpy.run_path(str(tmp_path / name))


def test_a_diff_has_all_of_it():
    added = MEMBERS["mask"]
    lines = added.diff().splitlines()
    names = [line.removeprefix("+++ b/") for line in lines if line.startswith("+++")]
    assert names == ["median.py", "pyproject.toml"]
    assert '+"median" = "median:MEDIAN"' in lines
    assert all("+" + line in lines for line in added.files["median.py"].splitlines())
