"""Queries either cluster for all but the fetch loop and writes: topics, bounds, leader epochs, single batches.

| request | to |
|---|---|
| Metadata | any broker |
| ListOffsets, Fetch of one batch, OffsetForLeaderEpoch | the partition's leader |

Does not contain: decisions of the mirror, retries (the caller decides when a query is repeated).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from drupelet.errors import ConfigurationError, sentence
from drupelet.kafka.client import ClientSettings
from edge_broker.errors import ErrorCode, ProtocolViolation, Refusal, error_name
from edge_broker.protocol.api import RequestedApi
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from edge_broker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from edge_broker.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from edge_broker.protocol.record_batch import LOG_APPEND_TIME, BatchHeader, Record, records_of
from kafka_wire.apis import CONSUMER, EARLIEST, FETCH, LATEST, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, READ_COMMITTED
from kafka_wire.cluster import SIDE, Cluster, Leader, Topic
from kafka_wire.connection.byte_counters import Traffic
from kafka_wire.connection.errors import VersionUnknown, WireError
from kafka_wire.partitions import TopicPartition
from kafka_wire.records.batches import BadBatch, Piece, SkippedRange, pieces_of
from mirror.client.retry_wait import Pauses
from mirror.errors import LeaderlessError, SourceError, TargetError, UntoldError
from mirror.partition.leader_epochs import EpochEnd

R = TypeVar("R", bound=Message)
End = type[SourceError] | type[TargetError]

NO_LEADER = Leader(-1, -1)


def leader_of(topics: Mapping[str, Topic], partition: TopicPartition) -> Leader:
    """Return the leader of a partition by its topic's metadata, NO_LEADER if it has none."""
    topic = topics.get(partition.topic)
    return NO_LEADER if topic is None else topic.leaders.get(partition.partition, NO_LEADER)


class EpochQuestion(NamedTuple):
    """A leader epoch whose end is queried, and the leader to query."""

    epoch: int
    leader: Leader


