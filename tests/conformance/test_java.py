"""Apache Kafka 4.3.1's own command line tools (the Java clients) against the broker as a real process.

Each call starts a JVM, so a test does more here than elsewhere.
"""

import json
import re
import subprocess
import uuid

import pytest

from tests.support.conformance.limits import MESSAGE_BYTES_MAX
from tests.support.entries import entry_of, kcat, write_properties
from tests.support.java_tools import CONFIGS, CONSUMER, PRODUCER, TOPICS, VERIFIABLE_PRODUCER, tool_command
from tests.support.kafka_reading import read_topic
from tests.support.processes import JVM_STOP_STATUSES, Process, wait_until
from tests.support.waiting import CALL_S

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
ROUND_ROBIN = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
LINES = [f"line {number}" for number in range(200)]


def _run(tool, bootstrap, *options, text=None, status=0):
    """Run a tool to its end and return its stdout and stderr together; its exit status must be `status`."""
    command = tool_command(tool, bootstrap, *options)
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=CALL_S, check=False)
    assert done.returncode == status, f"{tool} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def _produce(bootstrap, topic, lines, *options):
    return _run(PRODUCER, bootstrap, "--topic", topic, *options, text="".join(f"{line}\n" for line in lines))


def _properties(tmp_path, bootstrap, **settings):
    path, told = tmp_path / f"{uuid.uuid4().hex[:8]}.properties", entry_of(bootstrap).java()
    told |= {key.replace("_", "."): value for key, value in settings.items()}
    return str(write_properties(path, told))


def _events(process):
    """Return what a verifiable client printed so far: one JSON object per line, the last may be half written."""
    return [json.loads(line) for line in process.output().splitlines(keepends=True) if line.endswith("\n")]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_console_producer_compresses_and_the_records_are_whole(broker, new_topic, codec):
    topic = new_topic()
    _produce(broker.bootstrap, topic, LINES, "--compression-codec", codec)
    assert [read.value.decode() for read in read_topic(broker.bootstrap, topic)] == LINES


def test_console_consumer_reads_what_another_client_compressed(broker, new_topic):
    """One run reads batches of every codec, with keys and headers, from beginning to end."""
    topic = new_topic()
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        command = [
            *kcat(broker.bootstrap),
            "-P",
            "-t",
            topic,
            "-z",
            codec,
            "-k",
            codec,
            "-H",
            "h=1",
        ]
        subprocess.run(command, input="\n".join(LINES[:40]), text=True, check=True, timeout=CALL_S)
    shown = ("print.key=true", "print.headers=true", "print.offset=true")
    options = [word for setting in shown for word in ("--formatter-property", setting)]
    text = _run(CONSUMER, broker.bootstrap, "--topic", topic, "--from-beginning", "--max-messages", "200", *options)
    expected = [
        f"Offset:{40 * number + place}\th:1\t{codec}\t{line}"
        for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd"))
        for place, line in enumerate(LINES[:40])
    ]
    assert text.splitlines()[:200] == expected


def test_console_consumer_resumes_where_its_group_committed(broker, new_topic, group):
    topic = new_topic()
    _produce(broker.bootstrap, topic, LINES)
    options = ("--topic", topic, "--group", group, "--from-beginning", "--max-messages")
    assert _run(CONSUMER, broker.bootstrap, *options, "120").splitlines()[:120] == LINES[:120]
    assert _run(CONSUMER, broker.bootstrap, *options, "80").splitlines()[:80] == LINES[120:]


def test_consumer_groups_are_listed_and_described(broker, new_topic, group):
    topic = new_topic()
    _produce(broker.bootstrap, topic, LINES)
    options = ("--topic", topic, "--group", group, "--from-beginning", "--max-messages", "120")
    _run(CONSUMER, broker.bootstrap, *options)
    assert group in _run(GROUPS, broker.bootstrap, "--list").split()
    described = _run(GROUPS, broker.bootstrap, "--describe", "--group", group)
    assert f"Consumer group '{group}' has no active members." in described
    assert re.search(rf"{group}\s+{topic}\s+0\s+120\s+200\s+80\s", described)


