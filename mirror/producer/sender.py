"""The way to the target: makes sure of topics, sends, and settles what fails.

A batch is final once it is packed, and gets its sequences from the lane's state; it goes once the state topic has what
they mean. What becomes of it:

| answer | then |
|---|---|
| none | it is safe; where its base offset is below the expected one, its lane is unsure |
| an error, or no answer because the connection is gone | its lane is unsure: nothing more of it is sent |
| the last one that an unsure lane has under way | the next rows |
| too large, or a record is refused, and nothing has arrived | they are taken apart; of a single record the host says |
| none, or one that it lacks replicas, and the target surely knows them again (retry_window.py) | they are sent again |
| any other by which nothing has arrived | the same batches are sent again, after a wait that grows |
| all else | a new session (producer_sessions.py): the target's log tells what is safe, the rest is packed again |
| the producer's epoch is an old one | another mirror has taken over: the host |

Lives here: what may be sent, and what becomes of it. Must never come in: by which connection
(connection_assignment.py), turns
(target_connection.py), how much and how packed (link_model.py, batching.py), which offsets are safe
(target_state.py, source_offsets.py), reading.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from drupelet.backoff import Backoff
from drupelet.observe.log_tree import Log
from drupelet.printable import peer_text
from edge_broker.errors import ErrorCode, error_name
from edge_broker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from edge_broker.protocol.record_batch import BatchHeader
from kafka_wire.apis import ALL_REPLICAS, PRODUCE
from kafka_wire.connection.connection import Connection
from mirror.client.append_time_clock import boot_s
from mirror.client.log_queries import leader_of
from mirror.client.target_client import Target
from mirror.errors import OvertakenError, SameClusterError, TargetError
from mirror.ledger.dead_letter import Refused
from mirror.link.link_model import InFlightRequest, Link
from mirror.partition.send_state import (
    CHANGING_CONNECTION,
    CREATING_TOPIC,
    DRAINING,
    GONE,
    MOVABLE,
    RESOLVING,
    SENDING,
    STARTING_SESSION,
    UNSURE,
)
from mirror.partition.stream import Batch, PartitionStream
from mirror.partition.target_state import Contradiction
from mirror.producer.batch_isolation import Break, Isolation
from mirror.producer.batch_packer import BatchPacker
from mirror.producer.batching import Job, next_job
from mirror.producer.connection_assignment import BACKLOG_S, ConnectionAssignment
from mirror.producer.produce_errors import FENCED, LOST, MOVED, OPEN, SHORT, TAKEN_APART, first_refused, nothing_arrived
from mirror.producer.refusals import Refusals
from mirror.producer.retry_window import YOUNG_S, may_be_sent_again
from mirror.producer.target_connection import TargetConnection
from mirror.session.producer_sessions import ProducerSessions
from mirror.session.session_start import StartedSession

_log = Log("mirror")

BATCHES_MAX = 5  # of a partition under way: as many as a broker remembers
REMEMBERED_S = 12 * 3600.0
"""Of older records, and behind them, one batch is under way at a time: when the last that Kafka took is a day old by
its date (producer.id.expiration.ms), it soon forgets the producer, and would take a batch though it has refused the one
before. So it does with a producer that it does not know yet, where no fence has told it of him."""
RESEND_S = 0.1


class Host(Protocol):
    """Who owns the lanes."""

    def acked(self, lane: PartitionStream, batch: Batch) -> None:
        """A batch is safe at the target, and all before it."""

    def begun(self, lane: PartitionStream, lost: int) -> None:
        """A life of the lane has begun, perhaps elsewhere: it is to be judged and read from its offsets on.

        So many records were acknowledged and are not at the target any more.
        """

    def overtaken(self, text: str) -> None:
        """Another mirror has taken over."""

    def refuse(self, text: str) -> None:
        """Nothing may be sent to this target."""

    def refused_record(self, lane: PartitionStream, refused: Refused) -> Awaitable[bool]:
        """The target takes no such record; tells whether it was written down, and the lane goes on behind it."""

    def tell(self, name: str, text: str) -> None:
        """What is wrong with `name`; no text when it is over."""

    def made(self, lane: PartitionStream, settings: dict[str, str]) -> None:
        """The lane's topic was created, with these settings."""

    def connection_lost(self) -> None:
        """A connection to the target ended."""

    def changed(self, lane: PartitionStream) -> None:
        """A lane's offsets may have changed."""

    def transaction_ended(self, outcome: str) -> None:
        """A transaction has ended so, by metrics.OUTCOMES."""


