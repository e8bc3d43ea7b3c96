"""Real signals to real processes: a line, exit code 130, and the same result after going on.

Moments that are too short to hit are made long: the process stops there, says so, and waits.
"""

import json
import os
import pty
import select
import shlex
import signal
import stat
import subprocess
import sys
import time

import pytest

SECONDS = 120  # a limit on how long an end may take, for what would otherwise never end
READY = 100  # seconds, until a process is where a signal is to find it
# Waits in a function, the first time that it is called; the thread that waits never goes on.
DRIVER = """
import importlib, sys, time
from fedmmf.cli import main

def stop_here(*arguments, **named):
    print("now", file=sys.stderr, flush=True)
    time.sleep(1000)

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == place:
            stop_here()

place = sys.argv[1]
sys.meta_path.insert(0, Slow())
if ":" in place:
    module, name = place.split(":")
    owner = importlib.import_module(module)
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    assert hasattr(owner, last), place
    setattr(owner, last, stop_here)
sys.argv[1:] = sys.argv[2:]
main()
"""


@pytest.fixture
def command(small, tmp_path):
    small.to_frame().write_csv(tmp_path / "ratings.csv")
    return ["train", "--data", "ratings.csv", "--mask", "mean", "--rounds", "30", "--factors", "4"]


def environment(tmp_path):
    return {**os.environ, "COLUMNS": "200", "XDG_CACHE_HOME": str(tmp_path / "cache")}


def interrupted(words, tmp_path, word, number=signal.SIGINT):
    """Run, wait until a word is on standard error, send a signal. Returns what it said there."""
    seen, output = ended(words, tmp_path, word, number)
    assert output == ""
    return seen


def ended(words, tmp_path, word, number=signal.SIGINT):
    """Run, and send a signal likewise. Returns standard error and standard output."""
    terminal, child = pty.openpty()
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=child, cwd=tmp_path, env=environment(tmp_path)
    )
    os.close(child)
    try:
        seen = read_until(terminal, word, READY)
        assert word in seen
        process.send_signal(number)
        seen = read_until(terminal, None, SECONDS)
        output, _ = process.communicate(timeout=SECONDS)
    finally:
        process.kill()  # of no consequence to one that has ended
        process.wait()
        process.stdout.close()
        os.close(terminal)
    assert process.returncode == 130
    assert "Traceback" not in seen
    return seen, output.decode()


def read_until(terminal, word, seconds):
    """What is on a terminal, up to a word or to its end; it has to come within some seconds."""
    seen, ends = b"", time.monotonic() + seconds
    while word is None or word.encode() not in seen:
        left = ends - time.monotonic()
        if left < 0 or not select.select([terminal], [], [], left)[0]:
            pytest.fail(f"nothing ended within {seconds} seconds: {seen.decode(errors='replace')}")
        try:
            more = os.read(terminal, 65536)
        except OSError:  # the other side is closed
            break
        if not more:
            break
        seen += more
    return seen.decode(errors="replace")


