"""A server that is behind its sites, sites that lie about it, and sites that do not answer."""

import ast
import re
import shutil
from pathlib import Path
from threading import Event

import numpy as np
import polars as pl
import pytest
from inside import Inside, KilledError
from machines import SITES, hello_of, make_federation, split_by_user

from fedmmf.data.synthetic import synthetic
from fedmmf.errors import SettingsError, WireError
from fedmmf.federation import limits, training
from fedmmf.federation.catalogue import ItemList
from fedmmf.federation.hello import Welcome
from fedmmf.federation.limits import beyond_limits, too_large_messages
from fedmmf.federation.server import identities_of
from fedmmf.federation.site.process import SiteProcess
from fedmmf.federation.sites import Admission, Sites
from fedmmf.federation.store import RunStore
from fedmmf.server.rounds import last_number
from fedmmf.settings import Settings
from fedmmf.solvers.contract import UpdateShape
from fedmmf.wire import Refused

pytest.importorskip("nvflare", reason="certificates are made by NVFlare's provisioning")

RATINGS = synthetic(24, 12, 200, min_per_user=6, seed=3)
SETTINGS = Settings.checked(
    solver="sgd", factors=2, rounds=6, signed=True, mask="mean", min_raters=1, held_out=0.0
)
QUICK = {"answer": 5.0, "heartbeat": 30.0, "gathering": 0.01, "patience": 0.5, "retries": 3}


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Four sites that are about to train."""
    monkeypatch.setattr(training, "BREATH", 0.001)
    folder = make_federation(tmp_path / "fed", RATINGS, SETTINGS, deadlines=QUICK)
    found = Inside(folder, split_by_user(RATINGS, tmp_path))
    for site in SITES:
        found.start_site(site)
    return found


def kill_after(made, monkeypatch, number, *, keep=0):
    """Let the server be killed once a round is on disk; return a copy of its state at `keep`."""
    state = made.folder.machine("server").state()
    copy, save = state.with_name("older"), RunStore.save

    def watched(store, arrays, meta):
        save(store, arrays, meta)
        if meta["round"] == keep:
            shutil.copytree(state, copy)
        if meta["round"] == number:
            raise KilledError("after a round")

    with monkeypatch.context() as patched:
        patched.setattr(RunStore, "save", watched)
        with pytest.raises(KilledError):
            made.training().run()
    return state, copy


def told(made, party):
    return [line.reason for line in made.board.status.incidents if line.party == party]


def test_a_server_from_an_older_copy_goes_on_at_the_number_that_sites_name(made, monkeypatch):
    state, older = kill_after(made, monkeypatch, 4, keep=2)
    shutil.rmtree(state)
    older.rename(state)
    made.training().run()
    rounds = [line["round"] for line in made.store.rounds()]
    assert rounds == [1, 2, 5, 6, 7, 8]  # six rounds; what sites have answered is not asked again
    assert all(line["parties"] == list(SITES) for line in made.store.rounds())
    (reason,) = told(made, "server")
    assert "knew of 2 attempts, sites with most of the users of 4" in reason


def claim(made, site, round_):
    """Let a site lie about its last round, and about how many users it has."""
    process = made.processes[site]
    honest = process.hello

    def lie():
        return honest().model_copy(update={"round": round_, "users": 100_000})

    process.hello = lie


@pytest.mark.parametrize("number", [last_number(SETTINGS), 10**9])
def test_one_site_that_lies_cannot_end_a_run_or_jump_ahead(made, monkeypatch, number):
    kill_after(made, monkeypatch, 1)
    claim(made, "d", number)
    made.training().run()
    lines = list(made.store.rounds())
    assert [line["round"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert all(line["parties"] == ["a", "b", "c"] for line in lines[1:])
    (reason,) = told(made, "d")
    assert f"says that round {number} is over" in reason
    assert told(made, "server") == []


def test_a_site_that_is_ahead_comes_back_once_the_others_are_past_it(made, monkeypatch):
    kill_after(made, monkeypatch, 1)
    claim(made, "d", 3)
    made.training().run()
    n_parties = {line["round"]: len(line["parties"]) for line in made.store.rounds()}
    assert n_parties == {1: 4, 2: 3, 3: 3, 4: 4, 5: 4, 6: 4}


def test_a_site_that_is_ahead_is_named_where_too_few_are_left_without_it(made, monkeypatch):
    """It is here: to start more sites is no help, and the operator has to know which one waits."""
    kill_after(made, monkeypatch, 1)
    made.away.add("c")
    claim(made, "d", 50)
    with pytest.raises(WireError, match=r"there are 2, of a, b\. d waits: it says that round 50"):
        made.training().run()
    (reason,) = told(made, "d")
    assert "says that round 50 is over; the server and most others are at 1" in reason


def test_numbers_of_another_run_do_not_count(made, monkeypatch):
    state, _ = kill_after(made, monkeypatch, 3)
    shutil.rmtree(state)  # a new run begins
    made.training().run()
    assert [line["round"] for line in made.store.rounds()] == [1, 2, 3, 4, 5, 6]


PRIVATE = "threshold|min_raters|smallest_cohort|batch|signed|share_of_trusted"
ADVICE = re.compile(rf"\b(lower|reduce|switch off|turn off) (the |your )?({PRIVATE})", re.I)
LOOSER = re.compile(r"\b(raise|increase) (the |your )?(dp_|epsilon|threshold_j|audit_limit)", re.I)


def test_no_advice_lowers_a_privacy_setting():
    source = Path(training.__file__).parents[1]
    texts = [
        (path.name, node.value)
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    bad = [text for text in texts if ADVICE.search(text[1]) or LOOSER.search(text[1])]
    assert bad == []
    assert ADVICE.search("Wait longer, invite more parties, or lower the threshold.")


class Mute:
    """A link on which everybody is connected and answers are not waited for in truth."""

    def __init__(self):
        self.waited = []

    def is_connected(self, name):
        return True

    def ask(self, topic, questions, timeout):
        self.waited.append(timeout)
        return {}


class Lost:
    """A link that is lost while an answer is waited for."""

    def __init__(self):
        self.end, self.is_asking = Event(), False

    def is_connected(self, name):
        return not self.is_asking

    def ask(self, topic, questions, timeout):
        self.is_asking = True
        self.end.wait(5)
        self.is_asking = False
        return {}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_federation(tmp_path_factory.mktemp("limits") / "fed", RATINGS, SETTINGS)


def sites_of(folder, link):
    digest = ItemList.load(folder.catalogue_file).catalogue.digest
    return Sites(link, Admission(folder.charter(), digest, identities_of(folder)), lambda: None)


def test_a_site_that_was_silent_is_waited_for_a_tenth_as_long_until_it_is_in_a_sum(folder):
    link = Mute()
    sites = sites_of(folder, link)

    def waited():
        sites.hello("a", hello_of(folder))  # it says that it is here, and never answers
        sites.exchange("round", {"a": Refused("x").encode()}, 60.0)
        return round(link.waited.pop())

    assert [waited() for _ in range(12)] == [60, *[6] * 9, 60, 6]
    sites.count(["a"], ["a"])
    assert [waited() for _ in range(2)] == [60, 6]


def test_nobody_waits_for_an_answer_that_has_no_way_to_come(folder):
    link = Lost()
    sites = sites_of(folder, link)
    sites.hello("a", hello_of(folder))
    assert sites.exchange("round", {"a": Refused("x").encode()}, 60.0) == {}
    assert link.is_asking  # whoever waits for it waits alone
    link.end.set()


def test_limits_are_named_by_both_sides_before_any_round(folder, tmp_path):
    sites = sites_of(folder, Mute())
    said = Welcome.decode(sites.hello("a", hello_of(folder, users=100_001)))
    assert not said.is_welcome
    assert "MAX_USERS_PER_PARTY: a party has at most 100,000 users; 100,001" in said.reason
    ids = ItemList.load(folder.catalogue_file).ids
    many = tmp_path / "many.parquet"
    users = np.arange(100_001)
    pl.DataFrame({"user_id": users, "item_id": str(ids[0]), "rating": 3.0}).write_parquet(many)
    with pytest.raises(SettingsError, match=r"a cannot take part\. MAX_USERS_PER_PARTY"):
        SiteProcess(folder, "a", many)
    assert Welcome.decode(sites.hello("a", hello_of(folder, users=100_000))).is_welcome


def test_parties_of_all_sites_and_messages_have_named_limits(monkeypatch):
    assert beyond_limits(60_000, 60_000, 40_000) == ""
    assert "LARGEST_COHORT" in beyond_limits(60_001, 60_001, 40_000)
    update_shape = UpdateShape(rank=20, width=20, broadcast_width=20, n_parameters=1, n_totals=1)
    assert too_large_messages(update_shape, 1_000_000, "site") == ""
    assert "MAX_MESSAGE_BYTES" in too_large_messages(update_shape, 2_000_000, "site")
    assert "MAX_MESSAGE_BYTES" in too_large_messages(update_shape, 1_000_000, "user")
    assert limits.PARTIES_PER_BUNDLE > 1
