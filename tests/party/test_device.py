"""A party answers bytes with bytes, once for each message, and goes back where it refuses."""

import threading
import tracemalloc
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest
from federations import federation_of, settings_of

from fedmmf.errors import CheckpointError, NotFittedError
from fedmmf.secagg.session import Trip
from fedmmf.simulation import prepare
from fedmmf.simulation.federation import make_parties
from fedmmf.sums.adaptive.messages import Collect, Collected
from fedmmf.sums.secure.agreed import graph_of
from fedmmf.sums.secure.messages import SecureAgreed, SecureSetup, SecureTrip
from fedmmf.transports.wrappers import Recorded
from fedmmf.wire import (
    Ask,
    Finish,
    Finished,
    Invitation,
    Joined,
    Refused,
    Round,
    Survey,
    Update,
    Wanted,
    name_of,
    parcel,
    read,
)
from fedmmf.wire.frames import NO_NAME

ANSWERS = (Joined, Refused, Wanted, Update, Finished, Collected, SecureAgreed, SecureTrip)


@pytest.fixture
def run(small):
    return prepare(small, settings_of("plain"))


def party_of(run, name="000007", **changes):
    settings = run.settings.changed(**changes)
    return make_parties(run.ratings, settings, run.is_held_out, run.features)[name]


def said(party, *publications, message):
    return read(party.answer(parcel(message, *publications)), ANSWERS)


def joined(run, **changes):
    """A party that has joined a run with these settings."""
    party = party_of(run, **changes)
    plan = replace(run.plan, settings=run.settings.changed(**changes))
    assert isinstance(said(party, message=plan.invitation()), Joined)
    return party


def first_round(run):
    return run.coordinator().next_round()


def asked(party, frame):
    return said(party, frame, message=Ask(name_of(frame)))


def refusal(answer):
    assert isinstance(answer, Refused), answer
    return answer.reason


def test_it_takes_part_and_says_how_it_shares(run):
    answer = said(party_of(run), message=run.plan.invitation())
    assert answer == Joined(1, True, b"")
    strict = replace(run.plan, settings=run.settings.changed(sharing="strict"))
    party = party_of(run, sharing="strict")
    assert said(party, message=strict.invitation()) == Joined(1, False, b"")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"catalogue": bytes(32)}, "catalogue is not this party's"),
        ({"scale_max": 10.0}, "rates 1..5"),
        ({"solver": "magic"}, "knows no solver 'magic'; it knows sgd, vb"),
        ({"sums": "magic"}, "knows no way to sum 'magic'"),
        ({"row_bound": 1e30}, "bounds are not those of the solver"),
        ({"rank": 0}, "k is in"),
        ({"rank": 4_000_000_000}, "k is in"),
        ({"rounds": 0}, "must be a round"),
    ],
)
def test_it_says_why_it_does_not_join(run, change, reason):
    invitation = replace(run.plan.invitation(), **change)
    assert reason in refusal(said(party_of(run), message=invitation))


def test_a_strict_party_joins_nothing_that_shows_its_updates(run):
    party = party_of(run, sharing="strict")
    assert "only in sums" in refusal(said(party, message=run.plan.invitation()))


def test_it_wants_company(run):
    strict = replace(run.plan, settings=run.settings.changed(sharing="strict"))
    party = party_of(run, sharing="strict")
    alone = replace(strict.invitation(), minimum=2)
    assert "at least 3 parties" in refusal(said(party, message=alone))


@pytest.mark.parametrize(
    "message",
    [Ask(NO_NAME), Finish(NO_NAME), Collect(), SecureTrip(1, NO_NAME, b""), Joined(1, True, b"")],
    ids=lambda message: type(message).__name__,
)
def test_before_it_has_joined_it_answers_invitations_alone(run, message):
    assert "due: Invitation" in refusal(said(party_of(run), message=message))


