"""Errors of a federation: a secure sum, once for a model, and never the difference of one user."""

import json
import re
import shutil
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from threading import Event, Timer

import numpy as np
import polars as pl
import pytest
from inside import Inside
from machines import SITES, make_federation, split_by_user

from fedmmf.data.synthetic import synthetic
from fedmmf.errors import SettingsError, WireError
from fedmmf.federation import training
from fedmmf.federation.evaluation import AGREE, NO, TRIP, ErrorAgreement, ErrorSession
from fedmmf.federation.finished import FinishedModel, evaluated_of
from fedmmf.federation.hello import ErrorSums
from fedmmf.federation.site.evaluation import Covered, DeclinedError, JudgedOn
from fedmmf.federation.store import RunStore
from fedmmf.secagg.messages import Masked
from fedmmf.settings import Settings
from fedmmf.wire import name_of

pytest.importorskip("nvflare", reason="certificates are made by NVFlare's provisioning")

RATINGS = synthetic(32, 16, 340, min_per_user=8, seed=3)
QUICK = {"answer": 5.0, "heartbeat": 60.0, "gathering": 0.2, "patience": 5.0, "retries": 3}


@pytest.fixture(autouse=True)
def _no_breath(monkeypatch):
    monkeypatch.setattr(training, "BREATH", 0.001)


@pytest.fixture
def finished(tmp_path):
    """A federation that has trained, and its model."""

    def made(party="site", **changes):
        settings = {"solver": "vb", "factors": 2, "rounds": 2, "mask": "mean", "min_raters": 1}
        settings |= {"signed": party == "site", **changes}
        folder = make_federation(
            tmp_path / "fed", RATINGS, Settings.checked(**settings), party=party, deadlines=QUICK
        )
        found = Inside(folder, split_by_user(RATINGS, tmp_path), test=0.3)
        for site in SITES:
            found.start_site(site)
        parcel = found.run()
        for process in found.processes.values():
            process.site.take_model(parcel)
        return found, parcel

    return made


def session_of(made, parcel):
    sites, charter = made.sites, made.folder.charter()
    identities = {site: sites.identity_of(site) for site in SITES}
    return ErrorSession(
        charter, name_of(parcel), identities, lambda asked: made.ask("evaluate", asked, 1.0)
    )


def asked(made, parcel, sites=SITES):
    return session_of(made, parcel).run(sites)


def errors_of(process):
    """All errors of a site, worked out from its parties."""
    test, place, found = process.site.plan.holdings.test, 0, []
    for party in process.site.parties.values():
        for user in range(party.n_users):
            start, end = test.lists.indptr[place : place + 2]
            place += 1
            if end > start:
                items = test.lists.items[start:end]
                found.append(test.values[start:end] - party.predict(items, user))
    return np.concatenate(found)


def started_again(made, site, frame=None, path=None):
    """The site, with other ratings if there are any."""
    if frame is not None:
        frame.write_parquet(path)
        made.ratings[site] = path
    del made.processes[site]
    made.start_site(site)


@pytest.mark.parametrize("party", ["site", "user"])
def test_the_sum_is_that_of_all_errors_and_nothing_else_leaves(finished, party):
    made, parcel = finished(party)
    made.seen.clear()
    found = asked(made, parcel)
    together = np.concatenate([errors_of(process) for process in made.processes.values()])
    assert found.sums.n_ratings == len(together) > 60
    assert found.sums.squared == pytest.approx(np.square(together).sum(), rel=1e-5)
    assert found.sums.absolute == pytest.approx(np.abs(together).sum(), rel=1e-5)
    assert (found.sites, found.declined) == (SITES, {})
    shown = evaluated_of(found, made.folder.charter(), RATINGS.scale.span)
    assert shown.rmse == pytest.approx(np.sqrt(np.square(together).mean()), rel=1e-5)
    require_masked(made)


