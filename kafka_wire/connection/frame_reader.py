"""Split the bytes of a connection into frames: each in its own memory, of a checked size.

    frame  | size int32 | so many bytes

A frame that arrives whole with others is copied out of the read buffer; the rest of an incomplete one is read into its
memory. Does not contain: the content of a frame, writing. Source: Kafka's protocol guide.
"""

from __future__ import annotations

import asyncio
import mmap
from typing import Protocol, cast

FRAME_BYTES_MIN = 4  # a correlation id
FRAME_BYTES_MAX = 128 * 1024 * 1024
READ_BYTES = 65_536
MAPPED_BYTES = 8 * 1024 * 1024  # larger frames are in pages allocated on first write, so a false size costs nothing


class Owner(Protocol):
    """The owner of the frames. Any of its methods may close the connection."""

    def bytes_received(self, count: int) -> None:
        """Note received bytes."""

    def take(self, frame: memoryview) -> None:
        """Handle a frame, without its size."""

    def bad_size(self, first: bytes) -> None:
        """Handle the four bytes of an invalid size; nothing is read any more."""

    def connection_ended(self, error: Exception | None) -> None:
        """Handle the end of the connection, by an error or by the peer."""


class Frames(asyncio.BufferedProtocol):
    """Reads a connection's frames for its owner, until `stop`."""

    def __init__(self, owner: Owner) -> None:
        self._owner: Owner | None = owner
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._frame: memoryview | None = None
        self._filled = 0  # of the incomplete frame, else of the buffer

    def stop(self) -> None:
        """Call the owner no more."""
        self._owner = self._frame = None
        self._filled = 0

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the socket."""
        owner = self._owner
        self.stop()
        if owner is not None:
            owner.connection_ended(exc)

    def eof_received(self) -> bool:
        """Return False to close the transport: a half-open connection is of no use."""
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory for the next bytes."""
        return (self._buffer if self._frame is None else self._frame)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Split the next `nbytes` received bytes into frames."""
        owner = self._owner
        if owner is None:
            return
        owner.bytes_received(nbytes)
        self._filled += nbytes
        frame = self._frame
        if frame is None:
            self._cut(owner)
        elif self._filled == len(frame):
            self._frame, self._filled = None, 0
            owner.take(frame)

    def _cut(self, owner: Owner) -> None:
        buffer, at, end = self._buffer, 0, self._filled
        while end - at >= 4:
            size = int.from_bytes(buffer[at : at + 4], "big")  # a negative one is too large as well
            if not FRAME_BYTES_MIN <= size <= FRAME_BYTES_MAX:
                first = bytes(buffer[at : at + 4])
                self.stop()
                owner.bad_size(first)
                return
            at += 4
            if end - at < size:
                self._begin(size, buffer[at:end])
                return
            owner.take(memoryview(bytes(buffer[at : at + size])))
            if self._owner is None:
                return
            at += size
        buffer[: end - at] = bytes(buffer[at:end])
        self._filled = end - at

    def _begin(self, size: int, start: memoryview) -> None:
        self._frame = memoryview(mmap.mmap(-1, size) if size > MAPPED_BYTES else bytearray(size))
        self._filled = len(start)
        self._frame[: self._filled] = start


def as_transport(transport: asyncio.BaseTransport | None) -> asyncio.Transport:
    """Return the transport of a stream, as asyncio's functions do not say that they give one."""
    return cast(asyncio.Transport, transport)
