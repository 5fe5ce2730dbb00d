"""Clients, loop, workers and power cuts in an order that one seed decides, over a whole broker in this process.

Each step is one thing: a request is sent, one callback of the loop runs, a worker does one job, the loop learns of it,
time passes, the power goes. Crashes come between two steps and within one, at any step of the disk.

| what must hold, whenever all is quiet and after each start | how it is told |
|---|---|
| an acked record is there, at its offset; so is what a reader saw | acks=all and 1; `Partition` |
| a record that a cut took is in the ledger, if it was acked | acks=1 alone: a cut takes nothing else |
| a kill takes nothing, and the ledger says nothing | after each kill |
| no record is there twice, none that nobody sent, none that was deleted | `Partition` |
| a topic is there, or not, as whoever made or deleted it was told | `Register` of its id |
| a commit is there; one that went with its topic does not come back | `Register` of each group's place |
| all that waits is answered, and nothing spins while no time passes | `_quiet` |

Lives here: what is sent, in which order things happen, and what is expected. Must never come in: the fakes
(edge_broker/testing), the programs of storage alone (program.py).
"""

from __future__ import annotations

import random
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from io import StringIO
from typing import Any, NamedTuple

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.errors import ErrorCode
from edge_broker.protocol import api
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages import offset_commit, offset_delete, offset_fetch
from edge_broker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from edge_broker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from edge_broker.protocol.messages.delete_groups import DeleteGroupsRequest
from edge_broker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from edge_broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from edge_broker.protocol.messages.find_coordinator import FindCoordinatorRequest
from edge_broker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from edge_broker.protocol.record_batch import build_batch, read_header, records_of
from edge_broker.storage.log.log_reader import whole_batches
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.metadata.topic_record import OFFSETS_TOPIC
from edge_broker.testing.checked import findings
from edge_broker.testing.client import Client
from edge_broker.testing.disk import PowerLoss, SimulatedDisk
from edge_broker.testing.site import Site
from tests.simulation.model import Entry, ledger_entries
from tests.simulation.registers import Register, Write
from tests.simulation.site import Deviation

STEPS = 700
NAMES = ("a", "b", "c")
GROUPS = ("g", "h")
PARTITIONS = 2
CLIENTS = 4
OPEN_MAX = 3  # requests of one client on their way
TURNS_MAX = 20_000  # without time passing: more, and something spins
PATIENCE_S = 120
NOTHING = -1
TRACE_LINES = 60
_ANY = uuid.UUID(int=1)  # an id that only the broker knows
_MAYBE = {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR}
Place = tuple[str, str, int]  # group, topic, partition


class Asked(NamedTuple):
    """A request on its way; `answered` gets the response."""

    text: str
    sent: int
    answered: Callable[[Any], str]


class Partition:
    """What is known of one partition of one topic id, by offset: the value, and whether a cut may take it."""

    def __init__(self) -> None:
        self.sure: dict[int, bytes] = {}
        self.acked_once: dict[int, bytes] = {}  # by acks=1: a cut may take it, into the ledger
        self.deleted_to = 0  # done
        self.deleting_to = 0  # asked for


