"""Find the last batch of a producer in a partition by reading backwards from the high watermark.

| step | request | returns |
|---|---|---|
| 1 | ListOffsets, the end and the start, both at once | the bounds |
| 2 | Fetch at the end - 2 | mostly the producer's last batch, and the marker of a fence after it |
| 3 and on | Fetch at the first offset of the last response - 1 | the batch before, over markers and foreign ones |

A fetch returns the whole batch that holds its offset, and as many later bytes as fit. KIP-74 promises a whole batch to
the first partition of a request alone, so every request advances at least one partition. If compaction left a hole, the
way back through it doubles with each step.

Only records below the high watermark are visible, so a batch on the leader alone is not. After a fence (fencing.py) no
such batch remains; without one, a batch without a response may appear after a lookup.

Compacted logs: a cleaner keeps the last batch of every producer that the leader remembers, without its records if need
be; later it removes that, too. Sequences and offsets are the header's, whatever records are left.

Does not contain: the meaning of the result for the producer, the choice of partitions.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from edge_broker.errors import ProtocolViolation, error_name
from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.describe_producers import DescribeProducersRequest, ProducerState, TopicRequest
from edge_broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from edge_broker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from edge_broker.protocol.record_batch import (
    CHECKED_POSITION,
    HEADER_SIZE,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    read_header,
)
from kafka_wire.apis import CONSUMER, DESCRIBE_PRODUCERS, EARLIEST, FETCH, LATEST, LIST_OFFSETS
from kafka_wire.cluster import SIDE, Cluster, Leader, Partition
from kafka_wire.connection.connection import Connection
from kafka_wire.connection.errors import WireError
from kafka_wire.records.batches import SEQUENCES

STEPS_MAX = 200  # fetches of one partition
ROOM_BYTES = 65_536  # of a partition in a fetch of several
ANSWER_BYTES_MAX = 1_048_576  # of one fetch; a first batch may be larger


class LookupRequest(NamedTuple):
    """The producer ids, the lowest offset to read, and the offset above the highest.

    `marked_by` is the id of them whose markers are reported; -1: of each.
    """

    leader: Leader
    producer_ids: frozenset[int]
    floor: int = 0
    below: int = 2**63 - 1
    marked_by: int = -1


class Own(NamedTuple):
    """A batch that was found: its producer, sequences and offsets, both inclusive, as its header says."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


class LookupResult(NamedTuple):
    """The result for [searched_from, end_offset), up to `below`: the producer's last batch, None if there is none.

    `marker_epoch` is the highest epoch of the markers after that batch, -1 without: a fence of it is in force here.
    `is_whole` is false if the lookup ended before the floor or the log's start, by its bounds. `is_taken` is true if
    another producer's batch holds the floor's offset: the former one there is gone.
    """

    start_offset: int
    end_offset: int
    searched_from: int
    last: Own | None
    marker_epoch: int
    is_whole: bool
    is_taken: bool = False


async def look_up(
    cluster: Cluster,
    wanted: Mapping[Partition, LookupRequest],
    *,
    timeout_s: float,
    answer_bytes_max: int = ANSWER_BYTES_MAX,
    steps_max: int = STEPS_MAX,
) -> dict[Partition, LookupResult | str]:
    """Look in each partition at its leader; a text says why one cannot be read now.

    An error of one node is not raised: its partitions have its sentence.
    """
    by_node: dict[int, dict[Partition, LookupRequest]] = {}
    for partition, one in wanted.items():
        by_node.setdefault(one.leader.node, {})[partition] = one
    looks = (_look_at(cluster, node, them, timeout_s, answer_bytes_max, steps_max) for node, them in by_node.items())
    return {partition: found for some in await asyncio.gather(*looks) for partition, found in some.items()}


async def producers(
    cluster: Cluster, leaders: Mapping[Partition, Leader], *, timeout_s: float
) -> dict[Partition, list[ProducerState] | str]:
    """Return the leaders' producer states; a text says why one returns none (it takes READ on the topic)."""
    by_node: dict[int, list[Partition]] = {}
    for partition, leader in leaders.items():
        by_node.setdefault(leader.node, []).append(partition)
    told = (_producers_at(cluster, node, them, timeout_s) for node, them in by_node.items())
    return {partition: found for some in await asyncio.gather(*told) for partition, found in some.items()}


