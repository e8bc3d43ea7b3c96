"""What is hardened of NVFlare, and what of NVFlare that builds on."""

import inspect
import socket
import tracemalloc
from contextlib import closing
from hashlib import sha256

import pytest

pytest.importorskip("nvflare", reason="NVFlare is not installed")

from nvflare.fuel.f3.cellnet.connector_manager import ConnectorManager
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.communicator import Communicator
from nvflare.fuel.f3.drivers.connector_info import ConnectorInfo, Mode
from nvflare.fuel.f3.drivers.driver_manager import DriverManager
from nvflare.fuel.f3.drivers.net_utils import get_ssl_context
from nvflare.fuel.f3.drivers.socket_conn import ConnectionHandler, SocketConnection
from nvflare.fuel.f3.drivers.tcp_driver import TcpDriver, TcpStreamServer
from nvflare.fuel.f3.sfm.constants import Types
from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN, Prefix
from nvflare.fuel.f3.stats_pool import StatsPoolManager

from fedmmf.transports.nvflare_hardening import HardenedConnection

# The methods of NVFlare 2.9 that are replaced or built on, by the digest of their source. When one
# changes, read both versions, adapt `transports/nvflare_hardening.py`, and run
# tests/federation/test_link.py and test_knocking.py before writing its digest here.
BUILT_ON = {
    TcpStreamServer.__init__: "73a2c52122c16d72",
    TcpDriver.listen: "adcfdf6c107ca8a0",
    TcpDriver.connect: "70dbe49969fe7c13",
    TcpDriver.shutdown: "255c6c673b755426",
    ConnectionHandler.handle: "1bab4511c711bc4c",
    SocketConnection.read_frame: "9f41956ca7555c08",
    SocketConnection.read_into: "9142960d87092798",
    SocketConnection.read_loop: "dddf64cd99a5c124",
    get_ssl_context: "bd07291994658cad",
    DriverManager.register: "33cbfa5d0aafeeb2",
    DriverManager.find_driver_class: "ff85bb855f4059fb",
    Communicator.add_connector: "3c51c5a306aa1b86",
    CoreCell._add_adhoc_connector: "c4224c8a179ee1fe",
    ConnectorManager.is_adhoc_allowed: "8622bdc6b021ed17",
    StatsPoolManager.delete_pool: "7d37ae98962527ba",
}


@pytest.mark.parametrize("of", BUILT_ON, ids=lambda of: of.__qualname__)
def test_nvflare_is_the_one_that_is_hardened(of):
    found = sha256(inspect.getsource(of).encode()).hexdigest()[:16]
    assert found == BUILT_ON[of], f"NVFlare has changed {of.__qualname__}; its digest is {found}"


def test_a_cell_connects_elsewhere_in_one_place_only():
    """Which `HardenedCell` replaces."""
    assert inspect.getsource(CoreCell).count("get_external_connector(") == 2
    assert inspect.getsource(CoreCell._add_adhoc_connector).count("adhoc=True") == 1
    assert inspect.getsource(CoreCell).count("adhoc=True") == 1


@pytest.fixture
def ends():
    """A connection as NVFlare makes it, and the socket of whoever is at its other end."""
    near, far = socket.socketpair()
    with closing(near), closing(far):
        connector = ConnectorInfo("test", None, {}, Mode.PASSIVE, 0, 0, False, False)
        yield HardenedConnection(near, connector), far


def prefix_of(kind, length):
    data = bytearray(PREFIX_LEN)
    Prefix(length=length, type=kind).to_buffer(data, 0)
    return bytes(data)


def test_a_frame_is_read_whole(ends):
    connection, far = ends
    sent = prefix_of(Types.DATA, PREFIX_LEN + 3) + b"abc"
    far.sendall(sent + prefix_of(Types.PING, PREFIX_LEN))
    assert bytes(connection.read_frame()) == sent
    assert bytes(connection.read_frame()) == prefix_of(Types.PING, PREFIX_LEN)


def test_a_claim_of_many_bytes_takes_no_room_before_they_come(ends):
    connection, far = ends
    far.sendall(prefix_of(Types.DATA, 200 << 20) + bytes(1000))
    far.shutdown(socket.SHUT_WR)
    tracemalloc.start()
    try:
        with pytest.raises(CommError, match="closed"):
            connection.read_frame()
        assert tracemalloc.get_traced_memory()[1] < 5 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", [Types.HELLO, Types.READY, Types.PING])
def test_a_greeting_is_short(ends, kind):
    """NVFlare would unpack it into objects that are many times larger."""
    connection, far = ends
    far.sendall(prefix_of(kind, 1 << 20))
    far.shutdown(socket.SHUT_WR)
    with pytest.raises(CommError, match="got 1048576"):
        connection.read_frame()


@pytest.mark.parametrize("length", [0, PREFIX_LEN - 1, (1 << 32) - 1])
def test_a_length_that_no_frame_has_is_refused(ends, length):
    connection, far = ends
    far.sendall(prefix_of(Types.DATA, length))
    far.shutdown(socket.SHUT_WR)
    with pytest.raises(CommError, match=f"got {length}"):
        connection.read_frame()
