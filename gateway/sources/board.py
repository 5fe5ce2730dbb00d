"""Publish the board's own health: one JSON object every interval.

Does not contain: the measurements (hardware/).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from drupelet.errors import sentence
from drupelet.observe.log_tree import Log
from drupelet.observe.watches import Watch, WatchState, early, ok, unknown_watch
from gateway.config import BoardConfig
from gateway.kafka.publisher import Publisher
from gateway.records.records import Record

READ_S_MAX = 30.0
WATCH = "board_health"
_log = Log("gateway.board")


def health_record(config: BoardConfig, health: Mapping[str, Any], now_ms: int) -> Record:
    """Return the record for one reading of the board's health."""
    value = json.dumps({**health, "board": config.name, "time_ms": now_ms}, ensure_ascii=False).encode()
    headers = (("source", b"board"),)
    return Record("board", config.topic, config.name.encode(), value, headers, now_ms, now_ms, config.topic, "board")


class BoardSource:
    """Publishes the board's health; `run` works until cancelled."""

    name = "board"

    def __init__(
        self,
        config: BoardConfig,
        publisher: Publisher,
        read_health: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self._config = config
        self._publisher = publisher
        self._read_health = read_health or _read_health
        self._trouble: str | None = None
        self._asked_s: float | None = None  # start of the reading in progress
        self._has_read = False
        self._stopping = False
        self.ready = asyncio.Event()

    def problem(self) -> str | None:
        """Return in one line why the board's health is not read, or None."""
        return self._trouble

    def note(self) -> str | None:
        """Return None: the source has no note."""
        return None

    def watches(self) -> list[Watch]:
        """Return whether readings of the board's health arrive; a reading that hangs is unknown, no problem."""
        asked_s = self._asked_s
        if asked_s is not None and (hangs_s := time.monotonic() - asked_s) > READ_S_MAX:
            return [unknown_watch(WATCH, f"a reading of the board's health does not end since {hangs_s:.0f} s")]
        if self._trouble is not None:
            return [Watch(WATCH, WatchState.PROBLEM, self._trouble)]
        return [ok(WATCH) if self._has_read else early(WATCH, "the board was not read yet")]

    def stop_reading(self) -> None:
        """Take no more readings."""
        self._stopping = True

    async def run(self) -> None:
        """Read every interval; while the publisher is full, take no reading, so that none is lost."""
        due_s = time.monotonic()
        self.ready.set()
        # One thread of its own: the CPU's load is measured since the same thread's last reading
        thread = ThreadPoolExecutor(1, thread_name_prefix="board")
        try:
            while not self._stopping:
                await self._publisher.room()
                await self._read_once(thread)
                due_s = max(due_s + self._config.interval_ms / 1000, time.monotonic())
                await asyncio.sleep(due_s - time.monotonic())
        finally:
            thread.shutdown(wait=False)  # a reading that hangs must not hang the gateway

    async def _read_once(self, thread: ThreadPoolExecutor) -> None:
        self._asked_s = time.monotonic()
        try:
            health = await asyncio.get_running_loop().run_in_executor(thread, self._read_health)
        except OSError as error:
            self._trouble = f"the board's health cannot be read ({sentence(error)})"
            _log.warning("health_unreadable", error=error)
            return
        finally:
            self._asked_s = None
        self._trouble, self._has_read = None, True
        if not self._stopping:
            self._publisher.offer(health_record(self._config, health, time.time_ns() // 1_000_000), lambda: None)


def _read_health() -> Mapping[str, Any]:
    from hardware.health import read_health  # noqa: PLC0415 (psutil only where a board is read)

    return read_health()