def require_masked(made):
    """What one site sends of its sums is under its masks."""
    said = b"".join(data for _, data in made.seen)
    assert b"squared" not in said
    assert b"n_ratings" not in said
    (told,) = {
        ErrorAgreement.decode(data[1:]).model_copy(update={"party": 0})
        for _, data in made.seen
        if data[:1] == AGREE
    }
    setup, own = told.setup(made.folder.charter()), {}
    for name, data in made.seen:
        with suppress(WireError):
            own[name] = Masked.decode(setup, SITES.index(name), data[1:]).vector
    assert own.keys() == set(SITES)
    for name, vector in own.items():
        squared = np.square(errors_of(made.processes[name]).astype(np.float64)).sum()
        assert vector[0] != len(errors_of(made.processes[name]))
        assert abs(int(vector[1]) / 2**20 - squared) > 1
    total = sum(map(int, (vector[0] for vector in own.values()))) % 2**64
    assert total > 2**40  # own masks are still on it


def test_the_same_question_has_the_same_answer_after_a_newcomer_too(finished, tmp_path):
    """Exact sums left each time: the difference of two was one user's, to eight digits."""
    made, parcel = finished()
    first = asked(made, parcel)
    frame = pl.read_parquet(made.ratings["a"])
    new = frame.filter(pl.col("user_id") == frame["user_id"][0]).with_columns(
        user_id=pl.lit(999_999, frame["user_id"].dtype)
    )
    started_again(made, "a", pl.concat([frame, new]), tmp_path / "more.parquet")
    users = made.processes["a"].site.plan.holdings.test
    assert users.lists.lengths[users.user("999999")] > 0  # it has test ratings
    again = asked(made, parcel)
    assert again == first


@pytest.mark.parametrize("byte", [b"\xff", b"x", "\u00e9".encode()])
def test_a_long_reason_costs_no_more_than_what_is_kept_of_it(byte):
    """1 MB of bytes that are no text took 88 MB, and 64 MB more than a machine has."""
    said = NO + byte * (8 << 20)
    session = ErrorSession(None, b"", {}, lambda questions: {"a": said})
    tracemalloc.start()
    try:
        assert session.answers(TRIP, {"a": b""}) == {}
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert len(session.declined["a"]) == 1000


@pytest.mark.parametrize("is_signed", [True, False])
def test_a_site_that_never_hears_of_the_end_says_the_same_again(finished, tmp_path, is_signed):
    """The others unmask the sum without it; after a newcomer, a second sum differed by that one."""
    made, parcel = finished(signed=is_signed)
    session, n_asked = session_of(made, parcel), []
    reach = session.ask

    def forgetting(questions):
        n_asked.append(len(questions))
        is_last = len(n_asked) == 4 + is_signed
        return reach({site: said for site, said in questions.items() if not is_last or site != "a"})

    session.ask = forgetting
    first = session.run(SITES)
    assert len(n_asked) == 4 + is_signed
    frame = pl.read_parquet(made.ratings["a"])
    new = frame.filter(pl.col("user_id") == frame["user_id"][0]).with_columns(
        user_id=pl.lit(999_999, frame["user_id"].dtype)
    )
    started_again(made, "a", pl.concat([frame, new]), tmp_path / "more.parquet")
    assert asked(made, parcel).sums == first.sums


def test_a_model_is_judged_in_one_company(finished):
    made, parcel = finished()
    first = asked(made, parcel)
    with pytest.raises(SettingsError, match=r"answered about this model in a sum of a, b, c, d"):
        asked(made, parcel, SITES[:3])
    assert asked(made, parcel) == first


def test_a_site_that_goes_away_on_the_way_shows_nothing_of_itself(finished):
    made, parcel = finished()
    session, n_asked = session_of(made, parcel), []
    reach = session.ask

    def losing(questions):
        n_asked.append(len(questions))
        made.away = {"d"} if len(n_asked) == 3 else set()  # before its masked input
        return reach(questions)

    session.ask = losing
    found = session.run(SITES)
    assert found.sites == SITES[:3]
    assert "away" in found.declined["d"]
    expected = sum(len(errors_of(made.processes[site])) for site in SITES[:3])
    assert found.sums.n_ratings == expected
    with pytest.raises(SettingsError, match="at least 3 sites, so that nobody sees those of one"):
        asked(made, parcel, SITES[:2])


