"""CreateTopics, DeleteTopics, DescribeConfigs."""

from __future__ import annotations

from uuid import UUID

from edge_broker.handlers import APIS
from edge_broker.protocol.api import (
    ALTER_PARTITION_REASSIGNMENTS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    LIST_PARTITION_REASSIGNMENTS,
)
from edge_broker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from edge_broker.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from edge_broker.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from edge_broker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from edge_broker.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from edge_broker.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.differential.session import Session, case

NEWEST_CREATE = (APIS[CREATE_TOPICS].max_version,)
TOPIC, BROKER = 2, 4


def _new(name: str, partitions: int = 1, replicas: int = 1, **configs: str | None) -> CreatableTopic:
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=settings)


def _create(s: Session, version: int, label: str, *topics: CreatableTopic, only: bool = False) -> None:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=30_000, validate_only=only)
    answer = s.ask(CREATE_TOPICS, request, version, label=label, on=label)
    for topic in answer.topics:
        made = next(wanted for wanted in topics if wanted.name == topic.name)
        if topic.error_code == 0 and not only:
            s.wait_for(topic.name, made.num_partitions if made.num_partitions > 0 else len(made.assignments) or 1)


@case(CREATE_TOPICS)
def create_topics(s: Session, version: int) -> None:
    _create(s, version, "one", _new(s.name("a"), 2))
    _create(s, version, "again", _new(s.name("a"), 2))
    _create(s, version, "none of two names", _new(s.name("b")), _new(s.name("c"), 0))
    if version >= 1:
        _create(s, version, "validate only", _new(s.name("d")), only=True)
    if version >= 4:
        _create(s, version, "defaults", _new(s.name("e"), -1, -1))


@case(CREATE_TOPICS, versions=NEWEST_CREATE)
def create_topics_refused(s: Session, version: int) -> None:
    s.coordinator(s.name("g"))  # so that Kafka has the internal topic, which it makes for the first group
    for label, topic in {
        "partitions 0": _new(s.name("a"), 0),
        "partitions -2": _new(s.name("b"), -2),
        "replicas 0": _new(s.name("c"), 1, 0),
        "replicas 2": _new(s.name("d"), 1, 2),
        "empty name": _new(""),
        "dot": _new("."),
        "two dots": _new(".."),
        "space": _new("with space"),
        "too long": _new("x" * 250),
        "internal": _new("__consumer_offsets"),
        "unknown key": _new(s.name("e"), nonsense_key="1"),
        "bad value": _new(s.name("f"), retention_ms="soon"),
        "negative value": _new(s.name("g"), segment_bytes="-5"),
        "null value": _new(s.name("h"), retention_ms=None),
        "bad policy": _new(s.name("i"), cleanup_policy="shred"),
        "assignments and partitions": CreatableTopic(
            name=s.name("j"),
            num_partitions=2,
            replication_factor=1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1])],
        ),
        "assignment with a gap": CreatableTopic(
            name=s.name("k"),
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=1, broker_ids=[1])],
        ),
        "assignment to nobody": CreatableTopic(
            name=s.name("l"),
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[77])],
        ),
    }.items():
        _create(s, version, label, topic)
    _create(s, version, "named twice", _new(s.name("z")), _new(s.name("z")))
    s.topic("x.y")
    _create(s, version, "a dot where one has an underscore", _new(s.name("x_y")))


@case(CREATE_TOPICS, versions=NEWEST_CREATE)
def create_topics_with_assignments(s: Session, version: int) -> None:
    given = [CreatableReplicaAssignment(partition_index=index, broker_ids=[1]) for index in (0, 1)]
    topic = CreatableTopic(name=s.name("a"), num_partitions=-1, replication_factor=-1, assignments=given)
    _create(s, version, "assigned", topic)


CONFIGS = {
    "cleanup_policy": "compact",
    "compression_type": "lz4",
    "min_insync_replicas": "2",
    "flush_messages": "1",
    "flush_ms": "0",
    "max_message_bytes": "0",
    "unclean_leader_election_enable": "true",
    "preallocate": "true",
    "segment_index_bytes": "4096",
    "segment_jitter_ms": "1000",
    "message_timestamp_before_max_ms": "1000000",
    "message_timestamp_after_max_ms": "1000000",
    "message_timestamp_type": "LogAppendTime",
    "leader_replication_throttled_replicas": "*",
    "remote_storage_enable": "false",
    "local_retention_ms": "-2",
    "index_interval_bytes": "0",
    "retention_ms": "-1",
    "retention_bytes": "1000000",
    "segment_bytes": "1048576",
    "segment_ms": "60000",
    "min_cleanable_dirty_ratio": "0.1",
    "delete_retention_ms": "1000",
    "min_compaction_lag_ms": "1000",
    "max_compaction_lag_ms": "1000000",
    "file_delete_delay_ms": "1000",
}


