"""An MQTT 5 broker that answers as the test says: for what no mosquitto does, such as hanging up on a subscription.

It takes CONNECT, SUBSCRIBE, UNSUBSCRIBE, PINGREQ and PUBACK, and delivers what the test publishes at QoS 1.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Self

Answer = Callable[[list[str]], bytes | None]
HANG_UP = b""


def granted(filters: list[str]) -> bytes | None:
    """Grant every filter at QoS 1."""
    return b"\x01" * len(filters)


class ScriptedMqtt:
    """A context manager; `answer` maps the filters of a SUBSCRIBE to reason codes, HANG_UP, or None for silence."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.subscribed: list[list[str]] = []
        self.connections = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()

    def publish(self, topic: str, payload: bytes) -> None:
        """Deliver a message at QoS 1 to the last client."""
        body = len(topic).to_bytes(2, "big") + topic.encode() + b"\x00\x07\x00" + payload
        self._writers[-1].write(b"\x32" + bytes([len(body)]) + body)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind = (await reader.readexactly(1))[0] >> 4
                body = await reader.readexactly(await _length(reader))
                answer = self._packet(kind, body)
                if answer == HANG_UP:
                    break
                writer.write(answer or b"")
        writer.close()

    def _packet(self, kind: int, body: bytes) -> bytes | None:
        if kind == 1:
            return b"\x20\x03\x00\x00\x00"
        if kind == 12:
            return b"\xd0\x00"
        if kind not in (8, 10):
            return None
        filters = _filters(body, with_options=kind == 8)
        codes = b"\x00" * len(filters)
        if kind == 8:
            self.subscribed.append(filters)
            said = self.answer(filters)
            if not said:
                return said
            codes = said
        return bytes([(kind + 1) << 4, 3 + len(codes)]) + body[:2] + b"\x00" + codes


def _filters(body: bytes, *, with_options: bool) -> list[str]:
    at, found = 3 + body[2], []
    while at < len(body):
        size = int.from_bytes(body[at : at + 2], "big")
        found.append(body[at + 2 : at + 2 + size].decode())
        at += 2 + size + with_options
    return found


async def _length(reader: asyncio.StreamReader) -> int:
    length, shift = 0, 0
    while True:
        (byte,) = await reader.readexactly(1)
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return length
        shift += 7