def test_under_differential_privacy_nothing_is_said(finished, tmp_path):
    dp = {"solver": "sgd", "aggregation": "dp", "dp_noise": "local", "signed": False}
    made, parcel = finished(**dp, held_out=0.0)
    with pytest.raises(SettingsError, match="outside the privacy budget"):
        asked(made, parcel)
    made.store.save_model(parcel)
    with pytest.raises(SettingsError, match=r"errors stay at the sites.*Hold ratings out"):
        model_of(made).evaluate()
    assert not list(made.folder.root.glob("sites/*/guards/evaluated.npz"))


def model_of(made):
    return FinishedModel(made.folder.charter(), made.store, made.sites, made, Event())


def test_the_server_keeps_its_answer(finished, tmp_path):
    made, parcel = finished()
    made.store.save_model(parcel)
    first = model_of(made).evaluate()
    made.seen.clear()
    assert model_of(made).evaluate() == first
    assert made.seen == []  # nobody is asked
    again = RunStore(made.folder.machine("server").state(), {})
    assert again.evaluation(name_of(parcel)) == first
    assert again.evaluation(bytes(32)) is None
    (made.folder.machine("server").state() / "evaluation.json").write_text("{")
    assert again.evaluation(name_of(parcel)) is None


@pytest.mark.parametrize("party", ["site", "user"])
def test_a_party_predicts_all_its_test_ratings_at_once(finished, monkeypatch, party):
    """One call for each user took time that grows with the square of their number."""
    made, _ = finished(party)
    site = made.processes["a"].site
    test, known = site.plan.holdings.test.lists, list(site.parties.values())
    whose = [(known[0], at) if party == "site" else (known[at], 0) for at in range(test.n_users)]
    each = [
        one.predict(test.items[start:end], at)
        for (one, at), (start, end) in zip(whose, pairwise(test.indptr), strict=True)
    ]
    asked = []
    for one in known:
        scores = one.users.scores
        monkeypatch.setattr(
            one.users,
            "scores",
            lambda *args, scores=scores, **named: asked.append(1) or scores(*args, **named),
        )
    np.testing.assert_array_equal(site.predicted(), np.concatenate(each))
    assert len(asked) == len(known)


def test_two_who_ask_at_once_have_one_answer(finished):
    """Sites dropped out of the first sum when they were asked into the second."""
    made, parcel = finished()
    made.store.save_model(parcel)
    model = model_of(made)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: model.evaluate(), range(2))
    assert first == second
    assert first.sites == SITES


def test_sites_have_time_to_fetch_the_model_that_is_judged(finished):
    """Whoever has it not would be left out for good: a model is judged once."""
    made, parcel = finished()
    made.store.save_model(parcel)
    late = made.processes["a"].site
    late.model_name = b""
    model = model_of(made)
    model.offer(parcel)
    for site in SITES[1:]:
        model.hand_out(site)

    def fetch():
        late.model_name = name_of(parcel)
        model.hand_out("a")

    fetching = Timer(0.3, fetch)
    fetching.start()
    assert model.evaluate().sites == SITES
    fetching.join()


def test_a_site_asks_for_the_company_that_it_knows(finished):
    made, parcel = finished()
    site, sent = made.processes["a"].site, session_of(made, parcel).proposal(SITES)
    strange = (*sent.identities[:3], "ab" * 32)
    for changes, reason in (
        ({"model": "00" * 32}, "no model yet, or another one"),
        ({"party": 1}, "another's number"),
        ({"party": 9}, "another's number"),
        ({"sites": ("a", "a", "b", "c")}, "each once"),
        ({"sites": ("a", "b", "c", "x")}, "sites of this federation"),
        ({"identities": ()}, "sign with identities that it trusts"),
        ({"identities": strange}, "sign with identities that it trusts"),
        ({"identities": sent.identities[:3]}, "sign with identities that it trusts"),
        ({"sites": ("a", "b", "c"), "identities": sent.identities[1:]}, "trusts|public key|secret"),
    ):
        told = ErrorAgreement(**{**sent.model_dump(), **changes})
        answer = site.evaluate(AGREE + told.encode())
        assert answer[:1] == NO
        assert re.search(reason, answer[1:].decode()), answer
    for data in (b"", b"\7", TRIP, TRIP + b"x" * 50, AGREE, AGREE + b"{}", AGREE + b"\xff" * 99):
        assert site.evaluate(data)[:1] == NO
    assert asked(made, parcel).sites == SITES


