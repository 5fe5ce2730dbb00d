"""The way to the target: makes sure of topics, deals lanes among connections, sends, and settles what fails.

A batch is final once it is packed: it is sent again with the same bytes under the same sequences. What becomes of it:

| answer | then |
|---|---|
| none | it is safe, and with it whatever was sent before it |
| an error, or no answer because the connection is gone | its lane is unsure: nothing more of it is sent |
| the last one that an unsure lane has under way | where one may have arrived, the target's log tells what is safe |
| too large, or a record is refused | the batches are taken apart; what becomes of a single record the host says |
| the producer is not known, or out of order | what is not there is packed anew under a new producer id |
| any other | the same batches are sent again, after a wait that grows |
| a batch has arrived, and one before it has not | all are sent again under a new producer id, and counted as doubled |

The last is for targets that have forgotten the producer: Kafka forgets one whose records are older than its
producer.id.expiration.ms, and then takes any sequence.

Lives here: what may be sent, and what becomes of it. Must never come in: turns (pipe.py), how much and how packed
(link.py, packing.py), which offsets are safe (offsets.py), reading.
Source: KIP-98 and Kafka's ProducerStateManager (five batches per partition are remembered, in order).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from aiokafka import TopicPartition

from drupelet.backoff import Backoff
from edge_broker.errors import ErrorCode, error_name
from edge_broker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kafka_wire.apis import ALL_REPLICAS, PRODUCE
from kafka_wire.batches import (
    Packed,
    TooMuchAtOnce,
    bytes_about,
    record_bytes,
    split,
    stamp,
)
from kafka_wire.codecs import Packer
from kafka_wire.connection import Connection
from mirror.answers import (
    APPENDED,
    LOST,
    MOVED,
    PRODUCER_GONE,
    TAKEN_APART,
    nothing_arrived,
)
from mirror.dead_letter import Refused
from mirror.errors import TargetError
from mirror.lane import Batch, Lane, Producer
from mirror.link import Link, Mark
from mirror.packing import Job, next_job, pack_all
from mirror.pipe import Pipe
from mirror.target import Target

BATCHES_MAX = 5  # of a partition under way: as many as a broker remembers
CONNECTIONS_MAX = 4  # to a leader
LOSSY = 0.005  # of segments sent again, from which on one connection does not fill a link
SPARSE_S = 30.0  # since a lane without a backlog had something to send
BACKLOG_S = 10.0  # since a lane had a whole batch waiting
LOOKS_AT_ONCE = 16
RESEND_S = 0.1
STOPPED_TIMES = 30  # the usual wait: a record that stops its lane may be large, and nobody has helped yet


class Host(Protocol):
    """Who owns the lanes."""

    def acked(self, lane: Lane, batch: Batch, base_offset: int | None) -> None:
        """A batch is safe at the target, from `base_offset` on where it said so; those before it are, too."""

    def refused_record(self, lane: Lane, refused: Refused) -> Awaitable[bool]:
        """The target takes no such record; tells whether it was written down, and the lane goes on behind it."""

    def tell(self, name: str, text: str) -> None:
        """What is wrong with `name`; no text when it is over."""

    def made(self, lane: Lane, settings: dict[str, str]) -> None:
        """The lane's topic was created, with these settings."""

    def connection_lost(self) -> None:
        """A connection to the target ended."""

    def changed(self, lane: Lane, *, waits: bool) -> None:
        """A lane's offsets may have changed; it may soon send no more for want of a commit where it `waits`."""


class Settings(NamedTuple):
    """What a user sets: bytes of packed batches before compression, offsets per commit, times in seconds."""

    batch_bytes_max: int
    window_records_max: int
    request_timeout_s: float
    delivery_timeout_s: float
    backoff_first_s: float
    backoff_max_s: float