def test_it_asks_for_a_publication_that_it_does_not_hold(run):
    party, frame = joined(run), first_round(run).encode()
    assert said(party, message=Ask(name_of(frame))) == Wanted(name_of(frame))
    assert isinstance(asked(party, frame), Update)


def test_an_update_is_of_its_own_items(run):
    party = joined(run)
    update = asked(party, first_round(run).encode())
    mine = run.lists.items[run.lists.of(7)]
    assert np.array_equal(update.items, mine)
    assert len(update.counts) == 0  # one rater each
    assert update.totals[0] == np.count_nonzero(run.is_held_out[run.ratings.user_codes == 7])


def test_a_repeated_message_gets_the_first_answer_and_is_computed_once(run):
    party, frame = joined(run), first_round(run).encode()
    message = parcel(Ask(name_of(frame)), frame)
    first = party.answer(message)
    factors = party.user_factors.copy()
    assert party.answer(message) == first
    assert np.array_equal(party.user_factors, factors)


def test_rounds_only_go_up(run):
    party, round_ = joined(run), first_round(run)
    asked(party, replace(round_, round=2).encode())
    again = replace(round_, round=2, parameters=round_.parameters * 1.0, best_round=1)
    assert "rounds must increase" in refusal(asked(party, again.encode()))
    assert "rounds must increase" in refusal(asked(party, round_.encode()))
    assert "comes before the first round" in refusal(asked(party, Survey(False).encode()))


def test_a_new_invitation_starts_anew(run):
    party, frame = joined(run), first_round(run).encode()
    first = asked(party, frame)
    moved = party.user_factors.copy()
    said(party, message=run.plan.invitation())
    assert not np.array_equal(party.user_factors, moved)
    assert np.array_equal(asked(party, frame).rows, first.rows)


def mutated(round_, **changes):
    values = {name: getattr(round_, name) for name in Round.fields()}
    return Round(**{**values, **changes})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda r: {"item_rows": r.item_rows[:-1]}, r"(k, items, width)"),
        (lambda r: {"item_rows": r.item_rows[:, :-1]}, "k must fit"),
        (lambda r: {"parameters": r.parameters[:-1]}, "has 5 numbers"),
        (lambda r: {"parameters": r.parameters + 0.5}, "the step is one of"),
        (lambda r: {"parameters": r.parameters * -1}, "out of range"),
        (lambda r: {"best_round": 7}, "the best one is over"),
        (lambda r: {"is_last": True}, "only hands out the result"),
    ],
)
def test_bad_numbers_are_refused_and_change_nothing(run, change, reason):
    party, round_ = joined(run), first_round(run)
    before = {name: value.copy() for name, value in party.state().items()}
    bad = mutated(round_, **change(round_)).encode()
    assert reason in refusal(asked(party, bad))
    after = party.state()
    assert after.keys() == before.keys()
    assert all(np.array_equal(after[name], before[name]) for name in before)
    twin = joined(run)
    good = round_.encode()
    assert np.array_equal(asked(party, good).rows, asked(twin, good).rows)


@pytest.mark.parametrize("rated", [True, False])
@pytest.mark.parametrize("variant", ["plain", "secure", "secure vb", "dp local"])
def test_factors_that_lead_nowhere_tell_nothing_of_what_is_rated(small, variant, rated):
    """A refusal that depends on a party's items or ratings would name them, one by one."""
    run = prepare(small, settings_of(variant))
    party = joined(run)
    mine = run.lists.items[run.lists.of(0)]
    item = int(mine[0]) if rated else int(np.setdiff1d(np.arange(small.n_items), mine)[0])
    round_ = first_round(run)
    rows = round_.item_rows.copy()
    rows[item] = 3e38
    bad = mutated(round_, item_rows=rows)
    with np.errstate(all="ignore"):  # as `Party.answer` has it
        part = party._run.contribute(bad, None, None, n_parties=1)
    assert np.isfinite(part.rows).all()
    assert np.isfinite(party.user_factors).all()
    last = mutated(round_, item_rows=rows, is_last=True, round=2).encode()
    assert said(joined(run), last, message=Finish(name_of(last))) == Finished()


