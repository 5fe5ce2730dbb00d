"""`edge_broker/SUPPORTED.md`: which Kafka APIs the broker serves, made from its handlers.

`python -m tests.support.supported` writes it; a test says when it is not as the handlers say.
"""

from __future__ import annotations

from pathlib import Path

import edge_broker
from edge_broker.handlers import APIS
from edge_broker.protocol.api import Api

PATH = Path(edge_broker.__file__).parent / "SUPPORTED.md"
NOT_SERVED = (
    ("AddPartitionsToTxn to TxnOffsetCommit", "24 to 28", "transactions come later"),
    ("AlterReplicaLogDirs", "34", "there is one data directory"),
    ("delegation tokens", "38 to 41", "users log in by SCRAM or PLAIN"),
    ("AlterClientQuotas", "49", "nobody is held to a quota; DescribeClientQuotas tells of none"),
    ("DescribeQuorum", "55", "it belongs to KRaft; `edge-broker cluster status` shows who leads and who lags"),
    ("DescribeProducers, DescribeTransactions, ListTransactions", "61, 65, 66", "they belong to transactions"),
    ("ConsumerGroupHeartbeat, ConsumerGroupDescribe", "68, 69", "the new group protocol (KIP-848) comes later"),
    ("client telemetry", "71, 72", "clients go on without it"),
    ("share groups", "76 to 79", "not planned"),
)

HEAD = """# What of the Kafka protocol is served

Made from the handlers (`python -m tests.support.supported`); ApiVersions answers the same. Left out means: refused with
an error that clients know, or without effect where a client cannot tell. `make differential` compares the answers with
Apache Kafka's.

| API | key | versions | left out |
|---|---:|---|---|
"""

BROUGHT = """
## What each version brought

| API | version | brought |
|---|---:|---|
"""

MISSING = """
## Not served, and so not advertised

| API | keys | why, or what to do instead |
|---|---|---|
"""

CLUSTER = """
## Where a cluster answers otherwise than Apache Kafka 3.9

Three boards and three brokers of 3.9.2 on ZooKeeper were asked the same in the same states; what is not named was
answered alike.

| asked | Apache Kafka | here | why |
|---|---|---|---|
"""
DIFFERENCES = (
    (
        "Fetch, a consumer's, of a follower",
        "records",
        "NOT_LEADER_OR_FOLLOWER",
        "what every disk has confirmed the leader alone knows",
    ),
    (
        "Fetch and ListOffsets by replica id -2, of a follower",
        "records, any offset",
        "NOT_LEADER_OR_FOLLOWER; the end alone",
        "the same; the end is what `edge-broker cluster status` compares",
    ),
    (
        "Fetch by a replica id, without the tag of our followers",
        "records, as to a follower",
        "UNSUPPORTED_VERSION",
        "it would count as a disk that has it",
    ),
    (
        "the same by another listener than the brokers', from a strange address, or without CLUSTER_ACTION",
        "records, where nobody logs in",
        "CLUSTER_AUTHORIZATION_FAILED",
        "the same",
    ),
    (
        "the same under another registration than is known of the broker",
        "records",
        "STALE_BROKER_EPOCH",
        "the same; a follower whose registration is news asks again",
    ),
    (
        "an older or newer leader epoch, of a follower",
        "FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH",
        "NOT_LEADER_OR_FOLLOWER",
        "clients look for the leader then",
    ),
    (
        "OffsetCommit of an unknown partition, of a broker that is not the coordinator",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "NOT_COORDINATOR",
        "the coordinator says so",
    ),
    (
        "ElectLeaders of a broker that is not the controller",
        "NOT_CONTROLLER",
        "as of the controller",
        "any broker changes what ZooKeeper has",
    ),
    (
        "ElectLeaders of a type that there is not",
        "UNKNOWN_SERVER_ERROR",
        "INVALID_REQUEST",
        "it is the client's mistake",
    ),
    (
        "ElectLeaders, unclean, where nobody leads",
        "who is there leads",
        "ELIGIBLE_LEADERS_NOT_AVAILABLE",
        "the topic alone says whether that may be",
    ),
    (
        "the in-sync replicas of a partition whose last ones are away",
        "the last ones",
        "none; DescribeTopicPartitions calls them eligible",
        "who is away is not in sync (KIP-966)",
    ),
    (
        "Metadata, of a leader that was killed, while its session lasts",
        "that it leads",
        "leader -1, LEADER_NOT_AVAILABLE, as its port is closed",
        "clients ask again soon, and records without a key go elsewhere meanwhile",
    ),
    (
        "AlterPartitionReassignments to other replicas",
        "they are moved",
        "UNSUPPORTED_VERSION, in words",
        "not built yet",
    ),
    (
        "a broker whose ensemble has no majority at its start",
        "it ends",
        "it waits, acks nothing, says so, and joins then",
        "boards start in any order",
    ),
)


def supported() -> str:
    """The file's text."""
    apis = [APIS[key] for key in sorted(APIS)]
    served = [f"| {api.name} | {api.key} | {_versions(api)} | {api.left_out} |\n" for api in apis]
    brought = [f"| {api.name} | {version} | {text} |\n" for api in apis for version, text in api.versions.items()]
    missing = [f"| {name} | {keys} | {why} |\n" for name, keys, why in NOT_SERVED]
    differs = [f"| {' | '.join(row)} |\n" for row in DIFFERENCES]
    return "".join((HEAD, *served, BROUGHT, *brought, MISSING, *missing, CLUSTER, *differs))


def _versions(api: Api) -> str:
    first, last = api.min_version, api.max_version
    text = f"{first} to {last}" if first < last else str(first)
    refused = f"; {api.advertised_min} to {first - 1} are advertised and refused (KAFKA-18659)"
    return text + refused if api.advertised_min < first else text


if __name__ == "__main__":
    PATH.write_text(supported())
