"""The replicator: reads the source, sends to the target, commits what is safe, and writes down what is missing.

No Kafka client may be used here but through clients.py and target.py; what to do is decided in plan.py and offsets.py.

| task        | does                                                                                        |
|-------------|---------------------------------------------------------------------------------------------|
| read        | finds topics, reads records into the lanes, settles every gap before it reads on; a lane whose |
|             | position may not stand is not read until positions.py has judged it                            |
| send (lane) | one per partition: one batch under way at a time, so order is kept whatever fails              |
| keep target | makes the producer, and makes it anew after any failed delivery                                |
| commit      | stores positions: every commit interval, or as soon as a lane runs short of its reservation    |
| watch       | lag, health, log lines when a side falls silent or comes back                                  |

Every task works for ever and backs off by itself; an exception that leaves one is a bug and ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aiokafka import TopicPartition

from drupelet.backoff import Backoff
from drupelet.kafka_client import ClientSettings
from drupelet.ledger import LEDGER_CONFIG, LEDGER_TOPIC
from drupelet.log_tree import Log
from kafka_wire.cluster import Topic
from mirror import ledger, plan, topics
from mirror.clients import Source
from mirror.config import Config
from mirror.errors import (
    FencedError,
    OutOfRangeError,
    PositionsError,
    RecordTooLargeError,
    SourceError,
    TargetError,
)
from mirror.lane import Lane
from mirror.metrics import Metrics
from mirror.offsets import Commit, PartitionOffsets
from mirror.positions import Positions
from mirror.target import Target

_log = Log("mirror")

NOT_YET = "not reached yet"
BACKOFF_FIRST_S = 0.1
POLL_WAIT_MS = 200
POLL_RECORDS_MAX = 4_000
RECORD_OVERHEAD_BYTES = 400  # of a record in this process's memory, beside its key, value and headers
RECORD_FRAME_BYTES = 24  # of a record in a batch, at most a few more for large ones
SETTLE_S = 5.0
STEADY_S = 30.0  # of reading without trouble, after which the back-off starts again from its shortest
SILENT_S = 5.0  # without an answer, after which a side counts as away
SOURCE_SILENT_REOPEN_S = 60.0
WATCH_S = 1.0


class Replicator:
    """Mirrors until it is told to stop; `trouble()` says what is wrong, `metrics` counts."""

    def __init__(self, config: Config, metrics: Metrics) -> None:
        self.config = config
        self.metrics = metrics
        self.source = Source(config.source_client, config.group_id)
        self.target = target_of(config, config.target_client)
        self.node = f"mirror@{socket.gethostname()}"
        self._ledger = target_of(config, config.source_client)
        self._ledger_open = False
        self._ledger_lock = asyncio.Lock()
        self._lanes: dict[TopicPartition, Lane] = {}
        self._window = plan.LinkWindow(config.buffer_bytes_max)
        self._under_way_bytes = 0
        self._quiet = asyncio.Event()  # set while no batch is under way
        self._quiet.set()
        self._buffered_bytes = 0
        self._generation = 0
        self._target_up = asyncio.Event()
        self._target_broken = asyncio.Event()
        self._target_backoff = self._backoff()
        self._commit_now = asyncio.Event()
        self._room = asyncio.Event()
        self._stopping = False
        self._nothing_selected = False
        self._troubles: dict[str, str] = {"source": NOT_YET, "target": NOT_YET}

    # -- life ------------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Mirror until `stop` is set; then wait for the acknowledgements under way, commit, and close."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            loops = [self._read(), self._keep_target(), self._commit(), self._watch()]
            running = [tasks.create_task(loop) for loop in loops]
            await stop.wait()
            await self._wind_up(running)
        await self._last_commit()
        await self._close()

    async def _wind_up(self, running: list[asyncio.Task[None]]) -> None:
        self._stopping = True
        running[0].cancel()
        try:
            async with asyncio.timeout(self.config.stop_timeout_ms / 1000):
                await self._quiet.wait()
        except TimeoutError:
            _log.warning("stop_without_ack", bytes=self._under_way_bytes)
        for task in [*running, *(lane.task for lane in self._lanes.values() if lane.task is not None)]:
            task.cancel()

    async def _last_commit(self) -> None:
        try:
            await self._store(lambda lane: lane.offsets.last_commit())
        except SourceError as error:
            _log.warning("last_commit_failed", error=error)

    async def _close(self) -> None:
        await asyncio.gather(self.source.close(), self.target.close(), self._ledger.close())
        _log.info("stopped")

    def trouble(self) -> str:
        """Return what is wrong in one line, or empty text."""
        return "; ".join(f"{name}: {text}" for name, text in self._troubles.items())

    def _set_trouble(self, name: str, text: str) -> None:
        before = self._troubles.pop(name, "")
        if text:
            self._troubles[name] = text
        if text and before in ("", NOT_YET):
            _log.warning("trouble", where=name, error=text)
        elif before not in ("", NOT_YET) and not text:
            _log.info("well_again", where=name)

    def _backoff(self) -> Backoff:
        return Backoff(BACKOFF_FIRST_S, self.config.backoff_max_ms / 1000)

    # -- read: topics ----------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        backoff = self._backoff()
        while True:
            opened_at = time.monotonic()
            try:
                await self.source.open()
                self._judge_anew(self._lanes)
                await self._read_on()
            except SourceError as error:
                self._set_trouble("source", str(error))
            if time.monotonic() - opened_at > STEADY_S:
                backoff.reset()
            self.metrics.restarts.labels("source").inc()
            await self.source.close()
            await asyncio.sleep(backoff.next_s())

    async def _read_on(self) -> None:
        refresh_at, backoff = 0.0, self._backoff()
        while True:
            if time.monotonic() >= refresh_at or any(lane.may_go_back for lane in self._lanes.values()):
                all_read = await self._discover()
                self._set_trouble("source", "")
                if all_read:
                    backoff.reset()
                refresh_s = self.config.refresh_interval_ms / 1000
                refresh_at = time.monotonic() + (refresh_s if all_read else min(refresh_s, backoff.next_s()))
            try:
                await self._read_some()
            except OutOfRangeError as error:
                await self._settle_out_of_range(error.positions)
                self._assign()
            except FencedError as error:
                self._judge_anew(error.partitions)
                refresh_at = 0.0

    def _judge_anew(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if partition in self._lanes:
                self._lanes[partition].leader_epoch = None

    async def _discover(self) -> bool:
        """Bring the lanes in line with the source's topics, read those that stand; return whether all of them do."""
        found = await self.source.topics()
        names = self.config.selection.of(found)
        self._note_near_miss(self.config.selection.near_miss(found))
        wanted = {TopicPartition(name, number): found[name] for name in names for number in found[name].leaders}
        for partition, lane in list(self._lanes.items()):
            if partition not in wanted:
                self._drop(lane, "topic_gone")
            elif lane.topic_id not in (None, wanted[partition].topic_id):
                self._drop(lane, "topic_made_anew")
            else:
                lane.found(wanted[partition])
        before = {partition for partition, lane in self._lanes.items() if lane.is_read}
        all_there = await self._add({tp: topic for tp, topic in wanted.items() if tp not in self._lanes})
        await Positions(self.source, self.target, self._lose, self._set_trouble).settle(self._lanes.values())
        after = {partition for partition, lane in self._lanes.items() if lane.is_read}
        if before != after or self.source.assigned != after:
            self._assign()
        return all_there and len(after) == len(self._lanes)

    def _note_near_miss(self, near: str | None) -> None:
        """Say once that no topic is selected: the pattern may be misspelt, or the topics are yet to come."""
        if near is not None and not self._nothing_selected:
            meant = {"did_you_mean": near} if near else {}
            _log.warning("no_topic_matches", topics=self.config.topics, **meant, then="it begins when there is one")
        self._nothing_selected = near is not None

    async def _add(self, new: dict[TopicPartition, Topic]) -> bool:
        """Make lanes for new partitions; return False when their positions cannot be told yet."""
        if not new:
            self._set_trouble("positions", "")
            return True
        settings = await self.source.settings(sorted({partition.topic for partition in new}))
        try:
            commits = await self.source.commits(list(new))
        except PositionsError as error:  # what is read already is not held up
            self._set_trouble("positions", str(error))
            return False
        self._set_trouble("positions", "")
        starts, _ = await self.source.bounds([partition for partition in new if partition not in commits])
        for partition, topic in new.items():
            lane = self._new_lane(partition, settings[partition.topic])
            if lane is None:
                continue
            lane.found(topic)
            commit = commits.get(partition)
            lane.start(PartitionOffsets.resume(commit) if commit else PartitionOffsets(starts[partition]))
            if commit is None:
                lane.offsets.topic_id = topic.topic_id
            self._lanes[partition] = lane
            lane.task = self._tasks.create_task(self._send(lane))
            _log.info("resume" if commit else "begin", **lane.fields(), offset=lane.read_offset, to=lane.target_topic)
        self._commit_now.set()
        return True

    def _new_lane(self, partition: TopicPartition, settings: Mapping[str, str]) -> Lane | None:
        try:
            name = topics.target_name(partition.topic, self.config.name_policy, self.config.site or None)
        except topics.TopicNameError as error:
            self._set_trouble(partition.topic, str(error))
            return None
        lane = Lane(partition, name, settings)
        lane.batch_bytes_max = self.config.batch_bytes_max
        return lane

    def _drop(self, lane: Lane, event: str) -> None:
        partition = lane.partition
        del self._lanes[partition]
        _log.warning(event, **lane.fields(), acked=lane.offsets.acked)
        if lane.task is not None:
            lane.task.cancel()
        self._buffered_bytes -= lane.buffered_bytes
        self._set_trouble(lane.name, "")
        self._set_trouble(f"{lane.name} position", "")
        with contextlib.suppress(KeyError):
            self.metrics.lag.remove(partition.topic, str(partition.partition))

    def _assign(self) -> None:
        self.source.assign(
            {
                partition: (lane.read_offset, lane.leader_epoch)
                for partition, lane in self._lanes.items()
                if lane.leader_epoch is not None
            }
        )

    # -- read: records ---------------------------------------------------------------------------------------------

    async def _read_some(self) -> None:
        ready = [partition for partition, lane in self._lanes.items() if self._has_room(lane)]
        if not ready:
            self.source.excuse_silence()
            self._room.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_WAIT_MS / 1000):
                    await self._room.wait()
            return
        polled = await self.source.poll(ready, POLL_WAIT_MS, POLL_RECORDS_MAX)
        for partition, start in self.source.epoch_starts():
            self._lanes[partition].offsets.epochs.note(*start)
        for partition, records in polled.items():
            await self._accept(self._lanes[partition], records)
        for partition in ready:
            position = await self.source.position(partition)
            if position > self._lanes[partition].read_offset:
                await self._cross(self._lanes[partition], position)
                self._lanes[partition].wake.set()
        if self.source.silent_s() > SOURCE_SILENT_REOPEN_S:
            raise SourceError(f"no answer for {SOURCE_SILENT_REOPEN_S:.0f} s")

    def _has_room(self, lane: Lane) -> bool:
        lane_bytes_max = self.config.buffer_bytes_max // 4
        return (
            lane.is_read
            and lane.ensured_in > 0  # what has nowhere to go would fill the memory of the others
            and lane.buffered_bytes < lane_bytes_max
            and self._buffered_bytes < self.config.buffer_bytes_max
        )

    async def _accept(self, lane: Lane, records: list[Any]) -> None:
        """Take records into the lane, after every jump in their offsets was explained or written down."""
        if records[0].offset != lane.read_offset or records[-1].offset - records[0].offset + 1 != len(records):
            for count, record in enumerate(records):
                if record.offset != lane.read_offset:
                    await self._cross(lane, record.offset)
                self._buffer(lane, records[count : count + 1])
        else:
            self._buffer(lane, records)
        lane.wake.set()

    def _buffer(self, lane: Lane, records: list[Any]) -> None:
        lane.buffer.extend(records)
        lane.drained.clear()
        lane.read_offset = records[-1].offset + 1
        size = sum(_size(record) for record in records) + RECORD_OVERHEAD_BYTES * len(records)
        lane.buffered_bytes += size
        self._buffered_bytes += size

    async def _cross(self, lane: Lane, seen: int) -> None:
        """Settle the offsets between what was expected and what was seen, by the rule in plan.py."""
        if seen < lane.read_offset:
            raise SourceError(f"{lane.partition} went back from {lane.read_offset} to {seen}")
        await self._renew_settings(lane, seen)
        if lane.compacted:
            lane.read_offset = seen
            return
        spans = await self._spans(lane, seen)
        for piece in plan.judge_jump(lane.read_offset, seen, spans, compacted=lane.compacted):
            if piece.verdict == "unread":
                raise SourceError(f"{lane.partition} was read past offset {piece.first_offset}, which is there")
            if piece.verdict == "missing":
                await self._lose(lane, "source_offset_jump", piece.first_offset, piece.end_offset)
            lane.read_offset = piece.end_offset

    async def _renew_settings(self, lane: Lane, seen: int) -> None:
        """Judge a gap by a cleanup.policy that is a refresh interval old at most: somebody may have altered it."""
        if time.monotonic() - lane.settings_at < self.config.refresh_interval_ms / 1000:
            return
        topic = lane.partition.topic
        settings = (await self.source.settings([topic]))[topic]
        lane.take_settings(settings, max(seen, self.source.end_offset(lane.partition) or 0))

    async def _spans(self, lane: Lane, seen: int) -> list[plan.BatchSpan]:
        first, end, spans = lane.spans
        if not first <= lane.read_offset <= seen <= end:
            spans = await self.source.spans(lane.partition, lane.read_offset, seen)
            lane.spans = (lane.read_offset, spans[-1].end_offset, spans)
        return spans

    # -- read: gaps ------------------------------------------------------------------------------------------------

    async def _settle_out_of_range(self, positions: Iterable[TopicPartition]) -> None:
        wanted = [partition for partition in positions if partition in self._lanes]
        starts, ends = await self.source.bounds(wanted)
        read = {tp: self._lanes[tp].read_offset for tp in wanted}
        above = [tp for tp in wanted if self._lanes[tp].read_offset > ends[tp] and self._lanes[tp].has_epoch]
        if above:
            self._judge_anew(above)
            await self._discover()
        for partition in wanted:
            lane = self._lanes.get(partition)
            if lane is None or not lane.is_read or lane.read_offset != read[partition]:
                continue  # its epochs told
            verdict = plan.judge_out_of_range(lane.read_offset, starts[partition], ends[partition])
            if verdict.first_offset < verdict.end_offset:
                await self._lose(lane, "source_offset_out_of_range", verdict.first_offset, verdict.end_offset)
            if verdict.resume_offset < lane.read_offset:
                await self._rewind(lane, starts[partition], ends[partition])
            lane.read_offset = verdict.resume_offset
            lane.wake.set()

    async def _rewind(self, lane: Lane, log_start: int, log_end: int) -> None:
        """Start the lane again from the log's start, once what was read before is safe at the target."""
        _log.error("source_went_back", **lane.fields(), position=lane.read_offset, log_start=log_start, log_end=log_end)
        await lane.drained.wait()
        lane.start(PartitionOffsets.rewind(log_start, log_end, lane.offsets.target_end))
        lane.offsets.topic_id = lane.topic_id
        self._commit_now.set()

    async def _lose(
        self, lane: Lane, cause: ledger.Cause, first: int, end: int, size: int | None = None, occasion: str = ""
    ) -> None:
        """Write a loss down, at the source, acknowledged by all replicas; comes back only when that is done."""
        records = end - first if cause == "record_too_large" or not lane.compacted else None
        entry = ledger.loss(
            cause,
            lane.partition.topic,
            lane.partition.partition,
            first,
            end,
            records=records,
            size_bytes=size,
            time_ms=int(time.time() * 1000),
            node=self.node,
            occasion=occasion,
        )
        _log.error("loss", cause=cause, **lane.fields(), first_offset=first, last_offset=end - 1, records=records)
        async with self._ledger_lock:
            await self._write_down(entry)
        self.metrics.ledger.labels(cause).inc()

    async def _write_down(self, entry: ledger.Loss) -> None:
        backoff = self._backoff()
        while True:
            try:
                if not self._ledger_open:
                    await self._ledger.open()
                    await self._ledger.ensure_topic(TopicPartition(LEDGER_TOPIC, 0), 1, LEDGER_CONFIG)
                    self._ledger_open = True
                timeout_s = self.config.delivery_timeout_ms / 1000
                await self._ledger.write(LEDGER_TOPIC, *ledger.encode(entry), timeout_s)
            except TargetError as error:
                self._set_trouble("ledger", str(error))
                self._ledger_open = False
                await self._ledger.close()
                await asyncio.sleep(backoff.next_s())
            else:
                self._set_trouble("ledger", "")
                return

    # -- send ------------------------------------------------------------------------------------------------------

    async def _send(self, lane: Lane) -> None:
        backoff = self._backoff()
        while True:
            await self._target_up.wait()
            try:
                await self._ensure_topic(lane)
                self._set_trouble(lane.name, "")
                backoff.reset()
                await self._send_some(lane)
            except TargetError as error:
                self._set_trouble(lane.name, str(error))
                await asyncio.sleep(backoff.next_s())

    async def _ensure_topic(self, lane: Lane) -> None:
        if lane.ensured_in == self._generation:
            return
        generation = self._generation
        made = await self.target.ensure_topic(lane.at_target, lane.partitions, lane.settings)
        if made is not None:
            self._tell_created(lane, made)
        if lane.offsets.target_end is None:
            lane.offsets.know_target_end(await self.target.end_offset(lane.at_target))
        lane.ensured_in = generation
        self._room.set()

    def _tell_created(self, lane: Lane, made: Mapping[str, str]) -> None:
        fields = {"topic": lane.target_topic, "partitions": lane.partitions, "settings": _text(made)}
        left_out = {key: value for key, value in lane.settings.items() if key not in made}
        if left_out:
            _log.warning("topic_created", **fields, not_taken=_text(left_out))
        else:
            _log.info("topic_created", **fields)

    async def _send_some(self, lane: Lane) -> None:
        """Send the lane's next batch and wait for it, or wait until there is something to send."""
        lane.wake.clear()
        taken = None if self._stopping else self._take(lane)
        if taken is None:
            await lane.wake.wait()
            return
        batch, records, size = taken
        lane.offsets.send(records[-1].offset + 1, len(records))
        lane.sent_at = time.monotonic()
        generation = self._generation
        self._under_way_bytes += size
        self._quiet.clear()
        try:
            base_offset = await self.target.deliver(batch, lane.at_target, self.config.delivery_timeout_ms / 1000)
        except TargetError as error:
            await self._undelivered(lane, records, size, error, generation)
        else:
            self._delivered(lane, records, size, base_offset, time.monotonic() - lane.sent_at)
        finally:
            lane.sent_at = None
            self._under_way_bytes -= size
            if not self._under_way_bytes:
                self._quiet.set()

    def _take(self, lane: Lane) -> tuple[Any, list[Any], int] | None:
        """Return a batch of what may be sent now, its records and its bytes, or None when nothing may."""
        offsets, buffer = lane.offsets, lane.buffer
        ahead = buffer[0].offset if buffer else lane.read_offset
        if offsets.position < ahead:  # explained or in the ledger, and perhaps wider than the window
            offsets.skip(ahead)
        if offsets.wants_commit(self.config.window_records_max):
            self._commit_now.set()
        room = self._window.batch_bytes(self._under_way_bytes, lane.batch_bytes_max)
        if not buffer or not room or buffer[0].offset >= offsets.reserved:
            return None
        batch, size, count = self.target.batch(), 0, 0
        for record in buffer:
            record_bytes = _size(record)
            if record.offset >= offsets.reserved or (count and size + record_bytes > room):
                break
            if not _append(batch, record):
                break
            size += record_bytes
            count += 1
        return batch, [buffer.popleft() for _ in range(count)], size

    def _delivered(self, lane: Lane, records: list[Any], size: int, base_offset: int | None, seconds: float) -> None:
        acked = lane.offsets.ack(base_offset)
        self._window.acked(size, seconds)
        self._target_backoff.reset()
        self._free(lane, records, size)
        labels = (lane.partition.topic, str(lane.partition.partition))
        self.metrics.records.labels(*labels).inc(len(records))
        self.metrics.bytes.labels(*labels).inc(size)
        self.metrics.duplicates.inc(acked.duplicates)
        self.metrics.target_lost.inc(acked.target_lost)
        if acked.duplicates:
            _log.info("duplicates", **lane.fields(), records=acked.duplicates)
        if acked.target_lost:
            _log.error("target_lost", **lane.fields(), to=lane.target_topic, records=acked.target_lost)
        for other in self._lanes.values():
            if other.buffer:
                other.wake.set()

    def _free(self, lane: Lane, records: list[Any], size: int) -> None:
        freed = size + RECORD_OVERHEAD_BYTES * len(records)
        lane.buffered_bytes -= freed
        self._buffered_bytes -= freed
        self._room.set()
        if not lane.buffer:
            lane.drained.set()

    async def _undelivered(
        self, lane: Lane, records: list[Any], size: int, error: TargetError, generation: int
    ) -> None:
        """Put the batch back and have its producer made anew: the sequence numbers have a hole now."""
        lane.offsets.restart()
        lane.buffer.extendleft(reversed(records))
        if isinstance(error, RecordTooLargeError):
            await self._refused(lane, records, size)
        if generation == self._generation:
            self._target_up.clear()
            self._target_broken.set()
        self._set_trouble("target", str(error))

    async def _refused(self, lane: Lane, records: list[Any], size: int) -> None:
        if len(records) > 1:
            lane.batch_bytes_max = max(1, size // 2)
            return
        offset = records[0].offset
        await self._lose(lane, "record_too_large", offset, offset + 1, size - RECORD_FRAME_BYTES)
        lane.buffer.popleft()
        lane.offsets.skip(offset + 1)
        lane.batch_bytes_max = self.config.batch_bytes_max
        self._free(lane, records, size)

    async def _keep_target(self) -> None:
        while True:
            try:
                await self.target.open()
            except TargetError as error:
                self._set_trouble("target", str(error))
            else:
                self._generation += 1
                self._target_broken.clear()
                self._target_up.set()
                self._set_trouble("target", "")
                await self._target_broken.wait()
                await self._settle()
                self._window.failed()
                self.metrics.restarts.labels("target").inc()
            self._target_up.clear()
            await self.target.close()
            await asyncio.sleep(self._target_backoff.next_s())

    async def _settle(self) -> None:
        """Let the other lanes' batches arrive, so that they need not be sent twice."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                await self._quiet.wait()

    # -- commit ----------------------------------------------------------------------------------------------------

    async def _commit(self) -> None:
        backoff = self._backoff()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.config.commit_interval_ms / 1000):
                    await self._commit_now.wait()
            self._commit_now.clear()
            try:
                await self._store(self._next_commit)
                backoff.reset()
                self._set_trouble("commit", "")
            except SourceError as error:
                self._set_trouble("commit", str(error))
                await asyncio.sleep(backoff.next_s())

    def _next_commit(self, lane: Lane) -> Commit | None:
        """Return what to commit: what is new, and what is so old that Kafka would drop it one day."""
        again = time.monotonic() - lane.stored_at >= self.config.commit_again_ms / 1000
        return lane.offsets.next_commit(self.config.window_records_max, again=again)

    async def _store(self, choose: Callable[[Lane], Commit | None]) -> None:
        chosen = {lane: (lane.offsets, choose(lane)) for lane in self._lanes.values()}
        commits = {lane.partition: commit for lane, (_, commit) in chosen.items() if commit is not None}
        if not commits:
            return
        await self.source.commit(commits, self.config.stop_timeout_ms / 1000)
        for lane, (offsets, commit) in chosen.items():
            if commit is not None:
                offsets.stored(commit)
                lane.stored_at = time.monotonic()
                lane.wake.set()

    # -- watch -----------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            for partition, lane in self._lanes.items():
                end = self.source.end_offset(partition)
                if end is not None:
                    lag = max(0, end - lane.offsets.acked)
                    self.metrics.lag.labels(partition.topic, str(partition.partition)).set(lag)
            self.metrics.under_way.set(self._under_way_bytes)
            self.metrics.buffered.set(self._buffered_bytes)
            silent_s = self.source.silent_s() if self._lanes else 0
            self._set_trouble("source fetch", f"no answer for {silent_s:.0f} s" if silent_s > SILENT_S else "")
            oldest = min((lane.sent_at for lane in self._lanes.values() if lane.sent_at is not None), default=None)
            waited_s = 0.0 if oldest is None else time.monotonic() - oldest
            self._set_trouble("target ack", f"none for {waited_s:.0f} s" if waited_s > SILENT_S else "")


def target_of(config: Config, settings: ClientSettings) -> Target:
    """Return the end that is written to, of either cluster, by the configuration."""
    return Target(
        settings,
        compression=config.compression,
        batch_bytes_max=config.batch_bytes_max,
        replicas=config.target_replication_factor,
    )


def _text(settings: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in settings.items())


def _append(batch: Any, record: Any) -> bool:
    headers = list(record.headers) if record.headers else []
    added = batch.append(timestamp=record.timestamp, key=record.key, value=record.value, headers=headers)
    return added is not None


def _size(record: Any) -> int:
    """Return about what a record takes in a batch."""
    size: int = RECORD_FRAME_BYTES + record.serialized_key_size + record.serialized_value_size
    for key, value in record.headers:
        size += len(key) + len(value or b"") + 4
    return size
