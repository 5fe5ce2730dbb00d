"""aiokafka (asyncio; the client of our own gateway and mirror) against the broker as a real process."""

import asyncio
import contextlib
import uuid

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import (
    CommitFailedError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from aiokafka.structs import OffsetAndMetadata

from tests.support.conformance.limits import MESSAGE_BYTES_MAX
from tests.support.entries import aiokafka
from tests.support.kafka_reading import read_topic
from tests.support.waiting import CALL_S, wait_until

VALUES = [f"value {number}".encode() for number in range(200)]
DEADLINE_S = 20


@contextlib.asynccontextmanager
async def _producer(bootstrap, **settings):
    async with AIOKafkaProducer(**aiokafka(bootstrap), retry_backoff_ms=20, **settings) as producer:
        yield producer


@contextlib.asynccontextmanager
async def _consumer(bootstrap, *topics, **settings):
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 300, **settings}
    async with AIOKafkaConsumer(*topics, **aiokafka(bootstrap), session_timeout_ms=6000, **settings) as consumer:
        yield consumer


async def _send(producer, topic, values, partitions=1):
    """Send values, all in flight together, and return their offsets."""
    waiting = []
    for number, value in enumerate(values):
        headers = [("n", b"%d" % number)]
        time_ms = 1_700_000_000_000 + number
        waiting.append(
            await producer.send(
                topic, value, key=b"%d" % number, partition=number % partitions, timestamp_ms=time_ms, headers=headers
            )
        )
    return [done and done.offset for done in await asyncio.gather(*waiting)]  # no answer, no offset


async def _take(consumer, count):
    async with asyncio.timeout(CALL_S):
        return [await consumer.getone() for _ in range(count)]


async def _until(condition, what):
    await asyncio.to_thread(wait_until, condition, DEADLINE_S, what)


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_produce_and_consume(broker, new_topic, group, codec):
    topic = new_topic()
    async with _producer(broker.bootstrap, compression_type=codec, linger_ms=5) as producer:
        assert await _send(producer, topic, VALUES) == list(range(len(VALUES)))
    async with _consumer(broker.bootstrap, topic, group_id=group) as consumer:
        records = await _take(consumer, len(VALUES))
    assert [record.value for record in records] == VALUES
    assert [record.offset for record in records] == list(range(len(VALUES)))
    assert records[7].key == b"7"
    assert records[7].headers == (("n", b"7"),)
    assert records[7].timestamp == 1_700_000_000_007


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_every_acks_setting_stores_the_records(broker, new_topic, acks):
    topic = new_topic()
    async with _producer(broker.bootstrap, acks=acks) as producer:
        await _send(producer, topic, VALUES)
    async with _consumer(broker.bootstrap, topic) as consumer:
        assert [record.value for record in await _take(consumer, len(VALUES))] == VALUES


async def test_a_consumer_at_the_end_gets_what_comes(broker, new_topic):
    topic = new_topic()
    async with _consumer(broker.bootstrap, topic, auto_offset_reset="latest") as consumer:
        await consumer.seek_to_end()
        waiting = asyncio.ensure_future(_take(consumer, 3))
        async with _producer(broker.bootstrap) as producer:
            await _send(producer, topic, VALUES[:3])
        assert [record.value for record in await waiting] == VALUES[:3]


async def test_offsets_of_times_and_ends(broker, new_topic):
    topic = new_topic()
    place = TopicPartition(topic, 0)
    async with _producer(broker.bootstrap, acks="all") as producer:
        await _send(producer, topic, VALUES)
    async with _consumer(broker.bootstrap, topic) as consumer:
        assert await consumer.beginning_offsets([place]) == {place: 0}
        assert await consumer.end_offsets([place]) == {place: 200}
        found = await consumer.offsets_for_times({place: 1_700_000_000_050})
        assert found[place].offset == 50


async def test_rebalance_of_two_members(broker, new_topic, group):
    topic = new_topic(4)
    seen = []

    async def read(consumer):
        async for record in consumer:
            seen.append(record.value)

    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(_consumer(broker.bootstrap, topic, group_id=group))
        readers = [asyncio.ensure_future(read(first))]
        await _until(lambda: len(first.assignment()) == 4, "the first member has all partitions")
        async with _consumer(broker.bootstrap, topic, group_id=group) as second:
            readers.append(asyncio.ensure_future(read(second)))
            await _until(lambda: len(first.assignment()) == len(second.assignment()) == 2, "each has two")
            assert not first.assignment() & second.assignment()
            async with _producer(broker.bootstrap) as producer:
                await _send(producer, topic, VALUES, partitions=4)
            await _until(lambda: len(seen) >= len(VALUES), "both together read everything")
            assert sorted(seen) == sorted(VALUES)
            readers[1].cancel()
        await _until(lambda: len(first.assignment()) == 4, "the first member has all partitions")
        readers[0].cancel()


