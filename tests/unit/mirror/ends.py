"""Two ends in memory for the mirror: a source of raw batches and a target that keeps Kafka's rules for producers.

The target takes batches by producer id, epoch and sequence as Kafka's ProducerStateManager does, remembers five of each
producer and drops its connection when it is told to fail; a forgetful one remembers none, as Kafka does where records
are old. No assertion may live here.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from types import SimpleNamespace

from edge_broker.errors import ErrorCode
from edge_broker.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from edge_broker.protocol.record_batch import BatchHeader, build_batch, records_of
from kafka_wire.cluster import Leader, Topic
from kafka_wire.connection.errors import ConnectionLost, WireError
from kafka_wire.partitions import TopicPartition
from kafka_wire.records.batches import SEQUENCES
from kafka_wire.transactions.fencing import Fence, NoFence
from kafka_wire.transactions.last_batch_lookup import LookupResult, Own
from mirror.client.active_election import Member
from mirror.client.fetcher import Answer
from mirror.client.log_queries import Content, Contents
from mirror.client.retry_wait import Pauses
from mirror.client.target_client import Target
from mirror.errors import ShortError, TargetError
from mirror.partition.leader_epochs import EpochEnd
from mirror.partition.stream import Producer

TP = TopicPartition("readings", 0)
REMEMBERED = 5
FENCED = 7  # the first producer id of the transactional id


def record(offset, size=10):
    """A record as a source holds it; its timestamp and header tell its offset."""
    return SimpleNamespace(
        offset=offset, key=b"k", value=b"x" * size, timestamp=offset, headers=(("n", b"%d" % offset),)
    )


def content(one):
    """What of it is the same at both ends."""
    return Content(one.timestamp, one.key, one.value, one.headers)


class MemorySource:
    """One partition: the records of `log`, a batch each, from `start` to `end`, and `raw` batches between them.

    `epochs` are where its leader epochs began, the last is the leader's; none: a source that tells none.
    """

    silent_s = 0.0
    cluster_id = "source-id"
    busy = frozenset()

    def __init__(self, log, *, start=0, raw=(), aborted=(), policy="delete", epochs=(), topic_id=None):
        self.log, self.start, self.policy = log, start, policy
        self.end = log[-1].offset + 1 if log else start
        self.raw, self.aborted = list(raw), list(aborted)
        self.group = {}
        self.epochs, self.topic_id = list(epochs), topic_id
        self.asked, self.said, self.polls, self.topics_asked = [], [], 0, 0
        self.reader = self

    def cut(self, offset, then):
        """Lose the records from an offset on and take others there, in the next epoch."""
        self.log = [r for r in self.log if r.offset < offset] + list(then)
        self.end = self.log[-1].offset + 1 if self.log else self.start
        self.epochs = [e for e in self.epochs if e[0] < offset] + [(offset, self.leader_epoch + 1)]

    @property
    def leader_epoch(self):
        return self.epochs[-1][1] if self.epochs else -1

    async def close(self): ...

    async def topics(self, names=None):
        self.topics_asked += 1
        leaders = {0: Leader(1, self.leader_epoch)}
        return {TP.topic: Topic(self.topic_id, 0, leaders), "__consumer_offsets": Topic(None, 0, leaders)}

    async def epoch_ends(self, asked):
        found = {}
        for partition, (epoch, leader) in asked.items():
            self.asked.append(epoch)
            known = [e for e in self.epochs if e[1] <= epoch]
            ends = [e[0] for e in self.epochs if e[1] > epoch]
            assert leader.epoch == self.leader_epoch
            if epoch > self.leader_epoch:
                found[partition] = EpochEnd(-1, -1)
            else:
                found[partition] = EpochEnd(known[-1][1] if known else epoch, ends[0] if ends else self.end)
        return found

    async def record_at(self, partition, offset):
        return next((content(r) for r in self.log if r.offset == offset), None)

    async def contents_from(self, partition, offset):
        found = next((r for r in self.log if r.offset >= offset), None)
        return None if found is None else Contents([(found.offset, content(found))], found.offset + 1)

    async def settings(self, names):
        return {name: {"cleanup.policy": self.policy} for name in names}

    async def commits(self, partitions=None):
        return dict(self.group)

    async def commit(self, commits, timeout_s, member):
        self.group.update(commits)
        self.said += commits.values()

    async def error_of(self, name):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def bounds(self, partitions):
        return dict.fromkeys(partitions, self.start), dict.fromkeys(partitions, self.end)

    async def known_bounds(self, partitions):
        return *await self.bounds(partitions), {}

    async def known_settings(self, names):
        return await self.settings(names)

    async def ends(self, partitions):
        return dict.fromkeys(partitions, self.end)

    async def poll(self, wanted, room_bytes, wait_s, woken):
        """Answer as a leader does: by its epoch, its bounds, and from the offset on that is asked for."""
        await asyncio.sleep(0)
        self.polls += 1
        if TP not in wanted:
            await asyncio.sleep(0.001)
            return []
        place = wanted[TP]
        if place.leader_epoch not in (-1, self.leader_epoch):
            return [Answer(TP, place, ErrorCode.FENCED_LEADER_EPOCH)]
        if not self.start <= place.offset <= self.end:
            return [Answer(TP, place, ErrorCode.OFFSET_OUT_OF_RANGE)]
        batches = self.batches(place.offset)
        if not batches:
            await asyncio.sleep(0.001)
        return [Answer(TP, place, 0, self.aborted, memoryview(batches), self.end)]

    def batches(self, offset):
        """Some batches from an offset on."""
        made = [self.batch(r) for r in self.log if r.offset >= offset]
        found = [one for one in [*self.raw, *made] if BatchHeader(one).next_offset > offset]
        return b"".join(sorted(found, key=lambda one: BatchHeader(one).base_offset)[:7])

    def batch(self, one):
        known = [epoch for start, epoch in self.epochs if start <= one.offset]
        return build_batch(
            [(one.key, one.value)], timestamp_ms=one.timestamp, base_offset=one.offset,
            leader_epoch=known[-1] if known else -1, headers=one.headers,
        )  # fmt: skip


class AlwaysWrites:
    """The only mirror of a site."""

    writes, member, trouble, others_s = True, Member(), "", 0.0

    async def run(self): ...

    async def until_writes(self): ...

    async def leave(self): ...


class MemoryTarget(Target):
    """One partition's log, by Kafka's rules; `fail` says what becomes of the next request, `refuse_bytes` is too large.

    | `fail` returns | the request | the connection |
    |---|---|---|
    | None | is served | stays |
    | "lost" | is lost | ends |
    | "answer lost" | is served | ends |
    | an error code | is refused | stays |
    """

    cluster = None
    cluster_id = "target-id"
    state_id, state_ids_given = 1, 1
    """The state topic's, None while it does not exist, and how many it had."""

    def __init__(self, *, refuse_bytes=10**9, fail=lambda: None):
        self.log, self.written, self.bases, self.put_aside = [], [], {}, []
        self.refuse_bytes, self.fail = refuse_bytes, fail
        self.clock_ms = None  # what the state topic's timestamps have told of its clock
        self.refused = self.configs = None
        self.connections = {}
        self.remembered, self.forgetful = {}, False
        self.fences = True
        self.producers, self.epoch, self.state, self.state_writes = 0, -1, {}, 0
        self.producer_id = FENCED
        self.topic_ids = "t"
        self.requests, self.under_way_most, self.pause_s = 0, 0, 0.0
        self.cluster, self.pauses = self, Pauses()
        self.request_limit, self.is_answering, self.short = None, True, ""
        self.cuts_at = lambda data: False

    @property
    def got(self):
        """The records of the log: timestamp, headers and value."""
        return [one for one in self.log if one is not None]

    @got.setter
    def got(self, records):
        self.log = list(records)

    async def close(self): ...

    def forget(self, topic): ...

    def look_anew(self, topic): ...

    async def check_in_sync(self, partition):
        if self.short:
            raise ShortError(self.short)

    def topic_id(self, topic):
        return self.topic_ids

    async def topics(self, names=None):
        return {name: Topic(None, 0, {0: await self.leader(TopicPartition(name, 0))}) for name in names or ()}

    async def leader(self, partition):
        return Leader(1, 0)

    async def producer(self):
        self.producers += 1
        return Producer(1000 + self.producers, 0)

    async def ensure_topic(self, partition, partitions, settings):
        self.configs = settings
        if self.refused is not None:
            raise self.refused

    def fencing(self, transactional_id):
        return MemoryFencing(self)

    def state_topic(self, name):
        return MemoryStateTopic(self, name)

    def delete_state(self):
        """Delete the state topic."""
        self.state, self.state_id = {}, None

    def marker(self):
        """A fence's, behind all that is there."""
        self.log.append(None)
        self.remembered[self.producer_id] = Remembered(self.epoch)

    async def look_up(self, wanted, steps_max):
        """As a client that reads backwards does."""
        await asyncio.sleep(0)
        ((at, one),) = wanted.items()
        end = min(len(self.log), one.below)
        floor = min(one.floor, end)
        for base in sorted((base for base in self.bases if base < end), reverse=True):
            header = BatchHeader(self.bases[base])
            if header.next_offset <= floor:
                break
            if header.producer_id in one.producer_ids:
                last = (header.base_sequence + header.last_offset_delta) % SEQUENCES
                own = header.producer_id, header.producer_epoch, header.base_sequence, last, base, header.last_offset
                return {at: LookupResult(0, end, base, Own(*own), self.epoch, True)}
        return {at: LookupResult(0, end, floor, None, self.epoch, True)}

    async def topic_settings(self, names):
        return dict.fromkeys(names, "nobody asked for any")

    async def start_offset(self, partition):
        return 0

    async def request_bytes_max(self, node):
        return self.request_limit

    async def witness(self, node):
        return self

    async def answers(self, witness):
        return self.is_answering

    async def record_at(self, partition, offset):
        assert partition == ("lab.readings", 0)
        if not 0 <= offset < len(self.log) or self.log[offset] is None:
            return None
        timestamp, headers, value = self.log[offset]
        return Content(timestamp, b"k", value, tuple(headers))

    async def contents_from(self, partition, offset):
        if offset >= len(self.log):
            return None
        one = await self.record_at(partition, offset)
        return Contents([] if one is None else [(offset, one)], offset + 1)

    async def write(self, topic, key, value, timeout_s):
        if self.fail():
            raise TargetError("the ledger is away")
        self.written.append((topic, json.loads(value), len(self.got)))

    async def write_batch(self, topic, batch, timeout_s):
        self.put_aside.append((topic, [content(one) for one in records_of(batch)]))

    @property
    def open(self):
        """The ordinary connection, if there is one."""
        return self.connections.get(0)

    async def connection(self, node, number=0):
        await asyncio.sleep(0)
        if number not in self.connections or self.connections[number].is_closed:
            self.connections[number] = MemoryConnection(self)
        return self.connections[number]

    def append(self, data):
        """Serve one partition of a request, and return its code and base offset."""
        header = BatchHeader(data)
        if len(data) > self.refuse_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        known = self.remembered.get(header.producer_id)
        if known is None or self.forgetful:
            known = Remembered(header.producer_epoch, header.base_sequence)
        if header.producer_epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if header.producer_epoch > known.epoch:
            known = Remembered(header.producer_epoch)
        self.remembered[header.producer_id] = known
        last = header.base_sequence + header.last_offset_delta
        for first, end, base in known.recent:
            if (first, end) == (header.base_sequence, last):
                return 0, base
        if header.base_sequence != known.next_sequence:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        base = len(self.log)
        known.next_sequence = last + 1
        known.recent.append((header.base_sequence, last, base))
        self.log += [(one.timestamp, list(one.headers), one.value) for one in records_of(data)]
        stored = bytearray(data)
        stored[:8] = base.to_bytes(8, "big")
        self.bases[base] = bytes(stored)
        return 0, base