def finished(words, tmp_path):
    words = [sys.executable, "-m", "fedmmf", *words, "--json"]
    done = subprocess.run(
        words, capture_output=True, text=True, cwd=tmp_path, env=environment(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    of_this_run = ("seconds", "made", "command")
    return {name: value for name, value in found.items() if name not in of_this_run}


def way_on(seen):
    """The command that the last line names, less the word fedmmf."""
    line = seen.strip().splitlines()[-1]
    return shlex.split(line.split(": fedmmf ")[1])


@pytest.mark.parametrize(
    "place",
    [
        "scipy",  # an import
        "fedmmf.cli.choices:load",
        "fedmmf.simulation.training:prepare",
        "fedmmf.party.user_group:fit_masks",
    ],
)
def test_before_any_round_there_is_nothing_to_keep(command, tmp_path, place):
    seen = interrupted([sys.executable, "-c", DRIVER, place, *command], tmp_path, "now")
    assert "interrupted: nothing" in seen
    assert {path.name for path in tmp_path.iterdir()} <= {"ratings.csv", "cache"}


@pytest.mark.parametrize(
    ("place", "reached"),
    [
        ("fedmmf.model:FedMMF.summary", "the last round"),  # evaluation
        ("fedmmf.model:FedMMF.save", "the last round"),
        ("fedmmf.cli.train:write_report", "the last round"),
        ("fedmmf.cli.train:_tell", "the last round"),
    ],
)
def test_after_the_rounds_all_of_them_are_kept(command, tmp_path, place, reached):
    command += ["--save", "model", "--report", "page.html"]
    seen = interrupted([sys.executable, "-c", DRIVER, place, *command], tmp_path, "now")
    assert f"interrupted after {reached}" in seen
    assert (tmp_path / "model.ckpt").exists()
    again = way_on(seen)
    assert again[-2:] == ["--checkpoint", "model.ckpt"]
    assert finished(again, tmp_path) == finished(command, tmp_path)
    left = {path.name for path in tmp_path.iterdir()} - {"cache"}
    assert left == {"ratings.csv", "model", "page.html"}


def test_a_library_that_takes_the_signal_does_not_keep_it(tmp_path):
    """Polars has signals restart what they interrupt, such as a wait."""
    code = """
import sys, time
from fedmmf.cli.interrupts import in_thread

def command():
    import polars
    polars.read_csv(b"a,b", infer_schema=False)
    print("now", file=sys.stderr, flush=True)
    time.sleep(1000)

in_thread(command)
"""
    seen = interrupted([sys.executable, "-c", code], tmp_path, "now")
    assert "interrupted: nothing was kept" in seen


def test_what_was_kept_is_for_its_owner_alone(command, tmp_path):
    """A real training on a file, in the middle of its rounds."""
    words = [*command, "--rounds", "100000", "--patience", "100000"]
    seen = interrupted([sys.executable, "-m", "fedmmf", *words], tmp_path, "2/100000")
    assert "holds private parts" in seen
    kept = tmp_path / "fedmmf-interrupted.ckpt"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_rounds_go_on_where_they_were(command, tmp_path):
    """The bar says that a round is done; training goes on while the signal is on its way."""
    long = [*command, "--rounds", "100000", "--held-out", "0.1", "--patience", "100000"]
    words = [sys.executable, "-m", "fedmmf", *long]
    seen = interrupted(words, tmp_path, "rounds")
    assert "interrupted after round " in seen or "nothing was kept" in seen
    assert "the last round" not in seen  # nobody has waited for it
    # A second time, on a file of its own and from a round that is known to have been.
    words += ["--checkpoint", "mine.ckpt"]
    seen = interrupted(words, tmp_path, "1/100000")
    assert way_on(seen) == words[3:]
    assert (tmp_path / "mine.ckpt").exists()


def test_a_model_goes_on_from_a_round_to_the_same_result(command, tmp_path):
    place = "fedmmf.simulation.parties:SimulatedParties.finish"
    seen = interrupted([sys.executable, "-c", DRIVER, place, *command], tmp_path, "now")
    assert "interrupted after round " in seen
    assert way_on(seen)[-2:] == ["--checkpoint", "fedmmf-interrupted.ckpt"]
    assert finished(way_on(seen), tmp_path) == finished(command, tmp_path)
    assert not (tmp_path / "fedmmf-interrupted.ckpt").exists()


def test_compiled_masks_are_not_waited_for(tmp_path, monkeypatch):
    """One thread has the masks of 600 users; the bar shows the first of them."""
    monkeypatch.setenv("FEDMMF_THREADS", "1")
    words = ["train", "--data", "synthetic", "--mask", "nn", "--cross-fit", "--folds", "100"]
    seen = interrupted([sys.executable, "-m", "fedmmf", *words], tmp_path, "masks")
    assert "nothing was kept" in seen
    assert "600/600" not in seen


def test_what_was_kept_by_somebody_else_is_not_overwritten(command, tmp_path):
    (tmp_path / "fedmmf-interrupted.ckpt").write_text("mine")
    place = "fedmmf.model:FedMMF.summary"
    seen = interrupted([sys.executable, "-c", DRIVER, place, *command], tmp_path, "now")
    assert way_on(seen)[-1] == "fedmmf-interrupted-2.ckpt"
    assert (tmp_path / "fedmmf-interrupted.ckpt").read_text() == "mine"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_audit_goes_on_with_the_attacks_that_are_missing(command, tmp_path, number):
    """Attacks on masked ratings are done; then real parties would be recorded."""
    words = ["audit", *command[1:], "--out", "audit"]
    place = "fedmmf.audit.messages:record_plain"
    line = "now\r\n"  # not that of an unknown strength, which the bar names
    seen = interrupted([sys.executable, "-c", DRIVER, place, *words], tmp_path, line, number)
    assert "interrupted after attack ranking h=1 on masked ratings" in seen
    kept = tmp_path / "audit" / "audit.ckpt"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert way_on(seen) == [*words, "--checkpoint", "audit/audit.ckpt"]
    gone_on, whole = finished(words, tmp_path), finished([*words[:-1], "other"], tmp_path)
    for name in ("verdict", "groups", "sentences", "grouping"):
        assert gone_on[name] == whole[name]
    assert not kept.exists()


def test_a_training_ends_well_when_it_is_told_to(command, tmp_path):
    place = "fedmmf.model:FedMMF.summary"
    words = [sys.executable, "-c", DRIVER, place, *command]
    seen = interrupted(words, tmp_path, "now", signal.SIGTERM)
    assert "interrupted after the last round" in seen


def test_other_commands_say_how_to_start_again(tmp_path):
    words = ["audit", "--data", "synthetic", "--out", "audit"]
    place = "fedmmf.audit:audit"
    seen = interrupted([sys.executable, "-c", DRIVER, place, *words], tmp_path, "now")
    assert f"To start again: fedmmf {' '.join(words)}" in seen


def test_a_comparison_that_is_interrupted_leaves_the_result(command, tmp_path):
    """Of two trainings the first, with noise, is done: all of it is printed and written."""
    pytest.importorskip("dp_accounting", reason="dp-accounting is of the extra `dp`")
    command += ["--aggregation", "dp", "--save", "model", "--report", "page.html", "--json"]
    place = "fedmmf.model.privacy_cost:Comparison.cost"
    seen, output = ended([sys.executable, "-c", DRIVER, place, *command], tmp_path, "now")
    assert "the result is complete but for the comparison without noise" in seen
    found, whole = json.loads(output), finished(command[:-1], tmp_path)
    assert whole.pop("dp_cost")["rmse_without"] > 0
    assert "dp_cost" not in found
    assert {name: found[name] for name in whole} == whole
    left = {path.name for path in tmp_path.iterdir()} - {"cache"}
    assert left == {"ratings.csv", "model", "page.html"}
