"""`fedmmf identity` as people and scripts use it, with real files."""

import json
import os
import pty
import select
import subprocess
import sys
from types import SimpleNamespace

import pytest

from fedmmf.cli import main
from fedmmf.identity import Card, Identity, TrustList, enrol

WORDS = "one two three four five"


@pytest.fixture
def fedmmf(tmp_path, monkeypatch, capsys):
    """Run a command in a folder of its own; what is no message but an error ends the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDMMF_PASSPHRASE", raising=False)

    def run(*arguments, code=0, **environment):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["fedmmf", "identity", *map(str, arguments)])
            for name, value in {"COLUMNS": "200", **environment}.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                main()
        out, err = capsys.readouterr()
        assert (ended.value.code or 0) == code, err
        return SimpleNamespace(stdout=out, stderr=err)

    return run


@pytest.fixture
def made(tmp_path):
    """An issuer, two people of one site, and a list with the first of them."""
    sites = {"issuer": "board", "alice": "hospital-a", "bob": "hospital-a"}
    cards = {name: enrol(tmp_path / f"{name}.key", name, sites[name]) for name in sites}
    issuer = Identity.read(tmp_path / "issuer.key")
    TrustList.first("f", [cards["alice"]], issuer).save(tmp_path / "t.json")


def test_a_new_identity_is_a_key_a_card_and_a_fingerprint(fedmmf, tmp_path):
    done = fedmmf("new", "alice.key", "--name", "alice", "--site", "hospital-a")
    identity, card = Identity.read(tmp_path / "alice.key"), Card.read(tmp_path / "alice.key.card")
    assert (card.name, card.site, card.key) == ("alice", "hospital-a", identity.public)
    assert done.stdout.splitlines()[-1] == identity.fingerprint
    assert (tmp_path / "alice.key").stat().st_mode & 0o777 == 0o600
    assert "never overwritten" in fedmmf("new", "alice.key", "--name=a", "--site=b", code=1).stderr
    assert Identity.read(tmp_path / "alice.key").secret == identity.secret


def test_the_seed_does_not_make_the_key(fedmmf):
    keys = {
        json.loads(fedmmf("new", f"{n}.key", "--name=a", "--site=b", "--seed=7", "--json").stdout)[
            "key"
        ]
        for n in range(2)
    }
    assert len(keys) == 2


def test_from_cards_to_a_list_to_a_revocation(fedmmf, made, tmp_path):
    (tmp_path / "t.json").unlink()
    fedmmf("trust", "t.json", "alice.key.card", "--issuer=issuer.key", "--federation=f")
    done = fedmmf(
        "trust", "t.json", "bob.key.card", "--issuer", "issuer.key", "--most-per-site", 2, "--json"
    )
    facts = json.loads(done.stdout)
    assert facts["added"] == ["bob"]
    assert (facts["serial"], facts["most_per_site"], len(facts["members"])) == (2, 2, 2)
    reason = "[red]lost[/red] in Zürich"
    done = fedmmf("revoke", "t.json", "bob", "--issuer", "issuer.key", "--reason", reason)
    assert "revoked bob of hospital-a" in done.stdout
    issuer = Identity.read(tmp_path / "issuer.key")
    found = TrustList.read(tmp_path / "t.json", issuer=issuer.public, at_least=3)
    assert found.trusted == {Identity.read(tmp_path / "alice.key").public}
    assert found.revoked[0].reason == reason
    shown = fedmmf("show", "t.json", "--issuer", "issuer.key.card", "--at-least", 3)
    assert "[red]lost" in shown.stdout  # as it is, though the table folds it
    assert shown.stderr == ""


def test_show_tells_of_each_kind_of_file_and_never_a_secret(fedmmf, made, tmp_path):
    identity = Identity.read(tmp_path / "alice.key")
    for file, kind in {"alice.key": "key", "alice.key.card": "card", "t.json": "list"}.items():
        done = fedmmf("show", file, "--json")
        assert json.loads(done.stdout)["kind"] == kind
        for text in (done.stdout, fedmmf("show", file).stdout):
            assert identity.fingerprint in text
            assert identity.secret.hex() not in text


def test_a_narrow_terminal_shows_the_whole_key(fedmmf, made, tmp_path):
    key = Identity.read(tmp_path / "alice.key").public.hex()
    shown = fedmmf("show", "alice.key", COLUMNS="60").stdout
    assert key in "".join(character for character in shown if character in "0123456789abcdef")
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown + fedmmf("show", "t.json", COLUMNS="60").stdout


def test_a_list_is_only_as_good_as_what_one_knows_of_its_issuer(fedmmf, made, tmp_path):
    assert "Anybody could have signed this list" in fedmmf("show", "t.json").stderr
    assert json.loads(fedmmf("show", "t.json", "--json").stdout)["issuer_known"] is False
    key = Identity.read(tmp_path / "issuer.key").public.hex()
    for known in (key, "issuer.key.card"):
        done = fedmmf("show", "t.json", "--issuer", known, "--json")
        assert json.loads(done.stdout)["issuer_known"] is True
    done = fedmmf("show", "t.json", "--issuer", "bob.key.card", code=1)
    assert "must be signed by the issuer" in done.stderr
    assert "cannot be read" in fedmmf("show", "t.json", "--issuer", "x" * 5000, code=1).stderr


MISTAKES = {
    "a new list without a name": (
        ["trust", "new.json", "bob.key.card", "--issuer=issuer.key"], 2, "with --federation",
    ),
    "another federation": (
        ["trust", "t.json", "bob.key.card", "--issuer=issuer.key", "--federation=g"], 1,
        "must be for the federation g; it is for f",
    ),
    "too many of a site": (
        ["trust", "t.json", "bob.key.card", "--issuer=issuer.key"], 1, "hospital-a would have 2",
    ),
    "nobody": (["trust", "t.json", "--issuer=issuer.key"], 1, "would not change"),
    "who is on it": (
        ["trust", "t.json", "alice.key.card", "--issuer=issuer.key"], 1, "must be there once",
    ),
    "a key for a card": (
        ["trust", "t.json", "bob.key", "--issuer=issuer.key"], 1, "bob.key: it must be JSON",
    ),
    "a card for a key": (
        ["trust", "t.json", "bob.key.card", "--issuer=issuer.key.card"], 1, "chmod 600",
    ),
    "another issuer": (
        ["trust", "t.json", "bob.key.card", "--issuer=bob.key"], 1, "must be signed by the issuer",
    ),
    "no such member": (
        ["revoke", "t.json", "eve", "--issuer=issuer.key", "--reason=x"], 2, "members are alice",
    ),
    "no such list": (
        ["revoke", "u.json", "eve", "--issuer=issuer.key", "--reason=x"], 1, "No such file",
    ),
    "no reason": (["revoke", "t.json", "alice", "--issuer=issuer.key"], 2, "--reason"),
    "an empty reason": (
        ["revoke", "t.json", "alice", "--issuer=issuer.key", "--reason="], 1, "reason must be one",
    ),
    "a limit of nobody": (
        ["trust", "t.json", "--issuer=issuer.key", "--most-per-site=0"], 2, "--most-per-site",
    ),
    "a card of nobody": (["trust", "t.json", "no", "--issuer=issuer.key"], 1, "No such file"),
    "a name with a space": (["new", "x.key", "--name=a b", "--site=b"], 1, "name must be 1 to 40"),
    "a folder that is not there": (["new", "no/x.key", "--name=a", "--site=b"], 1, "No such file"),
    "an old list": (["show", "t.json", "--at-least=2"], 1, "serial of at least 2; it has 1"),
    "an issuer of a card": (["show", "bob.key.card", "--issuer=x"], 2, "are for trust lists"),
    "a file of another kind": (["show", "t.txt"], 1, "must be a key file, a card or a trust list"),
    "a folder": (["show", "."], 1, "must be a file"),
    "a folder as a list": (["trust", "/", "--issuer=issuer.key"], 1, "it is a folder"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_a_message_and_destroys_nothing(fedmmf, made, tmp_path, mistake):
    def files():
        return {one.name: one.read_bytes() for one in tmp_path.iterdir() if ".lock" not in one.name}

    (tmp_path / "t.txt").write_text("{}")
    before = files()
    arguments, code, message = MISTAKES[mistake]
    done = fedmmf(*arguments, code=code)
    assert message in done.stderr
    assert done.stdout == ""
    assert files() == before


def test_a_list_that_was_tampered_with_is_not_signed_anew(fedmmf, made, tmp_path):
    path = tmp_path / "t.json"
    broken = path.read_text().replace("hospital-a", "hospital-b")
    path.write_text(broken)
    arguments = ["trust", "t.json", "bob.key.card", "--issuer=issuer.key", "--most-per-site=9"]
    assert "its signature must be that of its issuer" in fedmmf(*arguments, code=1).stderr
    assert path.read_text() == broken


# Passphrases


def test_a_passphrase_comes_from_the_environment(fedmmf, tmp_path):
    fedmmf("new", "a.key", "--name=a", "--site=b", FEDMMF_PASSPHRASE=WORDS)
    assert "ENCRYPTED" in (tmp_path / "a.key").read_text()
    done = fedmmf("show", "a.key", code=1)
    assert "--passphrase asks for one, unless FEDMMF_PASSPHRASE holds it" in done.stderr
    assert "a.key" in fedmmf("show", "a.key", FEDMMF_PASSPHRASE=WORDS).stdout
    done = fedmmf("show", "a.key", code=1, FEDMMF_PASSPHRASE=WORDS + "x")
    assert "does not open with this passphrase" in done.stderr
    assert WORDS not in done.stderr
    assert "it is empty" in fedmmf("show", "a.key", code=2, FEDMMF_PASSPHRASE="").stderr
    new = ("new", "b.key", "--name=a", "--site=b")
    assert "at least 16" in fedmmf(*new, code=1, FEDMMF_PASSPHRASE=WORDS[:5]).stderr
    assert not (tmp_path / "b.key").exists()


def test_a_passphrase_is_asked_for_and_not_shown(tmp_path):
    def typed(*arguments, lines):
        """Run a command on a terminal, and type."""
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(tmp_path)
            command = [sys.executable, "-m", "fedmmf", "identity", *arguments, "--passphrase"]
            os.execv(sys.executable, command)  # noqa: S606
        seen = b""
        try:
            while select.select([terminal], [], [], 60)[0] and (chunk := os.read(terminal, 1000)):
                seen += chunk
                if lines and seen.endswith(b": "):  # what is typed before the space is dropped
                    os.write(terminal, lines.pop(0).encode() + b"\n")
                    seen += b"|"
        except OSError:  # it has ended
            pass
        finally:
            os.close(terminal)  # ends one that still waits
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), seen.decode()

    code, seen = typed("new", "a.key", "--name=a", "--site=b", lines=[WORDS, WORDS])
    assert code == 0
    assert WORDS not in seen
    found = Identity.read(tmp_path / "a.key", WORDS)
    code, seen = typed("show", "a.key", lines=[WORDS])
    assert code == 0
    assert found.fingerprint in seen


def test_without_a_terminal_a_prompt_ends_in_a_message(tmp_path):
    arguments = ["new", "a.key", "--name=a", "--site=b", "--passphrase"]
    done = subprocess.run(
        [sys.executable, "-m", "fedmmf", "identity", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=tmp_path,
        start_new_session=True,  # else it would ask at the terminal of whoever runs the tests
    )
    assert done.returncode == 1
    assert "Aborted" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


def test_no_passphrase_is_taken_from_the_command_line(fedmmf, tmp_path):
    fedmmf("new", "a.key", "--name=a", "--site=b", f"--passphrase={WORDS}", code=2)
    assert not (tmp_path / "a.key").exists()
