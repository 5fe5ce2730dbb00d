"""Read the kernel's clocks of one boot, and encode the record of a boot's beginning.

| state of the wall clock | when |
|---|---|
| synchronised | the kernel says so (STA_UNSYNC is clear), or systemd-timesyncd left its mark in this boot |
| unsynchronised | the kernel says so, or the clock shows a time before this version was built |
| set by hand after it was synchronised | the kernel says unsynchronised again: settimeofday(2) sets STA_UNSYNC |
| unknown (None) | the kernel refuses adjtimex(2), as in some containers |

A board without a set clock has its uptime: CLOCK_BOOTTIME. Once its clock is synchronised, the wall clock minus
that time is the epoch of the boot, which corrects every time noted before. chronyd clears STA_UNSYNC only with
`rtcsync`; ntpd, phc2sys and systemd-timesyncd always do. Source: adjtimex(2), clock_gettime(2), random(4).

| field of a record in `boot_times`, whose key is the boot id | content |
|---|---|
| `version` | 1 |
| `boot_id` | /proc/sys/kernel/random/boot_id |
| `host` | the host's name |
| `boot_epoch_ms` | epoch milliseconds at which the boot began |

Does not contain: the publisher of the record (gateway/records/boot_times.py), the readers that correct by it.
"""

from __future__ import annotations

import json
import os
import time
from typing import NamedTuple, Protocol

from drupelet.host.kernel_clock import is_synchronised
from drupelet.installation import built_s

BOOT_TIMES_TOPIC = "boot_times"
BOOT_TIMES_CONFIG = {"cleanup.policy": "compact"}
BOOT_ID_HEADER = "boot_id"
BOOT_TIME_HEADER = "boot_time_ms"
VERSION = 1
EPOCH_MS_MAX = 1 << 53
BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"
TIMESYNC_MARK = "/run/systemd/timesync/synchronized"


class BootMoment(NamedTuple):
    """A moment by the clock that no time service sets: a boot, and the milliseconds since it began."""

    boot_id: str
    boot_time_ms: int

    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """Return the Kafka headers of a record that was noted at this moment."""
        return (BOOT_ID_HEADER, self.boot_id.encode()), (BOOT_TIME_HEADER, b"%d" % self.boot_time_ms)


class BootClock(Protocol):
    """The clocks of one boot."""

    boot_id: str

    def boot_time_ms(self) -> int:
        """Milliseconds since the boot, those in which the machine slept too."""

    def slept_ms(self) -> int:
        """Milliseconds of this boot in which the machine slept."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 by the wall clock."""

    def is_synchronised(self) -> bool | None:
        """Return whether the wall clock was set in this boot; None if the kernel does not report it."""

    def is_kept(self) -> bool | None:
        """Return whether a time service keeps the wall clock right now; None if the kernel does not report it."""


class KernelBootClock:
    """The machine's own; `trusted` is `auto`, or the answer of `is_synchronised` as `true` or `false`."""

    def __init__(self, trusted: str = "auto", boot_id_path: str = BOOT_ID_PATH) -> None:
        self._trusted = trusted
        self._built_ms = built_s() * 1000
        self.boot_id = _boot_id(boot_id_path)

    def boot_time_ms(self) -> int:
        """Milliseconds since the boot, those in which the machine slept too."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

    def slept_ms(self) -> int:
        """Milliseconds of this boot in which the machine slept."""
        awake_ms = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000
        return max(0, self.boot_time_ms() - awake_ms)

    def wall_ms(self) -> int:
        """Milliseconds since 1970 by the wall clock."""
        return time.time_ns() // 1_000_000

    def is_synchronised(self) -> bool | None:
        """Return whether the wall clock was set in this boot; None if the kernel does not report it."""
        if self._trusted == "auto" and self.wall_ms() >= self._built_ms and os.path.exists(TIMESYNC_MARK):
            return True
        return self.is_kept()

    def is_kept(self) -> bool | None:
        """Return whether a time service keeps the wall clock right now; None if the kernel does not report it."""
        if self._trusted != "auto":
            return self._trusted == "true"
        return False if self.wall_ms() < self._built_ms else kernel_synchronised()


def kernel_synchronised() -> bool | None:
    """Return whether the kernel holds the clock as synchronised; None where it refuses the question."""
    try:
        return is_synchronised()
    except OSError:
        return None


def _boot_id(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def encode_boot(boot_id: str, host: str, boot_epoch_ms: int) -> tuple[bytes, bytes]:
    """Return key and value of the record that says when a boot began."""
    fields = {"version": VERSION, "boot_id": boot_id, "host": host, "boot_epoch_ms": boot_epoch_ms}
    return boot_id.encode(), json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def decode_boot(key: bytes | None, value: bytes | None) -> tuple[str, int] | None:
    """Return the boot id and its epoch in ms; None for anything that is no such record."""
    try:
        fields = json.loads(value or b"")
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or fields.get("version") != VERSION or isinstance(fields["version"], bool):
        return None
    boot_id, epoch_ms = fields.get("boot_id"), fields.get("boot_epoch_ms")
    if not isinstance(boot_id, str) or not boot_id or key != boot_id.encode("utf-8", "replace"):
        return None
    if not isinstance(epoch_ms, int) or isinstance(epoch_ms, bool) or not 0 <= epoch_ms < EPOCH_MS_MAX:
        return None
    return boot_id, epoch_ms
