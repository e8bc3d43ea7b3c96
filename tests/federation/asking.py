"""Requests byte for byte, so that nothing is sent or read that a test does not know of."""

import http.client
import socket
import time
from urllib.parse import urlsplit

from pictures import TOKEN

BEARER = {"Authorization": f"Bearer {TOKEN}"}


def port_of(page):
    return urlsplit(page.url).port


def ask(page, path="/", method="GET", headers=None, body=None):
    """Status, headers and body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port_of(page), timeout=60)
    try:
        connection.request(method, path, body, headers or {})
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read().decode()
    finally:
        connection.close()


def send(page, data, until=b"\r\n\r\n"):
    """What comes back for some bytes, at least up to `until` or the end."""
    with socket.create_connection(("127.0.0.1", port_of(page)), timeout=60) as line:
        line.sendall(data)
        found = b""
        while until not in found and (more := line.recv(65536)):
            found += more
        return found


def listen(page, path="/events"):
    """A line on which events come; of version 1.0, so that they are not in chunks."""
    line = socket.create_connection(("127.0.0.1", port_of(page)), timeout=60)
    line.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
    return line


def events_of(line):
    """Fields of each event as it comes; comments have no name."""
    text = line.makefile("r", encoding="utf-8", newline="\n")
    while text.readline().strip():
        pass  # headers
    fields = {}
    for read in text:
        if read == "\n":
            yield fields
            fields = {}
        else:
            name, _, value = read.rstrip("\n").partition(": ")
            fields[name] = value


def eventually(is_so, seconds=120):
    """Wait for something that happens in another thread; machines that run tests are slow."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
