"""Why a machine is not let in: told at the site, in the server's log and as an incident."""

import shutil
import ssl
import time
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest
from machines import PATIENCE, SITES, Machines, free_port, make_federation, split_by_user

from fedmmf.data.synthetic import synthetic
from fedmmf.federation import provision
from fedmmf.federation.charter import Network
from fedmmf.federation.folder import Folder
from fedmmf.federation.provision import Authority
from fedmmf.federation.site.process import SiteProcess
from fedmmf.settings import Settings
from fedmmf.transports.tls import RefusedError, knock, words_of

nvflare = pytest.importorskip("fedmmf.transports.nvflare", reason="NVFlare is not installed")
nvflare_hardening = pytest.importorskip("fedmmf.transports.nvflare_hardening")

RATINGS = synthetic(24, 12, 200, min_per_user=6, seed=3)
SETTINGS = Settings.checked(solver="vb", factors=2, rounds=60, signed=True, mask="mean")
YEAR = timedelta(days=365)


def made(root, **more):
    network = Network(port=free_port(), page_port=free_port())
    return make_federation(root / "fed", RATINGS, SETTINGS, network=network, **more)


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    """A server's link, its folder, and whom it refused."""
    folder = made(tmp_path_factory.mktemp("door"))
    charter = folder.charter()
    credentials = folder.machine("server").credentials
    link = nvflare.CellLink("server", charter.url, credentials, "test.server")
    refused = []
    link.door.answer = lambda name, question: f"{name} asks {question.decode()}".encode()
    link.door.refused = lambda address, reason: refused.append((address, reason))
    yield folder, refused
    link.close()


def knocked(folder, credentials, site="a"):
    return knock(folder.charter().url, credentials, (site, "test.server"), b"01")


def test_who_knocks_is_answered_by_the_name_in_its_certificate(door):
    folder, refused = door
    refused.clear()
    assert knocked(folder, folder.machine("a").credentials, site="b") == b"a asks 01"
    assert refused == []


def test_a_server_that_hangs_up_without_an_answer_lets_nobody_in(door, monkeypatch):
    """It may be starting: a second process must not take that for an old server's silence."""
    folder, _ = door
    opened = nvflare_hardening._doors[urlsplit(folder.charter().url).netloc]
    monkeypatch.setattr(opened, "answer", nvflare_hardening.Door().answer)
    with pytest.raises(RefusedError, match="it hung up without an answer"):
        knocked(folder, folder.machine("a").credentials)


def told(refused, n):
    """The refusals, once the listener's threads have told of so many."""
    until = time.monotonic() + PATIENCE
    while len(refused) < n and time.monotonic() < until:
        time.sleep(0.01)
    return refused


def issued(folder, monkeypatch, since):
    """Credentials of site `a`, made anew by the federation's authority."""
    fresh = Folder(folder.root.parent / f"since-{since:%Y}")
    shutil.copytree(folder.root, fresh.root, dirs_exist_ok=True)
    for name in ("tls.crt", "tls.key"):
        (fresh.root / "sites" / "a" / name).unlink()
    validity = {"not_valid_before": since, "not_valid_after": since + YEAR}
    monkeypatch.setattr(provision, "_validity", lambda: validity)
    Authority.read(fresh, "test").issue("a", folder.charter())
    return fresh.machine("a").credentials


@pytest.mark.parametrize(
    ("years", "at_site", "at_server"),
    [
        (-3, "it has expired, or the other side's clock is wrong", "its certificate has expired"),
        (2, "not valid yet by the other side's clock", "its certificate is not valid yet"),
    ],
)
def test_a_certificate_out_of_its_time_is_told_on_both_sides(
    door, monkeypatch, years, at_site, at_server
):
    folder, refused = door
    refused.clear()
    credentials = issued(folder, monkeypatch, datetime.now(UTC) + years * YEAR)
    with pytest.raises(RefusedError, match=at_site):
        knocked(folder, credentials)
    ((address, reason),) = told(refused, 1)
    assert address == "127.0.0.1"
    assert "who calls itself 'a'" in reason
    assert at_server in reason
    assert "the clock of this machine" in reason


