"""Publish records to the Kafka broker and report when each is safe: after acks=all, never before.

While the broker is unreachable nothing is dropped: records wait, bounded by bytes and count (`full`), and sources stop
reading. Each Kafka topic has its own queue, so that a topic that refuses writes does not block the others. The one
aiokafka producer is idempotent. After a fatal error a new producer sends all unacknowledged records again, in order.
First occurrences stay in order: the old producer sent A B, the new one sends A B C, so in any interleaving the first A
comes before the first B. Sources: KIP-98 (idempotence), aiokafka 0.12 and later. Does not contain: MQTT, files.

| event on a record | before | after |
|---|---|---|
| `offer` | | waiting |
| passed to the producer | waiting | sent |
| acknowledged by acks=all | sent | removed, `on_acked` called |
| producer failed | sent | waiting, at the front |
| the topic is denied to the gateway | sent | waiting, at the front; only its queue pauses, the producer stays |
| refused alone, too large or invalid | waiting, sent | replaced by its dead letter, which inherits `on_acked` |
| refused alone as too large, with the mark of a clock that is not set | waiting, sent | waiting, without the mark |
| refused for its timestamp | sent | waiting, with the time of receipt |

| event on a dead letter | then |
|---|---|
| acknowledged whole | `on_acked` called |
| refused alone as too large | waiting, with less of its payload (`dead_letters.PAYLOAD_BYTES_STEPS`) |
| acknowledged after it was shortened | its ledger record is offered, which inherits `on_acked` |
| refused without any payload | replaced by its ledger record, which inherits `on_acked` |
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from drupelet.backoff import Backoff
from drupelet.errors import sentence
from drupelet.ledger import LEDGER_TOPIC
from drupelet.observe.log_tree import Log
from gateway.config import KafkaConfig
from gateway.metrics import Metrics
from gateway.records import dead_letters
from gateway.records.records import CAUSE_TOO_LARGE, Loss, Record, new_loss_id
from gateway.routing.route_status import RouteStatus

STALLED_AFTER_S = 10.0
LOOK_S = 1.0  # between two checks of the producer's connection
LOGGED_CHARACTERS_MAX = 200
REFUSAL_KEPT_S = 600.0  # then the gateway sends a record of that size again: the topic's settings may have changed
_log = Log("gateway.publisher")


class Producer(Protocol):
    """The part of a Kafka producer that lanes use; raises what the publisher's `ProducerErrors` name."""

    async def send(self, record: Record) -> asyncio.Future[Any]:
        """Queue a record and return the future of its acknowledgement; if it raises, nothing is queued."""

    async def connection_problem(self) -> str:
        """Return why no broker is connected at two calls in a row, else empty; try to connect."""

    def halt(self) -> None:
        """Send nothing more: a later batch must not overtake one that failed."""

    async def discard(self) -> None:
        """Close at once without sending queued records."""


class RefusedRecordError(Exception):
    """The broker never accepts this record, or a batch that contains it."""


class RefusedTooLargeError(RefusedRecordError):
    """The client or the broker never accepts a record, or a batch, of this size."""


class RefusedTimestampError(Exception):
    """The broker accepts no record with this timestamp."""


class KafkaFailure(Exception):
    """The client or the broker could not accept a record now."""


class DeniedTopicError(KafkaFailure):
    """The broker does not let this client write to the topic, for now."""


@dataclass(slots=True, eq=False)
class _Delivery:
    record: Record
    on_acked: Callable[[], None]
    offered_s: float
    reason: str = ""  # of a dead letter
    loss: Loss | None = None  # the missing part of a dead letter: its ledger record follows it, before `on_acked`
    alone: bool = False  # sent alone after its batch was refused: if it is refused again, it is the cause
    restamped: bool = False


@dataclass(slots=True)
class _TopicQueue:
    topic: str
    waiting: deque[_Delivery] = field(default_factory=deque)
    sent: dict[_Delivery, asyncio.Future[Any]] = field(default_factory=dict)  # in the order of sending
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    trouble: str | None = None
    denied: bool = False
    backoff: Backoff = field(default_factory=Backoff)
    refused_bytes: int | None = None  # the smallest record that the broker found too large, for REFUSAL_KEPT_S
    refused_s: float = 0.0

    def requeue(self) -> None:
        """Move records without an answer back to the front of the queue, in order."""
        self.waiting.extendleft(reversed(self.sent))
        self.sent.clear()
        self.wake.set()


