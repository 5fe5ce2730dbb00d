"""`edge-broker topics`, `tail` and `groups` against the broker as a real process, and against Apache Kafka's."""

from __future__ import annotations

import json
import signal
import subprocess
import uuid

import pytest
from confluent_kafka import Consumer, Producer

from tests.support import runtimes
from tests.support.entries import command_config, librdkafka
from tests.support.kafka_reading import create_topic
from tests.support.processes import Process, wait_until
from tests.support.waiting import CALL_S

LINES = 300


def tool(bootstrap, *words, status=0):
    where = ["--bootstrap", bootstrap, *command_config(bootstrap)]
    command = [runtimes.console_script("edge-broker"), *map(str, words), *where, "--timeout", "60"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_S, check=False)
    assert done.returncode == status, done.stderr
    return done


def rows(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def produce(bootstrap, topic, count, codec="none", partition=0, **settings):
    producer = Producer({**librdkafka(bootstrap), "compression.type": codec, **settings})
    for number in range(count):
        value, headers = f"{codec} {number}", {"h": b"\xff"}
        producer.produce(topic, key=f"k{number}", value=value, partition=partition, headers=headers)
    assert producer.flush(CALL_S) == 0


@pytest.fixture
def topic(broker):
    name = f"tools-{uuid.uuid4().hex[:8]}"
    create_topic(broker.bootstrap, name, 2, {"retention.ms": "3600000"})
    return name


def test_topics(broker, topic):
    produce(broker.bootstrap, topic, LINES)
    listed = {row["topic"]: row for row in rows(tool(broker.bootstrap, "topics", "--json"))}
    facts = {key: listed[topic][key] for key in ("partitions", "records", "retention_ms", "cleanup_policy", "problems")}
    assert facts == {
        "partitions": 2,
        "records": LINES,
        "retention_ms": 3_600_000,
        "cleanup_policy": "delete",
        "problems": [],
    }
    shown = rows(tool(broker.bootstrap, "topics", topic, "--json"))
    first, second, *settings = shown
    assert [first[key] for key in ("partition", "start", "end", "problem")] == [0, 0, LINES, ""]
    assert first["last_record"].startswith("20")
    assert (second["end"], second["last_record"]) == (0, None)
    changed = [(one["key"], one["value"]) for one in settings if one["set_for"] == "topic"]
    assert changed == [("retention.ms", "3600000")]
    table = tool(broker.bootstrap, "topics", topic).stdout
    assert ["retention.ms", "3600000", "topic"] in [line.split() for line in table.splitlines()]


def test_bytes_are_told(broker, topic):
    produce(broker.bootstrap, topic, LINES)
    shown = rows(tool(broker.bootstrap, "topics", topic, "--json"))
    assert shown[0]["bytes"] > LINES * 10
    assert shown[1]["bytes"] == 0
    assert "bytes" in tool(broker.bootstrap, "topics", topic).stdout.partition("\n")[0]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_tail_reads_every_codec(broker, topic, codec):
    produce(broker.bootstrap, topic, LINES, codec)
    whole = rows(tool(broker.bootstrap, "tail", topic, "--from", 0, "--json"))
    assert [row["value"] for row in whole] == [f"{codec} {number}" for number in range(LINES)]
    assert whole[7]["headers"] == [{"name": "h", "value_base64": "/w=="}]
    assert rows(tool(broker.bootstrap, "tail", topic, "-n", 4, "--json")) == whole[-4:]
    assert rows(tool(broker.bootstrap, "tail", topic, "--from", 290, "-n", 1, "--json")) == [whole[290]]
    assert rows(tool(broker.bootstrap, "tail", topic, "--from", "1h", "--json")) == whole
    assert rows(tool(broker.bootstrap, "tail", topic, "--from", "2100-01-01", "--json")) == []


@pytest.mark.kafka_alone("the edge broker has no transactions")
def test_markers_of_transactions_are_no_records(broker, topic):
    producer = Producer({**librdkafka(broker.bootstrap), "transactional.id": topic})
    producer.init_transactions(CALL_S)
    for number in range(20):
        producer.begin_transaction()
        producer.produce(topic, value=f"{number}", partition=0)
        producer.commit_transaction(CALL_S)
    found = rows(tool(broker.bootstrap, "tail", topic, "-n", 15, "--partition", 0, "--json"))
    assert [row["value"] for row in found] == [f"{number}" for number in range(5, 20)]


def test_tail_follows_until_it_is_interrupted(broker, topic, tmp_path):
    produce(broker.bootstrap, topic, 3)
    command = [runtimes.console_script("edge-broker"), "tail", topic, "-f", "-n", "1"]
    command += ["--bootstrap", broker.bootstrap, *command_config(broker.bootstrap)]
    with Process("tail", command, tmp_path) as process:
        wait_until(lambda: "none 2" in process.output(), 30, "the last record")
        produce(broker.bootstrap, topic, 2, "zstd", partition=1)
        wait_until(lambda: "zstd 1" in process.output(), 30, "what came meanwhile")
        assert "none 1" not in process.output()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert process.log_path.read_text() == ""


KIP_848 = pytest.mark.kafka_alone("the edge broker has no groups of KIP-848")


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=KIP_848)])
def test_groups(broker, topic, group, protocol):
    produce(broker.bootstrap, topic, LINES)
    settings = {**librdkafka(broker.bootstrap), "group.id": group, "auto.offset.reset": "earliest"}
    settings["group.protocol"] = protocol
    consumer = Consumer({**settings, "enable.auto.commit": False, "client.id": "the-reader"})
    try:
        consumer.subscribe([topic])
        taken = 0
        while taken < 100:
            taken += len(consumer.consume(100 - taken, timeout=CALL_S))
        consumer.commit(asynchronous=False)
        shown = rows(tool(broker.bootstrap, "groups", group, "--json"))[0]
        table = tool(broker.bootstrap, "groups", group).stdout
    finally:
        consumer.close()
    assert (shown["state"], shown["lag"]) == ("Stable", LINES - 100)
    if protocol == "classic":
        assert [member["client_id"] for member in shown["members"]] == ["the-reader"]
        assert "the-reader" in table
    else:
        assert shown["members"] is None
        assert "members: not told" in table
    place = {(one["topic"], one["partition"]): one for one in shown["partitions"]}[topic, 0]
    assert (place["committed"], place["end"], place["lag"]) == (100, LINES, LINES - 100)
    assert place["behind_ms"] >= 0
    listed = {row["group"]: row for row in rows(tool(broker.bootstrap, "groups", "--json"))}
    assert listed[group]["lag"] == LINES - 100
    assert f"did you mean '{group}'" in tool(broker.bootstrap, "groups", group[:-1], status=2).stderr


def test_a_group_of_a_topic_that_is_gone(broker, group):
    """Nothing is made by asking, and the other partitions are still told."""
    assert "there is no topic" in tool(broker.bootstrap, "topics", f"{group}-none", status=2).stderr
    assert "there is no topic" in tool(broker.bootstrap, "tail", f"{group}-none", status=2).stderr
    assert f"{group}-none" not in {row["topic"] for row in rows(tool(broker.bootstrap, "topics", "--json"))}
