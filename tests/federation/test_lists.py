"""Lists at a site: its files are read once for any number of users, and errors say what to use."""

import json
import subprocess
import sys

import pytest
from inside import Inside
from machines import SITES, make_federation, split_by_user

from fedmmf.data.synthetic import synthetic
from fedmmf.errors import CheckpointError
from fedmmf.federation.site.serving import SiteModel, recommend
from fedmmf.model import FedMMF
from fedmmf.settings import Settings
from fedmmf.storage import checkpoints

pytest.importorskip("nvflare", reason="certificates are made by NVFlare's provisioning")

RATINGS = synthetic(24, 12, 200, min_per_user=6, seed=3)
SETTINGS = Settings.checked(solver="vb", factors=2, rounds=2, signed=True, mask="mean")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A federation that has finished."""
    root = tmp_path_factory.mktemp("lists")
    made = Inside(
        make_federation(root / "fed", RATINGS, SETTINGS, deadlines={"gathering": 0.01}),
        split_by_user(RATINGS, root),
    )
    for site in SITES:
        made.start_site(site)
    parcel = made.run()
    made.processes["a"].site.take_model(parcel)
    return made.folder


def test_files_are_read_once_for_many_lists(folder, monkeypatch):
    users = [str(user) for user in RATINGS.user_ids[:6]]
    expected = [recommend(folder, "a", user, 3) for user in users]
    read, load = [], checkpoints.load
    monkeypatch.setattr(
        checkpoints, "load", lambda path, kind: read.append(kind) or load(path, kind)
    )
    model = SiteModel(folder, "a")
    assert [model.recommend(user, 3) for user in users] == expected
    assert sorted(read) == ["catalogue", "holdings", "result"]


def test_one_command_makes_lists_for_a_file_of_users(folder, tmp_path):
    users = [str(user) for user in RATINGS.user_ids[:3]]
    wanted = tmp_path / "users.txt"
    wanted.write_text("\n".join(users) + "\n")
    words = ["federation", "recommend", str(folder.root), "--site", "a", "--users", str(wanted)]
    done = subprocess.run(
        [sys.executable, "-m", "fedmmf", *words, "-n", "2", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    lists = json.loads(done.stdout)["lists"]
    assert [one["user"] for one in lists] == users
    assert all(len(one["recommendations"]) == 2 for one in lists)


def test_a_sites_result_where_a_model_is_due_is_told_with_what_to_use(folder):
    with pytest.raises(CheckpointError, match="fedmmf federation recommend DIR"):
        FedMMF.load(folder.root / "sites" / "a" / "state" / "result.npz")
