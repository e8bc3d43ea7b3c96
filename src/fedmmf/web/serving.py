"""A web application in a thread of this process: uvicorn, with limits on what a client may do."""

import asyncio
import errno
import socket
import time
from collections.abc import Mapping
from threading import Thread

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from fedmmf.errors import SettingsError

MAX_CONNECTIONS = 64  # at once; a request on one more is answered with 503
REQUEST_SECONDS = 10.0  # in which a request must have come
_GRACE = 1  # seconds that open answers have when the server stops
_LAST_SECONDS = 5.0  # that a thread at work on an answer may take after that
_POLL = 0.005
_HERE = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104 - all addresses
_HEADERS = {
    "Server": "fedmmf",  # without a version: clients need not know what runs here
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Connection": "close",
}


class WebServer:
    """A web application that answers at an address of this machine.

    Nothing is logged about requests, which may carry a token.

    Args:
        app: an ASGI application.
        host: where to listen. What is sent can be read on the way: on any address but a loopback
            one, put something that speaks TLS in front.
        port: 0 for any that is free.
        headers: of every answer, besides those that all applications of this package send.

    Raises:
        SettingsError: there is no such port.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        if not 0 <= port <= 65_535:
            raise SettingsError(f"a port is a number from 0 to 65535, not {port}")
        self._app, self._host, self._port = app, host, port
        self._headers = {**_HEADERS, **(headers or {})}
        self._running: tuple[uvicorn.Server, Thread, int] | None = None

    @property
    def url(self) -> str:
        """Where a browser on this machine finds the application."""
        host = _HERE.get(self._host, self._host)
        port = self._running[2] if self._running else self._port
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/"

    def start(self) -> None:
        """Begin to answer, in threads that end with the process; does nothing if it runs.

        Raises:
            SettingsError: the port is in use, or the host is not of this machine.
        """
        if self._running is not None:
            return
        if not _is_name(self._host):
            raise SettingsError(f"the web server cannot listen at {self._host!a}: that is no name")
        try:
            listening = _listening(self._host, self._port)
        except OSError as error:
            raise SettingsError(_why_not(error, self._host, self._port)) from None
        server, port = uvicorn.Server(self._config()), listening.getsockname()[1]
        thread = Thread(target=server.run, args=([listening],), name="web server", daemon=True)
        thread.start()
        while thread.is_alive() and not server.started:
            time.sleep(_POLL)
        if not server.started:
            listening.close()
            raise SettingsError(f"the web server at {self._host} ended before it had started")
        self._running = server, thread, port

    def _config(self) -> uvicorn.Config:
        return uvicorn.Config(
            self._app,
            loop="asyncio",
            http=BoundedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",  # the application logs its own mistakes
            access_log=False,
            proxy_headers=False,
            server_header=False,
            headers=list(self._headers.items()),
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=_GRACE,
        )

    def stop(self) -> None:
        """Stop answering, and free the port; answers without an end are cut off."""
        running, self._running = self._running, None
        if running is not None:
            server, thread, _ = running
            server.should_exit = True
            thread.join(_LAST_SECONDS)


class BoundedProtocol(H11Protocol):
    """A connection whose request has to come in time.

    uvicorn itself waits for ever for the first request, and accepts any number of connections.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give the request its time limit."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self._end_if_late)
        if len(self.connections) > 2 * MAX_CONNECTIONS:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the time limit."""
        self._deadline.cancel()
        super().connection_lost(exc)

    def _end_if_late(self) -> None:
        if self.cycle is None:
            self.transport.close()


def _is_name(host: str) -> bool:
    """Whether a host can be looked up at all: no socket has to be closed where it cannot."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return host.isprintable()


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    is_dual = host == "::" and socket.has_dualstack_ipv6()
    listening = socket.create_server((host, port), family=family, dualstack_ipv6=is_dual)
    # Connections inherit it: a client that does not read its answer loses the connection.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * REQUEST_SECONDS))
    return listening


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
        f"the web server cannot listen at {host}: {error.strerror or error}; choose an address "
        "of this machine, like 127.0.0.1"
    )
