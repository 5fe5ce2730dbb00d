"""A partition, a record, a request or a topic that Apache Kafka refuses holds up itself alone, and is named.

Does not contain: the same at our own broker (tests/fault/test_mirror_suspects.py), how topics are made
(test_mirror_topics.py).
"""

from __future__ import annotations

import json
import os

import pytest
from confluent_kafka import Producer

from tests.support.mirror_road import FAST, EdgeMirror, create_topic, numbers, produce, read_all
from tests.support.processes import ApacheKafka, EdgeBroker, wait_until
from tests.support.waiting import CALL_S

REQUEST_BYTES_MAX = 4 << 20
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "socket.request.max.bytes": REQUEST_BYTES_MAX,
}
ANY_SIZE = {"max.message.bytes": str(64 << 20)}
REFUSED_PARTITIONS, LARGE_BYTES = 10, 900_000
ARRIVES_S = 60.0


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    with ApacheKafka(tmp_path_factory.mktemp("target"), settings=SETTINGS) as process:
        yield process


@pytest.fixture
def source(tmp_path):
    with EdgeBroker(tmp_path / "source", settings={"message.max.bytes": 64 << 20}) as process:
        yield process


def write(bootstrap, topic, partition, *sizes, key=b"k"):
    """Produce noise, so that packing takes none of it away, one record in a batch."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.max.bytes": 100 << 20})
    for size in sizes:
        producer.produce(topic, os.urandom(size), key=key, partition=partition)
        assert producer.flush(CALL_S) == 0


@pytest.mark.parametrize("transactions", [False, pytest.param(True, marks=pytest.mark.night)])
def test_whatever_apache_kafka_refuses_holds_up_itself_alone(source, target, tmp_path, transactions):
    kind = "committed" if transactions else "plain"
    names = {name: f"{kind}-{name}" for name in ("keyless", "large", "huge", "col_lides", "others")}
    create_topic(target.bootstrap, f"lab.{names['keyless']}", REFUSED_PARTITIONS, {"cleanup.policy": "compact"})
    create_topic(target.bootstrap, f"lab.{names['large']}", 1, {"max.message.bytes": "50000"})
    create_topic(target.bootstrap, f"lab.{names['huge']}", 1, ANY_SIZE)
    create_topic(target.bootstrap, f"lab.{kind}-col.lides", 1)  # no name that differs in . and _ alone is allowed
    create_topic(source.bootstrap, names["keyless"], REFUSED_PARTITIONS)
    for name in ("large", "huge"):
        create_topic(source.bootstrap, names[name], 1, ANY_SIZE)
    for name in ("col_lides", "others"):
        create_topic(source.bootstrap, names[name], 1)
    for partition in range(REFUSED_PARTITIONS):
        write(source.bootstrap, names["keyless"], partition, LARGE_BYTES, key=None)
    write(source.bootstrap, names["large"], 0, 100, 60_000, 100)
    write(source.bootstrap, names["huge"], 0, 100, REQUEST_BYTES_MAX + 1000, 100)
    write(source.bootstrap, names["col_lides"], 0, 100)
    topics = "|".join(names.values())
    settings = {**FAST, "transactions": transactions}
    road = {"topics": topics, "site": "lab", "settings": settings}

    def arrived(name):
        return len(read_all(target.bootstrap, f"lab.{names[name]}"))

    with EdgeMirror(tmp_path, source.bootstrap, target.bootstrap, **road) as mirror:
        for first in (0, 300):
            produce(source.bootstrap, names["others"], first, first + 300)
            wait_until(
                lambda end=first + 300: (
                    numbers(read_all(target.bootstrap, f"lab.{names['others']}")) == list(range(end))
                ),
                ARRIVES_S,
                "the others",
                poll_s=0.5,
            )
            wait_until(lambda: is_named(mirror, names), ARRIVES_S, "each named", poll_s=0.5)
        assert (arrived("large"), arrived("huge")) == (1, 1)
        left = {"keyless": REFUSED_PARTITIONS, "large": 2, "huge": 2, "col_lides": 1, "others": 0}
        wait_until(lambda: lags(mirror) == {names[name]: lag for name, lag in left.items()}, ARRIVES_S, "their lag")
    aside = '[topic.".*"]\non_refused = "dead_letter"\n'
    with EdgeMirror(tmp_path, source.bootstrap, target.bootstrap, tables=aside, **road) as mirror:
        wait_until(lambda: (arrived("large"), arrived("huge")) == (2, 2), ARRIVES_S, "the rest", poll_s=0.5)
        wait_until(
            lambda: mirror.metric("edge_mirror_ledger_records_total") == REFUSED_PARTITIONS + 2, ARRIVES_S, "the ledger"
        )
        letters = [dict(one.headers) for one in read_all(source.bootstrap, "__edge_dead_letter")]
        assert sorted((one["dead_letter.topic"].decode(), int(one["dead_letter.offset"])) for one in letters) == sorted(
            [(names["keyless"], 0)] * REFUSED_PARTITIONS + [(names["large"], 1), (names["huge"], 1)]
        )
        wait_until(lambda: "keyless" not in mirror.get("/health")[1], ARRIVES_S, "only one is still named", poll_s=0.5)
        assert names["col_lides"] in mirror.get("/health")[1]


def is_named(mirror, names):
    """Whether /health names all that is refused, and why."""
    text = mirror.get("/health")[1]
    why = {"keyless": "INVALID_RECORD", "large": "MESSAGE_TOO_LARGE", "huge": "socket.request.max.bytes"}
    return all(names[name] in text for name in (*why, "col_lides")) and all(code in text for code in why.values())


def lags(mirror):
    """The lag of each topic but the ledger, as the mirror reports it."""
    topics = json.loads(mirror.get("/status")[1])["topics"]
    return {one["topic"]: one["lag_records"] for one in topics if one["topic"] != "__edge_ledger"}
