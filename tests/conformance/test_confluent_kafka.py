"""confluent-kafka (librdkafka) against the broker as a real process."""

import uuid

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.support.conformance.limits import MESSAGE_BYTES_MAX
from tests.support.entries import librdkafka
from tests.support.kafka_reading import read_topic
from tests.support.processes import ApacheKafka, wait_until
from tests.support.waiting import CALL_S

VALUES = [f"value {number}".encode() for number in range(300)]


def _produce(bootstrap, topic, values, partitions=1, **settings):
    """Produce and return the delivered (partition, offset), in order of production; a failed delivery raises."""
    producer = Producer({**librdkafka(bootstrap), "linger.ms": 5, **settings})
    delivered = []

    def on_delivery(error, message):
        delivered.append(error if error is not None else (message.partition(), message.offset()))

    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            key=b"%d" % number,
            partition=number % partitions,
            headers=[("n", b"%d" % number)],
            timestamp=1_700_000_000_000 + number,
            on_delivery=on_delivery,
        )
    assert producer.flush(CALL_S) == 0
    for error in delivered:
        if isinstance(error, KafkaError):
            raise KafkaException(error)
    return delivered


def _consumer(bootstrap, group, **settings):
    return Consumer(
        {
            **librdkafka(bootstrap),
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 300,
            **settings,
        }
    )


def _take(consumer, count, deadline_s=30.0):
    """Consume at least `count` records."""
    taken = []

    def enough():
        for message in consumer.consume(count, timeout=0.1):
            if message.error():
                raise KafkaException(message.error())
            taken.append(message)
        return len(taken) >= count

    wait_until(enough, deadline_s, f"{count} records", poll_s=0)
    return taken


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_and_consume(broker, new_topic, group, codec):
    topic = new_topic()
    delivered = _produce(broker.bootstrap, topic, VALUES, **{"compression.type": codec})
    assert delivered == [(0, offset) for offset in range(len(VALUES))]
    consumer = _consumer(broker.bootstrap, group)
    consumer.subscribe([topic])
    messages = _take(consumer, len(VALUES))
    consumer.close()
    assert [message.value() for message in messages] == VALUES
    assert [message.offset() for message in messages] == list(range(len(VALUES)))
    assert [message.key() for message in messages] == [b"%d" % number for number in range(len(VALUES))]
    assert messages[7].headers() == [("n", b"7")]
    assert messages[7].timestamp()[1] == 1_700_000_000_007


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_acks_setting_stores_the_records(broker, new_topic, acks):
    topic = new_topic()
    _produce(broker.bootstrap, topic, VALUES, acks=acks)
    wait_until(
        lambda: len(read_topic(broker.bootstrap, topic)) == len(VALUES), 10, "all records are stored", poll_s=0.2
    )


def test_a_topic_is_created_when_a_producer_asks_for_it(broker):
    topic = f"auto-{uuid.uuid4().hex[:8]}"
    assert _produce(broker.bootstrap, topic, VALUES[:3]) == [(0, 0), (0, 1), (0, 2)]
    assert len(read_topic(broker.bootstrap, topic)) == 3


def test_offsets_of_a_time(broker, new_topic, group):
    topic = new_topic()
    _produce(broker.bootstrap, topic, VALUES)
    consumer = _consumer(broker.bootstrap, group)
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=CALL_S) == (0, 300)
    asked = [TopicPartition(topic, 0, 1_700_000_000_100)]
    assert consumer.offsets_for_times(asked, timeout=CALL_S)[0].offset == 100
    late = [TopicPartition(topic, 0, 1_700_000_001_000)]
    assert consumer.offsets_for_times(late, timeout=CALL_S)[0].offset == -1
    consumer.close()


