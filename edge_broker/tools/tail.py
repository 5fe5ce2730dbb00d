"""`edge-broker tail`: the last records of a topic, those since an offset or a time, and those that come.

Contains: which records are wanted, how each is printed. Does not contain: requests (wire_client).
"""

from __future__ import annotations

import base64
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from drupelet.backoff import Backoff
from drupelet.errors import ConfigurationError
from drupelet.host.boot_clock import BOOT_ID_HEADER, BOOT_TIME_HEADER, BOOT_TIMES_TOPIC, decode_boot
from drupelet.printable import printable
from edge_broker.clock import SystemClock
from edge_broker.errors import error_name
from edge_broker.output import time_text, write_json
from edge_broker.protocol.record_batch import Record
from edge_broker.tools.limits import LAST
from edge_broker.wire_client.cluster import EARLIEST, LATEST, Cluster, Partition, Topic
from edge_broker.wire_client.connection import NotThere, WireFailure
from edge_broker.wire_client.reading import Position, Read, Reader, Remark

KEPT_BYTES_MAX = 64 * 1024 * 1024  # hard bound on what the last N records may weigh
SHOWN_BYTES_MAX = 1000
WIDER = 4  # times the window, when offsets held fewer records than were asked for
UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
TIME_UNIT_HEADER, RECEIVED = "time_unit", b"received"  # another value: the time is the device's, not the board's
DEAD_LETTER_HEADER = "dead_letter.reason"
BOOT_TIME_DIGITS_MAX = 15
REREAD_S = 10.0
HINT = "write an offset as 4711, an age as 30s, 15m, 2h or 7d, or a time as 2026-05-01T12:00"


class TailOptions(NamedTuple):
    """The options; `number` is None if it was not given."""

    topic: str
    number: int | None
    follow: bool
    partition: int | None
    begin: str | None
    as_json: bool


