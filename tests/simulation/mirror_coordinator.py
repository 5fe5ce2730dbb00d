"""The target's coordinators of a mirror's transactional ids, and its state topic, by Apache Kafka's rules.

| state | request | then |
|---|---|---|
| Empty, CompleteCommit, CompleteAbort | InitProducerId | the epoch is one higher, Empty |
| the same | AddPartitionsToTxn | Ongoing |
| Ongoing | InitProducerId | the epoch is one higher, PrepareAbort; answered with CONCURRENT_TRANSACTIONS |
| Ongoing | EndTxn | PrepareCommit or PrepareAbort; answered before the markers are written |
| Ongoing, older than its timeout | | the epoch is one higher, PrepareAbort |
| PrepareCommit, PrepareAbort | what begins anew, the same end | CONCURRENT_TRANSACTIONS, until markers are written |
| CompleteCommit, CompleteAbort | the same end | NONE |

What comes under another epoch is refused, as is a transactional batch for a partition that is not in an open
transaction (KIP-890, of versions in which the epoch stays the same from one transaction to the next). What a connection
still had under way when it ended may arrive later, behind what its life, or another, has asked over the next one.
Source: TransactionCoordinator, TransactionMetadata, ReplicaManager of Apache Kafka 3.9 and 4.3.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_broker.errors import ErrorCode
from edge_broker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from edge_broker.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from edge_broker.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from edge_broker.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from edge_broker.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from edge_broker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from edge_broker.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from edge_broker.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from edge_broker.protocol.record_batch import CONTROL, build_batch
from kafka_wire.cluster import Leader, Partition, Topic
from kafka_wire.connection.errors import ConnectionLost
from kafka_wire.records.batches import stamp
from tests.simulation.mirror_source import of_transaction

if TYPE_CHECKING:
    from tests.simulation.mirror_target import Entry
    from tests.simulation.mirror_world import Life, World

FENCED, SPARED = 7, 8  # the producer ids of the transactional id, and of the first spare one
STATE = "__edge-mirror-lab-state"
NODE = 1
BATCHES_MAX = 5  # of an answer
MARKED_AGAIN_S = 0.5
STALL_S_MAX = 5.0
PREPARED = ("PrepareCommit", "PrepareAbort")
ELSEWHERE = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
OF_A_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT)


class Coordinator:
    """Of the one id; `markers_s` is how long a marker takes at most, `tells` whether DescribeTransactions may be asked.

    `chance` and `stalls` are its own: what they draw changes nothing of what else a seed draws.
    """

    def __init__(
        self,
        world: World,
        chance: Random,
        stalls: Random,
        *,
        markers_s: float,
        tells: bool,
        producer_id: int = FENCED,
    ) -> None:
        self.producer_id = producer_id
        self._world, self._chance, self._stalls = world, chance, stalls
        self._markers_s, self._tells = markers_s, tells
        self.state = ""
        self.epoch = -1
        self.partitions: set[Partition] = set()
        self.unmarked: set[Partition] = set()
        self.ended: Callable[[str, Collection[Partition]], None] = lambda _state, _partitions: None
        self.outcomes: dict[str, int] = {}
        self._timeout_s = 0.0
        self._number = 0  # of the transaction

    def _code(self) -> int:
        """An error that comes before anything is done."""
        return self._one_of(ELSEWHERE)

    def of_a_leader(self) -> int:
        """What the leader of the state topic answers beside what it judges."""
        return self._one_of(OF_A_LEADER)

    def stall_s(self) -> float:
        """How long an answer stands still on its way: so transactions time out."""
        stands = self._world.faults() and self._stalls.random() < self._world.fault_rate / 2
        return self._stalls.uniform(0, STALL_S_MAX) if stands else 0.0

    def _one_of(self, codes: Sequence[ErrorCode]) -> int:
        world = self._world
        if not world.faults() or self._chance.random() > world.fault_rate / 3:
            return 0
        return int(self._chance.choice(codes))

    def init(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        """Give the next epoch, once nothing is open."""
        if code := self._code():
            return InitProducerIdResponse(error_code=code)
        if self.state == "Ongoing":
            self.epoch += 1
            self._end("PrepareAbort", "fenced")
        if self.state in PREPARED:
            return InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
        self.epoch += 1
        self.state, self._timeout_s = "Empty", request.transaction_timeout_ms / 1000
        return InitProducerIdResponse(error_code=0, producer_id=self.producer_id, producer_epoch=self.epoch)

    def add(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        """Take all of these into the transaction, or none."""
        asked = [(topic.name, number) for topic in request.v3_and_below_topics for number in topic.partitions]
        missing = {at for at in asked if self._world.log_at(at) is None}
        codes = dict.fromkeys(asked, int(ErrorCode.OPERATION_NOT_ATTEMPTED))
        codes |= dict.fromkeys(missing, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if not missing:
            codes = dict.fromkeys(asked, int(self._added(request, asked)))
        topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
        for (topic, number), code in codes.items():
            one = AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
            topics.setdefault(topic, []).append(one)
        told = [AddPartitionsToTxnTopicResult(name=name, results_by_partition=them) for name, them in topics.items()]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=told)

    def _added(self, request: AddPartitionsToTxnRequest, asked: Sequence[Partition]) -> int:
        if code := self._code():
            return code
        if request.v3_and_below_producer_epoch != self.epoch:
            return ErrorCode.PRODUCER_FENCED
        if self.state in PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if self.state != "Ongoing":
            self._number += 1
            self.state = "Ongoing"
            self.partitions, self.unmarked = set(), set()
            wait_s = self._timeout_s + self._chance.uniform(0, 0.5)
            self._world.loop.call_later(wait_s, self._time_out, self._number)
        self._world.add(asked)
        self.partitions.update(asked)
        self.unmarked.update(asked)
        return ErrorCode.NONE

    def _time_out(self, number: int) -> None:
        if self.state == "Ongoing" and self._number == number:
            self._world.note("a transaction times out")
            self.epoch += 1
            self._end("PrepareAbort", "timed_out")

    def end(self, request: EndTxnRequest) -> EndTxnResponse:
        """Commit or abort."""
        return EndTxnResponse(error_code=int(self._end_code(request)))

    def _end_code(self, request: EndTxnRequest) -> int:
        if code := self._code():
            return code
        if request.producer_epoch != self.epoch:
            return ErrorCode.PRODUCER_FENCED
        end = "Commit" if request.committed else "Abort"
        if self.state == "Ongoing":
            self._end(f"Prepare{end}", "committed" if request.committed else "aborted")
            return ErrorCode.NONE
        if self.state == f"Complete{end}":
            return ErrorCode.NONE
        return ErrorCode.CONCURRENT_TRANSACTIONS if self.state == f"Prepare{end}" else ErrorCode.INVALID_TXN_STATE

    def _end(self, state: str, outcome: str) -> None:
        self.state = state
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        for at in sorted(self.partitions):
            self._world.loop.call_later(self._chance.uniform(0, self._markers_s), self._mark, at)

    def _mark(self, at: Partition) -> None:
        if at in self._world.short:
            self._world.loop.call_later(MARKED_AGAIN_S, self._mark, at)
            return
        log = self._world.log_at(at)
        if log is not None:
            commits = self.state == "PrepareCommit"
            log.mark(self.epoch, self._world.now_ms(), commits=commits, producer_id=self.producer_id)
        self.unmarked.discard(at)
        if not self.unmarked:
            self.state = self.state.replace("Prepare", "Complete")
            self.ended(self.state, self.partitions)

    def described(self, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        """Tell how it stands."""
        code = self._code()
        if not code and not self._tells:
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if not code and not self.state:
            code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        one = TransactionState(
            error_code=int(code),
            transactional_id=request.transactional_ids[0],
            transaction_state=self.state,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TopicData(topic=topic, partitions=[number]) for topic, number in sorted(self.unmarked)],
        )
        return DescribeTransactionsResponse(transaction_states=[one])

    def verified(self, at: Partition, epoch: int) -> int:
        """Whether a batch may begin the transaction in a partition, as its leader asks."""
        if epoch != self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.state in PREPARED:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE if self.state == "Ongoing" and at in self.partitions else ErrorCode.INVALID_TXN_STATE

    def is_decided(self, at: Partition) -> bool:
        """Whether what is open in a partition will be committed whatever comes."""
        return self.state == "PrepareCommit" and at in self.partitions


class Side:
    """What the broker of the coordinator and of the state topic answers."""

    def __init__(self, world: World) -> None:
        self._world = world

    def answer(self, request: Any) -> Any:
        """Serve a request."""
        coordinator = self._world.coordinator_of(_id_of(request))
        served: Mapping[type, Callable[[Any], Any]] = {
            InitProducerIdRequest: coordinator.init,
            AddPartitionsToTxnRequest: coordinator.add,
            EndTxnRequest: coordinator.end,
            DescribeTransactionsRequest: coordinator.described,
            CreateTopicsRequest: self._create,
            ListOffsetsRequest: self._offsets,
            FetchRequest: self._fetch,
            ProduceRequest: self._produce,
        }
        return served[type(request)](request)

    def _create(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        is_there = self._world.log_at(self._world.state_at) is not None
        if not is_there:
            self._world.make_state()
        code = ErrorCode.TOPIC_ALREADY_EXISTS if is_there else ErrorCode.NONE
        return CreateTopicsResponse(topics=[CreatableTopicResult(name=self._world.state_at[0], error_code=int(code))])

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        one = ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=0)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=self._world.state_at[0], partitions=[one])])

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        log = self._world.log_at(self._world.state_at)
        if log is None:
            one = PartitionData(partition_index=0, error_code=int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            offset = request.topics[0].partitions[0].fetch_offset
            there = [entry for entry in log.entries if entry.end > offset and entry.base < log.stable_end]
            data = b"".join(_bytes_of(entry) for entry in there[:BATCHES_MAX])
            one = PartitionData(
                partition_index=0,
                error_code=0,
                high_watermark=log.end,
                last_stable_offset=log.stable_end,
                aborted_transactions=[
                    AbortedTransaction(producer_id=producer_id, first_offset=first)
                    for producer_id, first, marker in log.aborted_transactions
                    if marker >= offset
                ],
                records=memoryview(data),
            )
        return FetchResponse(responses=[FetchableTopicResponse(topic=self._world.state_at[0], partitions=[one])])

    def _produce(self, request: ProduceRequest) -> ProduceResponse:
        world, (topic,) = self._world, request.topic_data
        coordinator, at = world.coordinator, world.state_at
        assert coordinator is not None
        code, base = coordinator.of_a_leader(), -1
        if code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
            refused, base = world.append(at, bytes(topic.partition_data[0].records or b""))
            code = refused or code
        at_ms = -1 if code else world.now_ms()
        one = PartitionProduceResponse(
            index=0, error_code=int(code), base_offset=-1 if code else base, log_append_time_ms=at_ms
        )
        return ProduceResponse(responses=[TopicProduceResponse(name=at[0], partition_responses=[one])])


def _id_of(request: Any) -> str:
    if isinstance(request, DescribeTransactionsRequest):
        return request.transactional_ids[0]
    if isinstance(request, AddPartitionsToTxnRequest):
        return request.v3_and_below_transactional_id
    return request.transactional_id or "" if isinstance(request, InitProducerIdRequest | EndTxnRequest) else ""


def _bytes_of(entry: Entry) -> bytes:
    if entry.data:
        return entry.data
    key = b"\0\0\0\1" if entry.commits else b"\0\0\0\0"
    batch = build_batch([(key, b"")], timestamp_ms=entry.at_ms, base_offset=entry.base)
    made = bytearray(of_transaction(batch, CONTROL))
    stamp(made, entry.producer_id, entry.epoch, -1, transactional=True)
    return bytes(made)


class _Asked(NamedTuple):
    request: Any
    future: asyncio.Future[Any]
    timeout_s: float


class SideConnection:
    """Serves what is asked one after another, until it ends."""

    place = "t:2"

    def __init__(self, world: World, life: Life) -> None:
        self._world, self.life = world, life
        self._side = Side(world)
        self.is_closed = False
        self._waiting: deque[_Asked] = deque()
        self._unanswered: dict[asyncio.Future[Any], None] = {}
        self._is_serving = False
        self._answered_at = 0.0
        world.connections[self] = None

    async def ask(self, asked: Any, request: Any, *, timeout_s: float) -> Any:
        return await self.send(asked, request, timeout_s=timeout_s)

    def send(self, asked: Any, request: Any, *, timeout_s: float) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._world.step(self.life)
        if self.is_closed or self.life.dead:
            future.set_exception(ConnectionLost("closed"))
            return future
        self._waiting.append(_Asked(request, future, timeout_s))
        self._unanswered[future] = None
        if not self._is_serving:
            self._is_serving = True
            self._world.loop.call_later(self._world.delay_s(), self._serve)
        return future

    def _fails(self, request: Any) -> bool:
        """Whether the connection ends now: more often at a commit, where most depends on what has become of it."""
        is_commit = isinstance(request, EndTxnRequest) and request.committed
        rate = self._world.fault_rate * (2 if is_commit else 0.5)
        return self._world.faults() and self._world.chance.random() < rate

    def _serve(self) -> None:
        if self.is_closed:
            return
        if self._fails(self._waiting[0].request):
            self.cut()
            return
        asked = self._waiting.popleft()
        answer = self._side.answer(asked.request)
        if self._fails(asked.request):
            self.cut()
            return
        coordinator, loop = self._world.coordinator, self._world.loop
        assert coordinator is not None
        stall_s = coordinator.stall_s()
        if stall_s > asked.timeout_s:
            loop.call_later(asked.timeout_s, self.cut)
            return
        self._answered_at = max(self._answered_at + 1e-6, loop.time() + self._world.delay_s() + stall_s)
        loop.call_at(self._answered_at, self._answer, asked.future, answer)
        self._is_serving = bool(self._waiting)
        if self._waiting:
            self._world.loop.call_later(self._world.delay_s() / 4, self._serve)

    def _answer(self, future: asyncio.Future[Any], answer: Any) -> None:
        if not self.is_closed and not future.done():
            self._unanswered.pop(future, None)
            future.set_result(answer)

    def cut(self) -> None:
        """End it; some of what is under way may arrive all the same, now or later."""
        if self.is_closed:
            return
        self.is_closed, world = True, self._world
        world.connections.pop(self, None)
        at_s, number = world.loop.time(), world.state_number
        for asked in list(self._waiting)[: world.chance.randint(0, len(self._waiting))]:
            at_s += world.chance.uniform(0, world.late_s)
            world.late_due += 1
            world.loop.call_at(at_s, self._late, asked.request, number)
        for future in self._unanswered:
            if not future.done():
                future.set_exception(ConnectionLost("the connection was lost"))
                future.exception()  # who asked may be gone

    def _late(self, request: Any, state_number: int) -> None:
        self._world.late_due -= 1
        if state_number == self._world.state_number:
            self._side.answer(request)


class SideCluster:
    """What one life has of the target, beside Produce: the connection to the one broker for questions."""

    controller = NODE

    def __init__(self, world: World, life: Life) -> None:
        self._world, self._life = world, life
        self.nodes = {NODE: ("t", 2)}
        self._open: SideConnection | None = None

    async def topics(self, names: Sequence[str]) -> dict[str, Topic]:
        world = self._world
        async with world.call(self._life, ConnectionLost):
            is_there = world.log_at(world.state_at) is not None
            found = Topic(f"s{world.state_number}", 0, {0: Leader(NODE, 0)})
        return {world.state_at[0]: found} if is_there else {}

    def is_connected(self, node: int, number: int = 0) -> bool:
        return self._open is not None and not self._open.is_closed

    async def coordinator_node(self, key: str, kind: int) -> int:
        async with self._world.call(self._life, ConnectionLost):
            return NODE

    async def any_connection(self) -> SideConnection:
        return await self.connection(NODE)

    async def connection(self, node: int, number: int = 0) -> SideConnection:
        await self._world.reaches(self._life)
        if self._world.faults() and self._world.chance.random() < self._world.fault_rate / 2:
            raise ConnectionLost("nobody answers")
        if self._open is None or self._open.is_closed:
            self._open = SideConnection(self._world, self._life)
        return self._open
