"""A site that does with NVFlare whatever it likes: `python hostile.py URL FOLDER KIND`."""

import os
import socket
import sys
import time
from pathlib import Path

from nvflare.fuel.f3.cellnet.core_cell import CoreCell, Message, TargetMessage
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey as Key
from nvflare.fuel.f3.drivers.driver_params import DriverParams


def cell_of(url, folder, name):
    given = {
        DriverParams.CA_CERT.value: str(folder / "authority.pem"),
        DriverParams.CLIENT_CERT.value: str(folder / "sites" / "a" / "tls.crt"),
        DriverParams.CLIENT_KEY.value: str(folder / "sites" / "a" / "tls.key"),
    }
    cell = CoreCell(name, url, True, given, auth_identity_map={"server": "test.server"})
    cell.start()
    until = time.monotonic() + 60
    while not cell.is_cell_connected("server") and time.monotonic() < until:
        time.sleep(0.05)
    return cell


def ask(cell, target, channel, topic, payload, headers, timeout):
    message = TargetMessage(target, channel, topic, Message(headers, payload))
    if Key.ORIGIN in headers:  # what `CoreCell` would write over
        send = cell._send_to_endpoint

        def forged(to_endpoint, message):
            message.add_headers(headers)
            return send(to_endpoint, message)

        cell._send_to_endpoint = forged
    return cell.broadcast_multi_requests({target: message}, timeout)[target]


def main(url, folder, kind):
    if kind == "silent":  # a stranger who connects and says nothing
        host, port = url.removeprefix("stcp://").split(":")
        with socket.create_connection((host, int(port))):
            print("connected", flush=True)  # noqa: T201
            time.sleep(1000)
        return
    name = "b" if kind == "other name" else "a"
    cell = cell_of(url, folder, name)
    target, channel, topic, payload, headers = {
        "plain": ("server", "fedmmf", "probe", b"x", {}),
        "other name": ("server", "fedmmf", "probe", b"x", {}),
        "forged origin": ("server", "fedmmf", "probe", b"x", {Key.ORIGIN: "b"}),
        "to another site": ("c", "fedmmf", "probe", b"x", {}),
        "another channel": ("server", "cellnet", "bulk", b"x", {}),
        "an object": ("server", "fedmmf", "probe", {"decode": "me"}, {}),
        "call me": (
            "server", "fedmmf", "probe", b"x",
            {Key.ORIGIN: "a", Key.FROM_CELL: "b", Key.CONN_URL: "tcp://127.0.0.1:9"},
        ),
    }[kind]  # fmt: skip
    # Only the plain one is sure to be answered; on a slow machine that takes its time.
    timeout = 120.0 if kind == "plain" else 3.0
    reply = ask(cell, target, channel, topic, payload, headers, timeout)
    print("reply", reply.get_header(Key.RETURN_CODE), bytes(reply.payload or b""), flush=True)  # noqa: T201
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
