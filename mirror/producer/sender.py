"""Sends batches to the target: decides which may go, writes Produce requests, and reads the responses.

A batch is final once it is packed (batch_packer.py). It goes once the state topic has what its sequences mean.

| response | then |
|---|---|
| none of its batches failed | each is safe; if a base offset is below the expected one, its stream is unsure |
| an error, or no response because the connection is lost | the stream is unsure: delivery_resolver.py |

Does not contain: by which connection a stream goes (leader_placement.py), the order on a connection
(target_connection.py), how much and how packed (link_model.py, batching.py), which offsets are safe
(target_state.py, source_offsets.py), reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple, Protocol

from drupelet.backoff import Backoff
from drupelet.observe.log_tree import Log
from drupelet.printable import peer_text
from edge_broker.errors import ErrorCode
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
from mirror.client.append_time_clock import boot_s, wall_ms
from mirror.client.target_client import Target
from mirror.ledger.dead_letter import RefusedRecord
from mirror.link.link_model import InFlightRequest, Link
from mirror.partition.send_state import (
    CHANGING_CONNECTION,
    GONE,
    SENDING,
    UNSURE,
)
from mirror.partition.stream import Batch, PartitionStream
from mirror.producer.batch_packer import BatchPacker
from mirror.producer.batching import Job, next_job
from mirror.producer.connection_assignment import BACKLOG_S, ConnectionAssignment
from mirror.producer.delivery_resolver import DeliveryResolver, SessionListener
from mirror.producer.failures.batch_isolation import Isolation
from mirror.producer.failures.produce_errors import LOST, OPEN
from mirror.producer.failures.refusals import Refusals
from mirror.producer.leader_placement import LeaderPlacement
from mirror.producer.target_connection import TargetConnection
from mirror.session.producer_sessions import ProducerSessions

_log = Log("mirror")

BATCHES_MAX = 5  # of a partition in flight: as many as a broker deduplicates
REMEMBERED_S = 12 * 3600.0
"""Of older records, and after them, one batch is in flight at a time.

If the last batch that Kafka accepted is a day old by its timestamp (producer.id.expiration.ms), Kafka soon forgets the
producer. Then it would accept a batch although it refused the one before. So it does with a producer that it does not
know yet, if no fence has announced it.
"""


class Host(SessionListener, Protocol):
    """The owner of the streams."""

    def batch_acked(self, stream: PartitionStream, batch: Batch) -> None:
        """Note that a batch is safe at the target, and all before it."""

    def refused_record(self, stream: PartitionStream, refused: RefusedRecord) -> Awaitable[bool]:
        """Resolve a record that the target refuses; return whether it was recorded and the stream goes on after it."""

    def connection_lost(self) -> None:
        """Note that a connection to the target ended."""

    def offsets_changed(self, stream: PartitionStream) -> None:
        """Note that a stream's offsets may have changed."""

    def transaction_ended(self, outcome: str) -> None:
        """Note a transaction's outcome, one of metrics.OUTCOMES."""


class Settings(NamedTuple):
    """The user's settings: bytes of merged batches before compression, times in seconds."""

    batch_bytes_max: int
    request_timeout_s: float
    delivery_timeout_s: float
    backoff_first_s: float
    backoff_max_s: float
    buffer_bytes_max: int = 8 << 20