class Publisher:
    """Accepts records by `offer` and calls back when each is safe; `run` works until cancelled."""

    def __init__(
        self,
        config: KafkaConfig,
        metrics: Metrics,
        node: str,
        start_producer: Callable[[], Awaitable[Producer]],
        mark: Callable[[Record], Record] = lambda record: record,
    ) -> None:
        """Build the publisher; `mark` returns a record with the mark of a clock that is not set."""
        self._config = config
        self._metrics = metrics
        self._node = node
        self._start_producer = start_producer
        self._mark = mark
        self._topic_queues: dict[str, _TopicQueue] = {}
        self._producer: Producer | None = None
        self._broken: asyncio.Future[BaseException] | None = None
        self._backoff = Backoff()
        self._replace_after_s = 2 * config.request_timeout_ms / 1000
        self._pending_bytes = 0
        self._pending_records = 0
        self._room = asyncio.Event()
        self._room.set()
        self._empty = asyncio.Event()
        self._empty.set()
        self.connected = asyncio.Event()  # once, by the first producer
        self._last_progress_s = time.monotonic()
        self._trouble: str | None = None
        self._lost = ""
        self.routes = RouteStatus()
        metrics.pending_records.set_function(lambda: self._pending_records)
        metrics.pending_bytes.set_function(lambda: self._pending_bytes)

    @property
    def full(self) -> bool:
        """Whether sources must stop reading; the bound is soft: a source may add what it has already read."""
        return (
            self._pending_bytes >= self._config.pending_bytes_max
            or self._pending_records >= self._config.pending_records_max
        )

    @property
    def pending_records(self) -> int:
        """Records accepted and not yet acknowledged."""
        return self._pending_records

    async def room(self) -> None:
        """Wait until the publisher is not full."""
        while self.full:
            self._room.clear()
            await self._room.wait()

    async def wait_drained(self) -> None:
        """Wait until every record offered so far and since is acknowledged."""
        await self._empty.wait()

    def offer(self, record: Record, on_acked: Callable[[], None]) -> None:
        """Accept a record; call `on_acked` once, on the loop, when it (or its ledger record) is on disk."""
        self._deliver(_Delivery(self._mark(record), on_acked, time.monotonic()))

    def dead_letter(
        self, record: Record, reason: str, detail: str, on_acked: Callable[[], None], loss: Loss | None = None
    ) -> None:
        """Write a record that cannot be used to the dead-letter topic; call `on_acked` when it is on disk.

        `loss` is the part that the record lacks already; it is in the ledger before `on_acked` is called. So is the
        part that is cut off to make the dead letter small enough for the broker.
        """
        self._note_refused(record, reason, detail)
        letter = dead_letters.dead_letter(self._mark(record), self._config.dead_letter_topic, reason, detail)
        if loss is not None:
            letter = dead_letters.cut_to(letter, len(letter.value), len(letter.value) + (loss.bytes or 0))
        self._deliver(_Delivery(letter, on_acked, time.monotonic(), reason=reason, loss=loss))

    def _note_refused(self, record: Record, reason: str, detail: str) -> None:
        messages = self.routes.record_refused(record.route, reason, time.monotonic())
        if messages is not None:  # a device that sends only such messages must not fill the log
            _log.warning("dead_letter", reason=reason, detail=detail, origin=_short(record.origin), messages=messages)

    def _deliver(self, delivery: _Delivery) -> None:
        if self._pending_records == 0:
            self._last_progress_s = time.monotonic()
        record = delivery.record
        self._count(record, +1)
        lane = self._topic_queues.get(record.topic)
        if lane is None:
            lane = self._topic_queues[record.topic] = _TopicQueue(record.topic)
            self._start_queue(lane)
        lane.waiting.append(delivery)
        lane.wake.set()

    def report(self, loss: Loss, on_acked: Callable[[], None], *, reason: str) -> None:
        """Write a loss with its `reason` to the ledger, and to the log; call `on_acked` when it is on disk."""
        _log.warning("loss", reason=reason, cause=loss.cause, topic=_short(loss.topic), bytes=loss.bytes, id=loss.id)
        self.offer(loss.to_record(self._node, reason), partial(self._loss_written, loss, on_acked))

    def _loss_written(self, loss: Loss, on_acked: Callable[[], None]) -> None:
        self._metrics.ledger_records.labels(loss.cause).inc()
        on_acked()

    def problem(self) -> str | None:
        """Return in one line why records are not published, or None."""
        waited_s = time.monotonic() - self._last_progress_s
        waits = [lane for lane in self._topic_queues.values() if lane.waiting or lane.sent]
        troubles = (self._trouble, self._lost, *(lane.trouble for lane in waits))
        trouble = next(filter(None, troubles), None)
        if trouble is not None:
            return f"{trouble}; {self._pending_records} records wait"
        if self._pending_records and waited_s > STALLED_AFTER_S:
            servers = ",".join(self._config.bootstrap_servers)
            return f"no acknowledgement from {servers} for {waited_s:.0f} s; {self._pending_records} records wait"
        return None

    async def run(self) -> None:
        """Run a producer until cancelled; retry failures without end, with backoff."""
        while True:
            try:
                self._producer = await self._connect()
                error = await self._work(self._producer)
                _log.warning("producer_replaced", error=sentence(error), pending_records=self._pending_records)
                self._metrics.producer_restarts.inc()
            finally:
                await self._release()
            await asyncio.sleep(self._backoff.next_s())

    async def _connect(self) -> Producer:
        while True:
            try:
                producer = await self._start_producer()
            except (OSError, TimeoutError, KafkaFailure) as error:
                self._trouble = f"the broker cannot be reached ({sentence(error)})"
                _log.warning("broker_away", error=sentence(error), pending_records=self._pending_records)
                await asyncio.sleep(self._backoff.next_s())
            else:
                self._trouble, self._lost = None, ""
                self.connected.set()
                self._tell_connected()
                return producer

    async def _work(self, producer: Producer) -> BaseException:
        self._broken = asyncio.get_running_loop().create_future()
        for lane in self._topic_queues.values():
            self._start_queue(lane)
        while not self._broken.done():
            await asyncio.wait([self._broken], timeout=min(LOOK_S, self._replace_after_s))
            if self._broken.done():
                break
            await self._check_connection(producer)
            if self._pending_records and time.monotonic() - self._last_progress_s > self._replace_after_s:
                # aiokafka never asks the bootstrap servers again: only a new producer finds a broker with a new address
                self._break(KafkaFailure(f"no acknowledgement for {self._replace_after_s:.0f} s"))
        return self._broken.result()

    async def _check_connection(self, producer: Producer) -> None:
        """Log once that the connection is lost, and once that it is restored."""
        lost, before = await producer.connection_problem(), self._lost
        self._lost = f"the connection to the broker is lost ({lost})" if lost else ""
        if lost and not before:
            _log.warning("broker_lost", error=lost, pending_records=self._pending_records)
        elif before and not lost:
            self._tell_connected()

    def _tell_connected(self) -> None:
        _log.info("broker_connected", bootstrap_servers=",".join(self._config.bootstrap_servers))

    async def _release(self) -> None:
        """Stop the topic queues and the producer; unacknowledged records wait again, in order."""
        producer, self._producer, self._broken = self._producer, None, None
        tasks = [lane.task for lane in self._topic_queues.values() if lane.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if producer is not None:
            await producer.discard()
        for lane in self._topic_queues.values():
            lane.task = None
            lane.requeue()

    def _start_queue(self, queue: _TopicQueue) -> None:
        if self._producer is not None and queue.task is None:
            queue.task = asyncio.get_running_loop().create_task(self._run_queue(queue, self._producer))
            queue.task.add_done_callback(self._queue_ended)

    def _queue_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._break(error)

    def _break(self, error: BaseException) -> None:
        if self._broken is not None and not self._broken.done():
            self._broken.set_result(error)
            if self._producer is not None:
                self._producer.halt()

    async def _run_queue(self, queue: _TopicQueue, producer: Producer) -> None:
        while True:
            while not queue.waiting and not queue.denied:
                queue.wake.clear()
                await queue.wake.wait()
            if queue.denied:
                await self._pause(queue)
                continue
            delivery = queue.waiting[0]
            if delivery.alone and queue.sent:
                await asyncio.wait(list(queue.sent.values()))
            if self._broken is not None and self._broken.done():
                return  # the next producer would send again what this one still accepted
            try:
                if queue.refused_bytes is not None and delivery.record.sent_bytes >= queue.refused_bytes:
                    _leave_out_mark(delivery)
                self._check_size(queue, delivery)
                answer = await producer.send(delivery.record)
            except RefusedTooLargeError as error:
                queue.waiting.popleft()
                self._refuse(delivery, error)
                continue
            except KafkaFailure as error:  # not queued: the topic is not known yet, or the broker is unreachable
                queue.trouble = f"topic {queue.topic} takes no records ({sentence(error)})"
                _log.warning("send_retried", topic=queue.topic, error=sentence(error), waiting=len(queue.waiting))
                await asyncio.sleep(queue.backoff.next_s())
                continue
            queue.waiting.popleft()
            queue.sent[delivery] = answer
            answer.add_done_callback(partial(self._answer_received, queue, delivery))
            if delivery.alone:
                await asyncio.wait([answer])

    def _answer_received(self, queue: _TopicQueue, delivery: _Delivery, answer: asyncio.Future[Any]) -> None:
        if delivery not in queue.sent:  # a late answer to a discarded producer; the record is sent again
            if not answer.cancelled():
                answer.exception()
            return
        error = asyncio.CancelledError() if answer.cancelled() else answer.exception()
        if error is None:
            del queue.sent[delivery]
            queue.trouble = None
            queue.backoff.reset()
            self._mark_acked(delivery)
        elif isinstance(error, DeniedTopicError):
            queue.trouble = f"topic {queue.topic} takes no records ({sentence(error)})"
            queue.denied = True
            queue.wake.set()
        else:
            self._note_refusal(queue, delivery, error)
            self._break(error)  # the refused batch used sequence numbers: only a new producer can continue

    def _note_refusal(self, queue: _TopicQueue, delivery: _Delivery, error: BaseException) -> None:
        """Decide what follows the error answer to a record: the same record again, or a changed one."""
        if isinstance(error, RefusedRecordError) and queue.topic != LEDGER_TOPIC:
            if delivery.alone:
                self._learn_bound(queue, delivery, error)
                if not isinstance(error, RefusedTooLargeError) or not _leave_out_mark(delivery):
                    del queue.sent[delivery]
                    self._refuse(delivery, error)
            delivery.alone = True
        elif isinstance(error, RefusedTimestampError):
            if delivery.alone and not delivery.restamped:
                delivery.record = delivery.record.at_receipt()
                delivery.restamped = True
            delivery.alone = True

    def _mark_acked(self, delivery: _Delivery) -> None:
        record = delivery.record
        now = time.monotonic()
        self._last_progress_s = now
        self._trouble = None
        self._backoff.reset()
        self._metrics.records.labels(record.source, record.topic).inc()
        self._metrics.ack_seconds.observe(now - delivery.offered_s)
        if delivery.reason:
            self._metrics.dead_letters.labels(record.route, delivery.reason).inc()
        elif record.route:
            self._metrics.accepted.labels(record.route, record.time_unit).inc()
            self.routes.record_accepted(record.route, now)
        if delivery.loss is None:
            delivery.on_acked()
        else:
            self.report(delivery.loss, delivery.on_acked, reason=delivery.reason)
        self._count(record, -1)  # last: its replacement is pending first, so `wait_drained` waits for that

    def _check_size(self, queue: _TopicQueue, delivery: _Delivery) -> None:
        """Bound records by `record_bytes_max`; bound dead letters and ledger records by what the broker accepts."""
        size = delivery.record.payload_bytes
        if size > self._config.record_bytes_max and not delivery.reason and queue.topic != LEDGER_TOPIC:
            raise RefusedTooLargeError(f"{size} bytes, above record_bytes_max")
        if queue.refused_bytes is not None and time.monotonic() - queue.refused_s > REFUSAL_KEPT_S:
            queue.refused_bytes = None
        if queue.refused_bytes is not None and size >= queue.refused_bytes:
            raise RefusedTooLargeError(f"{size} bytes, and the broker has refused {queue.refused_bytes}")

    def _learn_bound(self, queue: _TopicQueue, delivery: _Delivery, error: RefusedRecordError) -> None:
        """Note what is too large for a topic: each refusal costs a producer, and every topic its records in flight.

        Compressed records are not noted: their size at the broker does not predict that of the next one.
        """
        if isinstance(error, RefusedTooLargeError) and self._config.compression_type == "none":
            size = delivery.record.sent_bytes
            queue.refused_bytes = size if queue.refused_bytes is None else min(size, queue.refused_bytes)
            queue.refused_s = time.monotonic()

    async def _pause(self, queue: _TopicQueue) -> None:
        """Put back the records of a denied topic, in order; the other topics continue."""
        _log.warning(
            "topic_denied", topic=queue.topic, error=queue.trouble, waiting=len(queue.waiting) + len(queue.sent)
        )
        if queue.sent:
            await asyncio.wait(list(queue.sent.values()))
        queue.requeue()
        await asyncio.sleep(queue.backoff.next_s())
        queue.denied = False

    def _refuse(self, delivery: _Delivery, error: RefusedRecordError) -> None:
        """Replace a record by its dead letter, a dead letter by a shorter one or, finally, by its ledger record."""
        if delivery.reason:
            self._shorten(delivery, error)
        else:
            too_large = isinstance(error, RefusedTooLargeError)
            reason = dead_letters.REASON_TOO_LARGE if too_large else dead_letters.REASON_INVALID_RECORD
            detail = f"{delivery.record.topic} does not take it: {sentence(error)}"
            self.dead_letter(delivery.record, reason, detail, delivery.on_acked)
        self._count(delivery.record, -1)

    def _shorten(self, delivery: _Delivery, error: RefusedRecordError) -> None:
        record = delivery.record
        letter = dead_letters.shorten(record) if isinstance(error, RefusedTooLargeError) else None
        lost_bytes = dead_letters.whole_bytes(record) - (0 if letter is None else len(letter.value))
        now_ms = time.time_ns() // 1_000_000
        loss = delivery.loss or Loss(new_loss_id(), CAUSE_TOO_LARGE, record.origin, 1, 0, now_ms)
        loss = replace(loss, bytes=lost_bytes)
        if letter is None:
            self.report(loss, delivery.on_acked, reason=f"{delivery.reason}, and no dead letter: {sentence(error)}")
        else:
            self._deliver(_Delivery(letter, delivery.on_acked, delivery.offered_s, reason=delivery.reason, loss=loss))

    def _count(self, record: Record, sign: int) -> None:
        self._pending_records += sign
        self._pending_bytes += sign * record.memory_bytes
        if not self.full:
            self._room.set()
        if self._pending_records:
            self._empty.clear()
        else:
            self._empty.set()


def _leave_out_mark(delivery: _Delivery) -> bool:
    """Remove the mark of a clock that is not set, so that no record is refused for it. Return whether it had one."""
    record = delivery.record
    if record.boot is None:
        return False
    moment = {"boot_id": record.boot.boot_id, "boot_time_ms": record.boot.boot_time_ms}
    _log.warning("boot_mark_left_out", topic=record.topic, timestamp_ms=record.timestamp_ms, **moment)
    delivery.record = replace(record, boot=None, moment=record.boot)  # a dead letter of it has the mark again
    return True


def _short(text: str) -> str:
    """Return a text shortened for a log line; an MQTT topic may have 65,535 bytes."""
    return text if len(text) <= LOGGED_CHARACTERS_MAX else f"{text[:LOGGED_CHARACTERS_MAX]}…"
