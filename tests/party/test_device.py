"""A party answers bytes with bytes, once for each message, and goes back where it refuses."""

import threading
import tracemalloc
from dataclasses import FrozenInstanceError, fields, replace
from itertools import pairwise

import numpy as np
import pytest
from federations import believing, federation_of, settings_of

from fedmmf.aggregation.adaptive.messages import Collect, Collected
from fedmmf.aggregation.secure.messages import SecureAgreed, SecureSetup, SecureTrip, graph_of
from fedmmf.errors import CheckpointError, NotFittedError, WireError
from fedmmf.federation.local import make_parties
from fedmmf.party.user_group import UserGroup
from fedmmf.secagg.session import Trip
from fedmmf.simulation import prepare
from fedmmf.simulation.prepared import fit_all_masks
from fedmmf.transports.wrappers import Recorded
from fedmmf.wire import (
    Adopt,
    Adopted,
    Ask,
    Finish,
    Finished,
    Invitation,
    Joined,
    Layout,
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

ANSWERS = (
    Joined, Adopted, Refused, Wanted, Update, Finished, Collected, SecureAgreed, SecureTrip,
)  # fmt: skip


@pytest.fixture
def run(small):
    return prepare(small, settings_of("plain"))


def party_of(run, name="000007", **changes):
    settings = run.settings.changed(**changes)
    return make_parties(run.ratings, settings, run.is_held_out, run.features.statistics)[name]


def said(party, *broadcasts, message):
    return read(party.answer(parcel(message, *broadcasts)), ANSWERS)


def invited(run, **changes):
    """A party that has joined a run with these settings."""
    party = party_of(run, **changes)
    plan = replace(run.plan, settings=run.settings.changed(**changes))
    assert isinstance(said(party, message=plan.invitation()), Joined)
    return party


def told(party, layout):
    """What a party says to a layout."""
    frame = layout.encode()
    return said(party, frame, message=Adopt(name_of(frame)))


def joined(run, **changes):
    """The same, once it has adopted the run's layout."""
    party = invited(run, **changes)
    assert isinstance(told(party, run.layout), Adopted)
    return party


def first_round(run):
    return run.coordinator().next_round()


def asked(party, frame):
    return said(party, frame, message=Ask(name_of(frame)))


def refusal(answer):
    assert isinstance(answer, Refused), answer
    return answer.reason


def test_it_takes_part_and_says_how_it_shares(run):
    party = party_of(run)
    assert said(party, message=run.plan.invitation()) == Joined(1, b"")
    assert told(party, run.layout) == Adopted(in_clear=True)
    strict = replace(run.plan, settings=run.settings.changed(sharing="strict"))
    party = party_of(run, sharing="strict")
    assert said(party, message=strict.invitation()) == Joined(1, b"")
    assert told(party, run.layout) == Adopted(in_clear=False)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"catalogue": bytes(32)}, "catalogue is not this party's"),
        ({"scale_max": 10.0}, "rates 1..5"),
        ({"solver": "magic"}, "knows no solver 'magic'; it knows sgd, vb"),
        ({"sums": "magic"}, "knows no aggregation scheme 'magic'"),
        ({"row_bound": 1e30}, "bounds are not those of the solver"),
        ({"rank": 0}, "k is in"),
        ({"rank": 4_000_000_000}, "k is in"),
        ({"rounds": 0}, "must be a round"),
        ({"variant": "implicit=both"}, "expects variant '' by its charter"),
    ],
)
def test_it_says_why_it_does_not_join(run, change, reason):
    invitation = replace(run.plan.invitation(), **change)
    assert reason in refusal(said(party_of(run), message=invitation))


def test_a_strict_party_joins_nothing_that_shows_its_updates(run):
    party, invitation = party_of(run, sharing="strict"), run.plan.invitation()
    assert "expects aggregation scheme secure" in refusal(said(party, message=invitation))
    assert "only in sums" in refusal(said(believing(party, invitation), message=invitation))


def test_it_wants_company(run):
    strict = replace(run.plan, settings=run.settings.changed(sharing="strict"))
    party = party_of(run, sharing="strict")
    alone = replace(strict.invitation(), minimum=2)
    assert "expects smallest cohort 3" in refusal(said(party, message=alone))
    assert "at least 3 parties" in refusal(said(believing(party, alone), message=alone))