def test_topics_are_created_listed_described_and_deleted(broker):
    topic = f"java-{uuid.uuid4().hex[:8]}"
    made = ("--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=86400000")
    assert f"Created topic {topic}" in _run(TOPICS, broker.bootstrap, *made)
    assert "already exists" in _run(TOPICS, broker.bootstrap, *made, status=1)
    described = _run(TOPICS, broker.bootstrap, "--describe", "--topic", topic)
    assert re.search(rf"Topic: {topic}\s+TopicId: \S+\s+PartitionCount: 3\s+ReplicationFactor: 1", described)
    assert "retention.ms=86400000" in described
    assert len(re.findall(r"Partition: \d+\s+Leader: \d+\s+Replicas: \d+\s+Isr: \d+", described)) == 3
    _run(TOPICS, broker.bootstrap, "--delete", "--topic", topic)
    assert topic not in _run(TOPICS, broker.bootstrap, "--list").split()


def test_a_topic_is_altered(broker, new_topic):
    topic = new_topic()
    _run(TOPICS, broker.bootstrap, "--alter", "--topic", topic, "--partitions", "2")
    wait_until(
        lambda: "PartitionCount: 2" in _run(TOPICS, broker.bootstrap, "--describe", "--topic", topic),
        CALL_S,
        "two partitions",
    )
    entity = ("--alter", "--entity-type", "topics", "--entity-name", topic)
    changes = "retention.ms=86400000,cleanup.policy=[compact,delete]"
    assert "Completed updating config" in _run(CONFIGS, broker.bootstrap, *entity, "--add-config", changes)
    described = wait_until(
        lambda: (found := _described_configs(broker, topic)).find("retention.ms=86400000") >= 0 and found,
        CALL_S,
        "the new configuration",
    )
    assert "cleanup.policy=compact,delete" in described
    assert "Completed updating config" in _run(CONFIGS, broker.bootstrap, *entity, "--delete-config", "retention.ms")
    wait_until(lambda: "retention.ms" not in _described_configs(broker, topic), CALL_S, "the default")
    refused = _run(CONFIGS, broker.bootstrap, *entity, "--add-config", "retention.ms=soon", status=1)
    assert "retention.ms" in refused


def _described_configs(broker, topic):
    return _run(CONFIGS, broker.bootstrap, "--describe", "--entity-type", "topics", "--entity-name", topic)


def test_records_are_deleted(broker, new_topic, tmp_path):
    topic, wanted = new_topic(), tmp_path / "offsets.json"
    _produce(broker.bootstrap, topic, LINES)
    places = [{"topic": topic, "partition": 0, "offset": 50}]
    wanted.write_text(json.dumps({"version": 1, "partitions": places}))
    said = _run(DELETE_RECORDS, broker.bootstrap, "--offset-json-file", str(wanted))
    assert re.search(rf"partition: {topic}-0\s+low_watermark: 50", said)
    assert f"{topic}:0:50" in _run(GET_OFFSETS, broker.bootstrap, "--topic", topic, "--time", "earliest")


def test_get_offset_shell_knows_first_last_and_by_time(broker, new_topic):
    topic = new_topic(2)
    command = [*kcat(broker.bootstrap), "-P", "-t", topic, "-p", "1"]
    subprocess.run(command, input="\n".join(LINES), text=True, check=True, timeout=CALL_S)
    for time, expected in (("latest", (0, 200)), ("earliest", (0, 0)), ("1000", (None, 0))):
        found = _run(GET_OFFSETS, broker.bootstrap, "--topic", topic, "--time", time)
        lines = [f"{topic}:{partition}:{offset}" for partition, offset in enumerate(expected) if offset is not None]
        assert set(lines) <= set(found.split())


def test_broker_api_versions_reads_the_whole_table(broker):
    found = _run(API_VERSIONS, broker.bootstrap)
    assert re.search(r"Produce\(0\): \d+ to \d+ \[usable: \d+\]", found)
    assert re.search(r"Fetch\(1\): 4 to \d+ \[usable: \d+\]", found)


