"""Who may ask a web application for what, and what a request may bring."""

import asyncio
import hmac
import json
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from fedmmf.errors import SettingsError
from fedmmf.web.addresses import is_loopback

MAX_BODY = 64_000  # bytes
MAX_UNREAD = 1 << 20  # bytes of a body that is too large, taken in so that its sender reads why
BODY_SECONDS = 10.0  # in which a body must have come


class Guard:
    """Lets a request pass, or refuses it.

    An application on a loopback address may be read by everybody on this machine, but not through
    a browser that was led here by somebody else's page. Any other application needs the token for
    everything. Whoever wants something changed needs the token as a header, which no foreign page
    can make a browser send.

    Args:
        token: that lets somebody give orders; keep it secret.
        host: where the application listens.
        where: in which words the application says where the token is.

    Raises:
        SettingsError: the token cannot be sent in a header.
    """

    def __init__(self, token: str, host: str, where: str) -> None:
        if not token.isascii() or not token.isprintable() or not token or " " in token:
            raise SettingsError(
                "the token of a web page must be ASCII letters without spaces; "
                "secrets.token_urlsafe() makes one"
            )
        self.is_open = is_loopback(host)
        self._token, self._where = token.encode(), where
        # Other servers on this machine get our cookies: what is in them must not start runs.
        self._view = hmac.new(self._token, b"fedmmf: look at the page", "sha256").hexdigest()

    def check(self, request: Request) -> None:
        """Raise the HTTP error that refuses a request, or do nothing."""
        if self.is_open:
            _must_be_meant_for_this_machine(request)
            _must_not_come_from_elsewhere(request)
        is_reading = request.method in ("GET", "HEAD")
        if self._has_bearer(request) or (is_reading and (self.is_open or self._may_read(request))):
            return
        sentence = (
            f"this needs the token, which is {self._where}: open this address with ?token=TOKEN "
            "at its end, or send the header Authorization: Bearer TOKEN"
        )
        raise HTTPException(401, sentence, {"WWW-Authenticate": "Bearer"})

    def remember(self, request: Request, response: Response) -> None:
        """Let a browser that came with the token in the address reload without it."""
        if not self.is_open and self._has_query(request):
            # Cookies do not know ports: two servers on one machine must not share one.
            name = f"fedmmf-{request.scope['server'][1]}"
            response.set_cookie(name, self._view, httponly=True, samesite="strict")

    def _has_bearer(self, request: Request) -> bool:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        return kind.lower() == "bearer" and _same(token.strip(), self._token)

    def _has_query(self, request: Request) -> bool:
        tokens = request.query_params.getlist("token")
        return len(tokens) == 1 and _same(tokens[0], self._token)

    def _may_read(self, request: Request) -> bool:
        values = [value for name, value in request.cookies.items() if name.startswith("fedmmf-")]
        is_known = any(_same(value, self._view.encode()) for value in values)
        return is_known or self._has_query(request)


class Guarded:
    """Middleware that asks a guard before the application is asked."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app, self._guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or raise an HTTP error."""
        self._guard.check(Request(scope))
        await self._app(scope, receive, send)


def _same(given: str, wanted: bytes) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted)


def _must_be_meant_for_this_machine(request: Request) -> None:
    """Refuse names that somebody else has pointed to this machine (DNS rebinding)."""
    hosts = request.headers.getlist("Host")
    name = _without_port(hosts[0]) if len(hosts) == 1 else ""
    if not is_loopback(name):
        raise HTTPException(403, "this page answers to localhost and 127.0.0.1, by no other name")


def _must_not_come_from_elsewhere(request: Request) -> None:
    """Refuse what another site's page makes a browser ask; links to the page are welcome."""
    origin, mode = (request.headers.get(f"Sec-Fetch-{what}", "") for what in ("Site", "Mode"))
    if origin in ("cross-site", "same-site") and mode != "navigate":
        raise HTTPException(403, "this page does not answer to other pages")


def _without_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    return name if name and port.isdigit() and not host.endswith("]") else host


async def json_object(request: Request) -> dict[str, Any]:
    """Return the JSON object in a request's body; none at all is an empty one.

    Raises:
        HTTPException: the body is too large, too late, or something else.
    """
    try:
        async with asyncio.timeout(BODY_SECONDS):
            found = json.loads(await _body(request) or b"{}")
    except TimeoutError:
        raise HTTPException(408, "the body took too long") from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise HTTPException(400, "the body must be a JSON object")
    return found


async def _body(request: Request) -> bytes:
    if "Transfer-Encoding" in request.headers:
        raise HTTPException(411, "a body must say its length")
    body, length = b"", 0
    async for chunk in request.stream():
        length += len(chunk)
        if length <= MAX_BODY:
            body += chunk
        elif length > MAX_UNREAD:
            break
    if length > MAX_BODY:
        raise HTTPException(413, f"a body may have {MAX_BODY:,} bytes; this one has more")
    return body
