"""The operator's client: where the server's page is, and its last known status."""

from typing import Any

from fedmmf.federation.control import ControlError, get_status, post
from fedmmf.federation.folder import Folder
from fedmmf.federation.server import token_in
from fedmmf.federation.status import FederationStatus
from fedmmf.federation.store import RunStore


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
