"""Isolates batches that have their connection closed: asks for the target's limit, holds or condemns them.

| step, after a connection broke with batches of a partition in flight | by |
|---|---|
| it becomes suspect: the broker is asked for socket.request.max.bytes, once | DescribeConfigs |
| a batch above the limit | counts as refused, and is not sent (request_limits.py) |
| it was alone: another connection to that broker is asked | Metadata |
| other connections broke, or none answers: the link | sent again as it is, after LINK_CUTS such breaks with waits |
| another one answers, and it is not at the target | it waits, longer each time, at most PAUSE_S_MAX |
| the same, and it is condemned | it is taken in two, or handed to `on_refused` (refusals.py) |

Does not contain: when a batch is suspect or condemned (suspects.py), by which connection it goes
(connection_assignment.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from drupelet.backoff import Backoff
from mirror.client.target_client import Target
from mirror.link.link_model import Link
from mirror.partition.stream import Batch, PartitionStream
from mirror.producer.failures.produce_errors import LOST
from mirror.producer.failures.refusals import Refusals
from mirror.producer.failures.request_limits import RequestLimits
from mirror.producer.failures.suspects import Suspicion, is_proof, note_acked, note_alone, note_cut
from mirror.producer.target_connection import ALONE, TargetConnection

PAUSE_S_FIRST, PAUSE_S_MAX = 1.0, 300.0
LINK_CUTS = 2  # of the link in a row, while one batch was alone, after which this is sent again at once
CLOSED = "CONNECTION_CLOSED"


class Break(NamedTuple):
    """A break of the connection of a suspect; `batch` was alone on it, or is above the broker's limit."""

    batch: Batch
    is_link: bool = False
    """Whether the link breaks, as far as is known: other connections to the broker broke as well, or none answers."""
    is_condemned: bool = False

    @property
    def may_resend(self) -> bool:
        """Whether the batch may be sent again as it is; otherwise the log is read first to learn whether it arrived."""
        return self.is_link and not self.is_condemned


class Isolation:
    """The suspects of one sender; `report_problem` reports what is wrong with a partition."""

    def __init__(
        self, target: Target, link: Link, refusals: Refusals, report_problem: Callable[[str, str], None]
    ) -> None:
        self._target, self._link, self._refusals, self._report_problem = target, link, refusals, report_problem
        self.limits = RequestLimits(target)
        self._breaks: dict[int, int] = {}  # of connections that carry no suspect
        self._witnesses: dict[
            PartitionStream, tuple[int, Any, int]
        ] = {}  # node, connection, and breaks before an attempt
        self._pauses: dict[PartitionStream, Backoff] = {}

    def forget(self, stream: PartitionStream) -> None:
        """Note that a partition is suspect no more."""
        self._witnesses.pop(stream, None)
        self._pauses.pop(stream, None)

    def connection_lost(self, connection: TargetConnection) -> None:
        """Note that a connection broke; `note` handles a suspect's own connection."""
        if connection.number != ALONE:
            self._breaks[connection.node] = self._breaks.get(connection.node, 0) + 1

    def batch_acked(self, stream: PartitionStream, batch: Batch) -> None:
        """Note that a batch is safe, and all before it."""
        if stream.suspicion is not None and note_acked(stream, batch.end_offset):
            self.forget(stream)

    async def note(self, stream: PartitionStream) -> Break | None:
        """Note that batches of a partition had no response; None unless a suspect was alone, or above a limit."""
        if stream.connection is None or not any(batch.outcome == LOST for batch in stream.flight):
            return None
        head, node = stream.flight[0], stream.connection.node
        was_alone = stream.is_alone and stream.connection.number == ALONE
        if note_cut(stream, head.pieces[0].first_offset, stream.flight[-1].end_offset):
            self._refusals.block(stream)  # from now on it holds its share, and does not limit the others' reads
            self._refusals.attempt(stream)
            if node not in self.limits:
                await self.limits.learn(node)
            await self._watch(stream, node)
        if self.limits.is_exceeded(node, head):
            return Break(head)
        return await self._classify_break(stream, stream.suspicion, head) if was_alone else None

    async def _classify_break(self, stream: PartitionStream, suspicion: Suspicion, batch: Batch) -> Break:
        node, witness, breaks = self._witnesses.get(stream, (-1, None, -1))
        others_broke = breaks != self._breaks.get(node, 0) or node != stream.connection.node
        another_answers = not others_broke and witness is not None and await self._target.answers(witness)
        proves = is_proof(
            batch.took_s, self._link.round_trip_s, others_broke=others_broke, another_answers=another_answers
        )
        is_condemned = note_alone(suspicion, is_proof=proves)
        return Break(batch, is_link=others_broke or not another_answers, is_condemned=is_condemned)

    async def _watch(self, stream: PartitionStream, node: int) -> None:
        self._witnesses[stream] = node, await self._target.witness(node), self._breaks.get(node, 0)

    async def pause(self, stream: PartitionStream, broken: Break, backoff: Backoff) -> None:
        """Let a batch of unknown outcome wait before it is sent again as it is; it is kept."""
        self._pauses.pop(stream, None)
        if stream.suspicion.times > LINK_CUTS:
            self._name(stream, broken.batch)
            await asyncio.sleep(self._refusals.pause_s(stream, backoff.next_s(), [broken.batch]))
        await self._watch(stream, stream.connection.node)

    async def hold_back(self, stream: PartitionStream, broken: Break, backoff: Backoff) -> None:
        """Let a batch wait that failed alone, or split it; unless the log shows that it has arrived."""
        batch, suspicion = broken.batch, stream.suspicion
        is_there = stream.offsets.acked > batch.pieces[0].first_offset
        if suspicion is None or is_there or self.limits.is_exceeded(stream.connection.node, batch):
            return
        if broken.is_condemned:
            batch.said = f"the target closed the connection each of the {suspicion.times} times that it was sent alone"
            if stream.buffer and stream.buffer[0] is batch.pieces[0]:
                self._pauses.pop(stream, None)
                await self._refusals.take_in_two(stream, batch, CLOSED, backoff)
        elif not broken.is_link or suspicion.times > LINK_CUTS:
            self._name(stream, batch)
            stream.boundary = batch.end_offset
            if broken.is_link:
                self._pauses.pop(stream, None)
            pause = backoff if broken.is_link else self._pauses.setdefault(stream, Backoff(PAUSE_S_FIRST, PAUSE_S_MAX))
            await self._refusals.wait(stream, pause.next_s(), [batch])
        await self._watch(stream, stream.connection.node)

    def _name(self, stream: PartitionStream, batch: Batch) -> None:
        self._report_problem(
            stream.name,
            f"the connection broke {stream.suspicion.times} times while the batch at offset "
            f"{batch.pieces[0].first_offset}, of {batch.size} bytes, was sent alone; it waits, and is sent again",
        )