class Remembered:
    """What a leader remembers of a producer."""

    def __init__(self, epoch, next_sequence=0):
        self.epoch, self.next_sequence, self.recent = epoch, next_sequence, deque(maxlen=REMEMBERED)


class MemoryFencing:
    """A coordinator of one transactional id; a marker may be written though nobody hears of it."""

    def __init__(self, target):
        self.target = target

    async def prepare(self, *, renew=False): ...

    async def begin_with(self, chosen, meanwhile=None):
        await asyncio.sleep(0)
        target = self.target
        if not target.fences:
            raise NoFence("transactional id is refused: UNSUPPORTED_VERSION")
        outcome = target.fail()
        if outcome == "lost":
            raise ConnectionLost("the coordinator's connection was lost")
        target.epoch += 1
        if ("lab.readings", 0) in chosen():
            target.marker()
        if outcome == "answer lost":
            raise ConnectionLost("the coordinator's connection was lost")
        return Fence(target.producer_id, target.epoch, {}, True)

    async def extend(self, partitions):
        return Fence(self.target.producer_id, self.target.epoch, {}, True)


class MemoryStateTopic:
    """The last record of each key; a write may have arrived though nobody hears of it."""

    def __init__(self, target, name):
        self.target, self.partition, self.marked_by = target, (name, 0), None
        self.topic_id = None

    @property
    def clock(self):
        return SimpleNamespace(now_ms=self.target.clock_ms)

    async def open(self, replicas=0):
        is_new = self.target.state_id is None
        if is_new:
            self.target.state_ids_given += 1
            self.target.state_id = self.target.state_ids_given
        self.topic_id = self.target.state_id
        return is_new

    async def is_same(self):
        return self.topic_id == self.target.state_id

    def begin(self, producer_id, producer_epoch): ...

    async def read(self, reading):
        self.marked_by = (self.target.producer_id, self.target.epoch)
        for key, value in list(self.target.state.items()):
            reading.take(key, value)

    async def write(self, groups):
        await asyncio.sleep(0)
        if self.topic_id != self.target.state_id:
            raise WireError("the state topic cannot be written to: UNKNOWN_TOPIC_OR_PARTITION")
        self.target.state_writes += 1
        outcome = self.target.fail()
        if outcome == "lost":
            raise ConnectionLost("the connection was lost")
        for key, value in (record for group in groups for record in group):
            self.target.state.pop(key, None)
            if value is not None:
                self.target.state[key] = value
        if outcome is not None:
            raise ConnectionLost("the connection was lost")


