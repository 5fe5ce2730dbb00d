"""From the group coordinator's effects to the log and to answers: what all group handlers share.

A group's records are appended to its partition of `__consumer_offsets` in the order in which the coordinator made
them, and what depends on them happens after the sync, whether or not the client that asked is still there.

Lives here: settling effects, loading them back. Must never come in: rules of groups (coordinator), wire messages of
one API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from edge_broker.broker.broker import Broker, Parked
from edge_broker.broker.context import RequestContext
from edge_broker.broker.outcome import Outcome, Park, Reply, Steps
from edge_broker.broker.read_through import DamageMet, read_through
from edge_broker.broker.write import Write, write_all
from edge_broker.clock import Clock
from edge_broker.config import BrokerConfig
from edge_broker.coordinator.calls import GroupEffects, GroupSettings
from edge_broker.coordinator.groups import GroupCoordinator
from edge_broker.coordinator.offset_records import OffsetKey, Record, read_key
from edge_broker.coordinator.storage_errors import group_error
from edge_broker.errors import ErrorCode, ProtocolViolation, Refusal, StorageFault
from edge_broker.protocol.message import Message
from edge_broker.protocol.record_batch import build_batch, read_header, records_of
from edge_broker.storage.log import PartitionLog
from edge_broker.storage.reading import whole_batches
from edge_broker.storage.segment import DamageFound
from edge_broker.storage.topics import OFFSETS_TOPIC

SYNC_MS_MAX = 30_000  # behind the interval that the configuration sets between syncs
LOAD_BYTES = 1 << 20
OFFSETS_AT_ONCE = 256


def new_coordinator(config: BrokerConfig) -> GroupCoordinator:
    """A coordinator with the configured bounds and no groups."""
    return GroupCoordinator(
        GroupSettings(
            min_session_timeout_ms=config.integer("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.integer("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=config.integer("group.initial.rebalance.delay.ms"),
            group_size_max=config.integer("group.max.size"),
            offset_metadata_max=config.integer("offset.metadata.max.bytes"),
            group_bytes_max=config.integer("message.max.bytes"),
        )
    )


def unready(broker: Broker) -> ErrorCode:
    """Why no group can be served just now, or NONE."""
    if not broker.topics.exists(OFFSETS_TOPIC):
        return ErrorCode.NOT_COORDINATOR
    if broker.groups_fault is not None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.NONE if broker.groups_loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def park(
    broker: Broker, context: RequestContext, group_id: str, effects: GroupEffects, translate: Callable[[Any], Message]
) -> Park:
    """Park a request until its result comes out of the effects, now or later; `translate` makes the response of it."""
    broker.parked[context.token] = Parked(group_id, translate)
    settle(broker, effects)
    return Park()


def settle(broker: Broker, effects: GroupEffects, done: Callable[[ErrorCode], None] | None = None) -> None:
    """Hand out the answers and keep the records of one coordinator call.

    `done` is called once, on the loop: with NONE when the records are synced, or there are none, else with why not.
    """
    for token, result in effects.answers:
        parked = broker.parked.pop(token, None)
        if parked is not None and (response := parked.translate(result)) is not None:
            broker.effects.answer(token, response)
    if effects.append:
        broker.effects.start(_keep(broker, effects, done))
    elif done is not None:
        done(ErrorCode.NONE)


def _keep(broker: Broker, effects: GroupEffects, done: Callable[[ErrorCode], None] | None) -> Outcome:
    """Write the records of one call, then let the coordinator go on."""
    writes = [
        Write(log, memoryview(bytearray(build_batch(records, timestamp_ms=broker.clock.wall_ms()))))
        for log, records in _by_partition(broker, effects.append).items()
    ]

    def written() -> Outcome:
        error = next((ErrorCode(write.error.code) for write in writes if write.error is not None), ErrorCode.NONE)
        if error not in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
            error = ErrorCode.KAFKA_STORAGE_ERROR
        now_ms = broker.clock.steady_ms()
        settle(broker, effects.synced(now_ms) if error == ErrorCode.NONE else effects.failed(error, now_ms))
        if done is not None:
            done(error)
        return Reply(None)

    wait_ms = SYNC_MS_MAX + broker.config.integer("edge.flush.interval.min.ms")
    return write_all(broker, writes, written, wait_ms)


def required_topics(broker: Broker) -> dict[str, list[str]]:
    """By group: the topics whose edge.required.groups names it."""
    found: dict[str, list[str]] = {}
    for topic in broker.store.topics.values():
        for group_id in topic.settings.groups:
            found.setdefault(group_id, []).append(topic.name)
    return found


def in_pieces(keys: Sequence[OffsetKey]) -> Iterator[Sequence[OffsetKey]]:
    """As many offsets as one step of a request drops."""
    for first in range(0, len(keys), OFFSETS_AT_ONCE):
        yield keys[first : first + OFFSETS_AT_ONCE]


class Settling:
    """Several coordinator calls of one request, which is answered once all their records are synced."""

    def __init__(self, broker: Broker) -> None:
        self.errors: dict[str, ErrorCode] = {}
        """By group: why its records were not kept."""
        self._broker = broker
        self._left = 0
        self._answer: Callable[[], None] | None = None

    def add(self, effects: GroupEffects, group_id: str) -> None:
        """Hand out what one call brought about."""
        self._left += 1
        settle(self._broker, effects, partial(self._settled, group_id))

    def _settled(self, group_id: str, error: ErrorCode) -> None:
        self._left -= 1
        if error != ErrorCode.NONE:
            self.errors.setdefault(group_id, group_error(error))
        if not self._left and self._answer is not None:
            self._answer()

    def answer_later(self, token: int, answer: Callable[[], Steps]) -> bool:
        """Have the request of this token answered once all is settled; False when it is, and nobody has to wait."""
        if self._left:
            self._answer = lambda: self._broker.effects.answer(token, answer())
        return self._left > 0


def _by_partition(broker: Broker, records: list[Record]) -> dict[PartitionLog, list[Record]]:
    partitions = broker.store.topics[OFFSETS_TOPIC].partitions
    found: dict[PartitionLog, list[Record]] = {}
    for key, value in records:
        known = read_key(key)
        assert known is not None, "the coordinator makes keys of its own kinds only"
        log = partitions[partition_for(known.group_id, len(partitions))]
        found.setdefault(log, []).append((key, value))
    return found


def partition_for(group_id: str, partitions: int) -> int:
    """The partition that keeps a group, chosen as Kafka does: Java's String.hashCode without its sign, modulo."""
    value = 0
    data = group_id.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (31 * value + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return (value & 0x7FFFFFFF) % partitions


def expire_members(broker: Broker) -> Outcome:
    """Let time pass for the groups."""
    broker.groups.wall_ahead_ms = broker.clock.wall_ms() - broker.clock.steady_ms()
    if unready(broker) == ErrorCode.NONE:
        settle(broker, broker.groups.expire(broker.clock.steady_ms()))
    return Reply(None)


def stop_groups(broker: Broker) -> Outcome:
    """Send everyone who waits for a group elsewhere."""
    settle(broker, broker.groups.stop(broker.clock.steady_ms()))
    return Reply(None)


def load_groups(broker: Broker) -> Outcome:
    """Read `__consumer_offsets` back and rebuild the groups in the reader thread; they are served once that is done.

    What is damaged is quarantined, and the groups are what the rest says of them. Requests that must know what is
    committed wait behind the topic's name.
    """
    topic = broker.store.topics.get(OFFSETS_TOPIC)
    if topic is None:
        broker.groups_loaded = True
        return Reply(None)
    loading = Loading(broker.groups.settings, broker.clock, topic.partitions)
    broker.topics.take_names([OFFSETS_TOPIC])

    def loaded() -> Outcome:
        broker.topics.free_names([OFFSETS_TOPIC])
        if loading.groups is None:
            broker.groups_fault = f"committed offsets cannot be read, groups are not served: {loading.fault}"
            return Reply(None)
        broker.groups = loading.groups
        broker.groups.is_connected = broker.is_connected
        broker.effects.note(*broker.groups.load_notes)
        broker.groups_loaded = True
        return Reply(None)

    def refused(_met: DamageMet, fault: StorageFault) -> None:
        loading.stop(fault)

    return read_through(broker, loading.work, loaded, refused)


class Loading:
    """Takes the newest value of every key from whole logs, then makes the groups of them: `groups`, else `fault`."""

    def __init__(self, settings: GroupSettings, clock: Clock, logs: list[PartitionLog]) -> None:
        self.groups: GroupCoordinator | None = None
        self.fault: Exception | None = None
        self._settings = settings
        self._clock = clock
        self._newest: dict[bytes, bytes | None] = {}
        self._left = list(logs)
        self._offset = 0

    def stop(self, fault: Exception) -> None:
        """There will be no groups."""
        self.fault = fault
        self._left.clear()

    def work(self) -> DamageMet | None:
        """Read on; the groups are there when it has met no damage, unless there is a fault. [worker: reader]"""
        while self._left:
            log = self._left[0]
            try:
                self._load(log)
            except DamageFound as found:
                return log, found
            except (StorageFault, Refusal) as error:
                self.stop(error)
            else:
                self._left.pop(0)
                self._offset = 0
        if self.fault is None:
            now_ms = self._clock.steady_ms()
            ahead_ms = self._clock.wall_ms() - now_ms
            self.groups = GroupCoordinator.load(self._settings, self._newest.items(), now_ms, wall_ahead_ms=ahead_ms)
            self._newest = {}
        return None

    def _load(self, log: PartitionLog) -> None:
        self._offset = max(self._offset, log.log_start_offset)
        while self._offset < log.high_watermark:
            chunk = memoryview(log.reader.read(self._offset, LOAD_BYTES, blocking=True) or b"")
            if not chunk:
                return  # what is left was lost, and is in the ledger
            try:
                behind = _take(chunk, self._newest)
            except ProtocolViolation as violation:
                reason = f"damaged behind offset {self._offset}: {violation}; restore the file"
                raise StorageFault(log.directory, 0, reason) from violation
            if behind <= self._offset:
                raise StorageFault(
                    log.directory, 0, f"no whole record batch can be read at offset {self._offset}; restore the file"
                )
            self._offset = behind


def _take(chunk: memoryview, newest: dict[bytes, bytes | None]) -> int:
    """Enter the records of a chunk's whole batches; the offset behind them, 0 when it holds none."""
    offset = 0
    for batch in whole_batches(chunk):
        for record in records_of(batch):
            if record.key is not None:
                newest.pop(record.key, None)  # the order of the log decides, also among different keys
                newest[record.key] = record.value
        offset = read_header(batch).next_offset
    return offset