@pytest.mark.parametrize(
    "message",
    [
        Adopt(NO_NAME),
        Ask(NO_NAME),
        Finish(NO_NAME),
        Collect(),
        SecureTrip(1, NO_NAME, b""),
        Joined(1, b""),
    ],
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
    assert "adopted none" in refusal(asked(party, frame))
    told(party, run.layout)
    assert not np.array_equal(party.user_factors, moved)
    assert np.array_equal(asked(party, frame).rows, first.rows)


def mutated(round_, **changes):
    values = {name: getattr(round_, name) for name in Round.fields()}
    return Round(**{**values, **changes})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda r: {"item_rows": r.item_rows[:-1]}, "(k, items, width, numbers)"),
        (lambda r: {"item_rows": r.item_rows[:, :-1]}, "k must fit"),
        (lambda r: {"parameters": r.parameters[:-1]}, "(k, items, width, numbers)"),
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
    mine = party.users.summed_lists.items
    item = int(mine[0]) if rated else int(np.setdiff1d(np.arange(len(run.layout.items)), mine)[0])
    round_ = first_round(run)
    rows = round_.item_rows.copy()
    rows[item] = 3e38
    bad = mutated(round_, item_rows=rows)
    with np.errstate(all="ignore"):  # as `Party.answer` has it
        part = party.run.contribute(bad, None, None, n_parties=1)
    assert np.isfinite(part.rows).all()
    assert np.isfinite(party.user_factors).all()
    everything = np.zeros((small.n_items, rows.shape[1]), np.float32)
    everything[run.layout.items] = rows
    last = mutated(round_, item_rows=everything, is_last=True, round=2).encode()
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
    assert "only in sums" in refusal(asked(party, frame))
    assert "only in sums" in refusal(asked(party, Survey(False).encode()))
    assert "does not hand over" in refusal(said(party, message=Collect()))
    clear = joined(prepare(small, settings_of("adaptive", threshold_j=1.0)), threshold_j=1.0)
    assert isinstance(asked(clear, Survey(False).encode()), Update)
    assert "lets no ratings out" in refusal(asked(clear, Survey(True).encode()))
    assert isinstance(asked(clear, frame), Update)
    early = invited(prepare(small, settings_of("adaptive", threshold_j=1.0)), threshold_j=1.0)
    assert "only in sums" in refusal(asked(early, Survey(False).encode()))  # it has not chosen yet
    assert "does not hand over" in refusal(said(early, message=Collect()))


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
    real = side.context.roster.ask

    def ask(stage, questions, *rest, **named):
        if stage == "trip 1":
            questions = {n: replace(q, about=NO_NAME) for n, q in questions.items()}
        return real(stage, questions, *rest, **named)

    side.context.roster.ask = ask
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
        mine = party.users.ratings
        assert np.array_equal(answer.rows.ravel(), (mine - 3.0) / 4.0)
    else:
        assert "owner lets no ratings out" in refusal(answer)


def test_a_party_continues_from_its_own_checkpoint(run):
    messages = []
    coordinator = run.coordinator()
    crowd = run.parties()
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
    party = make_parties(small, run.settings, held_out, run.features.statistics)["000007"]
    said(party, message=run.plan.invitation())
    told(party, run.layout)
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
    assert [field.name for field in fields(Joined)] == ["n_users", "identity"]
    assert [field.name for field in fields(Adopted)] == ["in_clear"]
    assert [field.name for field in fields(Finished)] == []
    assert [field.name for field in fields(Collected)] == ["items", "masked_ratings"]
    assert [field.name for field in fields(SecureTrip)] == ["trip", "about", "data"]


def setup_of_sixty(run):
    layout = name_of(run.layout.encode())
    return SecureSetup(bytes(16), False, layout, 0, 60, 60, 3, 1, np.zeros(0, np.int32), ())


def test_a_setup_that_claims_more_than_anybody_has_allocates_nothing(small):
    run = prepare(small, settings_of("secure"))
    party = joined(run)
    changes = [{"n_parties": 2**32 - 1, "n_users": 2**32 - 1}, {"n_parties": 90_000}]
    for change in (*changes, {"n_parties": 90_000, "batch": 11}, {"batch": 2**32 - 1}):
        message = replace(setup_of_sixty(run), **{"n_users": 100_000, **change}).encode()
        tracemalloc.start()
        party.answer(message)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 50e6


def test_it_computes_with_no_longer_vectors_than_its_owner_allows(run):
    invitation = replace(run.plan.invitation(), rank=257)
    party = believing(party_of(run), invitation)
    assert "k up to 256" in refusal(said(party, message=invitation))


