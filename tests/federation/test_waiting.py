"""A site that lets the server wait is shown while it does, and not only at the end."""

from datetime import timedelta
from threading import Event, Thread

import pytest
from asking import eventually

from fedmmf import __version__
from fedmmf.federation import sites as module
from fedmmf.federation.charter import Charter
from fedmmf.federation.hello import PROTOCOL, Hello
from fedmmf.federation.sites import Admission, Sites
from fedmmf.wire import Refused

CHARTER = Charter(name="test", sites=("a", "b", "c"))


class SilentLink:
    """Everybody is connected, and nobody answers before the end."""

    def __init__(self):
        self.is_over = Event()

    def ask(self, topic, questions, timeout):
        self.is_over.wait(timeout)
        return {}

    def is_connected(self, name):
        return True


@pytest.fixture
def link():
    link = SilentLink()
    yield link
    link.is_over.set()


def test_whom_the_server_waits_for_is_in_the_picture(link, monkeypatch):
    monkeypatch.setattr(module, "NOTICE", timedelta(seconds=0.1))
    sites = Sites(link, Admission(CHARTER, b"", None), lambda: None)
    hello = Hello(
        protocol=PROTOCOL, version=__version__, charter=CHARTER.digest.hex(), catalogue="",
        identity="", instance="01", parties=1, users=5,
    )  # fmt: skip
    sites.hello("a", hello.encode())
    assert [picture.version for picture in sites.pictures] == [__version__, "", ""]
    asking = Thread(target=sites.exchange, args=("round", {"a": Refused("no").encode()}, 30.0))
    asking.start()
    eventually(lambda: sites.pictures[0].awaited)
    assert sites.pictures[0].trouble.startswith("no answer yet; it was asked at ")
    assert not sites.pictures[1].awaited
    link.is_over.set()
    asking.join()
    assert sites.pictures[0].trouble == "did not answer in time"