class Sender:
    """Sends for all lanes; `quiet` is set while nothing is under way."""

    def __init__(self, target: Target, link: Link, settings: Settings, host: Host) -> None:
        self.target, self.link, self.settings, self.host = target, link, settings, host
        self.packer = Packer()
        self.quiet = asyncio.Event()
        self.quiet.set()
        self.stopping = False
        self.connections = 1
        self._sparse_until = 0.0  # until then there are lanes without a backlog
        self._pipes: dict[tuple[int, int], Pipe] = {}
        self._producer: Producer | None = None
        self._producer_lock = asyncio.Lock()
        self._begun: set[TopicPartition] = set()  # to which the shared producer has written
        self._looks = asyncio.Semaphore(LOOKS_AT_ONCE)
        self._under_way: set[Mark] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: dict[Lane, Backoff] = {}
        self._bug: asyncio.Future[None] | None = None

    # -- life

    async def run(self) -> None:
        """Wait for ever; raises what leaves one of the tasks, which is a bug."""
        self._bug = asyncio.get_running_loop().create_future()
        await self._bug

    async def close(self) -> None:
        """End every task; what is under way may arrive or not."""
        tasks = [*self._tasks, *(pipe.task for pipe in self._pipes.values())]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        await self.packer.close()

    def start(self, lane: Lane) -> None:
        """Begin to send what this lane reads."""
        lane.batch_bytes_max = self.settings.batch_bytes_max
        self._make_sure(lane)

    def drop(self, lane: Lane) -> None:
        """Send nothing of it any more."""
        lane.is_gone = True
        for task in lane.tasks:
            task.cancel()
        if lane.pipe is not None:
            lane.pipe.let_go(lane)
        self._failures.pop(lane, None)
        flight = [piece for batch in lane.flight for piece in batch.pieces]
        lane.flight.clear()
        lane.clear()
        lane.release(flight)

    def spawn(self, lane: Lane, work: Awaitable[None]) -> None:
        """Do something for a lane beside all else."""
        task = asyncio.ensure_future(_awaited(work))
        for tasks in (lane.tasks, self._tasks):
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        task.add_done_callback(self.ended)

    def ended(self, task: asyncio.Task[None]) -> None:
        """Have `run` raise what a task has raised."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._raise(error)

    def _raise(self, error: BaseException) -> None:
        if self._bug is not None and not self._bug.done():
            self._bug.set_exception(error)

    def oldest_s(self, now: float) -> float:
        """Return for how long the oldest request has not been answered."""
        return max((now - mark.sent_at for mark in self._under_way), default=0.0)

    # -- topics and leaders

    def _make_sure(self, lane: Lane) -> None:
        lane.ensured = False
        self.spawn(lane, self._ensure(lane))

    async def _ensure(self, lane: Lane) -> None:
        backoff = self._backoff()
        while True:
            try:
                lane.producer = lane.producer or await self._producer_for(lane)
                made = await self.target.ensure_topic(lane.at_target, lane.partitions, lane.settings)
                if made is not None:
                    self.host.made(lane, made)
                await self._join(lane)  # and connects while the end is asked for
                end = await self.target.end_offset(lane.at_target)
            except TargetError as error:
                self.host.tell(lane.name, str(error))
                await asyncio.sleep(backoff.next_s())
                continue
            if lane.offsets.target_end is None and not lane.flight:
                lane.offsets.know_target_end(end)
                lane.floor = end
            lane.ensured = True
            self.host.tell(lane.name, "")
            self.consider(lane)
            lane.memory.room.set()
            return

    async def _producer_for(self, lane: Lane) -> Producer:
        """Return the producer that lanes share; one of its own where another lane has written there before.

        What that one had under way may still arrive, under sequences that would be this one's.
        """
        if lane.at_target in self._begun:
            return await self.target.producer()
        async with self._producer_lock:
            if self._producer is None:
                try:
                    self._producer = await self.target.producer()
                except TargetError as error:
                    self.host.tell("target producer", str(error))
                    raise
                self.host.tell("target producer", "")
        self._begun.add(lane.at_target)
        return self._producer

    async def _join(self, lane: Lane) -> None:
        """Have the pipe to the partition's leader carry the lane."""
        leader = await self.target.leader(lane.at_target)
        if lane.pipe is not None:
            lane.pipe.let_go(lane)
        lane.dealt = self._dealing(lane)
        lane.pipe = self._emptiest(leader.node, *lane.dealt)
        lane.pipe.lanes.add(lane)

    def _dealing(self, lane: Lane) -> tuple[int, int]:
        """Among which connections a lane is dealt: one is kept for urgent ones and those without a backlog."""
        now = asyncio.get_running_loop().time()
        if self.connections == 1 or now >= lane.backlog_until or lane.urgent:
            return 0, 1
        return (1 if now < self._sparse_until else 0), self.connections

    def _emptiest(self, node: int, first: int, end: int) -> Pipe:
        """The pipe to a leader that carries the fewest lanes, made if it is not there yet."""
        number = min(
            range(first, end),
            key=lambda number: len(pipe.lanes) if (pipe := self._pipes.get((node, number))) is not None else 0,
        )
        if (node, number) not in self._pipes:
            self._pipes[node, number] = Pipe(self, node, number)
        return self._pipes[node, number]

    async def moved(self, pipe: Pipe) -> None:
        """Look whether others lead now what a pipe carries, as its broker does not answer."""
        lanes = [lane for lane in pipe.lanes if not lane.flight and not lane.packing]
        with suppress(TargetError):  # the pipe itself has told what is wrong
            await self.target.topics(sorted({lane.target_topic for lane in lanes}))
            for lane in lanes:
                if lane.pipe is pipe and not (lane.flight or lane.packing or lane.rests or lane.is_gone):
                    await self._join(lane)
                    self.consider(lane)

    def retire(self, pipe: Pipe) -> None:
        """Let a pipe go that carries nothing any more."""
        del self._pipes[pipe.node, pipe.number]

    def grow(self) -> None:
        """Use a connection more per leader where the pipe is full and loses segments: one alone does not fill it."""
        losses = [pipe.loss for pipe in self._pipes.values()]
        self.link.is_lossy = max(losses, default=0.0) >= LOSSY
        is_full = self.link.under_way_bytes * 2 >= self.link.limit_bytes
        if self.link.is_lossy and is_full and self.connections < CONNECTIONS_MAX:
            self.connections += 1

    def _backoff(self) -> Backoff:
        return Backoff(self.settings.backoff_first_s, self.settings.backoff_max_s)

    # -- what may be sent

    def consider(self, lane: Lane) -> None:
        """Put a lane among those that are ready if it is; cheap, and called whenever that may have changed."""
        offsets = lane.offsets
        if not lane.packing and offsets.position < lane.ahead:
            offsets.skip(lane.ahead)  # explained or in the ledger, and perhaps wider than the window
        self.host.changed(lane, waits=offsets.wants_commit(self.window(lane)))
        if lane.is_gone or lane.is_unsure or lane.rests or lane.packing or not lane.ensured or self.stopping:
            return
        pipe: Pipe = lane.pipe
        if lane.flight and lane.flight[-1].mark is None:
            pipe.put(lane)
            return
        is_full = len(lane.flight) >= self._batches_max(lane)
        if not lane.buffer or is_full or lane.buffer[0].first_offset >= offsets.reserved:
            return
        is_enough = self._is_enough(lane)
        now = asyncio.get_running_loop().time()
        if self.connections > 1 and (now >= lane.backlog_until or lane.urgent):
            self._sparse_until = now + SPARSE_S
        if lane.dealt != self._dealing(lane):
            if not lane.flight:  # else two connections would carry it at once, in no order
                lane.rests = True
                self.spawn(lane, self._rejoin(lane))
        elif is_enough:
            pipe.put(lane)

    @staticmethod
    def _batches_max(lane: Lane) -> int:
        """One where what comes first may be refused: a target that does not know the producer would take the next."""
        return 1 if lane.boundary is not None and lane.boundary > lane.offsets.acked else BATCHES_MAX

    async def _rejoin(self, lane: Lane) -> None:
        try:
            await self._join(lane)
        except TargetError as error:
            self.host.tell(lane.name, str(error))
            self._make_sure(lane)
        lane.rests = False
        self.consider(lane)

    def window(self, lane: Lane) -> int:
        """How many offsets a commit reserves: a batch of the source that is larger than the window must fit."""
        whole = lane.buffer[0].end_offset - lane.offsets.acked if lane.buffer else 0
        return max(self.settings.window_records_max, whole)

    def _is_enough(self, lane: Lane) -> bool:
        link, loop = self.link, asyncio.get_running_loop()
        whole_batch = lane.buffer_bytes * lane.shrinkage >= link.batch_bytes
        if whole_batch or lane.buffer_bytes * lane.growth >= lane.batch_bytes_max:
            lane.backlog_until = loop.time() + BACKLOG_S
            return True
        waits_s = lane.waits_since + link.linger_s - loop.time()
        if waits_s <= 0 or lane.urgent:
            return True
        if not lane.lingers:
            lane.lingers = True
            lane.pipe.lingering[lane] = None
            loop.call_later(waits_s, self._lingered, lane)
        return False

    def _lingered(self, lane: Lane) -> None:
        lane.lingers = False
        lane.pipe.lingering.pop(lane, None)
        self.consider(lane)

    def waited(self, lane: Lane) -> bool:
        """Whether a lane has lingered for so long that it goes with others: a request of its own costs more."""
        return asyncio.get_running_loop().time() >= lane.waits_since + self.link.linger_s / 2

    def take(self, lane: Lane, bytes_max: int) -> Batch | Job | None:
        """Take the lane's next batch: one that is final, or what is to be packed; None when it has none."""
        if lane.is_unsure or lane.is_gone or lane.rests or lane.packing:
            return None
        again = next((batch for batch in lane.flight if batch.mark is None), None)
        if again is not None:
            return again
        return None if self.stopping else next_job(lane, self.link, lane.codec, bytes_max)

    # -- packing, in the worker

    async def packed(self, jobs: Sequence[Job]) -> list[Batch]:
        """Pack; what cannot be is given back to its lane, which waits."""
        if not jobs:
            return []
        results = await self.packer.pack(pack_all, jobs, self.link.zstd_level)
        return [batch for job, result in zip(jobs, results, strict=True) if (batch := self._made(job, result))]

    def _made(self, job: Job, result: Packed | Exception) -> Batch | None:
        lane, pieces, _ = job
        lane.packing = False
        if lane.is_gone:
            lane.release(pieces)
            return None
        if isinstance(result, Exception) or lane.is_unsure or self.stopping:
            lane.give_back(pieces)
            if isinstance(result, TooMuchAtOnce):
                lane.growth *= 2
            elif isinstance(result, Exception):
                self.host.tell(lane.name, str(result))
                self._rest(lane)
            self._settle(lane)
            return None
        share = sum(map(bytes_about, pieces))
        lane.growth = max(1.0, result.payload_bytes / share)
        lane.shrinkage = min(1.0, len(result.batch) / share)
        producer = lane.producer
        assert producer is not None
        if result.records:
            stamp(result.batch, producer.id, producer.epoch, lane.sequence)
        batch = Batch(lane, pieces, result, lane.sequence)
        lane.sequence = batch.next_sequence
        return batch

    def _rest(self, lane: Lane) -> None:
        """Have a lane that is in trouble of its own wait, longer each time."""
        lane.rests = True
        self.spawn(lane, self._rested(lane, self._failures.setdefault(lane, self._backoff()).next_s()))

    async def _rested(self, lane: Lane, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        lane.rests = False
        self.consider(lane)

    # -- requests and answers

    def post(self, connection: Connection, batches: Sequence[Batch]) -> None:
        """Write one request with a batch of each lane; those that are new become known to their lanes' offsets."""
        loop = asyncio.get_running_loop()
        sent = [batch for batch in batches if self._admit(batch)]
        if not sent:
            return
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in sent:
            data = PartitionProduceData(index=batch.lane.partition.partition, records=memoryview(batch.packed.batch))
            topics.setdefault(batch.lane.target_topic, []).append(data)
        request = ProduceRequest(
            acks=ALL_REPLICAS,
            timeout_ms=int(self.settings.request_timeout_s * 1000),
            topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
        )
        mark = self.link.sent(loop.time(), sum(batch.size for batch in sent))
        for batch in sent:
            batch.mark, batch.outcome = mark, None
        self._under_way.add(mark)
        self.quiet.clear()
        future = connection.send(PRODUCE, request, timeout_s=self._answer_s())
        future.add_done_callback(lambda done: self._told(sent, mark, done))

    def _answer_s(self) -> float:
        """How long an answer may take: what is under way before it has to pass the link first."""
        settings, link = self.settings, self.link
        passing_s = link.under_way_bytes / link.rate if link.rate else settings.request_timeout_s
        longest_s = max(settings.delivery_timeout_s, settings.request_timeout_s)
        return min(longest_s, settings.request_timeout_s + 4 * passing_s)

    def _admit(self, batch: Batch) -> bool:
        """Whether a batch may go; one that was just packed is under way from now on."""
        lane = batch.lane
        if batch in lane.flight:
            return batch.mark is None and not lane.is_unsure
        if lane.is_gone:
            return False
        if lane.offsets.position < batch.pieces[0].first_offset:
            lane.offsets.skip(batch.pieces[0].first_offset)
        if not batch.packed.records:  # compaction has left nothing
            lane.offsets.skip(batch.end_offset)
            lane.release(batch.pieces)
            return False
        lane.offsets.send(batch.end_offset, batch.packed.records)
        lane.flight.append(batch)
        return True

    def _told(self, batches: Sequence[Batch], mark: Mark, done: asyncio.Future[ProduceResponse]) -> None:
        try:
            self._answered(batches, mark, done)
        except Exception as error:  # else the loop would log it, and nobody know
            self._raise(error)
            raise

    def _answered(self, batches: Sequence[Batch], mark: Mark, done: asyncio.Future[ProduceResponse]) -> None:
        now = asyncio.get_running_loop().time()
        self._under_way.discard(mark)
        told: dict[tuple[str, int], PartitionProduceResponse] = {}
        if done.cancelled() or done.exception() is not None:
            self.link.lost(mark)
        else:
            self.link.acked(now, mark)
            for topic in done.result().responses:
                told |= {(topic.name, one.index): one for one in topic.partition_responses}
        for batch in batches:
            batch.mark = None
            self._judge(batch, told.get((batch.lane.target_topic, batch.lane.partition.partition)))
        if not self._under_way:
            self.quiet.set()
        for pipe in self._pipes.values():
            pipe.wake.set()

    def _judge(self, batch: Batch, answer: PartitionProduceResponse | None) -> None:
        lane = batch.lane
        if lane.is_gone or batch not in lane.flight:
            return
        code = LOST if answer is None else answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            base = None if answer is None or answer.base_offset < 0 else answer.base_offset
            self._safe(lane, batch, base)
        else:
            batch.outcome = code
            batch.said = "" if answer is None else (answer.error_message or "")
            lane.is_unsure = True
        if lane.is_unsure:
            self._settle(lane)
        else:
            self.consider(lane)

    def _safe(self, lane: Lane, batch: Batch, base_offset: int | None) -> None:
        """Pass on that a batch is safe, and all before it: sequences are appended in order, or not at all.

        Unless the target has forgotten the producer; then a batch before it may have been refused alone.
        """
        before = lane.flight.index(batch)
        if any(lane.flight[number].outcome not in APPENDED for number in range(before)):
            lane.is_unsure = lane.is_disordered = True
            return
        while lane.flight:
            first = lane.flight.pop(0)
            last = first is batch
            self.host.acked(lane, first, base_offset if last else None)
            if last and base_offset is not None:
                lane.floor = base_offset + batch.packed.records
            lane.release(first.pieces)
            if last:
                break
        if not lane.is_unsure and self._failures.pop(lane, None) is not None:
            self.host.tell(lane.name, "")

    # -- what is unsure

    def _settle(self, lane: Lane) -> None:
        """Once nothing of an unsure lane is under way, find out what has arrived."""
        if not lane.is_unsure or lane.settles or lane.packing or any(batch.mark is not None for batch in lane.flight):
            return
        lane.settles = True
        self.spawn(lane, self._settled(lane))

    async def _settled(self, lane: Lane) -> None:
        try:
            await self._find_out(lane)
        finally:
            lane.settles = False
        lane.is_unsure = False
        self.consider(lane)

    async def _find_out(self, lane: Lane) -> None:
        backoff = self._failures.setdefault(lane, self._backoff())
        while lane.flight and not nothing_arrived(lane.flight):
            try:
                async with self._looks:
                    await self._look(lane)
                break
            except TargetError as error:
                self.host.tell(lane.name, str(error))
                self.target.forget(lane.target_topic)
                await asyncio.sleep(backoff.next_s())
        if lane.is_disordered:
            self._begin_again(lane)
            await self._anew(lane, backoff)
        if not lane.flight:
            return
        head = lane.flight[0]
        code = LOST if head.outcome is None else head.outcome
        for batch in lane.flight:
            batch.outcome = None
        if code in TAKEN_APART:
            await self._take_apart(lane, error_name(code), backoff)
            return
        if code in PRODUCER_GONE:
            self._take_back(lane)
            lane.producer, lane.sequence = None, 0
        if code != LOST:
            self.host.tell(lane.name, f"the target refuses what is sent: {head.said or error_name(code)}")
        if code in MOVED:
            self.target.forget(lane.target_topic)
        await asyncio.sleep(RESEND_S if code == LOST else backoff.next_s())
        if lane.producer is None or code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            await self._anew(lane, backoff)
        await self._lead(lane, backoff)

    async def _look(self, lane: Lane) -> None:
        producer = lane.producer
        assert producer is not None
        found = await self.target.batches_of(lane.at_target, producer, lane.floor)
        there = [batch for batch in lane.flight if batch.sequence in found]
        for batch in lane.flight:
            batch.outcome = None if batch in there else batch.outcome or LOST
        if there:
            self._safe(lane, there[-1], found[there[-1].sequence])

    def _take_back(self, lane: Lane) -> None:
        """Give back all that is final and not at the target, to be packed anew."""
        batches = list(lane.flight)
        lane.flight.clear()
        lane.offsets.take_back()
        if batches:
            lane.sequence = batches[0].sequence
        for batch in reversed(batches):
            lane.give_back(batch.pieces)

    def _begin_again(self, lane: Lane) -> None:
        """Send all that is not known to be safe once more: some of it is at the target, out of order."""
        batches = list(lane.flight)
        lane.flight.clear()
        lane.is_disordered = False
        lane.boundary = batches[0].end_offset
        lane.offsets.restart()
        lane.producer, lane.sequence = None, 0
        for batch in reversed(batches):
            lane.give_back(batch.pieces)

    async def _take_apart(self, lane: Lane, reason: str, backoff: Backoff) -> None:
        head = lane.flight[0]
        self._take_back(lane)
        for _ in head.pieces:
            lane.take()
        try:
            first, second = split(head.pieces)
        except ValueError:
            ((offset, _),) = head.packed.runs
            lane.packing = True  # or it would count as drained
            refused = Refused(offset, head.pieces[0], record_bytes(head.pieces[0]), reason, head.said)
            goes_on = await self.host.refused_record(lane, refused)
            lane.packing = False
            if not goes_on:
                lane.give_back(head.pieces)
                lane.batch_bytes_max, lane.boundary = self.settings.batch_bytes_max, head.end_offset
                await asyncio.sleep(backoff.next_s() * STOPPED_TIMES)
                return
            lane.offsets.skip(head.end_offset)
            lane.release(head.pieces)
            lane.batch_bytes_max, lane.boundary = self.settings.batch_bytes_max, None
            return
        lane.hold(sum(len(piece.batch) for piece in (*first, *second)) - sum(len(piece.batch) for piece in head.pieces))
        lane.give_back(second)
        lane.give_back(first)
        lane.boundary = first[-1].end_offset
        lane.batch_bytes_max = max(1, head.packed.payload_bytes // 2)

    async def _anew(self, lane: Lane, backoff: Backoff) -> None:
        """Take a producer id of the lane's own; make sure of a topic that was deleted."""
        while True:
            try:
                if lane.producer is None:
                    lane.producer = await self.target.producer()
                self.target.look_anew(lane.target_topic)
                made = await self.target.ensure_topic(lane.at_target, lane.partitions, lane.settings)
            except TargetError as error:
                self.host.tell(lane.name, str(error))
                await asyncio.sleep(backoff.next_s())
            else:
                if made is not None:
                    self.host.made(lane, made)
                return

    async def _lead(self, lane: Lane, backoff: Backoff) -> None:
        while True:
            try:
                await self._join(lane)
            except TargetError as error:
                self.host.tell(lane.name, str(error))
                await asyncio.sleep(backoff.next_s())
            else:
                return


async def _awaited(work: Awaitable[None]) -> None:
    await work