def test_rebalance_of_two_members(broker, new_topic, group):
    topic = new_topic(4)
    first, second = _consumer(broker.bootstrap, group), _consumer(broker.bootstrap, group)
    members = (first, second)
    seen = []

    def owned(*expected):
        for member in members:
            seen.extend(message.value() for message in member.consume(100, timeout=0.05))
        return tuple(len(member.assignment()) for member in members) == expected

    first.subscribe([topic])
    members = (first,)
    wait_until(lambda: owned(4), 20, "the first member has all partitions", poll_s=0)
    second.subscribe([topic])
    members = (first, second)
    wait_until(lambda: owned(2, 2), 20, "each member has two partitions", poll_s=0)
    parts = [{place.partition for place in member.assignment()} for member in members]
    assert parts[0] | parts[1] == {0, 1, 2, 3}
    _produce(broker.bootstrap, topic, VALUES, partitions=4)
    wait_until(lambda: owned(2, 2) and len(seen) >= 300, 20, "both together read everything", poll_s=0)
    assert sorted(seen) == sorted(VALUES)
    second.close()
    members = (first,)
    wait_until(lambda: owned(4), 20, "the first member has all partitions again", poll_s=0)
    first.close()


def test_a_cooperative_rebalance_of_two_members(broker, new_topic, group):
    topic = new_topic(4)
    settings = {"partition.assignment.strategy": "cooperative-sticky"}
    members = [_consumer(broker.bootstrap, group, **settings) for _ in range(2)]
    members[0].subscribe([topic])
    wait_until(lambda: members[0].consume(1, 0.05) or len(members[0].assignment()) == 4, 20, "four owned", poll_s=0)
    members[1].subscribe([topic])

    def shared():
        for member in members:
            member.consume(1, timeout=0.05)
        return [len(member.assignment()) for member in members] == [2, 2]

    wait_until(shared, 20, "each member has two partitions", poll_s=0)
    for member in members:
        member.close()


def test_commit_and_resume(broker, new_topic, group):
    topic = new_topic()
    _produce(broker.bootstrap, topic, VALUES)
    consumer = _consumer(broker.bootstrap, group)
    consumer.subscribe([topic])
    _take(consumer, 120)
    committed = consumer.commit(offsets=[TopicPartition(topic, 0, 120, metadata="half way")], asynchronous=False)
    assert committed[0].error is None
    consumer.close()
    resumed = _consumer(broker.bootstrap, group)
    found = resumed.committed([TopicPartition(topic, 0)], timeout=CALL_S)[0]
    assert (found.offset, found.metadata) == (120, "half way")
    resumed.subscribe([topic])
    assert [message.value() for message in _take(resumed, 180)] == VALUES[120:]
    resumed.close()


def test_a_commit_from_an_old_generation_is_refused(broker, new_topic, group):
    topic = new_topic()
    member = _consumer(broker.bootstrap, group)
    member.subscribe([topic])
    wait_until(lambda: member.consume(1, 0.05) or member.assignment(), 20, "it is a member", poll_s=0)
    stranger = _consumer(broker.bootstrap, group)
    with pytest.raises(KafkaException) as raised:
        stranger.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    assert raised.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
    stranger.close()
    member.close()


@pytest.mark.parametrize("after", [0, 3])
def test_idempotent_retry_stores_no_duplicate(strict, new_strict_topic, after):
    topic = new_strict_topic()
    settings = {"enable.idempotence": True, "batch.num.messages": 25, "retry.backoff.ms": 20}
    strict.thief.steal(2, after=after)
    delivered = _produce(strict.bootstrap, topic, VALUES, **settings)
    assert strict.thief.stolen == 2
    assert [offset for _, offset in delivered] == list(range(len(VALUES)))
    assert [read.value for read in read_topic(strict.bootstrap, topic)] == VALUES


def test_the_second_batch_of_a_new_producer_is_not_taken_where_the_first_was_refused(
    strict, new_strict_topic, broker_class
):
    """Else librdkafka takes the answer for one of both. Apache Kafka takes it, and loses the first record so."""
    topic, first = new_strict_topic(), int(broker_class is ApacheKafka)
    settings = {"enable.idempotence": True, "batch.num.messages": 1, "linger.ms": 0, "retry.backoff.ms": 20}
    strict.thief.spoil(VALUES[0])
    delivered = _produce(strict.bootstrap, topic, VALUES[:5], **settings)
    assert not strict.thief.spoils
    assert len(delivered) == 5
    assert [read.value for read in read_topic(strict.bootstrap, topic)] == VALUES[first:5]


