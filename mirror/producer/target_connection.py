"""Holds a connection to one leader of the target, reconnects it, and schedules the streams that it carries.

| a stream is | it goes |
|---|---|
| in `sparse`: it has data, and no backlog | first, whatever is in flight; urgent ones before the others |
| in `lingering`: it has data, and waits for more | with those, once half of its linger is over |
| in `ready`: it has a backlog | round robin, if the link has room; urgent ones have URGENT_SHARE of it |
| any of these, on the connection ALONE | one batch at a time |

Does not contain: the batch of a stream (batching.py), the meaning of responses (sender.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from kafka_wire.cluster import Cluster
from kafka_wire.connection.connection import Connection
from kafka_wire.connection.errors import WireError
from kafka_wire.connection.tcp_connect import WindowUse
from mirror.link.bbr_pacing import Filling, OtherTraffic
from mirror.link.link_model import BATCH_BYTES_MIN, LEAST_BYTES, Link, Pace
from mirror.partition.stream import Batch, PartitionStream
from mirror.producer.batching import Job

ALONE = 100  # the number of the connection for suspects (failures/suspects.py)
LANES_MAX = 200  # in a request
LOSS_S = 15
URGENT_SHARE = 0.75  # of the room, before the others; these have the rest, and all that is left over
AGAIN_S = 0.1
CRUMB = 16  # of a batch: a request with less room takes no batch of another stream
BATCHES_SHARE = 4  # of a connection's share of several: one may wait for its response while others are sent
HELD_UP, HELD_UP_S_MIN = 0.5, 0.5  # of the time that it had data to send, which must be at least so many seconds
QUEUED = 1.5  # times the shortest round trip, from which on packets wait on the link


class SendQueue:
    """Streams in round-robin order, urgent ones apart."""

    def __init__(self) -> None:
        self.urgent: dict[PartitionStream, None] = {}
        self.ordinary: dict[PartitionStream, None] = {}

    def add(self, stream: PartitionStream) -> None:
        """Append a stream; if it is queued already, it keeps its place."""
        (self.urgent if stream.urgent else self.ordinary)[stream] = None

    def discard(self, stream: PartitionStream) -> None:
        """Remove a stream if it is queued."""
        self.urgent.pop(stream, None)
        self.ordinary.pop(stream, None)

    def __contains__(self, stream: PartitionStream) -> bool:
        return stream in self.urgent or stream in self.ordinary

    def __bool__(self) -> bool:
        return bool(self.urgent or self.ordinary)


class BatchSource(Protocol):
    """The sender, as a connection calls it: batches to send, and events of the connection."""

    def take(self, stream: PartitionStream, bytes_max: int) -> Batch | Job | None:
        """Take the stream's next batch: a final one, or one to pack; None if it has none."""

    @property
    def pack(self) -> Callable[[Sequence[Job]], Awaitable[list[Batch]]]:
        """A function that packs, and returns the batches that may be sent."""

    def post(self, node: int, connection: Connection, batches: Sequence[Batch], told: Callable[[int], None]) -> int:
        """Write the batches; return the bytes in flight, with which `told` is called once they are answered or lost."""

    def consider(self, stream: PartitionStream) -> None:
        """Queue a stream if it is ready to send."""

    def has_lingered(self, stream: PartitionStream) -> bool:
        """Return whether half of a stream's linger time is over."""

    async def leader_unreachable(self, connection: TargetConnection) -> None:
        """Find new leaders for the streams of a connection whose broker does not answer."""

    def back(self, connection: TargetConnection) -> None:
        """Note that a connection is established again."""

    def connection_lost(self, connection: TargetConnection) -> None:
        """Note that a connection ended."""

    def task_ended(self, task: asyncio.Task[None]) -> None:
        """Report what the task of a connection raised."""


class Connections(Protocol):
    """All connections to the target, as one of them sees them."""

    @property
    def active(self) -> int:
        """The number of connections with a backlog that share the link, one at least."""

    def has_another(self, connection: TargetConnection) -> bool:
        """Return whether the broker of this connection answers by another one."""

    def retire(self, connection: TargetConnection) -> None:
        """Forget a connection that carries nothing any more."""


