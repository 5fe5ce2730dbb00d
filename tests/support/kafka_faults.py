"""Faults that only a proxy can make: the broker stored a batch, and its answer never reached the producer; a batch
reached the broker with another bit in it.

Kafka framing only, as far as the fault needs it: size (int32), then api_key (int16), api_version (int16) and
correlation_id (int32) of a request, correlation_id (int32) of an answer. Source: the Kafka protocol guide.
"""

from __future__ import annotations

import struct
import threading

PRODUCE = 0
_SIZE = struct.Struct(">i")
_REQUEST_HEAD = struct.Struct(">hhi")
_ANSWER_HEAD = struct.Struct(">i")


class AnswerThief:
    """Makes the filters of a TcpProxy; each `steal(n)` turns n answers to one API into dropped connections."""

    def __init__(self, api_key: int = PRODUCE) -> None:
        """Watch for answers to `api_key`."""
        self.api_key = api_key
        self.stolen = 0
        self._wanted = 0
        self._spared = 0
        self._spoils = b""
        self._lock = threading.Lock()

    def steal(self, answers: int = 1, *, after: int = 0) -> None:
        """Let `after` answers pass, then drop `answers` of them, each with its connection; the count starts anew."""
        with self._lock:
            self.stolen, self._wanted, self._spared = 0, answers, after

    def spoil(self, value: bytes) -> None:
        """Flip a bit of the next request that holds this."""
        with self._lock:
            self._spoils = value

    def spoilt(self, data: bytes) -> bytes:
        """What becomes of bytes on their way to the broker."""
        with self._lock:
            if self._spoils and self._spoils in data:
                data = data.replace(self._spoils, bytes((self._spoils[0] ^ 1,)) + self._spoils[1:], 1)
                self._spoils = b""
        return data

    @property
    def spoils(self) -> bool:
        """Whether such a request has not come yet."""
        return bool(self._spoils)

    def __call__(self) -> _WatchedLink:
        """Make the filter of one connection."""
        return _WatchedLink(self)

    def takes_this_one(self) -> bool:
        """Decide on the next answer to the watched API."""
        with self._lock:
            if self._spared > 0:
                self._spared -= 1
                return False
            if self._wanted == 0:
                return False
            self._wanted -= 1
            self.stolen += 1
            return True


class Frames:
    """Cuts a byte stream into frames without their size."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        self._buffer += data
        frames = []
        while len(self._buffer) >= _SIZE.size:
            end = _SIZE.size + _SIZE.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                break
            frames.append(bytes(self._buffer[_SIZE.size : end]))
            del self._buffer[:end]
        return frames


class _WatchedLink:
    """One connection's filter: remembers the correlation ids of the watched requests and knows their answers."""

    def __init__(self, thief: AnswerThief) -> None:
        self._thief = thief
        self._requests = Frames()
        self._answers = Frames()
        self._watched: set[int] = set()

    def upstream(self, data: bytes) -> bytes | None:
        data = self._thief.spoilt(data)
        for frame in self._requests.feed(data):
            api_key, _, correlation_id = _REQUEST_HEAD.unpack_from(frame)
            if api_key == self._thief.api_key:
                self._watched.add(correlation_id)
        return data

    def downstream(self, data: bytes) -> bytes | None:
        passed = bytearray()
        for frame in self._answers.feed(data):
            (correlation_id,) = _ANSWER_HEAD.unpack_from(frame)
            if correlation_id in self._watched:
                self._watched.discard(correlation_id)
                if self._thief.takes_this_one():
                    return None
            passed += _SIZE.pack(len(frame)) + frame
        return bytes(passed)
