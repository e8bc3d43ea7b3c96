"""The party's distribution, in an empty environment: it takes part in a training through a pipe.

The script is that of docs/party.md, and the model is that of parties in one process.
"""

import json
import re
import subprocess
import sys
import venv
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from fedmmf.data.features import content_features
from fedmmf.data.rated_items import RatedItems
from fedmmf.data.synthetic import synthetic
from fedmmf.federation.local import make_parties, server_plan
from fedmmf.masks import MaskPlan
from fedmmf.party import Expectation, PartyData
from fedmmf.server import FederationServer
from fedmmf.settings import Settings
from fedmmf.transports.in_process import InProcess
from fedmmf.wire import Catalogue, Finished, Joined

ROOT = Path(__file__).parents[2]
SCRIPT = re.search(r"```py\n(.*?)```", (ROOT / "docs" / "party.md").read_text(), re.DOTALL)[1]
FOLLOWED = "000003"  # the party that runs in a process of its own


def pip(*words):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """An interpreter of an environment with the distribution, numpy and cryptography alone."""
    folder = tmp_path_factory.mktemp("party")
    needed = ["hatchling>=1.27,<2", "--constraint", ROOT / "constraints.txt"]
    if pip("download", "--no-deps", "--dest", folder / "tools", *needed).returncode:
        pytest.skip("hatchling, which builds the wheel, cannot be had: there is no package index")
    built = pip("wheel", "--no-deps", "--wheel-dir", folder, ROOT / "party")
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("fedmmf_party-*.whl")
    venv.create(folder / "env", symlinks=True)
    found = folder / "env" / "bin" / "python"
    into = ["--python", found, "install", "--quiet", "--constraint", ROOT / "constraints.txt"]
    put = pip(*into, wheel)
    assert put.returncode == 0, put.stderr
    return found


class Piped:
    """A party in a process of its own, which answers on its standard output."""

    def __init__(self, process):
        self._process, self.answers = process, []

    def answer(self, data):
        self._process.stdin.write(len(data).to_bytes(4, "little") + data)
        self._process.stdin.flush()
        size = int.from_bytes(self._process.stdout.read(4), "little")
        self.answers.append(self._process.stdout.read(size))
        return self.answers[-1]


@contextmanager
def started(python, folder):
    """The script of the page, in this folder; its process ends when its input does."""
    (folder / "party.py").write_text(SCRIPT)
    order = [python, "-I", "party.py"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(order, cwd=folder, env={}, **pipes) as process:
        try:
            yield Piped(process)
            process.stdin.close()
            assert process.wait(300) == 0, process.stderr.read().decode()
        finally:
            process.kill()


def write_files(folder, ratings, settings):
    """What a person and the charter say, for the script to read."""
    features, rated, values = content_features(ratings), *rated_by(ratings)
    catalogue = Catalogue.of(ratings.item_ids, ratings.scale, features)
    mask = MaskPlan.of(settings)
    data = PartyData(catalogue, mask.views(features), RatedItems.of_one(rated), values)
    items, scale = [str(item) for item in ratings.item_ids], ratings.scale
    charter = {
        "items": items,
        "features": features.tolist(),
        "scale": [scale.min, scale.max, scale.step],
        "mask": asdict(mask),
        "expectation": asdict(Expectation.of(settings, data, 1)),
    }
    mine = {items[i]: value for i, value in zip(rated, values.tolist(), strict=True)}
    (folder / "charter.json").write_text(json.dumps(charter))
    (folder / "ratings.json").write_text(json.dumps(mine))


def rated_by(ratings):
    """Items and ratings of the user behind the party."""
    start, stop = ratings.by_user[int(FOLLOWED) :][:2]
    return ratings.item_codes[start:stop], ratings.values[start:stop]


def train(ratings, settings, parties):
    """The final broadcast of a training among these parties."""
    server = FederationServer(server_plan(ratings, settings), InProcess(parties), sorted(parties))
    server.invite().prepare()
    server.run()
    assert not server.roster.incidents
    return server.coordinator.result


def test_only_numpy_and_cryptography_are_installed(python):
    listed = pip("--python", python, "list", "--format", "json")
    names = {one["name"] for one in json.loads(listed.stdout)}
    assert names - {"pip", "setuptools"} == {
        "fedmmf-party", "numpy", "cryptography", "cffi", "pycparser",
    }  # fmt: skip
    assert pip("--python", python, "check").returncode == 0


@pytest.mark.parametrize("solver", ["sgd", "vb"])
def test_a_party_takes_part_through_a_pipe(python, tmp_path, solver):
    ratings = synthetic(12, 30, 200, seed=3)
    settings = Settings(mask="lr", solver=solver, factors=4, rounds=4, held_out=0.0)
    parties = make_parties(ratings, settings)
    expected = train(ratings, settings, parties)
    write_files(tmp_path, ratings, settings)
    with started(python, tmp_path) as piped:
        others = {**make_parties(ratings, settings), FOLLOWED: piped}
        found = train(ratings, settings, others)
    assert Joined.decode(piped.answers[0]).n_users == 1
    assert Finished.decode(piped.answers[-1])
    assert np.array_equal(found.item_rows, expected.item_rows)
    assert np.array_equal(found.parameters, expected.parameters)
    here = parties[FOLLOWED].scores(np.arange(ratings.n_items, dtype=np.int32))
    here[rated_by(ratings)[0]] = -np.inf
    best = [str(ratings.item_ids[i]) for i in np.argsort(-here, kind="stable")[:10]]
    assert json.loads((tmp_path / "recommended.json").read_text()) == best