def test_an_idempotent_producer_goes_on_where_its_topic_was_deleted_and_made_again(broker, new_topic):
    topic, admin = new_topic(), AdminClient(librdkafka(broker.bootstrap))
    delivered: list[object] = []
    producer = Producer({**librdkafka(broker.bootstrap), "enable.idempotence": True, "linger.ms": 0})

    def produce(value):
        producer.produce(topic, value, on_delivery=lambda error, message: delivered.append(error or message.offset()))
        assert producer.flush(CALL_S) == 0

    for value in VALUES[:3]:
        produce(value)
    admin.delete_topics([topic])[topic].result(CALL_S)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(CALL_S)
    for value in VALUES[3:6]:
        produce(value)
    assert delivered == [0, 1, 2, 0, 1, 2]


def test_the_same_fault_does_duplicate_without_idempotence(strict, new_strict_topic):
    """The control: the stolen answer belongs to a batch that was stored."""
    topic = new_strict_topic()
    strict.thief.steal()
    _produce(strict.bootstrap, topic, VALUES[:10], **{"retry.backoff.ms": 20, "linger.ms": 200})
    assert strict.thief.stolen == 1
    assert [read.value for read in read_topic(strict.bootstrap, topic)] == VALUES[:10] * 2


def test_a_message_above_the_limit_is_refused_and_the_next_is_taken(broker, new_topic):
    topic = new_topic()
    with pytest.raises(KafkaException) as raised:
        _produce(broker.bootstrap, topic, [bytes(MESSAGE_BYTES_MAX)], **{"message.max.bytes": 8_000_000})
    assert raised.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert _produce(broker.bootstrap, topic, [b"small"]) == [(0, 0)]


def test_an_unknown_topic_is_an_error_for_consumer_and_producer(strict, group):
    consumer = _consumer(strict.bootstrap, group)
    consumer.subscribe(["no-such-topic"])
    message = wait_until(lambda: consumer.poll(0.5), 20, "an error event", poll_s=0)
    assert message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    consumer.close()
    with pytest.raises(KafkaException) as raised:
        _produce(strict.bootstrap, "no-such-topic", [b"x"], **{"topic.metadata.propagation.max.ms": 500})
    assert raised.value.args[0].code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)


def test_an_offset_out_of_range_is_an_error(broker, new_topic, group):
    topic = new_topic()
    _produce(broker.bootstrap, topic, VALUES[:5])
    consumer = _consumer(broker.bootstrap, group, **{"auto.offset.reset": "error"})
    consumer.assign([TopicPartition(topic, 0, 6)])
    message = wait_until(lambda: consumer.poll(0.5), 20, "an error event", poll_s=0)
    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
    assert "out of range" in message.error().str().lower()
    consumer.close()


def test_topics_are_created_described_and_deleted(broker):
    admin, topic = AdminClient(librdkafka(broker.bootstrap)), f"admin-{uuid.uuid4().hex[:8]}"
    new = NewTopic(topic, num_partitions=3, replication_factor=1, config={"cleanup.policy": "compact"})
    admin.create_topics([new])[topic].result(CALL_S)
    with pytest.raises(KafkaException) as raised:
        admin.create_topics([new])[topic].result(CALL_S)
    assert raised.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    wait_until(lambda: len(admin.list_topics(timeout=CALL_S).topics[topic].partitions) == 3, 10, "three partitions")
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    configs = admin.describe_configs([resource])[resource].result(CALL_S)
    assert configs["cleanup.policy"].value == "compact"
    assert not configs["cleanup.policy"].is_default
    admin.delete_topics([topic])[topic].result(CALL_S)
    wait_until(lambda: topic not in admin.list_topics(timeout=CALL_S).topics, 10, "the topic is gone")


