"""docs/federation.md, command by command, on five hosts that share nothing but a network."""

import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from machines import PATIENCE, SITES, split_by_user
from namespaces import can_make_them, hosts

from fedmmf.data.synthetic import synthetic

pytest.importorskip("nvflare", reason="NVFlare is not installed: pip install 'fedmmf[federation]'")
WHY_NOT = can_make_them()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "there are namespaces")

PAGE = Path(__file__).parents[2] / "docs" / "federation.md"
RATINGS = synthetic(120, 40, 2400, min_per_user=10, seed=5)  # 30 users a site: 20 factors need 19


def commands():
    """The page's commands, in order."""
    blocks = re.findall(r"^```\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


class Hosts:
    """Runs the page's commands on one of the hosts, in that host's own folder."""

    def __init__(self, links, root):
        self._links, self._root, self.started = links, root, []

    def folder(self, host):
        place = self._root / host
        place.mkdir(exist_ok=True)
        return place

    def _words(self, host, command):
        words = shlex.split(command)
        if words[0] == "fedmmf":
            words = [sys.executable, "-m", "fedmmf", *words[1:]]
        inside = self._links.names.get(host)
        return (["ip", "netns", "exec", inside] if inside else []) + words

    def run(self, host, command):
        done = subprocess.run(
            self._words(host, command),
            cwd=self.folder(host),
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
        )
        assert done.returncode == 0, f"{host}: {command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, host, command):
        with (self.folder(host) / "out").open("wb") as log:
            words, place = self._words(host, command), self.folder(host)
            self.started.append(subprocess.Popen(words, cwd=place, stdout=log, stderr=log))


def hand_out(machines, keeper, tar):
    """The page's tar for site a, for every machine."""
    for host in ("server", *SITES):
        own = "fed/server" if host == "server" else f"fed/sites/{host}"
        machines.run(keeper, tar.replace("fed/sites/a", own).replace("a.tgz", f"{host}.tgz"))
        archive = machines.folder(keeper) / f"{host}.tgz"
        shutil.unpack_archive(archive, machines.folder(host), filter="fully_trusted")


def test_the_page_takes_an_operator_from_nothing_to_a_recommendation(tmp_path):
    init, rights, tar, server, site, run, status, evaluate, recommend = commands()
    assert rights == "umask 077"  # the archive has secret keys
    with hosts("server", *SITES) as links:
        machines = Hosts(links, tmp_path)
        keeper = machines.folder("keeper")
        items = pl.DataFrame({"item_id": RATINGS.item_ids, "title": RATINGS.item_titles})
        items.with_columns(kind=pl.lit("x")).write_csv(keeper / "items.csv")
        assert "sites/d/" in machines.run("keeper", init)
        hand_out(machines, "keeper", tar)
        try:
            machines.start("server", server)
            for name, path in split_by_user(RATINGS, tmp_path).items():
                shutil.copy(path, machines.folder(name) / f"{name}.parquet")
                machines.start(
                    name,
                    site.replace("--site a", f"--site {name}").replace("a.parq", f"{name}.parq"),
                )
            wait_for_server(machines, status)
            assert "finished" in machines.run("server", run)
            assert "finished" in machines.run("server", status)
            assert "RMSE" in machines.run("server", evaluate)  # waits until sites have the model
            user = str(RATINGS.user_ids[3])
            wait_for_model(machines.folder("a"))
            assert "prediction" in machines.run(
                "a", recommend.replace("--user 42", f"--user {user}")
            )
        finally:
            for process in machines.started:
                process.kill()
                process.wait()


def wait_for_model(folder):
    """A site fetches the model with its next sign of life."""
    until = time.monotonic() + PATIENCE
    while not any(folder.rglob("result.npz")):
        assert time.monotonic() < until, (folder / "out").read_text()
        time.sleep(0.1)


def wait_for_server(machines, status):
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            if machines.run("server", status).count("here") >= len(SITES):
                return
        except AssertionError:
            time.sleep(0.5)
    pytest.fail((machines.folder("server") / "out").read_text())
