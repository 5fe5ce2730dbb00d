"""A closed segment that is not what was written any more, and the clients that read through it: each gets the rest in
order, from a broker that goes on; who must know of the jump reads the ledger.

The disk is a real one: a bit is changed in the file, and the kernel's memory of it dropped.
"""

import asyncio
import json
import os
import subprocess
import urllib.request

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place

from edge_broker.protocol.record_batch import read_header
from tests.support import runtimes
from tests.support.kafka_reading import create_topic, read_topic
from tests.support.processes import EdgeBroker, wait_until
from tests.support.waiting import CALL_S

TOPIC = "readings"
RECORDS = 300
SETTINGS = {"log.segment.bytes": 16_384, "edge.scrub.bytes.per.second": 0}
QUICK_START = ("-Xmx128m", *runtimes.QUICK_JAVA)
DEADLINE_S = 120


def _value(number):
    return f"{number} ".encode() * 40


def _produce(bootstrap, numbers):
    """Produce in batches of five, with acks=all; the offsets."""
    settings = {"bootstrap.servers": bootstrap, "acks": "all", "batch.num.messages": 5, "linger.ms": 5}
    producer, offsets = Producer(settings), []
    for number in numbers:
        on_delivery = lambda error, message: offsets.append(error or message.offset())  # noqa: E731
        producer.produce(TOPIC, _value(number), partition=0, on_delivery=on_delivery)
    assert producer.flush(DEADLINE_S) == 0
    return offsets


def _read_with_java(bootstrap, start, count):
    command = [
        *runtimes.kafka_java(*QUICK_START),
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", TOPIC, "--partition", "0", "--offset", str(start)),
        *("--max-messages", str(count), "--timeout-ms", str(DEADLINE_S * 1000)),
        *("--formatter-property", "print.offset=true", "--formatter-property", "print.value=false"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [int(line.partition(":")[2]) for line in done.stdout.splitlines() if line.startswith("Offset:")]


def _read_with_librdkafka(bootstrap, start, count):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "error"})
    consumer.assign([Place(TOPIC, 0, start)])
    try:
        messages = []
        while len(messages) < count:
            got = consumer.consume(count - len(messages), DEADLINE_S)
            assert got, f"{len(messages)} of {count} came"
            assert not any(message.error() for message in got)
            messages += got
        assert all(message.value() == _value(message.offset()) for message in messages)
        return [message.offset() for message in messages]
    finally:
        consumer.close()


def _read_with_aiokafka(bootstrap, start, count):
    async def read():
        place = TopicPartition(TOPIC, 0)
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="none", enable_auto_commit=False)
        async with asyncio.timeout(DEADLINE_S), consumer:
            consumer.assign([place])
            consumer.seek(place, start)
            messages = []
            while len(messages) < count:
                found = await consumer.getmany(place, timeout_ms=1000, max_records=count - len(messages))
                messages += found.get(place, [])
        assert all(message.value == _value(message.offset) for message in messages)
        return [message.offset for message in messages]

    return asyncio.run(read())


def _harm(directory, harm):
    """Harm one batch in the middle of the second segment, on the disk and in nobody's memory; the offsets it held."""
    path = sorted(directory.glob("*.log"))[1]
    content = path.read_bytes()
    position, headers = 0, []
    while position < len(content):
        headers.append((position, read_header(content, position)))
        position += headers[-1][1].size
    position, header = headers[len(headers) // 2]
    with path.open("r+b") as file:
        file.seek(position + harm)
        file.write(bytes([content[position + harm] ^ 1]))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return range(header.base_offset, header.next_offset)


def test_the_scrubber_finds_what_nobody_reads(tmp_path):
    settings = {**SETTINGS, "edge.scrub.bytes.per.second": 10_000_000}
    with EdgeBroker(tmp_path, settings=settings) as broker:
        create_topic(broker.bootstrap, TOPIC)
        _produce(broker.bootstrap, range(RECORDS))
        broker.stop()
        lost = _harm(broker.data_dir / f"{TOPIC}-0", PAYLOAD)
        broker.start()
        (one,) = wait_until(lambda: read_topic(broker.bootstrap, "__edge_ledger"), DEADLINE_S, "a loss in the ledger")
        with urllib.request.urlopen(broker.metrics_url, timeout=DEADLINE_S) as answer:
            assert "\nedge_broker_damages_total 1" in answer.read().decode()
    record = json.loads(one.value)
    assert (record["first_offset"], record["last_offset"]) == (lost.start, lost.stop - 1)


PAYLOAD, MAGIC = 100, 16
CLIENTS = {"java": _read_with_java, "librdkafka": _read_with_librdkafka, "aiokafka": _read_with_aiokafka}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("restart", [False, True], ids=["while it runs", "before a start"])
def test_clients_read_through_damage(tmp_path, client, restart):
    read = CLIENTS[client]
    with EdgeBroker(tmp_path, settings=SETTINGS) as broker:
        create_topic(broker.bootstrap, TOPIC)
        assert _produce(broker.bootstrap, range(RECORDS)) == list(range(RECORDS))
        directory = broker.data_dir / f"{TOPIC}-0"
        if restart:
            broker.stop()
        lost = _harm(directory, MAGIC if restart else PAYLOAD)
        if restart:
            broker.start()
        rest = [offset for offset in range(RECORDS) if offset not in lost]
        assert read(broker.bootstrap, 0, len(rest)) == rest
        assert read(broker.bootstrap, lost.start + 1, 3) == [lost.stop, lost.stop + 1, lost.stop + 2]
        assert _produce(broker.bootstrap, range(RECORDS, RECORDS + 20)) == list(range(RECORDS, RECORDS + 20))
        whole = read_topic(broker.bootstrap, TOPIC)
        assert [(one.offset, one.value) for one in whole] == [
            (offset, _value(offset)) for offset in range(RECORDS + 20) if offset not in lost
        ]
        (record,) = [json.loads(one.value) for one in read_topic(broker.bootstrap, "__edge_ledger")]
    told = (record["cause"], record["topic"], record["partition"], record["first_offset"], record["last_offset"])
    assert told == ("damaged", TOPIC, 0, lost.start, lost.stop - 1)
    assert record["records"] == (None if restart else len(lost))