class MemoryConnection:
    """Serves requests one after another, in their order, until one makes it end."""

    throttled_until = 0.0

    def __init__(self, target):
        self.target = target
        self.end_error = None
        self._gone = asyncio.Event()
        self._waiting = deque()
        self._serving = None

    @property
    def is_closed(self):
        return self.end_error is not None

    async def wait_closed(self):
        await self._gone.wait()

    def send_through_loss(self, *, is_lossy):
        return False

    def link_fill(self):
        return None

    def limit_rate(self, bytes_s): ...

    def segments(self):
        return 0, 0

    def window_use(self):
        return None

    def send(self, asked, request, *, timeout_s):
        future = asyncio.get_running_loop().create_future()
        if self.is_closed:
            future.set_exception(ConnectionLost("closed"))
            return future
        copied = [(t.name, [(p.index, bytes(p.records)) for p in t.partition_data]) for t in request.topic_data]
        self._waiting.append((copied, future))
        self.target.under_way_most = max(self.target.under_way_most, len(self._waiting))
        if self._serving is None:
            self._serving = asyncio.ensure_future(self._serve())
        return future

    async def _serve(self):
        while self._waiting and not self.is_closed:
            await asyncio.sleep(self.target.pause_s)
            topics, future = self._waiting[0]
            if any(self.target.cuts_at(data) for _, partitions in topics for _, data in partitions):
                self._end()
                return
            self.target.requests += 1
            outcome = self.target.fail()
            if outcome == "lost":
                self._end()
                return
            answers = [self._answer(name, partitions, outcome) for name, partitions in topics]
            if outcome == "answer lost":
                self._end()
                return
            self._waiting.popleft()
            future.set_result(ProduceResponse(responses=answers))
        self._serving = None

    def _answer(self, name, partitions, outcome):
        assert name == "lab.readings"
        told = []
        for index, data in partitions:
            code, base = (0, -1) if isinstance(outcome, int) else self.target.append(data)
            if outcome in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
                self.target.append(data)
            if isinstance(outcome, int):
                code = outcome
            told.append(PartitionProduceResponse(index=index, error_code=code, base_offset=base))
        return TopicProduceResponse(name=name, partition_responses=told)

    def _end(self):
        self.end_error = ConnectionLost("the connection was lost")
        self._gone.set()
        for _, future in self._waiting:
            future.set_exception(ConnectionLost("the connection was lost"))
