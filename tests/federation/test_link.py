"""What a machine with a valid certificate, or a stranger, gets from the network itself."""

import subprocess
import sys
from pathlib import Path

import pytest
from machines import free_port, make_federation

from fedmmf.data.synthetic import synthetic
from fedmmf.federation.charter import Network
from fedmmf.settings import Settings

nvflare = pytest.importorskip("fedmmf.transports.nvflare", reason="NVFlare is not installed")
HOSTILE = Path(__file__).with_name("hostile.py")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server's link, and what it was asked."""
    ratings = synthetic(24, 12, 200, min_per_user=6, seed=3)
    network = Network(port=free_port(), page_port=free_port())
    root = tmp_path_factory.mktemp("link") / "fed"
    settings = Settings.checked(solver="vb", factors=2)
    folder = make_federation(root, ratings, settings, network=network)
    machine, charter = folder.machine("server"), folder.charter()
    link = nvflare.CellLink("server", charter.url, machine.credentials, "test.server")
    heard = []
    link.answer("probe", lambda who, data: heard.append((who, data)) or b"yes")
    yield folder, charter.url, heard
    link.close()


def hostile(server, kind):
    folder, url, heard = server
    heard.clear()
    words = [sys.executable, str(HOSTILE), url, str(folder.root), kind]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    return done.stdout, list(heard)


def test_a_site_is_heard_under_the_name_in_its_certificate(server):
    said, heard = hostile(server, "plain")
    assert "yes" in said
    assert heard == [("a", b"x")]


@pytest.mark.parametrize(
    "kind",
    ["other name", "forged origin", "to another site", "another channel", "an object", "call me"],
)
def test_nothing_else_is_heard_forwarded_or_decoded(server, kind):
    said, heard = hostile(server, kind)
    assert "yes" not in said
    assert heard == []


def test_a_stranger_who_says_nothing_keeps_nobody_out(server):
    folder, url, _ = server
    words = [sys.executable, str(HOSTILE), url, str(folder.root), "silent"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as stranger:
        assert stranger.stdout.readline() == "connected\n"
        try:
            said, heard = hostile(server, "plain")
            assert heard == [("a", b"x")], said
            assert stranger.poll() is None  # it would have stayed much longer
        finally:
            stranger.kill()


def test_a_site_joins_again_as_often_as_its_server_is_started_again(server):
    folder, url, _ = server
    credentials = folder.machine("a").credentials
    for _ in range(4):
        link = nvflare.CellLink("a", url, credentials, "test.server")
        link.close()