class BootTimes:
    """When boots began, as gateways published it.

    Read at the first record of a board whose clock was not set, and again after REREAD_S for a boot that is not known:
    a topic that is followed may outlive the moment at which the clock is set.
    """

    def __init__(
        self, topic: str, read: Callable[[str], dict[str, int]], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._topic = topic
        self._read = read
        self._now_s = now_s
        self._epochs_ms: dict[str, int] = {}
        self._read_again_s: float | None = None

    def corrected_ms(self, record: Record) -> int | None:
        """The right time of a record, -1 where its boot is not known, None where it needs no correction."""
        headers = {name: content or b"" for name, content in record.headers}
        boot_id, boot_time = headers.get(BOOT_ID_HEADER), headers.get(BOOT_TIME_HEADER)
        if boot_id is None or boot_time is None or _is_of_device(headers):
            return None
        if not boot_time.isdigit() or len(boot_time) > BOOT_TIME_DIGITS_MAX:
            return -1
        epoch_ms = self._epoch_ms(boot_id.decode(errors="replace"))
        return -1 if epoch_ms is None else epoch_ms + int(boot_time)

    def _epoch_ms(self, boot_id: str) -> int | None:
        if boot_id not in self._epochs_ms and (self._read_again_s is None or self._now_s() >= self._read_again_s):
            self._epochs_ms = self._read(self._topic)
            self._read_again_s = self._now_s() + REREAD_S
        return self._epochs_ms.get(boot_id)


def _is_of_device(headers: dict[str, bytes]) -> bool:
    """Whether a record's time is its device's. A dead letter has the time of receipt, and the headers of its record."""
    return DEAD_LETTER_HEADER not in headers and headers.get(TIME_UNIT_HEADER, RECEIVED) != RECEIVED


def boot_times_topics(topic: str) -> list[str]:
    """The topics that may say when a topic's boards were started: those of its site first, as a mirror names them."""
    parts = topic.split(".")[:-1]
    return [".".join([*parts[:size], BOOT_TIMES_TOPIC]) for size in range(len(parts), -1, -1)]


class Tail:
    """One run; `reopen` connects again when the broker went away while its topic is followed."""

    def __init__(self, cluster: Cluster, wanted: TailOptions, timeout_s: float, reopen: Callable[[], Cluster]) -> None:
        self.wanted = wanted
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._reopen = reopen
        self._failed = False
        self._left = wanted.number if wanted.begin is not None else None
        self._boots = BootTimes(wanted.topic, self._read_boot_times)

    def run(self) -> int:
        """Print until the end, or until Ctrl-C; 0, 1 when something could not be read. WireFailure."""
        begin = None if self.wanted.begin is None else parse_begin(self.wanted.begin, SystemClock().wall_ms())
        topic = self._cluster.topic(self.wanted.topic)
        partitions = self._choose(topic)
        starts, ends = self._offsets(partitions, EARLIEST), self._offsets(partitions, LATEST)
        partitions = [one for one in partitions if one.number in starts and one.number in ends]
        if begin is None:
            number = LAST if self.wanted.number is None else self.wanted.number
            for read in self._last(partitions, number, starts, ends):
                self._print(read)
            positions = [Position(one.number, one.leader, ends[one.number], None) for one in partitions]
            if not self.wanted.follow:
                positions = []
        else:
            positions = self._from(begin, partitions, starts, ends)
        self._stream(Reader(self._cluster, self.wanted.topic, positions))
        return int(self._failed)

    def _choose(self, topic: Topic) -> list[Partition]:
        if self.wanted.partition is None:
            return topic.partitions
        chosen = [one for one in topic.partitions if one.number == self.wanted.partition]
        if not chosen:
            last = len(topic.partitions) - 1
            use = f"use 0 to {last}" if last else "it has partition 0 alone"
            raise NotThere(f"topic {topic.name!r} has no partition {self.wanted.partition}: {use}")
        return chosen

    def _offsets(self, partitions: list[Partition], timestamp: int) -> dict[int, int]:
        """The offset of each partition that tells one; what is wrong with the others is said."""
        topic = Topic(self.wanted.topic, False, partitions, 0)
        told = self._cluster.offsets([topic], timestamp)
        found: dict[int, int] = {}
        for one in partitions:
            answer = told.get((topic.name, one.number))
            if answer is not None and not answer.error_code:
                found[one.number] = answer.offset
            elif timestamp == EARLIEST:
                why = error_name(answer.error_code) if answer is not None else "it has no leader"
                self._say(Remark(one.number, f"cannot be read: {why}", True))
        return found

    def _last(
        self, partitions: list[Partition], number: int, starts: dict[int, int], ends: dict[int, int]
    ) -> list[Read]:
        """The last records of all these partitions, in the order of their times where there are several."""
        kept: list[Read] = []
        for one in partitions if number else []:
            kept += self._last_of(one, number, starts[one.number], ends[one.number])
            if len(partitions) > 1:
                kept.sort(key=lambda read: (read.record.timestamp, read.partition, read.record.offset))
                kept = kept[-number:]
        return kept

    def _last_of(self, partition: Partition, number: int, start: int, end: int) -> list[Read]:
        """The last records of one partition: read from so many offsets before the end, and from further, as needed."""
        found: list[Read] = []
        window = number
        while len(found) < number and start < end:
            begin = max(start, end - window)
            found = [*self._window(partition, number - len(found), begin, end), *found]
            end, window = begin, window * WIDER
        return found

    def _window(self, partition: Partition, number: int, begin: int, end: int) -> deque[Read]:
        kept: deque[Read] = deque()
        size = 0
        reader = Reader(self._cluster, self.wanted.topic, [Position(partition.number, partition.leader, begin, end)])
        for read in self._reads(reader):
            kept.append(read)
            size += _size(read.record)
            if len(kept) > number:
                size -= _size(kept.popleft().record)
            if size > KEPT_BYTES_MAX:
                raise WireFailure(
                    f"the last {number} records have more than {KEPT_BYTES_MAX // 1024**2} MiB: ask for fewer with -n, "
                    "or for all as they come with --from"
                )
        return kept

    def _from(
        self, begin: tuple[int, bool], partitions: list[Partition], starts: dict[int, int], ends: dict[int, int]
    ) -> list[Position]:
        """Where to begin in each partition; an offset that is not there any more, or not yet, is said."""
        value, is_time = begin
        at_times = self._offsets(partitions, value) if is_time else {}
        positions = []
        for one in partitions:
            start, end = starts[one.number], ends[one.number]
            offset = at_times.get(one.number, -1) if is_time else value
            if not is_time and not start <= offset <= end:
                has = f"it has {start} to {end - 1}" if start < end else f"it is empty, and goes on at {end}"
                self._say(Remark(one.number, f"offset {offset} is not there: {has}", False))
            offset = end if offset < 0 else min(max(offset, start), end)
            positions.append(Position(one.number, one.leader, offset, None if self.wanted.follow else end))
        return positions

    def _stream(self, reader: Reader) -> None:
        for read in self._reads(reader):
            if self._left == 0:
                return
            self._print(read)
            if self._left is not None:
                self._left -= 1

    def _reads(self, reader: Reader) -> Iterator[Read]:
        """Every record until the reader is done; a moved leader is looked up, if followed a lost broker, too."""
        backoff, since_s, lost = Backoff(), time.monotonic(), False
        while not reader.is_done:
            try:
                if reader.moved:
                    self._look_up(reader)
                for one in reader.round():
                    since_s, lost = time.monotonic(), False
                    if isinstance(one, Read):
                        yield one
                    else:
                        self._say(one)
                sys.stdout.flush()
                if not reader.moved:
                    backoff.reset()
                    since_s, lost = time.monotonic(), False
                    continue
                if not self.wanted.follow and time.monotonic() - since_s > self._timeout_s:
                    raise WireFailure(f"topic {reader.topic!r} found no leader within {self._timeout_s:g} s")
            except WireFailure as failure:
                if not self.wanted.follow or not failure.unreachable:
                    raise
                if not lost:
                    self._warn(f"{failure}; trying again until it answers")
                lost, reader.moved = True, True
                self._cluster.close()
            time.sleep(backoff.next_s())

    def _look_up(self, reader: Reader) -> None:
        """Find the leaders again, through a new connection."""
        self._cluster.close()
        self._cluster = reader.cluster = self._reopen()
        for one in self._cluster.topic(reader.topic).partitions:
            if one.number in reader.positions:
                reader.positions[one.number].leader = one.leader
        reader.moved = False

    def _say(self, remark: Remark) -> None:
        self._failed |= remark.is_failure
        self._warn(f"{self.wanted.topic}-{remark.partition} {remark.text}")

    def _warn(self, text: str) -> None:
        sys.stdout.flush()
        print(f"edge-broker: {printable(text)}", file=sys.stderr)

    def _read_boot_times(self, topic: str) -> dict[str, int]:
        """The epoch of each boot in the first topic of boot times that exists; none where it cannot be read."""
        found: dict[str, int] = {}
        try:
            existing = self._cluster.topics()
            name = next((name for name in boot_times_topics(topic) if name in existing), None)
            if name is None:
                return found
            partitions = self._cluster.topic(name).partitions
            wanted = Topic(name, False, partitions, 0)
            starts, ends = (self._cluster.offsets([wanted], when) for when in (EARLIEST, LATEST))
            positions = [
                Position(one.number, one.leader, starts[name, one.number].offset, ends[name, one.number].offset)
                for one in partitions
                if (name, one.number) in starts and (name, one.number) in ends
            ]
            for read in self._reads(Reader(self._cluster, name, positions)):
                if (boot := decode_boot(read.record.key, read.record.value)) is not None:
                    found[boot[0]] = boot[1]
        except WireFailure as failure:
            self._warn(f"times of boards whose clock was not set are not corrected: {failure}")
        return found

    def _print(self, read: Read) -> None:
        corrected_ms = self._boots.corrected_ms(read.record)
        if self.wanted.as_json:
            write_json(facts(self.wanted.topic, read, corrected_ms))
        else:
            print(line(read, corrected_ms))


def parse_begin(text: str, now_ms: int) -> tuple[int, bool]:
    """The value of --from, and whether it is a time in ms since 1970 rather than an offset. ConfigurationError."""
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text), False
    if match := re.fullmatch(r"(\d{1,9})([smhd])", text, re.ASCII):
        return max(0, now_ms - int(match[1]) * UNITS_MS[match[2]]), True
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return max(0, int(moment.timestamp() * 1000)), True
    except (ValueError, OverflowError):
        raise ConfigurationError(f"--from is {text!r}: {HINT}") from None


