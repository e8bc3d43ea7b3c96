"""What is in a capture of tcpdump: the bytes of TCP, and the versions that TLS has agreed on."""

import struct


def packets(path):
    """Link-layer frames of a pcap file."""
    data = path.read_bytes()
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    at = 24
    while at + 16 <= len(data):
        (size,) = struct.unpack(order + "I", data[at + 8 : at + 12])
        yield data[at + 16 : at + 16 + size]
        at += 16 + size


def streams(path):
    """Payload of each direction of each TCP connection, in the order of its bytes."""
    parts = {}
    for frame in packets(path):
        if frame[12:14] != b"\x08\x00" or frame[23] != 6:
            continue
        ip = frame[14:]
        head, total = (ip[0] & 15) * 4, struct.unpack(">H", ip[2:4])[0]
        tcp = ip[head:total]
        ports, (number,) = tcp[:4], struct.unpack(">I", tcp[4:8])
        payload = tcp[(tcp[12] >> 4) * 4 :]
        if payload:
            parts.setdefault((ip[12:20], ports), {})[number] = payload
    return [b"".join(p for _, p in sorted(found.items())) for found in parts.values()]


def server_hellos(stream):
    """(version, whether it is 1.3) of each ServerHello at the front of a stream."""
    if stream[:1] != b"\x16" or stream[5:6] != b"\x02":
        return []
    (size,) = struct.unpack(">H", stream[3:5])
    hello = stream[5 : 5 + size]
    return [(hello[4:6], b"\x00\x2b\x00\x02\x03\x04" in hello)]
