"""Batches whose inside lies, to us and to Apache Kafka 4.3.1: the same verdicts, but where a reader would stop.

`STRICTER` and `UNKNOWN` are all the differences there are; one that is missing there, or is there without need, fails.
Whatever was acked, here and there, real consumers read to the end. Generated ones print their seed.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator

import pytest

from edge_broker.errors import ErrorCode
from tests.support import runtimes
from tests.support.kafka_reading import create_topic, read_topic
from tests.support.lying_batches import (
    CODECS,
    catalogue,
    packed,
    record,
)
from tests.support.processes import ApacheKafka, EdgeBroker
from tests.support.raw_client import RawClient, connected
from tests.support.records_walk import of_seed

SEEDS = 150
NONE, UNKNOWN_ERROR, INVALID, TIME = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
)


# Acked by Kafka and refused here, whatever packs them: what stops or misleads one of the clients.
STRICTER = {
    "record with attributes 128",
    "offset delta over 32 bits in 5 bytes",
    "key of length -2",
    "value of length -2",
    "header value of length -2",
    "varlong over 64 bits in 10 bytes",
}
# Acked by Kafka when they are not packed, -1 when they are.
STRICTER_PLAIN = {"offset delta 7", "offset delta -1", "offset deltas 0, 0", "offset deltas 1, 0", "offset deltas 0, 2"}
# Acked by Kafka when they are packed: it does not look whether a record ends where it says.
STRICTER_PACKED = {
    "record length -1",
    "record length 0",
    "record length 2^31-1",
    "record length 1 too small",
    "record length 1 too large",
    "record length 1 too large, another follows",
}
STRICTER_PAYLOADS = {
    "gzip with a byte behind it",
    "gzip of two members",
    "snappy with a byte behind it",
    "lz4 with a byte behind it",
    "lz4 twice",
    "lz4 with a wrong content checksum",
}


def expected(name: str, kafkas: int) -> set[int]:
    """What we may answer where Kafka answered so."""
    lie, _, codec = name.rpartition(", ")
    stricter = lie in STRICTER or name in STRICTER_PAYLOADS
    stricter |= lie in STRICTER_PLAIN and codec == "none"
    stricter |= lie in STRICTER_PACKED and codec != "none"
    if stricter:
        assert kafkas == NONE, f"{name}: Kafka refuses it too ({kafkas}), it needs no entry"
        return {INVALID}
    return {INVALID} if kafkas == UNKNOWN_ERROR else {kafkas}  # -1: an exception nobody caught


@pytest.fixture(scope="module")
def brokers(tmp_path_factory) -> Iterator[tuple[EdgeBroker, ApacheKafka]]:
    directory = tmp_path_factory.mktemp("lies")
    with EdgeBroker(directory) as ours, ApacheKafka(directory) as kafka:
        for one in (ours, kafka):
            for topic in ("catalogue", "compacted", "generated"):
                config = {"cleanup.policy": "compact"} if topic == "compacted" else {}
                create_topic(one.bootstrap, topic, config=config)
        yield ours, kafka


@pytest.fixture
def clients(brokers) -> Iterator[tuple[RawClient, RawClient]]:
    ours, kafka = brokers
    with connected(ours.bootstrap) as one, connected(kafka.bootstrap) as other:
        yield one, other


def test_the_catalogue_gets_kafkas_verdicts(clients) -> None:
    ours, kafka = clients
    wrong = []
    for name, content in catalogue():
        theirs = kafka.produce("catalogue", content).error_code
        mine = ours.produce("catalogue", content).error_code
        if mine not in expected(name, theirs):
            wrong.append((name, "Kafka", theirs, "here", mine))
    assert wrong == []


def test_keys_are_required_as_kafka_does(clients) -> None:
    ours, kafka = clients
    for number, keys in enumerate([(b"k",), (None,), (b"k", None), (None, b"k"), (b"", b"k"), (b"k", b"")]):
        area = b"".join(record(delta, key=key) for delta, key in enumerate(keys))
        for codec in CODECS:
            content = packed(area, count=len(keys), codec=codec)
            theirs, mine = (one.produce("compacted", content).error_code for one in (kafka, ours))
            assert (number, codec, mine) == (number, codec, theirs)


def test_a_lie_uses_no_sequence(clients) -> None:
    for client in clients:
        for codec in CODECS:
            producer = (4000 + CODECS.index(codec), 0, 0)
            bad = packed(record() + record(1, headers=[(None, b"")]), count=2, codec=codec, producer=producer)
            good = packed(record() + record(1), count=2, codec=codec, producer=producer)
            assert client.produce("generated", bad).error_code == INVALID
            assert client.produce("generated", good).error_code == NONE


def test_generated_lies_get_kafkas_verdicts_or_stricter_ones(clients) -> None:
    """What Kafka refuses is refused here; what is refused here alone is of a listed kind, told by its sentence."""
    ours, kafka = clients
    first = int(os.environ.get("SEED", random.randrange(1 << 31)))
    print(f"SEED={first}")
    told = (
        "attributes that nobody knows",
        "does not have offset delta",
        "negative length",
        "too long",
        "beyond the year 9999",
    )
    told_packed = (*told, "has no bytes", "beyond its end", "does not end where", "impossible number of headers")
    for seed in range(first, first + SEEDS):
        area, count, base, _, _ = of_seed(seed)
        for codec in ("none", random.Random(seed).choice(CODECS[1:])):
            content = packed(area, count=count, codec=codec, base_timestamp=base)
            theirs = kafka.produce("generated", content).error_code
            answer = ours.produce("generated", content)
            where = (seed, codec, theirs, answer.error_code, answer.error_message)
            if theirs == TIME and answer.error_code == NONE:
                continue  # more than an hour ahead of Kafka's clock, and within the year 9999
            if answer.error_code == NONE:
                assert theirs == NONE, where
            elif theirs == NONE:
                sentences = told if codec == "none" else told_packed
                assert any(text in (answer.error_message or "") for text in sentences), where
            elif theirs != UNKNOWN_ERROR and codec == "none":
                assert answer.error_code in (theirs, INVALID), where


@pytest.mark.parametrize("topic", ["catalogue", "generated"])
def test_what_was_acked_is_read_to_the_end(brokers, topic: str) -> None:
    """librdkafka and Java's console consumer, past every batch that the tests above left here."""
    ours, _ = brokers
    with connected(ours.bootstrap) as client:
        end = client.end_offset(topic)
    assert end > 0
    assert [read.offset for read in read_topic(ours.bootstrap, topic)] == list(range(end))
    command = [
        *runtimes.kafka_java(*runtimes.QUICK_JAVA, "-Xmx256m"),
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
    ]
    command += ["--bootstrap-server", ours.bootstrap, "--topic", topic, "--from-beginning"]
    command += ["--max-messages", str(end), "--timeout-ms", "60000", "--property", "print.offset=true"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=100)
    assert f"Processed a total of {end} messages".encode() in done.stderr, done.stderr[-2000:]