class Settings(NamedTuple):
    """What a user sets: bytes of packed batches before compression, times in seconds."""

    batch_bytes_max: int
    request_timeout_s: float
    delivery_timeout_s: float
    backoff_first_s: float
    backoff_max_s: float
    buffer_bytes_max: int = 8 << 20


class Sender:
    """Sends for all lanes; `quiet` is set while nothing is under way."""

    def __init__(self, target: Target, lives: ProducerSessions, link: Link, settings: Settings, host: Host) -> None:
        self.target, self.lives, self.link, self.settings, self.host = target, lives, link, settings, host
        self.packer = BatchPacker(link, self)
        self.pack: Callable[[Sequence[Job]], Awaitable[list[Batch]]] = self.packer.pack
        self.refusals = Refusals(
            link,
            host,
            lives.note,
            batch_bytes_max=settings.batch_bytes_max,
            buffer_bytes_max=settings.buffer_bytes_max,
        )
        self.isolation = Isolation(target, link, self.refusals, host.tell)
        self.transactional_id: str | None = None  # of transactions, which transactional_sender.py ends
        self.quiet = asyncio.Event()
        self.quiet.set()
        self.stopping = False
        self.dealing = ConnectionAssignment(link, self._make_pipe, self.consider)
        self._under_way: set[InFlightRequest] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: dict[PartitionStream, Backoff] = {}
        self._bug: asyncio.Future[None] | None = None

    # -- life

    async def run(self) -> None:
        """Wait for ever; raises what leaves one of the tasks, which is a bug."""
        self._bug = asyncio.get_running_loop().create_future()
        await self._bug

    async def close(self) -> None:
        """End every task; what is under way may arrive or not."""
        tasks = [*self._tasks, *(pipe.task for pipe in self.dealing.pipes)]
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        await self.packer.close()
        for error in ends:
            if isinstance(error, Exception):
                raise error

    async def finish(self) -> None:
        """Take nothing more, and wait until all that is under way is answered."""
        self.stopping = self.packer.stopping = True
        await self.quiet.wait()

    def _make_pipe(self, node: int, number: int) -> TargetConnection:
        return TargetConnection(self, self.dealing, self.target.cluster, self.link, self.host.tell, node, number)

    def start(self, lane: PartitionStream) -> None:
        """Begin to send what this lane reads."""
        lane.batch_bytes_max = self.settings.batch_bytes_max
        self.spawn(lane, self._ensure(lane))

    def drop(self, lane: PartitionStream) -> None:
        """Send nothing of it any more."""
        lane.enter(GONE)
        for task in lane.tasks:
            task.cancel()
        if lane.pipe is not None:
            lane.pipe.let_go(lane)
        self._failures.pop(lane, None)
        self.refusals.held.forget(lane)
        self.isolation.forget(lane)
        flight = [piece for batch in (*lane.uncommitted, *lane.flight) for piece in batch.pieces]
        lane.uncommitted.clear()
        lane.flight.clear()
        lane.clear()
        lane.release(flight)

    def spawn(self, lane: PartitionStream, work: Coroutine[Any, Any, None]) -> None:
        """Do something for a lane beside all else."""
        task = self._spawn(work)
        lane.tasks.add(task)
        task.add_done_callback(lane.tasks.discard)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self.ended)
        return task

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

    def tick(self) -> None:
        """Look after what changes slowly; about each second."""
        self.dealing.grow()
        for lane in self.refusals.held.read_to_the_end():
            self.refusals.forget([lane])
            self._note_if_drained(lane)

    def begin_anew(self, lane: PartitionStream) -> None:
        """Begin a life with the source's log, of a lane of which nothing is left to be sent."""
        lane.starts_anew = True
        self.mark_unsure(lane)

    # -- topics and leaders

    async def _ensure(self, lane: PartitionStream) -> None:
        await self._begin_life(lane, self._backoff(), is_there=False)
        lane.resume_sending()
        self.host.tell(lane.name, "")
        self.consider(lane)
        lane.memory.room.set()

    async def _begin_life(self, lane: PartitionStream, backoff: Backoff, *, is_there: bool) -> None:
        """Make sure of the lane's topic, where it is not known to be there, and begin a life; until that is done."""
        while True:
            try:
                with self.lives.coming(lane):
                    if not is_there:
                        made = await self.target.ensure_topic(lane.at_target, lane.partitions, lane.settings)
                        if made is not None:
                            self.host.made(lane, made)
                    try:
                        await self._join(lane)  # and connects meanwhile
                        await self.target.check_in_sync(lane.at_target)
                    except TargetError:
                        self.target.look_anew(lane.target_topic)
                        is_there = False  # it may have been deleted
                        raise
                if lane.send_state is CREATING_TOPIC:
                    lane.enter(STARTING_SESSION)
                self._go_on(lane, await self.lives.begin(lane))
            except OvertakenError:
                await _for_ever()
            except SameClusterError as error:
                self.host.refuse(str(error))
                await _for_ever()
            except TargetError as error:
                if lane.send_state is STARTING_SESSION:
                    lane.enter(CREATING_TOPIC)
                self.host.tell(lane.name, str(error))
                self.target.forget(lane.target_topic)
                self.refusals.block(lane)
                await self.target.pauses.wait(backoff.next_s())
            else:
                self.refusals.forget([lane])
                return

    def _go_on(self, lane: PartitionStream, begun: StartedSession) -> None:
        """Go on where a life begins: what was under way is safe, or is packed anew."""
        resumed, known = begun.resumed, begun.records_before
        lane.remembered_ms = -1
        while lane.flight and known < resumed.records:
            first = lane.flight.pop(0)
            known += first.packed.records
            self._safe(lane, first)
        if not self.lives.is_unfenced:
            lane.remembered_ms = _now_ms()  # the fence's marker is what the target has last
        for batch in reversed(lane.flight):
            lane.return_to_buffer(batch.pieces)
        lane.flight.clear()
        lane.offsets.take_back()
        is_elsewhere = resumed.verdict in ("source_anew", "target_anew") or known != resumed.records
        if is_elsewhere or not lane.has_session:
            lane.begin_at(resumed.source_offset)
            self.host.begun(lane, resumed.lost)

    async def _join(self, lane: PartitionStream) -> None:
        """Have the pipe to the partition's leader carry the lane."""
        leader = await self.target.leader(lane.at_target)
        self.dealing.join(lane, leader.node)

    async def moved(self, pipe: TargetConnection) -> None:
        """Look whether others lead now what a pipe carries, as its broker does not answer."""
        lanes = [lane for lane in pipe.lanes if _is_still(lane)]
        if self.dealing.has_another_broker(pipe):  # whose partitions need the memory
            for lane in pipe.lanes:
                self.refusals.block(lane)
        with suppress(TargetError):  # the pipe itself has told what is wrong
            found = await self.target.topics(sorted({lane.target_topic for lane in lanes}))
            for lane in lanes:
                leader = leader_of(found, lane.at_target)
                is_free = lane.pipe is pipe and _is_still(lane) and lane.send_state in MOVABLE
                if is_free and leader.node >= 0:  # one without a leader keeps no other one from moving
                    self.dealing.join(lane, leader.node)
                    self.refusals.forget([lane] if lane.pipe is not pipe else [])
                    self.consider(lane)

    def back(self, pipe: TargetConnection) -> None:
        """Deal what a pipe carries anew, as its broker is there again: meanwhile there may be a backlog, or none."""
        self.refusals.forget(pipe.lanes)
        if pipe.node in self.isolation.limits:  # which are others after a restart only
            self._spawn(self.isolation.limits.learn(pipe.node))
        for lane in list(pipe.lanes):
            if _is_still(lane) and lane.send_state in MOVABLE:
                self.dealing.join(lane, pipe.node)
                self.consider(lane)

    def _backoff(self) -> Backoff:
        return Backoff(self.settings.backoff_first_s, self.settings.backoff_max_s)

    # -- what may be sent

    def consider(self, lane: PartitionStream) -> None:
        """Put a lane among those that are ready if it is; cheap, and called whenever that may have changed."""
        offsets = lane.offsets
        if not lane.packing and offsets.position < lane.ahead:
            lane.skip(lane.ahead)  # explained, or in the ledger
        self.host.changed(lane)
        if lane.send_state is not SENDING or lane.packing or self.stopping:
            return
        pipe: TargetConnection = lane.pipe
        waiting = next((batch for batch in lane.flight if batch.mark is None), None)
        if waiting is not None and lane.may_go(waiting):
            pipe.put(lane)
            return
        if not lane.buffer or len(lane.flight) >= self._batches_max(lane):
            return
        is_enough = self._is_enough(lane)
        if self.dealing.must_move(lane):
            if not lane.flight:  # else two connections would carry it at once, in no order
                lane.enter(CHANGING_CONNECTION)
                self.spawn(lane, self._rejoin(lane))
        elif is_enough:
            pipe.put(lane)

    @staticmethod
    def _batches_max(lane: PartitionStream) -> int:
        """One where what comes first may be refused: a target that does not know the producer would take the next."""
        may_be_refused = lane.boundary is not None and lane.boundary > lane.offsets.acked
        return 1 if lane.is_alone or may_be_refused else lane.flight_max

    async def _rejoin(self, lane: PartitionStream) -> None:
        try:
            await self._join(lane)
        except TargetError as error:
            self.host.tell(lane.name, str(error))
            if lane.send_state is CHANGING_CONNECTION:
                lane.enter(CREATING_TOPIC)
                self.spawn(lane, self._ensure(lane))
        if lane.send_state is CHANGING_CONNECTION:
            lane.resume_sending()
        self.consider(lane)

    def _is_enough(self, lane: PartitionStream) -> bool:
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

    def _lingered(self, lane: PartitionStream) -> None:
        lane.lingers = False
        lane.pipe.lingering.pop(lane, None)
        self.consider(lane)

    def waited(self, lane: PartitionStream) -> bool:
        """Whether a lane has lingered for so long that it goes with others: a request of its own costs more."""
        return asyncio.get_running_loop().time() >= lane.waits_since + self.link.linger_s / 2

    def take(self, lane: PartitionStream, bytes_max: int) -> Batch | Job | None:
        """Take the lane's next batch: one that is final, or what is to be packed; None when it has none."""
        if lane.send_state is not SENDING or lane.packing:
            return None
        waiting = next((batch for batch in lane.flight if batch.mark is None), None)
        if waiting is not None and lane.may_go(waiting):
            return waiting
        is_full = self.stopping or len(lane.flight) >= self._batches_max(lane)
        return None if is_full else next_job(lane, self.link, lane.codec, bytes_max)

    def back_off(self, stream: PartitionStream, problem: str) -> None:
        """Report the problem of a stream, and send nothing of it for a while, longer each time."""
        self.host.tell(stream.name, problem)
        stream.back_off()
        self.refusals.block(stream)
        self.spawn(stream, self._end_backoff(stream, self._failures.setdefault(stream, self._backoff()).next_s()))

    async def _end_backoff(self, stream: PartitionStream, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        stream.end_backoff()
        self.refusals.attempt(stream)
        self.consider(stream)

    # -- requests and answers

    def post(self, node: int, connection: Connection, batches: Sequence[Batch], told: Callable[[int], None]) -> int:
        """Write a request with a batch of each lane, several where `node` is known to take no such request.

        Batches that are new become known to their lanes' offsets. Returns the bytes that are under way, with which
        `told` is called once they are not any more.
        """
        sent = [batch for batch in batches if self._admit(batch)]
        requests, above = self.isolation.limits.requests(node, sent)
        for batch in above:
            batch.outcome = ErrorCode.MESSAGE_TOO_LARGE
            self.mark_unsure(batch.lane)
        return sum(self._post(connection, some, told) for some in requests)

    def _post(self, connection: Connection, sent: Sequence[Batch], told: Callable[[int], None]) -> int:
        loop = asyncio.get_running_loop()
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in sent:
            data = PartitionProduceData(index=batch.lane.partition.partition, records=memoryview(batch.packed.batch))
            topics.setdefault(batch.lane.target_topic, []).append(data)
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=ALL_REPLICAS,
            timeout_ms=int(self.settings.request_timeout_s * 1000),
            topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
        )
        mark = self.link.sent(loop.time(), sum(batch.size for batch in sent))
        for batch in sent:
            batch.mark, batch.outcome = mark, None
            batch.posted_s = batch.posted_s or boot_s()
        self._under_way.add(mark)
        self.quiet.clear()
        future = connection.send(PRODUCE, request, timeout_s=self._answer_s())
        future.add_done_callback(lambda _: told(mark.size))
        future.add_done_callback(lambda done: self._told(sent, mark, done))
        return mark.size

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
            self._look_if_old(lane)
            return batch.mark is None and lane.send_state not in UNSURE
        if lane.send_state is GONE:
            return False
        if batch.sent is None:
            lane.skip(batch.end_offset)
            lane.release(batch.pieces)
            return False
        if lane.offsets.position < batch.pieces[0].first_offset:
            lane.offsets.skip(batch.pieces[0].first_offset)
        lane.offsets.send(batch.end_offset)
        lane.flight_max = BATCHES_MAX if self._is_remembered(lane, batch) else 1
        is_next = all(before.mark is not None for before in lane.flight)
        lane.flight.append(batch)
        if lane.may_go(batch):
            return is_next
        self.lives.note(lane)
        return False

    def _is_remembered(self, lane: PartitionStream, batch: Batch) -> bool:
        """Whether the target will surely refuse what follows a batch that it has refused.

        It ages a producer by the last batch that it took, so that one has to be young too.
        """
        assert lane.state is not None
        oldest_ms = _now_ms() - REMEMBERED_S * 1000
        begun_at, safe = lane.state.life.records, lane.state.map.end.records
        is_known = safe > begun_at or (begun_at > 0 and not self.lives.is_unfenced)  # the end of a new log is unknown
        return is_known and min(lane.remembered_ms, BatchHeader(batch.packed.batch).max_timestamp) >= oldest_ms

    def _told(self, batches: Sequence[Batch], mark: InFlightRequest, done: asyncio.Future[ProduceResponse]) -> None:
        try:
            self._answered(batches, mark, done)
        except Exception as error:  # else the loop would log it, and nobody know
            self._raise(error)
            raise

    def _answered(self, batches: Sequence[Batch], mark: InFlightRequest, done: asyncio.Future[ProduceResponse]) -> None:
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
            batch.took_s = now - mark.sent_at
            self._judge(batch, told.get((batch.lane.target_topic, batch.lane.partition.partition)))
        if not self._under_way:
            self.quiet.set()
        for pipe in self.dealing.pipes:
            pipe.wake.set()

    def _judge(self, batch: Batch, answer: PartitionProduceResponse | None) -> None:
        lane = batch.lane
        if lane.send_state is GONE or batch not in lane.flight:
            return
        code = LOST if answer is None else answer.error_code
        batch.lost += code in OPEN
        is_next = batch is lane.flight[0] and lane.send_state not in UNSURE
        if code == ErrorCode.NONE and is_next and self._took(lane, answer):
            lane.flight.pop(0)
            self._taken(lane, batch)
            if self._failures.pop(lane, None) is not None:
                self.refusals.forget([lane])
                self.host.tell(lane.name, "")
            self.consider(lane)
            return
        batch.outcome = code
        batch.said = "" if answer is None else peer_text(answer.error_message)
        self.mark_unsure(lane)

    def _took(self, lane: PartitionStream, answer: PartitionProduceResponse | None) -> bool:
        """Note where the first batch under way went; false where that cannot be."""
        assert answer is not None
        assert lane.state is not None
        if answer.base_offset < 0:
            return False
        away = lane.state.acked(answer.base_offset)
        if away < 0:
            lane.answered_below = True
            self.target.forget(lane.target_topic)  # it may be another of that name
            _log.error(
                "target_answered_below", **lane.fields(), offset=answer.base_offset, expected=answer.base_offset - away
            )
        if away > 0 and lane.state.is_urgent:
            self.lives.note(lane)
        return away >= 0

    def _taken(self, lane: PartitionStream, batch: Batch) -> None:
        """Go on with a batch that all replicas have."""
        self._safe(lane, batch)

    def _safe(self, lane: PartitionStream, batch: Batch) -> None:
        """Pass on that a batch is safe that is not under way any more."""
        assert lane.state is not None
        lane.offsets.ack(lane.state.map.end.target_offset)
        lane.remembered_ms = BatchHeader(batch.packed.batch).max_timestamp
        self.host.acked(lane, batch)
        lane.release(batch.pieces)
        self.isolation.batch_acked(lane, batch)

    def connection_lost(self, pipe: TargetConnection) -> None:
        """Note that a connection ended."""
        self.isolation.connection_lost(pipe)
        self.host.connection_lost()

    # -- what is unsure

    def mark_unsure(self, stream: PartitionStream) -> None:
        """Send nothing of a stream until the outcome of each batch in flight is known."""
        stream.mark_unsure()
        self.start_resolving(stream)

    def start_resolving(self, stream: PartitionStream) -> None:
        """Find out which batches in flight have arrived, once the last one is answered."""
        if stream.send_state is DRAINING and _is_still(stream):
            stream.enter(RESOLVING)
            self.spawn(stream, self._settled(stream))

    async def _settled(self, lane: PartitionStream) -> None:
        await self._find_out(lane)
        lane.resume_sending()
        if lane not in self.refusals.held:
            self._note_if_drained(lane)
        self.consider(lane)

    def _note_if_drained(self, lane: PartitionStream) -> None:
        """Note that a lane is well where no answer will tell it, as nothing is left to be sent."""
        if lane.is_drained and self._failures.pop(lane, None) is not None:
            self.host.tell(lane.name, "")

    async def _find_out(self, lane: PartitionStream) -> None:
        backoff = self._failures.setdefault(lane, self._backoff())
        codes = [LOST if batch.outcome is None else batch.outcome for batch in lane.flight]
        code = next((code for code in codes if code), LOST)
        if FENCED.intersection(codes):
            self.host.overtaken(f"{lane.name} is refused at the target, as of an older mirror")
            await _for_ever()
        if codes and code != LOST and code not in TAKEN_APART:
            said = next((batch.said for batch in lane.flight if batch.said), "") or error_name(code)
            self.host.tell(lane.name, f"the target refuses what is sent: {said}")
        if codes and nothing_arrived(lane.flight):
            for batch in lane.flight:
                batch.outcome = None
            await self._again(lane, code, backoff)
            return
        broken = await self.isolation.note(lane)
        if code == LOST:
            await asyncio.sleep(RESEND_S)
        else:
            await self.refusals.wait(lane, backoff.next_s())  # what is in flight may be there: it is kept
        lane.resend_from = first_refused(lane.flight)
        is_open = bool(codes) and (OPEN | SHORT).issuperset(codes) and lane.resend_from is None
        if is_open and await self._repeat(lane, broken, backoff):
            return
        if code in MOVED | SHORT:
            self.target.forget(lane.target_topic)
        await self._begin_life(lane, backoff, is_there=True)
        if broken is not None:
            await self.isolation.hold(lane, broken, backoff)

    async def _repeat(self, lane: PartitionStream, broken: Break | None, backoff: Backoff) -> bool:
        """Have what is without an answer go once more as it is, as long as the target surely knows it again."""
        is_other = lane.contradicts or lane.starts_anew or lane.answered_below
        if is_other or not any(batch.lost for batch in lane.flight) or not self._knows_again(lane):
            return False
        if broken is not None:
            if not broken.may_repeat:
                return False
            await self.isolation.pause(lane, broken, backoff)
        try:
            await self._join(lane)
        except TargetError:
            return False
        for batch in lane.flight:
            batch.outcome = None
        asyncio.get_running_loop().call_later(YOUNG_S, self._look_if_old, lane)
        return True

    def _knows_again(self, lane: PartitionStream) -> bool:
        waiting = (batch for batch in lane.flight if batch.mark is None)
        return may_be_sent_again(waiting, self.lives.target_ms, boot_s())

    def _look_if_old(self, lane: PartitionStream) -> None:
        """Have what was to be sent again be looked for where it has waited for so long that it may be forgotten."""
        if lane.send_state not in (*UNSURE, GONE) and not self._knows_again(lane):
            self.mark_unsure(lane)

    async def _again(self, lane: PartitionStream, code: int, backoff: Backoff) -> None:
        """Send again what was refused, in parts where it was too large."""
        try:
            if code in TAKEN_APART:
                await self.refusals.take_apart(lane, error_name(code), backoff)
                return
            if code in MOVED:
                self.target.forget(lane.target_topic)
            await self.refusals.wait(lane, backoff.next_s(), tuple(lane.flight))
        except Contradiction:
            lane.contradicts = True
            await self._begin_life(lane, backoff, is_there=True)
            return
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # deleted, or not known yet to this leader
            self.target.look_anew(lane.target_topic)
            await self._begin_life(lane, backoff, is_there=False)
        else:
            await self._lead(lane, backoff)

    async def _lead(self, lane: PartitionStream, backoff: Backoff) -> None:
        try:
            await self._join(lane)
        except TargetError as error:
            self.host.tell(lane.name, str(error))
            self.target.look_anew(lane.target_topic)
            await asyncio.sleep(backoff.next_s())
            await self._begin_life(lane, backoff, is_there=False)


def _is_still(lane: PartitionStream) -> bool:
    """Whether nothing of a lane is under way or in the worker."""
    return not lane.packing and all(batch.mark is None for batch in lane.flight)


def _now_ms() -> int:
    return int(time.time() * 1000)


async def _for_ever() -> None:
    """The host knows that another has taken over: it ends what waits here."""
    await asyncio.get_running_loop().create_future()
