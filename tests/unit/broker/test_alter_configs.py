"""AlterConfigs and IncrementalAlterConfigs: what changes, what stays, when it holds, and when it is answered."""

from __future__ import annotations

import errno
from functools import partial
from typing import Any

import pytest

from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
    PRODUCE,
)
from edge_broker.protocol.messages import alter_configs, incremental_alter_configs
from edge_broker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from edge_broker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import Site, make_topic
from tests.support.half_way import HalfWay
from tests.support.storage import batch, cut_off, failing, open_store
from tests.unit.broker.test_fetch import BY_NAME, fetch
from tests.unit.broker.test_produce import code, produce

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
INVALID, REQUEST, UNKNOWN = (
    ErrorCode.INVALID_CONFIG,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
Op = tuple[str, int, str | None]


def of_topic(name: str, *configs: Op, kind: int = TOPIC) -> incremental_alter_configs.AlterConfigsResource:
    return incremental_alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in configs
        ],
    )


def request(
    *resources: incremental_alter_configs.AlterConfigsResource, validate_only: bool = False
) -> incremental_alter_configs.IncrementalAlterConfigsRequest:
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=list(resources), validate_only=validate_only
    )


def ask(site: Site, *resources: incremental_alter_configs.AlterConfigsResource, validate_only: bool = False) -> Any:
    answer = site.client().ask(INCREMENTAL_ALTER_CONFIGS, request(*resources, validate_only=validate_only))
    assert [(one.resource_type, one.resource_name) for one in answer.responses] == [
        (one.resource_type, one.resource_name) for one in resources
    ]
    return [one.error_code for one in answer.responses]


def set_all(site: Site, name: str, config: dict[str, str | None], *, validate_only: bool = False) -> int:
    configs = [alter_configs.AlterableConfig(name=key, value=value) for key, value in config.items()]
    resource = alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=configs)
    asked = alter_configs.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (answer,) = site.client().ask(ALTER_CONFIGS, asked).responses
    return int(answer.error_code)


def described(site: Site, key: str, name: str = "t") -> tuple[str | None, int]:
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=[key])
    ((found,),) = [
        one.configs for one in site.client().ask(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource])).results
    ]
    return found.value, found.config_source


@pytest.mark.parametrize("how", ["kill", "cut", "stop"])
def test_what_is_altered_holds_at_once_and_after_a_restart(how: str) -> None:
    site = Site()
    (log,) = site.topic(config={"retention.ms": "5000", "segment.bytes": "8192"})
    assert ask(site, of_topic("t", ("retention.ms", SET, "60000"), ("segment.bytes", DELETE, None))) == [0]
    assert described(site, "retention.ms") == ("60000", 1)
    assert described(site, "segment.bytes")[1] == 5
    assert (log.settings.retention_ms, log.settings.segment_bytes) == (60_000, 67_108_864)
    again = site.reopen(how)
    assert again.store.topics["t"].config == {"retention.ms": "60000"}
    assert again.store.topics["t"].topic_id == site.store.topics["t"].topic_id
    assert again.store.topics["t"].partitions[0].settings.retention_ms == 60_000


def test_the_older_api_sets_the_whole_configuration() -> None:
    site = Site()
    site.topic(config={"retention.ms": "5000"})
    assert set_all(site, "t", {"edge.priority": "9"}) == 0
    assert site.store.topics["t"].config == {"edge.priority": "9"}
    assert set_all(site, "t", {}) == 0
    assert site.store.topics["t"].config == {}
    assert set_all(site, "t", {"retention.ms": None}) == REQUEST
    assert set_all(site, "t", {"retention.ms": "-7"}) == INVALID
    assert set_all(site, "t", {"retention.ms": "7"}, validate_only=True) == 0
    assert site.store.topics["t"].config == {}


def test_the_answer_waits_until_the_topic_is_on_the_disk() -> None:
    site = Site()
    (log,) = site.topic()
    client = site.client()
    client.send(INCREMENTAL_ALTER_CONFIGS, request(of_topic("t", ("retention.ms", SET, "7"))))
    site.files.work()
    assert (client.answers(), log.settings.retention_ms) == ([], 604_800_000)
    site.files.report()
    site.loop.run()
    assert client.answer().responses[0].error_code == 0
    assert log.settings.retention_ms == 7


@pytest.mark.parametrize(
    ("configs", "error"),
    [
        ([("retention.ms", SET, "soon")], INVALID),
        ([("retention.ms", SET, "-2")], INVALID),
        ([("retention.ms", SET, None)], REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], REQUEST),
        ([("retention.ms", 4, "1")], REQUEST),
        ([("retention.ms", APPEND, "1")], INVALID),
        ([("retention.msec", SET, "1")], INVALID),
        ([("edge.durability", SET, "sync"), ("flush.ms", SET, "9223372036854775807")], INVALID),
        ([("edge.required.groups", SET, "g" * 3000)], INVALID),
        ([("edge.required.groups", SET, ",".join("abcdefghijklmnopqrstuvwxyz"))], INVALID),
        ([(str(number), DELETE, None) for number in range(1001)], REQUEST),
    ],
    ids=lambda value: str(value)[:40],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_what_is_refused_leaves_the_topic_as_it_was(configs: list[Op], error: int, validate_only: bool) -> None:
    site = Site()
    for name in ("t", "u"):
        site.topic(name, config={"retention.ms": "5000"})
    good = of_topic("u", ("retention.ms", SET, "6000"))
    assert ask(site, of_topic("t", ("edge.priority", SET, "1"), *configs), good, validate_only=validate_only) == [
        error,
        0,
    ]
    assert site.store.topics["t"].config == {"retention.ms": "5000"}
    assert site.store.topics["u"].config == {"retention.ms": "5000" if validate_only else "6000"}