async def _producers_at(
    cluster: Cluster, node: int, partitions: list[Partition], timeout_s: float
) -> dict[Partition, list[ProducerState] | str]:
    topics = [TopicRequest(name=name, partition_indexes=numbers) for name, numbers in _by_topic(partitions).items()]
    try:
        connection = await _connection(cluster, node)
        answer = await connection.ask(DESCRIBE_PRODUCERS, DescribeProducersRequest(topics=topics), timeout_s=timeout_s)
    except WireError as error:
        return dict.fromkeys(partitions, str(error))
    found: dict[Partition, list[ProducerState] | str] = dict.fromkeys(partitions, "not answered")
    for topic in answer.topics:
        for one in topic.partitions:
            told = error_name(one.error_code) if one.error_code else one.active_producers
            found[topic.name, one.partition_index] = told
    return found


async def _connection(cluster: Cluster, node: int) -> Connection:
    if node < 0:
        raise WireError("it has no leader")
    return await cluster.connection(node, SIDE)


async def _look_at(
    cluster: Cluster,
    node: int,
    wanted: dict[Partition, LookupRequest],
    timeout_s: float,
    answer_bytes_max: int,
    steps_max: int,
) -> dict[Partition, LookupResult | str]:
    found: dict[Partition, LookupResult | str] = {}
    try:
        connection = await _connection(cluster, node)
        searches = deque[tuple[Partition, Search]]()
        for partition, bounds in (await _bounds(connection, wanted, timeout_s)).items():
            if isinstance(bounds, str):
                found[partition] = bounds
            else:
                searches.append((partition, Search(wanted[partition], *bounds, steps_max)))
        while searches:
            await _step(connection, wanted, searches, found, timeout_s, answer_bytes_max)
    except WireError as error:
        return {partition: found.get(partition, str(error)) for partition in wanted}
    return found


async def _bounds(
    connection: Connection, wanted: Mapping[Partition, LookupRequest], timeout_s: float
) -> dict[Partition, tuple[int, int] | str]:
    """Return the start and the high watermark of each, or why they are unknown."""
    answers = [
        connection.send(LIST_OFFSETS, _asked_bounds(wanted, timestamp), timeout_s=timeout_s)
        for timestamp in (EARLIEST, LATEST)
    ]
    told: list[dict[Partition, int | str]] = []
    for answer in answers:
        offsets: dict[Partition, int | str] = {}
        for topic in (await answer).topics:
            for one in topic.partitions:
                said = error_name(one.error_code) if one.error_code else one.offset
                offsets[topic.name, one.partition_index] = said
        told.append(offsets)
    bounds: dict[Partition, tuple[int, int] | str] = {}
    for partition in wanted:
        start, end = (offsets.get(partition, "not answered") for offsets in told)
        if isinstance(start, int) and isinstance(end, int):
            bounds[partition] = (start, end)
        else:
            bounds[partition] = str(start if isinstance(start, str) else end)
    return bounds


def _asked_bounds(wanted: Mapping[Partition, LookupRequest], timestamp: int) -> Message:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, number), one in wanted.items():
        asked = ListOffsetsPartition(partition_index=number, current_leader_epoch=one.leader.epoch, timestamp=timestamp)
        topics.setdefault(topic, []).append(asked)
    return ListOffsetsRequest(
        replica_id=CONSUMER, topics=[ListOffsetsTopic(name=name, partitions=them) for name, them in topics.items()]
    )


async def _step(
    connection: Connection,
    wanted: Mapping[Partition, LookupRequest],
    searches: deque[tuple[Partition, Search]],
    found: dict[Partition, LookupResult | str],
    timeout_s: float,
    answer_bytes_max: int,
) -> None:
    """Fetch once for all partitions still searched, and process the response; the first partition goes last next."""
    for _ in range(len(searches)):
        partition, search = searches.popleft()
        if search.is_over:
            found[partition] = search.result()
        else:
            searches.append((partition, search))
    if not searches:
        return
    answer = await connection.ask(FETCH, _fetch(wanted, searches, answer_bytes_max), timeout_s=timeout_s)
    if answer.error_code:
        raise WireError(f"{connection.place} answered a fetch with {error_name(answer.error_code)}")
    said = {(topic.topic, one.partition_index): one for topic in answer.responses for one in topic.partitions}
    first, others = deque[tuple[Partition, Search]](), deque[tuple[Partition, Search]]()
    for partition, search in searches:
        one = said.get(partition)
        if one is None or one.error_code:
            found[partition] = "not answered" if one is None else error_name(one.error_code)
            continue
        try:
            if search.take(memoryview(one.records or b""), is_first=not others):
                others.append((partition, search))
            else:
                first.append((partition, search))
        except ProtocolViolation as error:
            found[partition] = str(error)
    searches.clear()
    searches.extend(first + others)


