"""A stranger on both networks, run in the lab's namespace: knocks at every port, or listens to what goes by.

    stranger.py knock HOST=ADDRESS:PORT,PORT ...   those ports are open and no other, and nothing that they say has
                                                   a word of WORDS in it, whatever is asked without a log-in or by guess
    stranger.py listen DEVICE BYTES                so many bytes that pass a device have none either

Exit status 0, or 1 and what was got. Here: what anybody can try with the standard library; no secret of the site.
Source: Kafka's protocol guide; MQTT 3.1.1.
"""

from __future__ import annotations

import asyncio
import resource
import selectors
import socket
import ssl
import struct
import sys
import time

WORDS = (
    b"readings",
    b"board_health",
    b"plant-7",
    b"thermometer",
    b"dead_letters",
    b"__edge_ledger",
    b"sites/",
    b"edge-mirror",
)
GUESSES = ("admin", "kafka", "gateway", "mirror", "mirror-pi-1", "verify-pi-1")
AT_ONCE = 4000
KNOCK_S = 2.0  # of a port that is not expected to be open
PATIENCE_S = 5.0
METADATA, LIST_GROUPS, SASL_HANDSHAKE, SASL_AUTHENTICATE, API_VERSIONS, DESCRIBE_ACLS = 3, 16, 17, 36, 18, 29


def kafka(api: int, version: int, body: bytes) -> bytes:
    """A request of Kafka's protocol."""
    message = struct.pack(">hhih", api, version, 1, 1) + b"x" + body
    return struct.pack(">i", len(message)) + message


def plain(user: str) -> bytes:
    """A guess, as a client without SCRAM logs in."""
    token = f"\0{user}\0{user}".encode()
    return kafka(SASL_HANDSHAKE, 1, b"\0\5PLAIN") + kafka(SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)


def mqtt(user: str, password: str) -> bytes:
    """CONNECT, and SUBSCRIBE to everything, whatever the answer is."""
    flags = 0xC2 if user else 0x02
    payload = b"\0\1x" + (b"".join(struct.pack(">H", len(t)) + t.encode() for t in (user, password)) if user else b"")
    rest = b"\0\4MQTT\4" + bytes([flags]) + b"\0\x3c" + payload
    return b"\x10" + bytes([len(rest)]) + rest + b"\x82\x06\0\1\0\1#\0" + b"\x82\x0b\0\2\0\6$SYS/#\0"


TRIED = {
    "nothing": b"",
    "HTTP": b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    "health": b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
    "Kafka": kafka(API_VERSIONS, 0, b"") + kafka(METADATA, 1, b"\xff\xff\xff\xff") + kafka(LIST_GROUPS, 0, b""),
    "Kafka's metadata at once": kafka(METADATA, 1, b"\xff\xff\xff\xff"),
    "Kafka's ACLs": kafka(DESCRIBE_ACLS, 1, b"\1\xff\xff\1\xff\xff\xff\xff\1\1"),
    **{f"Kafka as {user}": plain(user) + kafka(METADATA, 1, b"\xff\xff\xff\xff") for user in GUESSES},
    "MQTT": mqtt("", ""),
    **{f"MQTT as {user}": mqtt(user, user) for user in (*GUESSES, "thermometer-1")},
}


def listening(address: str, ports: list[int], patience_s: float) -> set[int]:
    """Those of these ports on which somebody listens."""
    there = set()
    with selectors.DefaultSelector() as ready:
        for port in ports:
            knocking = socket.socket()
            knocking.setblocking(False)
            knocking.connect_ex((address, port))
            ready.register(knocking, selectors.EVENT_WRITE, port)
        deadline = time.monotonic() + patience_s
        while ready.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in ready.select(left):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    there.add(int(key.data))
                ready.unregister(connection)
                connection.close()
        for key in list(ready.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
    return there


async def answer(address: str, port: int, asked: bytes, *, tls: bool) -> bytes:
    """What comes back until the other side closes or says no more."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if tls else None
    if context is not None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    got = b""
    try:
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection(address, port, ssl=context)
            writer.write(asked)
            while more := await reader.read(1 << 16):
                got += more
    except (OSError, TimeoutError):
        pass  # what came is what counts
    return got


async def knock(name: str, address: str, expected: set[int]) -> list[str]:
    """What one host gave away."""
    ports = list(range(1, 65536))
    open_ports = listening(address, sorted(expected), 4 * PATIENCE_S)
    for first in range(0, len(ports), AT_ONCE):
        open_ports |= listening(address, ports[first : first + AT_ONCE], KNOCK_S)
    wrong = [] if open_ports == expected else [f"{name}: open are {sorted(open_ports)}, not {sorted(expected)}"]
    for port in sorted(open_ports):
        tries = [(what, tls) for what in TRIED for tls in (False, True)]
        for (what, tls), got in zip(
            tries,
            await asyncio.gather(*(answer(address, port, TRIED[what], tls=tls) for what, tls in tries)),
            strict=True,
        ):
            words = [word.decode() for word in WORDS if word in got]
            if words:
                wrong.append(f"{name}:{port} told {words} to {what}{' by TLS' if tls else ''}: {got[:400]!r}")
            if what.startswith("MQTT") and got[:2] == b"\x20\x02" and got[3:4] == b"\0":
                wrong.append(f"{name}:{port} lets in {what}")
    print(f"{name}: {len(ports)} ports, open {sorted(open_ports)}, {len(TRIED) * 2} things tried at each")
    return wrong


def listen(device: str, count: int) -> list[str]:
    """What goes by in the open."""
    everything = socket.htons(3)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, everything) as tap:
        tap.bind((device, 0))
        tap.settimeout(120)
        seen = b""
        while len(seen) < count:
            seen += tap.recv(1 << 16)
    print(f"{len(seen)} bytes passed {device}")
    return [f"{word.decode()} went by {device}" for word in WORDS if word in seen]


async def knock_at_all(hosts: list[str]) -> list[str]:
    """All hosts at once, each in a thread of its own."""
    wrong = []
    for host in hosts:
        name, _, rest = host.partition("=")
        address, _, ports = rest.partition(":")
        expected = {int(port) for port in ports.split(",")}
        wrong.append(asyncio.to_thread(asyncio.run, knock(name, address, expected)))
    return [line for found in await asyncio.gather(*wrong) for line in found]


if __name__ == "__main__":
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, 5 * AT_ONCE), limit))
    told = listen(sys.argv[2], int(sys.argv[3])) if sys.argv[1] == "listen" else asyncio.run(knock_at_all(sys.argv[2:]))
    sys.exit("\n".join(told) or 0)
