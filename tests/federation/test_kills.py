"""Kill -9 at every moment: nothing is lost, no number and no session is used twice."""

import os
import shutil
from contextlib import suppress
from dataclasses import replace
from unittest import mock

import numpy as np
import polars as pl
import pytest
from inside import Inside, Kept, KilledError, Moments, replayed
from machines import SITES, make_federation, odd_ratings, rating_bytes, split_by_user

from fedmmf.aggregation.rare_items import raters_needed
from fedmmf.aggregation.secure.messages import SecureSetup
from fedmmf.aggregation.secure.server import SecureServer
from fedmmf.data.synthetic import synthetic
from fedmmf.errors import CheckpointError, FedMMFError, WireError
from fedmmf.federation import training
from fedmmf.federation.catalogue import ItemList
from fedmmf.federation.evaluation import ErrorSession
from fedmmf.federation.site.process import SiteProcess
from fedmmf.federation.site.serving import recommend
from fedmmf.settings import Settings
from fedmmf.simulation import train
from fedmmf.solvers.vb import server as vb_server
from fedmmf.solvers.vb.party import MAX_MEMBERSHIP_ROUNDS
from fedmmf.solvers.vb.shapes import VbShape, write_variant
from fedmmf.transports.bundles import pack, unpack
from fedmmf.wire import (
    Invitation,
    Kind,
    Layout,
    Newcomers,
    Refused,
    Round,
    name_of,
    split_parcel,
)
from fedmmf.wire.frames import kind_of

pytest.importorskip("nvflare", reason="certificates are made by NVFlare's provisioning")

RATINGS = synthetic(24, 12, 200, min_per_user=6, seed=3)
SETTINGS = Settings.checked(
    solver="vb", factors=2, rounds=3, signed=True, mask="mean", min_raters=1
)
# Every moment takes some minutes: `make faults` has them all, the suite some, spread evenly.
EVERY = bool(os.environ.get("FEDMMF_EVERY_MOMENT"))
PARTS = 4


def moments_in(part, names):
    """Every moment, or every write and some of the others, spread evenly."""
    chosen = [
        at
        for at, name in enumerate(names, start=1)
        if EVERY or ("write" in name and at % 3 == 0) or at % 25 == 7
    ]
    return chosen[part::PARTS]


QUICK = {"answer": 5.0, "heartbeat": 60.0, "gathering": 0.2, "patience": 5.0, "retries": 6}


@pytest.fixture(autouse=True)
def _no_breath(monkeypatch):
    """No waiting, and of three rounds the second asks who rated what."""
    monkeypatch.setattr(training, "BREATH", 0.001)
    monkeypatch.setattr(vb_server, "MEMBERSHIP_ROUNDS", (1,))


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """A federation's folder without any state; made once for a kind, for certificates are slow."""
    made = {}

    def fresh(party="site", **changes):
        key = (party, *sorted(changes.items()))
        if key not in made:
            root = tmp_path_factory.mktemp("federation")
            is_signed = party == "site"
            settings = SETTINGS.changed(signed=is_signed, **changes)
            folder = make_federation(root / "fed", RATINGS, settings, party=party, deadlines=QUICK)
            made[key] = (folder, split_by_user(RATINGS, root))
        folder, files = made[key]
        kept = [*folder.root.glob("sites/*/state"), *folder.root.glob("sites/*/guards")]
        for state in [*kept, folder.root / "server" / "state"]:
            shutil.rmtree(state, ignore_errors=True)
        return folder, files

    return fresh


def inside(folder_of, **kind):
    made = Inside(*folder_of(**kind))
    for site in SITES:
        made.start_site(site)
    return made


def sessions(seen):
    """Set-ups of secure sums that the server has sent, each with what it was for."""
    found = []
    for _, data in seen:
        try:
            frames = unpack(data).values()
        except WireError:
            continue
        found += [SecureSetup.decode(f) for f in frames if kind_of(f) == Kind.SECURE_SETUP]
    return found


def rounds_in(seen):
    """Numbers of the rounds that were published."""
    numbers = set()
    for _, data in seen:
        with suppress(WireError):
            for frame in unpack(data).values():
                published, _ = split_parcel(frame)
                numbers |= {Round.decode(f).round for f in published if kind_of(f) == Kind.ROUND}
    return numbers


