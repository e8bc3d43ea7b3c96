"""NVFlare's TLS listener, so that nobody who is silent keeps others out.

NVFlare shakes hands where it accepts connections: one that says nothing blocks all that follow.
Here each connection shakes hands in a thread of its own, for some seconds at most, and there are
only so many of them.
"""

import logging
import socket
import sys
from socketserver import ThreadingTCPServer
from threading import active_count
from typing import Any

from nvflare.fuel.f3.drivers.tcp_driver import TcpStreamServer

_HANDSHAKE = 5.0  # seconds
_MOST_THREADS = 500  # of the process; each connection has one
_log = logging.getLogger(__name__)


def let_nobody_block_it() -> None:
    """Change the listener of this process."""
    for method in (server_activate, verify_request, finish_request, handle_error):
        setattr(TcpStreamServer, method.__name__, method)


def server_activate(self: Any) -> None:
    """Listen; `accept` does not shake hands."""
    self.socket.do_handshake_on_connect = False
    ThreadingTCPServer.server_activate(self)


def verify_request(self: Any, request: socket.socket, address: Any) -> bool:
    """Take no more connections than there may be threads."""
    return active_count() < _MOST_THREADS


def finish_request(self: Any, request: Any, address: Any) -> None:
    """In the connection's own thread: shake hands, then talk."""
    request.settimeout(_HANDSHAKE)
    request.do_handshake()
    request.settimeout(None)
    ThreadingTCPServer.finish_request(self, request, address)


def handle_error(self: Any, request: socket.socket, address: Any) -> None:
    """Say in one line who could not shake hands: a stranger, or somebody with a wrong key."""
    error = sys.exc_info()[1]
    _log.warning("a connection from %s was refused: %.200s", address[0], error)