class Sender:
    """Sends for all streams; `quiet` is set while nothing is in flight."""

    def __init__(self, target: Target, sessions: ProducerSessions, link: Link, settings: Settings, host: Host) -> None:
        self.target, self.sessions, self.link, self.settings, self.host = target, sessions, link, settings, host
        self.refusals = Refusals(
            link,
            host,
            sessions.note,
            batch_bytes_max=settings.batch_bytes_max,
            buffer_bytes_max=settings.buffer_bytes_max,
        )
        self.isolation = Isolation(target, link, self.refusals, host.report_problem)
        self.transactional_id: str | None = None  # of transactions, which transactional_sender.py ends
        self.quiet = asyncio.Event()
        self.quiet.set()
        self.stopping = False
        self.assignment = ConnectionAssignment(link, self._make_pipe, self.consider)
        self._under_way: set[InFlightRequest] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.placement = LeaderPlacement(
            target, self.assignment, self.refusals, self.isolation.limits, host.report_problem, self
        )
        self.resolver = self._make_resolver()
        self._failures = self.resolver.failures
        self.packer = BatchPacker(link, self.resolver)
        self.pack: Callable[[Sequence[Job]], Awaitable[list[Batch]]] = self.packer.pack
        self._bug: asyncio.Future[None] | None = None

    # -- tasks

    async def run(self) -> None:
        """Wait for ever; raise an exception that leaves one of the tasks, which is a bug."""
        self._bug = asyncio.get_running_loop().create_future()
        await self._bug

    async def close(self) -> None:
        """End every task; batches in flight may arrive or not."""
        tasks = [*self._tasks, *(connection.task for connection in self.assignment.target_connections)]
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        await self.packer.close()
        for error in ends:
            if isinstance(error, Exception):
                raise error

    async def finish(self) -> None:
        """Take nothing more, and wait until all requests in flight are answered."""
        self.stopping = self.packer.stopping = True
        await self.quiet.wait()

    def _make_resolver(self) -> DeliveryResolver:
        return DeliveryResolver(
            self.target,
            self.sessions,
            self.host,
            self,
            self.placement,
            self.refusals,
            self.isolation,
            self.make_backoff,
        )

    def make_backoff(self) -> Backoff:
        """Return the waits of one stream between its attempts."""
        return Backoff(self.settings.backoff_first_s, self.settings.backoff_max_s)

    def _make_pipe(self, node: int, number: int) -> TargetConnection:
        return TargetConnection(
            self, self.assignment, self.target.cluster, self.link, self.host.report_problem, node, number
        )

    def start(self, stream: PartitionStream) -> None:
        """Begin to send the batches that this stream reads."""
        stream.batch_bytes_max = self.settings.batch_bytes_max
        self.ensure_topic(stream)

    def drop(self, stream: PartitionStream) -> None:
        """Send nothing of it any more."""
        stream.enter(GONE)
        for task in stream.tasks:
            task.cancel()
        if stream.connection is not None:
            stream.connection.release(stream)
        self._failures.pop(stream, None)
        self.refusals.held.forget(stream)
        self.isolation.forget(stream)
        flight = [piece for batch in (*stream.uncommitted, *stream.flight) for piece in batch.pieces]
        stream.uncommitted.clear()
        stream.flight.clear()
        stream.clear()
        stream.release(flight)

    def spawn(self, stream: PartitionStream, work: Coroutine[Any, Any, None]) -> None:
        """Run something for a stream, until that is dropped."""
        task = self.spawn_task(work)
        stream.tasks.add(task)
        task.add_done_callback(stream.tasks.discard)

    def spawn_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something concurrently with all else; `run` raises what it raises."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self.task_ended)
        return task

    def task_ended(self, task: asyncio.Task[None]) -> None:
        """Have `run` raise what a task has raised."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._raise(error)

    def _raise(self, error: BaseException) -> None:
        if self._bug is not None and not self._bug.done():
            self._bug.set_exception(error)

    def oldest_s(self, now: float) -> float:
        """Return for how long, in seconds, the oldest request has had no response."""
        return max((now - mark.sent_at for mark in self._under_way), default=0.0)

    def tick(self) -> None:
        """Adapt connections and drained streams; about each second."""
        self.assignment.grow()
        for stream in self.refusals.held.read_to_the_end():
            self.refusals.forget([stream])
            self.resolver.note_if_drained(stream)

    def begin_anew(self, stream: PartitionStream) -> None:
        """Start a session at the start of the source's log, of a stream with nothing left to be sent."""
        stream.starts_anew = True
        self.resolver.mark_unsure(stream)

    # -- topics and leaders

    def ensure_topic(self, stream: PartitionStream) -> None:
        """Create the topic of a stream if it does not exist, and start a producer session."""
        self.spawn(stream, self.resolver.ensure_topic(stream))

    async def leader_unreachable(self, connection: TargetConnection) -> None:
        """Find new leaders for the streams of a connection whose broker does not answer."""
        await self.placement.leave_unreachable(connection)

    def back(self, connection: TargetConnection) -> None:
        """Assign the streams of a connection again that is established again."""
        self.placement.reassign(connection)

    # -- streams that may send

    def consider(self, stream: PartitionStream) -> None:
        """Queue a stream if it is ready to send; cheap, and called whenever that may have changed."""
        offsets = stream.offsets
        if not stream.packing and offsets.position < stream.next_offset:
            stream.skip(stream.next_offset)  # explained, or in the ledger
        self.host.offsets_changed(stream)
        if stream.send_state is not SENDING or stream.packing or self.stopping:
            return
        connection: TargetConnection = stream.connection
        waiting = next((batch for batch in stream.flight if batch.mark is None), None)
        if waiting is not None and stream.may_go(waiting):
            connection.put(stream)
            return
        if not stream.buffer or len(stream.flight) >= self._batches_max(stream):
            return
        is_enough = self._is_enough(stream)
        if self.assignment.must_move(stream):
            if not stream.flight:  # else two connections would carry it concurrently, in no order
                stream.enter(CHANGING_CONNECTION)
                self.spawn(stream, self.placement.change_connection(stream))
        elif is_enough:
            connection.put(stream)

    @staticmethod
    def _batches_max(stream: PartitionStream) -> int:
        """Return one if the next batch may be refused: a target without the producer's state would take a later one."""
        may_be_refused = stream.boundary is not None and stream.boundary > stream.offsets.acked
        return 1 if stream.is_alone or may_be_refused else stream.flight_max

    def _is_enough(self, stream: PartitionStream) -> bool:
        link, loop = self.link, asyncio.get_running_loop()
        whole_batch = stream.buffer_bytes * stream.shrinkage >= link.batch_bytes
        if whole_batch or stream.buffer_bytes * stream.growth >= stream.batch_bytes_max:
            stream.backlog_until = loop.time() + BACKLOG_S
            return True
        waits_s = stream.waits_since + link.linger_s - loop.time()
        if waits_s <= 0 or stream.urgent:
            return True
        if not stream.lingers:
            stream.lingers = True
            stream.connection.lingering[stream] = None
            loop.call_later(waits_s, self._linger_elapsed, stream)
        return False

    def _linger_elapsed(self, stream: PartitionStream) -> None:
        stream.lingers = False
        stream.connection.lingering.pop(stream, None)
        self.consider(stream)

    def has_lingered(self, stream: PartitionStream) -> bool:
        """Return whether half of a stream's linger is over: then it joins another request, which costs less."""
        return asyncio.get_running_loop().time() >= stream.waits_since + self.link.linger_s / 2

    def take(self, stream: PartitionStream, bytes_max: int) -> Batch | Job | None:
        """Take the stream's next batch: a final one, or one to pack; None if it has none."""
        if stream.send_state is not SENDING or stream.packing:
            return None
        waiting = next((batch for batch in stream.flight if batch.mark is None), None)
        if waiting is not None and stream.may_go(waiting):
            return waiting
        is_full = self.stopping or len(stream.flight) >= self._batches_max(stream)
        return None if is_full else next_job(stream, self.link, stream.codec, bytes_max)

    # -- requests and responses

    def post(self, node: int, connection: Connection, batches: Sequence[Batch], told: Callable[[int], None]) -> int:
        """Write a request with a batch of each stream, or several if `node` is known to refuse such a large one.

        New batches are noted in their streams' offsets. Return the bytes in flight; `told` is called with these once
        they are answered or lost.
        """
        sent = [batch for batch in batches if self._admit(batch)]
        requests, above = self.isolation.limits.requests(node, sent)
        for batch in above:
            batch.outcome = ErrorCode.MESSAGE_TOO_LARGE
            self.resolver.mark_unsure(batch.stream)
        return sum(self._post(connection, some, told) for some in requests)

    def _post(self, connection: Connection, sent: Sequence[Batch], told: Callable[[int], None]) -> int:
        loop = asyncio.get_running_loop()
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in sent:
            data = PartitionProduceData(index=batch.stream.partition.partition, records=memoryview(batch.packed.batch))
            topics.setdefault(batch.stream.target_topic, []).append(data)
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=ALL_REPLICAS,
            timeout_ms=int(self.settings.request_timeout_s * 1000),
            topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
        )
        mark = self.link.request_sent(loop.time(), sum(batch.size for batch in sent))
        for batch in sent:
            batch.mark, batch.outcome = mark, None
            batch.posted_s = batch.posted_s or boot_s()
        self._under_way.add(mark)
        self.quiet.clear()
        future = connection.send(PRODUCE, request, timeout_s=self._answer_s())
        future.add_done_callback(lambda _: told(mark.size))
        future.add_done_callback(lambda done: self._response_received(sent, mark, done))
        return mark.size

    def _answer_s(self) -> float:
        """Return the timeout of a request in seconds: all bytes in flight before it must pass the link first."""
        settings, link = self.settings, self.link
        passing_s = link.under_way_bytes / link.rate if link.rate else settings.request_timeout_s
        longest_s = max(settings.delivery_timeout_s, settings.request_timeout_s)
        return min(longest_s, settings.request_timeout_s + 4 * passing_s)

    def _admit(self, batch: Batch) -> bool:
        """Return whether a batch may go; a batch that was just packed is in flight from now on."""
        stream = batch.stream
        if batch in stream.flight:
            self.resolver.check_age(stream)
            return batch.mark is None and stream.send_state not in UNSURE
        if stream.send_state is GONE:
            return False
        if batch.sent is None:
            stream.skip(batch.end_offset)
            stream.release(batch.pieces)
            return False
        if stream.offsets.position < batch.pieces[0].first_offset:
            stream.offsets.skip(batch.pieces[0].first_offset)
        stream.offsets.send(batch.end_offset)
        stream.flight_max = BATCHES_MAX if self._is_remembered(stream, batch) else 1
        is_next = all(before.mark is not None for before in stream.flight)
        stream.flight.append(batch)
        if stream.may_go(batch):
            return is_next
        self.sessions.note(stream)
        return False

    def _is_remembered(self, stream: PartitionStream, batch: Batch) -> bool:
        """Return whether the target still deduplicates this producer, so that a refused batch blocks the next.

        It ages a producer by the last batch that it accepted, so that one must be young too.
        """
        assert stream.state is not None
        oldest_ms = wall_ms() - REMEMBERED_S * 1000
        begun_at, safe = stream.state.session.records, stream.state.map.end.records
        # The end of a new log is unknown.
        is_known = safe > begun_at or (begun_at > 0 and not self.sessions.is_unfenced)
        return is_known and min(stream.remembered_ms, BatchHeader(batch.packed.batch).max_timestamp) >= oldest_ms

    def _response_received(
        self, batches: Sequence[Batch], mark: InFlightRequest, done: asyncio.Future[ProduceResponse]
    ) -> None:
        try:
            self._on_response(batches, mark, done)
        except Exception as error:  # else the loop would only log it
            self._raise(error)
            raise

    def _on_response(
        self, batches: Sequence[Batch], mark: InFlightRequest, done: asyncio.Future[ProduceResponse]
    ) -> None:
        now = asyncio.get_running_loop().time()
        self._under_way.discard(mark)
        told: dict[tuple[str, int], PartitionProduceResponse] = {}
        if done.cancelled() or done.exception() is not None:
            self.link.request_lost(mark)
        else:
            self.link.request_acked(now, mark)
            for topic in done.result().responses:
                told |= {(topic.name, one.index): one for one in topic.partition_responses}
        for batch in batches:
            batch.mark = None
            batch.took_s = now - mark.sent_at
            self._resolve_response(batch, told.get((batch.stream.target_topic, batch.stream.partition.partition)))
        if not self._under_way:
            self.quiet.set()
        for connection in self.assignment.target_connections:
            connection.wake.set()

    def _resolve_response(self, batch: Batch, answer: PartitionProduceResponse | None) -> None:
        stream = batch.stream
        if stream.send_state is GONE or batch not in stream.flight:
            return
        code = LOST if answer is None else answer.error_code
        batch.lost += code in OPEN
        is_next = batch is stream.flight[0] and stream.send_state not in UNSURE
        if code == ErrorCode.NONE and is_next and self._record_offset(stream, answer):
            stream.flight.pop(0)
            self._on_acked(stream, batch)
            if self._failures.pop(stream, None) is not None:
                self.refusals.forget([stream])
                self.host.report_problem(stream.name, "")
            self.consider(stream)
            return
        batch.outcome = code
        batch.said = "" if answer is None else peer_text(answer.error_message)
        self.resolver.mark_unsure(stream)

    def _record_offset(self, stream: PartitionStream, answer: PartitionProduceResponse | None) -> bool:
        """Note the base offset of the first batch in flight; return False if it contradicts the map."""
        assert answer is not None
        assert stream.state is not None
        if answer.base_offset < 0:
            return False
        away = stream.state.batch_acked(answer.base_offset)
        if away < 0:
            stream.answered_below = True
            self.target.forget(stream.target_topic)  # it may be another of that name
            _log.error(
                "target_answered_below",
                **stream.fields(),
                offset=answer.base_offset,
                expected=answer.base_offset - away,
            )
        if away > 0 and stream.state.is_urgent:
            self.sessions.note(stream)
        return away >= 0

    def _on_acked(self, stream: PartitionStream, batch: Batch) -> None:
        """Handle a batch that all replicas have."""
        self.mark_acked(stream, batch)

    def mark_acked(self, stream: PartitionStream, batch: Batch) -> None:
        """Note that a batch is safe at the target, and all before it; it is not in flight any more."""
        assert stream.state is not None
        stream.offsets.ack(stream.state.map.end.target_offset)
        stream.remembered_ms = BatchHeader(batch.packed.batch).max_timestamp
        self.host.batch_acked(stream, batch)
        stream.release(batch.pieces)
        self.isolation.batch_acked(stream, batch)

    def connection_lost(self, connection: TargetConnection) -> None:
        """Note that a connection ended."""
        self.isolation.connection_lost(connection)
        self.host.connection_lost()
