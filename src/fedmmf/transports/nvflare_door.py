"""NVFlare's TLS listener and frames: nobody keeps others out or fills the memory.

NVFlare shakes hands where it accepts connections: one that says nothing blocks all that follow.
Here each connection shakes hands in a thread of its own, for some seconds at most, and there are
only so many of them. A connection that only knocks (`transports.tls`) is answered here and closed,
and a refusal has a reason.

NVFlare makes room for a whole frame when it has read the length that somebody claims, and unpacks
greetings of any size into objects that are many times larger. Here a frame takes the room of the
bytes that came, and a greeting is short.
"""

import logging
import socket
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from socketserver import TCPServer, ThreadingTCPServer
from threading import active_count
from typing import Any

from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.drivers import socket_conn
from nvflare.fuel.f3.drivers.tcp_driver import TcpStreamServer
from nvflare.fuel.f3.sfm.constants import Types
from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN, Prefix

from fedmmf.transports.tls import GREETING, KNOCK, MAX_KNOCK_BYTES, common_name, words_of

_GREETING = 1 << 16  # bytes of a frame that is no data; NVFlare's own have some hundred
_PIECE = 1 << 20  # bytes that are made room for before they came
_HANDSHAKE = 5.0  # seconds
_MAX_THREADS = 500  # of the process; each connection has one
_MAX_NAME = 64  # characters of a name that somebody claims
_log = logging.getLogger(__name__)


@dataclass
class Door:
    """What a listener does with those who knock, and with those who cannot shake hands.

    Attributes:
        answer: (name in the certificate, question) -> the answer to a knock.
        refused: told (address, reason) of everybody whose handshake failed.
    """

    answer: Callable[[str, bytes], bytes] = lambda name, question: b""
    refused: Callable[[str, str], None] = lambda address, reason: None


_doors: dict[str, Door] = {}  # by the address that a listener of this process has


def let_nobody_block_it(address: str = "") -> Door:
    """Change the listeners of this process; returns the door of the one at `address`."""
    for method in (server_activate, verify_request, finish_request, handle_error, shutdown):
        setattr(TcpStreamServer, method.__name__, method)
    socket_conn.SocketConnection.read_frame = read_frame
    return _doors.setdefault(address, Door()) if address else Door()


def server_activate(self: Any) -> None:
    """Listen; `accept` does not shake hands."""
    self.socket.do_handshake_on_connect = False
    self.ssl_context.set_alpn_protocols([KNOCK])  # who offers none is served as before
    self.ssl_context.sni_callback = _note_claim
    ThreadingTCPServer.server_activate(self)


def _note_claim(connection: Any, name: str | None, context: ssl.SSLContext) -> None:
    """Who knocks says its name before any certificate is checked: it is only a claim."""
    connection.claimed_name = name


def verify_request(self: Any, request: socket.socket, address: Any) -> bool:
    """Take no more connections than there may be threads."""
    return active_count() < _MAX_THREADS


def finish_request(self: Any, request: Any, address: Any) -> None:
    """In the connection's own thread: shake hands, then talk."""
    request.settimeout(_HANDSHAKE)
    request.do_handshake()
    if request.selected_alpn_protocol() == KNOCK:
        _answer_knock(_doors.get(self.local_addr, Door()), request)
        return
    request.settimeout(None)
    ThreadingTCPServer.finish_request(self, request, address)


def _answer_knock(door: Door, request: Any) -> None:
    """Say that the certificate is good, read one line, answer it, and hang up."""
    request.sendall(GREETING)
    asked = b""
    while not asked.endswith(b"\n") and len(asked) <= MAX_KNOCK_BYTES:
        part = request.recv(MAX_KNOCK_BYTES)
        if not part:
            return
        asked += part
    request.sendall(door.answer(common_name(request), asked.rstrip(b"\n")))


def read_frame(self: Any) -> bytearray:
    """Read one frame, and make room for it as it comes."""
    frame = bytearray(PREFIX_LEN)
    self.read_into(frame, 0, PREFIX_LEN)
    prefix = Prefix.from_bytes(frame)
    most = socket_conn.MAX_FRAME_SIZE if prefix.type == Types.DATA else _GREETING
    if not PREFIX_LEN <= prefix.length <= most:
        reason = f"a frame of type {prefix.type} has {PREFIX_LEN} to {most} bytes"
        raise CommError(CommError.BAD_DATA, f"{reason}; got {prefix.length}")
    while len(frame) < prefix.length:
        piece = bytearray(min(_PIECE, prefix.length - len(frame)))
        self.read_into(piece, 0, len(piece))
        frame += piece
    return frame


def handle_error(self: Any, request: socket.socket, address: Any) -> None:
    """Log in one line who failed the TLS handshake: a stranger, or a wrong key."""
    error, claimed = sys.exc_info()[1], getattr(request, "claimed_name", None)
    reason = words_of(error) if isinstance(error, OSError) else f"{error}"
    if claimed:
        reason = f"who calls itself {claimed[:_MAX_NAME]!r}: {reason}"
    _log.warning("a connection from %s was refused: %.400s", address[0], reason)
    _doors.get(self.local_addr, Door()).refused(str(address[0]), reason)


def shutdown(self: Any) -> None:
    """Stop listening, and free the port at once rather than at garbage collection."""
    ThreadingTCPServer.shutdown(self)
    TCPServer.server_close(self)
