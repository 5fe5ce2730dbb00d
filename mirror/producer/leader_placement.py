"""Finds the leader of each stream at the target, and has a connection to that broker carry the stream.

| event | then |
|---|---|
| a stream starts, or a leader refused its batches | a connection to its leader carries it |
| another connection is to carry it (connection_assignment.py) | the same, once nothing of it is in flight |
| the broker of a connection does not answer | the streams move whose partitions have another leader |
| a connection is established again | its streams are assigned again: there may be a backlog now, or none |

Does not contain: how many connections a broker has (connection_assignment.py), what a stream sends (sender.py).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

from mirror.client.log_queries import leader_of
from mirror.client.target_client import Target
from mirror.errors import TargetError
from mirror.partition.send_state import CHANGING_CONNECTION, CREATING_TOPIC, MOVABLE
from mirror.partition.stream import PartitionStream
from mirror.producer.connection_assignment import ConnectionAssignment
from mirror.producer.failures.refusals import Refusals
from mirror.producer.failures.request_limits import RequestLimits
from mirror.producer.target_connection import TargetConnection


class StreamStarter(Protocol):
    """The sender, as it is called when another connection carries a stream."""

    def consider(self, stream: PartitionStream) -> None:
        """Send of a stream if it has something to send."""

    def ensure_topic(self, stream: PartitionStream) -> None:
        """Create the topic of a stream if it does not exist, and start a producer session."""

    def spawn_task(self, work: Coroutine[Any, Any, None]) -> object:
        """Run something concurrently with all else."""


class LeaderPlacement:
    """Places the streams of one sender on its connections."""

    def __init__(
        self,
        target: Target,
        assignment: ConnectionAssignment,
        refusals: Refusals,
        limits: RequestLimits,
        report_problem: Callable[[str, str], None],
        sender: StreamStarter,
    ) -> None:
        """`report_problem` takes a name and what is wrong with it."""
        self._target, self._assignment, self._refusals, self._limits = target, assignment, refusals, limits
        self._report_problem, self._sender = report_problem, sender

    async def join_leader(self, stream: PartitionStream) -> None:
        """Have a connection to the leader carry a stream of which nothing is in flight; raises TargetError."""
        leader = await self._target.leader(stream.at_target)
        self._assignment.join(stream, leader.node)

    async def change_connection(self, stream: PartitionStream) -> None:
        """Have another connection carry a stream, which may become unsure meanwhile."""
        try:
            await self.join_leader(stream)
        except TargetError as error:
            self._report_problem(stream.name, str(error))
            if stream.send_state is CHANGING_CONNECTION:
                stream.enter(CREATING_TOPIC)
                self._sender.ensure_topic(stream)
        if stream.send_state is CHANGING_CONNECTION:
            stream.resume_sending()
        self._sender.consider(stream)

    async def leave_unreachable(self, connection: TargetConnection) -> None:
        """Move the streams of a connection whose broker does not answer, if their partitions have another leader."""
        streams = [stream for stream in connection.streams if stream.is_quiet]
        if self._assignment.has_another_broker(connection):  # whose partitions need the memory
            for stream in connection.streams:
                self._refusals.block(stream)
        with suppress(TargetError):  # the connection itself reports what is wrong
            found = await self._target.topics(sorted({stream.target_topic for stream in streams}))
            for stream in streams:
                leader = leader_of(found, stream.at_target)
                is_free = stream.connection is connection and stream.is_quiet and stream.send_state in MOVABLE
                if is_free and leader.node >= 0:  # a partition without a leader keeps no other one from moving
                    self._assignment.join(stream, leader.node)
                    self._refusals.forget([stream] if stream.connection is not connection else [])
                    self._sender.consider(stream)

    def reassign(self, connection: TargetConnection) -> None:
        """Assign the streams of a connection again that is established again."""
        self._refusals.forget(connection.streams)
        if connection.node in self._limits:  # they can differ after a restart of the broker only
            self._sender.spawn_task(self._limits.learn(connection.node))
        for stream in list(connection.streams):
            if stream.is_quiet and stream.send_state in MOVABLE:
                self._assignment.join(stream, connection.node)
                self._sender.consider(stream)
