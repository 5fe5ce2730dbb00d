"""Marks the records of a board whose clock is not set, and publishes when its boot began once the clock is right.

| this boot | a record gets | then |
|---|---|---|
| was never synchronised | the headers `boot_id` and `boot_time_ms` | `/health` has a note, the log a line |
| is synchronised, and records were marked in it | nothing | its epoch is published, once |
| is synchronised, and no record was marked | nothing | nothing |
| ended before it was synchronised | | its epoch is never known: the log and `/health` of the next boot say so |
| state of the clock unknown | nothing | `/health` has a note |

Once synchronised, a boot stays so, also while its time servers are away: a clock that runs freely drifts, and is set.
A later step of the clock is a reason to doubt it, so the epoch that was published stays.
The state file holds the boot and what was published of it, so a gateway that is restarted goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from drupelet.boot_clock import BOOT_ID_HEADER, BOOT_TIME_HEADER, BOOT_TIMES_TOPIC, BootClock, encode_boot
from drupelet.errors import reason
from drupelet.log_tree import Log
from gateway import state
from gateway.records import Record

CHECK_S = 1.0
_log = Log("gateway.clock")


@dataclass(frozen=True, slots=True)
class BootState:
    """What the state file knows of one boot."""

    boot_id: str
    marked: bool = False
    synchronised: bool = False
    published_epoch_ms: int | None = None

    @property
    def unpublished(self) -> bool:
        """Whether records of this boot are marked and its epoch was never published."""
        return self.marked and self.published_epoch_ms is None


class BootTimes:
    """Decides which records are marked, and what is published; `run` checks the clock until cancelled."""

    def __init__(self, clock: BootClock, path: Path, host: str) -> None:
        """Read the state file; raises StateError."""
        self._clock = clock
        self._path = path
        self._host = host
        saved = _load(path)
        self._unknown_boot_id = ""
        self._in_flight = False
        self._epoch_ms = 0
        self._error = ""
        if saved is not None and saved.boot_id == clock.boot_id:
            self._state = saved
        else:
            self._state = BootState(clock.boot_id)
            if saved is not None and saved.unpublished:
                self._unknown_boot_id = saved.boot_id
        self._known: bool | None = None
        self.check()
        self._log_start()

    def _log_start(self) -> None:
        if self._unknown_boot_id:
            reason_text = "it ended before its clock was synchronised, or its time was published"
            _log.warning("boot_time_unknown", boot_id=self._unknown_boot_id, reason=reason_text)
        if self.unsynchronised:
            action = 'start a time service; with a clock chip that is set: clock_trusted = "true"'
            _log.warning("clock_unsynchronised", boot_id=self._clock.boot_id, action=action)
        elif self._known is None and not self._state.synchronised:
            _log.warning("clock_state_unknown", reason="the kernel refuses adjtimex")

    @property
    def unsynchronised(self) -> bool:
        """Whether records are marked: the clock of this boot was never right as far as is known."""
        return self._known is False and not self._state.synchronised and bool(self._clock.boot_id)

    @property
    def needs_topic(self) -> bool:
        """Whether the topic `boot_times` will be written to."""
        return self.unsynchronised or self._state.marked

    def check(self) -> None:
        """Ask the kernel, and keep what changed."""
        self._known = self._clock.synchronised()
        if self._known and not self._state.synchronised:
            self._keep(replace(self._state, synchronised=True))
        elif self.unsynchronised and not self._state.marked:
            self._keep(replace(self._state, marked=True))

    def _keep(self, new: BootState) -> None:
        self._state = new
        try:
            content = {"boot_id": new.boot_id, "marked": new.marked, "synchronised": new.synchronised}
            state.save(self._path, {**content, "published_epoch_ms": new.published_epoch_ms})
            self._error = ""
        except OSError as error:
            self._error = f"{self._path} cannot be written ({reason(error)})"
            _log.warning("clock_state_unsaved", path=self._path, error=reason(error))

    def mark(self, record: Record) -> Record:
        """Return the record with the time since boot, while the clock is not set; else the record itself."""
        if not self.unsynchronised or record.topic == BOOT_TIMES_TOPIC:
            return record
        if any(name == BOOT_ID_HEADER for name, _ in record.headers):
            return record
        mark = (BOOT_ID_HEADER, self._clock.boot_id.encode()), (BOOT_TIME_HEADER, b"%d" % self._clock.boot_time_ms())
        return replace(record, headers=(*record.headers, *mark))

    def note(self) -> str | None:
        """Say in one line what a person should know of the clock, or None."""
        if self._error:
            return self._error
        if self.unsynchronised:
            return "the clock is not synchronised: records carry boot_id and boot_time_ms until it is"
        if self._known is None and not self._state.synchronised:
            return "whether the clock is synchronised is unknown: the kernel does not say"
        if self._unknown_boot_id:
            return (
                f"the time of the boot {self._unknown_boot_id} is not known: it ended before its clock was synchronised"
            )
        return None

    def due(self) -> Record | None:
        """Return the record to publish now, or None."""
        if not self._known or not self._state.unpublished or self._in_flight:
            return None
        epoch_ms = self._clock.wall_ms() - self._clock.boot_time_ms()  # after `synchronised` was asked
        if epoch_ms < 0:
            return None
        key, value = encode_boot(self._clock.boot_id, self._host, epoch_ms)
        now_ms = self._clock.wall_ms()
        self._epoch_ms = epoch_ms
        return Record("clock", BOOT_TIMES_TOPIC, key, value, (), now_ms, now_ms, BOOT_TIMES_TOPIC)

    def published(self) -> None:
        """Keep that the record of `due` is on the broker's disk."""
        self._in_flight = False
        self._keep(replace(self._state, published_epoch_ms=self._epoch_ms))
        _log.info("boot_time_published", boot_id=self._clock.boot_id, boot_epoch_ms=self._epoch_ms)

    async def run(self, offer: Callable[[Record, Callable[[], None]], None]) -> None:
        """Check the clock every second, and hand what is due to `offer`, until cancelled."""
        while True:
            self.check()
            if (record := self.due()) is not None:
                self._in_flight = True
                offer(record, self.published)
            await asyncio.sleep(CHECK_S)


def _load(path: Path) -> BootState | None:
    saved = state.load(path)
    if saved is None:
        return None
    boot_id, marked, synchronised = saved.get("boot_id"), saved.get("marked"), saved.get("synchronised")
    epoch_ms: Any = saved.get("published_epoch_ms")
    valid = isinstance(boot_id, str) and isinstance(marked, bool) and isinstance(synchronised, bool)
    if not valid or not (epoch_ms is None or isinstance(epoch_ms, int)):
        raise state.StateError(f"{path} holds no state of a boot: remove it.")
    return BootState(str(boot_id), bool(marked), bool(synchronised), epoch_ms)
