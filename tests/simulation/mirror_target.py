"""A target in memory for the mirror's simulation: Kafka's rules for producers, and a network that loses and is late.

| what is sent and its connection ends | arrives |
|---|---|
| where the target fences | not at all, at once, or some time later: behind a look, behind a new life's first batch |
| where it has no fences | not at all, or at once |

What is late for a partition that has lost its end, has forgotten a producer or was made anew meanwhile is lost: nobody
promises anything of that. Must never come in: what is done when (mirror_runs.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_broker.errors import ErrorCode
from edge_broker.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from edge_broker.protocol.record_batch import TRANSACTIONAL, BatchHeader, build_batch, records_of
from kafka_wire.cluster import Partition, Topic
from kafka_wire.connection.errors import ConnectionLost
from kafka_wire.partitions import TopicPartition
from kafka_wire.records.batches import SEQUENCES
from kafka_wire.transactions.fencing import Fence, Fencing, Meanwhile, NoFence, ProducerFenced
from kafka_wire.transactions.last_batch_lookup import LookupRequest, LookupResult, Own
from kafka_wire.transactions.transactions import Transactions
from mirror.client.append_time_clock import TargetClock, boot_s
from mirror.client.log_queries import Content, Contents
from mirror.client.retry_wait import Pauses
from mirror.client.state_topic import StateTopic
from mirror.client.target_client import Target
from mirror.errors import TargetError
from mirror.partition.state_records import Reading, Record
from mirror.partition.stream import Producer
from mirror.session.transactional_ids import spare_ids
from tests.simulation.mirror_coordinator import FENCED, MARKED_AGAIN_S, SPARED, STATE, SideCluster
from tests.simulation.mirror_source import content, serial_of

if TYPE_CHECKING:
    from tests.simulation.mirror_world import Life, World

REMEMBERED = 5
IN_SYNC_MIN = 2
REQUEST_S = 3.0
EXPIRATION_MS = 86_400_000  # producer.id.expiration.ms
APPENDED_THOUGH = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
REFUSALS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    *APPENDED_THOUGH,
)


class Entry(NamedTuple):
    """A batch, or without data a marker, of a target's log."""

    base: int
    end: int
    producer_id: int
    epoch: int
    first: int
    last: int
    at_ms: int
    data: bytes = b""
    in_transaction: bool = False
    commits: bool = False


@dataclass
class Remembered:
    """What a leader remembers of a producer."""

    epoch: int
    next: int = 0
    at_ms: int = 0
    recent: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))


