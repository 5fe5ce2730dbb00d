"""Assigns each stream to a connection to its leader, and decides how many connections there are.

| condition | then |
|---|---|
| loss, or the broker's window is shut, while the link is not full | one more connection to each leader, four at most |
| the same loss | each connection sends on through it if the kernel has BBR (tcp_connect.py): two at most |
| a backlog after an outage, and a link known to lose segments | all of them at once, as nothing is in flight then |
| a stream without a backlog, or an urgent one, and several connections | the first connection is kept for those |
| a backlog on a connection that carries next to nothing, and another without one | the backlog moves to that one |
| a connection is established again | its streams are assigned again: nothing of them is in flight |
| a suspect (failures/suspects.py) | it goes by a connection that no other stream uses |
| a broker that answers, but accepts no further connection | its streams go by the connections that exist |

A stream moves once nothing of it is in flight: two connections would carry it in no order. Does not contain: batches of
a stream (sender.py), send queues (target_connection.py), what a link carries (link/link_model.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from mirror.link.bbr_pacing import OtherTraffic
from mirror.link.link_model import Link
from mirror.partition.send_state import RESTING
from mirror.partition.stream import PartitionStream
from mirror.producer.target_connection import ALONE, TargetConnection

CONNECTIONS_MAX = 4  # to a leader
CONNECTIONS_UNDAUNTED_MAX = 2  # if each fills a lossy link: of more, one soon has less than its share for long
DOWN_S = 3  # without any byte acknowledged
LOSSY = 0.005  # of segments sent again, from which on one connection does not fill a link
JUDGED = 400  # segments, after which a link that lost less is not lossy any more: at 2 % it loses eight of them
SPARSE_S = 30.0  # since a stream without a backlog had something to send
BACKLOG_S = 10.0  # since a stream had a whole batch waiting


class ConnectionAssignment:
    """The target connections to all leaders, `connections` to each at most; of one event loop."""

    def __init__(
        self, link: Link, make: Callable[[int, int], TargetConnection], consider: Callable[[PartitionStream], None]
    ) -> None:
        """`make` makes the connection of a node and number; `consider` is called for a stream that is to move."""
        self.connections = 1
        self._link, self._make, self._consider = link, make, consider
        self._delivered = self._still_s = 0  # bytes at the last `grow`, and seconds since they changed
        self._is_undaunted = False  # loss slows no connection down
        self._sparse_until = 0.0  # until then there are streams without a backlog
        self._target_connections: dict[tuple[int, int], TargetConnection] = {}

    @property
    def target_connections(self) -> Collection[TargetConnection]:
        """All existing connections."""
        return self._target_connections.values()

    @property
    def active(self) -> int:
        """The number of connections with a backlog that share the link, one at least."""
        return max(1, sum(connection.is_active for connection in self.target_connections))

    @property
    def _connections_max(self) -> int:
        return max(self.connections, CONNECTIONS_UNDAUNTED_MAX) if self._is_undaunted else CONNECTIONS_MAX

    def retire(self, connection: TargetConnection) -> None:
        """Forget a connection that carries nothing any more."""
        del self._target_connections[connection.node, connection.number]

    # assignment of a stream

    def join(self, stream: PartitionStream, node: int) -> None:
        """Assign a stream, of which nothing is in flight, to a connection to this leader."""
        if stream.connection is not None:
            stream.connection.release(stream)
        waits_long = self._waits_long(stream)
        if waits_long:  # as all do after an outage
            stream.backlog_until = asyncio.get_running_loop().time() + BACKLOG_S
            if self._link.is_lossy:
                # At once: later, a stream with batches in flight would have to wait for them.
                self.connections = self._connections_max
        stream.assigned = self._range_for(stream)
        left, stream.leaves = stream.connection if stream.leaves else None, False
        stream.connection = self.emptiest(node, *stream.assigned, but=left)
        stream.connection.streams.add(stream)
        stream.connection.is_free &= not waits_long

    def must_move(self, stream: PartitionStream) -> bool:
        """Return whether another connection must carry a stream that has something to send."""
        now = asyncio.get_running_loop().time()
        if self.connections > 1 and not _is_backlog(stream, now):
            self._sparse_until = now + SPARSE_S
        return stream.leaves or stream.assigned != self._range_for(stream)

    def _waits_long(self, stream: PartitionStream) -> bool:
        """Return whether more than a batch of it is to be sent, or sent again."""
        unsent = sum(len(batch.packed.batch) for batch in stream.flight if batch.mark is None)
        return unsent + stream.buffer_bytes * stream.shrinkage >= 2 * self._link.batch_bytes

    def _range_for(self, stream: PartitionStream) -> tuple[int, int]:
        """Return the range of connections for a stream: one is kept for urgent ones and those without a backlog."""
        if stream.is_alone:
            return ALONE, ALONE + 1
        now = asyncio.get_running_loop().time()
        if self.connections == 1 or not _is_backlog(stream, now):
            return 0, 1
        return (1 if now < self._sparse_until else 0), self.connections

    def emptiest(self, node: int, first: int, end: int, *, but: TargetConnection | None = None) -> TargetConnection:
        """Return the connection to a leader with the fewest streams, made if it does not exist; not `but` if possible.

        A connection that the broker does not accept carries none while there is another.
        """

        if first == ALONE:
            return self._connection_to(node, ALONE)

        def load(number: int) -> tuple[bool, bool, int]:
            connection = self._target_connections.get((node, number))
            return (
                (False, False, 0)
                if connection is None
                else (connection is but, not connection.is_free, len(connection.streams))
            )

        shut = {
            connection.number
            for connection in self.target_connections
            if connection.node == node and connection.is_shut
        }
        others = [number for number in range(end) if number not in shut]
        number = min([number for number in others if number >= first] or others or range(first, end), key=load)
        return self._connection_to(node, number)

    def _connection_to(self, node: int, number: int) -> TargetConnection:
        if (node, number) not in self._target_connections:
            self._target_connections[node, number] = self._make(node, number)
        return self._target_connections[node, number]

    def has_another(self, connection: TargetConnection) -> bool:
        """Return whether its broker answers by another connection."""
        return any(
            one.is_up for one in self.target_connections if one is not connection and one.node == connection.node
        )

    def has_another_broker(self, connection: TargetConnection) -> bool:
        """Return whether another broker is connected."""
        return any(one.is_up for one in self.target_connections if one.node != connection.node)

    # each second

    def grow(self) -> None:
        """Add a connection per leader if what may be in flight is, and one does not fill the link: loss, or its window.

        Segments lost while packets wait on the link are the mirror's own doing; more connections would lose more.
        Call it each second. A link that carries nothing is down: it loses everything, and is not a lossy one.
        """
        delivered, self._delivered = self._delivered, self._link.delivered_bytes
        self._still_s = self._still_s + 1 if delivered == self._delivered else 0
        if self._still_s:
            for connection in self.target_connections if self._still_s >= DOWN_S else ():
                connection.forget_loss()
            return
        segments = [connection.segments() for connection in self.target_connections]
        held_up = [connection.was_held_up() for connection in self.target_connections]
        loses = any(again and again >= LOSSY * sent for sent, again in segments)
        is_queued = any(connection.is_queued for connection in self.target_connections)
        if loses:
            self._link.is_lossy |= not is_queued
        elif sum(sent for sent, _ in segments) >= JUDGED:  # with fewer segments the last result stays
            self._link.is_lossy = False
        undaunted = [connection.bear_loss(is_lossy=self._link.is_lossy) for connection in self.target_connections]
        self._is_undaunted = all(undaunted)
        is_full = self._link.under_way_bytes * 2 >= self._link.limit_bytes
        if ((loses and not is_queued) or any(held_up)) and is_full and self.connections < self._connections_max:
            self.connections += 1
            for connection in self.target_connections:
                self._keep(connection)
        if len(self._target_connections) > 1 or self._link.is_lossy:  # else one connection has the whole link
            self._share()
        alone_bytes_s = (
            self._link.rate if sum(not connection.is_free for connection in self.target_connections) == 1 else None
        )
        for connection in self.target_connections:
            connection.fill(self._other_traffic(connection), None if connection.is_free else alone_bytes_s)

    def _other_traffic(self, connection: TargetConnection) -> OtherTraffic:
        if asyncio.get_running_loop().time() < self._sparse_until or self._is_mixed(connection):
            return OtherTraffic.TRICKLES
        return OtherTraffic.BACKLOGS if self.connections > 1 else OtherTraffic.NOTHING

    def _is_mixed(self, connection: TargetConnection) -> bool:
        """Return whether a connection carries other streams in addition to a backlog."""
        now = asyncio.get_running_loop().time()
        return len({_is_backlog(stream, now) for stream in connection.streams}) > 1

    def _share(self) -> None:
        """Divide the link among the connections with a backlog."""
        waiting = {
            connection: [stream for stream in connection.streams if self._waits_long(stream)]
            for connection in self.target_connections
        }
        for connection, streams in waiting.items():
            connection.is_free = not streams
        if self.connections > 1:
            self._even_out(waiting)

    def _keep(self, connection: TargetConnection) -> None:
        """Keep a fair share of the streams on a connection: one that moves waits until nothing of it is in flight."""
        now = asyncio.get_running_loop().time()
        streams = [stream for stream in connection.streams if _is_backlog(stream, now)]
        for stream in streams[: -(-len(streams) // self.connections)]:
            first, end = self._range_for(stream)
            if first <= connection.number < end:
                stream.assigned = first, end

    def _even_out(self, waiting: Mapping[TargetConnection, list[PartitionStream]]) -> None:
        """Move a backlog to another connection to its leader, if its own is slow and the other has none.

        A connection that has lost a segment twice may carry next to nothing for many seconds.
        """
        connections, share = list(waiting), (self._link.rate or 0.0) / self.active
        for connection in connections:
            connection.pace.tick(share, is_busy=connection.under_way_bytes > 0 and not connection.is_free)
        for connection in connections:
            stream = next(
                (stream for stream in waiting[connection] if not stream.urgent and stream.send_state not in RESTING),
                None,
            )
            if stream is not None and (connection.pace.is_slow or len(waiting[connection]) > 1):
                first, end = self._range_for(stream)
                others = (one for one in connections if one.node == connection.node and first <= one.number < end)
                stream.leaves = any(one.is_free for one in others)
                self._consider(stream)


def _is_backlog(stream: PartitionStream, now: float) -> bool:
    """Return whether a stream had a backlog a moment ago, and may wait for others."""
    return now < stream.backlog_until and not stream.urgent
