"""Read HTTP requests and write answers; other modules decide what the answers say."""

import io
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

from fedmmf.federation.page.access import Asked, HttpRefusal
from fedmmf.federation.page.answers import PageReply, done, refused
from fedmmf.federation.page.events import events, has_gone

if TYPE_CHECKING:
    from fedmmf.federation.page.serving import PageServer

SLOWEST = 10.0  # seconds in which a request must have come, or an answer gone
LARGEST_BODY = 64_000
MAX_UNREAD = 1 << 20  # bytes of a refused body that are taken in, so that its sender reads why

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Connection": "close",
}


class _Until(io.RawIOBase):
    """Reads from a socket until a moment that no trickle of bytes puts off."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection, self._end = connection, time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("a request took too long")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class PageHandler(BaseHTTPRequestHandler):
    """Handler of one connection with one request."""

    server: "PageServer"
    protocol_version = "HTTP/1.1"
    timeout = SLOWEST

    def setup(self) -> None:
        """Give the whole request one time limit."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Until(self.connection, SLOWEST))

    def do_GET(self) -> None:
        """Answer a GET, which only reads."""
        self._answer()

    def do_HEAD(self) -> None:
        """Answer with the headers of a GET."""
        self._answer()

    def do_POST(self) -> None:
        """Answer a POST, which may start an action."""
        self._answer()

    def _answer(self) -> None:
        asked = None
        try:
            asked = Asked.of(self.command, self.path, self.headers)
            self.server.guard.check(asked)
            reply = self._reply_to(asked)
        except HttpRefusal as refusal:
            reply = refused(refusal, asked)
        if reply is not None:
            self._send(reply)

    def _reply_to(self, asked: Asked) -> PageReply | None:
        """The answer; none where it was given already, bit by bit."""
        if asked.changes_something:
            action = self.server.answers.action(asked)
            return done(action, self._body())
        if asked.path == "/events":
            return self._stream()
        reply = self.server.answers.looked(asked)
        cookie = self.server.guard.cookie_for(asked, self.server.port)
        return PageReply(reply.body, reply.kind, reply.status, cookie)

    def _body(self) -> bytes:
        if "Transfer-Encoding" in self.headers:
            raise HttpRefusal(HTTPStatus.LENGTH_REQUIRED, "a body must say its length")
        length = self._announced()
        if length > LARGEST_BODY:
            sentence = f"a body may have {LARGEST_BODY:,} bytes; this one has {length:,}"
            raise HttpRefusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence)
        try:
            body = self.rfile.read(length)
        except TimeoutError:
            raise HttpRefusal(HTTPStatus.REQUEST_TIMEOUT, "the body took too long") from None
        if len(body) < length:
            raise HttpRefusal(HTTPStatus.BAD_REQUEST, "the body is shorter than it says")
        return body

    def _announced(self) -> int:
        said = self.headers.get("Content-Length", "0").strip()
        if not (said.isascii() and said.isdigit() and len(said) < 16):
            raise HttpRefusal(HTTPStatus.BAD_REQUEST, "Content-Length must be a number")
        return int(said)

    def _stream(self) -> PageReply | None:
        """Send events for as long as the client listens."""
        if self.command == "HEAD":
            return PageReply(b"", "text/event-stream")
        if not self.server.listeners.acquire(blocking=False):
            raise HttpRefusal(
                HTTPStatus.SERVICE_UNAVAILABLE, "too many listen already", Retry_After="10"
            )
        try:
            self._begin(HTTPStatus.OK, {"Content-Type": "text/event-stream"})
            for chunk in events(self.server.board, self._is_over):
                self.wfile.write(chunk)
        finally:
            self.server.listeners.release()
        return None

    def _is_over(self) -> bool:
        return self.server.stopping.is_set() or has_gone(self.connection)

    def _send(self, reply: PageReply) -> None:
        length = {"Content-Type": reply.kind, "Content-Length": str(len(reply.body))}
        self._begin(reply.status, {**length, **reply.headers})
        if self.command != "HEAD":
            self.wfile.write(reply.body)
        if self.command == "POST" and reply.status >= HTTPStatus.BAD_REQUEST:
            self._take_in_the_rest()

    def _begin(self, status: HTTPStatus, headers: Mapping[str, str]) -> None:
        self.connection.settimeout(SLOWEST)
        self.request_version = self.protocol_version  # else nonsense gets a body without headers
        self.send_response(status)
        for name, value in {**HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _take_in_the_rest(self) -> None:
        """Closing on bytes that were not read would take back the answer."""
        with suppress(HttpRefusal, OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.rfile.read(min(self._announced(), MAX_UNREAD))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send the library's error without quoting the request."""
        status = HTTPStatus(code)
        if status == HTTPStatus.NOT_IMPLEMENTED:  # a method that is not here
            sentence = "only GET, HEAD and POST are taken"
            refusal = HttpRefusal(HTTPStatus.METHOD_NOT_ALLOWED, sentence, Allow="GET, HEAD, POST")
        else:
            refusal = HttpRefusal(status, status.phrase)
        self._send(refused(refusal, None))

    def version_string(self) -> str:
        """Return a name without a version, since clients need not know what runs here."""
        return "fedmmf"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Log nothing, since requests may carry the token."""