def test_a_variational_update_never_leaves_in_the_clear(small):
    run = prepare(small, settings_of("plain", solver="vb"))
    party = joined(run)
    assert "hold masked ratings" in refusal(asked(party, first_round(run).encode()))


def test_nothing_is_said_in_the_clear_that_the_owner_did_not_allow(small):
    run = prepare(small, settings_of("adaptive", threshold_j=0.0))
    party = joined(run)
    assert not party.in_clear
    frame = first_round(run).encode()
    assert "due: Invitation or Finish or SecureSetup" in refusal(asked(party, frame))
    assert "does not hand over" in refusal(said(party, message=Collect()))
    clear = joined(prepare(small, settings_of("adaptive", threshold_j=1.0)), threshold_j=1.0)
    assert isinstance(asked(clear, frame), Update)
    survey = joined(prepare(small, settings_of("adaptive", threshold_j=1.0)), threshold_j=1.0)
    assert "only in sums" in refusal(asked(survey, Survey(True).encode()))


def test_a_survey_in_sums_agreed_on_for_rounds_is_refused(small):
    """It would put its rows where others have something else."""
    federation = federation_of(small, settings_of("secure"), Recorded)
    federation.prepare_sums()
    federation.one_round()
    frame = Survey(True).encode()
    party = federation.parties["000003"]
    party.answer(federation.transport.inner.last("set-up").sent["000003"])
    trip = federation.transport.inner.last("trip 1").sent["000003"]
    inner = read(trip[-len(trip) :][trip.rindex(b"FMMF") :], (SecureTrip,))
    answer = said(party, frame, message=replace(inner, about=name_of(frame)))
    assert isinstance(answer, Refused)


def test_a_trip_that_sums_has_to_say_what(small):
    federation = federation_of(small, settings_of("secure"))
    federation.prepare_sums()
    side = federation.server.side
    real = side.desk.roster.ask

    def ask(stage, questions, *rest, **named):
        if stage == "trip 1":
            questions = {n: replace(q, about=NO_NAME) for n, q in questions.items()}
        return real(stage, questions, *rest, **named)

    side.desk.roster.ask = ask
    with pytest.raises(Exception, match="aborted"):
        side.sums(federation.server.coordinator.next_round())
    reasons = set(federation.server.roster.refused.values())
    assert reasons == {"refused: a trip that sums has to say what is summed"}


@pytest.mark.parametrize("is_allowed", [False, True])
def test_ratings_are_in_a_survey_only_if_its_owner_lets_them(small, is_allowed):
    """Counts are, in sums; who shares in the clear is asked in the clear, and no less careful."""
    run = prepare(small, settings_of("plain", item_statistics=is_allowed))
    party = joined(run)
    assert party.policy.survey_ratings == is_allowed
    counts = asked(party, Survey(with_ratings=False).encode())
    assert set(counts.rows.ravel().tolist()) == {1.0}
    answer = asked(party, Survey(with_ratings=True).encode())
    if is_allowed:
        mine = party._users.ratings
        assert np.array_equal(answer.rows.ravel(), (mine - 3.0) / 4.0)
    else:
        assert "owner lets no ratings out" in refusal(answer)


def test_a_party_continues_from_its_own_checkpoint(run):
    messages = []
    coordinator = run.coordinator()
    crowd = run.crowd(coordinator)
    for _ in range(3):
        messages.append(coordinator.next_round())
        frame = messages[-1].encode()
        coordinator.advance(messages[-1], crowd.sums(messages[-1]))
        messages[-1] = frame
    whole, torn, again = joined(run), joined(run), party_of(run)
    for frame in messages[:2]:
        asked(whole, frame)
        asked(torn, frame)
    again.restore(torn.state())
    one, other = asked(again, messages[2]), asked(whole, messages[2])
    assert one.encode() == other.encode()


