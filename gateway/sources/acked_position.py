"""Track the position of a source before which all is acknowledged, and save it with fsync.

A source that can be read again registers each event that it publishes, in order. Acknowledgements arrive in any order;
the position moves over the acknowledged beginning. Does not contain: reading, publishing, the meaning of a position.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from drupelet.observe.log_tree import Log
from gateway import state

SAVE_RETRY_S = 1.0
_log = Log("gateway.state")

PlaceT = TypeVar("PlaceT")


@dataclass(slots=True, eq=False)
class _Waiting(Generic[PlaceT]):
    after: PlaceT | None  # None: it moves no position, such as the report of a loss
    acked: bool = False


class SafePlace(Generic[PlaceT]):
    """The place of one source, and the state file that it is saved in; `keep_saved` saves it."""

    def __init__(
        self,
        path: Path,
        name: str,
        content: Callable[[PlaceT], dict[str, Any]],
        save_interval_ms: int,
        saved: PlaceT | None = None,
        merge: Callable[[PlaceT, PlaceT], PlaceT] | None = None,
    ) -> None:
        """`name` stands for the place in `trouble`; `content` makes of a place what the file holds, now `saved`.

        `merge` returns a place of several parts with the parts that an acknowledgement moves.
        """
        self.trouble: str | None = None
        self._path = path
        self._name = name
        self._content = content
        self._merge = merge
        self._save_interval_s = save_interval_ms / 1000
        self._place = self._saved = saved
        self._waiting: deque[_Waiting[PlaceT]] = deque()
        self._save_due = asyncio.Event()
        self._saving = asyncio.Lock()

    @property
    def is_known(self) -> bool:
        """Whether a position exists."""
        return self._place is not None

    @property
    def all_acked(self) -> bool:
        """Whether every registered event is acknowledged."""
        return not self._waiting

    @property
    def place(self) -> PlaceT | None:
        """The position before which all is acknowledged."""
        return self._place

    @property
    def is_saved(self) -> bool:
        """Whether the file has the present position."""
        return self._place == self._saved

    async def begin(self, place: PlaceT | None) -> None:
        """Set the first position, before any event is registered, and save it."""
        self._place = place
        await self._save()

    def handed_over(self, after: PlaceT | None) -> Callable[[], None]:
        """Register an event; return its callback for the acknowledgement. The position moves to `after` in order."""
        waiting = _Waiting(after)
        self._waiting.append(waiting)
        return partial(self._record_acked, waiting)

    @asynccontextmanager
    async def keep_saved(self) -> AsyncIterator[None]:
        """Save the position every `save_interval_ms` if it has moved, and at the end."""
        saver = asyncio.ensure_future(self._save_regularly())
        try:
            yield
        finally:
            saver.cancel()
            await asyncio.gather(saver, return_exceptions=True)
            await self._save()

    def _record_acked(self, waiting: _Waiting[PlaceT]) -> None:
        waiting.acked = True
        while self._waiting and self._waiting[0].acked:
            after = self._waiting.popleft().after
            if after is not None:
                before, merge = self._place, self._merge
                self._place = after if before is None or merge is None else merge(before, after)
        self._save_due.set()

    async def _save_regularly(self) -> None:
        while True:
            await self._save_due.wait()
            self._save_due.clear()
            await self._save()
            await asyncio.sleep(max(self._save_interval_s, SAVE_RETRY_S if self.trouble else 0))

    async def _save(self) -> None:
        async with self._saving:
            place = self._place
            if place is None or place == self._saved:
                return
            try:
                await _whole(asyncio.to_thread(state.save, self._path, self._content(place)))
            except OSError as error:
                if self.trouble is None:
                    _log.error("place_unsaved", path=self._path, error=error)
                self.trouble = f"{self._name} cannot be saved in {self._path} ({error.strerror or error})"
                self._save_due.set()
            else:
                self.trouble = None
                self._saved = place


async def _whole(work: Coroutine[Any, Any, None]) -> None:
    """Wait for a thread's end even if cancelled: two concurrent writers would corrupt the file."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise
