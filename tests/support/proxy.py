"""A TCP proxy on loopback whose link can be cut and restored, and whose traffic a filter may watch.

It runs on an event loop in a thread of its own. It knows no protocol: filters do (see `kafka_faults.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeVar

from tests.support.ports import free_port

_CHUNK_BYTES = 256 * 1024
_CALL_S = 10
_Result = TypeVar("_Result")


class LinkFilter(Protocol):
    """Sees one connection's bytes; either method returns what to pass on, or None to drop the connection instead."""

    def upstream(self, data: bytes) -> bytes | None:
        """Look at bytes on their way to the server."""

    def downstream(self, data: bytes) -> bytes | None:
        """Look at bytes on their way to the client."""


class TcpProxy:
    """Forwards `127.0.0.1:port` to a target; a context manager.

    `cut("refuse")` resets every connection and refuses new ones; `cut("blackhole")` lets nothing through in either
    direction while connections stay up, new ones are accepted and stall too. `restore()` ends either: what a
    blackhole held back is then delivered, as TCP would.
    """

    def __init__(
        self, target: str, *, port: int | None = None, make_filter: Callable[[], LinkFilter] | None = None
    ) -> None:
        """Describe a proxy to `target` (HOST:PORT); `make_filter` is called once per connection."""
        host, _, target_port = target.rpartition(":")
        self.target = (host, int(target_port))
        self.port = port if port is not None else free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.bytes_up = 0
        self.bytes_down = 0
        self.is_cut = False
        self._make_filter = make_filter
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{self.port}", daemon=True)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()

    def start(self) -> Self:
        """Listen and forward."""
        self._flowing.set()
        self._thread.start()
        self._call(self._listen())
        return self

    def stop(self) -> None:
        """Close every connection and the listener, and end the thread."""
        self._call(self._close_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_S)
        self._loop.close()

    def cut(self, how: Literal["refuse", "blackhole"] = "refuse") -> None:
        """Cut the link until `restore()`."""
        self.is_cut = True
        self._call(self._close_all() if how == "refuse" else self._block())

    def restore(self) -> None:
        """Mend the link."""
        self._call(self._listen())
        self.is_cut = False

    def drop_connections(self) -> None:
        """Reset the connections there are; new ones go through."""
        self._call(self._drop())

    def _call(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_S)

    async def _listen(self) -> None:
        self._flowing.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def _block(self) -> None:
        self._flowing.clear()

    async def _close_all(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._drop()

    async def _drop(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):  # either end may go away at any time
                await self._join(reader, writer)
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._flowing.wait()
        server_reader, server_writer = await asyncio.open_connection(*self.target)
        self._writers.add(server_writer)
        link = self._make_filter() if self._make_filter is not None else _PassAll()
        up = asyncio.ensure_future(self._copy(reader, server_writer, link.upstream, "bytes_up"))
        down = asyncio.ensure_future(self._copy(server_reader, writer, link.downstream, "bytes_down"))
        try:
            await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
        finally:
            up.cancel()
            down.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
            await self._flush(writer, server_writer)
            self._writers.discard(server_writer)

    async def _flush(self, writer: asyncio.StreamWriter, server_writer: asyncio.StreamWriter) -> None:
        """Close both ends, letting out what was passed on already, unless they were aborted."""
        for end in (writer, server_writer):
            end.close()
            with contextlib.suppress(OSError):
                await end.wait_closed()

    async def _copy(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        look: Callable[[bytes], bytes | None],
        counter: Literal["bytes_up", "bytes_down"],
    ) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            await self._flowing.wait()
            passed = look(data)
            if passed is None:
                return
            setattr(self, counter, getattr(self, counter) + len(passed))
            writer.write(passed)
            await writer.drain()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _PassAll:
    def upstream(self, data: bytes) -> bytes | None:
        return data

    def downstream(self, data: bytes) -> bytes | None:
        return data
