import sys
from pathlib import Path

import pytest

from fedmmf.federation.page import StatusPage

sys.path.insert(0, str(Path(__file__).parent))  # for pictures and asking

import pictures


@pytest.fixture
def serve():
    """Starts pages, and stops them afterwards."""
    pages = []

    def serve(status=pictures.STATUS, *, actions=None, **settings):
        board = pictures.board(status)
        page = StatusPage(board, token=pictures.TOKEN, actions=actions or {}, **settings)
        page.start()
        pages.append(page)
        return page, board

    yield serve
    for page in pages:
        page.stop()
