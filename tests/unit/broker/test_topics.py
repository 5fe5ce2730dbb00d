"""Metadata, CreateTopics, DeleteTopics, DescribeConfigs."""

from __future__ import annotations

import gc
import uuid
from typing import Any

import pytest

from edge_broker.app import delete_expired
from edge_broker.broker.context import RequestContext, Session
from edge_broker.broker.outcomes import Steps
from edge_broker.configuration.settings import TOPIC_KEYS, as_text
from edge_broker.errors import ErrorCode
from edge_broker.handlers import HANDLERS
from edge_broker.protocol.api import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_TOPIC_PARTITIONS,
    METADATA,
    PRODUCE,
)
from edge_broker.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from edge_broker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from edge_broker.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from edge_broker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from edge_broker.testing.site import Site
from edge_broker.testing.steps import carried_out
from tests.support.half_way import HalfWay
from tests.support.storage import batch, failing, fill, names_of
from tests.unit.broker.test_groups_and_ids import find
from tests.unit.broker.test_produce import code, produce

KERNEL = "9223372036854775807"
TOPIC_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 1, 4, 5
BOOLEAN, INT, LONG, DOUBLE, LIST = 1, 3, 5, 6, 7


# Metadata


def metadata(*names: str, allow: bool = True) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=allow)


def test_topics_of_the_broker_are_told_to_be_internal() -> None:
    """So that a subscription to `.*` gets no ledger: clients leave out what is internal."""
    site = Site()
    site.topic("t")
    find(site.client(), "g")
    told = site.client().ask(METADATA, MetadataRequest(topics=None, allow_auto_topic_creation=False))
    internal = {topic.name: topic.is_internal for topic in told.topics}
    assert internal == {"t": False, "__consumer_offsets": True, "__edge_ledger": True}


def test_an_unknown_topic_is_made_and_its_leader_returned_at_once() -> None:
    site = Site({"num.partitions": 3})
    response = site.client().ask(METADATA, metadata("t"))
    (topic,) = response.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "t", False)
    assert topic.topic_id == site.store.topics["t"].topic_id
    assert [(one.partition_index, one.leader_id, one.isr_nodes) for one in topic.partitions] == [
        (number, 1, [1]) for number in range(3)
    ]
    assert [(one.node_id, one.host, one.port) for one in response.brokers] == [(1, "edge.local", 9092)]
    assert (response.cluster_id, response.controller_id) == (site.store.directory.cluster_id, 1)


def test_a_topic_is_on_disk_when_it_is_answered() -> None:
    site = Site()
    topic_id = site.client().ask(METADATA, metadata("t")).topics[0].topic_id
    assert site.reopen("cut").store.topics["t"].topic_id == topic_id


def test_many_who_ask_at_once_get_one_topic() -> None:
    site = Site()
    clients = [site.client() for _ in range(5)]
    for number, client in enumerate(clients):
        client.send(METADATA, metadata("t", f"own-{number}"))
    assert [client.answers() for client in clients] == [[]] * 5
    site.run_until_idle()
    found = [client.answer().topics for client in clients]
    assert {topics[0].topic_id for topics in found} == {site.store.topics["t"].topic_id}
    assert all(topic.error_code == 0 for topics in found for topic in topics)
    assert site.broker.topics.changing == set()


def test_a_topic_that_cannot_be_made_leaves_its_neighbour_and_can_be_made_later() -> None:
    site = Site()
    site.disk.fault = failing("create", "/bad-0/")
    response = site.client().ask(METADATA, metadata("bad", "good"))
    assert [topic.error_code for topic in response.topics] == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
    assert names_of(site.store) == {"good"}
    site.disk.fault = None
    assert site.client().ask(METADATA, metadata("bad")).topics[0].error_code == 0
    assert names_of(site.reopen("cut").store) == {"bad", "good"}


