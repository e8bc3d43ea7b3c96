"""The routes of the status page: for people, for programs, and for an operator's orders."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route, Router
from starlette.types import Receive, Scope, Send

from fedmmf.errors import FedMMFError
from fedmmf.federation.page import rendering
from fedmmf.federation.page.metrics import StatusCollector
from fedmmf.federation.status import Board
from fedmmf.web.access import Guard, Guarded, json_object

Action = Callable[[dict[str, Any]], dict[str, Any]]
Endpoint = Callable[[Request], Awaitable[Response]]

MAX_LISTENERS = 32
HEARTBEAT = 15.0  # seconds; programs between server and browser cut silent lines, often after 30
PAUSE = 0.25  # seconds between two statuses: nobody reads faster
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}
FILES = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
log = logging.getLogger(__name__)


def page_app(board: Board, actions: Mapping[str, Action], guard: Guard) -> Starlette:
    """Make the application that shows a board and takes orders.

    Args:
        board: with the latest status.
        actions: by name, what a POST does.
        guard: decides who may ask for what, before anything else does.
    """
    views = _Views(board, guard)
    routes = [
        Route("/", views.page),
        Route("/status", views.status),
        Route("/metrics", views.metrics),
        Route("/health", views.health),
        Route("/events", EventStream(board), methods=["GET"]),
        *(Route(f"/{name}", _file(name, kind)) for name, kind in FILES.items()),
        *(Route(f"/{name}", _order(action), methods=["POST"]) for name, action in actions.items()),
    ]
    # Inside an application, so that a guard's refusal is answered like any other.
    guarded = Router(routes, redirect_slashes=False, middleware=[Middleware(Guarded, guard=guard)])
    handlers = {HTTPException: _refusals(sorted(actions)), Exception: _failed}
    return Starlette(routes=[Mount("", guarded)], exception_handlers=handlers)


class _Views:
    """Answers to whoever looks."""

    def __init__(self, board: Board, guard: Guard) -> None:
        self._board, self._guard = board, guard

    async def page(self, request: Request) -> Response:
        response = HTMLResponse(rendering.page(self._board.status))
        self._guard.remember(request, response)
        return response

    async def status(self, request: Request) -> Response:
        return Response(self._board.status.model_dump_json(), media_type="application/json")

    async def metrics(self, request: Request) -> Response:
        try:
            encode, kind = choose_encoder(request.headers.get("Accept", ""))
        except (TypeError, ValueError):  # of a version that is no number
            encode, kind = choose_encoder("")
        return Response(encode(StatusCollector(self._board.status)), media_type=kind)

    async def health(self, request: Request) -> Response:
        return JSONResponse({"state": self._board.status.state})


class EventStream:
    """The status now and every newer one, as server-sent events, to a limited number of clients."""

    def __init__(self, board: Board) -> None:
        self._board, self._n_listeners = board, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events for as long as the client listens."""
        if self._n_listeners >= MAX_LISTENERS:
            raise HTTPException(503, "too many listen already", {"Retry-After": "10"})
        self._n_listeners += 1
        try:
            events = self._events() if scope["method"] == "GET" else _nothing()
            await StreamingResponse(events, media_type="text/event-stream")(scope, receive, send)
        finally:
            self._n_listeners -= 1

    async def _events(self) -> AsyncIterator[str]:
        yield "retry: 3000\n\n"
        shown, last = -1, time.monotonic()
        while True:
            number, status = self._board.latest
            if number > shown:
                yield f"event: status\ndata: {status.model_dump_json()}\n\n"
                shown, last = number, time.monotonic()
            elif time.monotonic() - last >= HEARTBEAT:
                # The comment is for lines in between, the event for the script: it sees no comment.
                yield ": still here\nevent: beat\ndata: .\n\n"
                last = time.monotonic()
            await asyncio.sleep(PAUSE)


async def _nothing() -> AsyncIterator[str]:
    yield ""


def _file(name: str, kind: str) -> Endpoint:
    async def answer(request: Request) -> Response:
        return Response(rendering.file(name), media_type=kind)

    return answer


def _order(action: Action) -> Endpoint:
    async def answer(request: Request) -> Response:
        body = await json_object(request)
        try:
            return JSONResponse(await run_in_threadpool(action, body))
        except FedMMFError as error:
            raise HTTPException(HTTPStatus.CONFLICT, str(error)) from None

    return answer


def _refusals(actions: list[str]) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Make the handler that answers with a sentence: text at the page's address, JSON elsewhere."""
    missing = {
        "GET": "there is nothing at this address",
        "POST": f"no such action; this server knows: {', '.join(actions) or 'none'}",
    }

    async def refused(request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            raise error
        status, sentence, headers = error.status_code, error.detail, error.headers
        if status == HTTPStatus.NOT_FOUND:
            sentence = missing.get(request.method, missing["GET"])
        elif status == HTTPStatus.METHOD_NOT_ALLOWED:
            sentence = f"this takes {(headers or {}).get('Allow')}"
        if request.scope["path"] == "/" and request.method in ("GET", "HEAD"):
            return PlainTextResponse(f"{sentence[:1].upper()}{sentence[1:]}.\n", status, headers)
        return JSONResponse({"error": sentence}, status, headers)

    return refused


async def _failed(request: Request, error: Exception) -> Response:
    """Answer after a mistake of ours; the log says what it was, without what was asked."""
    log.error("the status page could not answer", exc_info=error)
    return JSONResponse({"error": "the server failed; its log says how"}, 500)
