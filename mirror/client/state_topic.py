"""Creates, reads and writes the state topic at the target.

| call | requests, each a round trip |
|---|---|
| `open` | Metadata; if the topic does not exist CreateTopics, and Metadata until it has a leader |
| `is_same` | Metadata |
| `read` | Fetch of committed records, from the start to the end in the first response |
| `write` | Produce, up to five in flight, of one batch each: an idempotent producer's request has one per partition |

Its one partition is fenced with the partitions that it describes. Once the fence is confirmed it can be read: no older
mirror writes to it any more. Its timestamps are the target's clock (LogAppendTime): whatever the clock of this host
shows, the target accepts the batch and keeps the producer's state. A read holds one response besides `Reading`.
Does not contain: what the records mean (state_records.py), retries: after an error the caller connects or fences again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence

from drupelet.kafka.client import replicas_for
from drupelet.printable import peer_text
from edge_broker.errors import ErrorCode, ProtocolViolation, Refusal, error_name
from edge_broker.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from edge_broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from edge_broker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from edge_broker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from edge_broker.protocol.record_batch import build_batch, records_of
from kafka_wire.apis import (
    ALL_REPLICAS,
    CONSUMER,
    CREATE_TOPICS,
    EARLIEST,
    FETCH,
    LIST_OFFSETS,
    PRODUCE,
    READ_COMMITTED,
)
from kafka_wire.cluster import SIDE, Cluster, Leader
from kafka_wire.connection.connection import Connection
from kafka_wire.connection.errors import WireError
from kafka_wire.records.batches import SEQUENCES, BadBatch, Piece, SkippedRange, last_marker, merge, pieces_of, stamp
from kafka_wire.transactions.fencing import ProducerFenced
from mirror.client.append_time_clock import TargetClock, boot_s
from mirror.errors import TopicRefusedError
from mirror.partition.state_records import Partition, Reading, Record, StateError

ANSWER_BYTES_MAX = 1024 * 1024  # of one Fetch response
BATCH_BYTES_MAX = 256 * 1024  # before compression; a partition that needs more has more
PACKED_FROM_BYTES = 1024
LED_POLL_S = 0.1, 1.0  # first and longest wait for a new topic's leader
UNDER_WAY_MAX = 5

SETTINGS = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",
    "segment.bytes": "16777216",  # the last segment is never compacted, and is read at each start
}
IN_TRANSACTIONS = {**SETTINGS, "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.1"}
"""Each transaction writes to it. Kafka 4 accepts no smaller segments."""
_FENCED = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}


class StateTopic:
    """The topic `name` of a cluster; every coroutine raises WireError.

    Of one event loop, one write at a time. `partition` is to be fenced; `topic_id` is known once the topic is open.
    """

    def __init__(
        self, cluster: Cluster, name: str, *, timeout_s: float, codec: str = "zstd", transactional_id: str | None = None
    ) -> None:
        """`timeout_s` is for one request, and for a new topic to get a leader.

        With a `transactional_id` the caller commits the transaction; until then no write counts.
        """
        self.name = name
        self.partition: Partition = (name, 0)
        self.topic_id: str | None = None
        self.written_from = -1  # base offset of the last `write`
        self.marked_by: tuple[int, int] | None = None
        """Producer and epoch of the last marker that `read` has seen: no older mirror writes after it."""
        self.clock = TargetClock()
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._codec = codec
        self.transactional_id = transactional_id
        self._leader = Leader(-1, -1)
        self._producer = -1, -1
        self._sequence = 0

    async def open(self, replicas: int = 0) -> bool:
        """Find or create the topic, with so many replicas (0: one per broker, three at most); return whether it is new.

        Raises TopicRefusedError if the target refuses to create it.
        """
        is_new = not await self._find()
        if is_new:
            await self._create(replicas or replicas_for(len(self._cluster.nodes)))
            await self._until_led()
        return is_new

    async def is_same(self) -> bool:
        """Return whether the topic still exists, under the id that it was opened with."""
        topic = (await self._cluster.topics([self.name])).get(self.name)
        if topic is None or topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        return bool(topic.error_code) or topic.topic_id == self.topic_id

    async def _find(self) -> bool:
        topic = (await self._cluster.topics([self.name])).get(self.name)
        if topic is None or topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            raise WireError(f"topic {self.name} cannot be used: {error_name(topic.error_code)}")
        self._leader, self.topic_id = topic.leaders.get(0, Leader(-1, -1)), topic.topic_id
        return True

    async def _create(self, replicas: int) -> None:
        least = {"cleanup.policy": SETTINGS["cleanup.policy"]}
        for settings in (SETTINGS if self.transactional_id is None else IN_TRANSACTIONS, least):
            configs = [CreatableTopicConfig(name=name, value=value) for name, value in settings.items()]
            topic = CreatableTopic(name=self.name, num_partitions=1, replication_factor=replicas, configs=configs)
            request = CreateTopicsRequest(topics=[topic], timeout_ms=int(self._timeout_s * 1000))
            answer = await (await self._controller()).ask(CREATE_TOPICS, request, timeout_s=self._timeout_s)
            (told,) = answer.topics
            if told.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
            if told.error_code not in (ErrorCode.INVALID_CONFIG, ErrorCode.POLICY_VIOLATION):
                break
        why = peer_text(told.error_message) or error_name(told.error_code)
        raise TopicRefusedError(f"topic {self.name} cannot be created with {replicas} replicas: {why}")

    async def _controller(self) -> Connection:
        node = self._cluster.controller
        return await (self._cluster.any_connection() if node < 0 else self._cluster.connection(node, SIDE))

    async def _until_led(self) -> None:
        """Wait until the brokers know the created topic."""
        wait_s, most_s = LED_POLL_S
        async with asyncio.timeout(self._timeout_s) as bound:
            try:
                while not await self._find() or self._leader.node < 0:
                    await asyncio.sleep(wait_s)
                    wait_s = min(2 * wait_s, most_s)
            except TimeoutError:
                if bound.expired():
                    raise WireError(f"topic {self.name} has no leader after {self._timeout_s:g} s") from None
                raise

    async def read(self, reading: Reading, offset: int = 0) -> int:
        """Read all present records from an offset on, and return the end offset.

        Raises StateError for records that contradict the format.
        """
        connection = await self._connection()
        end, self.marked_by = None, None
        while end is None or offset < end:
            data = await self._fetch(connection, offset)
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and not offset:
                offset = await self._start(connection)
                continue
            self._check(data.error_code, "cannot be read")
            if end is None:  # others write after the last stable offset only: below it they were fenced
                end = data.high_watermark if data.last_stable_offset < 0 else data.last_stable_offset
            self.marked_by = last_marker(memoryview(data.records or b"")) or self.marked_by
            for piece in _pieces(data, offset):
                offset = piece.end_offset
                if isinstance(piece, Piece):
                    _take(piece, reading)
            if not data.records:
                offset = end  # compaction has left no record
        return end

    async def _fetch(self, connection: Connection, offset: int) -> PartitionData:
        wanted = FetchPartition(
            partition=0,
            current_leader_epoch=self._leader.epoch,
            fetch_offset=offset,
            partition_max_bytes=ANSWER_BYTES_MAX,
        )
        request = FetchRequest(
            replica_id=CONSUMER,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=ANSWER_BYTES_MAX,
            isolation_level=READ_COMMITTED,
            topics=[FetchTopic(topic=self.name, partitions=[wanted])],
        )
        answer = await connection.ask(FETCH, request, timeout_s=self._timeout_s)
        self._check(answer.error_code, "cannot be read")
        told = [one for topic in answer.responses for one in topic.partitions]
        if len(told) != 1:
            raise WireError(f"{connection.place} answered {len(told)} partitions instead of {self.name}-0")
        return told[0]

    async def _start(self, connection: Connection) -> int:
        asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=self._leader.epoch, timestamp=EARLIEST)
        request = ListOffsetsRequest(replica_id=CONSUMER, topics=[ListOffsetsTopic(name=self.name, partitions=[asked])])
        answer = await connection.ask(LIST_OFFSETS, request, timeout_s=self._timeout_s)
        told = answer.topics[0].partitions[0]
        self._check(told.error_code, "cannot be read")
        return told.offset

    def begin(self, producer_id: int, producer_epoch: int) -> None:
        """Write as this producer from now on, from sequence 0: its epoch never wrote to this topic."""
        self._producer, self._sequence = (producer_id, producer_epoch), 0

    async def write(self, groups: Iterable[Sequence[Record]]) -> None:
        """Write these records, each group in one batch, and return when all replicas have them.

        Raises ProducerFenced if another mirror has the partition. After any error the records may be written or not.
        """
        assert self._producer[0] >= 0, "there is no producer yet"
        connection = await self._connection()
        self.written_from = -1
        under_way, asked_s = [], boot_s()
        for batch in self._batches(groups):
            data = [TopicProduceData(name=self.name, partition_data=[PartitionProduceData(index=0, records=batch)])]
            request = ProduceRequest(
                transactional_id=self.transactional_id,
                acks=ALL_REPLICAS,
                timeout_ms=int(self._timeout_s * 1000),
                topic_data=data,
            )
            under_way.append(connection.send(PRODUCE, request, timeout_s=self._timeout_s))
            if len(under_way) == UNDER_WAY_MAX:
                self._take(_single_response(await under_way.pop(0)), asked_s)
        for one in under_way:
            self._take(_single_response(await one), asked_s)

    def _batches(self, groups: Iterable[Sequence[Record]]) -> Iterator[memoryview]:
        some: list[Record] = []
        size = 0
        for group in groups:
            more = sum(len(key) + len(value or b"") for key, value in group)
            if some and size + more > BATCH_BYTES_MAX:
                yield self._batch(some, size)
                some, size = [], 0
            some += group
            size += more
        if some:
            yield self._batch(some, size)

    def _batch(self, records: Sequence[Record], size: int) -> memoryview:
        batch = bytearray(build_batch(records, timestamp_ms=time.time_ns() // 1_000_000))
        if size >= PACKED_FROM_BYTES:
            pieces = [piece for piece in pieces_of(memoryview(batch), 0) if isinstance(piece, Piece)]
            batch = merge(pieces, self._codec).batch
        stamp(batch, *self._producer, self._sequence, transactional=self.transactional_id is not None)
        self._sequence = (self._sequence + len(records)) % SEQUENCES
        return memoryview(batch)

    def _take(self, answer: PartitionProduceResponse, asked_s: float) -> None:
        if answer.error_code in _FENCED:
            raise ProducerFenced(f"topic {self.name} is another mirror's now: {error_name(answer.error_code)}")
        self._check(answer.error_code, "cannot be written to")
        self.clock.note_time(answer.log_append_time_ms, asked_s)
        if self.written_from < 0:
            self.written_from = answer.base_offset

    def _check(self, code: int, what: str) -> None:
        if code:
            self._leader = Leader(-1, -1)  # another may lead it now, or under another epoch
            raise WireError(f"topic {self.name} {what}: {error_name(code)}")

    async def _connection(self) -> Connection:
        if self._leader.node < 0:
            await self._find()
        if self._leader.node < 0:
            raise WireError(f"topic {self.name} has no leader")
        try:
            return await self._cluster.connection(self._leader.node, SIDE)
        except WireError:
            self._leader = Leader(-1, -1)  # its broker is away: another may lead it
            raise


def _single_response(answer: ProduceResponse) -> PartitionProduceResponse:
    told = [one for topic in answer.responses for one in topic.partition_responses]
    if len(told) != 1:
        raise WireError(f"{len(told)} partitions were answered instead of one")
    return told[0]


def _pieces(data: PartitionData, offset: int) -> Iterator[Piece | SkippedRange]:
    aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
    try:
        yield from pieces_of(memoryview(data.records or b""), offset, aborted)
    except BadBatch as error:
        raise StateError(f"The state topic cannot be read: {error}") from error


def _take(piece: Piece, reading: Reading) -> None:
    try:
        for record in records_of(piece.batch):
            if record.offset >= piece.first_offset:
                reading.take(record.key, record.value)
    except (Refusal, ProtocolViolation) as error:
        raise StateError(f"The state topic cannot be read at offset {piece.first_offset}: {error}") from error
