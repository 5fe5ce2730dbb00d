"""What is asked of the source beside reading on: topics, leader epochs, raw batches, and what its group holds.

| asked | of whom |
|---|---|
| Metadata | any broker |
| OffsetForLeaderEpoch | the partitions' leaders, under the epochs that they are known by |
| Fetch of raw batches, whose attributes are the only proof of why offsets are missing | the partition's leader |
| OffsetFetch, OffsetCommit: once each, no retries | the group's coordinator |

No decision of the mirror may come in here. After any failure the connections are made anew by the next question, so
that it is the caller who says when that is.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from drupelet.errors import ConfigurationError, sentence
from drupelet.kafka_client import ClientSettings
from edge_broker.errors import ProtocolViolation, Refusal, error_name
from edge_broker.protocol.api import Asked
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from edge_broker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from edge_broker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from edge_broker.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafka_wire.apis import FETCH, OFFSET_COMMIT, OFFSET_FETCH, OFFSET_FOR_LEADER_EPOCH
from kafka_wire.batches import BadBatch
from kafka_wire.cluster import SIDE, Cluster, Leader, Topic
from kafka_wire.errors import ConnectionLost, VersionUnknown, WireError
from mirror import fetching
from mirror.epochs import EpochEnd
from mirror.errors import PositionsError, SourceError
from mirror.fetching import Content, Fetched
from mirror.offsets import Commit, read_commit
from mirror.plan import BatchSpan

R = TypeVar("R", bound=Message)

CONSUMER = -1  # no replica asks
SPANS_BYTES_MAX = 1024 * 1024


class EpochQuestion(NamedTuple):
    """A leader epoch whose end is asked about, and the leader that is asked."""

    epoch: int
    leader: Leader


class Asking:
    """The questions, over connections of their own; `group_id` names the group that holds the positions."""

    def __init__(self, settings: ClientSettings, group_id: str) -> None:
        self._settings = settings
        self._group_id = group_id
        self._timeout_s = settings.request_timeout_ms / 1000
        self._cluster: Cluster | None = None
        self._coordinator: int | None = None

    def hang_up(self) -> None:
        """Let the connections go."""
        cluster, self._cluster, self._coordinator = self._cluster, None, None
        if cluster is not None:
            cluster.close()

    async def topics(self) -> dict[str, Topic]:
        """Return every topic that can be told."""
        async with self._asked(self._timeout_s) as cluster:
            found = await cluster.topics(None)
        return {name: topic for name, topic in found.items() if not topic.error_code}

    async def epoch_ends(self, asked: Mapping[TopicPartition, EpochQuestion]) -> dict[TopicPartition, EpochEnd | str]:
        """Ask the partitions' leaders where the epochs ended; a text says why one cannot tell now."""
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
        async with self._asked(self._timeout_s) as cluster:
            try:
                answer = await self._ask(cluster, node, OFFSET_FOR_LEADER_EPOCH, request)
            except VersionUnknown:
                return dict.fromkeys(asked, EpochEnd(-1, -1))
            except WireError as error:  # other leaders may answer
                return dict.fromkeys(asked, str(error))
        return dict.fromkeys(asked, "not answered") | _epoch_ends(answer)

    async def record_at(self, partition: TopicPartition, offset: int) -> Content | None:
        """Return the record at an offset, None when there is none."""
        async with self._asked(self._timeout_s) as cluster:
            fetched = await self._fetch(cluster, partition, offset, 1, fetching.READ_UNCOMMITTED)
            return fetching.record_in(fetched, partition, offset)

    async def spans(self, partition: TopicPartition, first_offset: int, end_offset: int) -> list[BatchSpan]:
        """Return the batches that the log holds in [first_offset, end_offset), by their raw attributes."""
        spans: list[BatchSpan] = []
        position = first_offset
        while position < end_offset:
            async with self._asked(self._timeout_s) as cluster:
                fetched = await self._fetch(cluster, partition, position, SPANS_BYTES_MAX, fetching.READ_COMMITTED)
                found = fetching.spans_in(fetched, partition, position)
            if not found:  # a record beyond was seen, so an empty answer proves nothing
                raise SourceError(f"{partition} at {position}: no batch was answered")
            spans += found
            position = max(position + 1, spans[-1].end_offset)
        return spans

    async def _fetch(
        self, cluster: Cluster, partition: TopicPartition, offset: int, bytes_max: int, isolation: int
    ) -> Fetched:
        topic = (await cluster.topics([partition.topic])).get(partition.topic)
        leader = Leader(-1, -1) if topic is None else topic.leaders.get(partition.partition, Leader(-1, -1))
        if leader.node < 0:
            raise SourceError(f"{partition.topic}-{partition.partition} has no leader")
        wanted = FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=bytes_max)
        request = FetchRequest(
            replica_id=CONSUMER,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=bytes_max,
            isolation_level=isolation,
            topics=[FetchTopic(topic=partition.topic, partitions=[wanted])],
        )
        answer = await self._ask(cluster, leader.node, FETCH, request)
        if answer.error_code:
            raise SourceError(f"{partition} at {offset}: {error_name(answer.error_code)}")
        told = [one for topic in answer.responses for one in topic.partitions]
        if len(told) != 1:
            raise SourceError(f"{partition} at {offset}: {len(told)} partitions were answered")
        return _fetched(told[0])

    async def commits(self, partitions: Sequence[TopicPartition] | None = None) -> dict[TopicPartition, Commit]:
        """Return what the group holds for these partitions (None: for all that it knows).

        Raises PositionsError while the group's coordinator is away, elsewhere, or still loads what was committed:
        only an offset of -1, answered for that partition, means that there is no position.
        """
        if partitions is not None and not partitions:
            return {}
        asked: dict[str, list[int]] = {}
        for partition in partitions or ():
            asked.setdefault(partition.topic, []).append(partition.partition)
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=numbers) for name, numbers in asked.items()]
        request = OffsetFetchRequest(group_id=self._group_id, topics=topics if asked else None)
        async with self._asked(self._timeout_s) as cluster:
            found = _positions(await self._ask_coordinator(cluster, OFFSET_FETCH, request))
        silent = sorted(set(partitions or ()) - found.keys())
        if silent:
            raise PositionsError(f"that of {silent[0]} was not answered")
        return {partition: commit for partition, commit in found.items() if commit.offset >= 0}

    async def commit(self, commits: Mapping[TopicPartition, Commit], timeout_s: float) -> None:
        """Store these positions in the group; raises SourceError, after which they may be stored or not."""
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for partition, commit in commits.items():
            topics.setdefault(partition.topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=commit.offset,
                    committed_leader_epoch=-1 if commit.epoch is None else commit.epoch.leader_epoch,
                    committed_metadata=commit.metadata(),
                )
            )
        request = OffsetCommitRequest(
            group_id=self._group_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=entries) for name, entries in topics.items()],
        )
        async with self._asked(timeout_s) as cluster:
            answer = await self._ask_coordinator(cluster, OFFSET_COMMIT, request)
            for topic in answer.topics:
                for entry in topic.partitions:
                    if entry.error_code:
                        name = f"{topic.name}-{entry.partition_index}"
                        raise SourceError(f"{name} cannot be committed: {error_name(entry.error_code)}")

    async def _ask_coordinator(self, cluster: Cluster, asked: Asked[R], request: Message) -> R:
        if self._coordinator is None:
            try:
                self._coordinator = await cluster.coordinator_node(self._group_id)
            except ConnectionLost:
                raise
            except WireError as error:
                raise PositionsError(str(error)) from error
        return await self._ask(cluster, self._coordinator, asked, request)

    async def _ask(self, cluster: Cluster, node: int, asked: Asked[R], request: Message) -> R:
        return await (await cluster.connection(node, SIDE)).ask(asked, request, timeout_s=self._timeout_s)

    @contextlib.asynccontextmanager
    async def _asked(self, timeout_s: float) -> AsyncIterator[Cluster]:
        """Lend the cluster for one question; after a failure it is made anew. Raises SourceError."""
        if self._cluster is None:
            self._cluster = Cluster(self._settings)
        cluster = self._cluster
        try:
            async with asyncio.timeout(timeout_s):
                yield cluster
        except TimeoutError:
            self._drop(cluster)
            raise SourceError(f"{self._settings.bootstrap_servers} has not answered within {timeout_s:g} s") from None
        except WireError as error:
            self._drop(cluster)
            raise SourceError(str(error)) from error
        except (KafkaError, BadBatch, Refusal, ProtocolViolation, ConfigurationError, OSError) as error:
            self._drop(cluster)  # what was read cannot be; a file may be replaced just now
            raise SourceError(sentence(error)) from error
        except SourceError:
            self._drop(cluster)
            raise

    def _drop(self, cluster: Cluster) -> None:
        cluster.close()
        if self._cluster is cluster:
            self._cluster = self._coordinator = None


def _fetched(data: PartitionData) -> Fetched:
    aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
    return Fetched(data.error_code, aborted, bytes(data.records or b""))


def _epoch_ends(answer: OffsetForLeaderEpochResponse) -> dict[TopicPartition, EpochEnd | str]:
    return {
        TopicPartition(topic.topic, entry.partition): (
            error_name(entry.error_code) if entry.error_code else EpochEnd(entry.leader_epoch, entry.end_offset)
        )
        for topic in answer.topics
        for entry in topic.partitions
    }


def _positions(answer: OffsetFetchResponse) -> dict[TopicPartition, Commit]:
    """Return every position answered, those of offset -1 too; raises PositionsError when one was refused."""
    if answer.error_code:
        raise PositionsError(f"cannot be read: {error_name(answer.error_code)}")
    found = {}
    for topic in answer.topics:
        for entry in topic.partitions:
            partition = TopicPartition(topic.name, entry.partition_index)
            if entry.error_code:
                raise PositionsError(f"that of {partition} cannot be read: {error_name(entry.error_code)}")
            found[partition] = read_commit(entry.committed_offset, entry.metadata or "")
    return found