class TargetLog:
    """One partition; `seen` are the serials that ever were in it, or in one before of its name.

    What readers of committed records find are its `records`: `open` are the batches of a transaction that has not ended
    yet, `aborted` the first offsets of batches that never count, `aborted_transactions` of each
    the producer, its first offset and its marker's.
    """

    def __init__(self, seen: set[int]) -> None:
        self.seen = seen
        self.node = 1
        self.node_epoch = 0
        self.generation = 0
        self.begin()

    def begin(self) -> None:
        """Be empty, as of a new topic."""
        self.entries: list[Entry] = []
        self.producers: dict[int, Remembered] = {}
        self.open: list[Entry] = []
        self.aborted: set[int] = set()
        self.aborted_transactions: list[tuple[int, int, int]] = []
        self.generation += 1

    @property
    def stable_end(self) -> int:
        """The last stable offset."""
        return self.open[0].base if self.open else self.end

    @property
    def end(self) -> int:
        """Behind the last offset."""
        return self.entries[-1].end if self.entries else 0

    @property
    def serials(self) -> list[tuple[int, int]]:
        """Of all records of the mirror's: offset and serial."""
        return [(one.offset, serial_of(one.value or b"")) for one in self.records() if one.value[:1] != b"f"]

    def records(self) -> list[Any]:
        """All that readers of committed records find, in order."""
        end = self.stable_end
        return self.of([entry for entry in self.entries if entry.base < end])

    def of(self, entries: Sequence[Entry]) -> list[Any]:
        """The records of some batches, unless they were aborted."""
        return [one for entry in entries if self.counts(entry) for one in records_of(entry.data)]

    def counts(self, entry: Entry) -> bool:
        """Whether it is a batch that was not aborted."""
        return bool(entry.data) and entry.base not in self.aborted

    def mark(self, epoch: int, now_ms: int, *, commits: bool = False, producer_id: int = FENCED) -> None:
        """Take a marker: of a fence, or one that ends a transaction."""
        known = self.producers.get(producer_id)
        if known is not None and epoch < known.epoch:
            return
        self._put(Entry(self.end, self.end + 1, producer_id, epoch, -1, -1, now_ms, commits=commits))

    def _put(self, entry: Entry) -> None:
        self.entries.append(entry)
        if entry.producer_id >= 0:
            self._remember(entry)
        if entry.in_transaction:
            self.open.append(entry)
        elif entry.data:
            self.take([entry])
        elif ended := [one for one in self.open if one.producer_id == entry.producer_id]:
            self.open = [one for one in self.open if one.producer_id != entry.producer_id]
            if entry.commits:
                self.take(ended)
            else:
                self.aborted.update(one.base for one in ended)
                self.aborted_transactions.append((entry.producer_id, ended[0].base, entry.base))

    def take(self, entries: Sequence[Entry]) -> None:
        """Note what counts from now on."""
        self.seen.update(serial_of(one.value or b"") for one in self.of(entries))

    def write_foreign(self, number: int, now_ms: int) -> None:
        """Take a record of somebody else."""
        data = build_batch([(b"other", b"foreign%d" % number)], timestamp_ms=now_ms, base_offset=self.end)
        self._put(Entry(self.end, self.end + 1, -1, -1, -1, -1, now_ms, data))

    def append(self, data: bytes) -> tuple[int, int]:
        """Take a batch, by Kafka's ProducerAppendInfo and ProducerStateManager; the code and the base offset."""
        header = BatchHeader(data)
        first, last = header.base_sequence, (header.base_sequence + header.last_offset_delta) % SEQUENCES
        known = self.producers.get(header.producer_id)
        if known is not None and known.epoch == header.producer_epoch:
            for one in known.recent:
                if one[:2] == (first, last):
                    return 0, one[2]
        if known is not None:
            if header.producer_epoch < known.epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            expected = known.next if header.producer_epoch == known.epoch else 0
            if first != expected:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        in_transaction = bool(header.attributes & TRANSACTIONAL)
        if not in_transaction and header.producer_id in {one.producer_id for one in self.open}:
            return ErrorCode.INVALID_TXN_STATE, -1
        stored = bytearray(data)
        base = self.end
        stored[:8] = base.to_bytes(8, "big")
        end = base + header.last_offset_delta + 1
        at_ms, who = header.max_timestamp, (header.producer_id, header.producer_epoch)
        self._put(Entry(base, end, *who, first, last, at_ms, bytes(stored), in_transaction))
        return 0, base

    def _remember(self, entry: Entry) -> None:
        known = self.producers.get(entry.producer_id)
        if known is None or known.epoch != entry.epoch:
            known = self.producers[entry.producer_id] = Remembered(entry.epoch)
        known.at_ms = entry.at_ms
        if entry.data:
            known.next = (entry.last + 1) % SEQUENCES
            known.recent.append((entry.first, entry.last, entry.base))

    def lose_tail(self, entries: int) -> None:
        """Lose the last batches and markers, and what is remembered of them."""
        kept = self.entries[: max(0, len(self.entries) - entries)]
        self.begin()
        for entry in kept:
            self._put(entry)

    def forget(self, now_ms: int) -> bool:
        """Forget producers whose last batch is old; whether there was one."""
        at_work = {one.producer_id for one in self.open}
        old = [
            number
            for number, one in self.producers.items()
            if one.at_ms < now_ms - EXPIRATION_MS and number not in at_work
        ]
        for number in old:
            del self.producers[number]
        self.generation += bool(old)
        return bool(old)

    def look(self, wanted: LookupRequest) -> LookupResult:
        """As a client that reads backwards from the end."""
        end, marker = min(wanted.below, self.end), -1
        floor = min(wanted.floor, end)
        is_taken = False
        for entry in reversed(self.entries):
            if entry.end <= floor:
                break
            is_taken = entry.base <= floor and (not entry.data or entry.producer_id not in wanted.producer_ids)
            if entry.base >= end:
                continue
            if entry.producer_id in wanted.producer_ids and entry.data:
                own = Own(entry.producer_id, entry.epoch, entry.first, entry.last, entry.base, entry.end - 1)
                return LookupResult(0, end, entry.base, own, marker, True)
            if not entry.data and wanted.marked_by in (-1, entry.producer_id):
                marker = max(marker, entry.epoch)
        return LookupResult(0, end, floor, None, marker, True, is_taken)


class StateLog(TargetLog):
    """The state topic's partition; what is committed goes into the world's `state`. Its time is the target's clock."""

    def __init__(self, world: World) -> None:
        self._world = world
        super().__init__(set())

    def _put(self, entry: Entry) -> None:
        super()._put(entry._replace(at_ms=self._world.now_ms()))

    def take(self, entries: Sequence[Entry]) -> None:
        """Have what counts from now on be the state."""
        self._world.keep_state((one.key or b"", one.value) for one in self.of(entries))