def test_it_shares_its_secrets_with_no_more_neighbours_than_it_has_time_for(small):
    run = prepare(small, settings_of("secure"))
    party = joined(run)
    many = replace(setup_of_sixty(run), n_parties=2000, n_users=2000)
    crowded = replace(many, batch=12)  # who drops out takes eleven along: it needs more holders
    degree, _ = graph_of(2000, active=False, batch=12)
    assert degree > 600
    assert f"600 neighbours at most; got {degree}" in refusal(said(party, message=crowded))
    assert isinstance(said(party, message=many), SecureAgreed)


def test_one_answer_at_a_time(run):
    """The way back of one that is refused would undo another, a spent budget included."""
    party, frame = joined(run), first_round(run).encode()
    is_inside, may_go_on = threading.Event(), threading.Event()
    work = party.run.work

    def slow_work(name):
        is_inside.set()
        may_go_on.wait(60)
        return work(name)

    party.run.work = slow_work
    first = threading.Thread(target=asked, args=(party, frame))
    junk = threading.Thread(target=party.answer, args=(parcel(Finish(NO_NAME)),))
    first.start()
    assert is_inside.wait(60)
    junk.start()
    junk.join(0.3)
    assert junk.is_alive()
    may_go_on.set()
    for thread in (first, junk):
        thread.join(60)
    assert party.state()["rounds"][0] == 1


@pytest.mark.parametrize("error", [WireError("late"), MemoryError(), KeyboardInterrupt()])
def test_an_answer_that_fails_at_its_end_leaves_the_very_state_of_before(run, monkeypatch, error):
    """By then the round is counted, a broadcast is held, and p_u has moved."""
    party, frame = joined(run), first_round(run).encode()
    before, factors = party.current.state, party.user_factors.copy()
    moved = []

    def failing(update):
        moved.append(party.user_factors.copy())
        raise error

    monkeypatch.setattr(Update, "encode", failing)
    try:
        assert isinstance(asked(party, frame), Refused)
    except KeyboardInterrupt:
        assert isinstance(error, KeyboardInterrupt)
    assert not np.array_equal(moved[0], factors)
    assert party.current.state is before
    assert np.array_equal(party.user_factors, factors)
    monkeypatch.undo()
    assert isinstance(asked(party, frame), Update)
    assert np.array_equal(party.user_factors, moved[0])


def test_a_partys_state_cannot_be_changed(run):
    state = joined(run).current.state
    for part, name in ((state, "runs"), (state.at, "last_round")):
        with pytest.raises(FrozenInstanceError):
            setattr(part, name, None)


def test_a_trip_that_sums_nothing_needs_no_vector(small):
    """At k = 256 one of `vb` has three million entries."""
    run = prepare(small, settings_of("secure vb", factors=255))
    party = joined(run)
    party.policy = replace(party.policy, takes_thin_sums=True)
    party.run.policy = party.policy
    party.answer(setup_of_sixty(run).encode())
    session = party.run.side.agreed.session
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


@pytest.mark.parametrize("error", [AttributeError("no array"), KeyboardInterrupt()])
def test_a_restoring_that_fails_at_its_end_leaves_the_very_state_of_before(run, monkeypatch, error):
    """By then the runs that it joined are forgotten, and p_u has moved."""
    party = joined(run)
    asked(party, first_round(run).encode())
    before, factors = party.current.state, party.user_factors.copy()
    restore, has_failed = UserGroup.restore, []

    def failing(users, state):
        restore(users, {name: 0 * value for name, value in state.items()})
        monkeypatch.undo()
        has_failed.append(True)
        raise error

    monkeypatch.setattr(UserGroup, "restore", failing)
    with pytest.raises(type(error)):
        party.restore(party.state())
    assert has_failed
    assert party.current.state is before
    assert np.array_equal(party.user_factors, factors)


def test_joining_late_is_done_whole_or_not_at_all(run, monkeypatch):
    party, frame = joined(run), first_round(run).encode()
    asked(party, frame)
    before, factors = party.current.state, party.user_factors.copy()
    last = run.coordinator().next_round(is_last=True)

    def failing(users, broadcast):
        raise np.linalg.LinAlgError("no inverse")

    monkeypatch.setattr(UserGroup, "solve_users", failing)
    plan = run.plan.invitation()
    with pytest.raises(np.linalg.LinAlgError):
        party.join_late(plan.solver, plan.variant, last.broadcast, run.layout.population)
    assert party.current.state is before
    assert np.array_equal(party.user_factors, factors)


