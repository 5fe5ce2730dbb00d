"""The mirror from an edge broker to an Apache Kafka: how topics are made there, and what one costs that may not grow.

The target has an authorizer; what it denies is an ACL for one topic, so that the rest of the cluster stays open.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import urllib.request

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)

from tests.support import runtimes
from tests.support.mirror_road import EdgeMirror, create_topic, numbers, produce, read_all, wait_mirrored
from tests.support.ports import free_port
from tests.support.processes import ApacheKafka, EdgeBroker, wait_until
from tests.support.waiting import CALL_S

SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "group.initial.rebalance.delay.ms": 0,
}
SETTINGS = {"backoff_max_ms": 500, "refresh_interval_ms": 300, "commit_interval_ms": 200}


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    with ApacheKafka(tmp_path_factory.mktemp("target"), settings=SECURED) as process:
        yield process


@pytest.fixture
def source(tmp_path):
    with EdgeBroker(tmp_path / "source", settings={"message.max.bytes": 3_000_000}) as process:
        yield process


def mirror(tmp_path, source, target, topics, **more):
    sides = source.bootstrap, target.bootstrap
    return EdgeMirror(tmp_path, *sides, topics=topics, site="lab", settings=SETTINGS, **more)


def deny_alter(bootstrap, topic):
    def acl(operation, permission):
        return AclBinding(
            ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, permission
        )

    rules = [acl(AclOperation.ALL, AclPermissionType.ALLOW), acl(AclOperation.ALTER, AclPermissionType.DENY)]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_acls(rules).values():
        done.result(CALL_S)


def grow(bootstrap, topic, partitions):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(CALL_S)


def settings_of(bootstrap, topic):
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_configs([resource])[resource].result(CALL_S)
    return {key: entry.value for key, entry in found.items()}


def test_a_topic_that_may_not_grow_costs_its_new_partitions_alone(source, target, tmp_path):
    create_topic(source.bootstrap, "readings", 2)
    create_topic(target.bootstrap, "lab.readings", 2)
    deny_alter(target.bootstrap, "lab.readings")
    grow(source.bootstrap, "readings", 12)  # more than would fill the mirror's memory
    for partition in range(12):
        produce(source.bootstrap, "readings", 0, 100, partition=partition)
    for _ in range(2):  # the second life finds the topic as the first left it
        with mirror(tmp_path, source, target, "readings") as at_work:
            wait_mirrored(target.bootstrap, "lab.readings", {0: 100, 1: 100})
            wait_until(lambda at=at_work: "and 7 more: topic" in at.get("/health")[1], 30, "the new partitions named")
            status, text = at_work.get("/health")
            assert status == 503
            assert (
                "readings-2, readings-3, readings-4 and 7 more: topic lab.readings cannot grow to 12 partitions: "
                in text
            )
    produce(source.bootstrap, "readings", 100, 200, partition=1)
    with mirror(tmp_path, source, target, "readings"):
        wait_mirrored(target.bootstrap, "lab.readings", {0: 100, 1: 200})


def test_a_topic_is_made_with_what_its_source_was_told(source, target, tmp_path):
    told = {"retention.ms": "-1", "cleanup.policy": "compact,delete", "min.compaction.lag.ms": "1000"}
    create_topic(source.bootstrap, "kept", 1, told | {"edge.priority": "9", "segment.bytes": "2000000"})
    create_topic(source.bootstrap, "plain", 1)
    producer = Producer({"bootstrap.servers": source.bootstrap, "message.max.bytes": 2_500_000})
    for number in range(10):
        producer.produce("plain", b"%d %s" % (number, bytes(2_000_000)), partition=0)
    assert producer.flush(CALL_S) == 0
    with mirror(tmp_path, source, target, "kept|plain") as at_work:
        wait_until(lambda: numbers(read_all(target.bootstrap, "lab.plain")) == list(range(10)), 60, "all of 2 MB")
        assert at_work.metric("edge_mirror_ledger_records_total") == 0
        wait_until(lambda: any("topic=lab.kept" in line for line in at_work.events("topic_created")), 30, "made")
    kept, plain = settings_of(target.bootstrap, "lab.kept"), settings_of(target.bootstrap, "lab.plain")
    assert {key: kept[key] for key in told} == told
    assert (kept["segment.bytes"], kept["max.message.bytes"]) == (plain["segment.bytes"], "3000000")
    assert (plain["retention.ms"], plain["max.message.bytes"]) == ("604800000", "3000000")


@pytest.mark.night
def test_many_topics_are_made_in_few_requests(source, tmp_path):
    for number in range(60):
        create_topic(source.bootstrap, f"t{number}", 2)
        produce(source.bootstrap, f"t{number}", 0, 1, partition=number % 2)
    with EdgeBroker(tmp_path / "target", name="target") as target:
        with mirror(tmp_path, source, target, "t[0-9]+"):
            for number in range(60):
                wait_mirrored(target.bootstrap, f"lab.t{number}", {number % 2: 1})
        with urllib.request.urlopen(target.metrics_url, timeout=CALL_S) as answer:
            asked = re.search(r'^edge_broker_requests_total\{api="CreateTopics"\} (\d+)$', answer.read().decode(), re.M)
        assert asked
        assert int(asked[1]) <= 5
        assert settings_of(target.bootstrap, "lab.t7")["max.message.bytes"] == "3000000"


def ours(*words):
    command = [runtimes.console_script("edge-mirror"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=CALL_S)


def plan(source, target, topics, *more):
    return ours("plan", "--source", source, "--target", target, "--topics", topics, "--site", "lab", *more)


def topics_of(broker):
    return AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=CALL_S).topics


def planned(*arguments):
    done = plan(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return {row.pop("topic"): row for row in json.loads(done.stdout)}


def test_a_plan_tells_what_would_be_sent_and_changes_nothing(source, target, tmp_path):
    create_topic(source.bootstrap, "alarms", 3)
    create_topic(source.bootstrap, "raw", 1)
    produce(source.bootstrap, "alarms", 0, 100, partition=1)
    servers = f"127.0.0.1:{free_port()},{target.bootstrap}"  # of several that are named one has to be there
    found = planned(source.bootstrap, servers, ".*", "--exclude", "raw")
    sent = {"partitions_there": None, "to_send": 100, "again": 0, "gone": 0, "trouble": "", "settings": ""}
    sent |= {"from_target": "", "reason": ""}
    assert found.keys() == {"alarms", "__edge_ledger"}
    assert found["alarms"] == {"target_name": "lab.alarms", "partitions": 3} | sent
    assert "lab.alarms" not in topics_of(target)
    settings = SETTINGS | {"exclude": "raw"}
    with EdgeMirror(tmp_path, source.bootstrap, servers, topics=".*", site="lab", settings=settings):
        wait_mirrored(target.bootstrap, "lab.alarms", {1: 100})
    assert "lab.raw" not in topics_of(target)
    produce(source.bootstrap, "alarms", 100, 103, partition=1)
    found = planned(source.bootstrap, target.bootstrap, "alarms")["alarms"]
    assert (found["partitions_there"], found["to_send"], found["again"]) == (3, 3, 0)
    shown = plan(source.bootstrap, target.bootstrap, "alarms|raw")
    head, *rows = shown.stdout.splitlines()
    assert head.split("  ")[0] == "TOPIC"
    assert [row.split() for row in rows if "__edge_ledger" not in row] == [
        ["alarms", "lab.alarms", "3", "3", "3", "0", "0"],
        ["raw", "lab.raw", "1", "-", "0", "0", "0"],
    ]


def test_a_plan_of_nothing_says_what_was_meant_and_fails(source, target):
    create_topic(source.bootstrap, "alarms", 1)
    done = plan(source.bootstrap, target.bootstrap, "alarm")
    assert done.returncode == 1
    assert done.stderr == "No topic of the source matches 'alarm'; did you mean 'alarms'?\n"
    away = plan(source.bootstrap, f"127.0.0.1:{free_port()}", "alarms")
    assert away.returncode == 1
    assert away.stderr.count("\n") == 1
    assert "the target 127.0.0.1:" in away.stderr


def test_the_status_is_the_mirrors_own_word_and_without_it_the_sources(target, tmp_path):
    with EdgeBroker(tmp_path / "source") as source:
        create_topic(source.bootstrap, "followed", 2)
        produce(source.bootstrap, "followed", 0, 300)
        at_work = mirror(tmp_path, source, target, "followed")
        words = ["status", "--source", source.bootstrap, "--site", "lab", "--topics", "followed"]
        asked = [*words, "--metrics", f"127.0.0.1:{at_work.metrics_port}"]
        with at_work:
            wait_mirrored(target.bootstrap, "lab.followed", {0: 300})
            wait_until(lambda: ours(*asked).returncode == 0, 30, "well")
            told = json.loads(ours(*asked, "--json").stdout)
            [topic] = [one for one in told["topics"] if one["topic"] == "followed"]
            assert (topic["target_name"], topic["partitions"], topic["lag_records"]) == ("lab.followed", 2, 0)
            assert told["told_by"] == "mirror"
            assert told["target"]["state"] == told["source"]["state"] == "up"
            assert told["target"]["wire_out_bytes"] > 3000  # keys and values, packed
            assert told["source"]["wire_in_bytes"] > 300 * 80
            assert told["link"]["round_trip_ms"] > 0
        produce(source.bootstrap, "followed", 300, 340)
        gone = ours(*asked)
        assert gone.returncode == 3
        assert "the mirror does not run; this is what its group at the source tells." in gone.stdout
        told = json.loads(ours(*words, "--json").stdout)
        [topic] = [one for one in told["topics"] if one["topic"] == "followed"]
        assert (told["told_by"], topic["lag_records"], topic["lag_bytes_estimated"]) == ("source", 40, True)
        assert topic["lag_bytes"] > 40 * 80
        assert topic["lag_s"] > 3000  # as its producer's clock said
        assert ours(*words, "--max-lag", "39").returncode == 1


def test_what_kafka_refuses_is_put_aside_or_waited_for_as_the_file_says(source, target, tmp_path):
    create_topic(source.bootstrap, "strict", 2)
    create_topic(target.bootstrap, "lab.strict", 2, {"cleanup.policy": "compact", "max.message.bytes": "50000"})
    producer = Producer({"bootstrap.servers": source.bootstrap, "message.max.bytes": 2_500_000, "linger.ms": 50})
    for number in range(40):  # the target's cleaner wants keys
        key = None if number in (7, 30) else b"%d" % number
        producer.produce("strict", b"%d " % number, key=key, partition=0, headers={"n": "1"})
    for number in range(10):
        value = b"%d " % number + (random.Random(1).randbytes(60_000) if number == 4 else b"")
        producer.produce("strict", value, key=b"%d" % number, partition=1)
    assert producer.flush(CALL_S) == 0
    with mirror(tmp_path, source, target, "strict") as at_work:
        wait_mirrored(target.bootstrap, "lab.strict", {0: 7, 1: 4})
        wait_until(lambda: at_work.get("/health")[1].count("it waits") == 2, 30, "both told")
        told = at_work.get("/health")[1]
    assert re.search(r"strict-0: the target refuses the record at offset 7, of \d+ bytes: INVALID_RECORD", told)
    assert re.search(r"strict-1: the target refuses the record at offset 4, of \d+ bytes: MESSAGE_TOO_LARGE", told)
    aside = '[topic."strict"]\non_refused = "dead_letter"\n'
    with mirror(tmp_path, source, target, "strict", tables=aside) as at_work:
        wait_mirrored(target.bootstrap, "lab.strict", {0: 38, 1: 9})
        wait_until(lambda: at_work.metric("edge_mirror_ledger_records_total") == 3, 30, "in the ledger")
    assert numbers(read_all(target.bootstrap, "lab.strict")) == [n for n in range(40) if n not in (7, 30)]
    letters = {(dict(one.headers)["dead_letter.partition"], dict(one.headers)["dead_letter.offset"]): one
               for one in read_all(source.bootstrap, "__edge_dead_letter")}  # fmt: skip
    assert letters.keys() == {(b"0", b"7"), (b"0", b"30"), (b"1", b"4")}
    assert letters[b"0", b"7"].headers[0] == ("n", b"1")
    assert len(letters[b"1", b"4"].value) > 60_000
    ledgered = [json.loads(one.value) for one in read_all(source.bootstrap, "__edge_ledger")]
    assert {(one["cause"], one["partition"], one["first_offset"]) for one in ledgered} == {
        ("record_refused", 0, 7), ("record_refused", 0, 30), ("record_refused", 1, 4),
    }  # fmt: skip


def alter(bootstrap, topic, **settings):
    resource = ConfigResource(
        ConfigResource.Type.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in settings.items()
        ],
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(CALL_S)


def test_settings_follow_the_source_but_for_what_was_changed_at_the_target(source, target, tmp_path):
    create_topic(source.bootstrap, "kept_up", 1, {"retention.ms": "86400000", "delete.retention.ms": "5000"})
    create_topic(source.bootstrap, "grows", 1)
    create_topic(target.bootstrap, "lab.grows", 1)  # somebody made it, and limits nothing
    with mirror(tmp_path, source, target, "kept_up|grows") as at_work:
        produce(source.bootstrap, "kept_up", 0, 1)
        produce(source.bootstrap, "grows", 0, 1)
        wait_mirrored(target.bootstrap, "lab.kept_up", {0: 1})
        wait_mirrored(target.bootstrap, "lab.grows", {0: 1})
        alter(target.bootstrap, "lab.kept_up", delete_retention_ms="7777")
        alter(
            source.bootstrap,
            "kept_up",
            retention_ms="90000000",
            delete_retention_ms="6000",
            max_message_bytes="4000000",
        )
        followed = "topic=lab.kept_up settings="
        wait_until(lambda: any(followed in line for line in at_work.events("topic_config_synced")), 30, "they follow")
        producer = Producer({"bootstrap.servers": source.bootstrap, "message.max.bytes": 2_900_000})
        producer.produce("grows", b"1 " + random.Random(1).randbytes(2_500_000), partition=0)
        assert producer.flush(CALL_S) == 0
        wait_mirrored(target.bootstrap, "lab.grows", {0: 2})
        assert at_work.metric("edge_mirror_ledger_records_total") == 0
        left = at_work.events("settings_left")
    found = settings_of(target.bootstrap, "lab.kept_up")
    assert (found["retention.ms"], found["max.message.bytes"]) == ("90000000", "4000000")
    assert found["delete.retention.ms"] == "7777"
    assert any('here="delete.retention.ms=6000" there="delete.retention.ms=7777"' in line for line in left)
    assert settings_of(target.bootstrap, "lab.grows")["max.message.bytes"] == "3000000"


def test_apache_kafka_that_hides_state_topics_is_told_from_one_without(target, source):
    """Metadata of all topics leaves out what may not be described; `plan` asks by name."""
    create_topic(target.bootstrap, "hidden", 1)
    words = [runtimes.console_script("edge-mirror"), "plan", "--source", target.bootstrap]
    words += ["--target", source.bootstrap, "--topics", "hidden"]

    def plan():
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=CALL_S * 3)
        return done.returncode, "may not see the state topics of other mirrors" in done.stderr

    wait_until(lambda: plan() == (0, False), 30, "the group has a coordinator")
    rule = AclBinding(
        ResourceType.TOPIC,
        "__edge-mirror-",
        ResourcePatternType.PREFIXED,
        "User:ANONYMOUS",
        "*",
        AclOperation.DESCRIBE,
        AclPermissionType.DENY,
    )
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    admin.create_acls([rule])[rule].result(CALL_S)
    try:
        wait_until(lambda: plan() == (1, True), 30, "the ACL holds")
    finally:
        pattern = AclBindingFilter(
            ResourceType.TOPIC,
            "__edge-mirror-",
            ResourcePatternType.PREFIXED,
            "User:ANONYMOUS",
            "*",
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        admin.delete_acls([pattern])[pattern].result(CALL_S)
    wait_until(lambda: plan() == (0, False), 30, "all may be seen again")
