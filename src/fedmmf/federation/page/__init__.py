"""The web page of a federation's server: what an operator sees, and what programs ask for.

It knows the board alone; whatever is not on it cannot be shown.
"""

from collections.abc import Mapping
from urllib.parse import quote

from fedmmf.federation.page.app import HEADERS, Action, page_app
from fedmmf.federation.status import Board
from fedmmf.web.access import Guard
from fedmmf.web.serving import WebServer

__all__ = ["StatusPage"]
_WHERE = "in the file server/state/token of the federation's folder on the server's machine"


class StatusPage(WebServer):
    """Shows a board to an operator, and takes orders from whoever has the token.

    Args:
        board: with the latest status.
        host: where to listen. On any address but a loopback one everybody needs the token.
        port: 0 for any that is free.
        token: that lets somebody give orders; keep it secret.
        actions: by name, what a POST does; they are called in threads of their own, maybe two
            at a time. A FedMMFError becomes an answer.

    Raises:
        SettingsError: the token cannot be sent in a header, or the port is none.
    """

    def __init__(
        self,
        board: Board,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str,
        actions: Mapping[str, Action],
    ) -> None:
        guard = Guard(token, host, _WHERE)
        super().__init__(page_app(board, actions, guard), host=host, port=port, headers=HEADERS)
        self._query = "" if guard.is_open else f"?token={quote(token, safe='')}"

    @property
    def url(self) -> str:
        """Where a browser on this machine finds the page, with the token where one is needed."""
        return super().url + self._query