def test_it_predicts_once_training_has_ended(run):
    party = joined(run)
    with pytest.raises(NotFittedError, match="finished training"):
        party.predict(np.arange(3))
    asked(party, first_round(run).encode())
    coordinator = run.coordinator()
    last = coordinator.next_round(is_last=True)
    last = mutated(last, round=2).encode()
    assert said(party, last, message=Finish(name_of(last))) == Finished()
    assert np.isfinite(party.predict(np.arange(3))).all()
    not_the_end = first_round(run).encode()
    answer = said(party, not_the_end, message=Finish(name_of(not_the_end)))
    assert "not the end" in refusal(answer)


@pytest.mark.parametrize("missed", [4, 5])
def test_who_missed_a_later_round_keeps_its_factors_of_the_best_one(run, missed):
    """It has not moved since, and so still stands where it stood then."""
    party, round_ = joined(run), first_round(run)
    for number in (1, 2, 3):
        asked(party, mutated(round_, round=number).encode())
    best = party.user_factors.copy()
    for number in range(missed + 1, 6):  # it hears of round 3 only later
        asked(party, mutated(round_, round=number, best_round=3).encode())
    last = mutated(round_, round=6, best_round=3, is_last=True).encode()
    said(party, last, message=Finish(name_of(last)))
    assert np.array_equal(party.user_factors, best)


def test_a_noisy_update_says_nothing_of_held_out_ratings(small):
    pytest.importorskip("dp_accounting", reason="the extra `dp`")
    run = prepare(small, settings_of("dp local"))
    held_out = np.arange(len(small)) % 4 == 0
    party = make_parties(small, run.settings, held_out, run.features)["000007"]
    said(party, message=run.plan.invitation())
    assert not asked(party, first_round(run).encode()).totals.any()


def test_who_missed_the_best_round_finds_its_factors_for_the_result(run):
    """Those of another round would not go with the item factors that were kept."""
    away, settled = joined(run), joined(run)
    round_ = first_round(run)
    asked(away, round_.encode())  # misses round 2, the best, and comes back for round 3
    asked(away, mutated(round_, round=3, best_round=2).encode())
    last = mutated(round_, round=4, best_round=2, is_last=True).encode()
    for party in (away, settled):
        said(party, last, message=Finish(name_of(last)))
    assert np.array_equal(away.user_factors, settled.user_factors)


def test_who_had_no_part_in_the_rounds_is_served_too(run):
    party = joined(run)
    last = run.coordinator().next_round(is_last=True).encode()
    assert said(party, last, message=Finish(name_of(last))) == Finished()
    assert np.isfinite(party.predict(np.arange(3))).all()


def test_what_leaves_a_party_is_this():
    """The fields of what leaves a party are these and no others."""
    update = [field.name for field in fields(Update)]
    assert update == ["round", "items", "counts", "rows", "totals"]
    assert [field.name for field in fields(Joined)] == ["n_users", "in_clear", "identity"]
    assert [field.name for field in fields(Finished)] == []
    assert [field.name for field in fields(Collected)] == ["items", "masked_ratings"]
    assert [field.name for field in fields(SecureTrip)] == ["trip", "about", "data"]


def setup_of_sixty():
    return SecureSetup(bytes(16), False, 0, 60, 60, 3, 1, np.zeros(0, np.int32), ())


def test_a_setup_that_claims_more_than_anybody_has_allocates_nothing(small):
    run = prepare(small, settings_of("secure"))
    party = joined(run)
    changes = [{"n_parties": 2**32 - 1, "n_users": 2**32 - 1}, {"n_parties": 90_000}]
    for change in (*changes, {"n_parties": 90_000, "batch": 11}, {"batch": 2**32 - 1}):
        message = replace(setup_of_sixty(), **{"n_users": 100_000, **change}).encode()
        tracemalloc.start()
        party.answer(message)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 50e6


