"""What a site has answered is counted apart from its state, which may be restored from a copy."""

import errno
import json
import shutil

import numpy as np
import polars as pl
import pytest
from inside import Inside, Moments
from machines import SITES, make_federation, split_by_user

from fedmmf.data.synthetic import synthetic
from fedmmf.errors import CheckpointError, WireError
from fedmmf.federation import training
from fedmmf.federation.site import guards
from fedmmf.federation.site.guards import GuardStore
from fedmmf.federation.site.process import SiteProcess
from fedmmf.party.guards import Guards
from fedmmf.settings import Settings
from fedmmf.transports.bundles import unpack
from fedmmf.wire import Kind, Refused, split_parcel
from fedmmf.wire.frames import kind_of

pytest.importorskip("nvflare", reason="certificates are made by NVFlare's provisioning")

RATINGS = synthetic(24, 12, 200, min_per_user=6, seed=3)
DP = {"solver": "sgd", "aggregation": "dp", "dp_noise": "local", "held_out": 0.0}
SIGNED = {"solver": "vb", "factors": 2, "signed": True, "min_raters": 1}
QUICK = {"answer": 5.0, "heartbeat": 60.0, "gathering": 0.2, "patience": 5.0, "retries": 3}


@pytest.fixture(autouse=True)
def _no_breath(monkeypatch):
    monkeypatch.setattr(training, "BREATH", 0.001)


@pytest.fixture
def federation(tmp_path):
    """A federation whose server can be stopped after some rounds."""

    def made(party="site", most=None, name="fed", **changes):
        more = {} if most is None else {"max_parties_per_site": most}
        settings = Settings.checked(**{"rounds": 4, "mask": "mean", "factors": 2, **changes})
        folder = make_federation(
            tmp_path / name, RATINGS, settings, party=party, deadlines=QUICK, **more
        )
        found = Inside(folder, split_by_user(RATINGS, tmp_path))
        if name == "fed":
            for site in SITES:
                found.start_site(site)
        return found

    return made


def noisy_updates(made, site):
    return sum(party.users.n_noisy for party in made.processes[site].site.parties.values())


def place(made, site="a"):
    return made.folder.root / "sites" / site


def copy_of_state(made, to, site="a"):
    shutil.copytree(place(made, site) / "state", to)
    return to


def put_back(made, copy, site="a"):
    shutil.rmtree(place(made, site) / "state")
    shutil.copytree(copy, place(made, site) / "state")


def counters(made, site="a"):
    return json.loads((place(made, site) / "guards" / "counters.json").read_text())["parties"]


def is_asked(data):
    """Whether a bundle asks parties for updates."""
    return {kind_of(split_parcel(frame)[1]) for frame in unpack(data).values()} == {Kind.ASK}


def refusals(made, site):
    """What a site said no to."""
    found = []
    for name, data in made.seen:
        if name != site:
            continue
        try:
            frames = [split_parcel(frame)[1] for frame in unpack(data).values()]
        except Exception:  # noqa: S112
            continue
        found += [Refused.decode(f).reason for f in frames if kind_of(f) == Kind.REFUSED]
    return found


@pytest.mark.parametrize("party", ["site", "user"])
def test_a_restored_state_does_not_spend_the_budget_twice(federation, tmp_path, party):
    """4 updates were paid for; with a copy of round 2 put back, 6 left, 3 and 4 with fresh noise.

    The server that asks is restored too, as a host that went back to its last snapshot.
    """
    made = federation(party=party, **DP)
    made.run_until(2)
    copy, server = copy_of_state(made, tmp_path / "copy"), made.folder.root / "server" / "state"
    shutil.copytree(server, tmp_path / "server")
    made.run()
    paid = noisy_updates(made, "a")
    assert {one["noisy_updates"] for one in counters(made).values()} == {4}
    put_back(made, copy)
    before = made.processes["a"].site
    with pytest.raises(
        CheckpointError, match=r"older than .*: 4 noisy updates .* knows of 2"
    ) as no:
        made.start_site("a")
    assert "start the site with --ratings" in str(no.value)
    assert made.processes["a"].site is before
    assert paid == 4 * len(before.parties)
    # What the message says to do: the site sits out, and what it answered stays counted.
    shutil.rmtree(place(made) / "state")
    shutil.rmtree(server)
    shutil.copytree(tmp_path / "server", server)
    made.start_site("a")
    made.run()
    assert noisy_updates(made, "a") == paid
    assert {one["noisy_updates"] for one in counters(made).values()} == {4}