def test_an_invitation_is_checked_against_the_partys_own_catalogue(run):
    invitation = run.plan.invitation()
    assert isinstance(invitation, Invitation)
    assert invitation.catalogue == run.catalogue.digest


def test_the_mark_changes_with_the_state(run):
    party, frames = joined(run), []
    coordinator = run.coordinator()
    crowd = run.parties()
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


# Layouts


def some_items(run):
    """A layout of every other item, with another line than the run's, as long, and shrinkage."""
    line = np.zeros_like(run.layout.line)
    line[0], line[1:] = 3.25, np.linspace(-1, 1, len(line) - 1)
    return Layout(np.arange(1, run.ratings.n_items, 2, dtype=np.int32), line, 2.5)


@pytest.fixture
def by_features(small):
    """A run whose users have in common how they rate by features."""
    run = prepare(small, settings_of("secure", mask="lr"))
    assert len(run.layout.line) == 1 + run.features.content.shape[1] == 17
    return run


@pytest.mark.parametrize("mask", ["mean", "lr"])
def test_rows_and_masks_are_those_of_the_layout(small, mask):
    run = prepare(small, settings_of("plain", mask=mask))
    party, layout = invited(run), some_items(run)
    assert told(party, layout) == Adopted(in_clear=True)
    assert party.masks.population.is_like(layout.population)
    expected = prepare(run.ratings, run.settings)
    masks = fit_all_masks(run.training, run.features.seen, run.settings, layout.population)
    np.testing.assert_allclose(party.masks.theta[0], masks.theta[7], rtol=1e-6)
    assert not np.allclose(party.masks.theta[0], expected.masks.theta[7], rtol=1e-3)
    coordinator = run.plan.coordinator(layout)
    update = asked(party, coordinator.next_round().encode())
    mine = run.lists.items[run.lists.of(7)]
    assert np.array_equal(layout.items[update.items], mine[mine % 2 == 1])
    tested = run.ratings.item_codes[run.is_held_out & (run.ratings.user_codes == 7)]
    assert update.totals[0] == np.count_nonzero(tested % 2) < len(tested)
    last = coordinator.next_round(is_last=True)
    assert len(last.item_rows) == run.ratings.n_items
    frame = mutated(last, round=2).encode()
    assert said(party, frame, message=Finish(name_of(frame))) == Finished()
    assert len(party.predict(np.arange(run.ratings.n_items))) == run.ratings.n_items


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"items": np.zeros(0, np.int32)}, "at least one item"),
        ({"items": np.array([0, 90], np.int32)}, "within [0, 90)"),
        ({"line": np.zeros(0)}, "a level at least"),
        ({"line": np.array([3.0, 0.5])}, "has 1 columns; got 2"),
        ({"line": np.array([np.nan])}, "finite"),
        ({"line": np.array([np.inf])}, "finite"),
        ({"shrinkage": 0.49}, "a shrinkage is in [0.5, 50]; got 0.49"),
        ({"shrinkage": 51.0}, "a shrinkage is in [0.5, 50]; got 51"),
        ({"shrinkage": np.nan}, "finite"),
    ],
)
def test_a_bad_layout_is_refused_and_changes_nothing(run, change, reason):
    party = invited(run)
    before = party.state()
    answer = told(party, replace(run.layout, **change))
    assert reason in refusal(answer)
    assert party.state().keys() == before.keys()
    assert told(party, run.layout) == Adopted(in_clear=True)
    twin = joined(run)
    frame = first_round(run).encode()
    assert np.array_equal(asked(party, frame).rows, asked(twin, frame).rows)


@pytest.mark.parametrize(
    ("variant", "mask", "columns"),
    [
        ("plain", "mean", 1),
        ("plain", "none", 1),
        ("plain", "lr", 1),  # what users say is in the clear
        ("secure", "fm", 17),
        ("secure vb", "nn", 17),
        ("adaptive", "lr", 1),
        ("dp distributed", "lr", 1),
    ],
)
def test_features_are_in_common_where_masks_see_them_and_sums_hide_users(
    small, variant, mask, columns
):
    run = prepare(small, settings_of(variant, mask=mask))
    assert run.plan.invitation().columns == len(run.layout.line) == columns


@pytest.mark.parametrize("n", [1, 2, 16, 18])
def test_a_line_has_as_many_columns_as_were_agreed_on(by_features, n):
    party = invited(by_features)
    answer = told(party, replace(by_features.layout, line=np.ones(n)))
    assert f"has 17 columns; got {n}" in refusal(answer)


