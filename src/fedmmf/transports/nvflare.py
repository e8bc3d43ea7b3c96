"""Bytes between machines over NVFlare's cell network: mutual TLS, and nothing that it decodes.

Cells are what NVFlare's own jobs talk through. They are used without jobs, since a job ends with
its server and takes in nobody who comes later. NVFlare checks, when a cell connects, that the name
which it claims is the one in its certificate.
"""

import logging
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from nvflare.fuel.f3.cellnet.core_cell import TargetMessage
from nvflare.fuel.f3.cellnet.defs import (
    CellChannel,
    CellChannelTopic,
    Encoding,
    MessagePropKey,
    ReturnCode,
)
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey as Key
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.message import Message

from fedmmf.errors import FedMMFError
from fedmmf.transports.contract import Credentials
from fedmmf.transports.nvflare_hardening import Door, HardenedCell, door_at

SERVER = "server"  # what NVFlare calls the cell that others connect to
_CHANNEL = "fedmmf"
_RAW = (None, Encoding.BYTES, Encoding.NONE)  # payloads that nobody decodes
_log = logging.getLogger(__name__)

Answer = Callable[[str, bytes], bytes]
"""(who asks, what) -> the answer."""


class CellLink:
    """Connection of one machine to NVFlare's cell network.

    Attributes:
        door: what the server's listener says to those who knock, and whom it tells of refusals.

    Args:
        name: what it is called; `SERVER`, or a site's name as in its certificate.
        url: where the server listens.
        credentials: of this machine.
        server_name: the name in the server's certificate.
    """

    def __init__(self, name: str, url: str, credentials: Credentials, server_name: str) -> None:
        address = urlsplit(url).netloc
        self.door = door_at(address) if name == SERVER else Door()
        kinds = (
            (DriverParams.SERVER_CERT, DriverParams.SERVER_KEY)
            if name == SERVER
            else (DriverParams.CLIENT_CERT, DriverParams.CLIENT_KEY)
        )
        given = {
            DriverParams.CA_CERT.value: str(credentials.authority),
            kinds[0].value: str(credentials.certificate),
            kinds[1].value: str(credentials.key),
        }
        self._name, self._server_name = name, server_name
        self._cell = HardenedCell(name, address, given, server_name)
        self._cell.add_incoming_filter("*", "*", self._refusal)
        self._cell.start()

    def _refusal(self, message: Message) -> Message | None:
        """Stop whatever NVFlare would forward, believe, decode or answer by itself.

        Headers are their sender's word; the end of a connection is what its certificate says.
        """
        header, sender = message.get_header, message.get_prop(MessagePropKey.ENDPOINT).name
        topic = (header(Key.CHANNEL), header(Key.TOPIC))
        is_ours = topic[0] == _CHANNEL or topic == (CellChannel.CELLNET, CellChannelTopic.Bye)
        route = (header(Key.ORIGIN), header(Key.FROM_CELL), header(Key.DESTINATION))
        is_direct = route == (sender, sender, self._name) and not header(Key.CONN_URL)
        is_raw = header(Key.PAYLOAD_ENCODING) in _RAW and not header(Key.SECURE)
        proven = message.get_prop(MessagePropKey.COMMON_NAME)
        is_known = proven == (self._server_name if sender == SERVER else sender)
        if is_ours and is_direct and is_raw and is_known:
            return None
        _log.warning("a message of %.40r about %.80r was dropped", sender, topic)
        return make_reply(ReturnCode.AUTHENTICATION_ERROR)

    def answer(self, topic: str, answer: Answer) -> None:
        """Register a handler for questions on a topic; where it fails, there is no answer."""

        def reply(message: Message) -> Message:
            who = message.get_prop(MessagePropKey.ENDPOINT).name
            try:
                return Message(payload=answer(who, bytes(message.payload or b"")))
            except FedMMFError as error:
                _log.error("%s of %s is not answered: %s", topic, who, error)
                return make_reply(ReturnCode.PROCESS_EXCEPTION)

        self._cell.register_request_cb(_CHANNEL, topic, reply)

    def ask(self, topic: str, questions: Mapping[str, bytes], timeout: float) -> dict[str, bytes]:
        """Send questions to other machines; return the answers that came in time."""
        sent = {
            name: TargetMessage(name, _CHANNEL, topic, Message(payload=data))
            for name, data in questions.items()
        }
        replies = self._cell.broadcast_multi_requests(sent, timeout, optional=True)
        is_good = {
            name: reply.get_header(Key.RETURN_CODE, ReturnCode.OK) == ReturnCode.OK
            for name, reply in replies.items()
        }
        return {n: bytes(reply.payload or b"") for n, reply in replies.items() if is_good[n]}

    def is_connected(self, name: str) -> bool:
        """Whether there is a connection to somebody now."""
        return bool(self._cell.is_cell_connected(name))

    def close(self) -> None:
        """Leave the network; a process may join again under the same name."""
        self._cell.leave()