def test_what_the_last_answer_covered_is_needed_for_the_next(finished, tmp_path):
    made, parcel = finished()
    asked(made, parcel)
    (made.folder.root / "sites" / "a" / "guards" / "evaluated.npz").unlink()
    session = session_of(made, parcel)
    with pytest.raises(SettingsError, match="in a sum of a, b, c, d"):
        session.run(SITES)
    assert "what its last answer covered is lost" in session.declined["a"]


# Whom an answer covers


def covered(**users):
    """Ratings of users by letters, who have come together."""
    pairs = [(ord(user), ord(user) * 1000 + n) for user, all_ in users.items() for n in all_]
    columns = [np.array(column, np.uint64) for column in zip(*pairs, strict=True)]
    return Covered(*columns, np.zeros(len(pairs), np.int64))


def chosen(now, last):
    which, _ = now.next_after(last, 3)
    return {int(rating) for rating in now.ratings[which]}


def users_of_answers(*states):
    """Users whom each answer is about, one after the other; None: there was none."""
    last, found = Covered.nothing(), []
    for state in states:
        now = covered(**{user: [1] for user in state})
        try:
            which, last = now.next_after(last, 3)
        except DeclinedError:
            found.append(None)
        else:
            found.append({chr(int(user)) for user in now.users[which]})
    return found


@pytest.mark.parametrize(
    ("states", "third"),
    [
        (("abcde", "abcdewxyz", "abcdez"), "abcde"),  # four came, three of them went
        (("abcde", "abcdexyz", "bcde"), None),  # three who came went, and one of before
        (("abcdefgh", "abcde", "abcdefgx"), "abcde"),  # two of three come back
        (("abcde", "abcdevwxyz", "abcdeyz"), "abcde"),  # no group becomes too small
        (("abcde", "abcdeuvwxyz", "abcdexyz"), "abcdexyz"),
    ],
)
def test_no_two_answers_differ_by_few_though_each_differs_from_the_last_by_many(states, third):
    answers = users_of_answers(*states)
    assert answers[2] == (None if third is None else set(third))
    given = [answer for answer in answers if answer is not None]
    assert all(len(one ^ other) in (0, *range(3, 20)) for one in given for other in given)


def test_any_number_of_comings_and_goings_leaves_no_small_difference():
    random, n_given = np.random.default_rng(6), 0
    for _ in range(60):
        states, now = [], set("abcdefgh")
        for _ in range(12):
            states.append(sorted(now))
            moving = random.choice(list("abcdefghijklmnopqrst"), random.integers(0, 7), False)
            now = now ^ set(moving.tolist())
        given = [answer for answer in users_of_answers(*states) if answer is not None]
        assert all(len(one ^ other) in (0, *range(3, 30)) for one in given for other in given)
        n_given += len(given)
    assert n_given > 120


FOUR = {"a": [1, 2], "b": [1], "c": [1, 2], "d": [3]}


def test_the_first_answer_covers_everybody_or_nobody():
    now = covered(**FOUR)
    assert chosen(now, Covered.nothing()) == set(map(int, now.ratings))
    with pytest.raises(DeclinedError, match="fewer than 3 users have test ratings"):
        chosen(covered(a=[1], b=[2, 3]), Covered.nothing())


@pytest.mark.parametrize(
    "more", [{"e": [1]}, {"e": [1], "f": [1]}, {"a": [1, 2, 9]}, {"a": [1, 2, 9], "f": [1, 2]}]
)
def test_a_few_newcomers_or_new_ratings_wait(more):
    last = covered(**FOUR)
    assert chosen(covered(**{**FOUR, **more}), last) == set(map(int, last.ratings))