def _fetch(
    wanted: Mapping[Partition, LookupRequest], searches: deque[tuple[Partition, Search]], answer_bytes_max: int
) -> FetchRequest:
    several = len(searches) > 1
    topics = []
    for topic, them in groupby(searches, key=lambda each: each[0][0]):
        partitions = [
            FetchPartition(
                partition=partition[1],
                current_leader_epoch=wanted[partition].leader.epoch,
                fetch_offset=search.next_offset,
                partition_max_bytes=ROOM_BYTES if several or search.wants_more else 1,
            )
            for partition, search in them
        ]
        topics.append(FetchTopic(topic=topic, partitions=partitions))
    return FetchRequest(replica_id=CONSUMER, max_wait_ms=0, min_bytes=1, max_bytes=answer_bytes_max, topics=topics)


class Search:
    """PURE. The way back through one partition, response by response: fetch `next_offset` until `is_over`.

    [hi, end) has no batch of the producer. After a response that ends before hi, the search reads forward from there
    before the next step.
    """

    def __init__(self, wanted: LookupRequest, start: int, end: int, steps_max: int = STEPS_MAX) -> None:
        self._ids = wanted.producer_ids
        self._marked_by = wanted.producer_ids if wanted.marked_by < 0 else {wanted.marked_by}
        self._start, self._end = start, max(start, min(end, wanted.below))
        self._bottom = min(max(start, wanted.floor), self._end)
        self._hi = self._low = self._end  # low: the start of the range being read
        self._stride = 2  # a fence's marker is the last, the wanted batch the one before
        self._last: Own | None = None
        self._marker_epoch = self._markers_read = -1  # read: since the producer's last batch
        self._steps_left = steps_max
        self._is_forward = self._is_taken = False
        self.wants_more = True
        self.next_offset = 0
        self._go_back()

    def _go_back(self) -> None:
        self._is_forward = False
        self.next_offset = self._low = max(self._bottom, self._hi - self._stride)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to fetch."""
        is_found = not self._is_forward and (self._last is not None or self._hi <= self._bottom)
        return is_found or self._steps_left <= 0

    def take(self, data: memoryview, *, is_first: bool = True) -> bool:
        """Process the response to a fetch at `next_offset`; return False if it had no whole batch: repeat the fetch.

        That may happen for partitions after the first one of a request. Raises ProtocolViolation for malformed data.
        """
        batches = list(_batches(data))
        if not batches and (data or not is_first):
            if is_first:
                raise ProtocolViolation(f"The first batch of an answer at offset {self.next_offset} is cut off.")
            return False
        self._steps_left -= 1
        covered, is_hole = self.next_offset, not batches
        for header, batch in batches:
            is_hole = is_hole or header.base_offset > covered
            if header.base_offset >= self._hi:
                break
            self._low = min(self._low, header.base_offset)
            covered = max(covered, header.next_offset)
            self._classify_batch(header, batch)
        else:
            if batches and covered < self._hi:
                self._is_forward = self.wants_more = True
                self.next_offset = covered
                return True
        self._hi, self._marker_epoch = self._low, max(self._marker_epoch, self._markers_read)
        self._markers_read = -1
        self._stride = 2 * self._stride if is_hole else 1
        self.wants_more = False
        self._go_back()
        return True

    def _classify_batch(self, header: BatchHeader, batch: memoryview) -> None:
        if header.base_offset <= self._bottom < header.next_offset:
            self._is_taken = header.is_control or header.producer_id not in self._ids
        if header.producer_id not in self._ids:
            return
        if header.is_control:
            if header.producer_id in self._marked_by:
                self._markers_read = max(self._markers_read, header.producer_epoch)
            return
        if crc32c(batch[CHECKED_POSITION:]) != header.crc:
            raise ProtocolViolation(f"The batch at offset {header.base_offset} does not match its CRC.")
        self._markers_read = -1
        self._last = Own(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            (header.base_sequence + header.last_offset_delta) % SEQUENCES,
            header.base_offset,
            header.last_offset,
        )

    def result(self) -> LookupResult:
        """Return the result; an unfinished read forward does not count."""
        last = None if self._is_forward else self._last
        is_whole = last is not None or self._hi <= self._bottom
        return LookupResult(self._start, self._end, self._hi, last, self._marker_epoch, is_whole, self._is_taken)


def _batches(data: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the whole batches of a response, in order; its last may be truncated."""
    position = 0
    while len(data) - position >= HEADER_SIZE:
        if data[position + MAGIC_POSITION] != MAGIC:
            raise ProtocolViolation(f"A batch has magic {data[position + MAGIC_POSITION]}, not 2.")
        header = read_header(data, position)
        batch = data[position : position + header.size]
        if len(batch) < header.size:
            return
        yield header, batch
        position += header.size


def _by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics
