"""Where the znodes of a cluster are, and their bytes: JSON with a version, as FORMATS.md has it.

Lives here: paths, reading and writing. Must never come in: what is asked of ZooKeeper, and when.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from edge_broker.cluster.lines import UNMARKED_LINE, Departure, Line
from edge_broker.cluster.state import (
    InSyncReplica,
    Objection,
    OfflineLog,
    PartitionId,
    PartitionState,
    Registration,
    Topic,
)
from edge_broker.cluster.zookeeper import Node

VERSION = 1
FORMAT = "/format"
BROKERS = "/brokers"
CONTROLLER = "/controller"
PRODUCER_IDS = "/producer-ids"
TOPICS = "/topics"
DELETED = "/deleted"
SECURITY = "/security"
SECURITY_STATE = "/security/state"
ROOTS = (BROKERS, TOPICS, DELETED)


class LayoutFault(Exception):
    """A znode that cannot be read: newer than this broker, or not ours."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"znode {path}: {reason}")


def broker_path(broker: int) -> str:
    """Of a registration."""
    return f"{BROKERS}/{broker}"


def topic_path(topic: str) -> str:
    """Of a topic."""
    return f"{TOPICS}/{topic}"


def topic_id_path(topic: str, topic_id: str) -> str:
    """Of what is there as long as a topic is: who changes one looks at it, as the next one has the same versions."""
    return f"{TOPICS}/{topic}/{topic_id}"


def deleted_path(topic_id: str) -> str:
    """Of what stays of a topic that was deleted: a log is removed where this says so, and nowhere else."""
    return f"{DELETED}/{topic_id}"


def state_path(partition: PartitionId) -> str:
    """Of a partition's state."""
    return f"{TOPICS}/{partition.topic}/{partition.partition}"


def encode(fields: dict[str, Any]) -> bytes:
    """One znode's bytes."""
    return json.dumps({"version": VERSION, **fields}, separators=(",", ":"), sort_keys=True).encode()


def decode(path: str, data: bytes) -> dict[str, Any]:
    """Its fields; LayoutFault."""
    try:
        fields = json.loads(data)
        version = fields["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise LayoutFault(path, f"is not one of ours ({error})") from error
    if version != VERSION:
        raise LayoutFault(path, f"has version {version}, and this broker knows {VERSION}")
    return dict(fields)


@contextmanager
def _reading(path: str, data: bytes) -> Iterator[dict[str, Any]]:
    """The fields, to be read; LayoutFault where one is not there, or is none of its kind."""
    fields = decode(path, data)
    try:
        yield fields
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise LayoutFault(path, f"lacks a field ({error!r})") from error


def encode_format(cluster: str) -> bytes:
    """Which cluster the ensemble has."""
    return encode({"cluster_id": cluster})


def decode_format(node: Node) -> str:
    """The cluster's id; LayoutFault."""
    with _reading(FORMAT, node.data) as fields:
        return str(fields["cluster_id"])


def has_security(node: Node) -> bool:
    """Whether the format says that the cluster's users and ACLs were made; LayoutFault."""
    return decode(FORMAT, node.data).get("security") is True


def with_security(node: Node) -> bytes:
    """The same format, saying so; LayoutFault."""
    return encode({**decode(FORMAT, node.data), "security": True})


def encode_controller(broker: int) -> bytes:
    """Who holds the office."""
    return encode({"broker": broker})


def decode_controller(node: Node) -> int:
    """Who holds the office; LayoutFault."""
    with _reading(CONTROLLER, node.data) as fields:
        return int(fields["broker"])


def encode_producer_ids(following: int) -> bytes:
    """Which producer id was given to no broker yet, nor any behind it."""
    return encode({"next": following})


def decode_producer_ids(node: Node) -> int:
    """The first producer id that was given to no broker; LayoutFault."""
    with _reading(PRODUCER_IDS, node.data) as fields:
        following = int(fields["next"])
    if following < 0:
        raise LayoutFault(PRODUCER_IDS, f"has {following} as the next producer id")
    return following


def encode_registration(registration: Registration) -> bytes:
    """The epoch is the znode's own czxid."""
    fields = {
        "directory": registration.directory,
        "endpoints": dict(registration.endpoints),
        "protocols": registration.protocols,
    }
    return encode(fields if registration.rack is None else {**fields, "rack": registration.rack})


def decode_registration(broker: int, node: Node) -> Registration:
    """LayoutFault."""
    with _reading(broker_path(broker), node.data) as fields:
        endpoints = tuple(sorted((str(name), str(at)) for name, at in fields["endpoints"].items()))
        directory, rack, (oldest, newest) = str(fields["directory"]), fields.get("rack"), fields["protocols"]
        protocols = (int(oldest), int(newest))
        return Registration(broker, node.stat.czxid, directory, rack, endpoints, protocols)


def encode_topic(topic: Topic) -> bytes:
    """What it was made as."""
    return encode({"topic_id": topic.topic_id, "replicas": topic.replicas, "config": dict(topic.config)})


def decode_topic(name: str, node: Node) -> Topic:
    """LayoutFault."""
    with _reading(topic_path(name), node.data) as fields:
        replicas = tuple(tuple(int(broker) for broker in brokers) for brokers in fields["replicas"])
        return Topic(str(fields["topic_id"]), replicas, dict(fields["config"]))


def encode_state(state: PartitionState) -> bytes:
    """Its version is the znode's own."""
    in_sync = [{"broker": each.broker, "directory": each.directory, "epoch": each.epoch} for each in state.in_sync]
    fields: dict[str, Any] = {"leader": state.leader, "leader_epoch": state.leader_epoch, "in_sync": in_sync}
    offline = [{"broker": each.broker, "epoch": each.epoch} for each in state.offline]
    if offline:
        fields["offline"] = offline
    if state.line.is_marked:
        fields["line"] = _encode_line(state.line)
    if state.objections:
        fields["objections"] = [{"broker": each.broker, "state": each.state_id} for each in state.objections]
    return encode(fields)


def _encode_line(line: Line) -> dict[str, Any]:
    departures = [{"broker": each.broker, "states": each.state_ids} for each in line.departures]
    fields = {"state": line.state_id, "height": line.height, "recent": line.recent}
    more = {"departures": departures, "accepted": line.accepted}
    return {**fields, **{name: found for name, found in more.items() if found}}


def _decode_line(fields: dict[str, Any]) -> Line:
    departures = tuple(
        Departure(int(each["broker"]), tuple(map(str, each["states"]))) for each in fields.get("departures", ())
    )
    recent, accepted = tuple(map(str, fields["recent"])), tuple(map(str, fields.get("accepted", ())))
    return Line(str(fields["state"]), int(fields["height"]), recent, departures, accepted)


def decode_state(partition: PartitionId, node: Node) -> PartitionState:
    """LayoutFault."""
    with _reading(state_path(partition), node.data) as fields:
        in_sync = tuple(
            InSyncReplica(int(each["broker"]), str(each["directory"]), int(each["epoch"])) for each in fields["in_sync"]
        )
        offline = tuple(OfflineLog(int(each["broker"]), int(each["epoch"])) for each in fields.get("offline", ()))
        line = _decode_line(fields["line"]) if "line" in fields else UNMARKED_LINE
        objections = tuple(Objection(int(each["broker"]), str(each["state"])) for each in fields.get("objections", ()))
        return PartitionState(int(fields["leader"]), int(fields["leader_epoch"]), in_sync, offline, line, objections)
