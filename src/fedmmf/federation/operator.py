"""The operator's client of a running server: reads its status and sends it orders."""

import json
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request, build_opener

from pydantic import ValidationError

from fedmmf.errors import FedMMFError, SettingsError
from fedmmf.federation.folder import Folder, token_in
from fedmmf.federation.status import FederationStatus
from fedmmf.federation.store import RunStore
from fedmmf.web.addresses import is_loopback

PATIENCE = 10.0  # seconds to wait for a status
LARGEST_ANSWER = 16_000_000  # bytes


class ControlError(FedMMFError):
    """The server cannot be reached, is another program, or refuses an order."""


class Operator:
    """Client of a federation's server, for use on the server's machine.

    Args:
        folder: of the federation.
    """

    def __init__(self, folder: Folder) -> None:
        network = folder.charter().network
        self._state = folder.machine("server").state()
        self._url = f"http://{network.page_host}:{network.page_port}/"

    def status(self) -> FederationStatus:
        """Return the latest status, or the last saved one where no server runs."""
        try:
            return get_status(self._url, token_in(self._state))
        except ControlError:
            return self._last()

    def _last(self) -> FederationStatus:
        found = RunStore(self._state, {}).status()
        if found is None:
            raise ControlError(
                "no server runs, and none has run yet; start one with `fedmmf federation server`"
            )
        return found.but(state="stopped", detail=f"no server runs; it last said: {found.detail}")

    def order(self, action: str) -> dict[str, Any]:
        """Send an order to the server."""
        return post(self._url, token_in(self._state), action, {})


def get_status(url: str, token: str) -> FederationStatus:
    """Fetch the latest status of a federation.

    Args:
        url: of the status page; a token in it is not used.
        token: of the page; may be empty for a page on this machine.

    Raises:
        ControlError: nobody answers there, or not as a server of ours would.
        SettingsError: this is no web address.
    """
    text = _answer(_request(url, "status", token), PATIENCE)
    try:
        return FederationStatus.model_validate_json(text)
    except ValidationError:
        raise ControlError(_wrong_page(url)) from None


def post(
    url: str, token: str, action: str, body: Mapping[str, Any], *, timeout: float = 60.0
) -> dict[str, Any]:
    """Send an order to a server, and wait for its answer.

    Args:
        url: of the status page.
        token: of the page.
        action: the name of what is to be done.
        body: its arguments.
        timeout: seconds to wait.

    Raises:
        ControlError: the server says why not, or cannot be asked.
        SettingsError: this is no web address.
    """
    text = _answer(_request(url, action, token, json.dumps(body).encode()), timeout)
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ControlError(_wrong_page(url))
    return found


def _request(url: str, name: str, token: str, data: bytes | None = None) -> Request:
    parts = _parts(url)
    path = f"{parts.path.rstrip('/')}/{quote(name, safe='')}"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    headers |= {"Content-Type": "application/json"} if data is not None else {}
    target = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
    return Request(target, data, headers)  # noqa: S310 - the scheme was looked at


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname:
            return parts
    except ValueError:
        pass
    raise SettingsError(
        "this is no address of a status page; one looks like http://127.0.0.1:8080/"
    )


class _NoRedirect(HTTPRedirectHandler):
    """Follows no redirect, since the token is for one server."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _opener(host: str) -> OpenerDirector:
    """Requests to this machine do not leave it, whatever proxy is set."""
    direct = (ProxyHandler({}),) if is_loopback(host) else ()
    return build_opener(_NoRedirect, *direct)


def _answer(request: Request, timeout: float) -> bytes:
    url = request.full_url
    try:
        with _opener(urlsplit(url).hostname or "").open(request, timeout=timeout) as reply:
            text: bytes = reply.read(LARGEST_ANSWER + 1)
    except HTTPError as error:
        with error:
            raise ControlError(_refusal(error, url)) from None
    except TimeoutError:
        raise ControlError(_too_slow(url, timeout)) from None
    except (URLError, HTTPException, OSError) as error:
        raise ControlError(_unreachable(error, url, timeout)) from None
    if len(text) > LARGEST_ANSWER:
        raise ControlError(_wrong_page(url))
    return text


def _refusal(error: HTTPError, url: str) -> str:
    """Explain a server's refusal, and what to do about it."""
    said = _sentence(error)
    if error.code == 409 and said:
        return said
    if error.code == 401:
        return (
            f"the server at {_shown(url)} wants another token: use the one in server/state/token "
            "of its federation's folder"
        )
    if error.code == 503:
        return f"the server at {_shown(url)} is busy; try again in a moment"
    if said:
        return f"the server at {_shown(url)} answered {error.code}: {said}"
    return _wrong_page(url)


def _sentence(error: HTTPError) -> str:
    try:
        return str(json.loads(error.read(LARGEST_ANSWER))["error"])
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        return ""


def _unreachable(error: Exception, url: str, timeout: float) -> str:
    reason = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, TimeoutError):
        return _too_slow(url, timeout)
    if isinstance(error, HTTPException):
        return _wrong_page(url)
    why = getattr(reason, "strerror", None) or reason
    return (
        f"nobody answers at {_shown(url)} ({why}): start the federation's server, or check the "
        "address"
    )


def _too_slow(url: str, timeout: float) -> str:
    return (
        f"{_shown(url)} did not answer in {timeout:g} s: what was asked for may still be done; "
        "look at the status, and try again"
    )


def _wrong_page(url: str) -> str:
    return (
        f"what answers at {_shown(url)} is no status page of this version of fedmmf; check the "
        "address"
    )


def _shown(url: str) -> str:
    """An address without what may be secret in it."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))
