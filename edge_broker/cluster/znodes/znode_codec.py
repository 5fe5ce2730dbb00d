"""Where the znodes of a cluster are, and their bytes: JSON with a version, as FORMATS.md has it.

Contains: paths, reading and writing. Does not contain: what is asked of ZooKeeper, and when.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from edge_broker.cluster.state.cluster_state import (
    InSyncReplica,
    Objection,
    OfflineLog,
    PartitionId,
    PartitionState,
    Registration,
    Topic,
)
from edge_broker.cluster.state.lines import UNMARKED_LINE, Departure, Line
from edge_broker.cluster.znodes.zookeeper import Node

VERSION = 1
REBUILT_VERSION = 2  # of the format of a rebuilt cluster: a release without epoch bases does not join it
FORMAT = "/format"
BROKERS = "/brokers"
CONTROLLER = "/controller"
PRODUCER_IDS = "/producer-ids"
TOPICS = "/topics"
DELETED = "/deleted"
SECURITY = "/security"
SECURITY_STATE = "/security/state"
OWNERSHIP = "/format/ownership"
GUARD = "guard"
LOST = "/lost"
ROOTS = (BROKERS, TOPICS, DELETED)
TOP = (FORMAT, BROKERS, TOPICS, DELETED, SECURITY, PRODUCER_IDS, CONTROLLER, LOST)


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


def lost_path(partition: PartitionId) -> str:
    """Of what a rebuild may have lost of a partition."""
    return f"{LOST}/{partition.topic}-{partition.partition}"


def is_number(name: str) -> bool:
    """Return whether a znode's name is a broker id or a partition number, as brokers write them."""
    return name.isascii() and name.isdigit()


def state_path(partition: PartitionId) -> str:
    """Of a partition's state."""
    return f"{TOPICS}/{partition.topic}/{partition.partition}"


def encode(fields: dict[str, Any]) -> bytes:
    """One znode's bytes."""
    return json.dumps({"version": VERSION, **fields}, separators=(",", ":"), sort_keys=True).encode()


