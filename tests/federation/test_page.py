"""The page over the wire: what each address answers, to whom, and what it never says."""

import json
import socket
import time
from html.parser import HTMLParser

import pytest
from asking import BEARER, ask, events_of, eventually, listen, port_of, send
from pictures import EMPTY, HOSTILE, HOSTILE_STATUS, STATUS, TOKEN, WAITING, board

from fedmmf.errors import DataError, SettingsError
from fedmmf.federation.page import StatusPage, app
from fedmmf.federation.status import FederationStatus
from fedmmf.web import access, serving

VIEWS = ("/", "/status", "/metrics", "/health", "/page.css", "/page.js", "/icon.svg")
EVERYWHERE = "0.0.0.0"  # noqa: S104 - not a loopback address, and reachable in a test


class Tags(HTMLParser):
    """Tags with their attributes, and all text."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(source)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data


# What it shows


def test_the_page_says_everything_without_a_script(serve):
    page, _ = serve()
    status, headers, body = ask(page)
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    text = Tags(body).text
    for words in (
        STATUS.federation, "Training", STATUS.detail, "24 of 60", "25 begun", "about 10", "2 of 5",
        "clinic-north", "never seen", "48.2", "no answer in 30 s", "masked sums", "6 earlier",
        "0.9422", "19,812", "fewer than 50 test ratings", "mask.kind", "1e-06",
        *STATUS.protection,
    ):  # fmt: skip
        assert words in text, words
    assert body.index(STATUS.detail) < body.index("<nav") < body.index("clinic-north")


def test_the_page_does_not_say_that_all_is_well_while_a_site_is_silent(serve):
    page, board = serve(WAITING)
    text = Tags(ask(page)[2]).text
    for words in (
        f"{STATUS.detail.rstrip('.')}; waiting for clinic-south since 03:04:05 UTC",
        "Nothing has gone wrong so far, but the server is waiting for clinic-south",
        "no answer yet; it was asked at 03:04:05 UTC",
    ):
        assert words in text, words
    board.show(sites=STATUS.sites)
    assert "Nothing has gone wrong." in Tags(ask(page)[2]).text


def test_a_gap_is_not_drawn_over(serve):
    page, _ = serve(STATUS.but(held_out=(1.0, 0.9, None, 0.8, 0.7)))
    body = ask(page)[2]
    (path,) = [tag["d"] for name, tag in Tags(body).tags if "curve" in tag.get("class", "")]
    assert [path.count(step) for step in "ML"] == [2, 2]
    assert "RMSE: from 1.0000 at 1 to 0.7000 at 5" in body


def test_a_federation_that_has_just_begun_has_a_page(serve):
    page, board = serve(EMPTY)
    text = Tags(ask(page)[2]).text
    assert "The server waits for its sites." in text
    assert "No round is finished yet." in text
    assert "Nothing has gone wrong." in text
    board.show(held_out=(None, None), attempts=2)
    assert "hold out no ratings" in Tags(ask(page)[2]).text
    for state in ("surveying", "training", "finished", "failed", "stopped"):
        board.show(state=state)
        assert state.capitalize() in Tags(ask(page)[2]).text


@pytest.mark.parametrize(
    "errors",
    [
        (0.9,), (1.0, None, float("nan"), 0.8), (0.0, 0.0),
        (0.9, 0.9000000000000001), (1e-300,), (1e308,), (1e16, 1e16 + 2),
    ],
)  # fmt: skip
def test_errors_of_all_kinds_are_drawn(serve, errors):
    page, _ = serve(STATUS.but(held_out=errors))
    body = ask(page)[2]
    assert 'class="mark curve"' in body
    assert "NaN" not in body


def test_what_strangers_say_is_text_and_nothing_else(serve):
    page, _ = serve(HOSTILE_STATUS)
    body = ask(page)[2]
    found, plain = Tags(body), Tags(ask(serve()[0])[2])
    assert HOSTILE.strip() in found.text
    assert {tag for tag, _ in found.tags} <= {tag for tag, _ in plain.tags}
    assert not [tag for tag in found.tags if tag[0] == "img"]
    assert not [name for _, attributes in found.tags for name in attributes if name[:2] == "on"]
    assert [tag for tag, _ in found.tags].count("script") == 1
    assert "style=" not in body  # the policy would refuse it


def test_status_is_the_picture(serve):
    page, board = serve()
    status, headers, body = ask(page, "/status")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert FederationStatus.model_validate_json(body) == STATUS
    board.show(round=25, seconds_left=float("inf"))
    assert json.loads(ask(page, "/status")[2])["round"] == 25  # JSON knows no infinity


def test_programs_can_ask_whether_the_server_is_there(serve):
    page, _ = serve()
    assert json.loads(ask(page, "/health")[2]) == {"state": "training"}


def test_a_head_is_a_get_without_its_body(serve):
    page, _ = serve()
    for path in VIEWS:
        status, headers, body = ask(page, path, "HEAD")
        assert (status, body) == (200, "")
        assert int(headers["Content-Length"]) > 0
    assert ask(page, "/events", "HEAD")[0] == 200


# Events


def test_a_change_is_pushed(serve):
    page, board = serve()
    with listen(page) as line:
        stream = events_of(line)
        assert next(stream) == {"retry": "3000"}
        first = next(stream)
        assert first["event"] == "status"
        assert FederationStatus.model_validate_json(first["data"]) == STATUS
        board.show(detail="news\nin two lines")
        assert json.loads(next(stream)["data"])["detail"] == "news\nin two lines"


def test_silence_is_broken_by_beats(serve, monkeypatch):
    monkeypatch.setattr(app, "HEARTBEAT", 0.1)
    page, _ = serve()
    with listen(page) as line:
        stream = events_of(line)
        names = [next(stream).get("event") for _ in range(4)]
        assert names == [None, "status", "beat", "beat"]


def test_many_changes_are_one_event(serve):
    page, board = serve()
    with listen(page) as line:
        stream = events_of(line)
        next(stream), next(stream)
        for number in range(200):
            board.show(round=number)
        rounds = []
        while 199 not in rounds:
            rounds.append(json.loads(next(stream)["data"])["round"])
        assert len(rounds) < 50


def test_listeners_are_limited_and_places_come_back(serve, monkeypatch):
    """A place comes back at once, not with the next beat."""
    monkeypatch.setattr(app, "MAX_LISTENERS", 2)
    monkeypatch.setattr(app, "HEARTBEAT", 1000.0)
    page, _ = serve()
    lines = [listen(page) for _ in range(2)]
    for line in lines:
        next(events_of(line))
    status, headers, body = ask(page, "/events")
    assert (status, headers["Retry-After"]) == (503, "10")
    assert "too many" in json.loads(body)["error"]
    assert ask(page)[0] == 200  # others are not kept waiting
    for line in lines:
        line.shutdown(socket.SHUT_RDWR)
        line.close()
    request = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    eventually(lambda: b" 200 " in send(page, request))


def test_listeners_are_let_go_when_the_page_stops(serve):
    page, _ = serve()
    with listen(page) as line:
        stream = events_of(line)
        next(stream)
        page.stop()
        assert list(stream)[1:] == []  # it ends


# Orders


def test_orders_are_carried_out(serve):
    asked = []
    page, _ = serve(actions={"run": lambda body: asked.append(body) or {"ok": body.get("rounds")}})
    status, headers, body = ask(page, "/run", "POST", BEARER, '{"rounds": 3}')
    assert (status, headers["Content-Type"], json.loads(body)) == (
        200, "application/json", {"ok": 3},
    )  # fmt: skip
    assert json.loads(ask(page, "/run", "POST", BEARER)[2]) == {"ok": None}
    assert asked == [{"rounds": 3}, {}]


def test_an_error_of_ours_is_an_answer(serve):
    def refuse(body):
        raise DataError("a run is on its way; wait for it")

    page, _ = serve(actions={"run": refuse})
    status, _, body = ask(page, "/run", "POST", BEARER, "{}")
    assert (status, json.loads(body)) == (409, {"error": "a run is on its way; wait for it"})


def test_a_mistake_of_ours_is_logged_and_not_told(serve, caplog):
    page, _ = serve(actions={"run": lambda body: 1 / 0})
    status, _, body = ask(page, "/run", "POST", BEARER, "{}")
    assert status == 500
    assert "Zero" not in body
    assert "ZeroDivisionError" in caplog.text
    assert TOKEN not in caplog.text


@pytest.mark.parametrize("body", ["[]", "nonsense", '"a"', "[" * 5000, "\x80"])
def test_a_body_that_is_no_object_is_refused(serve, body):
    page, _ = serve(actions={"run": lambda body: body})
    assert ask(page, "/run", "POST", BEARER, body.encode("latin-1"))[0] == 400


def test_large_bodies_are_refused_and_their_sender_reads_why(serve):
    page, _ = serve(actions={"run": lambda body: {}})
    fits = b'{"a": "' + b"b" * (access.MAX_BODY - 9) + b'"}'
    assert len(fits) == access.MAX_BODY
    assert ask(page, "/run", "POST", BEARER, fits)[0] == 200
    status, _, body = ask(page, "/run", "POST", BEARER, fits + b" ")
    assert status == 413
    assert "64,000" in json.loads(body)["error"]
    assert ask(page, "/run", "POST", BEARER, b" " * 900_000)[0] == 413


def test_bodies_of_unknown_length_are_refused(serve):
    page, _ = serve(actions={"run": lambda body: {}})
    begin = f"POST /run HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    for header, code in (
        ("Transfer-Encoding: chunked", 411),
        ("Content-Length: -1", 400),
        ("Content-Length: 1e3", 400),
        ("Content-Length: " + "9" * 5000, 400),
    ):
        assert f" {code} ".encode() in send(page, f"{begin}{header}\r\n\r\n".encode())


# Who may


@pytest.mark.parametrize("given", [{}, {"Authorization": "Bearer x"}, {"Authorization": TOKEN},
                                   {"Authorization": f"Basic {TOKEN}"},
                                   {"Authorization": f"Bearer {TOKEN}x"},
                                   {"Authorization": "Bearer \xe9"}])  # fmt: skip
@pytest.mark.parametrize("host", ["127.0.0.1", EVERYWHERE])
def test_orders_need_the_token_as_a_header(serve, host, given):
    asked = []
    page, _ = serve(actions={"run": lambda body: asked.append(body) or {}}, host=host)
    assert ask(page, "/run", "POST", given, "{}")[0] == 401
    assert ask(page, f"/run?token={TOKEN}", "POST", given, "{}")[0] == 401
    assert not asked
    assert ask(page, "/run", "POST", BEARER, "{}")[0] == 200


def test_a_page_on_this_machine_is_open(serve):
    page, _ = serve()
    assert page.url == f"http://127.0.0.1:{port_of(page)}/"
    for path in VIEWS:
        assert ask(page, path)[0] == 200
    assert "Set-Cookie" not in ask(page, f"/?token={TOKEN}")[1]


@pytest.mark.parametrize("path", [*VIEWS, "/events", "/nothing"])
def test_a_page_for_others_needs_the_token(serve, path):
    page, _ = serve(host=EVERYWHERE)
    assert page.url == f"http://127.0.0.1:{port_of(page)}/?token={TOKEN}"
    for wrong in ({}, {"Cookie": f"fedmmf-{port_of(page)}={TOKEN}"}, {"Cookie": "fedmmf-1="}):
        status, headers, body = ask(page, path, headers=wrong)
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
        assert "token" in body
        assert "Set-Cookie" not in headers
    assert ask(page, path + "?token=wrong")[0] == 401
    assert ask(page, path + f"?token=wrong&token={TOKEN}")[0] == 401
    if path in VIEWS:
        assert ask(page, path, headers=BEARER)[0] == 200
        assert ask(page, f"{path}?token={TOKEN}")[0] == 200


def test_a_browser_gets_a_cookie_that_looks_and_does_nothing_else(serve):
    page, _ = serve(host=EVERYWHERE, actions={"run": lambda body: {}})
    cookie = ask(page, f"/?token={TOKEN}")[1]["Set-Cookie"]
    pair, *rules = cookie.split("; ")
    assert {rule.lower() for rule in rules} == {"path=/", "httponly", "samesite=strict"}
    assert TOKEN not in cookie
    kept = {"Cookie": f"other=1; {pair}"}
    for path in VIEWS:
        assert ask(page, path, headers=kept)[0] == 200
    assert ask(page, "/run", "POST", kept, "{}")[0] == 401
    value = pair.partition("=")[2]
    assert ask(page, "/run", "POST", {"Authorization": f"Bearer {value}"}, "{}")[0] == 401


@pytest.mark.parametrize(
    ("host", "code"),
    [("localhost", 200), ("LOCALHOST:9", 200), ("127.0.0.1", 200), ("127.9.9.9:80", 200),
     ("[::1]:80", 200), ("[::1]", 200), ("evil.example", 403), ("localhost.evil.example", 403),
     ("127.0.0.1.evil.example", 403), (EVERYWHERE, 403), ("", 403), ("10.0.0.1", 403)],
)  # fmt: skip
def test_other_names_of_this_machine_are_refused(serve, host, code):
    page, _ = serve(actions={"run": lambda body: {}})
    assert ask(page, headers={"Host": host})[0] == code
    assert ask(page, "/run", "POST", {"Host": host, **BEARER}, "{}")[0] == code


def test_a_request_has_one_host(serve):
    page, _ = serve()
    assert b" 400 " in send(page, b"GET / HTTP/1.1\r\n\r\n")
    assert b" 403 " in send(page, b"GET / HTTP/1.0\r\n\r\n")
    two = b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n"
    assert b" 400 " in send(page, two)
    assert b" 404 " in send(page, b"GET http://evil/ HTTP/1.1\r\nHost: localhost\r\n\r\n")


def test_other_pages_may_link_here_and_not_ask(serve):
    page, _ = serve()
    foreign = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert ask(page, "/status", headers=foreign)[0] == 403
    assert ask(page, headers=foreign | {"Sec-Fetch-Mode": "navigate"})[0] == 200


@pytest.mark.parametrize("token", ["", "two words", "gr\xfcn", "line\nbreak"])
def test_a_token_must_fit_into_a_header(token):
    with pytest.raises(SettingsError, match="token_urlsafe"):
        StatusPage(board(), token=token, actions={})


# Everything else


def test_what_is_not_there_is_refused(serve):
    page, _ = serve(actions={"run": lambda body: {}})
    assert ask(page, "/nothing")[0] == ask(page, "/../page.py")[0] == 404
    assert ask(page, "/page.py")[0] == ask(page, "/page.html")[0] == 404
    status, _, body = ask(page, "/walk", "POST", BEARER, "{}")
    assert (status, json.loads(body)["error"]) == (404, "no such action; this server knows: run")
    for path, method, allowed in (
        ("/run", "GET", {"POST"}), ("/status", "POST", {"GET", "HEAD"}),
        ("/events", "POST", {"GET", "HEAD"}), ("/", "PUT", {"GET", "HEAD"}),
        ("/run", "OPTIONS", {"POST"}), ("/page.css", "DELETE", {"GET", "HEAD"}),
    ):  # fmt: skip
        status, headers, _ = ask(page, path, method, BEARER)
        assert (status, set(headers["Allow"].split(", "))) == (405, allowed), (path, method)


def test_every_answer_is_careful(serve):
    page, _ = serve(HOSTILE_STATUS, actions={"run": lambda body: {}})
    answers = [ask(page, path)[1] for path in (*VIEWS, "/nothing")]
    answers += [ask(page, "/run", "POST", BEARER, "{}")[1], ask(page, "/", "PUT")[1]]
    for headers in answers:
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        assert "connect-src 'self'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"
        assert headers["Server"] == "fedmmf"


def test_the_page_asks_nobody_else(serve):
    page, _ = serve()
    body = ask(page)[2]
    addresses = [
        value
        for _, attributes in Tags(body).tags
        for name, value in attributes.items()
        if name in ("href", "src", "action")
    ]
    assert addresses
    assert not [address for address in addresses if ":" in address or address.startswith("//")]


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET\r\n\r\n", b"G" * 70_000 + b"\r\n\r\n",
             b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n"],
)  # fmt: skip
def test_nonsense_gets_a_refusal_that_repeats_nothing(serve, data):
    page, _ = serve()
    with socket.create_connection(("127.0.0.1", port_of(page)), timeout=60) as line:
        line.sendall(data)
        try:
            answer = line.recv(65536)
        except ConnectionResetError:
            answer = b""
    assert answer == b"" or answer[:10] in (b"HTTP/1.1 4", b"HTTP/1.1 5")
    assert b"Python" not in answer
    assert b"GGG" not in answer
    assert ask(page)[0] == 200


def trickle(page):
    with socket.create_connection(("127.0.0.1", port_of(page)), timeout=60) as line:
        for _ in range(3000):
            line.sendall(b"G")
            time.sleep(0.1)


def test_slow_clients_are_not_waited_for(serve, monkeypatch):
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 2.0)
    monkeypatch.setattr(access, "BODY_SECONDS", 0.4)
    page, _ = serve(actions={"run": lambda body: {}})
    with pytest.raises(OSError, match=r"reset|Broken pipe"):
        trickle(page)  # which would take minutes
    late = f"POST /run HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    assert b" 408 " in send(page, f"{late}Content-Length: 9\r\n\r\n{{".encode())


def test_connections_are_limited_and_places_come_back(serve, monkeypatch):
    monkeypatch.setattr(serving, "MAX_CONNECTIONS", 2)
    page, _ = serve()
    lines = [socket.create_connection(("127.0.0.1", port_of(page))) for _ in range(2)]
    try:
        eventually(lambda: ask(page)[0] == 503)
    finally:
        for line in lines:
            line.close()
    eventually(lambda: ask(page)[0] == 200)


def test_requests_leave_no_trace_and_no_token(serve, capfd, caplog):
    page, _ = serve(actions={"run": lambda body: {}})
    for path in (*VIEWS, "/nothing", f"/?token={TOKEN}"):
        ask(page, path)
    ask(page, "/run", "POST", BEARER, "{}")
    send(page, f"NONSENSE {TOKEN}\r\n\r\n".encode())
    with listen(page) as line:
        next(events_of(line))
    page.stop()
    assert capfd.readouterr() == ("", "")
    assert caplog.text == ""


# Where it listens


def test_a_port_in_use_is_said_so(serve):
    page, _ = serve()
    port = port_of(page)
    second = StatusPage(board(), port=port, token=TOKEN, actions={})
    with pytest.raises(SettingsError, match=f"port {port} of 127.0.0.1 is in use.* another port"):
        second.start()
    second.stop()  # nothing to stop
    page.stop()
    second.start()
    assert ask(second)[0] == 200
    second.stop()


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_an_address_of_another_machine_is_said_so(host):
    page = StatusPage(board(), host=host, token=TOKEN, actions={})
    with pytest.raises(SettingsError, match=f"cannot listen at {host}"):
        page.start()


@pytest.mark.parametrize("host", ["a\0b", "\xe9" * 80, "\ud800"])
def test_a_host_that_is_no_name_is_said_so(host):
    page = StatusPage(board(), host=host, token=TOKEN, actions={})
    with pytest.raises(SettingsError, match="cannot listen at ") as refused:
        page.start()
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_has_sixteen_bits(port):
    with pytest.raises(SettingsError, match=f"not {port}"):
        StatusPage(board(), port=port, token=TOKEN, actions={})


def test_a_page_starts_and_stops_as_often_as_one_likes(serve):
    page, _ = serve()
    page.start()  # it is running already
    port = port_of(page)
    assert ask(page)[0] == 200
    page.stop()
    page.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    page.start()
    assert ask(page)[0] == 200


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:80/"), ("localhost", "http://localhost:80/"),
     ("::1", "http://[::1]:80/"), ("::", f"http://[::1]:80/?token={TOKEN}"),
     ("192.0.2.1", f"http://192.0.2.1:80/?token={TOKEN}")],
)  # fmt: skip
def test_the_address_has_the_token_where_it_is_needed(host, url):
    assert StatusPage(board(), host=host, port=80, token=TOKEN, actions={}).url == url


def test_a_page_may_live_at_an_address_of_version_six(serve):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no addresses of version 6")
    page, _ = serve(host="::1")
    with socket.create_connection(("::1", port_of(page)), timeout=60) as line:
        line.sendall(f"GET / HTTP/1.1\r\nHost: [::1]:{port_of(page)}\r\n\r\n".encode())
        assert b" 200 " in line.recv(1000)