@pytest.mark.parametrize(
    "more",
    [{"e": [1], "f": [1], "g": [1]}, {"a": [1, 2, 9], "b": [1, 9], "e": [1]}],
)
def test_enough_newcomers_count(more):
    now = covered(**{**FOUR, **more})
    assert chosen(now, covered(**FOUR)) == set(map(int, now.ratings))


@pytest.mark.parametrize("less", [{"a": []}, {"a": [1]}, {"a": [1, 5]}, {"a": [], "b": []}])
def test_who_leaves_is_not_what_two_answers_differ_by(less):
    """However many come at the same time."""
    many = {name: [1] for name in "efghi"}
    for more in ({}, many):
        with pytest.raises(DeclinedError, match="have gone since"):
            chosen(covered(**{**FOUR, **less, **more}), covered(**FOUR))


def test_enough_who_leave_do_not_count_any_more():
    seven = {**FOUR, "e": [1], "f": [1], "g": [1]}
    assert chosen(covered(**FOUR), covered(**seven)) == set(map(int, covered(**FOUR).ratings))


def test_a_second_model_is_judged_on_the_same_ratings_until_enough_are_new(finished, tmp_path):
    """The difference of answers about two models, which a server may make alike, is nobody's."""
    made, parcel = finished()
    asked(made, parcel)
    process = made.processes["a"]
    before = len(errors_of(process))
    frame = pl.read_parquet(made.ratings["a"])
    for n_new, is_all in ((1, False), (2, False), (3, True)):
        new = [
            frame.filter(pl.col("user_id") == frame["user_id"][0]).with_columns(
                user_id=pl.lit(900_000 + 7 * n, frame["user_id"].dtype)
            )
            for n in range(n_new)
        ]
        started_again(made, "a", pl.concat([frame, *new]), tmp_path / f"{n_new}.parquet")
        site = made.processes["a"].site
        everything = len(errors_of(made.processes["a"]))
        part = site.errors.part("11" * 32, as_tested(site))
        assert part.sums.n_ratings == (everything if is_all else before)
        assert everything > before


def as_tested(site):
    return JudgedOn(site.plan.holdings.test, site.plan.items.ids, site.predicted)


def test_errors_are_possible_ones(finished):
    made, parcel = finished()
    found = asked(made, parcel)
    lie = ErrorSums(n_ratings=3, squared=1e6, absolute=4.0)
    with pytest.raises(SettingsError, match="has added something else"):
        evaluated_of(type(found)(lie, found.sites, {}), made.folder.charter(), RATINGS.scale.span)


def test_a_prediction_that_is_no_number_is_one_users_too(finished):
    """A site that declined for it told that somebody there has rated the item."""
    made, parcel = finished()
    process = made.processes["a"]
    site, predicted = process.site, process.site.predicted()
    site.predicted = lambda: np.where(np.arange(len(predicted)) == 3, np.nan, predicted)
    found = asked(made, parcel)
    assert found.sites == SITES
    assert found.sums.n_ratings == sum(len(errors_of(one)) for one in made.processes.values())
    usual = np.square(np.delete(errors_of(process).astype(np.float64), 3)).sum()
    last = site.errors.last().sums.squared
    value = site.plan.holdings.test.values[3]
    assert last == pytest.approx(usual + (value - RATINGS.scale.midpoint) ** 2, rel=1e-6)


def test_what_is_kept_of_an_answer_names_nobody(finished):
    made, parcel = finished()
    asked(made, parcel)
    place = made.folder.root / "sites" / "a" / "guards"
    # Once when its part left, and once when it was known among whom.
    assert json.loads((place / "counters.json").read_text())["evaluations"] == 2
    kept = (place / "evaluated.npz").read_bytes()
    users = made.processes["a"].site.plan.holdings.training.user_ids
    assert not [user for user in users if str(user).encode("utf-32-le") in kept]
    assert (place / "evaluated.npz").stat().st_mode & 0o077 == 0
    shutil.rmtree(place)