def test_who_gives_up_before_the_topic_is_made_leaves_it_usable() -> None:
    site = Site()
    client = site.client()
    client.send(METADATA, metadata("t"))
    client.lose()
    site.run_until_idle()
    assert site.client().ask(METADATA, metadata("t")).topics[0].error_code == 0


@pytest.mark.parametrize(
    ("settings", "allow", "version"),
    [
        ({}, False, 13),
        ({"auto.create.topics.enable": False}, True, 13),
        ({"auto.create.topics.enable": False}, True, 3),
    ],
)
def test_no_topic_is_made_where_it_is_not_allowed(settings: dict[str, Any], allow: bool, version: int) -> None:
    site = Site(settings)
    response = site.client().ask(METADATA, metadata("t", "a b", allow=allow), version)
    refused = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert [topic.error_code for topic in response.topics] == refused
    assert names_of(site.store) == set()


def test_versions_without_the_flag_make_topics() -> None:
    site = Site()
    assert site.client().ask(METADATA, metadata("t"), 1).topics[0].error_code == 0


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "x" * 250, "ü"])
def test_a_bad_name_is_refused(name: str) -> None:
    site = Site()
    response = site.client().ask(METADATA, metadata(name, "good"))
    assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_TOPIC_EXCEPTION, 0]


@pytest.mark.parametrize(
    ("version", "topics", "shown"), [(0, [], 3), (1, [], 0), (1, None, 3), (12, [], 0), (12, None, 3)]
)
def test_what_asks_for_all_topics(version: int, topics: list[MetadataRequestTopic] | None, shown: int) -> None:
    site = Site()
    site.topic("a"), site.topic("b")
    response = site.client().ask(METADATA, MetadataRequest(topics=topics), version)
    assert len(response.topics) == shown


def test_by_id() -> None:
    site = Site()
    site.topic()
    known, unknown = site.store.topics["t"].topic_id, uuid.uuid4()
    request = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=one) for one in (known, unknown)])
    found, missing = site.client().ask(METADATA, request, 12).topics
    assert (found.name, found.error_code) == ("t", 0)
    assert (missing.name, missing.topic_id, missing.error_code) == (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID)


# CreateTopics


def new(name: str, partitions: int = 1, replicas: int = 1, config: dict[str, str | None] | None = None) -> Any:
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=configs)


def create(site: Site, *topics: CreatableTopic, validate_only: bool = False) -> list[Any]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    found: list[Any] = site.client().ask(CREATE_TOPICS, request).topics
    return found


def test_a_topic_that_another_request_made_meanwhile_stays_as_it_is() -> None:
    site = Site({"edge.partitions.max": 20})
    slow = HalfWay(site, CREATE_TOPICS, CreateTopicsRequest(topics=[new("t", 3), new("full", 10), new("u")]), steps=3)
    (made,) = create(site, new("t", 10))
    fill(site.store.topics["t"].partitions[0], 2)
    found = {one.name: one.error_code for one in slow.answer().topics}
    assert found == {"t": ErrorCode.TOPIC_ALREADY_EXISTS, "full": ErrorCode.POLICY_VIOLATION, "u": 0}
    again = site.reopen("kill")
    topic = again.store.topics["t"]
    assert (topic.topic_id, len(topic.partitions)) == (made.topic_id, 10)
    assert topic.partitions[0].log_end_offset == 2


def test_a_new_topic_is_answered_once_it_is_on_disk() -> None:
    site = Site({"num.partitions": 4})
    client = site.client()
    client.send(CREATE_TOPICS, CreateTopicsRequest(topics=[new("t", 2, config={"retention.ms": "5000"})]))
    assert client.answers() == []
    site.run_until_idle()
    (made,) = client.answer().topics
    assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 2, 1)
    sources = {entry.name: (entry.value, entry.config_source) for entry in made.configs}
    assert sources["retention.ms"] == ("5000", TOPIC_CONFIG)
    assert sources["retention.bytes"] == ("-1", DEFAULT_CONFIG)
    again = site.reopen("cut")
    assert again.store.topics["t"].topic_id == made.topic_id
    assert create(again, new("default", -1, -1))[0].num_partitions == 4