class Interleaving:
    """One program; `crashes` counts the crashes that it came back from."""

    def __init__(self, seed: int, *, ordered: bool = False) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.crashes = [0]
        self.trace: list[str] = []
        self.now = 0
        self.disk = SimulatedDisk(seed, ordered=ordered)
        self.settings = {
            "log.segment.bytes": self.dice.choice((4096, 20_000)),
            "offsets.topic.segment.bytes": self.dice.choice((4096, 65_536)),
            "offsets.topic.num.partitions": self.dice.choice((1, 2)),
            "edge.flush.interval.min.ms": self.dice.choice((0, 0, 200)),
            "log.retention.ms": -1,
            "auto.create.topics.enable": False,
        }
        self.ids: dict[str, Register[uuid.UUID | None]] = {name: Register(None, 0) for name in NAMES}
        self.places: dict[Place, Register[int]] = {
            (group, name, index): Register(NOTHING, 0)
            for group in GROUPS
            for name in NAMES
            for index in range(PARTITIONS)
        }
        self.partitions: dict[tuple[uuid.UUID, int], Partition] = {}
        self.sent: dict[tuple[str, int], set[bytes]] = {}
        self.values = 0
        self.entries: list[Entry] = []
        self.open: list[deque[Asked]] = []
        self.clients: list[Client] = []
        self.outboxes: list[bytearray] = []  # bytes on their way to the broker
        self.lost = False  # a connection, with requests on their way
        self.site = Site(self.settings, disk=self.disk, chance=random.Random(seed))
        self._meet()

    def plan(self, steps: int = STEPS) -> list[int]:
        """The seeds of the steps."""
        return [self.dice.getrandbits(48) for _ in range(steps)]

    def run(self, plan: Sequence[int]) -> None:
        """Do the steps, then come to rest, fall and start once more; Deviation. The broker's log goes nowhere."""
        try:
            with redirect_stderr(StringIO()):
                self._run(plan)
        except Exception as error:
            raise Deviation(f"{type(error).__name__}: {error}", self.trace) from error

    def _run(self, plan: Sequence[int]) -> None:
        for seed in plan:
            self.dice, self.disk.random = random.Random(seed), random.Random(seed + 1)
            self._guarded(self._step)
        self._guarded(self._rest)
        self._fall()

    def _note(self, text: str) -> None:
        self.trace.append(f"{self.now}: {text}")
        del self.trace[: -4 * TRACE_LINES]

    # the order of things

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except PowerLoss:
            self._fall()

    def _step(self) -> None:
        self.now += 1
        workers = [worker for worker in self.site.workers.values() if worker]
        doing = [worker for worker in workers if not worker.idle]
        choices: list[tuple[Callable[[], object], float]] = [
            (self._ask, 24),
            (self._arrive, 24),
            (lambda: [self.site.loop.step() for _ in range(self.dice.choice((1, 1, 2, 5, 20)))], 30),
            (lambda: self.dice.choice(doing).work(), 14 if doing else 0),
            (lambda: self.dice.choice(workers).report_done(), 12 if workers else 0),
            (lambda: self.site.loop.advance(self.dice.choice((0.1, 1, 5, 40, 250))), 6),
            (self._rest, 1.5),
            (self._slow_or_quick, 0.8),
            (self._cold_or_warm, 0.8),
            (self._crash_soon, 0.8),
            (self._fall, 0.4),
        ]
        self.dice.choices([choice for choice, _ in choices], [weight for _, weight in choices])[0]()
        self._take_answers()

    def _slow_or_quick(self) -> None:
        throttle = self.site.broker.throttle
        throttle.slow = not throttle.slow
        self._note(f"the disk is {'slow' if throttle.slow else 'quick'}")

    def _cold_or_warm(self) -> None:
        self.disk.cold = not self.disk.cold
        self._note(f"the page cache is {'cold' if self.disk.cold else 'warm'}")

    def _crash_soon(self) -> None:
        self.disk.crash_at = self.disk.steps + self.dice.randrange(1, 12)

    def _fall(self) -> None:
        """Lose the power, or the process, and start; perhaps fall again in that."""
        power, told = self.dice.random() < 0.7, len(self.entries)
        for again in self.dice.choice((0, 0, 0, 1, 2)), 0:
            self.crashes[0] += 1
            self._note("the power is cut" if power else "the process is killed")
            (self.disk.crash if power else self.disk.kill)()
            self._cut_registers()
            if again:
                self.disk.crash_at = self.disk.steps + self.dice.randrange(1, 30 * again)
            try:
                self.site = Site(
                    self.settings, disk=self.disk, chance=self.site.chance, start_ms=self.site.clock.wall_ms()
                )
            except PowerLoss:
                continue
            self.disk.crash_at = -1
            break
        self._meet()
        self._check()
        assert power or len(self.entries) == told, f"a kill took nothing, and the ledger names {self.entries[told:]}"

    def _cut_registers(self) -> None:
        for topic_id in self.ids.values():
            topic_id.cut(self.now)
        for place in self.places.values():
            place.cut(self.now)

    def _meet(self) -> None:
        self.clients = [self.site.client() for _ in range(CLIENTS)]
        self.outboxes = [bytearray() for _ in self.clients]
        self.open = [deque() for _ in self.clients]
        self.lost = False

    def _rest(self) -> None:
        """Let everything end, and look at all that is there."""
        self._quiet()
        deadline = self.site.loop.now_s + PATIENCE_S
        while any(self.open) or self.lost:
            self.lost = False
            waits = [asked.text for asked_by in self.open for asked in asked_by]
            assert self.site.loop.now_s < deadline, f"never answered: {waits}"
            self.site.loop.advance(400)  # more than the longest interval between two rounds
            self._quiet()
        self._check()

    def _quiet(self) -> None:
        """Let all work that can without time passing."""
        for _ in range(TURNS_MAX):
            if not self._turn():
                break
        else:
            raise AssertionError(f"after {TURNS_MAX} turns without time passing something still spins")
        self._take_answers()

    def _turn(self) -> bool:
        """One callback of the loop, or a job of each worker."""
        if self.site.loop.step() or any(self._deliver(number, 1 << 20) for number in range(CLIENTS)):
            return True
        working = [worker for worker in self.site.workers.values() if worker]
        for worker in working:
            if not worker.idle:
                worker.work()
            worker.report_done()
        return bool(working)

    # what is asked

    def _ask(self) -> None:
        number = self.dice.randrange(CLIENTS)
        if len(self.open[number]) >= OPEN_MAX:
            return
        kinds: list[tuple[Callable[[], tuple[int, Message, Asked | None]], float]] = [
            (self._produce, 20),
            (self._commit, 10),
            (self._fetch, 8),
            (self._create, 4),
            (self._delete, 2),
            (self._delete_records, 1.5),
            (self._more_partitions, 0.7),
            (self._forget_offset, 1),
            (self._delete_group, 0.7),
            (self._find_coordinator, 0.3 if OFFSETS_TOPIC in self.site.store.topics else 8),
        ]
        kind = self.dice.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
        key, request, asked = kind()
        client = self.clients[number]
        frame = client.frame(key, request)
        self._note(f"client {number} sends {asked.text if asked else 'produce, acks=0'}")
        if asked is not None:
            self.open[number].append(asked)
        self.outboxes[number] += frame

    def _arrive(self) -> None:
        """Some of what a client sent reaches the broker."""
        number = self.dice.randrange(CLIENTS)
        size = len(self.outboxes[number])
        self._deliver(number, self.dice.choice((size, size, size, size // 2, 1)))

    def _deliver(self, number: int, size: int) -> bool:
        """Let so many bytes arrive; False when none did."""
        outbox = self.outboxes[number]
        taken = self.clients[number].arrive(bytes(outbox[:size])) if size and outbox else 0
        del outbox[:taken]
        return taken > 0

    def _take_answers(self) -> None:
        for number, client in enumerate(self.clients):
            for answer in client.answers():
                self.now += 1
                asked = self.open[number].popleft()
                self._note(f"client {number} is told of {asked.text}: {asked.answered(answer)}")
            if client.transport.closed:  # the only answer to acks=0 that failed; what was on its way may still be done
                self._note(f"client {number} was closed")
                self.clients[number] = self.site.client()
                self.open[number].clear()
                self.outboxes[number].clear()
                self.lost = True

    def _name(self) -> str:
        there = [name for name in NAMES if self.ids[name].values != [None]]
        return self.dice.choice(there if there and self.dice.random() < 0.9 else NAMES)

    def _produce(self) -> tuple[int, Message, Asked | None]:
        name, index, acks = self._name(), self.dice.randrange(PARTITIONS), self.dice.choice((-1, -1, 1, 1, 0))
        values = []
        for _ in range(self.dice.choice((1, 1, 2, 3))):
            self.values += 1
            values.append(b"%d " % self.values + bytes(self.dice.choice((0, 20, 700))))
        self.sent.setdefault((name, index), set()).update(values)
        batch = memoryview(
            bytearray(build_batch([(None, value) for value in values], timestamp_ms=self.site.clock.wall_ms()))
        )
        data = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=index, records=batch)])
        request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data])
        sent = self.now

        def answered(response: Any) -> str:
            result = response.responses[0].partition_responses[0]
            ids = self.ids[name].steady(sent)
            if result.error_code == 0 and ids:
                assert ids[0] is not None, f"{name} took records, and is not there"
                partition = self._partition(ids[0], index)
                kept = partition.sure if acks == -1 else partition.acked_once
                kept.update(enumerate(values, result.base_offset))
            return f"{ErrorCode(result.error_code).name}, offset {result.base_offset}"

        text = f"produce {values[0].split()[0].decode()}+{len(values)} to {name}-{index}, acks={acks}"
        return api.PRODUCE, request, Asked(text, sent, answered) if acks else None

    def _commit(self) -> tuple[int, Message, Asked]:
        group, name, index = self.dice.choice(GROUPS), self._name(), self.dice.randrange(PARTITIONS)
        self.values += 1
        offset = self.values
        register = self.places[group, name, index]
        write = register.begin(offset, self.now)
        place = offset_commit.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        request = offset_commit.OffsetCommitRequest(
            group_id=group, topics=[offset_commit.OffsetCommitRequestTopic(name=name, partitions=[place])]
        )

        def answered(response: Any) -> str:
            return self._end(register, write, response.topics[0].partitions[0].error_code)

        return api.OFFSET_COMMIT, request, Asked(f"commit {offset} by {group} for {name}-{index}", self.now, answered)

    def _forget_offset(self) -> tuple[int, Message, Asked]:
        group, name, index = self.dice.choice(GROUPS), self._name(), self.dice.randrange(PARTITIONS)
        register = self.places[group, name, index]
        write = register.begin(NOTHING, self.now)
        place = offset_delete.OffsetDeleteRequestPartition(partition_index=index)
        request = offset_delete.OffsetDeleteRequest(
            group_id=group, topics=[offset_delete.OffsetDeleteRequestTopic(name=name, partitions=[place])]
        )

        def answered(response: Any) -> str:
            code = response.error_code or response.topics[0].partitions[0].error_code
            return self._end(register, write, code)

        return api.OFFSET_DELETE, request, Asked(f"forget what {group} has for {name}-{index}", self.now, answered)

    def _delete_group(self) -> tuple[int, Message, Asked]:
        group = self.dice.choice(GROUPS)
        places = [place for (of, _, _), place in self.places.items() if of == group]
        gone = [(place, place.begin(NOTHING, self.now)) for place in places]

        def answered(response: Any) -> str:
            code = response.results[0].error_code
            for place, write in gone:
                self._end(place, write, code)
            return ErrorCode(code).name

        request = DeleteGroupsRequest(groups_names=[group])
        return api.DELETE_GROUPS, request, Asked(f"delete group {group}", self.now, answered)

    def _create(self) -> tuple[int, Message, Asked]:
        name = self.dice.choice(NAMES)
        register = self.ids[name]
        write = register.begin(_ANY, self.now)
        topic = CreatableTopic(name=name, num_partitions=self.dice.choice((1, PARTITIONS)), replication_factor=1)

        def answered(response: Any) -> str:
            result = response.topics[0]
            write.value = result.topic_id if result.error_code == 0 else _ANY
            return self._end(register, write, result.error_code)

        return api.CREATE_TOPICS, CreateTopicsRequest(topics=[topic]), Asked(f"create {name}", self.now, answered)

    def _delete(self) -> tuple[int, Message, Asked]:
        name = self._name()
        register = self.ids[name]
        places = [place for (_, topic, _), place in self.places.items() if topic == name]
        write = register.begin(None, self.now)
        gone = [(place, place.begin(NOTHING, self.now)) for place in places]
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])

        def answered(response: Any) -> str:
            code = response.responses[0].error_code
            for place, forgotten in gone:
                self._end(place, forgotten, code)
            return self._end(register, write, code)

        return api.DELETE_TOPICS, request, Asked(f"delete {name}", self.now, answered)

    def _delete_records(self) -> tuple[int, Message, Asked]:
        name, index = self._name(), self.dice.randrange(PARTITIONS)
        ids = [value for value in self.ids[name].values if value not in (None, _ANY)]
        ends = [max(self._partition(one, index).sure, default=0) for one in ids if one is not None]
        offset = self.dice.randrange(max(ends, default=0) + 1)
        touched = [self._partition(one, index) for one in ids if one is not None]
        for partition in touched:
            partition.deleting_to = max(partition.deleting_to, offset)
        place = DeleteRecordsPartition(partition_index=index, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[place])], timeout_ms=30_000)
        sent = self.now

        def answered(response: Any) -> str:
            result = response.topics[0].partitions[0]
            steady = self.ids[name].steady(sent)
            if result.error_code == 0 and steady and steady[0] is not None:
                partition = self._partition(steady[0], index)
                partition.deleted_to = max(partition.deleted_to, offset)
                assert result.low_watermark >= offset, f"{name}-{index} begins at {result.low_watermark}"
            return ErrorCode(result.error_code).name

        text = f"delete the records of {name}-{index} up to {offset}"
        return api.DELETE_RECORDS, request, Asked(text, sent, answered)

    def _more_partitions(self) -> tuple[int, Message, Asked]:
        name = self._name()
        request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=PARTITIONS)])

        def answered(response: Any) -> str:
            return ErrorCode(response.results[0].error_code).name

        return api.CREATE_PARTITIONS, request, Asked(f"give {name} {PARTITIONS} partitions", self.now, answered)

    def _find_coordinator(self) -> tuple[int, Message, Asked]:
        request = FindCoordinatorRequest(coordinator_keys=list(GROUPS))

        def answered(response: Any) -> str:
            return ErrorCode(response.coordinators[0].error_code).name

        return api.FIND_COORDINATOR, request, Asked("find the coordinator", self.now, answered)

    def _fetch(self) -> tuple[int, Message, Asked]:
        name, index = self._name(), self.dice.randrange(PARTITIONS)
        ids = [value for value in self.ids[name].values if value not in (None, _ANY)]
        topic_id = self.dice.choice(ids) if ids else uuid.UUID(int=99)
        assert topic_id is not None
        partition = self._partition(topic_id, index)
        begin = self.dice.randrange(max(partition.sure, default=0) + 1)
        one = FetchPartition(partition=index, fetch_offset=begin, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=self.dice.choice((0, 100, 2000)),
            min_bytes=self.dice.choice((0, 1, 5000)),
            topics=[FetchTopic(topic_id=topic_id, partitions=[one])],
        )

        def answered(response: Any) -> str:
            if not response.responses:
                return "nothing"
            result = response.responses[0].partitions[0]
            seen = self._seen(name, index, bytes(result.records or b""), begin)
            partition.sure.update(seen)  # whoever was shown it may go by it
            return f"{ErrorCode(result.error_code).name}, {len(seen)} records"

        return api.FETCH, request, Asked(f"fetch {name}-{index} from {begin}", self.now, answered)

    def _end(self, register: Register[Any], write: Write[Any], code: int) -> str:
        """A write was answered: it is there, or it is not, or nobody knows."""
        if code == 0:
            register.done(write, self.now)
        elif code not in _MAYBE:
            register.refused(write)
        return ErrorCode(code).name

    def _partition(self, topic_id: uuid.UUID, index: int) -> Partition:
        return self.partitions.setdefault((topic_id, index), Partition())

    def _seen(self, name: str, index: int, data: bytes, begin: int) -> dict[int, bytes]:
        """The records of an answer by offset; none that nobody sent."""
        found: dict[int, bytes] = {}
        for batch in whole_batches(data):
            for record in records_of(memoryview(bytes(batch))):
                value = bytes(record.value or b"")
                assert value in self.sent.get((name, index), ()), f"{name}-{index} made {value[:20]!r} up"
                if record.offset >= begin:
                    found[record.offset] = value
        return found

    # what must hold

    def _check(self) -> None:
        """Compare everything that is there with what was told."""
        self.now += 1
        store = self.site.store
        self.entries = ledger_entries(_all_of(store.topics[LEDGER_TOPIC].partitions[0]))
        for name, register in self.ids.items():
            topic = store.topics.get(name)
            topic_id = None if topic is None else topic.topic_id
            possible = register.values
            known = topic_id in possible or (topic_id is not None and _ANY in possible)
            assert known, f"{name} is {topic_id}, and may be {possible}"
            register.seen(topic_id, self.now)
            if topic is not None:
                for index, log in enumerate(topic.partitions):
                    self._check_partition(name, log, self._partition(topic.topic_id, index))
        self._check_commits()
        damage = [finding for finding in findings(self.disk, running=True) if finding.damage]
        assert not damage, f"the doctor finds {damage[0]}"

    def _check_partition(self, name: str, log: PartitionLog, known: Partition) -> None:
        assert log.fault is None, log.fault
        found: dict[int, bytes] = {}
        for batch in _all_of(log):
            found.update(self._seen(name, log.partition, batch, log.log_start_offset))
        assert len(set(found.values())) == len(found), f"{log!r} holds a record twice"
        start = log.log_start_offset
        assert known.deleted_to <= start <= max(known.deleting_to, known.deleted_to), f"{log!r} begins at {start}"
        for offset, value in known.sure.items():
            assert offset < start or found.get(offset) == value, f"{log!r} lost {value[:9]!r} at {offset}"
        for offset, value in list(known.acked_once.items()):
            if log.high_watermark <= offset < log.log_end_offset:
                continue  # it is not synced, and so not shown
            if offset >= start and found.get(offset) != value:
                told = any(
                    entry.is_of_log(log) and entry.first_offset <= offset < (entry.end_offset or offset + 1)
                    for entry in self.entries
                )
                assert told, f"{log!r} lost {value[:9]!r} at {offset}, and the ledger does not say so"
                del known.acked_once[offset]
        known.sure.update(found)  # all of it was shown

    def _check_commits(self) -> None:
        topics = [
            offset_fetch.OffsetFetchRequestTopics(name=name, partition_indexes=list(range(PARTITIONS)))
            for name in NAMES
        ]
        groups = [offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=topics) for group in GROUPS]
        client = self.site.client()
        answer = client.ask(api.OFFSET_FETCH, offset_fetch.OffsetFetchRequest(groups=groups))
        for group in answer.groups:
            if group.error_code == ErrorCode.NOT_COORDINATOR and OFFSETS_TOPIC not in self.site.store.topics:
                assert all(NOTHING in register.values for register in self.places.values()), "all commits are gone"
                continue
            assert group.error_code == 0, ErrorCode(group.error_code).name
            for topic in group.topics:
                for place in topic.partitions:
                    register = self.places[group.group_id, topic.name, place.partition_index]
                    at = f"{group.group_id} stands at {place.committed_offset} in {topic.name}-{place.partition_index}"
                    assert place.committed_offset in register.values, f"{at}, and may at {register.values}"
                    register.seen(place.committed_offset, self.now)
        client.lose()


def _all_of(log: PartitionLog) -> list[bytes]:
    """Every batch that is shown."""
    found: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        batches = whole_batches(log.reader.read(offset, 1 << 16, blocking=True) or b"")
        assert batches, f"{log!r} shows nothing at {offset}, its high watermark is {log.high_watermark}"
        found.extend(bytes(batch) for batch in batches)
        offset = read_header(batches[-1]).next_offset
    return found
