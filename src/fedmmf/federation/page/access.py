"""Who may ask a status page for what."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

from fedmmf.federation.addresses import is_loopback

TELL_ME_WHO = (
    "this needs the token, which is in the file server/state/token of the federation's folder on "
    "the server's machine: open this address with ?token=TOKEN at its end, or send the header "
    "Authorization: Bearer TOKEN"
)


class HttpRefusal(Exception):  # noqa: N818 - an answer, not an error of ours
    """A request that gets a status and a sentence instead of what it wanted."""

    def __init__(self, status: HTTPStatus, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass(frozen=True)
class Asked:
    """A request without its body."""

    method: str
    path: str
    headers: Message
    query: Mapping[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, method: str, target: str, headers: Message) -> "Asked":
        """Taken apart; `target` is what stands in the request's first line."""
        if not target.startswith("/"):
            raise HttpRefusal(HTTPStatus.BAD_REQUEST, "a path must begin with /")
        parts = urlsplit(target)
        return cls(method, parts.path, headers, parse_qs(parts.query))

    @property
    def changes_something(self) -> bool:
        """Whether the request changes something, rather than only reading."""
        return self.method not in ("GET", "HEAD")


class Guard:
    """Lets a request pass, or refuses it.

    A page on a loopback address may be looked at by everybody on this machine, but not through
    a browser that was led here by somebody else's page. Any other page needs the token for
    everything. Whoever wants something changed needs the token as a header, which no foreign
    page can make a browser send.
    """

    def __init__(self, token: str, host: str) -> None:
        self.is_open = is_loopback(host)
        self._token = token.encode()
        # Other servers on this machine get our cookies: what is in them must not start runs.
        self._view = hmac.new(self._token, b"fedmmf: look at the page", "sha256").hexdigest()

    def check(self, asked: Asked) -> None:
        """Raise a refusal, or do nothing."""
        if self.is_open:
            _must_be_meant_for_this_machine(asked)
            _must_not_come_from_elsewhere(asked)
        if asked.changes_something or not self.is_open:
            is_known = self._has_bearer(asked) or (
                not asked.changes_something and self._may_look(asked)
            )
            if not is_known:
                raise HttpRefusal(HTTPStatus.UNAUTHORIZED, TELL_ME_WHO, WWW_Authenticate="Bearer")

    def cookie_for(self, asked: Asked, port: int) -> dict[str, str]:
        """Return a header that lets a browser reload without the token in the address."""
        if self.is_open or not self._has_query(asked):
            return {}
        # Cookies do not know ports: two federations on one machine must not share one.
        cookie = f"fedmmf-{port}={self._view}; Path=/; HttpOnly; SameSite=Strict"
        return {"Set-Cookie": cookie}

    def _has_bearer(self, asked: Asked) -> bool:
        kind, _, token = asked.headers.get("Authorization", "").partition(" ")
        return kind.lower() == "bearer" and _same(token.strip(), self._token)

    def _has_query(self, asked: Asked) -> bool:
        tokens = asked.query.get("token", [])
        return len(tokens) == 1 and _same(tokens[0], self._token)

    def _may_look(self, asked: Asked) -> bool:
        pairs = (pair.partition("=") for pair in asked.headers.get("Cookie", "").split(";"))
        values = [value.strip() for name, _, value in pairs if name.strip().startswith("fedmmf-")]
        return self._has_query(asked) or any(_same(value, self._view.encode()) for value in values)


def _same(given: str, wanted: bytes) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted)


def _must_be_meant_for_this_machine(asked: Asked) -> None:
    """Refuse names that somebody else has pointed to this machine (DNS rebinding)."""
    hosts = asked.headers.get_all("Host", [])
    name = _without_port(hosts[0]) if len(hosts) == 1 else ""
    if not is_loopback(name):
        raise HttpRefusal(
            HTTPStatus.FORBIDDEN, "this page answers to localhost and 127.0.0.1, by no other name"
        )


def _must_not_come_from_elsewhere(asked: Asked) -> None:
    """Refuse what another site's page makes a browser ask; links to the page are welcome."""
    origin, mode = (asked.headers.get(f"Sec-Fetch-{what}", "") for what in ("Site", "Mode"))
    if origin in ("cross-site", "same-site") and mode != "navigate":
        raise HttpRefusal(HTTPStatus.FORBIDDEN, "this page does not answer to other pages")


def _without_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    return name if name and port.isdigit() and not host.endswith("]") else host