def decode(path: str, data: bytes) -> dict[str, Any]:
    """Its fields; LayoutFault."""
    newest = REBUILT_VERSION if path == FORMAT else VERSION
    try:
        fields = json.loads(data)
        version = fields["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise LayoutFault(path, f"is not one of ours ({error})") from error
    if version not in (VERSION, newest):
        raise LayoutFault(path, f"has version {version}, and this broker knows {newest}")
    return dict(fields)


@contextmanager
def _reading(path: str, data: bytes) -> Iterator[dict[str, Any]]:
    """The fields, to be read; LayoutFault where one is not there, or is none of its kind."""
    fields = decode(path, data)
    try:
        yield fields
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise LayoutFault(path, f"lacks a field ({error!r})") from error


def _number(value: object) -> int:
    """Return a whole number; TypeError for anything else, also JSON's true and false."""
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value


class Format(NamedTuple):
    """Which cluster the ensemble has.

    `epoch_base` is what every zxid of the ensemble lacks to be an epoch: 0, but in a rebuilt cluster, whose ensemble
    counts from 1 again. `rebuilding`: the znodes are not all there, and no broker goes by them.
    """

    cluster: str
    epoch_base: int = 0
    rebuilding: bool = False


def encode_format(cluster: str) -> bytes:
    """Return the format that the first broker of all makes."""
    return encode({"cluster_id": cluster})


def encode_rebuilt_format(found: Format, *, security: bool) -> bytes:
    """Return the format of a rebuilt cluster; `security`: users and ACLs exist, and no broker makes new ones."""
    fields: dict[str, Any] = {"version": REBUILT_VERSION, "cluster_id": found.cluster, "epoch_base": found.epoch_base}
    fields |= {"rebuilding": True} if found.rebuilding else {}
    return encode(fields | ({"security": True} if security else {}))


def decode_format(node: Node) -> Format:
    """Return what the format says; LayoutFault."""
    with _reading(FORMAT, node.data) as fields:
        base, rebuilding = _number(fields.get("epoch_base", 0)), fields.get("rebuilding", False)
        return Format(str(fields["cluster_id"]), base, rebuilding is True)


def has_security(node: Node) -> bool:
    """Whether the format says that the cluster's users and ACLs were made; LayoutFault."""
    return decode(FORMAT, node.data).get("security") is True


def with_security(node: Node) -> bytes:
    """The same format, saying so; LayoutFault."""
    return encode({**decode(FORMAT, node.data), "security": True})


def encode_controller(broker: int) -> bytes:
    """Encode the controller's broker id."""
    return encode({"broker": broker})


def decode_controller(node: Node) -> int:
    """Decode the controller's broker id; LayoutFault."""
    with _reading(CONTROLLER, node.data) as fields:
        return _number(fields["broker"])


def encode_producer_ids(following: int) -> bytes:
    """The first producer id that no broker was given, nor any after it."""
    return encode({"next": following})


def decode_producer_ids(node: Node) -> int:
    """The first producer id that was given to no broker; LayoutFault."""
    with _reading(PRODUCER_IDS, node.data) as fields:
        following = _number(fields["next"])
    if following < 0:
        raise LayoutFault(PRODUCER_IDS, f"has {following} as the next producer id")
    return following


def encode_registration(registration: Registration) -> bytes:
    """The epoch is the znode's own czxid and the format's `epoch_base`."""
    fields = {
        "directory": registration.directory,
        "endpoints": dict(registration.endpoints),
        "protocols": registration.protocols,
    }
    return encode(fields if registration.rack is None else {**fields, "rack": registration.rack})


def decode_registration(broker: int, node: Node, epoch_base: int = 0) -> Registration:
    """LayoutFault."""
    with _reading(broker_path(broker), node.data) as fields:
        endpoints = tuple(sorted((str(name), str(at)) for name, at in fields["endpoints"].items()))
        for name, at in endpoints:
            host, _, port = at.rpartition(":")
            if not (host and is_number(port)):
                raise ValueError(f"its listener {name} is at {at!r}, which is no HOST:PORT")
        directory, rack, (oldest, newest) = str(fields["directory"]), fields.get("rack"), fields["protocols"]
        protocols = (_number(oldest), _number(newest))
        return Registration(broker, epoch_base + node.stat.czxid, directory, rack, endpoints, protocols)


def encode_topic(topic: Topic) -> bytes:
    """Encode a topic as it was created."""
    return encode({"topic_id": topic.topic_id, "replicas": topic.replicas, "config": dict(topic.config)})


def decode_topic(name: str, node: Node) -> Topic:
    """LayoutFault."""
    with _reading(topic_path(name), node.data) as fields:
        replicas = tuple(tuple(_number(broker) for broker in brokers) for brokers in fields["replicas"])
        if not replicas or not all(replicas) or any(len(set(brokers)) < len(brokers) for brokers in replicas):
            raise ValueError("no partition, one without a replica, or a broker twice")
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
    departures = [{"broker": each.broker, "states": each.state_ids, "height": each.height} for each in line.departures]
    fields = {"state": line.state_id, "height": line.height, "recent": line.recent}
    more = {"departures": departures, "accepted": line.accepted}
    return {**fields, **{name: found for name, found in more.items() if found}}


def _decode_line(fields: dict[str, Any]) -> Line:
    departures = tuple(
        Departure(_number(each["broker"]), tuple(map(str, each["states"])), _number(each["height"]))
        for each in fields.get("departures", ())
    )
    recent, accepted = tuple(map(str, fields["recent"])), tuple(map(str, fields.get("accepted", ())))
    return Line(str(fields["state"]), _number(fields["height"]), recent, departures, accepted)


class MayBeLost(NamedTuple):
    """Encode the possible losses of a rebuild, which the broker of `entry` records before it leads.

    `state` is what the partition's znode gets then.
    """

    partition: PartitionId
    topic_id: str
    entry: InSyncReplica
    state: PartitionState


def encode_lost(lost: MayBeLost) -> bytes:
    """Return the bytes of a znode below LOST."""
    state = json.loads(encode_state(lost.state))
    where = {"topic": lost.partition.topic, "partition": lost.partition.partition, "topic_id": lost.topic_id}
    return encode({**where, "broker": lost.entry.broker, "directory": lost.entry.directory, "state": state})


def decode_lost(path: str, node: Node) -> MayBeLost:
    """Return what such a znode says; LayoutFault."""
    with _reading(path, node.data) as fields:
        partition = PartitionId(str(fields["topic"]), _number(fields["partition"]))
        state = decode_state(partition, Node(json.dumps(fields["state"]).encode(), node.stat))
        entry = state.entry(_number(fields["broker"]))
        if entry is None or entry.directory != fields["directory"]:
            raise ValueError("its state does not name its broker")
        return MayBeLost(partition, str(fields["topic_id"]), entry, state)


def decode_state(partition: PartitionId, node: Node) -> PartitionState:
    """LayoutFault."""
    with _reading(state_path(partition), node.data) as fields:
        in_sync = tuple(
            InSyncReplica(_number(each["broker"]), str(each["directory"]), _number(each["epoch"]))
            for each in fields["in_sync"]
        )
        offline = tuple(
            OfflineLog(_number(each["broker"]), _number(each["epoch"])) for each in fields.get("offline", ())
        )
        line = _decode_line(fields["line"]) if "line" in fields else UNMARKED_LINE
        objections = tuple(
            Objection(_number(each["broker"]), str(each["state"])) for each in fields.get("objections", ())
        )
        return PartitionState(
            _number(fields["leader"]), _number(fields["leader_epoch"]), in_sync, offline, line, objections
        )