def test_a_refusal_names_the_nearest_key() -> None:
    site = Site()
    site.topic()
    (answer,) = (
        site.client().ask(INCREMENTAL_ALTER_CONFIGS, request(of_topic("t", ("retention.msec", SET, "1")))).responses
    )
    assert "did you mean 'retention.ms'?" in answer.error_message


def test_each_resource_has_an_answer_of_its_own() -> None:
    site = Site()
    site.topic()
    site.topic("__consumer_offsets")
    one = ("retention.ms", SET, "7")
    assert ask(
        site,
        of_topic("gone", one),
        of_topic("t", one),
        of_topic("__edge_ledger", one),
        of_topic("__consumer_offsets", one),
        of_topic("1", ("log.retention.ms", SET, "7"), kind=BROKER),
        of_topic("x", one, kind=99),
        of_topic("twice", one),
        of_topic("twice", one),
    ) == [UNKNOWN, 0, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_TOPIC_EXCEPTION, *[REQUEST] * 4]
    assert not site.broker.topics.changing


def test_a_key_that_is_not_known_may_be_deleted() -> None:
    """MirrorMaker 2 deletes every key that has its default at the source, whatever the target knows."""
    site = Site()
    site.topic(config={"retention.ms": "5000"})
    assert ask(site, of_topic("t", ("remote.storage.enable", DELETE, None), ("edge.priority", DELETE, None))) == [0]
    assert site.store.topics["t"].config == {"retention.ms": "5000"}


@pytest.mark.parametrize("name", ["1", ""])
def test_to_delete_a_key_of_a_broker_changes_nothing(name: str) -> None:
    """Apache Kafka's kafka-reassign-partitions deletes throttles that nobody has set, and ended with a trace."""
    throttles = [(f"{who}.replication.throttled.rate", DELETE, None) for who in ("leader", "follower")]
    site = Site()
    assert ask(site, of_topic(name, *throttles, kind=BROKER)) == [0]
    assert ask(site, of_topic(name, *throttles, ("log.retention.ms", SET, "7"), kind=BROKER)) == [REQUEST]
    assert ask(site, of_topic(name, kind=BROKER)) == [REQUEST]
    assert ask(site, of_topic("9", *throttles, kind=BROKER)) == [REQUEST]


def test_lists_grow_and_shrink() -> None:
    site = Site()
    site.topic(config={"edge.required.groups": "a"})
    assert ask(
        site, of_topic("t", ("edge.required.groups", APPEND, "b, a"), ("cleanup.policy", APPEND, "compact"))
    ) == [0]
    assert site.store.topics["t"].config == {"edge.required.groups": "a,b", "cleanup.policy": "delete,compact"}
    assert ask(
        site, of_topic("t", ("edge.required.groups", SUBTRACT, "a"), ("cleanup.policy", SUBTRACT, "compact"))
    ) == [0]
    assert site.store.topics["t"].config == {"edge.required.groups": "b", "cleanup.policy": "delete"}
    assert ask(site, of_topic("t", ("edge.required.groups", SUBTRACT, "b"))) == [0]
    assert site.store.topics["t"].settings.groups == ()
    assert ask(site, of_topic("t", ("leader.replication.throttled.replicas", APPEND, "0:1"))) == [0]
    assert ask(site, of_topic("t", ("leader.replication.throttled.replicas", APPEND, "1:1"))) == [0]
    assert site.store.topics["t"].config["leader.replication.throttled.replicas"] == "0:1,1:1"
    assert ask(site, of_topic("t", ("cleanup.policy", SUBTRACT, "delete"))) == [0]  # as Kafka: nothing is ever deleted
    assert not site.store.topics["t"].settings.deletes


def test_what_changes_nothing_writes_nothing() -> None:
    site = Site()
    site.topic(config={"retention.ms": "5000"})
    steps = site.disk.steps
    assert ask(site, of_topic("t", ("retention.ms", SET, "5000"), ("edge.priority", DELETE, None))) == [0]
    assert site.disk.steps == steps