class TargetConnection:
    """A connection to one leader, established again whenever it is lost, and the streams that it carries."""

    def __init__(
        self,
        source: BatchSource,
        connections: Connections,
        cluster: Cluster,
        link: Link,
        report_problem: Callable[[str, str], None],
        node: int,
        number: int,
    ) -> None:
        """`report_problem` reports what is wrong with a name; no text when it is over."""
        self.node, self.number = node, number
        self._source, self._connections, self._cluster = source, connections, cluster
        self._link, self._tell_problem = link, report_problem
        self._trouble = f"target broker {node}" + (f", connection {number}" if number else "")
        self.streams: set[PartitionStream] = set()
        self.ready = SendQueue()
        self.sparse = SendQueue()  # streams without a backlog, which go first
        self.lingering: dict[PartitionStream, None] = {}  # streams with data that wait for more
        self.wake = asyncio.Event()
        self.task = asyncio.ensure_future(self._run())
        self.task.add_done_callback(source.task_ended)
        self.under_way_bytes = 0  # of this connection, as those of the link
        self.pace = Pace()
        self.is_free = True  # no stream of it had a backlog a moment ago
        self.is_shut = False  # while its broker answers by another one only: it may accept no more of them
        self._connection: Connection | None = None
        self._filling = Filling(0.0)
        self._segments: list[tuple[int, int]] = []  # sent and sent again, second by second
        self._windowed: WindowUse | None = None

    def put(self, stream: PartitionStream) -> None:
        """Queue a stream that has data to send."""
        turns = self.ready if asyncio.get_running_loop().time() < stream.backlog_until else self.sparse
        if stream not in self.ready and stream not in self.sparse:
            turns.add(stream)
            self.wake.set()

    def release(self, stream: PartitionStream) -> None:
        """Carry a stream no more."""
        self.streams.discard(stream)
        self.ready.discard(stream)
        self.sparse.discard(stream)
        self.lingering.pop(stream, None)

    @property
    def is_active(self) -> bool:
        """Whether it is connected and has a backlog, which needs a share of the link.

        A low-volume stream needs no room, and is sent concurrently.
        """
        return self.is_up and bool(self.ready or (self.under_way_bytes and not self.is_free))

    @property
    def is_up(self) -> bool:
        """Whether it is connected."""
        return self._connection is not None and not self._connection.is_closed

    def segments(self) -> tuple[int, int]:
        """Return the segments sent in about the last LOSS_S, and how many of those again; call it once a second."""
        if self._connection is None or self._connection.is_closed:
            return 0, 0
        self._segments.append(self._connection.segments())
        del self._segments[:-LOSS_S]
        (before, again_before), (sent, again) = self._segments[0], self._segments[-1]
        return sent - before, again - again_before

    def forget_loss(self) -> None:
        """Measure the loss of segments that are sent from now on."""
        self._segments.clear()

    def bear_loss(self, *, is_lossy: bool) -> bool:
        """Fill a link that loses segments of itself nevertheless; return whether the kernel allows it."""
        return self._connection is None or self._connection.send_through_loss(is_lossy=is_lossy)

    def fill(self, other_traffic: OtherTraffic, alone_bytes_s: float | None) -> None:
        """Make a backlog fill a lossy link, with few packets waiting if other streams share it; call it each second.

        `alone_bytes_s` is the link's rate if this is the only connection with a backlog.
        """
        if self._connection is None:
            return
        filled, now = None if self.is_free else self._connection.link_fill(), asyncio.get_running_loop().time()
        told = self._filling.tick(now, filled, other_traffic, alone_bytes_s)
        if told is not None:
            self._connection.limit_rate(told.rate_max)
            if told.begins_anew:
                self._connection.fill_anew()

    def was_held_up(self) -> bool:
        """Return whether the broker's receive window limited it for most of the time since the last call.

        Kafka's own window is 100 KiB (socket.receive.buffer.bytes). If packets wait on the link, that is full anyway.
        """
        if self._connection is None or self._connection.is_closed:
            return False
        now, before = self._connection.window_use(), self._windowed
        self._windowed = now
        if now is None or before is None or self.is_queued:
            return False
        return now.limited_s - before.limited_s > HELD_UP * max(now.busy_s - before.busy_s, HELD_UP_S_MIN)

    @property
    def is_queued(self) -> bool:
        """Whether packets waited on the link at the last `was_held_up`: it is full, and loses the excess."""
        seen = self._windowed
        return seen is not None and seen.round_trip_s > QUEUED * seen.shortest_s

    async def _run(self) -> None:
        while True:
            try:
                connection = await self._cluster.connection(self.node, self.number)
            except WireError as error:
                if not self.streams:
                    self._tell_problem(self._trouble, "")
                    self._connections.retire(self)
                    return
                self._report(str(error))
                self.is_shut = self._connections.has_another(self)
                await self._source.leader_unreachable(self)
                await asyncio.sleep(AGAIN_S)  # `Line` itself has the backoff
                continue
            self.is_shut = False
            self._connection, self._filling = connection, Filling(asyncio.get_running_loop().time())
            self._segments, self._windowed = [], None
            self.bear_loss(is_lossy=self._link.is_lossy)
            self.pace = Pace()
            self._report("")
            self._source.back(self)
            closed = asyncio.ensure_future(connection.wait_closed())
            closed.add_done_callback(lambda _: self.wake.set())
            try:
                await self._serve(connection)
            finally:
                closed.cancel()
            self._source.connection_lost(self)
            self._report(str(connection.end_error))

    def _report(self, text: str) -> None:
        self._tell_problem("target", "")  # a broker of it is known by now
        self._tell_problem(self._trouble, text)

    async def _serve(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        while not connection.is_closed:
            self.wake.clear()
            pause_s = connection.throttled_until - loop.time()
            if pause_s > 0:
                loop.call_later(pause_s, self.wake.set)
            load = [] if pause_s > 0 else self._load()
            if not load:
                await self.wake.wait()
                continue
            final = [one for one in load if isinstance(one, Batch)]
            packed = await self._source.pack([one for one in load if isinstance(one, Job)])
            self._post(connection, [*final, *packed])
            for one in load:
                self._source.consider(one.stream)

    def _post(self, connection: Connection, batches: list[Batch]) -> None:
        def count_delivered(size: int) -> None:
            self.under_way_bytes -= size
            self.pace.delivered_bytes += size

        self.under_way_bytes += self._source.post(self.node, connection, batches, count_delivered)

    def _load(self) -> list[Batch | Job]:
        """Take batches from the streams round robin while there is room; sparse streams go first, and need no room.

        Each connection has its share of the room: otherwise one that waits for a lost segment would fill it alone. A
        slow one has the least share while a stream is to leave it, so that the stream can soon move.
        """
        if self.number == ALONE:
            return self._load_alone()
        link, active = self._link, self._connections.active
        is_left = self.pace.is_slow and any(stream.leaves for stream in self.streams)
        share = min(link.limit_bytes // active, LEAST_BYTES if is_left else link.limit_bytes)
        room = min(link.limit_bytes - link.under_way_bytes, share - self.under_way_bytes)
        batch_bytes = link.batch_bytes
        if active > 1:
            batch_bytes = max(BATCH_BYTES_MIN, min(batch_bytes, share // BATCHES_SHARE))
        load: list[Batch | Job] = []
        if self.sparse and len(self.lingering) < LANES_MAX:
            for stream in self.lingering:
                if self._source.has_lingered(stream):
                    self.sparse.add(stream)
        crumb = batch_bytes // CRUMB  # of the bounded batch: else the bound might leave crumbs only
        left = self._take(self.sparse.urgent, load, batch_bytes, crumb)
        left = self._take(self.sparse.ordinary, load, left, crumb)
        if not self.under_way_bytes or room >= batch_bytes // 2:
            self._take_ready(load, max(left, batch_bytes // 2), crumb)
        return load

    def _load_alone(self) -> list[Batch | Job]:
        """Take one batch of one stream, once nothing is in flight: if the connection breaks, that batch caused it."""
        load: list[Batch | Job] = []
        for turns in (self.sparse.urgent, self.sparse.ordinary, self.ready.urgent, self.ready.ordinary):
            while turns and not (load or self.under_way_bytes):
                stream = next(iter(turns))
                del turns[stream]
                taken = self._source.take(stream, self._link.batch_bytes)
                load += [] if taken is None else [taken]
        return load

    def _take_ready(self, load: list[Batch | Job], left: int, crumb: int) -> None:
        turns = self.ready
        kept = int(left * (1 - URGENT_SHARE)) if turns.ordinary else 0
        left = self._take(turns.urgent, load, left - kept, crumb) + kept
        left = self._take(turns.ordinary, load, left, crumb)
        self._take(turns.urgent, load, left, crumb)

    def _take(self, turns: dict[PartitionStream, None], load: list[Batch | Job], left: int, crumb: int) -> int:
        """Take batches from these streams round robin; return the bytes left. Less than `crumb` is no batch."""
        while turns and left > crumb and len(load) < LANES_MAX:
            stream = next(iter(turns))
            del turns[stream]
            taken = self._source.take(stream, left)
            if taken is not None:
                load.append(taken)
                left -= taken.size
        return left
