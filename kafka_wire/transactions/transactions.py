"""Begin, end and describe transactions with data under the transactional id of a fence.

| call | request, to the coordinator of the id | then |
|---|---|---|
| `add` | AddPartitionsToTxn | their leaders accept transactional batches of this epoch; the first call begins it |
| `commit`, `abort` | EndTxn | answered once the coordinator has it on disk, before the markers are written |
| `describe` | DescribeTransactions | the state of the id's last transaction, of any producer |

By Apache Kafka 3.9.2 and 4.3.1, in the requested versions (up to EndTxn 4, no epoch is raised by an end):
- The producer's epoch and sequences continue after a commit.
- A repeated EndTxn is answered with NONE once the markers are written, CONCURRENT_TRANSACTIONS before. So is the start
  of the next transaction. A commit without a response can be repeated. But the first one may arrive later than the
  second, and would then end a transaction begun meanwhile under the same epoch. So after a repeated commit, begin
  nothing before the next epoch. (From EndTxn 5 on each commit raises the epoch, KIP-890.)
- A coordinator aborts a transaction that is older than the timeout of its InitProducerId. It raises the epoch by one
  then, and answers requests under the old one as if another client had fenced it: INVALID_PRODUCER_EPOCH or
  PRODUCER_FENCED. DescribeTransactions distinguishes the two (mirror/session/transaction.py).
- The coordinator gives that raised epoch to no one; the next InitProducerId gets the one after it. So no other mirror
  has the id, if this client's transaction was certainly open (`is_held`). For a moment Kafka 3.9.2 describes it as
  Ongoing.
- An abort needs no request: the next epoch (`begin` of the fence) aborts an open transaction. But that raises the
  epoch, as a second mirror does: `abort` ends it under its own epoch.
- A partition without a leader, or with too few in-sync replicas, gets no marker. The outcome is decided and stands
  (PrepareCommit, PrepareAbort), under the epoch that it had. The other partitions have their markers, and
  DescribeTransactions lists those that have none. Until all have one the id gives no epoch and accepts nothing else
  (CONCURRENT_TRANSACTIONS). Another id carries on (tests/fault/test_unwritten_markers.py).

Does not contain: the choice of records, the time of an end, its meaning for the sender.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from edge_broker.errors import ErrorCode
from edge_broker.protocol.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from kafka_wire.apis import DESCRIBE_TRANSACTIONS
from kafka_wire.cluster import Partition
from kafka_wire.connection.connection import Connection
from kafka_wire.connection.errors import VersionUnknown, WireError
from kafka_wire.transactions.fencing import Fencing, NoFence, Patience

NEVER_COMMITTED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""Responses to a commit by which its transaction has ended already; `describe` tells how."""

PREPARED = frozenset({"PrepareCommit", "PrepareAbort"})


class TransactionDescription(NamedTuple):
    """The last transaction of the id: its state by Kafka's name, its producer, the partitions without a marker yet."""

    state: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[Partition] = frozenset()

    @property
    def is_decided(self) -> bool:
        """Whether its outcome is decided, and markers are being written."""
        return self.state in PREPARED


class Transactions(Fencing):
    """A fence whose epoch then has transactions; every coroutine raises as `Fencing`'s do.

    A fence and a transaction must not run concurrently: a fence ends an open transaction.
    """

    @property
    def producer(self) -> tuple[int, int]:
        """Producer id and epoch; -1 before the first fence."""
        return self._producer

    def is_held(self, told: TransactionDescription) -> bool:
        """Return whether no other client was given an epoch of the id since this one was.

        The next epoch is no client's if it aborts a transaction that was certainly open: by the timeout, or for an
        InitProducerId without a response yet. The client that is given an epoch then has the one after it.
        """
        if told[1:3] == self._producer:
            return True
        return told.state in ("PrepareAbort", "CompleteAbort") and self._is_raised(told)

    def _is_raised(self, told: TransactionDescription) -> bool:
        """Return whether the coordinator has raised the epoch itself, to abort a transaction certainly open."""
        is_next = told[1:3] == (self._producer[0], self._producer[1] + 1)
        return is_next and self._opened == self._producer and not self._unanswered_ends

    async def add(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Begin a transaction, or continue it, with more partitions; return the codes of those that are refused."""
        async with self._lock:
            refused = await self._add(sorted(partitions), Patience(self._bound_s, self.markers_s))
            if len(refused) < len(partitions):
                self._opened = self._producer
            return refused

    async def commit(self) -> int:
        """Commit the open transaction, or repeat a commit without a response; return 0, or one of NEVER_COMMITTED.

        After ConnectionLost, or while the coordinator is away, the outcome is unknown: repeat it.
        """
        return await self._end_transaction(committed=True)

    async def abort(self) -> int:
        """Abort the open transaction under its own epoch; return and raise as `commit`."""
        return await self._end_transaction(committed=False)

    async def _end_transaction(self, *, committed: bool) -> int:
        refused = 0

        async def ask(connection: Connection) -> int:
            nonlocal refused
            code = await self._code_of_end(self._send_end(connection, committed=committed))
            refused = code if code in NEVER_COMMITTED else 0
            return 0 if refused else code

        async with self._lock:
            opened = self._opened
            await self._until_done("a commit" if committed else "an abort", ask, Patience(self._bound_s))
            if refused in _FENCED:  # it has ended nothing
                self._opened = opened
        return refused

    async def describe(self) -> TransactionDescription | None:
        """Return the state of the last transaction; None if it may not be described, or is unknown."""
        told: TransactionState | None = None

        async def ask(connection: Connection) -> int:
            nonlocal told
            request = DescribeTransactionsRequest(transactional_ids=[self._id])
            answer = await connection.ask(DESCRIBE_TRANSACTIONS, request, timeout_s=self._timeout_s)
            if len(answer.transaction_states) != 1:
                raise WireError(f"{connection.place} tells of {len(answer.transaction_states)} transactions")
            (told,) = answer.transaction_states
            return 0 if told.error_code in _NOT_TOLD else told.error_code

        async with self._lock:
            try:
                await self._until_done("how a transaction stands", ask, Patience(self._bound_s))
            except NoFence as error:
                if isinstance(error.__cause__, VersionUnknown):
                    return None
                raise
        assert told is not None
        if told.error_code:
            return None
        left = frozenset((topic.topic, number) for topic in told.topics for number in topic.partitions)
        found = TransactionDescription(told.transaction_state, told.producer_id, told.producer_epoch, left)
        aborted = found._replace(state="PrepareAbort")
        return aborted if found.state == "Ongoing" and self._is_raised(found) else found


_FENCED = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}
_NOT_TOLD = {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND}