class TargetEnd(Target):
    """What one life of the mirror has of the target."""

    cluster: Any = None
    cluster_id = "target-cluster"

    def __init__(self, world: World, life: Life) -> None:
        self._world, self._life = world, life
        self._kind, self._known, self._in_sync_min = TargetError, {}, {}
        self.source_cluster_id = lambda: "source-cluster"
        self._open: dict[tuple[int, int], Connection] = {}
        self.cluster, self.pauses = self, Pauses()
        self._side = SideCluster(world, life)

    async def close(self) -> None: ...

    async def topics(self, names: Sequence[str] | None = None) -> dict[str, Topic]:
        async with self._world.call(self._life, TargetError):
            told = self._world.target_topics()
        self._known |= told
        return told

    def look_anew(self, topic: str) -> None:
        self.forget(topic)

    async def producer(self) -> Producer:
        async with self._world.call(self._life, TargetError):
            self._world.producers += 1
            return Producer(1000 + self._world.producers, 0)

    async def ensure_topic(
        self, partition: TopicPartition, partitions: int, settings: Mapping[str, str]
    ) -> dict[str, str] | None:
        async with self._world.call(self._life, TargetError):
            is_new = partition.topic not in self._world.target_ids
            if is_new:
                self._world.make_topic(partition.topic)
        await self.topics()
        return dict(settings) if is_new else None

    async def in_sync_min(self, topic: str) -> int | None:
        async with self._world.call(self._life, TargetError):
            return IN_SYNC_MIN

    async def request_bytes_max(self, node: int) -> int | None:
        """No right to ask."""
        await self._world.reaches(self._life)
        return None

    async def witness(self, node: int) -> Any:
        await self._world.reaches(self._life)
        return Witness(self._world, self._life)

    async def answers(self, witness: Any) -> bool:
        try:
            async with self._world.call(self._life, TargetError):
                return not witness.is_closed
        except TargetError:
            return False

    def fencing(self, transactional_id: str) -> Any:
        if self._world.coordinator is not None:
            return Fencing(self._side, transactional_id, timeout_s=REQUEST_S)  # type: ignore[arg-type]
        if transactional_id in spare_ids(STATE):
            return UnusedFencing(self._world, self._life)
        return SimulatedFencing(self._world, self._life)

    def transactions(self, transactional_id: str, timeout_ms: int) -> Transactions:
        made = Transactions(self._side, transactional_id, timeout_s=REQUEST_S)  # type: ignore[arg-type]
        made.transaction_timeout_ms = timeout_ms
        return made

    def state_topic(self, name: str, transactional_id: str | None = None) -> Any:
        if self._world.coordinator is not None:
            return StateTopic(
                self._side,  # type: ignore[arg-type]
                name,
                timeout_s=REQUEST_S,
                transactional_id=transactional_id,
            )
        return SimulatedStateTopic(self._world, self._life, name)

    async def look_up(
        self, wanted: Mapping[Partition, LookupRequest], steps_max: int
    ) -> dict[Partition, LookupResult | str]:
        found: dict[Partition, LookupResult | str] = {}
        async with self._world.call(self._life, ConnectionLost):
            for at, one in wanted.items():
                log = self._world.targets.get(at)
                found[at] = "UNKNOWN_TOPIC_OR_PARTITION" if log is None else log.look(one)
        for (topic, _), told in found.items():
            if isinstance(told, str):
                self.forget(topic)
        return found

    async def topic_settings(self, names: Sequence[str]) -> dict[str, Any]:
        return dict.fromkeys(names, "nobody asked for any")

    async def start_offset(self, partition: TopicPartition) -> int:
        return 0

    async def record_at(self, partition: TopicPartition, offset: int) -> Content | None:
        found = await self.contents_from(partition, offset)
        return None if found is None else next((one for at, one in found.records if at == offset), None)

    async def contents_from(self, partition: TopicPartition, offset: int) -> Contents | None:
        async with self._world.call(self._life, TargetError):
            log = self._world.targets.get(partition)
            if log is None:
                raise TargetError(f"{partition.topic} is not there")
            entry = next((one for one in log.entries if one.end > offset), None)
            if entry is None or entry.base >= log.stable_end:
                return None
            records = log.of([entry])
            return Contents([(one.offset, content(one)) for one in records if one.offset >= offset], entry.end)

    async def connection(self, node: int, number: int = 0) -> Any:
        await self._world.reaches(self._life)
        if self._world.faults() and self._world.chance.random() < self._world.fault_rate / 2:
            raise ConnectionLost("nobody answers")
        held = self._open.get((node, number))
        if held is None or held.is_closed:
            held = self._open[node, number] = Connection(self._world, self._life, node)
            self.pauses.end()
        return held


