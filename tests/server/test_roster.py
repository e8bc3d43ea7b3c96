"""The roster asks, checks, notes, and drops the dead."""

import numpy as np
import pytest
from federations import federation_of, settings_of

from fedmmf.errors import WireError
from fedmmf.secagg import BelowThresholdError
from fedmmf.server.roster import PATIENCE, Roster
from fedmmf.transports.wrappers import Faulty, Recorded
from fedmmf.wire import Ask, Finished, Joined, Refused, Wanted, name_of
from fedmmf.wire.frames import NO_NAME


class Scripted:
    """Answers as told; keeps what it was sent."""

    def __init__(self, answers):
        self.answers, self.sent = answers, []

    def exchange(self, stage, messages, timeout):
        sent = {name: messages[name] for name in messages}
        self.sent.append(sent)
        replies = {name: self.answers[name](data) for name, data in sent.items()}
        return {name: data for name, data in replies.items() if data is not None}


def always(data):
    return lambda message: data


JOINED = Joined(1, b"").encode()


def test_the_dead_are_not_waited_for():
    transport = Scripted({"a": always(Finished().encode()), "b": always(None)})
    roster = Roster(transport, ["a", "b"])
    for _ in range(PATIENCE + 2):
        roster.ask("stage", dict.fromkeys(("a", "b"), Ask(NO_NAME)), Finished)
    asked = [set(sent) for sent in transport.sent]
    assert asked == [{"a", "b"}] * PATIENCE + [{"a"}] * 2
    assert "counts as gone" in roster.refused["b"]


def test_an_answer_brings_the_patience_back():
    answers = iter([None, None, Finished().encode()] * 3)
    transport = Scripted({"a": lambda message: next(answers)})
    roster = Roster(transport, ["a"])
    for _ in range(9):
        roster.ask("stage", {"a": Ask(NO_NAME)}, Finished)
    assert len(transport.sent) == 9


def test_a_new_run_asks_the_dead_again():
    silent = Scripted({"a": always(JOINED), "b": always(None)})
    roster = Roster(silent, ["a", "b"])
    for _ in range(PATIENCE):
        roster.ask("stage", {"b": Ask(NO_NAME)}, Finished)
    silent.answers["b"] = always(JOINED)
    roster.invite(Ask(NO_NAME))
    assert set(roster.joined) == {"a", "b"}


def test_reasons_are_kept_by_party():
    transport = Scripted(
        {
            "a": always(Refused("no").encode()),
            "b": always(b"noise"),
            "c": always(JOINED),
            "d": always(Finished().encode()),
        }
    )
    roster = Roster(transport, list("abcd"))
    assert set(roster.ask("end", dict.fromkeys("abcd", Ask(NO_NAME)), Finished)) == {"d"}
    assert roster.refused["a"] == "refused: no"
    assert "needs at least" in roster.refused["b"]
    assert "not for here" in roster.refused["c"]
    assert [incident.stage for incident in roster.incidents] == ["end"] * 3


def test_what_is_published_travels_once_to_each_party():
    frame = Refused("stands for a broadcast").encode()
    transport = Scripted({"a": always(Finished().encode()), "b": always(None)})
    roster = Roster(transport, ["a", "b"])
    question = Ask(name_of(frame))
    for _ in range(2):
        roster.ask("stage", dict.fromkeys("ab", question), Finished, broadcast=frame)
    first, second = transport.sent
    assert first["a"] == first["b"] == second["b"] == frame + question.encode()
    assert second["a"] == question.encode()


def test_who_wants_a_publication_gets_it():
    frame = Refused("stands for a broadcast").encode()
    question = Ask(name_of(frame))

    def forgets(message):  # what it was sent before
        return (Finished() if message.startswith(frame) else Wanted(name_of(frame))).encode()

    transport = Scripted({"a": forgets})
    roster = Roster(transport, ["a"])
    roster.ask("stage", {"a": question}, Finished, broadcast=frame)
    replies = roster.ask("stage", {"a": question}, Finished, broadcast=frame)
    assert set(replies) == {"a"}
    assert len(transport.sent) == 3
    assert not roster.incidents


def test_who_wants_for_ever_is_not_asked_for_ever():
    transport = Scripted({"a": always(Wanted(NO_NAME).encode())})
    assert Roster(transport, ["a"]).ask("stage", {"a": Ask(NO_NAME)}, Finished) == {}
    assert len(transport.sent) == 2


def test_nobody_joining_is_an_error_that_says_why():
    transport = Scripted({"a": always(Refused("the catalogue differs").encode())})
    with pytest.raises(WireError, match=r"no party joined.*the catalogue differs"):
        Roster(transport, ["a"]).invite(Ask(NO_NAME))


class Deadly:
    """From some exchange on, some parties never answer again."""

    def __init__(self, names, after):
        self._names, self._after, self._seen = names, after, 0

    def __call__(self, stage, name, data):
        if name == "000000" and stage == "trip 1":
            self._seen += 1
        return None if name in self._names and self._seen > self._after else data


def test_a_federation_goes_on_with_those_who_are_left(small):
    """A third dies in the second round, which is lost; then the others train among themselves."""
    dead = {f"{number:06}" for number in range(30, 60)}
    fault = Deadly(dead, after=1)
    settings = settings_of("secure", rounds=8)
    federation = federation_of(small, settings, lambda t: Recorded(Faulty(t, up=fault)))
    member = federation.run()
    assert np.isnan(member.history).sum() in (1, 2)
    assert np.isfinite(member.history[-1])
    last = federation.transport.inner.last("trip 1").sent
    assert not dead & set(last)
    assert set(federation.server.side.survivors) == set(federation.parties) - dead


def test_training_is_given_up_when_nothing_can_be_summed(small):
    everybody = {f"{number:06}" for number in range(1, 60)}
    fault = Deadly(everybody, after=1)
    settings = settings_of("secure", rounds=8)
    federation = federation_of(small, settings, lambda t: Faulty(t, up=fault))
    with pytest.raises(BelowThresholdError):
        federation.run()
