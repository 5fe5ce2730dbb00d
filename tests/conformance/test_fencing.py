"""Fence, look, write at Apache Kafka 4.3.1 and 3.9.2: what their leaders and coordinators really do.

Invariants: behind a fence no batch of an older epoch is taken, and readers of either isolation see nothing of it; a
look finds our last batch whatever the broker remembers, and whatever lies behind it; the state topic has one writer;
a record whose acknowledgement was lost arrives once, however old it is.
The brokers look for forgotten producers each half second, in place of ten minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Mapping

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from drupelet.kafka.client import ClientSettings
from edge_broker.errors import ErrorCode, error_name
from edge_broker.protocol.messages.init_producer_id import InitProducerIdRequest
from edge_broker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from edge_broker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_wire import apis
from kafka_wire.cluster import SIDE, TRANSACTION, Cluster
from kafka_wire.transactions.fencing import LAST_EPOCH, Fencing, NoFence, ProducerFenced
from kafka_wire.transactions.last_batch_lookup import LookupRequest, LookupResult, Own, look_up, producers
from mirror.client.state_topic import StateTopic
from mirror.partition.resume_rules import TargetLookup
from mirror.partition.state_records import Reading, Topics
from mirror.partition.target_state import PartitionState
from tests.support import runtimes
from tests.support.entries import librdkafka
from tests.support.kafka_reading import create_topic, read_topic
from tests.support.processes import ApacheKafka, EdgeBroker
from tests.support.record_batches import make_batch
from tests.support.waiting import CALL_S, Deadline

TWO_DAYS_S = 2 * 86_400
QUICK = {
    "producer.id.expiration.check.interval.ms": 500,
    "log.cleaner.backoff.ms": 200,
    "log.initial.task.delay.ms": 100,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
NONE, FENCED, OUT_OF_ORDER = "NONE", "INVALID_PRODUCER_EPOCH", "OUT_OF_ORDER_SEQUENCE_NUMBER"
NOT_LEADER = "NOT_LEADER_OR_FOLLOWER"


@pytest.fixture(scope="module", params=["4.3.1", pytest.param("3.9.2", marks=pytest.mark.night)])
def kafka(request, tmp_path_factory):
    jars = runtimes.old_kafka_jars() if request.param == "3.9.2" else None
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), settings=QUICK, jars=jars) as broker:
        yield broker


class Target:
    """A new topic at the target, and a client of its own; `fence` has a transactional id of the test's."""

    def __init__(self, bootstrap, partitions=1, config: Mapping[str, str] | None = None):
        self.bootstrap = bootstrap
        self.topic = f"fenced-{uuid.uuid4().hex[:8]}"
        create_topic(bootstrap, self.topic, partitions, dict(config or {}))
        self.cluster = Cluster(ClientSettings(bootstrap, "fence-test", int(CALL_S * 1000)))
        self.fence = Fencing(self.cluster, f"edge-{self.topic}", timeout_s=CALL_S)
        self.all = [(self.topic, number) for number in range(partitions)]

    async def leaders(self):
        found = (await self.cluster.topics([self.topic]))[self.topic].leaders
        return {(self.topic, number): leader for number, leader in found.items()}

    async def send(self, producer, sequence, size=3, *, age_s=0, partition=0, key=None, text=b"x"):
        """One batch, not transactional: the error's name and the offset."""
        now = int((time.time() - age_s) * 1000)
        batch = make_batch([(key, text, now)] * size, producer=(*producer[:2], sequence))
        leader = (await self.leaders())[self.topic, partition]
        connection = await self.cluster.connection(leader.node)
        data = [PartitionProduceData(index=partition, records=batch)]
        request = ProduceRequest(
            acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=self.topic, partition_data=data)]
        )
        answer = await connection.ask(apis.PRODUCE, request, timeout_s=CALL_S)
        told = answer.responses[0].partition_responses[0]
        return error_name(told.error_code), told.base_offset

    async def look(self, *ids, floor=0, **bounds):
        wanted = {at: LookupRequest(leader, frozenset(ids), floor) for at, leader in (await self.leaders()).items()}
        return await look_up(self.cluster, wanted, timeout_s=CALL_S, **bounds)

    async def remembered(self):
        """What the leader of the first partition remembers: epoch and last sequence of each producer."""
        told = await producers(self.cluster, {self.all[0]: (await self.leaders())[self.all[0]]}, timeout_s=CALL_S)
        return {one.producer_id: (one.producer_epoch, one.last_sequence) for one in told[self.all[0]]}

    async def until_forgotten(self):
        deadline = Deadline(30)
        while remembered := await self.remembered():
            deadline.check("a producer to be forgotten", remembered)
            await asyncio.sleep(0.1)

    async def ends(self):
        """The high watermark, and the last stable offset."""
        connection = await self.cluster.connection((await self.leaders())[self.all[0]].node)
        ends = []
        for isolation in (0, 1):
            asked = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
            topics = [ListOffsetsTopic(name=self.topic, partitions=asked)]
            request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
            answer = await connection.ask(apis.LIST_OFFSETS, request, timeout_s=CALL_S)
            ends.append(answer.topics[0].partitions[0].offset)
        return ends