def test_alterations_of_one_topic_come_one_after_the_other_and_lose_nothing() -> None:
    site = Site()
    site.topic()
    clients = [site.client() for _ in range(3)]
    for client, key in zip(clients, ("retention.ms", "segment.bytes", "max.message.bytes"), strict=True):
        client.send(INCREMENTAL_ALTER_CONFIGS, request(of_topic("t", (key, SET, "9999"))))
    more = site.client()
    topics = [CreatePartitionsTopic(name="t", count=2, assignments=None)]
    more.send(CREATE_PARTITIONS, CreatePartitionsRequest(topics=topics, timeout_ms=1000))
    site.run_until_idle()
    assert [client.answer().responses[0].error_code for client in clients] == [0, 0, 0]
    assert more.answer().results[0].error_code == 0
    topic = site.reopen("kill").store.topics["t"]
    assert set(topic.config) == {"retention.ms", "segment.bytes", "max.message.bytes"}
    assert [log.settings.retention_ms for log in topic.partitions] == [9999, 9999]


def test_a_topic_that_is_deleted_meanwhile_is_unknown() -> None:
    site = Site()
    for name in ("t", "u"):
        site.topic(name)
    asked = [of_topic(name, ("retention.ms", SET, "7")) for name in ("t", "u")]
    slow = HalfWay(site, INCREMENTAL_ALTER_CONFIGS, request(*asked), steps=4)
    site.client().ask(DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000))
    assert [one.error_code for one in slow.answer().responses] == [UNKNOWN, 0]


@pytest.mark.parametrize("kind", ["create", "write", "datasync", "rename"])
def test_what_cannot_be_written_leaves_the_topic_as_it_was(kind: str) -> None:
    site = Site()
    (log,) = site.topic(config={"retention.ms": "5000"})

    def broken(step: str, at: str, _size: int) -> None:
        if step == kind and "/topics/" in at:
            raise OSError(errno.EIO, "broken", at)

    site.disk.fault = broken
    assert ask(site, of_topic("t", ("retention.ms", SET, "7"))) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert (log.settings.retention_ms, len(site.broker.topics.changing)) == (5000, 0)
    site.disk.fault = None
    assert code(site.client().ask(PRODUCE, produce(("t", 0, batch(b"a"))))) == 0
    assert ask(site, of_topic("t", ("retention.ms", SET, "7"))) == [0]
    assert site.reopen("kill").store.topics["t"].config == {"retention.ms": "7"}


@pytest.mark.parametrize("seed", range(3))
def test_cut_at_any_step_a_topic_has_the_old_configuration_or_the_new_one(seed: int) -> None:
    for step in range(1, 40):
        disk = SimulatedDisk(1000 * seed + step)
        store = open_store(disk)
        topic = make_topic(store, config={"cleanup.policy": "compact"})
        store.checkpoint()
        if not cut_off(disk, step, partial(store.topic_files.write_config, topic, {"cleanup.policy": "delete"})):
            assert step > 3
            return
        disk.crash()
        found = open_store(disk).topics["t"]
        assert found.config in ({"cleanup.policy": "compact"}, {"cleanup.policy": "delete"})
        assert found.settings.may_have_gaps


# edge.durability


def test_what_was_left_to_the_kernel_stays_shown_and_is_synced_before_the_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    site = Site()
    (log,) = site.topic(config={"edge.durability": "kernel"})
    producer, altering = site.client(), site.client()
    assert code(producer.ask(PRODUCE, produce(("t", 0, batch(b"a", b"b"))))) == 0
    assert (log.high_watermark, log.synced_end.offset) == (2, 0)
    altering.send(INCREMENTAL_ALTER_CONFIGS, request(of_topic("t", ("edge.durability", SET, "sync"))))
    site.files.step()
    site.loop.run()
    assert (altering.answers(), log.high_watermark) == ([], 2)
    shown = site.client().ask(FETCH, fetch(("t", 0, 0)), BY_NAME).responses[0].partitions[0]
    assert (shown.high_watermark, altering.answer().responses[0].error_code) == (2, 0)
    assert log.synced_end.offset == 2
    assert code(producer.ask(PRODUCE, produce(("t", 0, batch(b"c"))))) == 0
    assert site.reopen("cut").store.topics["t"].partitions[0].log_end_offset == 3
    assert "durability" not in capsys.readouterr().err


def test_what_waits_for_the_sync_is_answered_and_shown_once_the_topic_is_left_to_the_kernel(
    capsys: pytest.CaptureFixture[str],
) -> None:
    site = Site()
    (log,) = site.topic(config={"edge.durability": "interval", "flush.ms": "60000"})
    reader = site.client()
    reader.send(FETCH, fetch(("t", 0, 0), max_wait_ms=90_000), BY_NAME)
    assert code(site.client().ask(PRODUCE, produce(("t", 0, batch(b"a"))))) == 0
    assert reader.answers() == []
    assert ask(site, of_topic("t", ("edge.durability", SET, "kernel"))) == [0]
    assert reader.answer().responses[0].partitions[0].high_watermark == log.high_watermark == 1
    assert "edge.durability went down from interval to kernel" in capsys.readouterr().err


def test_a_disk_that_fails_behind_an_alteration_is_no_success() -> None:
    site = Site()
    (log,) = site.topic(config={"edge.durability": "kernel"})
    assert code(site.client().ask(PRODUCE, produce(("t", 0, batch(b"a"))))) == 0

    site.disk.fault = failing("datasync", "/t-0/")
    assert ask(site, of_topic("t", ("edge.durability", SET, "sync"))) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert log.fault is not None
