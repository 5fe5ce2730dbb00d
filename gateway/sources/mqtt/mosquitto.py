"""Record in the ledger the messages that mosquitto lost before the gateway read them, as `$SYS` shows them.

`$SYS/broker/publish/messages/dropped` counts the messages since mosquitto's start that fitted in no queue. It counts
for all clients of that mosquitto: with other subscribers the ledger may have too many, never too few. A state file has
the count in the ledger, written ahead: a crash between reporting and saving repeats the same record with the same id.

| observation | lost |
|---|---|
| counter above the reported one, same run of mosquitto | the difference |
| counter below the reported one, or a later start by the uptime | the whole counter |
| a later start by the uptime, more than MISSED_MS after the last counter | not known: a note and a log line |
| the gateway's session is gone | unknown |
| the session has a new name | unknown: the old queue stays in mosquitto |

A packet above `max_packet_size` gets no acknowledgement, so it is no loss. mosquitto closes its connection and logs it;
by `edge-gateway mosquitto-conf` it publishes its log. The gateway counts the packet and names the device (`oversize`).
Does not contain: the check whether these signals arrive (`sys_signals`).
Source: mosquitto(8), broker status; mosquitto.conf(5), log_dest topic.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from pathlib import Path
from typing import Any

from drupelet.errors import reason
from drupelet.observe.log_tree import Log
from drupelet.observe.log_window import LogWindow, Timers
from drupelet.printable import shell_word
from gateway import state
from gateway.kafka.publisher import Publisher
from gateway.metrics import Metrics
from gateway.records.records import CAUSE_QUEUE_DROPPED, Loss, loss_id_for, new_loss_id
from gateway.sources.mqtt.oversize import OversizeClients, oversize_packet
from gateway.sources.mqtt.sys_signals import CONNECTIONS_TOPIC, DROPPED_TOPIC, LOG_TOPIC, UPTIME_TOPIC, SysSignals

SYS_TOPICS = (UPTIME_TOPIC, DROPPED_TOPIC, LOG_TOPIC, CONNECTIONS_TOPIC)
LINE_BYTES_MAX = 300  # of mosquitto's log, in the gateway's
RESTART_SLACK_MS = 30_000  # clocks drift and `$SYS` is late; a restart within it is still seen by a smaller counter
MISSED_MS = 60_000  # a reboot of the board; in that time no queue fills
MISSED_SHOWN_S = 3_600.0
SESSION_ORIGIN = "mqtt:session/"
_log = Log("gateway.mosquitto")


def is_restart(saved_started_ms: int | None, uptime_s: int, now_ms: int) -> bool:
    """Return whether an uptime read right after connecting belongs to a later run than the saved start."""
    return saved_started_ms is not None and now_ms - uptime_s * 1000 > saved_started_ms + RESTART_SLACK_MS


def dropped_since(reported: int, dropped: int) -> int:
    """Return how many lost messages of a counter are not yet reported; a smaller counter has restarted."""
    return dropped - reported if dropped >= reported else dropped


def _read_saved(path: Path, saved: dict[str, Any]) -> tuple[bool, int | None, int, list[Loss]]:
    """Return session, started_ms, dropped and pending of a state file, if it has them; raises StateError."""
    session, started_ms = saved.get("session", False), saved.get("started_ms")
    dropped, pending = saved.get("dropped", 0), saved.get("pending", [])
    try:
        losses = [Loss(**fields) for fields in pending] if isinstance(pending, list) else None
    except TypeError:
        losses = None
    if (
        losses is not None
        and isinstance(session, bool)
        and (started_ms is None or _is_count(started_ms))
        and _is_count(dropped)
        and all(_is_loss(loss) for loss in losses)
    ):
        return session, started_ms, dropped, losses
    raise state.StateError(
        f"{path} is damaged (not what the gateway writes): remove it, and mosquitto's drops are counted again"
    )


def _heard_ms(saved: dict[str, Any]) -> int | None:
    heard_ms = saved.get("heard_ms")
    return heard_ms if _is_count(heard_ms) else None


def _count_of(payload: bytes) -> int | None:
    try:
        number = int(payload.split()[0])
    except (ValueError, IndexError):
        return None
    return number if number >= 0 else None


def _rate_of(payload: bytes) -> float | None:
    try:
        number = float(payload.split()[0])
    except (ValueError, IndexError):
        return None
    return number if 0 <= number < math.inf else None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_loss(loss: Loss) -> bool:
    texts = isinstance(loss.id, str) and isinstance(loss.cause, str) and isinstance(loss.topic, str)
    sizes = all(value is None or _is_count(value) for value in (loss.records, loss.bytes))
    places = (loss.partition, loss.first_offset, loss.end_offset) == (None, None, None)
    return texts and sizes and places and _is_count(loss.time_ms)


class MosquittoWatch:
    """Turns `$SYS` figures and lost sessions into ledger records, each once."""

    def __init__(
        self,
        publisher: Publisher,
        state_path: Path,
        client_id: str,
        metrics: Metrics,
        *,
        signals: SysSignals | None = None,
        left_behind: tuple[str, int] | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        timers: Callable[[], Timers] = asyncio.get_running_loop,
    ) -> None:
        self._publisher = publisher
        self._path = state_path
        self.signals = signals or SysSignals("?")
        self._client_id = client_id
        self._now_ms = now_ms
        self._uptime_s: int | None = None  # None until the first one on this connection
        self._dropped: int | None = None  # likewise
        self._changed = asyncio.Event()
        self.noted = asyncio.Event()  # set once the losses found at the start are on disk
        self.trouble: str | None = None
        self._saved = state.load(state_path) or {}
        saved = _read_saved(state_path, self._saved)
        self._had_session, self._started_ms, self._reported, self._pending = saved
        self._heard_ms = _heard_ms(self._saved)
        self._missed = ""
        self._missed_s = 0.0
        self._oversize = metrics.mqtt_oversize
        self._oversize_clients = OversizeClients()
        self._oversize_unlogged = 0
        self._oversize_window: LogWindow | None = None  # begins with the first packet that has no line
        self._timers = timers
        if left_behind is not None:
            self._leave(*left_behind)

    def connection_lost(self) -> None:
        """Discard the `$SYS` values of the connection that has ended."""
        if self._uptime_s is not None:
            self._heard_ms = self._now_ms()
        self._uptime_s = self._dropped = None
        self.signals.connection_ended()

    def session_started(self, session_present: bool) -> None:
        """Note a new connection; a missing session is a loss of unknown size."""
        self._uptime_s = self._dropped = None
        if self._had_session and not session_present:
            self._lose(f"{SESSION_ORIGIN}{self._client_id}", None)
        self._had_session = True
        self._changed.set()

    def message_received(self, topic: str, payload: bytes, *, retained: bool = False) -> None:
        """Note a `$SYS` message; log and ignore one that is no number from 0 on."""
        if topic == LOG_TOPIC:
            self.signals.notice()
            self._log_line_received(payload)
            return
        number = _count_of(payload) if topic != CONNECTIONS_TOPIC else _rate_of(payload)
        if number is None:
            _log.warning("sys_value_ignored", topic=topic, value=repr(payload[:40]))
        elif topic == CONNECTIONS_TOPIC:
            self.signals.connections(number, retained=retained)
        else:
            self._count_received(topic, int(number))

    def _count_received(self, topic: str, number: int) -> None:
        if topic == UPTIME_TOPIC:
            self.signals.uptime(number, time.monotonic())
            self._uptime(number)
        else:
            self.signals.drops_received()
            self._dropped = number
        if self._uptime_s is not None and self._dropped is not None:
            self._compare(self._dropped)

    def note(self) -> str | None:
        """Return in one line what mosquitto may have dropped, or which device sends too much, while that is recent."""
        if self._missed and time.monotonic() - self._missed_s < MISSED_SHOWN_S:
            return self._missed
        return self._oversize_clients.note(time.monotonic())

    def _log_line_received(self, line: bytes) -> None:
        found = oversize_packet(line)
        if found is None:
            return
        self._oversize.inc()
        if not self._oversize_clients.note_packet(found.client_id, time.monotonic()):
            self._sum_later()
            return
        remedy = "send less at once, or raise mosquitto.packet_bytes_max and write mosquitto.conf again"
        said = line[:LINE_BYTES_MAX].decode("utf-8", "backslashreplace") if found.client_id is None else None
        reason = found.reason or None
        _log.warning("packet_too_large", client_id=found.client_id, line=said, reason=reason, remedy=remedy)

    def _sum_later(self) -> None:
        if self._oversize_window is None:
            self._oversize_window = LogWindow(self._timers(), self._log_unlogged)
        self._oversize_window.begin()
        self._oversize_unlogged += 1

    def _log_unlogged(self, seconds: str) -> None:
        count, self._oversize_unlogged = self._oversize_unlogged, 0
        _log.warning("packets_too_large_summed", left_out=count, seconds=seconds)

    def _leave(self, client_id: str, change: int) -> None:
        """Record the loss of a session under its former name; `change` makes the id of each change unique."""
        self._had_session = False
        loss_id = loss_id_for("session left behind", self._path, change, client_id, self._client_id)
        if all(loss.id != loss_id for loss in self._pending):
            topic = f"{SESSION_ORIGIN}{client_id}"
            self._pending.append(Loss(loss_id, CAUSE_QUEUE_DROPPED, topic, None, None, self._now_ms()))

    def _reason(self, loss: Loss) -> str:
        client_id = loss.topic.removeprefix(SESSION_ORIGIN)
        if client_id == loss.topic:
            return "mosquitto dropped them, by its own count: the queue was full, or their client gone"
        if client_id == self._client_id:
            return "mosquitto has lost our session and its queue: it restarted without its file, or could not write it"
        return (
            f"mqtt.client_id was changed: the queue of {client_id} stays in mosquitto. Take the old id back to read it,"
            f" or drop it: `mosquitto_sub -i {shell_word(client_id)} -t x -E`"
        )

    def _uptime(self, uptime_s: int) -> None:
        now_ms = self._now_ms()
        if self._uptime_s is None and is_restart(self._started_ms, uptime_s, now_ms):
            self._miss(now_ms - uptime_s * 1000)
            self._reported = 0
            self._started_ms = None
        if self._started_ms is None:
            self._started_ms = now_ms - uptime_s * 1000
            self._changed.set()
        self._uptime_s = uptime_s
        self._heard_ms = now_ms

    def _miss(self, started_ms: int) -> None:
        """Note a restart of mosquitto whose last counter did not arrive."""
        heard_ms = self._heard_ms
        if not self.signals.wants_drops or (heard_ms is not None and started_ms - heard_ms <= MISSED_MS):
            return
        since = (
            "the gateway last heard it" if heard_ms is None else time.strftime("%FT%TZ", time.gmtime(heard_ms / 1000))
        )
        self._missed = (
            "mosquitto was started again while the gateway did not hear it: how many messages it dropped between "
            f"{since} and that start is not known; devices' own sequence numbers tell"
        )
        self._missed_s = time.monotonic()
        _log.warning("drops_not_heard", reason=self._missed)

    def _compare(self, dropped: int) -> None:
        lost = dropped_since(self._reported, dropped)
        if dropped < self._reported:
            self._started_ms = None
        if dropped != self._reported:
            self._reported = dropped
            self._changed.set()
        if lost:
            self._lose(f"mqtt:{DROPPED_TOPIC}", lost)

    def _lose(self, topic: str, records: int | None) -> None:
        self._pending.append(Loss(new_loss_id(), CAUSE_QUEUE_DROPPED, topic, records, None, self._now_ms()))
        self._changed.set()

    async def run(self) -> None:
        """Report and save until cancelled; then save the time of mosquitto's last signal."""
        try:
            while True:
                await self._save()
                while self._pending:
                    await self._report(self._pending[0])
                await self._changed.wait()
                self._changed.clear()
        finally:
            if self._oversize_window is not None:
                self._oversize_window.end()
            await self._save(self._now_ms() if self._uptime_s is not None else self._heard_ms)

    async def _report(self, loss: Loss) -> None:
        written = asyncio.Event()
        self._publisher.report(loss, written.set, reason=self._reason(loss))
        await written.wait()
        self._pending.remove(loss)
        await self._save()

    async def _save(self, heard_ms: int | None = None) -> None:
        content: dict[str, Any] = {
            "session": self._had_session,
            "started_ms": self._started_ms,
            "dropped": self._reported,
            "pending": [asdict(loss) for loss in self._pending],
        }
        if heard_ms is not None:
            content["heard_ms"] = heard_ms
        if content == self._saved:
            self.noted.set()
            return
        try:
            await _whole(asyncio.to_thread(state.save, self._path, content))
        except OSError as error:  # a full disk must not end the gateway; a crash now would repeat or lose a report
            self.trouble = f"what mosquitto dropped cannot be noted in {self._path} ({reason(error)})"
            _log.error("state_unsaved", path=self._path, error=error)
        else:
            self.trouble = None
            self._saved = content
            self.noted.set()


async def _whole(work: Coroutine[Any, Any, None]) -> None:
    """Wait for a thread's end even if cancelled: two concurrent writers would corrupt the file."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
