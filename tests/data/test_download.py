import hashlib
import http.server
import threading

import pytest

from fedmmf.data import sources as download
from fedmmf.errors import DownloadError

CONTENT = bytes(range(256)) * 2000  # 512,000 bytes, several chunks
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT; the path says how well: /good /deaf (no Range) /wrong /break /flaky."""

    def do_GET(self):
        self.server.requests.append(self.headers.get("Range"))
        body = b"x" * len(CONTENT) if self.path == "/wrong" else CONTENT
        if self.path == "/missing":
            self.send_error(404)
            return
        start = self.start()
        if start >= len(body):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self.wfile.write(body[start : self.stop(start)])

    def start(self):
        asked = self.headers.get("Range")
        return int(asked[6:-1]) if asked and self.path != "/deaf" else 0

    def stop(self, start):
        breaks = self.path == "/break" or (self.path == "/flaky" and len(self.server.requests) < 2)
        return start + 100_000 if breaks else None

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.requests = []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(download, "_PAUSE_S", 0.0)


@pytest.fixture
def target(tmp_path):
    return tmp_path / "deep" / "file.zip"


@pytest.fixture
def part(target):
    target.parent.mkdir()
    return target.with_name("file.zip.part")


def url(server, path):
    return f"http://127.0.0.1:{server.server_port}{path}"


def test_plain_download_reports_progress(server, target):
    seen = []
    path = download.fetch(url(server, "/good"), SHA256, target, lambda *now: seen.append(now))
    assert path == target
    assert target.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [now for now, _ in seen] == sorted({now for now, _ in seen})
    assert [entry.name for entry in target.parent.iterdir()] == ["file.zip"]


def test_resumes_a_part(server, target, part):
    part.write_bytes(CONTENT[:300_000])
    seen = []
    download.fetch(url(server, "/good"), SHA256, target, lambda *now: seen.append(now))
    assert target.read_bytes() == CONTENT
    assert server.requests == ["bytes=300000-"]
    assert seen[0][0] > 300_000
    assert seen[-1] == (len(CONTENT), len(CONTENT))


def test_starts_over_where_the_server_ignores_range(server, target, part):
    part.write_bytes(b"?" * 300_000)
    download.fetch(url(server, "/deaf"), SHA256, target)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("surplus", [0, 10])
def test_starts_over_where_the_part_is_too_long(server, target, part, surplus):
    part.write_bytes(b"?" * (len(CONTENT) + surplus))
    download.fetch(url(server, "/good"), SHA256, target)
    assert target.read_bytes() == CONTENT
    assert server.requests[-1] is None


def test_one_broken_connection_is_resumed_at_once(server, target):
    download.fetch(url(server, "/flaky"), SHA256, target)
    assert target.read_bytes() == CONTENT
    assert server.requests == [None, "bytes=100000-"]


def test_a_connection_that_keeps_breaking_leaves_a_part(server, target):
    with pytest.raises(DownloadError, match=r"300,000 bytes.*the same command resumes"):
        download.fetch(url(server, "/break"), SHA256, target)
    part = target.with_name("file.zip.part")
    assert part.read_bytes() == CONTENT[:300_000]
    assert not target.exists()
    download.fetch(url(server, "/good"), SHA256, target)
    assert target.read_bytes() == CONTENT
    assert server.requests[-1] == "bytes=300000-"


def test_wrong_content_is_removed(server, target):
    with pytest.raises(DownloadError, match=f"must have the SHA-256 {SHA256}"):
        download.fetch(url(server, "/wrong"), SHA256, target)
    assert list(target.parent.iterdir()) == []


def test_a_refusal_is_not_retried(server, target):
    with pytest.raises(DownloadError, match="answered 404"):
        download.fetch(url(server, "/missing"), SHA256, target)
    assert len(server.requests) == 1


def test_nobody_listens(server, target):
    address = url(server, "/good")
    server.socket.close()
    with pytest.raises(DownloadError, match="broke off after 0 bytes"):
        download.fetch(address, SHA256, target)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DownloadError, match="cannot be made"):
        download.fetch("http://127.0.0.1:1/x", SHA256, tmp_path / "file" / "x.zip")