@pytest.mark.parametrize(("first", "second"), [("user", "site"), ("site", "user")])
def test_a_budget_is_of_people_whatever_a_charter_calls_a_party(federation, first, second):
    """Guards are kept, and the next charter makes the site one party, or each of its users one."""
    made = federation(party=first, **DP)
    made.run()
    assert {one["noisy_updates"] for one in counters(made).values()} == {4}
    following = federation(party=second, name="next", **DP)
    for site in SITES:
        shutil.copytree(place(made, site) / "guards", place(following, site) / "guards")
        following.start_site(site)
    parties = following.processes["a"].site.parties.values()
    assert {party.users.n_noisy for party in parties} == {4}
    assert not any(party.policy.noise.pays_after(party.users.rho_spent) for party in parties)


@pytest.mark.parametrize(
    ("changes", "last"),
    [(SIGNED, 5), ({**SIGNED, "solver": "sgd", "held_out": 0.0}, 4)],
    ids=["vb, and the sum after the last round", "sgd"],
)
def test_rounds_and_surveys_without_noise_are_counted_too(federation, tmp_path, changes, last):
    made = federation(**changes)
    made.run_until(2)
    copy = copy_of_state(made, tmp_path / "copy")
    made.run()
    put_back(made, copy)
    words = f"round {last} was answered, and the state is at round 2"
    with pytest.raises(CheckpointError, match=words):
        made.start_site("a")


def test_a_state_from_before_the_training_is_safe_and_sits_out(federation, tmp_path):
    made = federation(**SIGNED)
    copy = copy_of_state(made, tmp_path / "copy")
    made.run_until(2)
    put_back(made, copy)
    made.start_site("a")
    made.seen.clear()
    parcel = made.run()
    assert any("had a part in that training before" in reason for reason in refusals(made, "a"))
    assert all("a" not in line["parties"] for line in list(made.store.rounds())[2:])
    (one,) = counters(made).values()
    assert one["last_round"] == 2
    made.processes["a"].site.take_model(parcel)
    assert made.processes["a"].site.model_name


def test_a_site_that_lost_its_state_tests_on_no_rating_that_was_trained_on(tmp_path):
    """2,062 of 2,295 test ratings of a site of ML-100K had been trained on."""
    settings = Settings.checked(rounds=2, mask="mean", **SIGNED)
    folder = make_federation(
        tmp_path / "fed", RATINGS, settings, deadlines=QUICK, reproducible=False
    )
    made = Inside(folder, split_by_user(RATINGS, tmp_path), test=0.3)
    for site in SITES:
        made.start_site(site)
    made.run_until(1)
    before = made.processes["a"].site.plan.holdings
    shutil.rmtree(place(made) / "state")  # as the guide on backups says
    made.start_site("a")
    after = made.processes["a"].site.plan.holdings
    np.testing.assert_array_equal(after.test.lists.items, before.test.lists.items)
    np.testing.assert_array_equal(after.test.lists.indptr, before.test.lists.indptr)
    assert after.fingerprint == before.fingerprint


def test_a_state_without_guards_is_refused_and_told_what_to_do(federation):
    made = federation(**SIGNED)
    made.run_until(2)
    shutil.rmtree(place(made) / "guards")
    with pytest.raises(CheckpointError, match="count a new privacy budget on top of the old one"):
        made.start_site("a")
    assert not (place(made) / "guards").exists()  # a second start must not succeed either
    with pytest.raises(CheckpointError, match="put it back"):
        made.start_site("a")


def test_a_state_from_before_the_training_without_guards_is_refused_too(federation, tmp_path):
    """Nobody can know whether there was a training since; the budget would be there once more."""
    made = federation(**DP)
    copy = copy_of_state(made, tmp_path / "copy")
    made.run()
    put_back(made, copy)
    shutil.rmtree(place(made) / "guards")
    with pytest.raises(CheckpointError, match="count a new privacy budget on top of the old one"):
        made.start_site("a")


def test_a_model_without_guards_is_refused_too(federation):
    made = federation(**SIGNED)
    made.processes["a"].site.take_model(made.run())
    shutil.rmtree(place(made) / "guards")
    with pytest.raises(CheckpointError, match="does not have what this site has answered"):
        made.start_site("a")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 9}', "\xff"])
def test_guards_that_cannot_be_read_are_not_taken_for_none(federation, text):
    made = federation(**SIGNED)
    made.run_until(1)
    (place(made) / "guards" / "counters.json").write_text(text, "latin-1")
    with pytest.raises(CheckpointError, match=r"counters\.json cannot be read"):
        made.start_site("a")