def test_a_topic_is_altered_while_it_is_used(broker, new_topic):
    admin, topic = AdminClient(librdkafka(broker.bootstrap)), new_topic()
    _produce(broker.bootstrap, topic, VALUES[:10])

    def alter(key, value, operation):
        entry = ConfigEntry(key, value, incremental_operation=operation)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(CALL_S)

    def is_described(key, value):
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        return admin.describe_configs([resource])[resource].result(CALL_S)[key].value == value

    alter("max.message.bytes", "1000", AlterConfigOpType.SET)
    wait_until(lambda: is_described("max.message.bytes", "1000"), CALL_S, "the new configuration")
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        _produce(broker.bootstrap, topic, [bytes(2000)])
    alter("max.message.bytes", None, AlterConfigOpType.DELETE)
    wait_until(lambda: is_described("max.message.bytes", "1048588"), CALL_S, "the default")
    _produce(broker.bootstrap, topic, [bytes(2000)])
    alter("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    wait_until(lambda: is_described("cleanup.policy", "delete,compact"), CALL_S, "the longer list")
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        alter("retention.ms", "soon", AlterConfigOpType.SET)


def test_records_are_deleted_and_readers_begin_behind_them(broker, new_topic, group):
    admin, topic = AdminClient(librdkafka(broker.bootstrap)), new_topic()
    _produce(broker.bootstrap, topic, VALUES)
    place = TopicPartition(topic, 0, 123)
    assert admin.delete_records([place])[place].result(CALL_S).low_watermark == 123
    consumer = _consumer(broker.bootstrap, group)
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=CALL_S) == (123, len(VALUES))
    consumer.subscribe([topic])
    assert [message.value() for message in _take(consumer, len(VALUES) - 123)] == VALUES[123:]
    consumer.close()
    beyond = TopicPartition(topic, 0, len(VALUES) + 1)
    with pytest.raises(KafkaException, match="OFFSET_OUT_OF_RANGE"):
        admin.delete_records([beyond])[beyond].result(CALL_S)


def test_a_topic_gets_more_partitions_and_readers_find_them(broker, new_topic, group):
    admin, topic = AdminClient(librdkafka(broker.bootstrap)), new_topic()
    _produce(broker.bootstrap, topic, VALUES[:10])
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(CALL_S)
    with pytest.raises(KafkaException, match="INVALID_PARTITIONS"):
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(CALL_S)

    def there():
        return len(admin.list_topics(topic, timeout=CALL_S).topics[topic].partitions)

    wait_until(lambda: there() == 3, CALL_S, "three partitions")
    _produce(broker.bootstrap, topic, VALUES[:30], partitions=3)
    consumer = _consumer(broker.bootstrap, group)
    consumer.subscribe([topic])
    taken = _take(consumer, 40)
    consumer.close()
    assert {message.partition() for message in taken} == {0, 1, 2}


def test_a_group_and_its_offsets_are_deleted(broker, new_topic, group):
    admin, topic, name = AdminClient(librdkafka(broker.bootstrap)), new_topic(), group
    _produce(broker.bootstrap, topic, VALUES[:10])
    consumer = _consumer(broker.bootstrap, name)
    consumer.subscribe([topic])
    _take(consumer, 10)
    consumer.commit(asynchronous=False)
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([name])[name].result(CALL_S)
    consumer.close()
    admin.delete_consumer_groups([name])[name].result(CALL_S)
    with pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"):
        admin.delete_consumer_groups([name])[name].result(CALL_S)
    again = _consumer(broker.bootstrap, name)
    assert again.committed([TopicPartition(topic, 0)], timeout=CALL_S)[0].offset < 0
    again.subscribe([topic])
    assert len(_take(again, 10)) == 10
    again.close()


def test_the_cluster_is_described(broker):
    found = AdminClient(librdkafka(broker.bootstrap)).list_topics(timeout=CALL_S)
    assert found.cluster_id
    assert [f"{node.host}:{node.port}" for node in found.brokers.values()] == [broker.bootstrap]
