"""Reads one partition's log from its leader, and cuts it into ranges of digests.

It digests a response while the next fetch is in flight. If the leader moved or the connection is lost, it retries until
nothing was answered for `Silence.wait_s`. Memory: two responses, and one unpacked.
Does not contain: which partitions are read, any use of the ranges.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from drupelet.backoff import Backoff
from drupelet.errors import sentence
from edge_broker.errors import ErrorCode, ProtocolViolation, Refusal, error_name
from edge_broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from kafka_wire.apis import CONSUMER, FETCH, READ_COMMITTED
from kafka_wire.cluster import SIDE
from kafka_wire.connection.errors import WireError
from kafka_wire.partitions import TopicPartition
from kafka_wire.records.batches import BadBatch, Piece, SkippedRange, pieces_of
from mirror.audit.digest.digests import Chunker, Digests, Hole, Range, digests_of
from mirror.audit.endpoints.origins import PassesOver
from mirror.client.log_queries import Asking
from mirror.errors import SourceError

ANSWER_BYTES_MAX = 1024 * 1024
WAIT_S = 0.1, 2.0  # the first and the longest between two attempts
WAIT_S_LEAST = 2.0
_AGAIN = {
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.OFFSET_NOT_AVAILABLE,
}


class Silence:
    """The time that partitions of one end wait for a response: each that waits in vain halves it for the next ones.

    A broker that responds to nothing for `timeout_s` is not asked again.
    """

    def __init__(self, timeout_s: float) -> None:
        """`timeout_s` is for one request, and the first wait."""
        self.timeout_s = self.wait_s = timeout_s
        self.brokers: set[int] = set()

    def waited_in_vain(self, waited_s: float, brokers: set[int]) -> None:
        """Note that no response came, and which brokers were asked last."""
        self.wait_s = min(self.wait_s, max(WAIT_S_LEAST, self.wait_s / 2))
        if waited_s >= self.timeout_s:
            self.brokers |= brokers


class LogReader:
    """The log of one partition; raises SourceError if it cannot be read, at either end."""

    def __init__(
        self,
        asking: Asking,
        partition: TopicPartition,
        silence: Silence,
        *,
        keyed: bool,
        passes_over: PassesOver | None = None,
    ) -> None:
        """`keyed`: also digest the keys. Batches of the producers that `passes_over` names count as from the target."""
        self._asking = asking
        self._partition = partition
        self._silence = silence
        self._keyed = keyed
        self._unanswered: set[int] = set()  # the leader, until it answers what it was asked last
        self._passes_over = passes_over

    async def ranges(self, offset: int, end: int) -> AsyncGenerator[Range]:
        """Read [offset, end) and cut it; the last range may have no records."""
        chunker = Chunker()
        async with contextlib.aclosing(self.pieces(offset, end)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Piece) and self._is_passed_over(piece):
                    chunker.skip(piece.first_offset, piece.end_offset, "from_target")
                elif isinstance(piece, Piece):
                    for one in chunker.add(self._digest(piece, chunker)):
                        yield one
                else:
                    chunker.skip(*piece)
        yield chunker.last_range()

    def _is_passed_over(self, piece: Piece) -> bool:
        return self._passes_over is not None and self._passes_over(piece.header.producer_id)

    def _digest(self, piece: Piece, chunker: Chunker) -> Digests:
        first, end = piece.first_offset, piece.end_offset
        try:
            found = digests_of(piece, keyed=self._keyed)
        except (BadBatch, Refusal, ProtocolViolation) as error:
            raise self._error(first, sentence(error)) from error
        chunker.skip(first, end - len(found.digests), "compacted")
        return found

    async def pieces(self, offset: int, end: int) -> AsyncGenerator[Piece | SkippedRange | Hole]:
        """Read all of [offset, end): offsets that no batch covers, or that cannot be read, are a Hole."""
        coming: asyncio.Task[PartitionData] | None = None
        try:
            while offset < end:
                data = await (coming or self._fetch(offset))
                pieces = [] if data.error_code else self._pieces(data, offset)
                if not pieces:
                    hole = await self._hole(data, offset, end)
                    yield hole
                    coming, offset = None, hole.end
                    continue
                after = pieces[-1].end_offset
                coming = asyncio.create_task(self._fetch(after)) if after < end else None
                for piece in pieces:
                    if piece.first_offset > offset:
                        yield Hole(offset, min(piece.first_offset, end), "jump")
                    if piece.first_offset < end:
                        yield piece._replace(end_offset=min(piece.end_offset, end))
                    offset = piece.end_offset
                    await asyncio.sleep(0)  # the next answer comes meanwhile
        finally:
            if coming is not None:
                coming.cancel()
                with contextlib.suppress(asyncio.CancelledError, SourceError):
                    await coming

    def _pieces(self, data: PartitionData, offset: int) -> list[Piece | SkippedRange]:
        aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
        try:
            return list(pieces_of(memoryview(data.records or b""), offset, aborted))
        except BadBatch as error:
            raise self._error(offset, str(error)) from error

    async def _hole(self, data: PartitionData, offset: int, end: int) -> Hole:
        """Return the meaning of a response without batches."""
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            starts, _ = await self._asking.bounds([self._partition])
            after = min(starts[self._partition], end)
            return Hole(offset, after if after > offset else end, "gone")  # else its end is lower now
        if data.high_watermark < end:
            return Hole(offset, end, "gone")
        return Hole(offset, end, "open" if 0 <= data.last_stable_offset <= offset else "compacted")

    async def _fetch(self, offset: int) -> PartitionData:
        backoff, loop = Backoff(*WAIT_S), asyncio.get_running_loop()
        began_at, wait_s = loop.time(), self._silence.wait_s
        while True:
            try:
                data = await self._fetch_once(offset)
                if data.error_code not in _AGAIN:
                    if data.error_code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
                        raise self._error(offset, error_name(data.error_code))
                    return data
                why = error_name(data.error_code)
            except WireError as error:
                why = str(error)
            waited_s = loop.time() - began_at
            if waited_s >= wait_s:
                self._silence.waited_in_vain(waited_s, self._unanswered)
                raise self._error(offset, why)
            self._asking.forget(self._partition.topic)
            await asyncio.sleep(backoff.next_s())

    async def _fetch_once(self, offset: int) -> PartitionData:
        leader = await self._leader()
        if leader in self._silence.brokers:
            raise WireError(f"broker {leader}, its leader, has not answered")
        self._unanswered = {leader}
        wanted = FetchPartition(
            partition=self._partition.partition, fetch_offset=offset, partition_max_bytes=ANSWER_BYTES_MAX
        )
        request = FetchRequest(
            replica_id=CONSUMER,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=ANSWER_BYTES_MAX,
            isolation_level=READ_COMMITTED,
            topics=[FetchTopic(topic=self._partition.topic, partitions=[wanted])],
        )
        connection = await self._asking.cluster.connection(leader, SIDE)
        answer = await connection.ask(FETCH, request, timeout_s=self._silence.timeout_s)
        self._unanswered = set()
        if answer.error_code:
            raise WireError(error_name(answer.error_code))
        told = [one for topic in answer.responses for one in topic.partitions]
        if len(told) != 1:
            raise WireError(f"{connection.place} answered {len(told)} partitions instead of one")
        return told[0]

    async def _leader(self) -> int:
        try:
            return (await self._asking.leader(self._partition)).node
        except SourceError as error:
            raise WireError(str(error)) from error

    def _error(self, offset: int, why: str) -> SourceError:
        return SourceError(f"{self._partition.topic}-{self._partition.partition} at offset {offset}: {why}")
