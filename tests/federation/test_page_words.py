"""Figures, times and states as people read them."""

import pytest
from pictures import STATUS, WAITING

from fedmmf.federation.page import words
from fedmmf.federation.status import SiteStatus, who_is_here
from fedmmf.web.addresses import is_loopback


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [(0, "0 kB"), (7, "0.1 kB"), (812, "0.8 kB"), (99_400, "99.4 kB"), (99_960, "100 kB"),
     (999_400, "999 kB"), (999_600, "1 MB"), (48_220_311, "48.2 MB"), (2_500_000_000, "2.5 GB")],
)  # fmt: skip
def test_sizes(n_bytes, text):
    assert words.size(n_bytes).replace("\N{NO-BREAK SPACE}", " ") == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (1.26, "1.3 s"), (9.99, "10 s"), (89, "89 s"), (100, "2 min"),
     (5000, "83 min"), (7200, "2 h"), (9000, "2 h 30 min"), (200_000, "2 d 7 h")],
)  # fmt: skip
def test_durations(seconds, text):
    assert words.duration(seconds).replace("\N{NO-BREAK SPACE}", " ") == text


def test_moments_have_a_date_where_it_is_another_day():
    assert words.moment("2026-01-02T03:04:05+00:00", "2026-01-02T23:00:00") == "03:04:05"
    assert words.moment("2026-01-02T03:04:05+05:00", "2026-01-02") == "2026-01-01 22:04"
    assert words.moment("yesterday", "2026-01-02") == "yesterday"


def test_settings_are_flat_and_in_words():
    nested = {"a": {"b": True, "c": {"d": None}}, "e": [1, 2.5], "f": {}, "g": 1e-6}
    assert dict(words.flat(nested)) == {
        "a.b": "yes", "a.c.d": "none", "e": "1, 2.5", "f": "none", "g": "1e-06",
    }  # fmt: skip


def test_time_left_ends_with_the_run():
    assert words.time_left(STATUS).startswith("about 10")
    assert words.time_left(STATUS.but(seconds_left=None)) == "not known"
    assert words.time_left(STATUS.but(state="failed")) == "none"


def test_what_is_waited_for_is_said_once_and_everywhere():
    words = "waiting for clinic-south since 03:04:05 UTC"
    assert STATUS.sentence == STATUS.detail
    assert WAITING.sentence == f"{STATUS.detail.rstrip('.')}; {words}"
    assert WAITING.but(detail="").sentence == f"Rounds are being made; {words}"
    assert WAITING.sites[1].trouble == "no answer yet; it was asked at 03:04:05 UTC"
    assert WAITING.sites[0].trouble == STATUS.sites[0].reason
    for state in ("finished", "failed", "stopped"):
        assert WAITING.but(state=state).waiting == ""


@pytest.mark.parametrize(
    ("here", "words"),
    [(0, "no site is here"), (1, "1 of 3 sites are here"), (3, "all 3 sites are here")],
)
def test_who_is_here_in_words(here, words):
    sites = [SiteStatus(name="a", state="here")] * here + [SiteStatus(name="b")] * (3 - here)
    assert who_is_here(sites) == words


@pytest.mark.parametrize(
    ("host", "is_so"),
    [("localhost", True), ("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("[::1]", True),
     ("10.0.0.1", False), ("::", False), ("", False), ("example.com", False), ("127.1", False)],
)  # fmt: skip
def test_loopback(host, is_so):
    assert is_loopback(host) == is_so