@case(CREATE_TOPICS, versions=NEWEST_CREATE)
def create_topics_with_each_config(s: Session, version: int) -> None:
    for index, (key, value) in enumerate(CONFIGS.items()):
        _create(s, version, key.replace("_", "."), _new(s.name(f"c{index}"), **{key: value}))


VALUES = {
    "cleanup.policy": ("", "compact, delete", "delete,delete", "compact,burn", "Delete", "none"),
    "compression.type": ("uncompressed", "zstd", "none", "GZIP", ""),
    "compression.gzip.level": ("-1", "0", "1", "9", "10", "x"),
    "compression.lz4.level": ("0", "1", "17", "18"),
    "compression.zstd.level": ("-131072", "22", "23", "-131073"),
    "delete.retention.ms": ("-1", "0"),
    "file.delete.delay.ms": ("-1", "0"),
    "flush.messages": ("0", "1"),
    "flush.ms": ("-1", "0"),
    "follower.replication.throttled.replicas": ("*", "", "0:1,1:2", "none"),
    "leader.replication.throttled.replicas": ("0:1", "0:1:2", "1"),
    "index.interval.bytes": ("-1", "0", "2147483648"),
    "local.retention.bytes": ("-3", "-2", "5"),
    "local.retention.ms": ("-3", "-2", "5"),
    "max.compaction.lag.ms": ("0", "1"),
    "max.message.bytes": ("-1", "0", "2147483647", "2147483648"),
    "message.timestamp.after.max.ms": ("-1", "0"),
    "message.timestamp.before.max.ms": ("-1", "0"),
    "message.timestamp.type": ("logappendtime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": ("-0.1", "0", "1", "1.1", "x"),
    "min.compaction.lag.ms": ("-1", "0"),
    "min.insync.replicas": ("0", "1", "2147483647"),
    "preallocate": ("TRUE", " true ", "yes", ""),
    "remote.log.copy.disable": ("true", "false"),
    "remote.log.delete.on.disable": ("true", "false"),
    "remote.storage.enable": ("true", "false"),
    "retention.bytes": ("-1", "-2", "0"),
    "retention.ms": ("-2", "-1", "0"),
    "segment.bytes": ("0", "1048576", "2147483648"),
    "segment.index.bytes": ("3", "4"),
    "segment.jitter.ms": ("-1", "5"),
    "segment.ms": ("0", "1"),
    "unclean.leader.election.enable": ("true", "x"),
    "message.format.version": ("3.0-IV1",),
}


@case(CREATE_TOPICS, versions=NEWEST_CREATE)
def create_topics_with_edges_of_configs(s: Session, version: int) -> None:
    for key, values in VALUES.items():
        for value in values:
            topic = _new(s.name("a"), **{key.replace(".", "_"): value})
            _create(s, version, f"{key}={value!r}", topic, only=True)
    lags = {"min_compaction_lag_ms": "10", "max_compaction_lag_ms": "5"}
    _create(s, version, "lags that contradict each other", _new(s.name("a"), **lags), only=True)


@case(DELETE_TOPICS)
def delete_topics(s: Session, version: int) -> None:
    a, b = s.topic("a"), s.topic("b")

    def ask(label: str, *names: str) -> None:
        states = [DeleteTopicState(name=name) for name in names]
        request = DeleteTopicsRequest(topics=states, topic_names=list(names), timeout_ms=30_000)
        s.ask(DELETE_TOPICS, request, version, label=label)

    ask("one", a)
    ask("again", a)
    ask("missing beside one", b, s.name("missing"))
    ask("bad name", "with space")


@case(DELETE_TOPICS, versions=(6,))
def delete_topics_by_id(s: Session, version: int) -> None:
    a, b = s.topic("a"), s.topic("b")
    found, other = s.wait_for(a, 1).topic_id, s.wait_for(b, 1).topic_id

    def ask(label: str, *states: DeleteTopicState) -> None:
        s.ask(
            DELETE_TOPICS, DeleteTopicsRequest(topics=list(states), timeout_ms=30_000), version, label=label, on=label
        )

    ask("by id", DeleteTopicState(topic_id=found))
    ask("gone", DeleteTopicState(topic_id=found))
    ask("unknown id", DeleteTopicState(topic_id=UUID(int=5)))
    ask("name twice", DeleteTopicState(name=b), DeleteTopicState(name=b))
    ask("still there", DeleteTopicState(topic_id=other))
    ask("neither", DeleteTopicState())


@case(DESCRIBE_CONFIGS)
def describe_configs(s: Session, version: int) -> None:
    topic = s.topic(configs={"retention.ms": "60000"})
    keys = ["retention.ms", "cleanup.policy", "segment.bytes", "max.message.bytes"]

    def ask(label: str, kind: int, name: str, wanted: list[str] | None, synonyms: bool = False) -> None:
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=wanted)
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms)
        s.ask(DESCRIBE_CONFIGS, request, version, label=label, on=label)

    ask("some keys", TOPIC, topic, keys)
    ask("synonyms", TOPIC, topic, keys, synonyms=True)
    ask("unknown keys", TOPIC, topic, ["nonsense"])
    ask("missing topic", TOPIC, s.name("missing"), keys)
    ask("bad name", TOPIC, "with space", keys)
    ask("broker", BROKER, "1", ["log.retention.ms", "message.max.bytes", "node.id"])
    ask("another broker", BROKER, "77", ["log.retention.ms"])
    ask("broker that is no number", BROKER, "x", ["log.retention.ms"])
    ask("unknown type", 99, "x", None)


