"""What is hardened of NVFlare 2.9: its TCP driver and its cell.

All of it are subclasses of NVFlare's classes; nothing of NVFlare is changed in place. The driver is
registered under a scheme of its own, as NVFlare means drivers to be added. Every method here that
replaces one of NVFlare's is for version 2.9: `tests/transports/test_nvflare_hardening.py` fails
where NVFlare changes what it replaces or builds on.

*Handshakes.* NVFlare shakes hands where it accepts connections: one that says nothing blocks all
that follow. Here each connection shakes hands in a thread of its own, for some seconds at most, and
there are only so many of them. A connection that only knocks (`transports.tls`) is answered here
and closed, and a refusal has a reason.

*Frames.* NVFlare makes room for a whole frame when it has read the length that somebody claims, and
unpacks greetings of any size into objects that are many times larger. Here a frame takes the room
of the bytes that came, and a greeting is short.

*Cells.* NVFlare connects to any address that a message names, also where such connections are not
allowed, and remembers the name and the statistics of a cell that has stopped. Here a cell connects
to its server alone, and leaves nothing behind.
"""

import logging
import socket
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from socketserver import BaseRequestHandler, TCPServer
from threading import active_count
from typing import Any

from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.communicator import driver_mgr
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.drivers.net_utils import get_ssl_context
from nvflare.fuel.f3.drivers.socket_conn import SocketConnection
from nvflare.fuel.f3.drivers.tcp_driver import TcpDriver, TcpStreamServer
from nvflare.fuel.f3.sfm.constants import Types
from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN, Prefix
from nvflare.fuel.f3.stats_pool import CounterPool, HistPool, StatsPoolManager

from fedmmf.transports.contract import MAX_MESSAGE_BYTES
from fedmmf.transports.tls import GREETING, KNOCK, MAX_KNOCK_BYTES, common_name, words_of

SCHEME = "fedmmf"  # of addresses that NVFlare hands to the driver here
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


def door_at(address: str) -> Door:
    """Return the door of this process's listener at `host:port`."""
    return _doors.setdefault(address, Door())


class HardenedConnection(SocketConnection):
    """A connection whose frames are bounded, and take the room of what came."""

    def read_frame(self) -> bytearray:
        """Read one frame, and make room for it as it comes."""
        frame = bytearray(PREFIX_LEN)
        self.read_into(frame, 0, PREFIX_LEN)
        prefix = Prefix.from_bytes(frame)
        most = MAX_MESSAGE_BYTES if prefix.type == Types.DATA else _GREETING
        if not PREFIX_LEN <= prefix.length <= most:
            reason = f"a frame of type {prefix.type} has {PREFIX_LEN} to {most} bytes"
            raise CommError(CommError.BAD_DATA, f"{reason}; got {prefix.length}")
        while len(frame) < prefix.length:
            piece = bytearray(min(_PIECE, prefix.length - len(frame)))
            self.read_into(piece, 0, len(piece))
            frame += piece
        return frame


class _Handler(BaseRequestHandler):
    """A connection of a listener, in its own thread."""

    server: "_Listener"

    def handle(self) -> None:
        """Talk until the connection ends."""
        self.server.driver.talk(
            HardenedConnection(self.request, self.server.connector, secure=True)
        )


class _Listener(TcpStreamServer):
    """A listener that shakes hands in the thread of each connection."""

    def __init__(self, driver: "HardenedDriver", connector: Any) -> None:
        super().__init__(driver, connector)
        self.RequestHandlerClass = _Handler

    def server_activate(self) -> None:
        """Listen; `accept` does not shake hands."""
        self.socket.do_handshake_on_connect = False
        self.ssl_context.set_alpn_protocols([KNOCK])  # who offers none is served as before
        self.ssl_context.sni_callback = _note_claim
        super().server_activate()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Take no more connections than there may be threads."""
        return active_count() < _MAX_THREADS

    def finish_request(self, request: Any, client_address: Any) -> None:
        """In the connection's own thread: shake hands, then talk."""
        request.settimeout(_HANDSHAKE)
        request.do_handshake()
        if request.selected_alpn_protocol() == KNOCK:
            _answer_knock(door_at(self.local_addr), request)
            return
        request.settimeout(None)
        super().finish_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log in one line who failed the TLS handshake: a stranger, or a wrong key."""
        error, claimed = sys.exc_info()[1], getattr(request, "claimed_name", None)
        reason = words_of(error) if isinstance(error, OSError) else f"{error}"
        if claimed:
            reason = f"who calls itself {claimed[:_MAX_NAME]!r}: {reason}"
        _log.warning("a connection from %s was refused: %.400s", client_address[0], reason)
        door_at(self.local_addr).refused(str(client_address[0]), reason)

    def shutdown(self) -> None:
        """Stop listening, and free the port at once rather than at garbage collection."""
        super().shutdown()
        TCPServer.server_close(self)  # that of threads would wait for all connections


def _note_claim(connection: Any, name: str | None, context: ssl.SSLContext) -> None:
    """Who knocks says its name before any certificate is checked: it is only a claim."""
    connection.claimed_name = name


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


class HardenedDriver(TcpDriver):
    """NVFlare's TCP driver with the listener and the connections of this file; TLS only."""

    @staticmethod
    def supported_transports() -> list[str]:
        """Return the scheme of this driver."""
        return [SCHEME]

    def listen(self, connector: Any) -> None:
        """Accept connections until `shutdown`."""
        self.connector, self.server = connector, _Listener(self, connector)
        self.server.serve_forever()

    def connect(self, connector: Any) -> None:
        """Connect to a server, and talk until the connection ends."""
        self.connector, given = connector, connector.params
        context = get_ssl_context(given, ssl_server=False)
        channel = context.wrap_socket(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        channel.connect((given[DriverParams.HOST.value], int(given[DriverParams.PORT.value])))
        self.talk(HardenedConnection(channel, connector, secure=True))

    def talk(self, connection: HardenedConnection) -> None:
        """Read frames until the connection ends."""
        self.add_connection(connection)
        connection.read_loop()
        self.close_connection(connection)


class HardenedCell(CoreCell):
    """A cell that talks to its server, or to those who connect to it, and to nobody else.

    Args:
        name: of the cell.
        address: `host:port` of the server.
        given: files of its credentials, by NVFlare's names for them.
        server_name: the name in the server's certificate.
    """

    def __init__(self, name: str, address: str, given: dict[str, str], server_name: str) -> None:
        if driver_mgr.find_driver_class(SCHEME) is None:
            driver_mgr.register(HardenedDriver)
        names = {FQCN.ROOT_SERVER: server_name}
        super().__init__(name, f"{SCHEME}://{address}", True, given, auth_identity_map=names)
        self.connector_manager.adhoc_allowed = False

    def _add_adhoc_connector(self, to_cell: str, url: str) -> None:
        """Do nothing: no peer may make this machine connect elsewhere."""

    def leave(self) -> None:
        """Stop; the process may make another cell of the same name."""
        self.stop()
        CoreCell.ALL_CELLS.pop(self.my_info.fqcn, None)
        # The process has these by name, two of each at most: a third cell could not be made.
        for pool in vars(self).values():
            if isinstance(pool, HistPool | CounterPool):
                StatsPoolManager.delete_pool(pool.name)
