"""What one bundle may cost its reader is bounded by its own size, whatever is in it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("hostile_answers.py")
KINDS = (
    "shared_publication",
    "shared_by_the_asked",
    "many_strangers",
    "many_entries",
    "many_publications",
    "refusals",
    "one_long_trip",
    "an_update_instead",
    "a_long_vector",
    "a_long_table",
    "to_a_site",
)
ROOM = 50 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from /proc")
@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_bundle_takes_three_times_its_size_at_most(kind):
    words = [sys.executable, str(PROGRAM), kind]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    costs = json.loads(done.stdout)
    assert [cost["bytes"] >> 20 for cost in costs] == [1, 8, 64]
    for cost in costs:
        assert cost["grown"] <= 3 * cost["bytes"] + ROOM, cost
