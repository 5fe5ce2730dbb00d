"""Begin, end and describe transactions with data under the transactional id of a fence.

| call | request, to the coordinator of the id | then |
|---|---|---|
| `add` | AddPartitionsToTxn | their leaders take transactional batches of this epoch; the first one begins it |
| `commit`, `abort` | EndTxn | answered once the coordinator has it on disk, before the markers are written |
| `describe` | DescribeTransactions | the state of the id's last transaction, of any producer |

By Apache Kafka 3.9.2 and 4.3.1, in the versions that are asked here (up to EndTxn 4, no epoch is raised by an end):
- The producer's epoch and sequences continue after a commit.
- The same end told again is answered with NONE once the markers are written, CONCURRENT_TRANSACTIONS before; so is
  what begins the next transaction. A commit that got no answer can be told again. But the first one may come later than
  the second, and would then end what was begun meanwhile under the same epoch: behind a commit that was told twice
  nothing is to be begun before the next epoch. (From EndTxn 5 on each commit raises it, KIP-890.)
- A coordinator aborts what is older than the timeout that its InitProducerId asked for. It raises the epoch by one
  then, and answers whatever comes under the old one as it answers one whom another has fenced: with
  INVALID_PRODUCER_EPOCH or PRODUCER_FENCED. DescribeTransactions tells them apart (mirror/session/transaction.py).
- The coordinator gives that raised epoch to no one; the next InitProducerId gets the one after it. So no other mirror
  has the id, if a transaction of ours was surely open (`is_held`). For a moment Kafka 3.9.2 describes that as Ongoing.
- An abort needs no request: the next epoch (`begin` of the fence) aborts what is open. But that raises the epoch, as a
  second mirror does: `abort` ends it under its own epoch.
- A partition without a leader, or with too few in-sync replicas, gets no marker. The outcome is decided and stands
  (PrepareCommit, PrepareAbort), under the epoch that it had. The other partitions have their markers, and
  DescribeTransactions lists those that have none. Until all have one the id gives no epoch and takes nothing else
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
"""As an answer to a commit: what was under this epoch is ended already, and how is to be asked."""

PREPARED = frozenset({"PrepareCommit", "PrepareAbort"})


class TransactionDescription(NamedTuple):
    """How the last transaction of the id stands: its state by Kafka's name, whose it is, which have no marker yet."""

    state: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[Partition] = frozenset()

    @property
    def is_decided(self) -> bool:
        """Whether its outcome stands, and markers are being written."""
        return self.state in PREPARED


class Transactions(Fencing):
    """A fence whose epoch then carries transactions; every coroutine raises as `Fencing`'s do.

    Of the fence and the transactions one may be under way at a time: a fence ends what is open.
    """

    @property
    def producer(self) -> tuple[int, int]:
        """Id and epoch; -1 before the first fence."""
        return self._producer

    def is_held(self, told: TransactionDescription) -> bool:
        """Return whether no one was given an epoch of the id since we were.

        The next epoch is no one's where it aborts a transaction that was surely open: by the timeout, or for an
        InitProducerId that is not answered yet. Whoever is given one then has the epoch after it.
        """
        if told[1:3] == self._producer:
            return True
        return told.state in ("PrepareAbort", "CompleteAbort") and self._is_raised(told)

    def _is_raised(self, told: TransactionDescription) -> bool:
        """Return whether the coordinator has raised the epoch itself, to abort what was surely open."""
        is_next = told[1:3] == (self._producer[0], self._producer[1] + 1)
        return is_next and self._opened == self._producer and not self._unanswered_ends

    async def add(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Begin a transaction, or go on with it, for more partitions; return the codes of those that are refused."""
        async with self._lock:
            refused = await self._add(sorted(partitions), Patience(self._bound_s, self.markers_s))
            if len(refused) < len(partitions):
                self._opened = self._producer
            return refused

    async def commit(self) -> int:
        """Commit what is open, or was committed without an answer; return 0, or one of NEVER_COMMITTED.

        ConnectionLost, or the coordinator is away: nothing is known, ask again.
        """
        return await self._end_transaction(committed=True)

    async def abort(self) -> int:
        """Abort what is open under the epoch that it has; return and raise as `commit`."""
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
        """Return how the last transaction stands; None where it may not be asked, or is not known there."""
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
