"""Make a cluster refuse batches in flight of a producer's previous sessions, by an aborted transaction without data.

| round trip | request, all to the coordinator of the transactional id | why |
|---|---|---|
| 1 | FindCoordinator, of any broker | |
| 2 | InitProducerId | same producer id, next epoch; aborts an open transaction of a previous session |
| 3 | AddPartitionsToTxn and, at once after it, EndTxn (abort) | a marker of that epoch for each partition |
| 4 | EndTxn (abort) again | EndTxn is answered before its markers are written; only its repetition tells when |

The caller may use the fourth round trip: a read meanwhile is valid if it shows the marker.

Then these rules hold, by Apache Kafka 3.9.2 and 4.3.1 (tests/conformance/test_fencing.py; ProducerAppendInfo,
ProducerStateManager, TransactionCoordinator of the source):
- A batch of a lower epoch is refused with INVALID_PRODUCER_EPOCH, also one that is sent again with equal bounds. The
  first batch of the new epoch must have sequence 0 and need not be transactional.
- A marker of a transaction without data opens nothing: the last stable offset stays the high watermark. Markers are
  acknowledged by all in-sync replicas, so all records below one are below the high watermark as well.
- A leader remembers a producer by the *timestamp of its last batch or marker*. The marker's is the coordinator's clock:
  previous sessions are refused for `producer.id.expiration.ms` (1 day) after it. A batch of ours makes its own
  max_timestamp the producer's. If that is older than the expiration, the broker's next check
  (`producer.id.expiration.check.interval.ms`, 10 minutes; also its start, and each new leader's) forgets the producer
  with its epoch. Then *any* epoch and sequence is accepted, also a previous session's, and nothing is deduplicated.
  If a previous session's batch came between, our next one is refused with OUT_OF_ORDER_SEQUENCE_NUMBER, as its epoch is
  not the remembered one and its sequence not 0. If that batch was forgotten in turn, ours gets another base offset than
  the only writer's would be. So it is always noticed, but not prevented.
- The coordinator forgets a transactional id that has had no transaction for `transactional.id.expiration.ms` (7 days).
  Then it gives another producer id, whose epoch says nothing about the old one's. `extend` once a day, with one
  partition, keeps the id.
- A partition without a leader gets its marker when it has one again. Until then the coordinator answers
  CONCURRENT_TRANSACTIONS to each new transaction, for every partition: pass none that has no leader. By the source, the
  same holds for one with fewer in-sync replicas than min.insync.replicas: its leader accepts no marker either. If that
  happens while markers are written, the others have theirs: the fence is not confirmed, and each log tells.
- A batch that head deletion or DeleteRecords has removed is still remembered. A marker of the epoch that is in force
  already leaves the sequences as they are.
- Epochs end at LAST_EPOCH. The next producer id's markers say nothing about the old one, so an open transaction is left
  under the last epoch. The coordinator then aborts it with epoch 32767, which refuses all batches of the old id.

Does not contain: the choice of partitions, later reads and writes, another attempt after a lost connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from itertools import islice
from typing import NamedTuple

from edge_broker.errors import ErrorCode, error_name
from edge_broker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from edge_broker.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from edge_broker.protocol.messages.init_producer_id import InitProducerIdRequest
from kafka_wire.apis import ADD_PARTITIONS_TO_TXN, END_TXN, INIT_PRODUCER_ID
from kafka_wire.cluster import SIDE, TRANSACTION, Cluster, Partition
from kafka_wire.connection.connection import Connection
from kafka_wire.connection.errors import ConnectionLost, NoCoordinator, VersionUnknown, WireError

BOUND_S = 30.0
BACKOFF_S = 0.02, 1.0  # first and longest wait before the coordinator is asked again
PARTITIONS_MAX = 2000  # of one transaction, whose record in the coordinator's log is then below 600 KB
LAST_EPOCH = 32766
TRANSACTION_TIMEOUT_MS = 60_000

WAITS = (
    ": a partition of its last transaction has no leader, or too few in-sync replicas, for the end; start its brokers"
)
_FIND_AGAIN = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
_AGAIN = _FIND_AGAIN | {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
_OVERTAKEN = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}
_CERTAIN_ENDS = {
    ErrorCode.NONE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
}
"""Responses to EndTxn by which it is executed already, or never will be."""
_REFUSED = {
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_REQUEST,
}
_OF_A_PARTITION = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
}


class NoFence(WireError):
    """The cluster accepts no transactional id from this client, by ACLs or as it has none: it cannot fence."""


class ProducerFenced(WireError):
    """A newer session has the transactional id, or the coordinator has forgotten it: batches may be refused."""


class Fence(NamedTuple):
    """The producer whose batches are accepted from sequence 0 on, and the result for the partitions.

    `refused` are those that got no marker, with the error code of each. `is_confirmed` is false if not all markers were
    written in time: then a partition is fenced once a marker of this epoch is seen in its log.
    """

    producer_id: int
    producer_epoch: int
    refused: dict[Partition, int]
    is_confirmed: bool


Meanwhile = Callable[[Fence], Awaitable[None]]


class Fencing:
    """One transactional id, of one event loop; concurrent calls run one after the other.

    Every coroutine raises NoFence, ProducerFenced, ConnectionLost (then the outcome is unknown: `begin` again), or
    WireError if the coordinator is not available within `bound_s`.
    """

    transaction_timeout_ms = TRANSACTION_TIMEOUT_MS
    """The timeout of transactions of the next epoch; less if the cluster does not allow so much."""
    markers_s: float | None = None
    """The longest wait for the markers of a fence, or of the transaction before; None: as for all else."""

    def __init__(self, cluster: Cluster, transactional_id: str, *, timeout_s: float, bound_s: float = BOUND_S) -> None:
        """`timeout_s` is for one request, `bound_s` for all waits of one call for the coordinator."""
        self._cluster = cluster
        self._id = transactional_id
        self._timeout_s, self._bound_s = timeout_s, bound_s
        self._node: int | None = None
        self._node_before: int | None = None  # the coordinator before a connection was lost; most likely it still is
        self._producer = -1, -1
        self._is_ahead = False
        self._opened: tuple[int, int] | None = None  # the epoch whose transaction is open, unless it was raised since
        self._unanswered_ends = 0  # of this epoch: each may be executed at any time
        self._lock = asyncio.Lock()

    async def prepare(self, *, renew: bool = False) -> None:
        """Take an epoch ahead of need: for the first client Kafka creates a topic, which takes a while.

        If one was taken already, do nothing unless `renew` is set; then no `extend` may come before the next `begin`.
        """
        async with self._lock:
            if not self._is_ahead and (renew or self._producer[1] < 0):
                await self._raise_epoch(Patience(self._bound_s))
                self._is_ahead = True

    async def begin(self, partitions: Collection[Partition]) -> Fence:
        """Take the next epoch, and fence these partitions with it; in others the former epoch stays in force."""
        return await self.begin_with(lambda: partitions)

    async def begin_with(
        self, chosen: Callable[[], Collection[Partition]], meanwhile: Meanwhile | None = None
    ) -> Fence:
        """Fence the partitions chosen once there is an epoch, and run `meanwhile` while the end is confirmed.

        `meanwhile` gets the fence as an unconfirmed one, and must not raise. It does not run if there are more
        partitions than one transaction takes.
        """
        async with self._lock:
            patience = Patience(self._bound_s)
            if not self._is_ahead:
                await self._raise_epoch(patience)
            self._is_ahead, partitions = False, chosen()
            if self._producer[1] >= LAST_EPOCH:
                for some in _slices(partitions):  # into one transaction, which the coordinator aborts
                    await self._add(some, patience)
                await self._raise_epoch(patience)
            return await self._mark(partitions, patience, meanwhile)

    async def extend(self, partitions: Collection[Partition]) -> Fence:
        """Fence more partitions with the present epoch; those with batches of this epoch are not disturbed."""
        async with self._lock:
            assert self._producer[1] >= 0, "there is no epoch yet"
            return await self._mark(partitions, Patience(self._bound_s, self.markers_s))

    async def _raise_epoch(self, patience: Patience) -> None:
        async def ask(connection: Connection) -> int:
            request = InitProducerIdRequest(
                transactional_id=self._id,
                transaction_timeout_ms=self.transaction_timeout_ms,
                producer_id=-1,
                producer_epoch=-1,
            )
            answer = await connection.ask(INIT_PRODUCER_ID, request, timeout_s=self._timeout_s)
            if answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT and self.transaction_timeout_ms > 1:
                self.transaction_timeout_ms //= 2  # the cluster's transaction.max.timeout.ms is less, and not told
                return await ask(connection)
            if answer.error_code == ErrorCode.NONE:
                self._producer = answer.producer_id, answer.producer_epoch
                self._opened, self._unanswered_ends = None, 0
            return answer.error_code

        await self._until_done("a producer id", ask, patience)

    async def _mark(
        self, partitions: Collection[Partition], patience: Patience, meanwhile: Meanwhile | None = None
    ) -> Fence:
        refused: dict[Partition, int] = {}
        is_confirmed = True
        for some in _slices(partitions):
            if not is_confirmed:  # the coordinator takes no other transaction before
                refused |= dict.fromkeys(some, int(ErrorCode.CONCURRENT_TRANSACTIONS))
                continue
            refused |= await self._add(some, patience, and_end=True)
            if refused.keys() >= set(some):
                continue
            if meanwhile is not None and len(partitions) == len(some):
                early = Fence(*self._producer, dict(refused), is_confirmed=False)
                is_confirmed, _ = await asyncio.gather(self._are_written(patience), meanwhile(early))
            else:
                is_confirmed = await self._are_written(patience)
        return Fence(*self._producer, refused, is_confirmed)

    async def _add(
        self, partitions: list[Partition], patience: Patience, *, and_end: bool = False
    ) -> dict[Partition, int]:
        """Add the partitions that can be added, and return the others; EndTxn follows at once, without a wait."""
        left, refused = set(partitions), dict[Partition, int]()

        async def ask(connection: Connection) -> int:
            added = connection.send(ADD_PARTITIONS_TO_TXN, self._add_request(left), timeout_s=self._timeout_s)
            ended = self._send_end(connection) if and_end else None
            codes = _codes(await added)
            code_of_end = ErrorCode.NONE if ended is None else await self._code_of_end(ended)
            bad = {partition: code for partition, code in codes.items() if code in _OF_A_PARTITION}
            refused.update(bad)
            left.difference_update(bad)
            if bad and left:
                return await ask(connection)  # all or none are added: they were not attempted
            code = next((code for code in codes.values() if code not in _OF_A_PARTITION), ErrorCode.NONE)
            return code or (code_of_end if left else ErrorCode.NONE)

        await self._until_done("a fence", ask, patience)
        return refused

    async def _are_written(self, patience: Patience) -> bool:
        async def ask(connection: Connection) -> int:
            return await self._code_of_end(self._send_end(connection))

        if self.markers_s is not None:
            patience = Patience(self.markers_s)
        try:
            while True:
                try:
                    await self._until_done("the fence's markers", ask, patience)
                except ConnectionLost as error:  # the next coordinator has EndTxn in its log, and writes the markers
                    await patience.wait(str(error))
                else:
                    return True
        except OutOfPatience:
            return False

    def _add_request(self, partitions: Collection[Partition]) -> AddPartitionsToTxnRequest:
        topics: dict[str, list[int]] = {}
        for topic, number in sorted(partitions):
            topics.setdefault(topic, []).append(number)
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=them) for name, them in topics.items()],
        )

    def _send_end(self, connection: Connection, *, committed: bool = False) -> asyncio.Future[EndTxnResponse]:
        producer_id, epoch = self._producer
        request = EndTxnRequest(
            transactional_id=self._id, producer_id=producer_id, producer_epoch=epoch, committed=committed
        )
        self._opened = None
        self._unanswered_ends += 1
        return connection.send(END_TXN, request, timeout_s=self._timeout_s)

    async def _code_of_end(self, sent: asyncio.Future[EndTxnResponse]) -> int:
        """Wait for the response to EndTxn; without a definite one it may still be executed."""
        code = (await sent).error_code
        if code in _CERTAIN_ENDS:
            self._unanswered_ends -= 1
        return code

    async def _until_done(self, what: str, ask: Callable[[Connection], Awaitable[int]], patience: Patience) -> None:
        """Repeat a request until its response is NONE, after errors that may end by themselves, within the bound."""
        patience.begin_anew()
        while True:
            try:
                if self._node is None:
                    self._node = await self._coordinator()
                code = await ask(await self._cluster.connection(self._node, SIDE))
            except NoCoordinator as error:
                code = error.code
            except VersionUnknown as error:
                raise NoFence(str(error)) from error
            except WireError:
                if self._node is not None:
                    self._node_before, self._node = self._node, None
                raise
            if code == ErrorCode.NONE:
                return
            why = WAITS if code == ErrorCode.CONCURRENT_TRANSACTIONS else ""
            told = f"{what} cannot be had for transactional id {self._id}: {error_name(code)}{why}"
            if code in _REFUSED:
                raise NoFence(f"transactional id {self._id} is refused: {error_name(code)}")
            if code in _OVERTAKEN:
                raise ProducerFenced(f"transactional id {self._id} is another's now: {error_name(code)}")
            if code not in _AGAIN:
                raise WireError(told)
            if code in _FIND_AGAIN:
                self._node = self._node_before = None
            await patience.wait(told, is_busy=code == ErrorCode.CONCURRENT_TRANSACTIONS)

    async def _coordinator(self) -> int:
        """Return the former coordinator if it is connected again: it says itself if it is not any more."""
        before = self._node_before
        if before is not None and self._cluster.is_connected(before, SIDE):
            return before
        return await self._cluster.coordinator_node(self._id, TRANSACTION)


class OutOfPatience(WireError):
    """A state that may end by itself has not, within the bound."""


class Patience:
    """The time left for one call, and the wait before the next attempt."""

    def __init__(self, bound_s: float, busy_s: float | None = None) -> None:
        """`busy_s` is for the markers of the transaction before, if it is less than the whole."""
        self._end = asyncio.get_running_loop().time() + bound_s
        self._busy_s = bound_s if busy_s is None else busy_s
        self._busy_end: float | None = None
        self._next_s = BACKOFF_S[0]

    def begin_anew(self) -> None:
        """Reset: the next wait is the shortest."""
        self._next_s = BACKOFF_S[0]

    async def wait(self, told: str, *, is_busy: bool = False) -> None:
        """Wait, longer each time; raise OutOfPatience, with the text `told`, if no time is left.

        `is_busy` says that the coordinator waits for markers.
        """
        next_at, end = asyncio.get_running_loop().time() + self._next_s, self._end
        if is_busy:
            self._busy_end = self._busy_end or next_at + self._busy_s
            end = min(end, self._busy_end)
        if next_at > end:
            raise OutOfPatience(told)
        await asyncio.sleep(self._next_s)
        self._next_s = min(2 * self._next_s, BACKOFF_S[1])


def _slices(partitions: Collection[Partition]) -> Iterator[list[Partition]]:
    left = iter(sorted(partitions))
    while some := list(islice(left, PARTITIONS_MAX)):
        yield some


def _codes(answer: AddPartitionsToTxnResponse) -> dict[Partition, int]:
    return {
        (topic.name, one.partition_index): one.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    }
