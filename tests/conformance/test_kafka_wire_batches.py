"""Batches that kafka_wire forwarded and merged, taken by Apache Kafka 4.3.1 and the edge broker and read by others.

One producer with a sequence sends all to one partition: for each codec what was forwarded and what was merged of small
batches of all codecs, with holes, headers, null keys and values. The Java consumer starts a JVM, so that it reads once.
"""

from __future__ import annotations

import asyncio
import random
import subprocess

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from drupelet.kafka.client import ClientSettings
from drupelet.kafka.security import Security
from edge_broker.errors import ErrorCode
from edge_broker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_wire import apis
from kafka_wire.cluster import Cluster
from kafka_wire.records.batches import Piece, forward, merge, pieces_of, split, stamp
from tests.support import runtimes
from tests.support.kafka_reading import create_topic
from tests.support.lying_batches import CODECS, NOW_MS
from tests.support.pieces import Kept, batch_of
from tests.support.processes import ApacheKafka, EdgeBroker
from tests.support.record_batches import COMMIT, make_batch, marker
from tests.support.waiting import CALL_S, Deadline
from tests.support.wire_producer import producer_at

TOPIC = "carried"
LEVELS = {"none": None, "gzip": 9, "snappy": None, "lz4": 3, "zstd": 19}
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
SHOWN = ("print.timestamp=true", "print.offset=true", "print.headers=true", "print.key=true")
QUICK_START = ("-Xmx128m", *runtimes.QUICK_JAVA)


@pytest.fixture(scope="module", params=[ApacheKafka, EdgeBroker], ids=["apache-kafka", "edge-broker"])
def broker(request, tmp_path_factory):
    with request.param(tmp_path_factory.mktemp("carried")) as broker:
        create_topic(broker.bootstrap, TOPIC)
        yield broker


def text(rnd, size):
    return bytes(rnd.choices(b"0123456789abcdef{}:,", k=size))


def small_batches(rnd):
    """A log of single records, of batches of each codec, of one with holes and one with a marker behind it."""
    kept, log, offset = [], [], 1000
    for number in range(400):
        holes = number % 7 == 3
        deltas = [0, 2, 5] if holes else range(1 if number % 2 else 12)
        batch = [
            Kept(
                offset + delta,
                NOW_MS + rnd.randrange(-5000, 5000),
                rnd.choice((None, b"key-%d" % number)),
                rnd.choice((text(rnd, rnd.choice((20, 90, 700))),) * 9 + (None,)),
                ((b"h", b"%d" % delta), (b"n", None)) if delta % 3 == 2 else (),
            )
            for delta in deltas
        ]
        last = offset + (8 if holes else deltas[-1])
        log.append(batch_of(batch, last_offset=last, codec=CODECS[number % 5], producer=(77, 0, 5)))
        kept += batch
        offset = last + 1
        if number == 200:
            log.append(marker(COMMIT, base_offset=offset, producer_id=78))
            offset += 1
    return log, kept


def cut(log):
    data = memoryview(b"".join(bytes(batch) for batch in log))
    return [piece for piece in pieces_of(data, 0, ()) if isinstance(piece, Piece)]


@pytest.fixture(scope="module")
def carried():
    """What is sent, and the records that a reader must find then, numbered from 0."""
    rnd = random.Random(1)
    sent, expected = [], []
    for number, codec in enumerate(CODECS):
        large = [(b"k%d" % place, text(rnd, 300), NOW_MS + place) for place in range(1500)]
        sent.append(forward(*cut([make_batch(large, codec=number, base_offset=10**12, producer=(5, 1, 9))])))
        expected += [
            Kept(0, time, key, value, ((b"n", b"%d" % place),)) for place, (key, value, time) in enumerate(large)
        ]
        log, kept = small_batches(rnd)
        first, second = split(cut(log))
        sent += [merge(part, codec, LEVELS[codec]) for part in (first, second)]
        expected += kept
        offsets = [one for each in sent[-2:] for first, count in each.runs for one in range(first, first + count)]
        assert offsets == [one.offset for one in kept]
    return sent, [one._replace(offset=place) for place, one in enumerate(expected)]


@pytest.fixture(scope="module", autouse=True)
def answered(broker, carried):
    """The base offsets that the broker answered to the batches, sent one by one under one producer's sequence."""
    return asyncio.run(produced(broker.bootstrap, [(bytearray(one.batch), one.records) for one in carried[0]]))


async def produced(bootstrap, batches):
    cluster = Cluster(ClientSettings(bootstrap, "carrier", int(CALL_S * 1000), Security()))
    try:
        leader = (await cluster.topics([TOPIC]))[TOPIC].leaders[0]
        connection = await cluster.connection(leader.node)
        producer = await producer_at(connection)
        sequence, offsets = 0, []
        for batch, count in batches:
            stamp(batch, producer.producer_id, producer.producer_epoch, sequence)
            sequence += count
            data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])
            request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])
            answer = await connection.send(apis.PRODUCE, request, timeout_s=CALL_S)
            (partition,) = answer.responses[0].partition_responses
            assert partition.error_code == ErrorCode.NONE, partition.error_message
            offsets.append(partition.base_offset)
        return offsets
    finally:
        cluster.close()


def test_each_batch_is_taken_at_the_offset_that_follows(carried, answered):
    counts = [one.records for one in carried[0]]
    assert answered == [sum(counts[:number]) for number in range(len(counts))]


def test_librdkafka_reads_what_was_written(broker, carried):
    _, expected = carried
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "-", "enable.auto.commit": False, "check.crcs": True}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    deadline, found = Deadline(60), []
    try:
        while len(found) < len(expected):
            deadline.check("every record", len(found))
            for message in consumer.consume(1000, timeout=0.5):
                if message.error():
                    raise KafkaException(message.error())
                headers = tuple((name.encode(), content) for name, content in message.headers() or ())
                found.append(Kept(message.offset(), message.timestamp()[1], message.key(), message.value(), headers))
    finally:
        consumer.close()
    assert found == expected


def test_the_java_consumer_reads_what_was_written(broker, carried):
    _, expected = carried
    options = [word for setting in SHOWN for word in ("--formatter-property", setting)]
    command = [*runtimes.kafka_java(*QUICK_START), CONSUMER, "--bootstrap-server", broker.bootstrap]
    command += ["--topic", TOPIC, "--partition", "0", "--offset", "earliest", "--max-messages", str(len(expected))]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=CALL_S, check=True)
    assert done.stdout.splitlines()[: len(expected)] == [shown(one) for one in expected]


def shown(one):
    """A record as the console consumer prints it."""
    headers = ",".join(f"{name.decode()}:{said(content)}" for name, content in one.headers) or "NO_HEADERS"
    return f"CreateTime:{one.timestamp}\tOffset:{one.offset}\t{headers}\t{said(one.key)}\t{said(one.value)}"


def said(content):
    return "null" if content is None else content.decode()
