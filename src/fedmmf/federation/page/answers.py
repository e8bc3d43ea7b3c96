"""The answer to each address of a status page."""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from fedmmf.errors import FedMMFError
from fedmmf.federation.page import metrics, rendering
from fedmmf.federation.page.access import Asked, HttpRefusal
from fedmmf.federation.status import Board, FederationStatus

Action = Callable[[dict[str, Any]], dict[str, Any]]

JSON, TEXT = "application/json", "text/plain; charset=utf-8"
FILES = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


@dataclass(frozen=True)
class PageReply:
    """A complete HTTP answer, with nothing left to stream."""

    body: bytes
    kind: str = JSON
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)


def _page(status: FederationStatus) -> PageReply:
    return PageReply(rendering.page(status).encode(), "text/html; charset=utf-8")


def _status(status: FederationStatus) -> PageReply:
    return PageReply(status.model_dump_json().encode())


def _metrics(status: FederationStatus) -> PageReply:
    return PageReply(metrics.metrics(status).encode(), metrics.KIND)


VIEWS = {"/": _page, "/status": _status, "/metrics": _metrics}


class PageAnswers:
    """Answers to requests that were let pass, except for the stream of events."""

    def __init__(self, board: Board, actions: Mapping[str, Action]) -> None:
        self._board, self._actions = board, dict(actions)

    def looked(self, asked: Asked) -> PageReply:
        """Return the answer to a GET."""
        if asked.path in VIEWS:
            return VIEWS[asked.path](self._board.status)
        name = asked.path.removeprefix("/")
        if name in FILES:
            return PageReply(rendering.file(name), FILES[name])
        if name in self._actions:
            raise HttpRefusal(HTTPStatus.METHOD_NOT_ALLOWED, "this takes a POST", Allow="POST")
        raise HttpRefusal(HTTPStatus.NOT_FOUND, "there is nothing at this address")

    def action(self, asked: Asked) -> Action:
        """Return the action that a POST asks for."""
        name = asked.path.removeprefix("/")
        if name in self._actions:
            return self._actions[name]
        if asked.path in VIEWS or name in FILES or name == "events":
            raise HttpRefusal(HTTPStatus.METHOD_NOT_ALLOWED, "this takes a GET", Allow="GET, HEAD")
        known = ", ".join(sorted(self._actions)) or "none"
        raise HttpRefusal(HTTPStatus.NOT_FOUND, f"no such action; this server knows: {known}")


def done(action: Action, body: bytes) -> PageReply:
    """Run an action on a request's body; return the answer."""
    request = _object(body)
    try:
        return PageReply(json.dumps(action(request)).encode())
    except FedMMFError as error:
        raise HttpRefusal(HTTPStatus.CONFLICT, str(error)) from None
    except Exception:
        logging.getLogger(__name__).exception("an action of the status page failed")
        raise HttpRefusal(
            HTTPStatus.INTERNAL_SERVER_ERROR, "the server failed; its log says how"
        ) from None


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise HttpRefusal(HTTPStatus.BAD_REQUEST, "the body must be a JSON object")
    return found


def refused(refusal: HttpRefusal, asked: Asked | None) -> PageReply:
    """A refusal: a sentence for people at the page's own address, JSON everywhere else."""
    for_people = asked is not None and asked.path == "/" and not asked.changes_something
    sentence = refusal.sentence
    body = f"{sentence[:1].upper()}{sentence[1:]}.\n" if for_people else _as_json(sentence)
    kind = TEXT if for_people else JSON
    return PageReply(body.encode(), kind, refusal.status, refusal.headers)


def _as_json(sentence: str) -> str:
    return json.dumps({"error": sentence})