def test_configs_of_a_topic_are_described(broker, new_topic):
    topic = new_topic()
    found = _run(CONFIGS, broker.bootstrap, "--describe", "--all", "--entity-type", "topics", "--entity-name", topic)
    assert re.search(r"cleanup\.policy=delete sensitive=false synonyms=\{", found)


def test_verifiable_producer_is_acked_for_every_record(broker, new_topic):
    topic = new_topic()
    text = _run(VERIFIABLE_PRODUCER, broker.bootstrap, "--topic", topic, "--max-messages", "5000")
    events = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    acked = [int(event["value"]) for event in events if event["name"] == "producer_send_success"]
    assert acked == list(range(5000))
    assert [int(read.value) for read in read_topic(broker.bootstrap, topic)] == acked


def test_rebalance_of_two_verifiable_consumers(broker, new_topic, group, tmp_path):
    topic = new_topic(4)
    heartbeat = _properties(tmp_path, broker.bootstrap, heartbeat_interval_ms=300)
    options = ("--topic", topic, "--group-id", group, "--session-timeout", "6000", "--verbose")
    command = tool_command(VERIFIABLE_CONSUMER, broker.bootstrap, *options, "--command-config", heartbeat)
    first, second = (Process(name, command, tmp_path, stop_statuses=JVM_STOP_STATUSES) for name in ("first", "second"))

    def owned(member):
        owned = set()
        for event in _events(member):
            partitions = {place["partition"] for place in event.get("partitions", [])}
            if event["name"] == "partitions_assigned":
                owned = partitions
            elif event["name"] == "partitions_revoked":
                owned = set()
        return owned

    def values(*members):
        return [event["value"] for member in members for event in _events(member) if event["name"] == "record_data"]

    with first:
        wait_until(lambda: owned(first) == {0, 1, 2, 3}, 30, "the first member has all partitions")
        with second:
            wait_until(lambda: len(owned(first)) == len(owned(second)) == 2, 30, "each member has two partitions")
            assert owned(first) | owned(second) == {0, 1, 2, 3}
            _produce(broker.bootstrap, topic, LINES, "--command-property", "partitioner.class=" + ROUND_ROBIN)
            wait_until(lambda: len(values(first, second)) >= 200, 30, "both together read everything")
            assert sorted(values(first, second)) == sorted(LINES)
        wait_until(lambda: owned(first) == {0, 1, 2, 3}, 30, "the first member has all partitions again")


def test_idempotent_retry_stores_no_duplicate(strict, new_strict_topic, tmp_path):
    topic = new_strict_topic()
    strict.thief.steal(2, after=2)
    settings = _properties(tmp_path, strict.bootstrap, enable_idempotence="true", batch_size=100, retry_backoff_ms=20)
    told = _produce(strict.bootstrap, topic, LINES, "--command-config", settings)
    assert strict.thief.stolen == 2
    assert "Exception" not in told
    assert [read.value.decode() for read in read_topic(strict.bootstrap, topic)] == LINES


def test_a_message_above_the_limit_is_refused(broker, new_topic):
    topic = new_topic()
    lines = ["x" * MESSAGE_BYTES_MAX]
    told = _produce(broker.bootstrap, topic, lines, "--command-property", "max.request.size=8000000")
    assert "RecordTooLargeException" in told
    assert read_topic(broker.bootstrap, topic) == []


def test_unknown_topic_and_offset_out_of_range_are_errors(strict, new_strict_topic):
    topic = new_strict_topic()
    told = _produce(strict.bootstrap, "unknown", ["lost"], "--max-block-ms", "1500")
    assert "Topic unknown not present in metadata" in told
    options = ("--topic", topic, "--partition", "0", "--offset", "6", "--command-property", "auto.offset.reset=none")
    assert "OffsetOutOfRangeException" in _run(CONSUMER, strict.bootstrap, *options)