def model_in(parcel):
    """The final factors."""
    return Round.decode(split_parcel(parcel, 3)[1]).broadcast


def require_sound(made, parcel):
    """As many rounds as were asked for, each once, and the model of who took part in them."""
    journal = list(made.store.rounds())
    numbers = [line["round"] for line in journal]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == SETTINGS.max_rounds
    broadcast = model_in(parcel)
    settings = made.folder.charter().training
    kept = Kept.of(made.store, made.moved)
    require_counted(kept)
    expected = replayed(kept, RATINGS, settings, list(SITES))
    assert np.abs(broadcast.item_rows - expected.item_rows).max() < 1e-5


def require_counted(kept):
    """The layout is that of surveys, each among all sites or all but one."""
    n, n_sites = RATINGS.n_users, len(SITES)
    sites = np.searchsorted(n * np.arange(1, n_sites) // n_sites, np.arange(n), side="right")
    summed = RATINGS.select(np.isin(RATINGS.item_codes, kept.layout.items))
    means = np.bincount(summed.user_codes, summed.values) / np.diff(summed.by_user)
    counts, lines = [], []
    for missing in (None, *range(n_sites)):
        rated = RATINGS.item_codes[sites[RATINGS.user_codes] != missing]
        counts.append(np.bincount(rated, minlength=RATINGS.n_items).tolist())
        lines.append(means[sites != missing].mean())
    assert kept.n_raters.tolist() in counts
    assert min(abs(kept.layout.line[0] - line) for line in lines) < 1e-6
    assert kept.layout.items.tolist() == np.flatnonzero(kept.n_raters).tolist()


def moments_of(folder_of, which, **kind):
    made = inside(folder_of, **kind)
    require_sound(made, made.run())
    return getattr(made, which).names


@pytest.mark.parametrize("part", range(4))
def test_a_server_killed_at_any_moment_goes_on(folder_of, part):
    names = moments_of(folder_of, "server_moments")
    assert len(names) > 40
    for at in moments_in(part, names):
        made = inside(folder_of)
        made.server_moments = Moments(at)
        parcel = made.run()
        require_sound(made, parcel)
        (cut,) = made.lives
        before, after = (rounds_in(part) for part in (made.seen[:cut], made.seen[cut:]))
        assert not before & after  # no number is heard of again
        used = [setup.session for setup in sessions(made.seen)]
        among = {setup.session: setup.n_parties for setup in sessions(made.seen)}
        assert all(used.count(name) <= among[name] for name in among)  # never set up twice


@pytest.mark.parametrize("part", range(4))
def test_a_site_killed_at_any_moment_is_a_drop_out_and_comes_back(folder_of, part):
    for at in moments_in(part, moments_of(folder_of, "site_moments")):
        made = inside(folder_of)
        made.site_moments = Moments(at)
        require_sound(made, made.run())
        assert set(made.processes) == set(SITES)


class LostLooks(Moments):
    """Kills the server whenever everybody has answered another attempt at a look."""

    def __init__(self, made, times):
        super().__init__()
        self._made, self._left, self._lost = made, times, 1

    def pass_by(self, name):
        super().pass_by(name)
        newest = max(self._made.moved, default=0)
        is_new = newest > self._lost and self._made.moved[newest] == set(SITES)
        if self._left and is_new and name == "after ask":
            assert [line["round"] for line in self._made.store.rounds()] == [1]
            self._left, self._lost = self._left - 1, newest
            raise KilledError(name)


@pytest.mark.parametrize("times", [1, MAX_MEMBERSHIP_ROUNDS, MAX_MEMBERSHIP_ROUNDS + 1])
def test_looks_that_are_lost_count_and_training_goes_on_without(folder_of, times):
    """A party is looked at no more often for it; a look that nobody answers teaches nothing."""
    made = inside(folder_of)
    made.server_moments = LostLooks(made, times)
    parcel = made.run()
    assert len(made.lives) == times
    require_sound(made, parcel)
    assert max(rounds_in(made.seen)) >= SETTINGS.max_rounds + times
    states = [process.site.parties[name].state() for name, process in made.processes.items()]
    assert [int(state["users/looks"].max()) for state in states] == [MAX_MEMBERSHIP_ROUNDS] * len(
        SITES
    )


def test_messages_that_arrive_twice_change_nothing(folder_of):
    made = inside(folder_of)
    made.twice = True
    require_sound(made, made.run())


def test_messages_that_arrive_again_after_newer_ones_change_nothing(folder_of):
    made = inside(folder_of)
    made.is_stale = True
    require_sound(made, made.run())


def test_every_user_may_be_a_party(folder_of):
    made = inside(folder_of, party="user")
    require_sound(made, made.run())
    assert len(next(made.store.rounds())["parties"]) == RATINGS.n_users


def test_three_of_four_go_on_and_two_do_not(folder_of):
    made = inside(folder_of)
    made.away = {"d"}
    require_sound(made, made.run())
    assert all(line["parties"] == ["a", "b", "c"] for line in made.store.rounds())
    made = inside(folder_of)
    made.away = {"c", "d"}
    with pytest.raises(WireError, match="needs 3 parties at once"):
        made.training().run()


def test_a_kill_is_one(folder_of):
    made = inside(folder_of)
    made.server_moments = Moments(1)
    with pytest.raises(KilledError):
        made.training().run()


def test_a_line_that_was_cut_off_is_forgotten(folder_of):
    made = inside(folder_of)
    made.run()
    path = made.folder.machine("server").state() / "rounds.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"rou')
    made.training().run()
    assert path.read_text() == whole


def test_what_was_answered_is_on_disk_before_the_answer_leaves(folder_of):
    """A site that is made again from its files is where the first one was."""
    made = inside(folder_of)
    answer = made.processes["a"].site.answer

    def compared(data):
        reply = answer(data)
        again = SiteProcess(made.folder, "a", made.ratings["a"], 0.0)
        one, other = (p.site.parties["a"] for p in (made.processes["a"], again))
        assert (one.invitation is None) == (other.invitation is None)
        if one.invitation is not None:
            for name, value in one.state().items():
                assert np.array_equal(value, other.state()[name]), name
        return reply

    made.processes["a"].site.answer = compared
    require_sound(made, made.run())


def test_attempts_that_keep_failing_end_the_training_with_the_reason(folder_of):
    made = inside(folder_of)
    going = made.training()
    with (
        mock.patch.object(SecureServer, "sum", side_effect=WireError("the cat is on the cable")),
        pytest.raises(WireError, match="the cat is on the cable"),
    ):
        going.run()


def test_ratings_may_not_change_while_training_goes_on(folder_of):
    made = inside(folder_of)
    made.run()
    with pytest.raises(CheckpointError, match="not those that training began with"):
        SiteProcess(made.folder, "a", made.ratings["b"], 0.0)


def left_out_of_sums(made):
    """What each session for rounds leaves out, in the order in which they were set up."""
    setups = [setup for setup in sessions(made.seen) if not setup.for_survey]
    return [setup.left_out.tolist() for setup in setups]


def summed_raters(made):
    """Raters of each item of the layout who are only summed, by the ratings themselves."""
    layout, counts = Kept.of(made.store).layout, np.zeros(RATINGS.n_items, int)
    for place, site in enumerate(SITES):
        parties = made.processes[site].site.parties.values()
        start = RATINGS.n_users * place // len(SITES)
        for user, party in enumerate(parties, start=start):
            if not party.in_clear:
                counts[RATINGS.item_codes[RATINGS.by_user[user] : RATINGS.by_user[user + 1]]] += 1
    return counts[layout.items]


ADAPTIVE = {"solver": "sgd", "sharing": "adaptive", "threshold_j": 0.06, "held_out": 0.0}


def test_a_server_that_goes_on_leaves_out_what_few_of_the_summed_rated(folder_of):
    """The clear group answers no survey after its first round: what it said is kept."""
    made = inside(folder_of, party="user", **ADAPTIVE, min_raters=3)
    made.run()
    n_summed = summed_raters(made)
    rare = np.flatnonzero(n_summed < raters_needed(3)).tolist()
    assert 0 < len(rare) < len(n_summed)
    first = left_out_of_sums(made)
    assert all(left_out == rare for left_out in first)
    # Killed after it has told of the first round: the next stretch begins with an invitation.
    at = 1 + max(n for n, name in enumerate(made.server_moments.names) if "write" in name) * 3 // 4
    made = inside(folder_of, party="user", **ADAPTIVE, min_raters=3)
    made.server_moments = Moments(at)
    made.run()
    (cut,) = made.lives
    assert rounds_in(made.seen[:cut])
    again = left_out_of_sums(made)
    assert len(again) > len(first)
    assert all(left_out == rare for left_out in again)


# After the end


def finished(folder_of, **kind):
    made = inside(folder_of, **kind)
    parcel = made.run()
    for process in made.processes.values():
        process.site.take_model(parcel)
    return made, parcel


def test_a_site_that_is_done_takes_part_in_nothing_more_and_takes_no_other_model(folder_of):
    """Not after a restart either: what it has said before must not be asked for again."""
    made, parcel = finished(folder_of)
    invitation = made.plan.invitation().encode()
    del made.processes["a"]
    made.start_site("a")
    for process in made.processes.values():
        (said,) = unpack(process.site.answer(pack({process.name: invitation}))).values()
        assert "training is done" in Refused.decode(said).reason
        with pytest.raises(WireError, match="takes another only if its owner"):
            process.site.take_model(parcel)


def test_a_model_of_another_run_or_kind_is_not_taken(folder_of):
    made = inside(folder_of)
    parcel = made.run()
    site = made.processes["a"].site
    (first, laid_out, told), last = split_parcel(parcel, 3)
    short = Newcomers(Newcomers.decode(told).totals[1:]).encode()
    invitation, layout = Invitation.decode(first), Layout.decode(laid_out)
    final = Round.decode(last)
    wide = write_variant("both", 1, 0, 0)
    for frames, reason in (
        ((replace(invitation, run=bytes(16)).encode(), laid_out, last), "not of the run"),
        ((replace(invitation, solver="sgd").encode(), laid_out, last), "bounds|expects solver vb"),
        ((replace(invitation, rank=3 + 1).encode(), laid_out, last), "expects rank 3 .* says 4"),
        ((replace(invitation, variant=wide).encode(), laid_out, last), "profiles 0 .* says 1"),
        (
            (replace(invitation, variant="none").encode(), laid_out, last),
            "implicit prior both .* says nothing",
        ),
        ((first, replace(layout, line=np.ones(99)).encode(), last), "columns; got 99"),
        ((first, replace(layout, items=layout.items + 1).encode(), last), "catalogue|item"),
        ((first, laid_out, replace(final, is_last=False).encode()), "no finished model|items"),
        ((first, laid_out, replace(final, item_rows=final.item_rows[1:]).encode()), "items"),
        ((first, last), "an invitation, a layout"),
        ((last,), "an invitation, a layout"),
        ((first, laid_out, laid_out, last), "not for here"),
        ((first, laid_out, told, told, last), "3 broadcasts and one message"),
        ((first, laid_out, short, last), "newcomers' totals must be"),
        ((laid_out, first, last), "not for here"),
    ):
        with pytest.raises(FedMMFError, match=reason):
            site.take_model(b"".join(frames))
    site.take_model(parcel)


def test_who_comes_after_the_end_is_a_newcomer(folder_of):
    """With the sums of the others, where the model has them; they are over everybody else."""
    made = inside(folder_of)
    made.away = {"d"}
    (first, laid_out, told), last = split_parcel(made.run(), 3)
    sums, factors, effects = Newcomers.decode(told).totals, [], []
    late = made.processes["d"].site.parties["d"].n_users
    assert 0 < sums[0] <= RATINGS.n_users - late
    for more in (told, b""):
        made.processes.pop("d")
        shutil.rmtree(made.folder.root / "sites" / "d" / "state", ignore_errors=True)
        made.start_site("d")
        site = made.processes["d"].site
        site.take_model(first + laid_out + more + last)
        party, items = site.parties["d"], np.arange(RATINGS.n_items, dtype=np.int32)
        factors.append(party.user_factors.copy())
        effects.append(party.predict(items) - RATINGS.scale.clip(party.scores(items)))
    assert np.abs(factors[0] - factors[1]).max() > 1e-3
    assert np.abs(effects[0]).max() > 1e-3  # that somebody rates an item says something too
    assert not effects[1].any()


def test_who_comes_after_the_end_takes_no_model_of_what_it_does_not_have(folder_of):
    """A model for people with profiles, in every other way as it should be."""
    made = inside(folder_of)
    made.away = {"d"}
    (first, laid_out, *_), last = split_parcel(made.run(), 3)
    invitation, final = Invitation.decode(first), Round.decode(last)
    site = made.processes["d"].site
    levels = RATINGS.scale.n_levels + 1
    for counts, reason in (
        ((0, 5, 0, 0), "features that rank unrated items 0 by its charter; .* says 5"),
        ((0, 0, levels, 1), f"levels of the ordinal likelihood 0 by its charter; .* says {levels}"),
        ((0, 0, 0, 0), "features in a joint mask 1 by its charter; .* says 0"),
        ((0, 0, 0, 2), "features in a joint mask 1 by its charter; .* says 2"),
    ):
        variant = write_variant("both", *counts)
        parameters = as_variant(final, invitation, variant)
        other = replace(invitation, variant=variant)
        with pytest.raises(WireError, match=reason):
            site.take_model(other.encode() + laid_out + parameters.encode())
    site.take_model(first + laid_out + last)
    assert site.parties["d"].is_finished


def as_variant(final, invitation, variant):
    """The same model with all the numbers that another variant has."""
    old, new = (
        VbShape.of(invitation.rank, kind).blocks["parameters"]
        for kind in (invitation.variant, variant)
    )
    parts = {name: part for name, part in old.split(final.parameters).items() if len(part)}
    extra = {"unrated": np.array([0.5, 1.0]), "cuts": np.arange(1.0, 1000.0)}
    extra |= {"joint_mean": np.zeros(2), "joint_precision": np.ones(2)}
    sizes = new.split(np.zeros(new.size))
    parts |= {name: value[: len(sizes[name])] for name, value in extra.items()}
    return replace(final, parameters=new.join(**parts))


def test_a_site_takes_no_model_of_people_with_profiles_and_its_party_could(folder_of):
    """The charter has none; who has none is taken for somebody with the mean one."""
    made = inside(folder_of)
    made.away = {"d"}
    (first, laid_out, *_), last = split_parcel(made.run(), 3)
    invitation, final = Invitation.decode(first), Round.decode(last)
    variant = write_variant("both", profile=1, joint=1)
    k, places = invitation.rank, VbShape.of(invitation.rank, variant).blocks["parameters"]
    factors = []
    for mean in (0.0, 0.5):
        old = VbShape.of(k, invitation.variant).blocks["parameters"].split(final.parameters)
        weights = np.append(old["user_weights"], np.arange(k) * 0.5)
        parts = {**{name: part for name, part in old.items() if len(part)}, "user_weights": weights}
        parts["profile_mean"] = np.array([mean])
        parcel = replace(invitation, variant=variant).encode() + laid_out
        made.processes.pop("d")
        shutil.rmtree(made.folder.root / "sites" / "d" / "state", ignore_errors=True)
        made.start_site("d")
        site = made.processes["d"].site
        other = replace(final, parameters=places.join(**parts))
        with pytest.raises(WireError, match=r"expects columns of profiles 0 .* says 1"):
            site.take_model(parcel + other.encode())
        party, population = site.parties["d"], Layout.decode(laid_out).population
        party.join_late("vb", variant, other.broadcast, population)
        assert party.is_finished
        factors.append(party.user_factors)
    assert np.abs(factors[1] - factors[0])[:, 1:].max() > 0.01


@pytest.mark.parametrize("mask", ["none", "mean", "lr"])
def test_a_site_recommends_by_its_files_what_its_parties_predict(folder_of, mask):
    """Around the line that was published, which has features where masks have."""
    made, parcel = finished(folder_of, mask=mask)
    layout = Layout.decode(split_parcel(parcel, 3)[0][1])
    process = made.processes["a"]
    party, items = process.site.parties["a"], ItemList.load(made.folder.catalogue_file)
    assert len(layout.line) == (1 + items.features.shape[1] if mask == "lr" else 1)
    assert party.masks.population.is_like(layout.population)
    user = pl.read_parquet(made.ratings["a"])["user_id"][0]
    place = process.site.plan.holdings.training.user(str(user))
    predicted = party.predict(np.arange(RATINGS.n_items), place)
    ids = items.ids.astype(str).tolist()
    for found in recommend(made.folder, "a", str(user), 3).recommendations:
        assert found.prediction == pytest.approx(predicted[ids.index(found.item_id)], rel=1e-5)


def test_somebody_new_is_recommended_to_without_training(folder_of, tmp_path):
    made, _ = finished(folder_of)
    del made.processes["a"]
    frame = pl.read_parquet(made.ratings["a"])
    new = frame.filter(pl.col("user_id") == frame["user_id"][0]).with_columns(
        user_id=pl.lit(999_999, frame["user_id"].dtype)
    )
    pl.concat([frame, new]).write_parquet(tmp_path / "more.parquet")
    SiteProcess(made.folder, "a", tmp_path / "more.parquet", 0.0)
    old = recommend(made.folder, "a", str(frame["user_id"][0]), 3)
    found = recommend(made.folder, "a", "999999", 3)
    assert [i.item_id for i in found.recommendations] == [i.item_id for i in old.recommendations]


def test_a_site_that_was_not_let_in_does_not_answer(folder_of):
    made = inside(folder_of)
    made.processes["a"].is_welcome = False
    with pytest.raises(WireError, match="not let in"):
        made.processes["a"].answer("server", pack({}))


def test_who_is_not_connected_is_not_asked(folder_of):
    made = inside(folder_of)
    made.training()
    made.away = {"b"}
    made.seen.clear()
    made.sites.exchange("round", {"b": Refused("x").encode()}, 1.0)
    assert made.seen == []


@pytest.mark.parametrize(
    ("party", "changes"),
    [
        ("site", {"solver": "sgd", "held_out": 0.0}),
        ("user", {"solver": "sgd", "held_out": 0.0}),
        ("site", {"solver": "sgd", "held_out": 0.0, "mask": "lr"}),
        ("user", {**ADAPTIVE, "step": "mean"}),
        ("site", {"mask": "none", "implicit_prior": "none"}),
        ("user", {"implicit_prior": "items"}),
        ("site", {"implicit_prior": "users", "mask": "lr"}),
        ("site", {"objective": "ranking", "mask": "lr"}),
        ("user", {"objective": "ranking", "unrated_weight": 0.3, "unrated_value": 2.0}),
    ],
)
def test_other_solvers_and_masks_equal_the_simulation_too(folder_of, party, changes):
    made = inside(folder_of, party=party, **changes)
    broadcast = model_in(made.run())
    expected = train(RATINGS, made.folder.charter().training).members[0].broadcast
    assert np.abs(broadcast.item_rows - expected.item_rows).max() < 1e-4


@pytest.mark.parametrize(
    ("party", "changes"),
    [
        ("user", {"solver": "sgd", "sharing": "adaptive", "threshold_j": 0.5}),
        ("user", {"solver": "sgd", "aggregation": "dp", "mask": "mean"}),
        ("site", {"solver": "sgd", "held_out": 0.2}),
    ],
)
def test_other_ways_to_sum_come_to_an_end(folder_of, party, changes):
    made = inside(folder_of, party=party, **changes)
    broadcast = model_in(made.run())
    assert np.isfinite(broadcast.item_rows).all()
    assert len(list(made.store.rounds())) == SETTINGS.max_rounds


@pytest.mark.parametrize("party", ["site", "user"])
def test_nothing_that_the_server_receives_holds_a_rating(tmp_path, party):
    ratings = odd_ratings()
    settings = SETTINGS.changed(signed=party == "site")
    folder = make_federation(tmp_path / "fed", ratings, settings, party=party, deadlines=QUICK)
    made = Inside(folder, split_by_user(ratings, tmp_path), test=0.2)
    for site in SITES:
        made.start_site(site)
    parcel = made.run()
    for process in made.processes.values():
        process.site.take_model(parcel)
    identities = {site: made.sites.identity_of(site) for site in SITES}
    ErrorSession(
        folder.charter(), name_of(parcel), identities, lambda asked: made.ask("evaluate", asked, 1)
    ).run(SITES)
    secrets = [*rating_bytes(ratings), b"qzperson-"]
    received = [data for _, data in made.seen]
    assert sum(map(len, received)) > 10_000
    assert not [secret for secret in secrets for data in received if secret in data]
    kept = [path.read_bytes() for path in folder.root.glob("sites/*/state/holdings.npz")]
    assert any(
        secret in data for secret in secrets for data in kept
    )  # the search finds what is there