class _Counter(ConsumerRebalanceListener):
    def __init__(self):
        self.assigned = 0

    async def on_partitions_revoked(self, revoked):
        pass

    async def on_partitions_assigned(self, assigned):
        self.assigned += 1


async def test_commit_and_resume(broker, new_topic, group):
    topic = new_topic()
    place = TopicPartition(topic, 0)
    async with _producer(broker.bootstrap) as producer:
        await _send(producer, topic, VALUES)
    async with _consumer(broker.bootstrap, topic, group_id=group) as consumer:
        await _take(consumer, 80)
        await consumer.commit({place: OffsetAndMetadata(80, "half way")})
    listener = _Counter()
    async with _consumer(broker.bootstrap, group_id=group) as consumer:
        consumer.subscribe([topic], listener=listener)
        assert [record.value for record in await _take(consumer, 120)] == VALUES[80:]
        assert listener.assigned == 1
        assert await consumer.committed(place) == 80


async def test_a_commit_by_a_stranger_is_refused_while_there_are_members(broker, new_topic, group):
    topic = new_topic()
    place = TopicPartition(topic, 0)
    async with (
        _consumer(broker.bootstrap, topic, group_id=group) as member,
        _consumer(broker.bootstrap, group_id=group) as stranger,
    ):
        await _until(member.assignment, "it is a member")
        stranger.assign([place])
        with pytest.raises(CommitFailedError):
            await stranger.commit({place: 5})


@pytest.mark.parametrize("after", [0, 3])
async def test_idempotent_retry_stores_no_duplicate(strict, new_strict_topic, after):
    topic = new_strict_topic()
    strict.thief.steal(2, after=after)
    async with _producer(strict.bootstrap, enable_idempotence=True, max_batch_size=1000) as producer:
        assert await _send(producer, topic, VALUES) == list(range(len(VALUES)))
    assert strict.thief.stolen == 2
    reads = await asyncio.to_thread(read_topic, strict.bootstrap, topic)
    assert [read.value for read in reads] == VALUES


async def test_a_message_above_the_limit_is_refused_and_the_next_is_taken(broker, new_topic):
    topic = new_topic()
    async with _producer(broker.bootstrap, max_request_size=8_000_000) as producer:
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(topic, bytes(MESSAGE_BYTES_MAX))
        assert (await producer.send_and_wait(topic, b"small")).offset == 0


async def test_an_unknown_topic_is_never_found(strict):
    topic = f"unknown-{uuid.uuid4().hex[:8]}"
    async with _producer(strict.bootstrap, request_timeout_ms=1500) as producer:
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.send_and_wait(topic, b"lost")
    async with _consumer(strict.bootstrap) as consumer:
        assert topic not in await consumer.topics()


async def test_an_offset_out_of_range_is_an_error(broker, new_topic):
    topic = new_topic()
    place = TopicPartition(topic, 0)
    async with _producer(broker.bootstrap) as producer:
        await _send(producer, topic, VALUES[:5])
    async with _consumer(broker.bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([place])
        consumer.seek(place, 6)
        with pytest.raises(OffsetOutOfRangeError) as raised:
            await _take(consumer, 1)
        assert raised.value.args[0] == {place: 6}


async def test_a_topic_is_created_when_a_producer_asks_for_it(broker):
    topic = f"auto-{uuid.uuid4().hex[:8]}"
    async with _producer(broker.bootstrap) as producer:
        assert (await producer.send_and_wait(topic, b"first")).offset == 0


async def test_topics_are_created_and_deleted(broker):
    topic = f"admin-{uuid.uuid4().hex[:8]}"
    admin = AIOKafkaAdminClient(**aiokafka(broker.bootstrap))
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
        assert topic in await admin.list_topics()
        await admin.delete_topics([topic])
        assert topic not in await admin.list_topics()
    finally:
        await admin.close()