def test_it_computes_with_no_longer_vectors_than_its_owner_allows(run):
    invitation = replace(run.plan.invitation(), rank=257)
    assert "k up to 256" in refusal(said(party_of(run), message=invitation))


def test_it_shares_its_secrets_with_no_more_neighbours_than_it_has_time_for(small):
    run = prepare(small, settings_of("secure"))
    party = joined(run)
    many = replace(setup_of_sixty(), n_parties=2000, n_users=2000)
    crowded = replace(many, batch=12)  # who drops out takes eleven along: it needs more holders
    degree, _ = graph_of(2000, active=False, batch=12)
    assert degree > 600
    assert f"600 neighbours at most; got {degree}" in refusal(said(party, message=crowded))
    assert isinstance(said(party, message=many), SecureAgreed)


def test_one_answer_at_a_time(run):
    """The way back of one that is refused would undo another, a spent budget included."""
    party, frame = joined(run), first_round(run).encode()
    is_inside, may_go_on = threading.Event(), threading.Event()
    work = party._run.work

    def slow_work(name):
        is_inside.set()
        may_go_on.wait(10)
        return work(name)

    party._run.work = slow_work
    first = threading.Thread(target=asked, args=(party, frame))
    junk = threading.Thread(target=party.answer, args=(parcel(Finish(NO_NAME)),))
    first.start()
    assert is_inside.wait(10)
    junk.start()
    junk.join(0.3)
    assert junk.is_alive()
    may_go_on.set()
    for thread in (first, junk):
        thread.join(10)
    assert party.state()["rounds"][0] == 1


def test_a_trip_that_sums_nothing_needs_no_vector(small):
    """At k = 256 one of `vb` has three million entries."""
    run = prepare(small, settings_of("secure vb", factors=255))
    party = joined(run)
    party.policy = replace(party.policy, takes_thin_sums=True)
    party._run.policy = party.policy
    party.answer(setup_of_sixty().encode())
    session = party._run.side._agreed.session
    data = Trip(1, 0).encode(session.setup)
    tracemalloc.start()
    answer = said(party, message=SecureTrip(1, NO_NAME, data))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(answer, SecureTrip)
    assert peak < 2e6


@pytest.mark.parametrize("damage", ["missing", "text", "shape"])
def test_a_checkpoint_of_something_else_is_refused_and_changes_nothing(run, damage):
    party = joined(run)
    asked(party, first_round(run).encode())
    state = party.state()
    before = {name: value.copy() for name, value in state.items()}
    if damage == "missing":
        del state["rounds"]
    elif damage == "text":
        state["rounds"] = np.array(["a", "b"])
    else:
        state["users/0/value"] = np.zeros(2000, np.float32)
    with pytest.raises(CheckpointError, match="no checkpoint of this party"):
        party.restore(state)
    assert all(np.array_equal(party.state()[name], before[name]) for name in before)


def test_an_invitation_is_checked_against_the_partys_own_catalogue(run):
    invitation = run.plan.invitation()
    assert isinstance(invitation, Invitation)
    assert invitation.catalogue == run.catalogue.digest


def test_the_mark_changes_with_the_state(run):
    party, frames = joined(run), []
    coordinator = run.coordinator()
    crowd = run.crowd(coordinator)
    for _ in range(2):
        round_ = coordinator.next_round()
        frames.append(round_.encode())
        coordinator.advance(round_, crowd.sums(round_))
    marks, states = [party.mark], [party.state()]
    for frame in frames:
        asked(party, frame)
        marks.append(party.mark)
        states.append(party.state())
    assert len(set(marks)) == len(marks)
    for one, other in pairwise(states):
        assert any(not np.array_equal(one[name], other[name]) for name in one)