def test_whose_leader_is_named_takes_records_at_once() -> None:
    """Also before its maker is answered. Apache Kafka loses what acks=0 brings between the one and the other."""
    site = Site()
    maker, writer = site.client(), site.client()
    maker.send(CREATE_TOPICS, CreateTopicsRequest(topics=[new("t")]))
    written = 0
    while not maker.answers():
        for worker in site.workers.values():
            if worker:
                worker.step()
            writer.send(METADATA, metadata("t", allow=False))
            for response in writer.answers():
                if response.topics[0].partitions:
                    writer.send(PRODUCE, produce(("t", 0, batch(b"a")), acks=0))
                    written += 1
            site.loop.run()
    assert not writer.transport.closed
    assert written > 0
    site.run_until_idle()
    assert site.store.topics["t"].partitions[0].log_end_offset == written


@pytest.mark.parametrize(
    ("topic", "refused"),
    [
        (new("t"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (new("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new("__consumer_offsets"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new("n", 0), ErrorCode.INVALID_PARTITIONS),
        (new("n", -2), ErrorCode.INVALID_PARTITIONS),
        (new("n", 11), ErrorCode.INVALID_PARTITIONS),
        (new("n", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new("n", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new("n", config={"retention.msec": "1"}), ErrorCode.INVALID_CONFIG),
        (new("n", config={"edge.required.groups": "g" * 2048}), ErrorCode.INVALID_CONFIG),
        (new("n", config={"edge.required.groups": "é" * 512}), ErrorCode.INVALID_CONFIG),
        (new("n", config={"cleanup.policy": "delete" + " " * 2048}), ErrorCode.INVALID_CONFIG),
        (new("n", config={"n" * 2049: ""}), ErrorCode.INVALID_CONFIG),
        (new("n", config={"edge.required.groups": ",".join(map(str, range(21)))}), ErrorCode.INVALID_CONFIG),
        (new("n", config={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (new("n", config={"edge.durability": "synced"}), ErrorCode.INVALID_CONFIG),
        (new("n", config={"min.insync.replicas": "0"}), ErrorCode.INVALID_CONFIG),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_each_refusal_leaves_its_neighbour(topic: CreatableTopic, refused: ErrorCode, validate_only: bool) -> None:
    site = Site({"edge.topic.partitions.max": 10})
    site.topic()
    bad, good = create(site, topic, new("good"), validate_only=validate_only)
    assert (bad.error_code, good.error_code) == (refused, 0)
    assert 0 < len(bad.error_message) < 1000
    assert bad.num_partitions == -1
    assert names_of(site.store) == ({"t"} if validate_only else {"t", "good"})


def test_every_key_and_twenty_groups_fit_into_the_bound_and_longer_values_of_older_versions_are_opened() -> None:
    groups = ",".join(f"connect-mirror-of-site-{number:02d}-to-central" for number in range(20))
    config = {key.name: as_text(key.default) for key in TOPIC_KEYS.values()}
    config |= {"edge.required.groups": groups, "edge.durability": "interval"}
    site = Site()
    assert create(site, new("n", config=config))[0].error_code == ErrorCode.NONE
    old = {"edge.required.groups": "g" * 30_000}
    site.store.add_topic(site.store.topic_files.make_topic("old", 1, old, site.broker.clock.new_uuid()))
    assert site.reopen("cut").store.topics["old"].config == old


def test_the_names_in_metrics_are_gathered_once_for_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    site.topic("a.b")
    gathered: list[int] = []
    gather = site.broker.topics.in_metrics

    def counted() -> dict[str, str]:
        gathered.append(1)
        return gather()

    monkeypatch.setattr(site.broker.topics, "in_metrics", counted)
    asked = [new(f"n_{number}") for number in range(50)]
    answers = create(site, *asked, new("a_b"), validate_only=True)
    assert [one.error_code for one in answers] == [0] * 50 + [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert len(gathered) == 1


def test_the_same_name_twice_in_one_request_is_refused() -> None:
    site = Site()
    results = create(site, new("n"), new("n"), new("n"), new("good"))
    assert [(one.name, one.error_code) for one in results] == [("n", ErrorCode.INVALID_REQUEST), ("good", 0)]
    assert names_of(site.store) == {"good"}


@pytest.mark.parametrize(
    ("assignments", "partitions", "refused"),
    [
        ({0: [1], 1: [1]}, -1, ErrorCode.NONE),
        ({0: [1], 2: [1]}, -1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [2]}, -1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [1, 2]}, -1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [1]}, 1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_assignments(assignments: dict[int, list[int]], partitions: int, refused: ErrorCode) -> None:
    site = Site()
    topic = new("t", partitions, -1)
    topic.assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=brokers) for index, brokers in assignments.items()
    ]
    (result,) = create(site, topic)
    assert result.error_code == refused
    assert len(site.store.topics["t"].partitions if "t" in site.store.topics else []) == (
        2 if refused == ErrorCode.NONE else 0
    )


def test_two_who_make_the_same_topic_at_once() -> None:
    site = Site()
    first, second = site.client(), site.client()
    for client in (first, second):
        client.send(CREATE_TOPICS, CreateTopicsRequest(topics=[new("t")]))
    site.run_until_idle()
    assert first.answer().topics[0].error_code == 0
    assert second.answer().topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


# DeleteTopics


def by_name(*names: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names])


def test_delete_is_answered_once_it_is_on_disk_and_tells_who_waits() -> None:
    site = Site()
    site.topic()
    site.topic("other")
    waiting, client = site.client(), site.client()
    waiting.send(PRODUCE, produce(("t", 0, batch())))
    client.send(DELETE_TOPICS, by_name("t"))
    assert client.answers() == []
    assert code(waiting.answer()) is ErrorCode.KAFKA_STORAGE_ERROR
    assert code(site.client().ask(PRODUCE, produce(("t", 0, batch())))) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    site.run_until_idle()
    (result,) = client.answer().responses
    assert (result.name, result.error_code) == ("t", 0)
    again = site.reopen("cut")
    assert names_of(again.store) == {"other"}
    assert not any(name.startswith("t-") for name in again.disk.names("/data"))


def test_a_topic_of_the_same_name_is_another_one() -> None:
    site = Site()
    site.topic()
    before = site.store.topics["t"].topic_id
    client = site.client()
    client.ask(PRODUCE, produce(("t", 0, batch(b"old"))))
    client.send(DELETE_TOPICS, by_name("t"))
    client.send(CREATE_TOPICS, CreateTopicsRequest(topics=[new("t")]))
    site.run_until_idle()
    assert [one.error_code for one in (client.answers()[1].topics)] == [0]
    assert site.store.topics["t"].topic_id != before
    assert site.store.topics["t"].partitions[0].log_end_offset == 0
    assert code(site.client().ask(PRODUCE, produce(("t", 0, batch(b"new"))))) is ErrorCode.NONE
    again = site.reopen("cut")
    assert again.store.topics["t"].partitions[0].high_watermark == 1


def test_delete_by_id_and_its_refusals() -> None:
    site = Site()
    site.topic()
    site.topic("both")
    site.topic("__consumer_offsets")
    ids = {name: topic.topic_id for name, topic in site.store.topics.items()}
    request = DeleteTopicsRequest(
        topics=[
            DeleteTopicState(name=None, topic_id=ids["t"]),
            DeleteTopicState(name=None, topic_id=uuid.uuid4()),
            DeleteTopicState(name=None, topic_id=ids["__consumer_offsets"]),
            DeleteTopicState(name="both", topic_id=ids["both"]),
            DeleteTopicState(name="missing"),
            DeleteTopicState(name="__consumer_offsets"),
        ]
    )
    response = site.client().ask(DELETE_TOPICS, request)
    assert [one.error_code for one in response.responses] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert response.responses[0].name == "t"
    assert names_of(site.store) == {"both", "__consumer_offsets"}


def test_old_versions_delete_by_name() -> None:
    site = Site()
    site.topic()
    response = site.client().ask(DELETE_TOPICS, DeleteTopicsRequest(topic_names=["t", "missing"]), 3)
    assert [one.error_code for one in response.responses] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_deletion_can_be_switched_off() -> None:
    site = Site({"delete.topic.enable": False})
    site.topic()
    response = site.client().ask(DELETE_TOPICS, by_name("t"))
    assert response.responses[0].error_code == ErrorCode.TOPIC_DELETION_DISABLED
    assert "t" in site.store.topics


def test_a_deletion_that_fails_is_no_success() -> None:
    site = Site()
    site.topic()
    site.disk.fault = failing("remove", "/topics/t.json")
    response = site.client().ask(DELETE_TOPICS, by_name("t", "missing"))
    assert [one.error_code for one in response.responses] == [
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_a_name_is_free_again_once_the_old_topic_is_erased() -> None:
    """Also while the disk is at a sync or a roll of the old one, which knows its directory by name."""
    site = Site()
    old = site.topic(config={"segment.bytes": "4096"})[0]
    fill(old, 1, 3500)
    writing, client, other = site.client(), site.client(), site.client()
    writing.send(PRODUCE, produce(("t", 0, batch(bytes(1000)))))
    client.send(DELETE_TOPICS, by_name("t"))
    other.send(METADATA, metadata("t"))
    site.files.step()
    assert site.disk.exists("/data/topics/t.json")
    assert other.answers() == []
    site.run_until_idle()
    assert code(writing.answer()) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.answer().responses[0].error_code == 0
    (made,) = other.answer().topics
    assert made.error_code == 0
    assert site.store.topics["t"].topic_id == made.topic_id
    assert site.disk.names("/data/deleted") == []
    assert site.broker.topics.changing == set()
    fill(site.store.topics["t"].partitions[0], 1)
    again = site.reopen("cut").store
    assert again.topics["t"].partitions[0].log_end_offset == 1
    assert again.recovery_notes == []


def test_making_a_topic_waits_for_no_sync() -> None:
    site = Site()
    site.topic()
    site.client().send(PRODUCE, produce(("t", 0, batch())))
    client = site.client()
    client.send(METADATA, metadata("new"))
    site.files.step()
    assert len(site.disk_worker) == 1
    assert client.answer().topics[0].error_code == 0


def test_a_topic_that_is_deleted_during_a_sync_is_no_lost_partition(capsys: pytest.CaptureFixture[str]) -> None:
    site = Site()
    site.topic()
    client = site.client()
    client.send(PRODUCE, produce(("t", 0, batch())))
    site.disk_worker.work()
    client.send(DELETE_TOPICS, by_name("t"))
    site.run_until_idle()
    assert len(client.answers()) == 2
    assert "partition_offline" not in capsys.readouterr().err


# retention


def test_retention_that_fails_is_written_down_and_costs_no_neighbour(capsys: pytest.CaptureFixture[str]) -> None:
    site = Site({"log.retention.ms": 1000})
    logs = site.topic(partitions=2, config={"segment.bytes": "4096"})
    for log in logs:
        fill(log, 3, 2500)
    site.loop.advance(10_000)
    site.disk.fault = failing("remove", "/t-0/")
    delete_expired(site.broker)
    assert len(logs[1].segments) == 1
    written = capsys.readouterr().err
    assert "retention_failed topic=t partition=0" in written
    assert "segments_expired topic=t partition=1 segments=2" in written


# DescribeConfigs


def describe(site: Site, resource_type: int, name: str, keys: list[str] | None = None, version: int = 4) -> Any:
    resource = DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=version >= 3)
    return site.client().ask(DESCRIBE_CONFIGS, request, version).results[0]


def shown(result: Any) -> dict[str, tuple[str, int]]:
    return {entry.name: (entry.value, entry.config_source) for entry in result.configs}


def synonyms(result: Any, name: str) -> list[tuple[str, str, int]]:
    (entry,) = (entry for entry in result.configs if entry.name == name)
    return [(one.name, one.value, one.source) for one in entry.synonyms]


def test_what_the_broker_was_told_is_its_own_also_where_it_is_the_default() -> None:
    site = Site({"log.segment.bytes": 67_108_864})
    site.topic()
    assert shown(describe(site, 2, "t"))["segment.bytes"] == ("67108864", STATIC_BROKER_CONFIG)


def test_admin_clients_find_the_keys_of_the_broker_that_they_look_for() -> None:
    site = Site({"log.retention.ms": 12345})
    result = describe(site, 4, "1")
    found = shown(result)
    assert found["log.retention.ms"] == ("12345", STATIC_BROKER_CONFIG)
    assert [source for _, _, source in synonyms(result, "log.retention.ms")] == [STATIC_BROKER_CONFIG, DEFAULT_CONFIG]
    for name in ("default.replication.factor", "min.insync.replicas"):
        assert found[name] == ("1", DEFAULT_CONFIG)
    assert found["compression.type"] == ("producer", DEFAULT_CONFIG)
    assert found["unclean.leader.election.enable"] == ("false", DEFAULT_CONFIG)
    assert found["node.id"] == ("1", STATIC_BROKER_CONFIG)
    assert found["log.dirs"] == (site.store.data_dir, STATIC_BROKER_CONFIG)
    advertised = site.broker.listeners["PLAINTEXT"].advertised
    assert found["advertised.listeners"] == (f"PLAINTEXT://{advertised.host}:{advertised.port}", STATIC_BROKER_CONFIG)
    assert found["listeners"] == found["advertised.listeners"]
    assert len(found) == len(result.configs)
    assert all(entry.read_only and entry.documentation for entry in result.configs)
    assert describe(site, 4, "").configs == []  # what holds for all brokers and could be altered


def test_topic_keys_say_where_they_come_from() -> None:
    site = Site({"log.retention.ms": 12345})
    site.topic(config={"retention.bytes": "99"})
    result = describe(site, 2, "t")
    found = shown(result)
    assert found["retention.bytes"] == ("99", TOPIC_CONFIG)
    assert found["retention.ms"] == ("12345", STATIC_BROKER_CONFIG)
    assert found["segment.bytes"] == ("67108864", DEFAULT_CONFIG)
    assert found["edge.durability"] == ("sync", DEFAULT_CONFIG)
    entry = next(one for one in result.configs if one.name == "retention.bytes")
    assert entry.documentation
    assert synonyms(result, "retention.bytes") == [
        ("retention.bytes", "99", TOPIC_CONFIG),
        ("log.retention.bytes", "-1", DEFAULT_CONFIG),
    ]
    assert synonyms(result, "retention.ms") == [
        ("log.retention.ms", "12345", STATIC_BROKER_CONFIG),
        ("log.retention.ms", "604800000", DEFAULT_CONFIG),
    ]
    assert synonyms(result, "compression.type") == [("compression.type", "producer", DEFAULT_CONFIG)]
    assert synonyms(result, "segment.jitter.ms") == []
    kinds = {entry.name: entry.config_type for entry in result.configs}
    assert {kinds[name] for name in ("cleanup.policy", "edge.required.groups")} == {LIST}
    assert {kinds[name] for name in ("segment.bytes", "max.message.bytes", "min.insync.replicas")} == {INT}
    assert (kinds["retention.ms"], kinds["preallocate"], kinds["min.cleanable.dirty.ratio"]) == (LONG, BOOLEAN, DOUBLE)
    old = describe(site, 2, "t", version=0)
    assert {entry.name for entry in old.configs if not entry.is_default} == {"retention.bytes", "retention.ms"}


@pytest.mark.parametrize("by", ["topic", "broker"])
def test_a_topic_left_to_the_kernel_says_so(by: str) -> None:
    site = Site({"log.flush.interval.ms": int(KERNEL)} if by == "broker" else {})
    site.topic(config={"flush.ms": KERNEL} if by == "topic" else {})
    result = describe(site, 2, "t", ["edge.durability"])
    assert shown(result) == {"edge.durability": ("kernel", DEFAULT_CONFIG)}


@pytest.mark.parametrize("durability", ["sync", "interval", "kernel"])
def test_durability_can_be_chosen_when_a_topic_is_made(durability: str) -> None:
    site = Site()
    topic = new("n", config={"edge.durability": durability})
    made = site.client().ask(CREATE_TOPICS, CreateTopicsRequest(topics=[topic]))
    assert made.topics[0].error_code == 0
    assert shown(describe(site, 2, "n", ["edge.durability"])) == {"edge.durability": (durability, TOPIC_CONFIG)}
    assert site.reopen("kill").store.topics["n"].settings.durability == durability


def test_broker_keys() -> None:
    site = Site({"num.partitions": 3})
    found = shown(describe(site, 4, "1"))
    assert found["num.partitions"] == ("3", STATIC_BROKER_CONFIG)
    assert found["auto.create.topics.enable"] == ("true", DEFAULT_CONFIG)


def test_resources_that_are_not_here() -> None:
    site = Site()
    assert describe(site, 2, "missing").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert describe(site, 4, "2").error_code == ErrorCode.INVALID_REQUEST
    assert describe(site, 8, "x").error_code == ErrorCode.INVALID_REQUEST


def test_partitions_that_find_no_room_are_refused_and_their_neighbours_are_made() -> None:
    site = Site({"edge.partitions.max": 10})
    topics = [CreatableTopic(name=name, num_partitions=4, replication_factor=1) for name in ("a", "b", "c")]
    answer = site.client().ask(CREATE_TOPICS, CreateTopicsRequest(topics=topics))
    known = sum(len(topic.partitions) for topic in site.store.topics.values())
    assert [one.error_code for one in answer.topics] == [0, 0, ErrorCode.POLICY_VIOLATION]
    assert known <= 10
    several = [site.client() for _ in range(5)]
    for number, client in enumerate(several):
        client.send(METADATA, metadata(f"new {number}".replace(" ", "-")))
    site.run_until_idle()
    assert sum(client.answer().topics[0].error_code == 0 for client in several) == 10 - known


def test_many_names_are_sorted_in_steps_and_answered_in_order_once_each() -> None:
    site = Site()
    names = [f"{number * 7919 % 20_000:05d}" for number in range(20_000)]
    asked = [TopicRequest(name=name) for name in [*names, *names[:100]]]
    context = RequestContext(1, 0, "test", Session("127.0.0.1:4711"))
    outcome = HANDLERS[DESCRIBE_TOPIC_PARTITIONS](site.broker, context, DescribeTopicPartitionsRequest(topics=asked))
    assert isinstance(outcome, Steps)
    before = 0
    while (part := next(outcome.steps)) is None:
        before += 1
    assert before > 20_000 // 5000, "all names are sorted at once"
    assert part.name == "00000"
    last = carried_out(outcome)
    assert [topic.name for topic in last.response.topics] == sorted(names)


def test_nothing_of_a_refused_request_waits_for_a_garbage_collection() -> None:
    """A kept refusal kept its traceback, whose frames held the request: 5,700 of them took 388 MB."""
    entries = [CreatableTopicConfig(name="retention.ms", value="never") for _ in range(100)]
    client = Site().client()
    gc.collect()
    gc.disable()
    try:
        before = sum(isinstance(found, CreatableTopicConfig) for found in gc.get_objects())
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=list(entries))
        answer = client.ask(CREATE_TOPICS, CreateTopicsRequest(topics=[topic]))
        assert answer.topics[0].error_code == ErrorCode.INVALID_CONFIG
        assert sum(isinstance(found, CreatableTopicConfig) for found in gc.get_objects()) == before
    finally:
        gc.enable()