@pytest.mark.parametrize("n", [2, 16, 18, 128])
def test_columns_of_what_users_have_in_common_are_one_or_those_of_the_features(by_features, n):
    party, invitation = party_of(by_features), by_features.plan.invitation()
    assert invitation.columns == 17
    wrong = replace(invitation, columns=n)
    assert f"in common 17 by its charter; the server's invitation says {n}." in refusal(
        said(party, message=wrong)
    )
    answer = said(believing(party, wrong), message=wrong)
    assert f"has 1 or 17 columns here; got {n}" in refusal(answer)
    for columns in (1, 17):
        right = replace(invitation, columns=columns)
        assert isinstance(said(believing(party, right), message=right), Joined)


def test_a_mask_that_sees_no_features_listens_to_no_line_of_them(small):
    """It may refuse the invitation, or make do with the line; it must not break."""
    chosen = {"solver": "vb", "objective": "ranking", "held_out": 0.0}
    run = prepare(small, settings_of("secure", **chosen))
    assert run.plan.invitation().columns == 1
    party = party_of(run)
    answer = said(party, message=replace(run.plan.invitation(), columns=17))
    if isinstance(answer, Joined):
        answer = told(party, replace(run.layout, line=np.array([3.0, *np.ones(16)])))
    assert isinstance(answer, Adopted | Refused)


@pytest.mark.parametrize(("level", "end"), [(100.0, 5.0), (5.5, 5.0), (0.999, 1.0), (-99.0, 1.0)])
def test_a_line_that_leads_off_the_scale_counts_as_its_end(run, level, end):
    found = []
    for line in (np.array([level]), np.array([end])):
        party = invited(run)
        assert told(party, replace(run.layout, line=line)) == Adopted(in_clear=True)
        found.append((party.masks.theta, asked(party, first_round(run).encode()).rows))
    for one, other in zip(*found, strict=True):
        assert np.array_equal(one, other)


def test_no_line_picks_those_who_rated_some_items(by_features):
    """Where sums overflow, who rated such an item would have no mask and fall silent.

    A party refuses such a line, whatever it rated, or its masks are finite.
    """
    run, line, kinds = by_features, np.full(17, 1.79e308), set()
    for name in ("000003", "000007", "000030"):
        party = party_of(run, name)
        said(party, message=run.plan.invitation())
        answer = told(party, replace(run.layout, line=line))
        kinds.add(type(answer))
        assert isinstance(answer, Refused) or np.isfinite(party.masks.masked_ratings).all()
    assert len(kinds) == 1


def test_where_masks_decide_what_leaves_they_listen_to_no_server(small):
    """Neither to its line nor to its shrinkage, which could make J small."""
    run = prepare(small, settings_of("adaptive", threshold_j=0.04))
    party, other = joined(run), invited(run)
    assert len(run.layout.line) == 1  # nobody has said anything of features
    wild = replace(run.layout, line=np.array([4.9]), shrinkage=50.0)
    assert isinstance(told(other, wild), Adopted)
    for masks in (party.masks, other.masks):
        assert masks.population.line.tolist() == [3.0]
        assert masks.population.shrinkage == 1.0
    assert np.array_equal(party.masks.theta, other.masks.theta)
    assert party.in_clear == other.in_clear


def test_a_survey_counts_and_another_says_what_users_have_in_common_once(run):
    """Until a layout is there; then who is in the clear does not say its own."""
    party = party_of(run)
    said(party, message=run.plan.invitation())
    counts, items = Survey(with_ratings=False).encode(), run.layout.items
    moments = Survey(with_ratings=False, items=items).encode()
    before, common = asked(party, counts), asked(party, moments)
    assert set(before.rows.ravel().tolist()) == {1.0}
    assert len(before.totals) == len(common.rows) == 0
    y = (run.training.values[run.lists.of(7)].astype(float) - 3) / 4
    spread = y.var(ddof=1)
    expected = [1, y.mean(), y.mean() ** 2, 1, spread, spread / len(y), y.sum()]
    np.testing.assert_allclose(common.totals, expected, rtol=1e-9, atol=1e-12)
    others = Survey(with_ratings=False, items=items[1:]).encode()
    assert "which are others" in refusal(asked(party, others))
    interrupted = party_of(run)
    interrupted.restore(party.state())
    assert "which are others" in refusal(asked(interrupted, others))
    assert "which are others" in refusal(told(interrupted, replace(run.layout, items=items[1:])))
    assert isinstance(told(party, run.layout), Adopted)
    again = party_of(run)  # which has no answer ready
    again.restore(party.state())
    assert "before there is a layout" in refusal(asked(again, moments))
    assert np.array_equal(asked(again, counts).rows, before.rows)