@case(DESCRIBE_CONFIGS, versions=(4,))
def describe_all_configs(s: Session, version: int) -> None:
    topic = s.topic()
    for label, keys in {"null": None, "empty": []}.items():
        resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=keys)
        s.ask(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource]), version, label=label)


def _more(name: str, count: int, assigned: list[list[int]] | None = None) -> CreatePartitionsTopic:
    given = None if assigned is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assigned]
    return CreatePartitionsTopic(name=name, count=count, assignments=given)


@case(CREATE_PARTITIONS)
def create_partitions(s: Session, version: int) -> None:
    one, two = s.topic("one"), s.topic("two", partitions=2)

    def ask(label: str, *topics: CreatePartitionsTopic, only: bool = False) -> None:
        request = CreatePartitionsRequest(topics=list(topics), timeout_ms=30_000, validate_only=only)
        s.ask(CREATE_PARTITIONS, request, version, label=label)

    ask("validate only", _more(one, 3), only=True)
    ask("as many", _more(two, 2))
    ask("fewer", _more(two, 1))
    ask("none", _more(two, 0))
    ask("less than none", _more(two, -1))
    ask("missing topic", _more(s.name("missing"), 2))
    ask("empty name", _more("", 2))
    ask("twice", _more(one, 3), _more(one, 4), _more(two, 3))
    ask("good beside bad", _more(one, 3), _more(two, 1))
    ask("assigned", _more(two, 5, [[1], [1]]))
    ask("assigned to nobody we know", _more(two, 6, [[7]]))
    ask("assigned twice", _more(two, 6, [[1, 1]]))
    ask("assigned to none", _more(two, 6, [[]]))
    ask("assigned too few", _more(two, 7, [[1]]))
    ask("assigned, but nothing", _more(two, 6, []))
    ask("no topic")
    s.wait_for(one, 3)
    s.wait_for(two, 5)


@case(DESCRIBE_LOG_DIRS)
def describe_log_dirs(s: Session, version: int) -> None:
    topic = s.topic()
    s.fill(topic, [b"value"])
    for label, wanted in {"one": {topic: [0, 7]}, "none": {s.name("none"): [0]}}.items():
        asked = [DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in wanted.items()]
        s.ask(DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=asked), version, label=label)


@case(LIST_PARTITION_REASSIGNMENTS)
def list_partition_reassignments(s: Session, version: int) -> None:
    s.ask(LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest(), version, label="all")
    named = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[0]) for name in (s.topic(), s.name("none"))]
    s.ask(LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest(topics=named), version, label="named")


@case(ALTER_PARTITION_REASSIGNMENTS)
def alter_partition_reassignments(s: Session, version: int) -> None:
    topic = s.topic()
    wishes: dict[str, tuple[str, int, list[int] | None]] = {
        "as it is": (topic, 0, [1]),
        "cancelled": (topic, 0, None),
        "to nobody": (topic, 0, []),
        "to one twice": (topic, 0, [1, 1]),
        "to one that is not there": (topic, 0, [7]),
        "of no partition": (topic, 7, [1]),
        "of no topic": (s.name("none"), 0, [1]),
    }
    for label, (name, number, replicas) in wishes.items():
        partition = ReassignablePartition(partition_index=number, replicas=replicas)
        asked = [ReassignableTopic(name=name, partitions=[partition])]
        s.ask(ALTER_PARTITION_REASSIGNMENTS, AlterPartitionReassignmentsRequest(topics=asked), version, label=label)
