"""kafka-python 3 (threads, newest protocol versions of the Python clients) against the broker as a real process."""

import contextlib
import threading
import uuid

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import CommitFailedError, KafkaTimeoutError, MessageSizeTooLargeError, OffsetOutOfRangeError
from kafka.structs import OffsetAndMetadata

from tests.support.conformance.limits import MESSAGE_BYTES_MAX
from tests.support.entries import kafka_python
from tests.support.kafka_reading import read_topic
from tests.support.processes import wait_until
from tests.support.waiting import CALL_S

VALUES = [f"value {number}".encode() for number in range(200)]


@contextlib.contextmanager
def _producer(bootstrap, **settings):
    producer = KafkaProducer(**kafka_python(bootstrap), retry_backoff_ms=20, **settings)
    try:
        yield producer
    finally:
        producer.close(timeout=CALL_S)


@contextlib.contextmanager
def _consumer(bootstrap, *topics, **settings):
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 300, **settings}
    consumer = KafkaConsumer(*topics, **kafka_python(bootstrap), session_timeout_ms=6000, **settings)
    try:
        yield consumer
    finally:
        consumer.close()


def _send(producer, topic, values, partitions=1):
    waiting = [
        producer.send(
            topic,
            value,
            key=b"%d" % number,
            partition=number % partitions,
            timestamp_ms=1_700_000_000_000 + number,
            headers=[("n", b"%d" % number)],
        )
        for number, value in enumerate(values)
    ]
    producer.flush(timeout=CALL_S)
    return [done.get(timeout=CALL_S).offset for done in waiting]


def _poll(consumer, timeout_ms=2000):
    """Poll; not for less time than a join takes: one that ends between two polls is forgotten by kafka-python 3.0."""
    return [record for records in consumer.poll(timeout_ms=timeout_ms).values() for record in records]


def _take(consumer, count):
    taken = []

    def enough():
        taken.extend(_poll(consumer))
        return len(taken) >= count

    wait_until(enough, 20, f"{count} records", poll_s=0)
    return taken


@pytest.mark.parametrize("codec", [None, "gzip"])  # the others need packages that nothing else here does
def test_produce_and_consume(broker, new_topic, group, codec):
    topic = new_topic()
    with _producer(broker.bootstrap, compression_type=codec, linger_ms=5) as producer:
        assert _send(producer, topic, VALUES) == list(range(len(VALUES)))
    with _consumer(broker.bootstrap, topic, group_id=group) as consumer:
        records = _take(consumer, len(VALUES))
    assert [record.value for record in records] == VALUES
    assert [record.offset for record in records] == list(range(len(VALUES)))
    assert records[7].key == b"7"
    assert [tuple(header) for header in records[7].headers] == [("n", b"7")]
    assert records[7].timestamp == 1_700_000_000_007


@pytest.mark.parametrize("acks", [0, 1])
def test_weaker_acks_store_the_records(broker, new_topic, acks):
    topic = new_topic()
    with _producer(broker.bootstrap, acks=acks, enable_idempotence=False) as producer:
        _send(producer, topic, VALUES)
    with _consumer(broker.bootstrap, topic) as consumer:
        assert [record.value for record in _take(consumer, len(VALUES))] == VALUES


def test_offsets_of_times_and_ends(broker, new_topic):
    topic = new_topic()
    place = TopicPartition(topic, 0)
    with _producer(broker.bootstrap) as producer:
        _send(producer, topic, VALUES)
    with _consumer(broker.bootstrap) as consumer:
        assert consumer.beginning_offsets([place]) == {place: 0}
        assert consumer.end_offsets([place]) == {place: 200}
        assert consumer.offsets_for_times({place: 1_700_000_000_050})[place].offset == 50
        assert consumer.offsets_for_times({place: 1_700_000_001_000})[place] is None


class _Member(threading.Thread):
    """A group member in a thread of its own: kafka-python's consumers are not for sharing between threads."""

    def __init__(self, bootstrap, topic, group):
        super().__init__(daemon=True)
        self.assignment, self.seen, self.error = set(), [], None
        self._settings = (bootstrap, topic), {"group_id": group}
        self._leave = threading.Event()

    def run(self):
        places, settings = self._settings
        try:
            with _consumer(*places, **settings) as consumer:
                while not self._leave.is_set():
                    self.seen += [record.value for record in _poll(consumer)]
                    self.assignment = {place.partition for place in consumer.assignment()}
        except Exception as error:  # noqa: BLE001 - handed to the test by leave()
            self.error = error

    def leave(self):
        self._leave.set()
        self.join(CALL_S)
        assert not self.is_alive()
        assert self.error is None


