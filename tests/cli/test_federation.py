"""`fedmmf federation`: making one, and what commands say where nothing runs."""

import json
import sys
from types import SimpleNamespace
from unittest import mock

import pytest

from fedmmf.cli import main

pytest.importorskip("nvflare", reason="NVFlare is not installed: pip install 'fedmmf[federation]'")


@pytest.fixture
def fedmmf(monkeypatch, capsys):
    """Run a command in this process."""

    def run(*arguments):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["fedmmf", *arguments])
            patch.setenv("COLUMNS", "200")
            with pytest.raises(SystemExit) as ended:
                main()
        out, err = capsys.readouterr()
        return SimpleNamespace(stdout=out, stderr=err, exit_code=ended.value.code or 0)

    return run


@pytest.fixture
def items(tmp_path):
    path = tmp_path / "items.csv"
    path.write_text("item_id,title,genres\n1,One,Drama|Comedy\n2,Two,Drama\n3,Three,\n")
    return path


def make(fedmmf, tmp_path, items, *more):
    words = ("federation", "init", str(tmp_path / "fed"), "--sites", "a,b,c", "--items", str(items))
    return fedmmf(*words, *more)


def test_init_says_what_to_hand_to_whom(fedmmf, tmp_path, items):
    done = make(fedmmf, tmp_path, items, "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["handouts"]) == {"server", "a", "b", "c"}
    assert "sites/b/" in found["handouts"]["b"]
    assert "signed = true" in (tmp_path / "fed" / "federation.toml").read_text()


def test_a_federation_is_not_made_twice(fedmmf, tmp_path, items):
    make(fedmmf, tmp_path, items)
    again = make(fedmmf, tmp_path, items)
    assert again.exit_code == 2
    assert "has a federation already" in again.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--sites", "a,b"), "at least 3 sites"),
        (("--sites", "a,b,server"), "not 'server'"),
        (("--sites", "a,b,B c"), "a-z, 0-9"),
        (("--items", "nowhere.csv"), "nowhere.csv"),
        (("--smallest-cohort", "7"), "smallest_cohort"),
        (("--party", "user"), "max_parties_per_site, the most users of one site"),
        (("--max-parties-per-site", "9"), "a site is one party with party 'site'"),
    ],
)
def test_mistakes_are_named(fedmmf, tmp_path, items, words, reason):
    done = make(fedmmf, tmp_path, items, *words)
    assert done.exit_code in (1, 2)
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "fed" / "federation.toml").exists()


def test_users_may_be_parties_and_then_nobody_signs(fedmmf, tmp_path, items):
    make(fedmmf, tmp_path, items, "--party", "user", "--max-parties-per-site", "50")
    text = (tmp_path / "fed" / "federation.toml").read_text()
    assert "signed = false" in text
    assert "max_parties_per_site = 50" in text
    assert not (tmp_path / "fed" / "trust.json").exists()


def test_commands_say_that_no_server_runs(fedmmf, tmp_path, items):
    make(fedmmf, tmp_path, items, "--page-port", "1")
    for command in ("status", "run", "evaluate"):
        done = fedmmf("federation", command, str(tmp_path / "fed"))
        assert done.exit_code in (1, 2)
        assert "server" in done.stderr
        assert "Traceback" not in done.stderr


def test_without_nvflare_it_says_what_to_install(fedmmf, tmp_path, items):
    with mock.patch.dict(sys.modules, {"nvflare": None, "nvflare.lighter.utils": None}):
        done = make(fedmmf, tmp_path, items)
    assert done.exit_code == 2
    assert "pip install 'fedmmf[federation]'" in done.stderr