@contextlib.asynccontextmanager
async def target_at(bootstrap, partitions=1, config=None):
    target = await asyncio.to_thread(Target, bootstrap, partitions, config)
    yield target
    target.cluster.close()


def values_read(bootstrap, topic, isolation, count):
    """What a consumer of an isolation level reads, until it has so many and nothing behind them."""
    settings = {
        "group.id": "-",
        "enable.auto.commit": False,
        "isolation.level": isolation,
        "enable.partition.eof": True,
    }
    consumer = Consumer({**librdkafka(bootstrap), **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values, deadline = [], Deadline(30)
    try:
        while True:
            deadline.check(f"{count} records of {topic}", values)
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                values.append((message.offset(), message.value()))
            elif message is not None and len(values) >= count:
                return values
    finally:
        consumer.close()


async def test_older_lives_are_refused_and_readers_see_nothing_of_it(kafka):
    async with target_at(kafka.bootstrap) as target:
        first = await target.fence.begin(target.all)
        assert (first.refused, first.is_confirmed) == ({}, True)
        assert await target.send(first, 0, text=b"a") == (NONE, 1)
        assert await target.send(first, 3, text=b"b") == (NONE, 4)
        assert await target.remembered() == {first.producer_id: (0, 5)}
        second = await target.fence.begin(target.all)
        assert second[:2] == (first.producer_id, 1)
        assert await target.remembered() == {first.producer_id: (1, -1)}

        assert await target.send(first, 3, text=b"b") == (FENCED, -1)  # late, with equal bounds
        assert await target.send(first, 6) == (FENCED, -1)  # late, the next one
        assert await target.send(first, 0) == (FENCED, -1)
        assert await target.send(second, 6) == (OUT_OF_ORDER, -1)
        assert await target.send(second, 0, text=b"c") == (NONE, 8)
        assert await target.send(second, 0, text=b"c") == (NONE, 8)  # recognised
        assert await target.ends() == [11, 11]
        expected = [(at, value) for at, value in zip([*range(1, 7), *range(8, 11)], b"aaabbbccc", strict=True)]
        for isolation in ("read_uncommitted", "read_committed"):
            read = await asyncio.to_thread(values_read, kafka.bootstrap, target.topic, isolation, 9)
            assert [(at, value[0]) for at, value in read] == expected


async def test_what_is_young_and_sent_again_as_it_is_is_known_again(kafka):
    """Five batches of a producer are; of older ones, and of those before a start but for the last, it says that."""
    async with target_at(kafka.bootstrap) as target:
        fence = await target.fence.begin(target.all)
        sent = [await target.send(fence, 3 * number) for number in range(6)]
        assert sent == [(NONE, 1 + 3 * number) for number in range(6)]
        again = [await target.send(fence, 3 * number) for number in range(6)]
        assert again == [(OUT_OF_ORDER, -1), *sent[1:]]
        assert await target.send(fence, 18, 4) == (NONE, 19)
        assert await target.ends() == [23, 23]
        target.cluster.close()
        await asyncio.to_thread(kafka.stop)
        await asyncio.to_thread(kafka.start)
        target.cluster = Cluster(ClientSettings(kafka.bootstrap, "fence-test", int(CALL_S * 1000)))
        deadline = Deadline(CALL_S)
        while (told := await target.send(fence, 15)) == (NOT_LEADER, -1):  # it answers before it leads
            deadline.check("the lead after a start", told)
            await asyncio.sleep(0.05)
        assert told == (OUT_OF_ORDER, -1)
        assert await target.send(fence, 18, 4) == (NONE, 19)
        assert await target.send(fence, 22, 1) == (NONE, 23)
        assert await target.ends() == [24, 24]


async def test_more_partitions_are_fenced_while_others_go_on(kafka):
    async with target_at(kafka.bootstrap, 3) as target:
        one, other, third = target.all
        first = await target.fence.begin([one, other])
        assert await target.send(first, 0) == (NONE, 1)
        again = await target.fence.extend([third, one])  # the first has a batch of this epoch already
        assert again == first
        assert await target.send(first, 3) == (NONE, 5)
        second = await target.fence.begin([third])
        assert await target.send(first, 0, partition=2) == (FENCED, -1)
        assert await target.send(first, 6) == (NONE, 8)  # of the others the epoch before stays in force
        assert await target.send(first, 0, partition=1) == (NONE, 1)
        await Fencing(target.cluster, f"edge-{target.topic}", timeout_s=CALL_S).begin([])
        with pytest.raises(ProducerFenced, match="is another's now"):
            await target.fence.extend([one])
        assert second.producer_epoch == 1


async def test_partitions_that_cannot_be_fenced_do_not_spoil_the_others(kafka):
    async with target_at(kafka.bootstrap) as target, target_at(kafka.bootstrap) as denied:
        await asyncio.to_thread(deny, kafka.bootstrap, ResourceType.TOPIC, denied.topic)
        await asyncio.to_thread(deny, kafka.bootstrap, ResourceType.TRANSACTIONAL_ID, f"edge-{denied.topic}")
        nowhere, beyond = ("nowhere", 0), (target.topic, 1)
        fenced = await target.fence.begin([*target.all, *denied.all, nowhere, beyond])
        assert fenced.is_confirmed
        assert fenced.refused == {
            denied.all[0]: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            nowhere: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            beyond: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert await target.send(fenced, 0) == (NONE, 1)
        with pytest.raises(NoFence, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            await denied.fence.begin(target.all)


def deny(bootstrap, resource, name):
    """Keep everybody from writing there; others' rights on it are those that are left."""
    admin = AdminClient(librdkafka(bootstrap))
    for operation, permission in (
        (AclOperation.ALL, AclPermissionType.ALLOW),
        (AclOperation.WRITE, AclPermissionType.DENY),
    ):
        binding = AclBinding(resource, name, ResourcePatternType.LITERAL, "User:*", "*", operation, permission)
        admin.create_acls([binding], request_timeout=CALL_S)[binding].result(CALL_S)


async def test_a_transaction_that_an_older_life_left_open_is_aborted(kafka):
    async with target_at(kafka.bootstrap) as target:
        first = await target.fence.begin([])
        await target.fence._add(target.all, Patience())  # and then it died
        second = await target.fence.begin(target.all)
        assert second.producer_epoch == first.producer_epoch + 2
        assert await target.send(second, 0) == (NONE, 2)


class Patience:
    """What a coordinator that is there needs none of."""

    def begin_anew(self):
        """Nothing to do."""


async def test_with_old_records_older_lives_are_refused_until_the_broker_forgets(kafka):
    """The trap of the whole: the marker's time is now, but the next batch's time takes its place."""
    async with target_at(kafka.bootstrap) as target:
        first = await target.fence.begin(target.all)
        assert await target.send(first, 0, age_s=TWO_DAYS_S) == (NONE, 1)
        second = await target.fence.begin(target.all)
        assert await target.send(first, 3, age_s=TWO_DAYS_S) == (FENCED, -1)
        assert await target.send(second, 0, age_s=TWO_DAYS_S) == (NONE, 5)
        await target.until_forgotten()
        assert await target.send(second, 0, age_s=TWO_DAYS_S) == (NONE, 8)  # sent again, and not recognised
        await target.until_forgotten()
        found = (await target.look(second.producer_id))[target.all[0]]
        assert found.last == Own(second.producer_id, 1, 0, 2, 8, 10)
        assert await target.send(first, 77) == (NONE, 11)  # an older life's, no longer refused
        assert await target.send(second, 3) == (OUT_OF_ORDER, -1)  # by which it is noticed
        assert await target.send(second, 0) == (NONE, 14)
        assert await target.send(first, 80) == (FENCED, -1)


async def test_a_producer_id_whose_epochs_end_is_fenced_for_good(kafka):
    async with target_at(kafka.bootstrap) as target:
        first = await target.fence.begin(target.all)
        name = f"edge-{target.topic}"
        coordinator = await target.cluster.connection(await target.cluster.coordinator_node(name, TRANSACTION), SIDE)
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        epoch = 0
        while epoch < LAST_EPOCH - 1:
            several = min(200, LAST_EPOCH - 1 - epoch)
            asked = [coordinator.send(apis.INIT_PRODUCER_ID, request, timeout_s=CALL_S) for _ in range(several)]
            epoch = max([(await one).producer_epoch for one in asked])
        fenced = await target.fence.begin(target.all)
        assert fenced.producer_id > first.producer_id
        assert fenced.producer_epoch <= 1  # Apache Kafka 4 gives epoch 0 to the abort that ended the old id
        assert (await target.remembered())[first.producer_id] == (LAST_EPOCH + 1, -1)
        assert await target.send((first.producer_id, LAST_EPOCH), 0) == (FENCED, -1)
        code, _ = await target.send(fenced, 0)
        assert code == NONE


async def test_a_look_passes_what_others_wrote_in_many_partitions_at_once(kafka):
    async with target_at(kafka.bootstrap, 4) as target:
        fenced = await target.fence.begin(target.all)
        stranger = await Fencing(target.cluster, f"other-{target.topic}", timeout_s=CALL_S).begin([])
        for partition in (0, 1, 2):
            await target.send(fenced, 0, 5, partition=partition, text=b"y" * 30_000)
        for sequence in range(0, 12, 3):
            await target.send(stranger, sequence, partition=1)
        await target.fence.begin([target.all[1]])
        looks = await target.look(fenced.producer_id, answer_bytes_max=1000)
        own = Own(fenced.producer_id, 0, 0, 4, 1, 5)
        assert looks[target.all[0]] == LookupResult(0, 6, 1, own, -1, True)
        assert looks[target.all[1]] == LookupResult(0, 19, 1, own, 1, True)
        assert looks[target.all[2]].last == own
        assert looks[target.all[3]] == LookupResult(0, 1, 0, None, 0, True, True)  # where that began lies a marker
        short = await target.look(fenced.producer_id, steps_max=2)
        assert (short[target.all[1]].last, short[target.all[1]].is_whole) == (None, False)
        near = await target.look(fenced.producer_id, floor=6)
        assert (near[target.all[1]].last, near[target.all[1]].searched_from) == (None, 6)
        wrong = {target.all[0]: LookupRequest((await target.leaders())[target.all[0]]._replace(epoch=99), frozenset())}
        assert await look_up(target.cluster, wrong, timeout_s=CALL_S) == {target.all[0]: "UNKNOWN_LEADER_EPOCH"}
        nobody = {target.all[0]: LookupRequest((await target.leaders())[target.all[0]]._replace(node=-1), frozenset())}
        assert await look_up(target.cluster, nobody, timeout_s=CALL_S) == {target.all[0]: "it has no leader"}


async def test_a_look_at_a_log_whose_head_was_deleted(kafka):
    async with target_at(kafka.bootstrap) as target:
        fenced = await target.fence.begin(target.all)
        await target.send(fenced, 0)
        admin = AdminClient(librdkafka(kafka.bootstrap))
        deleted = admin.delete_records([TopicPartition(target.topic, 0, 4)], request_timeout=CALL_S)
        await asyncio.to_thread(next(iter(deleted.values())).result, CALL_S)
        assert (await target.look(fenced.producer_id))[target.all[0]] == LookupResult(4, 4, 4, None, -1, True)
        assert await target.remembered() == {fenced.producer_id: (0, 2)}  # a deleted batch is remembered
        assert await target.send(fenced, 3) == (NONE, 4)


async def test_a_look_at_a_log_that_compacts(kafka):
    """The cleaner leaves the last batch of a producer that is remembered, without its records if need be."""
    fast = {"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.0"}
    async with target_at(kafka.bootstrap, 1, fast) as target:
        fenced = await target.fence.begin(target.all)
        stranger = await Fencing(target.cluster, f"other-{target.topic}", timeout_s=CALL_S).begin([])
        for sequence in range(0, 9, 3):
            await target.send(fenced, sequence, key=b"k")
        held, deadline, sequence = [], Deadline(60), 0
        while len(held) > 3 or not held:
            deadline.check("the cleaner", held)
            await target.send(stranger, sequence, 1, key=b"k")
            sequence += 1
            await asyncio.sleep(0.1)
            held = await asyncio.to_thread(read_topic, kafka.bootstrap, target.topic)
        own = (await target.look(fenced.producer_id))[target.all[0]].last
        assert own == Own(fenced.producer_id, 0, 6, 8, 7, 9)
        assert min(read.offset for read in held) > 9


async def test_the_state_topic_has_one_writer(kafka):
    async with target_at(kafka.bootstrap) as target:
        name = f"__{target.topic}-state"
        topic, same = (StateTopic(target.cluster, name, timeout_s=CALL_S) for _ in range(2))
        assert await topic.open()
        assert not await same.open()
        assert topic.topic_id == same.topic_id
        fenced = await target.fence.begin([topic.partition])
        topic.begin(*fenced[:2])
        states = [PartitionState(("t", number), Topics(target.topic, "s", "t")) for number in range(300)]
        for state in states:
            state.begin(state.topics, *fenced[:2], state.resume(TargetLookup(0, 0, 0, None), state.topics), 0)
        writes = [state.write() for state in states]
        await topic.write([write.records for write in writes])
        for state, write in zip(states, writes, strict=True):
            state.write_stored(write)
            state.send([(5, 1)], 0)
        await topic.write([state.write().records for state in states])
        reading = Reading()
        await same.read(reading)
        read = reading.partitions()
        assert len(read) == 300
        assert all(
            PartitionState(at, states[0].topics, one).map.steps[0].source_offset == 5 for at, one in read.items()
        )
        same.begin(*(await target.fence.begin([same.partition]))[:2])
        with pytest.raises(ProducerFenced, match="another mirror's now: INVALID_PRODUCER_EPOCH"):
            await topic.write([[(b"head:t:0", None)]])
        await same.write([[(b"head:t:0", None)]])
        reading = Reading()
        await same.read(reading)
        assert ("t", 0) not in reading.partitions()
        kept = await asyncio.to_thread(topic_settings, kafka.bootstrap, name)
        assert (kept["cleanup.policy"], kept["message.timestamp.type"]) == ("compact", "LogAppendTime")


def topic_settings(bootstrap, name):
    from confluent_kafka.admin import ConfigResource

    admin, asked = AdminClient(librdkafka(bootstrap)), [ConfigResource(ConfigResource.Type.TOPIC, name)]
    (told,) = admin.describe_configs(asked, request_timeout=CALL_S).values()
    return {key: one.value for key, one in told.result(CALL_S).items()}


class Life:
    """A mirror of one partition in few lines: fence, read the state, look, begin, write. Each life is an object."""

    def __init__(self, target, source, age_s):
        self.target, self.source, self.age_s = target, source, age_s
        self.state_topic = StateTopic(target.cluster, f"__{target.topic}-state", timeout_s=CALL_S)
        self.topics = Topics(target.topic, "source", "target")

    async def start(self):
        await self.state_topic.open()
        fenced = await self.target.fence.begin([self.state_topic.partition, *self.target.all])
        self.state_topic.begin(*fenced[:2])
        reading = Reading()
        await self.state_topic.read(reading)
        self.state = PartitionState(("source", 0), self.topics, reading.partitions().get(("source", 0)))
        seen = (await self.target.look(fenced.producer_id, floor=max(0, self.state.map.end.target_offset - 1)))[
            self.target.all[0]
        ]
        assert seen.marker_epoch == fenced.producer_epoch
        resumed = self.state.resume(
            TargetLookup(seen.start_offset, seen.end_offset, seen.searched_from, seen.last), self.topics
        )
        self.state.begin(self.topics, *fenced[:2], resumed, seen.end_offset)
        self.at = resumed.source_offset
        return resumed

    async def send(self, count, *, answered=True):
        offsets = [offset for offset in self.source if offset >= self.at][:count]
        runs = []
        for offset in offsets:
            if runs and sum(runs[-1]) == offset:
                runs[-1] = (runs[-1][0], runs[-1][1] + 1)
            else:
                runs.append((offset, 1))
        sent = self.state.send(runs, 0)
        if not self.state.may_go(sent):
            write = self.state.write()
            await self.state_topic.write([write.records])
            self.state.write_stored(write)
        producer = self.state.session[:2]
        now = int((time.time() - self.age_s) * 1000)
        batch = make_batch(
            [(None, b"%d" % offset, now) for offset in offsets], producer=(*producer, sent.base_sequence)
        )
        connection = await self.target.cluster.connection((await self.target.leaders())[self.target.all[0]].node)
        data = [PartitionProduceData(index=0, records=batch)]
        topics = [TopicProduceData(name=self.target.topic, partition_data=data)]
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)
        told = (await connection.ask(apis.PRODUCE, request, timeout_s=CALL_S)).responses[0].partition_responses[0]
        assert told.error_code == 0, error_name(told.error_code)
        self.at = offsets[-1] + 1
        if answered:
            assert self.state.batch_acked(told.base_offset) == 0


@pytest.mark.parametrize("age_s", [0, TWO_DAYS_S])
async def test_a_backlog_arrives_once_over_lives_that_end_without_an_answer(kafka, age_s):
    source = [offset for offset in range(40) if offset % 7]
    async with target_at(kafka.bootstrap) as target:
        life = Life(target, source, age_s)
        assert (await life.start()).verdict == "position"
        for _ in range(3):
            await life.send(4)
            await life.send(4, answered=False)
            if age_s:
                await target.until_forgotten()
            life = Life(target, source, age_s)
            resumed = await life.start()
            assert (resumed.verdict, resumed.lost) == ("found", 0)
        while any(offset >= life.at for offset in source):
            await life.send(5)
        read = await asyncio.to_thread(read_topic, kafka.bootstrap, target.topic)
        assert [int(one.value) for one in read] == source
        there = {int(one.value): one.offset for one in read}
        assert {offset: life.state.map.to_target(offset).offset for offset in source[:-1]} == {
            offset: there[offset] for offset in source[:-1]
        }


async def test_the_edge_broker_says_that_it_has_no_fence(tmp_path):
    with EdgeBroker(tmp_path) as broker:
        async with target_at(broker.bootstrap) as target:
            with pytest.raises(NoFence, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
                await target.fence.begin(target.all)
            topic = StateTopic(target.cluster, "__edge-mirror-lab-state", timeout_s=CALL_S)
            assert await topic.open()
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            connection = await target.cluster.any_connection()
            producer = await connection.ask(apis.INIT_PRODUCER_ID, request, timeout_s=CALL_S)
            topic.begin(producer.producer_id, 0)
            state = PartitionState(("t", 0), Topics("t", None, None))
            state.begin(
                state.topics, producer.producer_id, 0, state.resume(TargetLookup(0, 0, 0, None), state.topics), 0
            )
            await topic.write([state.write().records])
            reading = Reading()
            await topic.read(reading)
            assert reading.partitions().keys() == {("t", 0)}
            assert await target.send((producer.producer_id, 0), 0) == (NONE, 0)
            assert await target.send((producer.producer_id, 0), 3) == (NONE, 3)
            found = (await target.look(producer.producer_id))[target.all[0]]
            assert found == LookupResult(0, 6, 3, Own(producer.producer_id, 0, 3, 5, 3, 5), -1, True)
            told = await producers(target.cluster, await target.leaders(), timeout_s=CALL_S)
            assert "none of DescribeProducers" in told[target.all[0]]