def test_rebalance_of_two_members(broker, new_topic, group):
    topic = new_topic(4)
    first, second = _Member(broker.bootstrap, topic, group), _Member(broker.bootstrap, topic, group)
    first.start()
    wait_until(lambda: first.assignment == {0, 1, 2, 3}, 20, "the first member has all partitions")
    second.start()
    wait_until(lambda: len(first.assignment) == len(second.assignment) == 2, 20, "each has two partitions")
    assert first.assignment | second.assignment == {0, 1, 2, 3}
    with _producer(broker.bootstrap) as producer:
        _send(producer, topic, VALUES, partitions=4)
    wait_until(lambda: len(first.seen) + len(second.seen) >= len(VALUES), 20, "both together read everything")
    assert sorted(first.seen + second.seen) == sorted(VALUES)
    second.leave()
    wait_until(lambda: first.assignment == {0, 1, 2, 3}, 20, "the first member has all partitions again")
    first.leave()


def test_commit_and_resume(broker, new_topic, group):
    topic = new_topic()
    place = TopicPartition(topic, 0)
    with _producer(broker.bootstrap) as producer:
        _send(producer, topic, VALUES)
    with _consumer(broker.bootstrap, topic, group_id=group) as consumer:
        _take(consumer, 80)
        consumer.commit({place: OffsetAndMetadata(80, "half way", -1)})
    with _consumer(broker.bootstrap, topic, group_id=group) as consumer:
        assert [record.value for record in _take(consumer, 120)] == VALUES[80:]
        found = consumer.committed(place, metadata=True)
        assert (found.offset, found.metadata) == (80, "half way")


def test_a_commit_by_a_stranger_is_refused_while_there_are_members(broker, new_topic, group):
    topic = new_topic()
    member = _Member(broker.bootstrap, topic, group)
    member.start()
    wait_until(lambda: member.assignment, 20, "it is a member")
    place = TopicPartition(topic, 0)
    with _consumer(broker.bootstrap, group_id=group) as stranger:
        stranger.assign([place])
        with pytest.raises(CommitFailedError, match="UnknownMemberId"):
            stranger.commit({place: OffsetAndMetadata(5, "", -1)})
    member.leave()


@pytest.mark.parametrize("after", [0, 3])
def test_idempotent_retry_stores_no_duplicate(strict, new_strict_topic, after):
    topic = new_strict_topic()
    strict.thief.steal(2, after=after)
    with _producer(strict.bootstrap, enable_idempotence=True, batch_size=1000) as producer:
        assert _send(producer, topic, VALUES) == list(range(len(VALUES)))
    assert strict.thief.stolen == 2
    assert [read.value for read in read_topic(strict.bootstrap, topic)] == VALUES


def test_a_message_above_the_limit_is_refused_and_the_next_is_taken(broker, new_topic):
    topic = new_topic()
    with _producer(broker.bootstrap, max_request_size=8_000_000) as producer, pytest.raises(MessageSizeTooLargeError):
        producer.send(topic, bytes(MESSAGE_BYTES_MAX)).get(timeout=CALL_S)
    with _producer(broker.bootstrap) as producer:
        assert producer.send(topic, b"small").get(timeout=CALL_S).offset == 0


def test_an_unknown_topic_is_never_found(strict):
    topic = f"unknown-{uuid.uuid4().hex[:8]}"
    with _producer(strict.bootstrap, max_block_ms=1500) as producer, pytest.raises(KafkaTimeoutError):
        producer.send(topic, b"lost").get(timeout=CALL_S)
    with _consumer(strict.bootstrap) as consumer:
        assert topic not in consumer.topics()


def test_an_offset_out_of_range_is_an_error(broker, new_topic):
    topic = new_topic()
    place = TopicPartition(topic, 0)
    with _producer(broker.bootstrap) as producer:
        _send(producer, topic, VALUES[:5])
    with _consumer(broker.bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([place])
        consumer.seek(place, 6)
        with pytest.raises(OffsetOutOfRangeError):
            wait_until(lambda: _poll(consumer), 20, "an error")


def test_topics_are_created_and_deleted(broker):
    topic = f"admin-{uuid.uuid4().hex[:8]}"
    admin = KafkaAdminClient(**kafka_python(broker.bootstrap))
    try:
        admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
        wait_until(lambda: topic in admin.list_topics(), 10, "the topic is listed")
        admin.delete_topics([topic])
        wait_until(lambda: topic not in admin.list_topics(), 10, "the topic is gone")
    finally:
        admin.close()
