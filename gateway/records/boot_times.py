"""Mark the records of a board whose clock is not set; publish when its boot began once the clock is set.

| this boot | a record gets | then |
|---|---|---|
| was never synchronised | the headers `boot_id` and `boot_time_ms` | `/health` has a note, the log a line |
| is synchronised, and records were marked in it | nothing | its epoch is published, once |
| is synchronised, and no record was marked | nothing | its epoch is kept in the state file |
| was synchronised, and its clock was set by hand since then | the same headers | its epoch is published, once |
| ended before it was synchronised | | its epoch is never known: the log and `/health` of the next boot say so |
| ended after it was synchronised, before the broker had its epoch | | the next boot publishes it |
| state of the clock unknown | nothing | the watch `clock` is unknown |

| a record with a moment of its own: an entry of this machine's journal | gets |
|---|---|
| this boot was never synchronised | a mark with the entry's boot and time |
| its time fits the epoch of its boot, or of this boot where its boot is not known | nothing |
| it fits neither | a mark with the entry's boot and time |

Once synchronised, a boot stays so, also while its time servers are away: a free-running clock drifts, but is set.
A later step makes the clock doubtful, so the epoch of a boot never changes. A clock stepped by a time service is
trusted again; after a step without a time service, records are marked: readers use the epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from drupelet.backoff import Backoff
from drupelet.errors import reason
from drupelet.host.boot_clock import BOOT_TIMES_TOPIC, BootClock, BootMoment, encode_boot
from drupelet.observe.log_tree import Log
from drupelet.observe.watches import Watch, WatchState, ok, unknown_watch
from gateway import state
from gateway.boot_state import Boot, Boots
from gateway.records.records import Record

CHECK_S = 1.0
STEP_MS = 1_000  # a time that differs by more from its boot's epoch is from a clock that was not set
CREATE_WAIT_S_MAX = 60.0
SET_BY_HAND_MS = 60_000  # less is no reason to doubt the clock
WATCH = "clock"
Offer = Callable[[Record, Callable[[], None]], None]
_log = Log("gateway.clock")


class BootTimes:
    """Decides which records are marked, and which boots are published; `run` checks the clock until cancelled."""

    def __init__(self, clock: BootClock, path: Path, host: str) -> None:
        """Read the state file; raises StateError."""
        self._clock = clock
        self._path = path
        self._host = host
        self._in_flight = False
        self._unsaved = False
        self._save_error = ""
        self._topic_error = ""
        self._boots = _load(path, clock.boot_id)
        self._known: bool | None = None
        self._set_by_hand = False
        self._kept_epoch_ms = self._boots.present.epoch_ms
        self.check()
        if self._unsaved:
            self._save(self._boots.content())
        self._log_start()

    def _log_start(self) -> None:
        previous = self._boots.previous
        if previous is not None and previous.is_unknown:
            _log.warning("boot_time_unknown", boot_id=previous.boot_id, reason="it ended before its clock was set")
        if self.is_unsynchronised:
            action = 'start a time service; with a clock chip that is set: clock_trusted = "true"'
            _log.warning("clock_unsynchronised", boot_id=self._clock.boot_id, action=action)

    @property
    def is_unsynchronised(self) -> bool:
        """Whether every record is marked: the clock of this boot was never set, as far as is known."""
        return self._known is False and self._boots.present.epoch_ms is None and bool(self._clock.boot_id)

    def check(self) -> None:
        """Read the kernel's clock state, and save a change."""
        self._known, is_kept = self._clock.is_synchronised(), self._clock.is_kept()
        epoch_ms = self._clock.wall_ms() - self._clock.boot_time_ms()  # after the kernel was asked
        if self._known and self._boots.present.epoch_ms is None and self._clock.boot_id and epoch_ms >= 0:
            self._keep(self._clock.boot_id, epoch_ms=epoch_ms)
            self._kept_epoch_ms = epoch_ms
        elif self.is_unsynchronised:
            self._keep(self._clock.boot_id, marked=True)
        if is_kept is not False and self._kept_epoch_ms is not None:
            self._kept_epoch_ms = epoch_ms
        self._note_set_by_hand(is_kept is False and self._is_off(epoch_ms))

    def _is_off(self, epoch_ms: int) -> bool:
        """Return whether the wall clock is more than SET_BY_HAND_MS off the time that a time service left."""
        return self._kept_epoch_ms is not None and abs(epoch_ms - self._kept_epoch_ms) > SET_BY_HAND_MS

    def _note_set_by_hand(self, now: bool) -> None:
        if now and not self._set_by_hand:
            _log.warning("clock_set_by_hand", boot_id=self._clock.boot_id, action="start a time service")
        self._set_by_hand = now
        if now:
            self._keep(self._clock.boot_id, marked=True)

    def _keep(self, boot_id: str, **fields: object) -> None:
        self._unsaved |= self._boots.change(boot_id, **fields)

    def _save(self, content: dict[str, Any]) -> None:
        """Write the state file; block for a sync."""
        self._unsaved = False
        try:
            state.save(self._path, content)
            self._save_error = ""
        except OSError as error:
            if not self._save_error:
                _log.warning("clock_state_unsaved", path=self._path, error=reason(error))
            self._save_error = f"{self._path} cannot be written ({reason(error)})"
            self._unsaved = True

    def mark(self, record: Record) -> Record:
        """Return the record, marked with the time since boot if its time is from a clock that is not set."""
        if record.boot is not None or record.foreign_clock or record.topic == BOOT_TIMES_TOPIC:
            return record
        if record.moment is not None:
            return self._mark_by(record, record.moment)
        if not self.is_unsynchronised:
            is_off = self._is_off(self._clock.wall_ms() - self._clock.boot_time_ms())
            if is_off != self._set_by_hand:
                self.check()  # a time service may have set it: read the kernel's state at once, not within a second
            if not self._set_by_hand:
                return record
        return replace(record, boot=BootMoment(self._clock.boot_id, self._clock.boot_time_ms()))

    def _mark_by(self, record: Record, moment: BootMoment) -> Record:
        """Mark a record whose source gives its moment and boot."""
        slept_ms = self._clock.slept_ms()
        if self._known is None and self._boots.present.epoch_ms is None:
            return record
        if not self.is_unsynchronised and self._fits(record.timestamp_ms - moment.boot_time_ms, moment, slept_ms):
            return record
        if moment.boot_id == self._clock.boot_id:
            moment = moment._replace(boot_time_ms=moment.boot_time_ms + slept_ms)
        if self._boots.get(moment.boot_id) is not None:
            self._keep(moment.boot_id, marked=True)
        return replace(record, boot=moment)

    def _fits(self, epoch_ms: int, moment: BootMoment, slept_ms: int) -> bool:
        """Return whether a time is correct; the journal's time since boot excludes suspend."""
        boot = self._boots.get(moment.boot_id)
        if boot is None and moment.boot_id != self._clock.boot_id:
            boot = self._boots.present  # a container has a boot id of its own
        expected = {None if boot is None else boot.epoch_ms}
        if boot is self._boots.present:
            expected.add(self._kept_epoch_ms)
        return any(-STEP_MS <= epoch_ms - each <= slept_ms + STEP_MS for each in expected if each is not None)

    def note(self) -> str | None:
        """Return in one line a note for the operator about the clock, or None."""
        if self._save_error:
            return self._save_error
        if self.is_unsynchronised:
            return "the clock is not synchronised: records carry boot_id and boot_time_ms until it is"
        if self._set_by_hand:
            return "the clock was set by hand: records carry boot_id and boot_time_ms until it is synchronised"
        if self._topic_error and (due := self._boots.due()) is not None:
            return f"the time of the boot {due.boot_id} is not published: {BOOT_TIMES_TOPIC}: {self._topic_error}"
        previous = self._boots.previous
        if previous is not None and previous.is_unknown:
            return f"the time of the boot {previous.boot_id} is not known: it ended before its clock was synchronised"
        return None

    def watches(self) -> list[Watch]:
        """Return whether the kernel says that the clock is set."""
        if self.is_unsynchronised:
            return [Watch(WATCH, WatchState.PROBLEM, "the clock is not synchronised")]
        if self._set_by_hand:
            return [Watch(WATCH, WatchState.PROBLEM, "the clock was set by hand")]
        accept = 'accept it by clock_trusted = "true"'
        if not self._clock.boot_id:
            return [unknown_watch(WATCH, f"the kernel does not say which boot this is: {accept}")]
        if self._known is None and self._boots.present.epoch_ms is None:
            return [unknown_watch(WATCH, f"the kernel does not say whether the clock is set: {accept}")]
        return [ok(WATCH)]

    def due(self) -> Record | None:
        """Return the record to publish now, or None."""
        boot = self._boots.due()
        if boot is None or boot.epoch_ms is None or self._in_flight:
            return None
        key, value = encode_boot(boot.boot_id, self._host, boot.epoch_ms)
        now_ms = self._clock.wall_ms()
        return Record("clock", BOOT_TIMES_TOPIC, key, value, (), now_ms, now_ms, BOOT_TIMES_TOPIC)

    async def run(self, offer: Offer, create_topic: Callable[[], Awaitable[str]]) -> None:
        """Check the clock every second, and pass due records to `offer`, until cancelled.

        `create_topic` creates the compacted topic before the first write, and returns why that failed.
        """
        backoff, wait_s = Backoff(first_s=CHECK_S, max_s=CREATE_WAIT_S_MAX), 0.0
        try:
            while True:
                self.check()
                wait_s -= CHECK_S
                if wait_s <= 0 and self.due() is not None:
                    wait_s = await self._publish(offer, create_topic, backoff)
                if self._unsaved:
                    await self._save_in_thread()
                await asyncio.sleep(CHECK_S)
        finally:
            if self._unsaved:
                self._save(self._boots.content())

    async def _save_in_thread(self) -> None:
        """Save to the end even if cancelled: two concurrent writers would corrupt the file."""
        saving = asyncio.ensure_future(asyncio.to_thread(self._save, self._boots.content()))
        try:
            await asyncio.shield(saving)
        except asyncio.CancelledError:
            await asyncio.wait([saving])
            raise

    async def _publish(self, offer: Offer, create_topic: Callable[[], Awaitable[str]], backoff: Backoff) -> float:
        error = await create_topic()
        if error:
            if not self._topic_error:
                _log.warning("topic_not_created", topic=BOOT_TIMES_TOPIC, error=error)
            self._topic_error = error
            return backoff.next_s()
        self._topic_error = ""
        backoff.reset()
        boot, record = self._boots.due(), self.due()
        if boot is not None and record is not None:
            self._in_flight = True
            offer(record, partial(self._epoch_published, boot))
        return 0.0

    def _epoch_published(self, boot: Boot) -> None:
        """Note that the epoch of a boot is on the broker's disk."""
        self._in_flight = False
        self._keep(boot.boot_id, published=True)
        _log.info("boot_time_published", boot_id=boot.boot_id, boot_epoch_ms=boot.epoch_ms)


def _load(path: Path, present_id: str) -> Boots:
    saved = state.load(path)
    try:
        return Boots(present_id, saved)
    except ValueError as error:
        raise state.StateError(f"{path} holds no state of boots ({error}): remove it.") from error