class SimulatedFencing:
    """A coordinator of one transactional id; a marker may be written though nobody hears of it, or later."""

    def __init__(self, world: World, life: Life) -> None:
        self._world, self._life, self._epoch = world, life, -1
        self._is_ahead = False
        self._lock = asyncio.Lock()  # as the real one's: else an epoch that is taken ahead would be given out twice

    async def prepare(self, *, renew: bool = False) -> None:
        async with self._lock:
            if not self._is_ahead and (renew or self._epoch < 0):
                await self._raise_epoch()
                self._is_ahead = True

    async def begin_with(
        self, chosen: Callable[[], Collection[Partition]], meanwhile: Meanwhile | None = None
    ) -> Fence:
        async with self._lock:
            if not self._is_ahead:
                await self._raise_epoch()
            self._is_ahead, partitions = False, chosen()
            return await self._mark(partitions, meanwhile)

    async def _raise_epoch(self) -> None:
        world = self._world
        async with world.call(self._life, ConnectionLost):
            if not world.fenced:
                raise NoFence("transactional id is refused: UNSUPPORTED_VERSION")
            while world.markers_due or world.marking:  # noqa: ASYNC110 - the coordinator is busy until all are written
                await asyncio.sleep(0.05)
            world.epoch += 1
            self._epoch = world.epoch

    async def extend(self, partitions: Collection[Partition]) -> Fence:
        async with self._lock:
            return await self._mark(partitions)

    async def _mark(self, partitions: Collection[Partition], meanwhile: Meanwhile | None = None) -> Fence:
        world = self._world
        async with world.call(self._life, ConnectionLost):
            while world.marking:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)
            if self._epoch != world.epoch:
                raise ProducerFenced("the id is another's now")
            is_confirmed = not world.faults() or world.chance.random() > 0.05
            refused = {
                at: int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                for at in partitions
                if at != world.state_at and at not in world.targets
            }
            world.add(partitions)
            early = Fence(FENCED, self._epoch, dict(refused), is_confirmed=False)
            marking = asyncio.ensure_future(self._write(set(partitions) - refused.keys(), is_confirmed))
            world.marking.add(marking)  # which goes on whatever becomes of who asked for it
            marking.add_done_callback(world.marking.discard)
            if meanwhile is None:
                await asyncio.shield(marking)
            else:
                await asyncio.gather(asyncio.shield(marking), meanwhile(early))
            return Fence(FENCED, self._epoch, refused, is_confirmed)

    async def _write(self, partitions: Collection[Partition], is_confirmed: bool) -> None:
        """Write the markers, one after the other; what is looked at meanwhile has one, or none yet."""
        world = self._world
        for at in sorted(partitions):
            if world.faults():
                await asyncio.sleep(0.5 * world.chance.random() ** 4)  # mostly soon
            while at in world.short:  # noqa: ASYNC110 - its leader takes none
                await asyncio.sleep(MARKED_AGAIN_S)
            if at == world.state_at:
                world.state_epoch = self._epoch
            elif at not in world.targets:
                continue  # it was deleted just now
            elif is_confirmed:
                world.targets[at].mark(self._epoch, world.now_ms())
            else:
                world.mark_later(at, self._epoch)


class UnusedFencing:
    """Of a spare id, where no mirror runs transactions."""

    def __init__(self, world: World, life: Life) -> None:
        self._world, self._life = world, life

    async def begin(self, partitions: Collection[Partition]) -> Fence:
        async with self._world.call(self._life, ConnectionLost):
            return Fence(SPARED, 0, {}, True)


class SimulatedStateTopic:
    """The last record of each key; a write may have arrived though nobody hears of it, or arrive later."""

    topic_id = "state"

    def __init__(self, world: World, life: Life, name: str) -> None:
        self._world, self._life, self.partition = world, life, (name, 0)
        self._epoch = -1
        self.marked_by: tuple[int, int] | None = None
        self.clock = TargetClock()

    async def open(self, replicas: int = 0) -> bool:
        async with self._world.call(self._life, ConnectionLost):
            return False

    async def is_same(self) -> bool:
        return True

    def begin(self, producer_id: int, producer_epoch: int) -> None:
        self._epoch = producer_epoch

    async def read(self, reading: Reading) -> None:
        async with self._world.call(self._life, ConnectionLost):
            self.marked_by = (FENCED, self._world.state_epoch)
            for key, value in list(self._world.state.items()):
                reading.take(key, value)

    async def write(self, groups: Iterable[Iterable[Record]]) -> None:
        records, world, epoch = [record for group in groups for record in group], self._world, self._epoch

        def arrive() -> None:
            world.take_state(records, epoch)

        async with world.call(self._life, ConnectionLost, late=arrive):
            if world.fenced and epoch < world.state_epoch:
                raise ProducerFenced("the state topic is another's now")
            arrive()
            self.clock.note_time(world.now_ms(), boot_s())


