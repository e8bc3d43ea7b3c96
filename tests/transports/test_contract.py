"""The contract of a transport, and of the wrappers around any."""

import threading

import pytest

from fedmmf.transports.in_process import InProcess
from fedmmf.transports.wrappers import Counted, Faulty, Metered, Recorded


class Echo:
    def answer(self, data):
        return data[::-1]


class Crashing:
    def answer(self, data):
        raise RuntimeError("out of battery")


class Threads:
    """A transport of somebody else's: every party answers in a thread of its own."""

    def __init__(self, parties):
        self._parties = parties

    def exchange(self, stage, messages, timeout):
        replies = {}

        def ask(name, data):
            try:
                replies[name] = self._parties[name].answer(data)
            except RuntimeError:
                return

        threads = [threading.Thread(target=ask, args=(name, messages[name])) for name in messages]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout)
        return dict(replies)


MESSAGES = {"a": b"abc", "b": b"defg"}


class TransportContract:
    """Inherit, and give `make(parties)`."""

    def test_everybody_gets_their_own_message_and_answers(self, make):
        transport = make({"a": Echo(), "b": Echo()})
        assert transport.exchange("stage", MESSAGES, 10.0) == {"a": b"cba", "b": b"gfed"}

    def test_only_those_who_are_asked_answer(self, make):
        transport = make({"a": Echo(), "b": Echo(), "c": Echo()})
        assert set(transport.exchange("stage", MESSAGES, 10.0)) == {"a", "b"}

    def test_who_crashes_has_not_answered(self, make):
        transport = make({"a": Echo(), "b": Crashing()})
        assert transport.exchange("stage", MESSAGES, 10.0) == {"a": b"cba"}
        assert transport.exchange("again", MESSAGES, 10.0) == {"a": b"cba"}

    def test_nobody_asked_is_nothing_answered(self, make):
        assert make({"a": Echo()}).exchange("stage", {}, 10.0) == {}


class TestPlain(TransportContract):
    @pytest.fixture(params=[InProcess, Threads])
    def make(self, request):
        return request.param


class TestRecorded(TransportContract):
    @pytest.fixture
    def make(self):
        return lambda parties: Recorded(InProcess(parties))


class TestMetered(TransportContract):
    @pytest.fixture
    def make(self):
        return lambda parties: Metered(InProcess(parties))


class TestFaulty(TransportContract):
    @pytest.fixture
    def make(self):
        return lambda parties: Faulty(InProcess(parties))


def test_a_crash_is_named():
    transport = InProcess({"b": Crashing()})
    transport.exchange("trip 1", {"b": b""}, 1.0)
    assert transport.crashed == {"b": "trip 1: RuntimeError: out of battery"}


def test_what_passes_is_kept_by_stage():
    transport = Recorded(InProcess({"a": Echo(), "b": Echo()}))
    transport.exchange("one", MESSAGES, 1.0)
    transport.exchange("two", {"a": b"x"}, 1.0)
    assert [exchange.stage for exchange in transport.seen] == ["one", "two"]
    assert transport.last("one").received["b"] == b"gfed"
    assert dict(transport.last("two").sent) == {"a": b"x"}


def test_bytes_are_counted_by_stage():
    transport = Metered(InProcess({"a": Echo(), "b": Crashing()}))
    transport.exchange("one", MESSAGES, 1.0)
    transport.exchange("one", MESSAGES, 1.0)
    transport.exchange("two", {"a": b"x"}, 1.0)
    assert (transport.by_stage["one"].down_bytes, transport.by_stage["one"].up_bytes) == (14, 6)
    both = transport.of("one", "two", "three")
    assert (both.down_bytes, both.up_bytes) == (15, 7)
    assert transport.of() == Counted()


def test_messages_are_lost_and_damaged_as_told():
    transport = Faulty(
        InProcess({"a": Echo(), "b": Echo()}),
        down=lambda stage, name, data: None if name == "a" else data,
        up=lambda stage, name, data: data + stage.encode(),
    )
    assert transport.exchange("!", MESSAGES, 1.0) == {"b": b"gfed!"}