class Content(NamedTuple):
    """The parts of a record that are the same at both ends."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Contents(NamedTuple):
    """The records of a batch from an offset on, each with its own offset, and the offset after them."""

    records: list[tuple[int, Content]]
    end_offset: int


class Asking:
    """Queries of one cluster; every query raises `kind` if the cluster does not answer.

    `traffic` counts its bytes; `pauses` are the waits that end once it is reached again.
    """

    _question: tuple[set[str], asyncio.Future[bool]] | None = None  # about leaders, while topics are added

    def __init__(self, settings: ClientSettings, kind: End) -> None:
        self._settings = settings
        self._kind = kind
        self._timeout_s = settings.request_timeout_ms / 1000
        self.traffic = Traffic()
        self.pauses = Pauses()
        self._cluster: Cluster | None = None
        self._known: dict[str, Topic] = {}
        self.cluster_id: str | None = None
        """The id in the last answer of `topics`; `hang_up` keeps it."""

    @property
    def cluster(self) -> Cluster:
        """The connections to the cluster, the same until `hang_up`."""
        if self._cluster is None:
            self._cluster = Cluster(self._settings, traffic=self.traffic, opened=self.pauses.end)
        return self._cluster

    def hang_up(self) -> None:
        """Close the connections."""
        cluster, self._cluster = self._cluster, None
        self._known.clear()
        if cluster is not None:
            cluster.close()

    def retry_now(self) -> None:
        """Start every waiting connection attempt at once."""
        if self._cluster is not None:
            self._cluster.retry_now()

    async def topics(self, names: Sequence[str] | None = None) -> dict[str, Topic]:
        """Return those of these topics, or of all, that the cluster describes."""
        async with self._query() as cluster:
            found = await cluster.topics(names)
            self.cluster_id = cluster.cluster_id or self.cluster_id
        there = {name: topic for name, topic in found.items() if not topic.error_code}
        self._known |= there
        return there

    async def error_of(self, name: str) -> int:
        """Return the error code of a topic's metadata; 0 if the topic may be described."""
        async with self._query() as cluster:
            found = (await cluster.topics([name])).get(name)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else found.error_code

    async def leader(self, partition: TopicPartition) -> Leader:
        """Return a partition's leader by the last metadata; raise `kind` if it has none, and query it next time."""
        if partition.topic not in self._known:
            await self._ask_with_others(partition.topic)
        leader = leader_of(self._known, partition)
        if leader.node < 0:
            self._known.pop(partition.topic, None)
            kind = UntoldError if self._kind is SourceError else LeaderlessError
            raise kind(f"{partition.topic}-{partition.partition} has no leader")
        return leader

    async def _ask_with_others(self, topic: str) -> None:
        """Send one request for all topics that are queried at the same moment: after an outage that is every one."""
        while self._question is not None:
            names, told = self._question
            names.add(topic)
            if await asyncio.shield(told):
                return
        await self._ask_for_all(topic)

    async def _ask_for_all(self, topic: str) -> None:
        names, told = {topic}, asyncio.get_running_loop().create_future()
        self._question = names, told
        try:
            try:
                await asyncio.sleep(0)
            finally:
                self._question = None
            await self.topics(sorted(names))
            told.set_result(True)
        except self._kind as error:
            told.set_exception(error)
            told.exception()  # the other callers may be gone
            raise
        finally:
            if not told.done():  # this caller was cancelled: another one asks
                told.set_result(False)

    def forget(self, topic: str) -> None:
        """Request the leaders of a topic's partitions again when they are needed next."""
        self._known.pop(topic, None)

    async def bounds(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return the first offset and the end offset of each partition."""
        starts, ends, untold = await self.known_bounds(partitions)
        for partition, why in untold.items():
            kind = UntoldError if self._kind is SourceError else self._kind
            raise kind(f"the bounds of {_name(partition)} were not told: {why}")
        return starts, ends

    async def known_bounds(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], dict[TopicPartition, str]]:
        """Return both of each partition whose leader returns them now, and why they are unknown of each other one."""
        wanted = list(partitions)
        first, last = await self._offsets(wanted, EARLIEST), await self._offsets(wanted, LATEST)
        untold = {tp: one for found in (last, first) for tp, one in found.items() if isinstance(one, str)}
        starts, ends = (
            {tp: one for tp, one in found.items() if isinstance(one, int) and tp not in untold}
            for found in (first, last)
        )
        return starts, ends, untold

    async def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end offset of each partition whose leader returns it now."""
        found = await self._offsets(list(partitions), LATEST)
        return {partition: offset for partition, offset in found.items() if isinstance(offset, int)}

    async def _offsets(self, partitions: Sequence[TopicPartition], which: int) -> dict[TopicPartition, int | str]:
        """Query each leader once; a text says why an offset is unknown. Raises `kind` if no leader answers."""
        unknown = sorted({partition.topic for partition in partitions} - self._known.keys())
        if unknown:
            await self.topics(unknown)
        found: dict[TopicPartition, int | str] = {}
        by_node: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            try:
                by_node.setdefault((await self.leader(partition)).node, []).append(partition)
            except self._kind as error:
                found[partition] = str(error)
        failed = 0
        for node, led in by_node.items():
            found |= dict.fromkeys(led, "it was not answered")
            try:
                found |= await self._offsets_at(node, led, which)
            except self._kind as error:  # other leaders may answer
                failed += 1
                if failed == len(by_node):
                    raise
                found |= dict.fromkeys(led, str(error))
        for partition, offset in found.items():
            if isinstance(offset, str):
                self.forget(partition.topic)
        return found

    async def _offsets_at(
        self, node: int, partitions: Iterable[TopicPartition], which: int
    ) -> dict[TopicPartition, int | str]:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for partition in partitions:
            topics.setdefault(partition.topic, []).append(
                ListOffsetsPartition(partition_index=partition.partition, timestamp=which)
            )
        asked = [ListOffsetsTopic(name=name, partitions=numbers) for name, numbers in topics.items()]
        async with self._query() as cluster:
            answer = await self._ask(cluster, node, LIST_OFFSETS, ListOffsetsRequest(replica_id=CONSUMER, topics=asked))
        return {
            TopicPartition(topic.name, entry.partition_index): (
                error_name(entry.error_code) if entry.error_code else entry.offset
            )
            for topic in answer.topics
            for entry in topic.partitions
        }

    async def epoch_ends(self, asked: Mapping[TopicPartition, EpochQuestion]) -> dict[TopicPartition, EpochEnd | str]:
        """Return where the epochs ended, by the partitions' leaders; a text says why one cannot tell now."""
        found: dict[TopicPartition, EpochEnd | str] = {}
        by_node: dict[int, dict[TopicPartition, EpochQuestion]] = {}
        for partition, question in asked.items():
            by_node.setdefault(question.leader.node, {})[partition] = question
        for node, questions in by_node.items():
            found |= dict.fromkeys(questions, "it has no leader") if node < 0 else await self._ask_node(node, questions)
        return found

    async def _ask_node(
        self, node: int, asked: Mapping[TopicPartition, EpochQuestion]
    ) -> Mapping[TopicPartition, EpochEnd | str]:
        topics: dict[str, list[OffsetForLeaderPartition]] = {}
        for partition, (epoch, leader) in asked.items():
            topics.setdefault(partition.topic, []).append(
                OffsetForLeaderPartition(
                    partition=partition.partition, current_leader_epoch=leader.epoch, leader_epoch=epoch
                )
            )
        request = OffsetForLeaderEpochRequest(
            replica_id=CONSUMER, topics=[OffsetForLeaderTopic(topic=t, partitions=p) for t, p in topics.items()]
        )
        async with self._query() as cluster:
            try:
                answer = await self._ask(cluster, node, OFFSET_FOR_LEADER_EPOCH, request)
            except VersionUnknown:
                return dict.fromkeys(asked, EpochEnd(-1, -1))
            except WireError as error:  # other leaders may answer
                return dict.fromkeys(asked, str(error))
        return dict.fromkeys(asked, "not answered") | _epoch_ends(answer)

    async def batch_at(self, partition: TopicPartition, offset: int) -> Piece | SkippedRange | None:
        """Return the batch that holds an offset, from there on, or the next one; None after the last committed one."""
        data = await self._fetch_once(partition, offset, 1)  # the first batch comes whole, however large (KIP-74)
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return None
        self._check(partition, offset, data)
        aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
        with self._map_errors():
            return next(pieces_of(memoryview(data.records or b""), offset, aborted), None)

    async def keys_from(self, partition: TopicPartition, offset: int, bytes_max: int) -> tuple[set[bytes], int]:
        """Return the keys of records from an offset on, of one response, and the offset to read on from."""
        data = await self._fetch_once(partition, offset, bytes_max)
        self._check(partition, offset, data)
        keys: set[bytes] = set()
        with self._map_errors():
            for piece in pieces_of(memoryview(data.records or b""), offset):
                if isinstance(piece, Piece):
                    keys |= {one.key for one in records_of(piece.batch) if one.key is not None}
                offset = piece.end_offset
        return keys, offset if data.records else max(offset, data.high_watermark)

    async def _fetch_once(self, partition: TopicPartition, offset: int, bytes_max: int) -> PartitionData:
        wanted = FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=bytes_max)
        request = FetchRequest(
            replica_id=CONSUMER,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=bytes_max,
            isolation_level=READ_COMMITTED,
            topics=[FetchTopic(topic=partition.topic, partitions=[wanted])],
        )
        leader = await self.leader(partition)
        async with self._query() as cluster:
            answer = await self._ask(cluster, leader.node, FETCH, request)
            if answer.error_code:
                raise self._kind(f"{_name(partition)} at {offset}: {error_name(answer.error_code)}")
            told = [one for topic in answer.responses for one in topic.partitions]
            if len(told) != 1:
                raise self._kind(f"{_name(partition)} at {offset}: {len(told)} partitions were answered")
            return told[0]

    def _check(self, partition: TopicPartition, offset: int, data: PartitionData) -> None:
        if data.error_code:
            self.forget(partition.topic)
            raise self._kind(f"{_name(partition)} at {offset}: {error_name(data.error_code)}")

    async def contents_from(self, partition: TopicPartition, offset: int) -> Contents | None:
        """Return the records of the batch that holds an offset, or of the next one, from there on; None at the end."""
        piece = await self.batch_at(partition, offset)
        if piece is None or isinstance(piece, SkippedRange):
            return None if piece is None else Contents([], piece.end_offset)
        with self._map_errors():
            found = [(one.offset, _content(piece.header, one)) for one in records_of(piece.batch)]
        return Contents([one for one in found if one[0] >= offset], piece.end_offset)

    async def record_at(self, partition: TopicPartition, offset: int) -> Content | None:
        """Return the record at an offset, None if there is none."""
        found = await self.contents_from(partition, offset)
        return None if found is None else next((content for at, content in found.records if at == offset), None)

    async def _ask(self, cluster: Cluster, node: int, asked: RequestedApi[R], request: Message) -> R:
        return await (await cluster.connection(node, SIDE)).ask(asked, request, timeout_s=self._timeout_s)

    @contextlib.asynccontextmanager
    async def _query(self, timeout_s: float | None = None) -> AsyncIterator[Cluster]:
        """Provide the cluster for one query; raises `kind`."""
        with self._map_errors():
            async with asyncio.timeout(timeout_s or self._timeout_s):
                yield self.cluster

    @contextlib.contextmanager
    def _map_errors(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            servers = self._settings.bootstrap_servers
            raise self._kind(f"{servers} has not answered within {self._timeout_s:g} s") from None
        except WireError as error:
            raise self._kind(str(error)) from error
        except (BadBatch, Refusal, ProtocolViolation, ConfigurationError, OSError) as error:
            raise self._kind(sentence(error)) from error  # a file cannot be read: it may be in replacement


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def _content(header: BatchHeader, record: Record) -> Content:
    appended = header.attributes & LOG_APPEND_TIME  # then every record has the batch's own time
    timestamp = header.max_timestamp if appended else record.timestamp
    return Content(timestamp, record.key, record.value, tuple(record.headers))


def _epoch_ends(answer: OffsetForLeaderEpochResponse) -> dict[TopicPartition, EpochEnd | str]:
    return {
        TopicPartition(topic.topic, entry.partition): (
            error_name(entry.error_code) if entry.error_code else EpochEnd(entry.leader_epoch, entry.end_offset)
        )
        for topic in answer.topics
        for entry in topic.partitions
    }