def test_a_certificate_of_another_authority_is_told_on_both_sides(door, tmp_path):
    folder, refused = door
    refused.clear()
    other = made(tmp_path)
    with pytest.raises(RefusedError, match="was not signed by the authority of this federation"):
        knocked(folder, other.machine("a").credentials)
    shutil.copy(folder.authority_file, other.authority_file)  # it believes the server
    with pytest.raises(RefusedError, match="not signed by the authority that the other side"):
        knocked(folder, other.machine("a").credentials)
    first, second = (reason for _, reason in told(refused, 2))
    assert "it refuses the certificate of this machine" in first
    assert "its certificate was not signed by the authority of this federation" in second


def test_keys_that_do_not_belong_to_the_certificate_are_told(door, tmp_path):
    folder, _ = door
    shutil.copytree(folder.root, tmp_path / "fed")
    mixed = Folder(tmp_path / "fed")
    shutil.copy(mixed.machine("b").credentials.key, mixed.machine("a").credentials.key)
    with pytest.raises(RefusedError, match=r"tls\.crt cannot be used: KEY_VALUES_MISMATCH"):
        knocked(folder, mixed.machine("a").credentials)


def test_a_site_with_the_certificate_of_another_says_so_and_ends(door, tmp_path):
    """It waited for "another process of this site", and was an incident of the other site."""
    shutil.copytree(door[0].root, tmp_path / "fed")
    mixed = Folder(tmp_path / "fed")
    for path in ("tls.crt", "tls.key"):
        shutil.copy(mixed.machine("b").place / path, mixed.machine("a").place / path)
    files = split_by_user(RATINGS, tmp_path)
    with pytest.raises(RefusedError, match=r"tls\.crt is the certificate of b, not of a"):
        SiteProcess(mixed, "a", files["a"])
    mixed.machine("a").credentials.certificate.write_text("no certificate")
    with pytest.raises(RefusedError, match="cannot be read as a certificate"):
        SiteProcess(mixed, "a", files["a"])


def test_a_port_where_nobody_or_somebody_else_listens_is_told(door):
    folder, _ = door
    credentials = folder.machine("a").credentials
    with pytest.raises(RefusedError, match="no connection"):
        knock(f"stcp://127.0.0.1:{free_port()}", credentials, ("a", "test.server"), b"")
    with pytest.raises(RefusedError, match=r"the server's is of 'other\.server'"):
        knock(folder.charter().url, credentials, ("a", "other.server"), b"")


def test_a_revocation_has_its_words():
    error = ssl.SSLCertVerificationError("revoked")
    error.verify_code, error.verify_message = 23, "certificate revoked"
    assert words_of(error) == "its certificate was revoked"


def test_a_second_process_waits_without_disturbing_the_first_and_refusals_are_incidents(tmp_path):
    folder = made(tmp_path)
    elsewhere = Folder(tmp_path / "elsewhere")
    shutil.copytree(folder.root, elsewhere.root)  # the same site on another machine
    foreign = made(tmp_path / "foreign")
    files = split_by_user(RATINGS, tmp_path)
    with Machines(folder, files) as machines, Machines(elsewhere, files) as others:
        machines.start("server", *SITES)
        machines.wait_for_sites(*SITES)
        others.start("a")
        machines.wait_for(is_told("another process of this site"), "told of a second process")
        machines.begin()
        found = machines.wait_for_end()
        dropped = {site["name"]: (site["rounds"], site["drop_outs"]) for site in found["sites"]}
        assert dropped == dict.fromkeys(SITES, (SETTINGS.rounds, 0))
        assert "another process of this site" in others.log_of("a").read_text()
        foreign_b = foreign.root / "sites" / "b"
        for name in ("tls.crt", "tls.key"):  # of another authority
            shutil.copy(foreign_b / name, folder.root / "sites" / "b" / name)
        machines.kill("b")
        machines.start("b")
        machines.wait_for(is_told("was not signed by the authority"), "told of a certificate")
        assert "no way in" in machines.log_of("b").read_text()
        machines.kill("a")
        machines.wait_for_sites("a")  # the second takes the place of the first


def is_told(words):
    return lambda found: any(words in line["reason"] for line in found.get("incidents", ()))
