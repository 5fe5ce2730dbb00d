"""Reads the state topics of other mirrors at the source: which topics they write to, and from which clusters.

| call | requests |
|---|---|
| `refresh` | Metadata of all topics, unless they are given; then, per leader, Fetch from the end of the last refresh |
| `check_visible` | Metadata of a name that no mirror has: its error says whether state topics may be seen at all |

Metadata of all topics leaves out topics that may not be described, as if they did not exist. Asked for by name, Kafka
and the edge broker refuse such a topic with TOPIC_AUTHORIZATION_FAILED, whether it exists or not.

A mirror stores the head of a producer epoch, with acks=all, before the first batch of it. So a producer whose batch is
in the source's log before a refresh begins, and that no claim names after it, is not a mirror's.
State topics are read at read_uncommitted: a head in an open transaction is written before its records can be read, and
the marker of a commit may come in their log first.

| a head was written | it counts |
|---|---|
| without a transaction, or in one that is open or committed | yes |
| in a transaction that was aborted | no: the head before it does; none of its records can be read |

Does not contain: what a claim means (partition/provenance.py), when to refresh (replication/partition_registry.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from edge_broker.errors import ErrorCode, ProtocolViolation, Refusal, error_name
from edge_broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from edge_broker.protocol.record_batch import TRANSACTIONAL, records_of
from kafka_wire.apis import CONSUMER, FETCH
from kafka_wire.cluster import SIDE, Topic
from kafka_wire.connection.errors import WireError
from kafka_wire.partitions import TopicPartition
from kafka_wire.records.batches import BadBatch, Piece, markers_of, pieces_of
from mirror.client.source_client import Source
from mirror.errors import SourceError
from mirror.partition.provenance import Claim, Claims
from mirror.partition.state_records import claim_of, is_state_topic

ANSWER_BYTES_MAX = 1024 * 1024
PROBE = "__edge-mirror--state"  # of a mirror without site and target, which cannot exist
NOWHERE = 2**62  # as an end that no response has returned yet


class _Place(NamedTuple):
    """The place up to which a state topic was read: the topic's id, and the next offset."""

    topic_id: str | None
    offset: int


class _Before(NamedTuple):
    """A head that a transaction replaces, and of which partition."""

    source_partition: tuple[str, int]
    claim: Claim | None