def test_a_new_training_after_the_end_keeps_the_counters(federation):
    """The state is moved away, as the guide says; a second budget is not there for that."""
    made = federation(**DP)
    made.run()
    for state in made.folder.root.glob("*/*/state"):
        shutil.rmtree(state)
    shutil.rmtree(made.folder.root / "server" / "state")
    for site in SITES:
        made.start_site(site)
    made.seen.clear()
    with pytest.raises(WireError, match="no party answered"):
        made.run()
    assert any("privacy budget, 4 rounds, is spent" in reason for reason in refusals(made, "a"))
    assert noisy_updates(made, "a") == 4


def test_guards_are_the_owners_and_written_before_an_answer_leaves(federation):
    made = federation(**DP)
    answer, site = made.processes["a"].site.answer, made.processes["a"].site

    def compared(data):
        reply = answer(data)
        assert counters(made)["site"] == site.parties["a"].guards.as_json()
        return reply

    site.answer = compared
    made.run()
    assert counters(made)["site"]["last_round"] == 4
    assert (place(made) / "guards").stat().st_mode & 0o077 == 0
    for path in (place(made) / "guards").iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_party_that_fails_leaves_those_before_it_to_be_counted(federation):
    """The same bundle comes again: the others have answered it, and their answers leave now."""
    made = federation(party="user", most=10, **DP)
    made.run_until(2)
    site = made.processes["a"].site
    bundle = next(data for name, data in reversed(made.seen) if name == "a" and is_asked(data))
    parties = list(site.parties.values())
    answer, n_before = parties[-1].answer, [party.users.n_noisy for party in parties]
    for party in parties:  # as before that bundle
        party.current.change(answers={})
        party.current.move(last_round=1)

    def failing(parcel):
        raise RuntimeError("a fault of ours")

    parties[-1].answer = failing
    with pytest.raises(RuntimeError, match="a fault of ours"):
        site.answer(bundle)
    parties[-1].answer = answer
    site.answer(bundle)
    assert [party.users.n_noisy for party in parties] == [n + 1 for n in n_before]
    assert {one["noisy_updates"] for one in counters(made).values()} == {n_before[0] + 1}


def test_counters_that_could_not_be_written_are_written_before_the_next_answer(
    tmp_path, monkeypatch
):
    """A site lives on when its disk is full, and is asked again when there is room."""
    store, answered = GuardStore(tmp_path / "guards"), {"site": Guards(n_noisy=1)}

    def full(path, rights):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(guards, "writing", full)
        with pytest.raises(CheckpointError, match="No space left"):
            store.raise_to(answered)
        with pytest.raises(CheckpointError, match="No space left"):
            store.count_evaluation()
    assert store.n_evaluations == 0
    store.raise_to(answered)
    assert GuardStore(tmp_path / "guards").of("site") == answered["site"]


def test_a_kill_between_state_and_guards_is_no_restored_copy(federation):
    """The state is written first: it may be ahead of its guards, and never behind."""
    made = federation(**DP)
    made.site_moments = Moments()
    names = made.site_moments.names
    made.run()
    moments = [n for n, name in enumerate(names, start=1) if name == "a after a write"]
    assert len(moments) >= 4
    for path in [*made.folder.root.glob("sites/*/state"), *made.folder.root.glob("sites/*/guards")]:
        shutil.rmtree(path)
    shutil.rmtree(made.folder.root / "server" / "state")
    for site in SITES:
        made.start_site(site)
    made.site_moments.n, made.site_moments.at = 0, moments[2]
    made.run()
    assert made.processes["a"].site.parties["a"].guards.n_noisy <= 4


def test_users_are_guarded_wherever_their_ratings_are_in_the_file(federation, tmp_path):
    """Another order of users, or one more, gives nobody somebody else's counters."""
    made = federation(party="user", most=10, **DP)
    made.run()
    (place(made) / "state").rename(tmp_path / "away")
    frame = pl.read_parquet(made.ratings["a"])
    new = frame.filter(pl.col("user_id") == frame["user_id"][0])
    new = new.with_columns(user_id=pl.lit(0, frame["user_id"].dtype))
    pl.concat([new, frame]).write_parquet(tmp_path / "more.parquet")
    process = SiteProcess(made.folder, "a", tmp_path / "more.parquet", 0.0)
    spent = [party.guards.n_noisy for party in process.site.parties.values()]
    ids = process.site.plan.holdings.training.user_ids
    assert np.array_equal(np.flatnonzero(np.array(spent) == 0), np.flatnonzero(ids == "0"))
    assert sorted(set(spent)) == [0, 4]
    text = (place(made) / "guards" / "counters.json").read_text()
    assert not [user for user in ids if f'"{user}"' in text]
