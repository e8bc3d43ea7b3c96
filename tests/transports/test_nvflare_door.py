"""Frames of NVFlare's connections take the room of what came, not of what is claimed."""

import socket
import tracemalloc
from contextlib import closing

import pytest

pytest.importorskip("nvflare", reason="NVFlare is not installed")

from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.drivers.connector_info import ConnectorInfo, Mode
from nvflare.fuel.f3.drivers.socket_conn import SocketConnection
from nvflare.fuel.f3.sfm.constants import Types
from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN, Prefix

from fedmmf.transports.nvflare_door import let_nobody_block_it


@pytest.fixture
def ends():
    """A connection as NVFlare makes it, and the socket of whoever is at its other end."""
    let_nobody_block_it()
    near, far = socket.socketpair()
    with closing(near), closing(far):
        connector = ConnectorInfo("test", None, {}, Mode.PASSIVE, 0, 0, False, False)
        yield SocketConnection(near, connector), far


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
