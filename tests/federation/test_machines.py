"""A server and four sites as processes: trains, equals the simulation, survives kills."""

import numpy as np
import pytest
from machines import (
    EVERYBODY_IN_TIME,
    SITES,
    Machines,
    make_federation,
    split_by_user,
    wait_for_models,
)

from fedmmf.data.synthetic import synthetic
from fedmmf.settings import Settings
from fedmmf.simulation import train

pytest.importorskip("nvflare", reason="NVFlare is not installed: pip install 'fedmmf[federation]'")

RATINGS = synthetic(80, 60, 2400, min_per_user=8, seed=3)
SETTINGS = Settings.checked(solver="vb", factors=4, rounds=12, signed=True, mask="mean")


def made(path, **changes):
    settings = SETTINGS.changed(**changes)
    folder = make_federation(path / "fed", RATINGS, settings, deadlines=EVERYBODY_IN_TIME)
    return Machines(folder, split_by_user(RATINGS, path), test=0.0)


def test_it_equals_the_simulation_and_what_it_writes_is_its_owners(tmp_path):
    with made(tmp_path) as machines:
        machines.start("server", *SITES)
        machines.wait_for_sites(*SITES)
        machines.begin()
        machines.wait_for_end()
        simulated = train(RATINGS, SETTINGS).members[0]
        assert np.abs(machines.model().item_rows - simulated.broadcast.item_rows).max() < 1e-4
        wait_for_models(machines)
        for path in machines.folder.root.glob("sites/*/state/*"):
            assert path.stat().st_mode & 0o077 == 0, path
        asked = machines.say("evaluate", check=False)
        assert asked.returncode == 1
        assert "no site has test ratings" in asked.stderr
