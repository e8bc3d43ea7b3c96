"""Status updates of a board as server-sent events."""

import select
import socket
import time
from collections.abc import Callable, Iterator

from fedmmf.federation.status import Board

MAX_LISTENERS = 32
HEARTBEAT = 15.0  # seconds; programs between server and browser cut silent lines, often after 30
LOOK = 1.0  # seconds after which it is seen that a listener has gone or the page has stopped
PAUSE = 0.25  # seconds between two statuses: nobody reads faster
RETRY = b"retry: 3000\n\n"


def events(board: Board, is_over: Callable[[], bool]) -> Iterator[bytes]:
    """Yield the status now, then every newer one; a heartbeat where there is none for long."""
    yield RETRY
    number, last = -1, time.monotonic()
    while not is_over():
        newest, status = board.newer(number, LOOK)
        if newest > number:
            yield f"event: status\ndata: {status.model_dump_json()}\n\n".encode()
            number, last = newest, time.monotonic()
            time.sleep(PAUSE)
        elif time.monotonic() - last >= HEARTBEAT:
            # The comment is for lines in between, the event for the script, which sees no comments.
            yield b": still here\nevent: beat\ndata: .\n\n"
            last = time.monotonic()


def has_gone(connection: socket.socket) -> bool:
    """Whether the other end has closed; without it a place stays taken until the next beat."""
    try:
        readable, _, _ = select.select([connection], [], [], 0)
        return bool(readable) and connection.recv(1, socket.MSG_PEEK) == b""
    except (OSError, ValueError):
        return True