class _Request(NamedTuple):
    parts: list[tuple[str, int, bytes]]
    future: asyncio.Future[ProduceResponse]


class Witness:
    """A connection for questions; it breaks as others do."""

    def __init__(self, world: World, life: Life) -> None:
        self._world, self.life, self.is_closed = world, life, False
        world.connections[self] = None

    def cut(self) -> None:
        """End it."""
        self.is_closed = True
        self._world.connections.pop(self, None)


class Connection:
    """Serves requests one after another, in their order, until it ends."""

    throttled_until = 0.0

    def __init__(self, world: World, life: Life, node: int) -> None:
        self._world, self.life, self._node = world, life, node
        self.end_error: ConnectionLost | None = None
        self._gone = asyncio.Event()
        self._waiting: deque[_Request] = deque()
        self._answered_at = 0.0
        self._unanswered: dict[asyncio.Future[ProduceResponse], None] = {}
        self._is_serving = False
        world.connections[self] = None

    @property
    def is_closed(self) -> bool:
        return self.end_error is not None

    async def wait_closed(self) -> None:
        await self._gone.wait()

    def send_through_loss(self, *, is_lossy: bool) -> bool:
        """The model's kernel goes on as usual."""
        return False

    def link_fill(self) -> None:
        """Nor does it know what a link carries."""

    def limit_rate(self, bytes_s: int | None) -> None:
        """It sends as fast as the link takes it."""

    def segments(self) -> tuple[int, int]:
        return 0, 0

    def window_use(self) -> None:
        return None

    def send(self, asked: Any, request: Any, *, timeout_s: float) -> asyncio.Future[ProduceResponse]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ProduceResponse] = loop.create_future()
        self._world.step(self.life)
        if self.is_closed or self.life.dead:
            future.set_exception(ConnectionLost("closed"))
            return future
        parts = [(topic.name, p.index, bytes(p.records)) for topic in request.topic_data for p in topic.partition_data]
        self._waiting.append(_Request(parts, future))
        self._unanswered[future] = None
        if not self._is_serving:
            self._is_serving = True
            loop.call_later(self._world.delay_s() + self._world.passing_s, self._serve)
        return future

    def _serve(self) -> None:
        world = self._world
        if self.is_closed:
            return
        if world.faults() and world.chance.random() < world.fault_rate:
            self.cut()
            return
        request = self._waiting.popleft()
        if any(world.is_poison(data) for _, _, data in request.parts):
            self.cut()
            return
        answer = self._take(request.parts)
        if world.faults() and world.chance.random() < world.fault_rate:
            self.cut()
            return
        loop = asyncio.get_running_loop()
        self._answered_at = max(self._answered_at + 1e-6, loop.time() + world.delay_s())
        loop.call_at(self._answered_at, self._answer, request, answer)
        self._is_serving = bool(self._waiting)
        if self._waiting:
            loop.call_later(world.delay_s() / 4, self._serve)

    def _answer(self, request: _Request, answer: ProduceResponse) -> None:
        if not self.is_closed and not request.future.done():
            del self._unanswered[request.future]
            request.future.set_result(answer)

    def _take(self, parts: Sequence[tuple[str, int, bytes]]) -> ProduceResponse:
        answers: dict[str, list[PartitionProduceResponse]] = {}
        for topic, index, data in parts:
            code, base = self._world.produce((topic, index), data, self._node)
            answers.setdefault(topic, []).append(
                PartitionProduceResponse(index=index, error_code=int(code), base_offset=base)
            )
        return ProduceResponse(
            responses=[TopicProduceResponse(name=name, partition_responses=told) for name, told in answers.items()]
        )

    def cut(self) -> None:
        """End it; some of what is under way may arrive all the same."""
        if self.is_closed:
            return
        self.end_error = ConnectionLost("the connection was lost")
        self._gone.set()
        self._world.connections.pop(self, None)
        waiting = list(self._waiting)
        self._world.arrive_late([request.parts for request in waiting[: self._world.chance.randint(0, len(waiting))]])
        for future in self._unanswered:
            if not future.done():
                future.set_exception(ConnectionLost("the connection was lost"))
