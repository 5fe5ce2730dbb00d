"""What a broker really holds, read by librdkafka without a group: the impartial second look of many tests."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from tests.support.entries import librdkafka
from tests.support.waiting import CALL_S, Deadline, wait_until

TRY_S = 30.0


@dataclass(frozen=True, slots=True)
class Read:
    """One record as a consumer sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def create_topic(bootstrap: str, name: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
    """Create a topic and return when its leaders answer; raises what the broker answered.

    Apache Kafka names a leader in Metadata a moment before the partition is there: what comes between is
    NOT_LEADER_OR_FOLLOWER, and with acks=0 it is lost without a word.
    """
    admin = made_by(bootstrap, NewTopic(name, num_partitions=partitions, replication_factor=1, config=config or {}))

    def leaders() -> list[int]:
        found = admin.list_topics(name, timeout=CALL_S).topics[name].partitions
        return [found[number].leader for number in sorted(found)]

    def all_led() -> bool:
        found = leaders()
        return len(found) == partitions and min(found) >= 0

    def refused() -> BaseException | None:
        earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(name, number): earliest for number in range(partitions)}
        errors = [done.exception(CALL_S) for done in admin.list_offsets(asked, request_timeout=CALL_S).values()]
        return next((error for error in errors if error is not None), None)

    wait_until(all_led, 30, f"leaders of {name}", seen=leaders)
    wait_until(lambda: refused() is None, 30, f"answers of the leaders of {name}", seen=refused)


def made_by(bootstrap: str, new: NewTopic) -> AdminClient:
    """Make a topic, and who made it; a new client asks again where a broker did not know of its controller yet.

    librdkafka waits in vain then, as it asks for metadata again in minutes only, or says NOT_CONTROLLER at once.
    """
    deadline, asked_before = Deadline(TRY_S), False
    while True:
        admin = AdminClient(librdkafka(bootstrap))
        try:
            admin.create_topics([new], request_timeout=TRY_S)[new.topic].result(CALL_S)
        except KafkaException as error:
            code = error.args[0].code()
            if asked_before and code == KafkaError.TOPIC_ALREADY_EXISTS:
                return admin
            if code not in (KafkaError._TIMED_OUT, KafkaError.NOT_CONTROLLER):
                raise
            deadline.check(f"the topic {new.topic}", error)
            asked_before = True
        else:
            return admin


def read_topic(bootstrap: str, topic: str, deadline_s: float = 30.0) -> list[Read]:
    """Read every record of a topic that is there now, partition by partition in order of offsets."""
    consumer = Consumer({**librdkafka(bootstrap), "group.id": "-", "enable.auto.commit": False})
    try:
        return _read_to_the_end(consumer, topic, Deadline(deadline_s))
    finally:
        consumer.close()


def _read_to_the_end(consumer: Consumer, topic: str, deadline: Deadline) -> list[Read]:
    partitions = consumer.list_topics(topic, timeout=CALL_S).topics[topic].partitions
    ends: dict[int, int] = {}
    starts = []
    for partition in partitions:
        low, ends[partition] = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=CALL_S)
        starts.append(TopicPartition(topic, partition, low))
    consumer.assign(starts)
    reads: list[Read] = []
    while any(place.offset < ends[place.partition] for place in _places(consumer, starts)):
        deadline.check(f"{topic} read to its ends {ends}", f"{len(reads)} records, the last one {reads[-1:]}")
        for message in consumer.consume(1000, timeout=0.2):
            if message.error():
                raise KafkaException(message.error())
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            reads.append(Read(partition, offset, message.key(), message.value()))
    return sorted(reads, key=lambda read: (read.partition, read.offset))


def _places(consumer: Consumer, starts: list[TopicPartition]) -> list[TopicPartition]:
    """Return the position of each partition; where nothing was read yet, its start."""
    known = {start.partition: start for start in starts}
    places = consumer.position([TopicPartition(start.topic, start.partition) for start in starts])
    return [place if place.offset >= 0 else known[place.partition] for place in places]
