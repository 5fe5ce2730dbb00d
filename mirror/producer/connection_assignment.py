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

from mirror.link.bbr_pacing import Beside
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
        self._pipes: dict[tuple[int, int], TargetConnection] = {}

    @property
    def pipes(self) -> Collection[TargetConnection]:
        """All existing connections."""
        return self._pipes.values()

    @property
    def active(self) -> int:
        """The number of connections with a backlog that share the link, one at least."""
        return max(1, sum(pipe.is_active for pipe in self.pipes))

    @property
    def _connections_max(self) -> int:
        return max(self.connections, CONNECTIONS_UNDAUNTED_MAX) if self._is_undaunted else CONNECTIONS_MAX

    def retire(self, pipe: TargetConnection) -> None:
        """Forget a connection that carries nothing any more."""
        del self._pipes[pipe.node, pipe.number]

    # assignment of a stream

    def join(self, lane: PartitionStream, node: int) -> None:
        """Assign a stream, of which nothing is in flight, to a connection to this leader."""
        if lane.pipe is not None:
            lane.pipe.let_go(lane)
        waits_long = self._waits_long(lane)
        if waits_long:  # as all do after an outage
            lane.backlog_until = asyncio.get_running_loop().time() + BACKLOG_S
            if self._link.is_lossy:
                self.connections = (
                    self._connections_max
                )  # at once: later, a stream with batches in flight would have to wait for them
        lane.dealt = self._dealt(lane)
        left, lane.leaves = lane.pipe if lane.leaves else None, False
        lane.pipe = self.emptiest(node, *lane.dealt, but=left)
        lane.pipe.lanes.add(lane)
        lane.pipe.is_free &= not waits_long

    def must_move(self, lane: PartitionStream) -> bool:
        """Return whether another connection must carry a stream that has something to send."""
        now = asyncio.get_running_loop().time()
        if self.connections > 1 and not _is_backlog(lane, now):
            self._sparse_until = now + SPARSE_S
        return lane.leaves or lane.dealt != self._dealt(lane)

    def _waits_long(self, lane: PartitionStream) -> bool:
        """Return whether more than a batch of it is to be sent, or sent again."""
        unsent = sum(len(batch.packed.batch) for batch in lane.flight if batch.mark is None)
        return unsent + lane.buffer_bytes * lane.shrinkage >= 2 * self._link.batch_bytes

    def _dealt(self, lane: PartitionStream) -> tuple[int, int]:
        """Return the range of connections for a stream: one is kept for urgent ones and those without a backlog."""
        if lane.is_alone:
            return ALONE, ALONE + 1
        now = asyncio.get_running_loop().time()
        if self.connections == 1 or not _is_backlog(lane, now):
            return 0, 1
        return (1 if now < self._sparse_until else 0), self.connections

    def emptiest(self, node: int, first: int, end: int, *, but: TargetConnection | None = None) -> TargetConnection:
        """Return the connection to a leader with the fewest streams, made if it does not exist; not `but` if possible.

        A connection that the broker does not accept carries none while there is another.
        """

        if first == ALONE:
            return self._pipe(node, ALONE)

        def load(number: int) -> tuple[bool, bool, int]:
            pipe = self._pipes.get((node, number))
            return (False, False, 0) if pipe is None else (pipe is but, not pipe.is_free, len(pipe.lanes))

        shut = {pipe.number for pipe in self.pipes if pipe.node == node and pipe.is_shut}
        others = [number for number in range(end) if number not in shut]
        number = min([number for number in others if number >= first] or others or range(first, end), key=load)
        return self._pipe(node, number)

    def _pipe(self, node: int, number: int) -> TargetConnection:
        if (node, number) not in self._pipes:
            self._pipes[node, number] = self._make(node, number)
        return self._pipes[node, number]

    def has_another(self, pipe: TargetConnection) -> bool:
        """Return whether its broker answers by another connection."""
        return any(one.is_up for one in self.pipes if one is not pipe and one.node == pipe.node)

    def has_another_broker(self, pipe: TargetConnection) -> bool:
        """Return whether another broker is connected."""
        return any(one.is_up for one in self.pipes if one.node != pipe.node)

    # each second

    def grow(self) -> None:
        """Add a connection per leader if what may be in flight is, and one does not fill the link: loss, or its window.

        Segments lost while packets wait on the link are the mirror's own doing; more connections would lose more.
        Call it each second. A link that carries nothing is down: it loses everything, and is not a lossy one.
        """
        delivered, self._delivered = self._delivered, self._link.delivered_bytes
        self._still_s = self._still_s + 1 if delivered == self._delivered else 0
        if self._still_s:
            for pipe in self.pipes if self._still_s >= DOWN_S else ():
                pipe.forget_loss()
            return
        segments = [pipe.segments() for pipe in self.pipes]
        held_up = [pipe.was_held_up() for pipe in self.pipes]
        loses = any(again and again >= LOSSY * sent for sent, again in segments)
        is_queued = any(pipe.is_queued for pipe in self.pipes)
        if loses:
            self._link.is_lossy |= not is_queued
        elif sum(sent for sent, _ in segments) >= JUDGED:  # with fewer segments the last result stays
            self._link.is_lossy = False
        undaunted = [pipe.bear_loss(is_lossy=self._link.is_lossy) for pipe in self.pipes]
        self._is_undaunted = all(undaunted)
        is_full = self._link.under_way_bytes * 2 >= self._link.limit_bytes
        if ((loses and not is_queued) or any(held_up)) and is_full and self.connections < self._connections_max:
            self.connections += 1
            for pipe in self.pipes:
                self._keep(pipe)
        if len(self._pipes) > 1 or self._link.is_lossy:  # else one connection has the whole link
            self._share()
        alone_bytes_s = self._link.rate if sum(not pipe.is_free for pipe in self.pipes) == 1 else None
        for pipe in self.pipes:
            pipe.fill(self._beside(pipe), None if pipe.is_free else alone_bytes_s)

    def _beside(self, pipe: TargetConnection) -> Beside:
        if asyncio.get_running_loop().time() < self._sparse_until or self._is_mixed(pipe):
            return Beside.TRICKLES
        return Beside.BACKLOGS if self.connections > 1 else Beside.NOTHING

    def _is_mixed(self, pipe: TargetConnection) -> bool:
        """Return whether a connection carries other streams in addition to a backlog."""
        now = asyncio.get_running_loop().time()
        return len({_is_backlog(lane, now) for lane in pipe.lanes}) > 1

    def _share(self) -> None:
        """Divide the link among the connections with a backlog."""
        waiting = {pipe: [lane for lane in pipe.lanes if self._waits_long(lane)] for pipe in self.pipes}
        for pipe, lanes in waiting.items():
            pipe.is_free = not lanes
        if self.connections > 1:
            self._even_out(waiting)

    def _keep(self, pipe: TargetConnection) -> None:
        """Keep a fair share of the streams on a connection: one that moves waits until nothing of it is in flight."""
        now = asyncio.get_running_loop().time()
        lanes = [lane for lane in pipe.lanes if _is_backlog(lane, now)]
        for lane in lanes[: -(-len(lanes) // self.connections)]:
            first, end = self._dealt(lane)
            if first <= pipe.number < end:
                lane.dealt = first, end

    def _even_out(self, waiting: Mapping[TargetConnection, list[PartitionStream]]) -> None:
        """Move a backlog to another connection to its leader, if its own is slow and the other has none.

        A connection that has lost a segment twice may carry next to nothing for many seconds.
        """
        pipes, share = list(waiting), (self._link.rate or 0.0) / self.active
        for pipe in pipes:
            pipe.pace.tick(share, is_busy=pipe.under_way_bytes > 0 and not pipe.is_free)
        for pipe in pipes:
            lane = next((lane for lane in waiting[pipe] if not lane.urgent and lane.send_state not in RESTING), None)
            if lane is not None and (pipe.pace.is_slow or len(waiting[pipe]) > 1):
                first, end = self._dealt(lane)
                others = (one for one in pipes if one.node == pipe.node and first <= one.number < end)
                lane.leaves = any(one.is_free for one in others)
                self._consider(lane)


def _is_backlog(lane: PartitionStream, now: float) -> bool:
    """Return whether a stream had a backlog a moment ago, and may wait for others."""
    return now < lane.backlog_until and not lane.urgent
