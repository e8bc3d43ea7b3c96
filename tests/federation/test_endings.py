"""How processes end: an error is told, every thread ends, and the ports are free."""

import subprocess
import sys

import pytest
from machines import PATIENCE, SITES, Machines, make_federation, split_by_user

from fedmmf.data.synthetic import synthetic
from fedmmf.errors import CheckpointError
from fedmmf.federation.server import require_free_port
from fedmmf.federation.status import STRANGER, Board, FederationStatus
from fedmmf.settings import Settings

pytest.importorskip("nvflare", reason="NVFlare is not installed: pip install 'fedmmf[federation]'")

RATINGS = synthetic(24, 12, 200, min_per_user=6, seed=3)
SETTINGS = Settings.checked(solver="vb", factors=2, rounds=4, signed=True, mask="mean")


@pytest.fixture
def machines(tmp_path):
    folder = make_federation(tmp_path / "fed", RATINGS, SETTINGS)
    with Machines(folder, split_by_user(RATINGS, tmp_path)) as made:
        yield made


def test_a_fatal_error_ends_the_server_with_a_code_and_frees_its_ports(machines):
    state = machines.folder.machine("server").state()
    (state / "model.bin").mkdir()  # cannot be read, which is found out once both ports are open
    done = subprocess.run(
        [sys.executable, "-m", "fedmmf", "federation", "server", str(machines.folder.root)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 1
    assert "model.bin" in done.stderr
    assert "Traceback" not in done.stderr
    network = machines.folder.charter().network
    require_free_port(network.host, network.port, "sites", "network.port")
    require_free_port(network.page_host, network.page_port, "the page", "network.page_port")


STUCK = """
import threading, time
from fedmmf.cli import app, federation

federation._LAST_SECONDS = 0.1

def stuck():
    with federation._ending_with_the_process():
        threading.Thread(target=time.sleep, args=(1000,)).start()
        raise {error}

app.app = stuck
app.main()
"""


@pytest.mark.parametrize(
    ("error", "code"),
    [("federation.SettingsError('no')", 2), ("federation.FedMMFError('no')", 1)],
)
def test_a_thread_that_does_not_end_changes_no_exit_code(error, code):
    command = [sys.executable, "-c", STUCK.format(error=error), "federation"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == code
    assert "error: no" in done.stderr


def test_a_status_that_cannot_be_written_is_an_incident_and_training_goes_on(machines):
    state = machines.folder.machine("server").state()
    (state / "status.json").mkdir()  # nothing can take its place
    machines.start("server", *SITES)
    found = machines.wait_until_page(lambda found: len(here(found)) == len(SITES))
    assert found.detail == "all 4 sites are here; `fedmmf federation run` begins the training"
    machines.begin()
    found = machines.wait_until_page(lambda found: found.state == "finished")
    assert found.round == SETTINGS.rounds
    assert found.detail.startswith("training is done, and sites fetch the model by themselves; ")
    told = [line for line in found.incidents if line.stage == "status"]
    assert [line.party for line in told] == ["server"]
    assert "status.json cannot be written" in told[0].reason
    assert machines.log_of("server").read_text().count("the status was not written") == 1


def test_what_a_killed_server_left_half_written_is_gone_after_its_next_start(machines):
    """Names of such files are random, so that no later write takes their place."""
    half = machines.folder.machine("server").state() / ".fedmmf-0123.part"
    half.write_bytes(b"half of a checkpoint")
    machines.start("server")
    machines.wait_until_page(lambda found: found.state == "waiting")
    assert not half.exists()


def here(found):
    return [site.name for site in found.sites if site.state == "here"]


def test_a_status_that_can_be_written_again_is_written():
    written, is_full = [], [True]

    def keep(status):
        if is_full[0]:
            raise CheckpointError("the disk is full")
        written.append(status)

    board = Board(FederationStatus(federation="test", version="0"), keep)
    board.show(round=1)
    board.show(round=2)
    assert [line.reason for line in board.status.incidents] == ["the disk is full"]
    is_full[0] = False
    board.show(round=3)
    assert written == [board.status]
    assert board.status.round == 3


def test_whoever_repeats_an_incident_does_not_push_out_those_of_others():
    board = Board(FederationStatus(federation="test", version="0"), lambda status: None)
    board.tell("a", "round", "did not answer")
    for number in range(300):
        board.tell("10.0.0.9", STRANGER, f"who calls itself {number}")
        board.tell("b", "hello", "was not let in")
    told = [(line.party, line.reason) for line in board.status.incidents]
    assert told == [
        ("b", "was not let in"),
        ("10.0.0.9", "who calls itself 299"),
        ("a", "did not answer"),
    ]