def line(read: Read, corrected_ms: int | None = None) -> str:
    """A record as people read it: time, partition/offset, key, value.

    A time that was corrected ends in `*`, one of an unset clock whose boot is not known in `?`.
    """
    record = read.record
    place = f"{read.partition}/{record.offset}"
    if corrected_ms is None:
        time_shown = time_text(record.timestamp)
    else:
        time_shown = f"{time_text(record.timestamp)}?" if corrected_ms < 0 else f"{time_text(corrected_ms)}*"
    return f"{time_shown}  {place:<10}  {as_text(record.key)}  {as_text(record.value)}"


def as_text(content: bytes | None) -> str:
    """Bytes as text that does no harm to a terminal, cut where they are long; `null` in brackets is none."""
    if content is None:
        return "(null)"
    text = printable(content[:SHOWN_BYTES_MAX].decode(errors="backslashreplace"))
    return text if len(content) <= SHOWN_BYTES_MAX else f"{text}… ({len(content):,} bytes)"


def facts(topic: str, read: Read, corrected_ms: int | None = None) -> dict[str, Any]:
    """A record whole; what is no UTF-8 is base64, under a name that says so."""
    record = read.record
    return {
        "topic": topic,
        "partition": read.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **({} if corrected_ms is None else {"corrected_timestamp": None if corrected_ms < 0 else corrected_ms}),
        **_field("key", record.key),
        **_field("value", record.value),
        "headers": [{"name": name, **_field("value", content)} for name, content in record.headers],
    }


def _field(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}


def _size(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"") + sum(len(one or b"") for _, one in record.headers)