class ClaimsReader:
    """The claims at one source, and when they were read; every coroutine raises SourceError. One call at a time."""

    def __init__(self, source: Callable[[], Source], timeout_s: float) -> None:
        self.claims = Claims()
        self.unreadable: dict[str, str] = {}
        """State topics that cannot be read, and why; records of their mirrors are not recognised."""
        self.deleted: set[str] = set()
        """State topics that were deleted since they were read; their claims are kept as long as this process runs."""
        self.is_blind = False
        """Whether `check_visible` found that this user may not see the state topics of other mirrors."""
        self._source = source
        self._timeout_s = timeout_s
        self._places: dict[str, _Place] = {}
        self._open: dict[tuple[str, int], list[_Before]] = {}  # by state topic and producer

    @property
    def has_mirrors(self) -> bool:
        """Return whether another mirror writes to the source, or has written."""
        return bool(self._places or self.claims)

    def differs(self, topics: Collection[str]) -> bool:
        """Return whether a state topic that was read exists no more, or again; `topics` are all of the source."""
        gone = self._places.keys() - self.unreadable.keys() - set(topics)
        return bool(gone) or not self.deleted.isdisjoint(topics)

    async def refresh(self, topics: Mapping[str, Topic] | None = None) -> None:
        """Read all state that mirrors have stored until now; `topics` are all of the source at present."""
        found = await self._source().topics() if topics is None else topics
        names = {name: topic for name, topic in found.items() if is_state_topic(name)}
        self.unreadable = {}
        for gone in self._places.keys() - names.keys():
            code = await self._source().error_of(gone)
            if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                self.unreadable[gone] = error_name(code)
            else:
                del self._places[gone]
                self.deleted.add(gone)
        self.deleted -= names.keys()
        by_node: dict[int, list[str]] = {}
        for name, topic in names.items():
            place = self._places.get(name)
            if place is None or place.topic_id != topic.topic_id:
                self._places[name] = _Place(topic.topic_id, 0)
            by_node.setdefault(topic.leaders[0].node if 0 in topic.leaders else -1, []).append(name)
        for node, led in by_node.items():
            if node < 0:
                raise SourceError(f"topic {led[0]}, which another mirror keeps at the source, has no leader")
            await self._read(node, led)

    async def check_visible(self) -> None:
        """Find out whether state topics of other mirrors may be seen at all."""
        self.is_blind = await self._source().error_of(PROBE) == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    async def _read(self, node: int, names: list[str]) -> None:
        """Read each of these up to its end in the first response."""
        ends: dict[str, int] = {}
        while names:
            before = {name: self._places[name] for name in names}
            answers = await self._fetch(node, names)
            left = []
            for name in names:
                data = answers.get(name)
                if data is None or data.error_code:
                    await self._read_failed(name, ErrorCode.UNKNOWN_SERVER_ERROR if data is None else data.error_code)
                else:
                    ends.setdefault(name, data.high_watermark)
                    self._take(name, data, is_alone=len(names) == 1)
                if name not in self.unreadable and not self._places[name].offset >= ends.get(name, NOWHERE):
                    left.append(name)
            if len(left) > 1 and all(self._places[name] == before[name] for name in left):
                for name in left:  # a response may have room for the first only
                    await self._read(node, [name])
                return
            names = left

    async def _fetch(self, node: int, names: list[str]) -> dict[str, PartitionData]:
        topics = [
            FetchTopic(
                topic=name,
                partitions=[
                    FetchPartition(
                        partition=0, fetch_offset=self._places[name].offset, partition_max_bytes=ANSWER_BYTES_MAX
                    )
                ],
            )
            for name in names
        ]
        request = FetchRequest(
            replica_id=CONSUMER, max_wait_ms=0, min_bytes=0, max_bytes=ANSWER_BYTES_MAX, topics=topics
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = await self._source().cluster.connection(node, SIDE)
                answer = await connection.ask(FETCH, request, timeout_s=self._timeout_s)
        except (WireError, OSError, TimeoutError) as error:
            raise SourceError(f"the state topics of other mirrors cannot be read: {error}") from error
        if answer.error_code:
            raise SourceError(f"the state topics of other mirrors cannot be read: {error_name(answer.error_code)}")
        return {topic.topic: one for topic in answer.responses for one in topic.partitions if one.partition_index == 0}

    async def _read_failed(self, name: str, code: int) -> None:
        place = self._places[name]
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            partition = TopicPartition(name, 0)
            starts, ends = await self._source().bounds([partition])
            start = starts[partition] if place.offset < starts[partition] else 0
            if place.offset in (start, ends[partition]):
                raise SourceError(f"topic {name} cannot be read at offset {place.offset}: {error_name(code)}")
            self._places[name] = place._replace(offset=start)
        elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self.unreadable[name] = error_name(code)
        else:
            raise SourceError(f"topic {name}, which another mirror keeps at the source: {error_name(code)}")

    def _take(self, name: str, data: PartitionData, *, is_alone: bool) -> None:
        """Add the heads of a response; an empty one, of a topic that `is_alone` in it, ends the topic."""
        place = self._places[name]
        offset = place.offset
        records = memoryview(data.records or b"")
        try:
            markers = markers_of(records)
            for found in pieces_of(records, offset):
                if isinstance(found, Piece):
                    self._take_piece(name, found)
                elif found.first_offset in markers:
                    self._end_transaction(name, *markers[found.first_offset])
                offset = found.end_offset
        except (BadBatch, Refusal, ProtocolViolation) as error:
            self.unreadable[name] = str(error)
        if not data.records and is_alone:
            offset = max(offset, data.high_watermark)
        self._places[name] = place._replace(offset=offset)

    def _take_piece(self, name: str, piece: Piece) -> None:
        for record in records_of(piece.batch):
            claimed = claim_of(name, record.key, record.value)
            if claimed is None or record.offset < piece.first_offset:
                continue
            if piece.header.attributes & TRANSACTIONAL:
                before = _Before(claimed[0], self.claims.newest(name, claimed[0]))
                self._open.setdefault((name, piece.header.producer_id), []).append(before)
            self.claims.take(*claimed)

    def _end_transaction(self, name: str, producer_id: int, is_aborted: bool) -> None:
        for source_partition, before in reversed(self._open.pop((name, producer_id), [])):
            if is_aborted:
                self.claims.retract(name, source_partition, before)
