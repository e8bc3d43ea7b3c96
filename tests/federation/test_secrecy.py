"""Five hosts: nothing on the wire can be read, and the server never holds a rating."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from captured import server_hellos, streams
from machines import (
    EVERYBODY_IN_TIME,
    SITES,
    Machines,
    free_port,
    make_federation,
    odd_ratings,
    rating_bytes,
    split_by_user,
    wait_for_models,
)
from namespaces import can_make_them, hosts

from fedmmf.federation.charter import Network
from fedmmf.settings import Settings
from fedmmf.simulation import train

pytest.importorskip("nvflare", reason="NVFlare is not installed: pip install 'fedmmf[federation]'")

WHY_NOT = can_make_them() or ("" if shutil.which("tcpdump") else "tcpdump is not installed")
needs_hosts = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "there are namespaces")
SETTINGS = Settings.checked(solver="vb", factors=3, rounds=4, signed=True, mask="mean")


def secrets_of(ratings, machines):
    """Bytes that only sites may have: two ratings in a row, people's names, p_u, keys."""
    factors = [machines.factors(site)[0].tobytes() for site in SITES]
    keys = [
        "".join((machines.folder.root / "sites" / site / name).read_text().splitlines()[1:-1])
        for site in SITES
        for name in ("tls.key", "identity.key")
    ]
    return [*rating_bytes(ratings), b"qzperson-", *factors, *(key[:64].encode() for key in keys)]


def memory_of(pid):
    """Everything that a process can read and write, piece by piece."""
    with Path(f"/proc/{pid}/maps").open() as maps, Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
        for line in maps:
            start, end, rights = re.match(r"(\w+)-(\w+) (\S+)", line).groups()
            if rights.startswith("rw"):
                try:
                    memory.seek(int(start, 16))
                    yield memory.read(int(end, 16) - int(start, 16))
                except (OSError, ValueError):  # a hole, or not to be read
                    continue


def found_in(pieces, secrets):
    return {secret for piece in pieces for secret in secrets if secret in piece}


@needs_hosts
def test_a_capture_shows_nothing_and_the_server_never_holds_a_rating(tmp_path):
    ratings = odd_ratings()
    with hosts("server", *SITES) as links:
        address = links.addresses["server"]
        network = Network(host=address, port=free_port(), page_port=free_port())
        patient = {"network": network, "deadlines": EVERYBODY_IN_TIME}
        folder = make_federation(tmp_path / "fed", ratings, SETTINGS, **patient)
        files = split_by_user(ratings, tmp_path)
        capture = tmp_path / "wire.pcap"
        command = ["ip", "netns", "exec", links.switch, "tcpdump", "-i", "bridge"]
        command += ["-s", "0", "-U", "-B", "65536"]  # kB of packets that wait to be written
        with subprocess.Popen([*command, "-w", str(capture)], stderr=subprocess.DEVNULL) as dump:
            with Machines(folder, files, namespaces=links.names) as machines:
                machines.start("server", *SITES)
                machines.wait_for_sites(*SITES)
                machines.say("run")
                wait_for_models(machines)
                secrets = secrets_of(ratings, machines)
                held = found_in(memory_of(machines.running["server"].pid), secrets)
                own = found_in(memory_of(machines.running["a"].pid), secrets)
            dump.terminate()
        expected = train(ratings, SETTINGS).members[0].broadcast
        assert np.abs(machines.model().item_rows - expected.item_rows).max() < 1e-4
    assert len(own) > 4  # the search finds what is there
    assert held == set()
    on_disk = [p.read_bytes() for p in (folder.root / "server").rglob("*") if p.is_file()]
    logs = [machines.log_of(name).read_bytes() for name in ("server", *SITES)]
    assert found_in(on_disk, secrets) == set()
    assert found_in(logs, secrets) == set()
    require_sealed(capture, secrets)


def require_sealed(capture, secrets):
    found = streams(capture)
    assert sum(map(len, found)) > 50_000
    # Names of NVFlare's headers, whole: four bytes alone come up in megabytes of noise by chance.
    headers = [b"cn__channel", b"cn__origin", b"cn__topic"]
    plain = [*secrets, *headers, b'"charter"', b"fedmmf", b"thing-1"]
    assert found_in(found, plain) == set()
    hellos = [hello for stream in found for hello in server_hellos(stream)]
    assert len(hellos) >= len(SITES)
    assert all(version == b"\x03\x03" for version, _ in hellos)  # 1.2, or 1.3 in its disguise
    assert all(stream[:1] == b"\x16" for stream in found)  # every connection begins with TLS
