"""Commands ask a running server; what goes wrong is said with what to do."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from pictures import STATUS, TOKEN

from fedmmf.errors import DataError, FedMMFError, SettingsError
from fedmmf.federation import operator
from fedmmf.federation.operator import ControlError, get_status, post


@contextmanager
def stranger(code=200, body=b"hello", headers=None):
    """A web server that is none of ours; it notes what it is asked."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.headers)
            self.send_response(code)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            self.do_GET()

        def log_message(self, *args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/", seen
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])  # noqa: S104 - reachable in a test
def test_the_status_is_the_picture(serve, host):
    page, board = serve(host=host)
    assert get_status(page.url, TOKEN) == STATUS  # the address as it is printed, token and all
    board.show(round=30)
    assert get_status(page.url.partition("?")[0].rstrip("/"), TOKEN).round == 30


def test_on_this_machine_nobody_needs_a_token_to_look(serve):
    assert get_status(serve()[0].url, "") == STATUS


def test_orders_are_answered(serve):
    page, _ = serve(actions={"run": lambda body: {"rounds": body["rounds"] + 1}})
    assert post(page.url, TOKEN, "run", {"rounds": 2}) == {"rounds": 3}


def test_what_the_server_says_is_the_error(serve):
    def refuse(body):
        raise DataError("a run is on its way; wait for it")

    page, _ = serve(actions={"run": refuse, "break": lambda body: 1 / 0})
    with pytest.raises(ControlError, match=r"^a run is on its way; wait for it$"):
        post(page.url, TOKEN, "run", {})
    with pytest.raises(ControlError, match="404: no such action; this server knows: break, run"):
        post(page.url, TOKEN, "walk/../run", {})
    with pytest.raises(ControlError, match="413: a body may have"):
        post(page.url, TOKEN, "run", {"a": "b" * 100_000})
    with pytest.raises(ControlError, match="500: the server failed"):
        post(page.url, TOKEN, "break", {})


def test_a_wrong_token_is_said_so_and_not_repeated(serve):
    page, _ = serve(host="0.0.0.0", actions={"run": lambda body: {}})  # noqa: S104
    for call in (lambda: get_status(page.url, "wrong"), lambda: post(page.url, "wrong", "run", {})):
        with pytest.raises(ControlError, match="another token") as caught:
            call()
        assert "wrong" not in str(caught.value)
        assert TOKEN not in str(caught.value)


def test_nobody_there_is_said_so(serve):
    page, _ = serve()
    url = page.url
    page.stop()
    with pytest.raises(ControlError, match=r"nobody answers at .*refused.*start the federation"):
        get_status(url, TOKEN)


def test_waiting_has_an_end(serve, monkeypatch):
    enough = threading.Event()
    page, _ = serve(actions={"run": lambda body: {"waited": enough.wait(20)}})
    with pytest.raises(ControlError, match=r"did not answer in 0.2 s: .* may still be done"):
        post(page.url, TOKEN, "run", {}, timeout=0.2)
    enough.set()


@pytest.mark.parametrize("body", [b"hello", b"[]", b'{"a": 1}', b"\xff"])
def test_strangers_are_not_believed(body):
    with stranger(body=body) as (url, _):
        with pytest.raises(ControlError, match="no status page"):
            get_status(url, TOKEN)
        if body != b'{"a": 1}':
            with pytest.raises(ControlError, match="no status page"):
                post(url, TOKEN, "run", {})


def test_answers_without_end_are_cut_off(monkeypatch):
    monkeypatch.setattr(operator, "LARGEST_ANSWER", 1000)
    with (
        stranger(body=b" " * 2000 + b"{}") as (url, _),
        pytest.raises(ControlError, match="no status page"),
    ):
        post(url, TOKEN, "run", {})


def test_the_token_goes_to_one_server_alone(monkeypatch):
    with stranger() as (other, seen), stranger(302, headers={"Location": other}) as (url, _):
        with pytest.raises(ControlError, match="no status page"):
            get_status(url, TOKEN)
        assert not seen
    with stranger() as (proxy, seen):
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        with pytest.raises(ControlError):
            get_status("http://127.0.0.1:9/", TOKEN)
        assert not seen


def test_a_busy_server_is_tried_again(serve):
    with stranger(503, b"") as (url, _), pytest.raises(ControlError, match="busy; try again"):
        get_status(url, TOKEN)


@pytest.mark.parametrize(
    "url", ["", "file:///etc/passwd", "127.0.0.1:80", "http://", "http://[::1"]
)
def test_what_is_no_address_is_said_so(url):
    with pytest.raises(SettingsError, match=r"looks like http://127.0.0.1:8080/"):
        get_status(url, TOKEN)


def test_an_address_with_a_strange_port_is_an_error_of_ours():
    for url in ("http://127.0.0.1:abc/", "http://127.0.0.1:99999/"):
        with pytest.raises(FedMMFError):
            get_status(url, TOKEN)
