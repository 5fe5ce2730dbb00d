"""Fetches raw batches from the source: many partitions in each request, several requests in flight per leader.

| slot of a leader | its fetch has | waits for records |
|---|---|---|
| 0 | all low-volume partitions, when it is free | WAIT_ALL_S if there are no others, else WAIT_S |
| 1 to SLOTS - 1 | partitions that had records in the last response, divided among the free slots | WAIT_S |
| the last of them | the same of urgent partitions, and nothing else if there are any | WAIT_S |

So a low-volume partition blocks no other, and several responses fill a long link. Low-volume partitions come together:
one that finds slot 0 taken waits in another slot until shortly before slot 0 ends. The size of a fetch grows with what
the link carried in FETCH_S. A topic with a known id is requested by it if the leader supports that (Fetch 13): then
another topic of the same name answers UNKNOWN_TOPIC_ID instead of being read by mistake.

Contains: the requests' partitions, the parsed responses. Does not contain: which partitions are read and from where,
any use of the records. Source: KIP-74, KIP-320, KIP-392 (the mirror reads from the leader only), KIP-516.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from edge_broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from kafka_wire.apis import CONSUMER, FETCH, FETCH_BY_ID, READ_COMMITTED
from kafka_wire.cluster import Cluster, uuid_of
from kafka_wire.connection.errors import WireError
from kafka_wire.partitions import TopicPartition
from mirror.link.link_model import Best

SLOTS = 4
WAIT_S = 0.5
WAIT_ALL_S = 5.0
SOON_S = 0.05
FETCH_S = 1.0
FETCH_BYTES_FIRST = 256 * 1024
FETCH_BYTES_MIN = 64 * 1024
FETCH_BYTES_MAX = 4 * 1024 * 1024
PARTITION_BYTES_MAX = 1024 * 1024
RATE_S = 30.0


class Place(NamedTuple):
    """The place where a partition is read: its leader, the leader epoch (-1: any), the next offset.

    An `urgent` partition shares no fetch with others that had records in the last response.
    """

    node: int
    leader_epoch: int
    offset: int
    urgent: bool = False
    topic_id: str | None = None


class Answer(NamedTuple):
    """The response of one partition, read at a place; `failed` says why there is no response at all.

    A partition without news has no `Answer`.
    """

    partition: TopicPartition
    place: Place
    error_code: int = 0
    aborted: Sequence[tuple[int, int]] = ()
    batches: memoryview = memoryview(b"")
    log_end: int | None = None
    failed: str = ""


class _Fetch(NamedTuple):
    node: int
    slot: int
    places: Mapping[TopicPartition, Place]
    began: float
    ends: float  # at the latest, without records


class Reader:
    """The fetches over one cluster's connections, `poll` by `poll`; `busy` partitions have a fetch in flight."""

    def __init__(self, cluster: Cluster, timeout_s: float) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._under_way: dict[asyncio.Task[FetchResponse], _Fetch] = {}
        self.busy: set[TopicPartition] = set()
        self._hot: set[TopicPartition] = set()
        self._rates: dict[int, Best] = {}
        self._kept: int | None = None  # the slot for urgent partitions, once there are any
        self._ends: dict[TopicPartition, int] = {}  # the logs' ends of the last responses
        self._heard_at = time.monotonic()

    async def poll(
        self, wanted: Mapping[TopicPartition, Place], room_bytes: int, wait_s: float, woken: asyncio.Event
    ) -> list[Answer]:
        """Fetch the wanted partitions that have no fetch in flight; return the answers, at the latest after `wait_s`.

        Return as soon as `woken` is set. An answer may be to a place of an earlier poll.
        """
        self._ask({partition: place for partition, place in wanted.items() if partition not in self.busy}, room_bytes)
        waker = asyncio.ensure_future(woken.wait())
        try:
            waits: set[asyncio.Future[Any]] = {*self._under_way, waker}
            done, _ = await asyncio.wait(waits, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waker.cancel()
        return [answer for task in list(self._under_way) if task in done for answer in self._take_answers(task)]

    def close(self) -> None:
        """Cancel all fetches in flight."""
        for task in self._under_way:
            task.cancel()
        self._under_way.clear()
        self.busy.clear()

    @property
    def silent_s(self) -> float:
        """The seconds without any response while a fetch is in flight."""
        return time.monotonic() - self._heard_at if self._under_way else 0.0

    def _ask(self, wanted: Mapping[TopicPartition, Place], room_bytes: int) -> None:
        by_node: dict[int, dict[TopicPartition, Place]] = {}
        for partition, place in wanted.items():
            by_node.setdefault(place.node, {})[partition] = place
            if place.urgent:
                self._kept = SLOTS - 1
        for node, places in by_node.items():
            self._ask_node(node, places, room_bytes)

    def _ask_node(self, node: int, places: Mapping[TopicPartition, Place], room_bytes: int) -> None:
        now = asyncio.get_running_loop().time()
        under_way = {fetch.slot: fetch for fetch in self._under_way.values() if fetch.node == node}
        free = [slot for slot in range(SLOTS) if slot not in under_way and slot != self._kept]
        quiet = {partition: place for partition, place in places.items() if partition not in self._hot}
        hot = {partition: place for partition, place in places.items() if partition in self._hot}
        urgent = {partition: place for partition, place in hot.items() if place.urgent}
        if urgent:
            hot = {partition: place for partition, place in hot.items() if not place.urgent}
            if self._kept in under_way:
                quiet |= urgent
            else:
                self._fetch(_Fetch(node, SLOTS - 1, urgent, now, now + WAIT_S), room_bytes)
        ends = [fetch.ends - now for fetch in under_way.values()]
        if quiet and free and not any(0 < left < SOON_S for left in ends):  # else it goes with those
            if 0 in under_way:
                wait_s = min(WAIT_S, max(SOON_S / 2, under_way[0].ends - now - SOON_S / 2))
            else:
                wait_s = WAIT_S if hot or under_way else WAIT_ALL_S
            self._fetch(_Fetch(node, free.pop(0), quiet, now, now + wait_s), room_bytes)
        shares: list[dict[TopicPartition, Place]] = [{} for _ in free]
        for number, (partition, place) in enumerate(hot.items() if free else ()):
            shares[number % len(shares)][partition] = place
        for slot, share in zip(free, shares, strict=True):
            if share:
                self._fetch(_Fetch(node, slot, share, now, now + WAIT_S), room_bytes // len(free))

    def _fetch(self, fetch: _Fetch, room_bytes: int) -> None:
        size = max(FETCH_BYTES_MIN, min(self._size(fetch.node), room_bytes))
        request = _request(fetch.places, size, fetch.ends - fetch.began)
        task = asyncio.ensure_future(self._send_fetch(fetch, request))
        if not self._under_way:
            self._heard_at = time.monotonic()
        self._under_way[task] = fetch
        self.busy |= fetch.places.keys()

    async def _send_fetch(self, fetch: _Fetch, request: FetchRequest) -> FetchResponse:
        connection = await self._cluster.connection(fetch.node, fetch.slot)
        has_ids = all(place.topic_id is not None for place in fetch.places.values())
        how = FETCH_BY_ID if has_ids and connection.serves(FETCH_BY_ID) else FETCH
        return await connection.ask(how, request, timeout_s=fetch.ends - fetch.began + self._timeout_s)

    def _size(self, node: int) -> int:
        rate = self._rates[node].value if node in self._rates else None
        return FETCH_BYTES_FIRST if rate is None else min(FETCH_BYTES_MAX, int(rate * FETCH_S))

    def _take_answers(self, task: asyncio.Task[FetchResponse]) -> list[Answer]:
        fetch = self._under_way.pop(task)
        self.busy -= fetch.places.keys()
        try:
            response = task.result()
        except WireError as error:
            return [Answer(partition, place, failed=str(error)) for partition, place in fetch.places.items()]
        self._heard_at = time.monotonic()
        asked = {(partition.topic, place.topic_id) for partition, place in fetch.places.items()}
        names = {uuid_of(topic_id): topic for topic, topic_id in asked}
        told = {  # by plain tuples, which equal a TopicPartition and are made in a third of the time
            (topic.topic or names.get(topic.topic_id, ""), data.partition_index): data
            for topic in response.responses
            for data in topic.partitions
        }
        size = sum(len(data.records or b"") for data in told.values())
        if size:
            now = asyncio.get_running_loop().time()
            self._rates.setdefault(fetch.node, Best(RATE_S)).see(now, size / max(now - fetch.began, 1e-3))
        alone = sum(bool(data.records) for data in told.values()) <= 1
        answers = (
            self._answer(partition, place, told.get(partition), response.error_code, alone=alone)
            for partition, place in fetch.places.items()
        )
        return [answer for answer in answers if answer is not None]

    def _answer(
        self, partition: TopicPartition, place: Place, data: PartitionData | None, error_code: int, *, alone: bool
    ) -> Answer | None:
        self._hot.discard(partition)
        if data is None:
            return Answer(partition, place, error_code, failed="" if error_code else "it was not answered")
        is_news = self._ends.get(partition) != data.high_watermark
        if not (data.records or data.error_code or is_news):
            return None
        self._ends[partition] = data.high_watermark
        batches = memoryview(data.records or b"")
        if batches:
            self._hot.add(partition)
            if not alone:
                batches = memoryview(bytes(batches))  # else the slowest partition would keep the whole response
        aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
        return Answer(partition, place, data.error_code, aborted, batches, data.high_watermark)


def _request(places: Mapping[TopicPartition, Place], size: int, wait_s: float) -> FetchRequest:
    topics: dict[tuple[str, str | None], list[FetchPartition]] = {}
    for partition, place in places.items():
        topics.setdefault((partition.topic, place.topic_id), []).append(
            FetchPartition(
                partition=partition.partition,
                current_leader_epoch=place.leader_epoch,
                fetch_offset=place.offset,
                partition_max_bytes=min(size, PARTITION_BYTES_MAX),
            )
        )
    return FetchRequest(
        replica_id=CONSUMER,
        max_wait_ms=int(wait_s * 1000),
        min_bytes=1,
        max_bytes=size,
        isolation_level=READ_COMMITTED,
        topics=[
            FetchTopic(topic=topic, topic_id=uuid_of(topic_id), partitions=partitions)
            for (topic, topic_id), partitions in topics.items()
        ],
    )