def test_moments_are_of_the_items_of_one_layout_alone(run):
    """Items that are not summed have no part in them."""
    party = party_of(run)
    said(party, message=run.plan.invitation())
    mine = run.training.item_codes[run.lists.of(7)]
    items = np.sort(mine[:5])
    found = asked(party, Survey(with_ratings=False, items=items).encode()).totals
    y = (run.training.values[run.lists.of(7)].astype(float) - 3)[np.isin(mine, items)] / 4
    np.testing.assert_allclose(found[[1, 6]], [y.mean(), y.sum()], rtol=1e-9, atol=1e-12)


def test_an_update_in_the_clear_has_no_totals_of_the_solver(run):
    """With p_u, the masked ratings would follow from one update."""
    update = asked(joined(run), first_round(run).encode())
    assert len(update.totals) == 2 + run.plan.update_shape.n_totals
    assert update.totals[0] > 0  # ratings that are held out
    assert not update.totals[2:].any()


def test_in_the_clear_nobody_says_how_ratings_go_with_features(small):
    """From the mean of r x over a few ratings a server would solve for them."""
    run = prepare(small, settings_of("plain", mask="lr"))
    party, invitation = party_of(run), run.plan.invitation()
    assert run.features.design.shape[1] == 17
    wider = replace(invitation, columns=17)
    assert "in common 1 by its charter" in refusal(said(party, message=wider))
    assert isinstance(said(party, message=invitation), Joined)
    assert "has 1 column here; got 17" in refusal(said(believing(party, wider), message=wider))


def test_a_run_has_one_layout(run):
    """Another would be summed with what was summed before; a new run may have another."""
    party, other = joined(run), some_items(run)
    assert told(party, run.layout) == Adopted(in_clear=True)
    others = (
        other,
        replace(run.layout, line=run.layout.line + 1),
        replace(run.layout, shrinkage=2.5),
    )
    for wrong in others:
        assert "adopted another layout" in refusal(told(party, wrong))
    asked(party, first_round(run).encode())
    assert "adopted another layout" in refusal(told(party, other))
    said(party, message=run.plan.invitation())
    assert told(party, other) == Adopted(in_clear=True)


def test_nothing_else_is_adopted_and_no_layout_is_summed(run):
    party, survey = joined(run), Survey(with_ratings=False).encode()
    answer = said(party, survey, message=Adopt(name_of(survey)))
    assert "is no layout" in refusal(answer)
    assert "nothing to sum" in refusal(asked(party, run.layout.encode()))
    other = some_items(run).encode()
    assert said(party, message=Adopt(name_of(other))) == Wanted(name_of(other))


def test_a_layout_survives_a_checkpoint(run):
    party, again, layout = invited(run), party_of(run), some_items(run)
    told(party, layout)
    again.restore(party.state())
    assert again.masks.population.is_like(layout.population)
    assert "adopted another layout" in refusal(told(again, run.layout))
    frame = run.plan.coordinator(layout).next_round().encode()
    assert np.array_equal(asked(again, frame).rows, asked(party, frame).rows)


def test_before_the_layout_there_are_no_masks_and_no_choice(run):
    party = invited(run)
    for what in ("masks", "in_clear", "user_factors"):
        with pytest.raises(NotFittedError, match="adopted a layout"):
            getattr(party, what)


def test_sums_of_a_layout_that_it_has_not_adopted_are_refused(small):
    run = prepare(small, settings_of("secure"))
    other = name_of(some_items(run).encode())
    early, late = invited(run), joined(run)
    for party, setup in (
        (early, setup_of_sixty(run)),
        (late, replace(setup_of_sixty(run), layout=other)),
        (late, replace(setup_of_sixty(run), layout=NO_NAME)),
        (late, replace(setup_of_sixty(run), layout=other, for_survey=True)),
    ):
        assert "has not adopted" in refusal(said(party, message=setup))
    first = replace(setup_of_sixty(run), layout=NO_NAME, for_survey=True)
    assert isinstance(said(early, message=first), SecureAgreed)
    assert isinstance(said(late, message=setup_of_sixty(run)), SecureAgreed)
    beyond = np.array([len(run.layout.items)], np.int32)
    assert "within" in refusal(said(late, message=replace(setup_of_sixty(run), left_out=beyond)))
