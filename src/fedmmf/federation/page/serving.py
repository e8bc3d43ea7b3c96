"""The status page as a part of the server process."""

import errno
import logging
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from http.server import ThreadingHTTPServer
from socketserver import TCPServer
from threading import BoundedSemaphore, Event, Thread
from typing import Any
from urllib.parse import quote

from fedmmf.errors import SettingsError
from fedmmf.federation.page.access import Guard
from fedmmf.federation.page.answers import Action, PageAnswers
from fedmmf.federation.page.events import MAX_LISTENERS
from fedmmf.federation.page.handling import PageHandler
from fedmmf.federation.status import Board

MAX_CONNECTIONS = MAX_LISTENERS + 32
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
HERE = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104 - all addresses


class StatusPage:
    """Shows a board to an operator, and takes orders from whoever has the token.

    Args:
        board: with the latest status.
        host: where to listen. On any address but a loopback one everybody needs the token, and
            what is sent can be read on the way: put something that speaks TLS in front.
        port: 0 for any that is free.
        token: that lets somebody give orders; keep it secret.
        actions: by name, what a POST does; they are called in threads of their own, maybe two
            at a time. A FedMMFError becomes an answer.

    Raises:
        SettingsError: the token cannot be sent in a header, or the port is none.
    """

    def __init__(
        self,
        board: Board,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str,
        actions: Mapping[str, Action],
    ) -> None:
        if not token.isascii() or not token.isprintable() or not token or " " in token:
            raise SettingsError(
                "the token of a status page must be ASCII letters without spaces; "
                "secrets.token_urlsafe() makes one"
            )
        if not 0 <= port <= 65_535:
            raise SettingsError(f"a port is a number from 0 to 65535, not {port}")
        self._board, self._token, self._actions = board, token, actions
        self._host, self._port = host, port
        self._server: PageServer | None = None

    @property
    def url(self) -> str:
        """Where a browser on this machine finds the page, with the token where one is needed."""
        host = HERE.get(self._host, self._host)
        port = self._server.port if self._server else self._port
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
        is_open = Guard(self._token, self._host).is_open
        return address if is_open else f"{address}?token={quote(self._token, safe='')}"

    def start(self) -> None:
        """Begin to answer, in threads that end with the process.

        Raises:
            SettingsError: the port is in use, or the host is not of this machine.
        """
        if self._server is not None:
            return
        try:
            self._server = PageServer(
                (self._host, self._port),
                self._board,
                Guard(self._token, self._host),
                PageAnswers(self._board, self._actions),
            )
        except OSError as error:
            raise SettingsError(_why_not(error, self._host, self._port)) from None
        serve = self._server.serve_forever
        Thread(target=serve, args=(0.1,), name="status page", daemon=True).start()

    def stop(self) -> None:
        """Stop answering, and disconnect the listeners."""
        server, self._server = self._server, None
        if server is not None:
            server.stopping.set()
            server.shutdown()
            server.server_close()


def _why_not(error: OSError, host: str, port: int) -> str:
    """Explain why the port cannot be opened, and what to do."""
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} of {host} is in use, maybe by another server of this federation; "
            "stop that one, or choose another port (0: any that is free)"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"port {port} of {host} is not for everybody; choose one above 1023"
    return (
        f"the status page cannot listen at {host}: {error.strerror or error}; choose an address "
        "of this machine, like 127.0.0.1"
    )


class PageServer(ThreadingHTTPServer):
    """Listens, with a thread for each of a limited number of connections."""

    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], board: Board, guard: Guard, answers: PageAnswers
    ) -> None:
        self.board, self.guard, self.answers = board, guard, answers
        self.listeners, self.stopping = BoundedSemaphore(MAX_LISTENERS), Event()
        self._places = BoundedSemaphore(MAX_CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, PageHandler)

    @property
    def port(self) -> int:
        """Port that the server listens on, also where port 0 was asked for."""
        return int(self.server_address[1])

    def server_bind(self) -> None:
        """Bind, without asking the network for the full name of this machine."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.port

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for the connection, or refuse it where all are in use."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with suppress(OSError):
            request.settimeout(0.1)
            request.sendall(BUSY)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer the request, and free its place."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Somebody who hangs up is no news; a mistake of ours is, without what was asked."""
        if not isinstance(sys.exc_info()[1], OSError):
            logging.getLogger(__name__).exception("the status page could not answer")
