"""Answers as plain trees that can be compared: what must differ between two brokers is masked by a listed rule.

| rule | fields | becomes |
|---|---|---|
| ordinal | member ids: member_id, leader (of a group) | `<member_id 1>`, in order of appearance in the case |
| id | topic_id | `<id>`, or that of no topic |
| sign | producer_id, session_id, epochs, log_append_time_ms | `<set>` when there is one, else the number |
| text | host, cluster_id, error_message, reasons | `<text>`, `""` or null |
| drop | port | `<port>` |
| SCRAM | auth_bytes | the text, without the server's part of the nonce and its proof |
| records | records | per batch: base offset, attributes, counts, producer, records' bytes; no epoch, no CRC |
| order | arrays whose order means nothing (`ORDERLESS`) | keyed by an element's name, else sorted; `mechanisms` too |

Lives here: masks and the comparison. Must never come in: which differences are known (known.py).
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, cast
from uuid import UUID

from edge_broker.protocol.message import NO_UUID, Message, MessageType
from edge_broker.protocol.record_batch import read_header

CLIENT_NONCE = "nonce"
ORDINAL = {"member_id", "leader"}
SIGN = {"producer_id", "session_id", "leader_epoch", "log_append_time_ms", "epoch", "finalized_features_epoch"}
TEXT = {"host", "cluster_id", "error_message", "batch_index_error_message", "client_host", "documentation"}
DROPPED = {"port": "<port>"}
ORDERLESS = {
    "topics": ("name", "topic"),
    "resources": ("resource_name",),
    "acls": (),
    "responses": ("name", "topic", "topic_id"),
    "partitions": ("partition_index", "partition"),
    "groups": ("group_id",),
    "results": ("group_id", "name"),
    "configs": ("name",),
    "brokers": ("node_id", "broker_id"),
    "api_keys": ("api_key",),
    "members": ("member_id",),
    "partition_responses": ("index",),
}
ORDERED_WITHOUT_KEY = {"results"}  # those of DescribeConfigs come as they were asked for
_BY_CHANCE = re.compile(f"^(r={CLIENT_NONCE}|v=)[^,]+")
HEADER_BYTES = 61
ABSENT = "<absent>"

Tree = Any


class Masks:
    """The member ids that one case has met at one broker."""

    def __init__(self) -> None:
        self._members: dict[str, str] = {}

    def tree(self, message: Message, version: int) -> dict[str, Tree]:
        """One message as a tree, with the fields that its version has."""
        return {
            field.name: self._value(field.name, getattr(message, field.name), version)
            for field in type(message).FIELDS
            if version in field.versions
        }

    def _value(self, name: str, value: Any, version: int) -> Tree:
        if isinstance(value, list):
            return self._array(name, value, version)
        if isinstance(type(value), MessageType):
            return self.tree(cast(Message, value), version)
        if name == "records":
            return None if value is None else batches(memoryview(value))
        if name == "auth_bytes":
            return _BY_CHANCE.sub(r"\1<text>", bytes(value).decode())
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value).hex()
        return self._masked(name, value)

    def _array(self, name: str, values: list[Any], version: int) -> Tree:
        trees = [self._value(name, value, version) for value in values]
        if name == "mechanisms":
            return sorted(trees)
        if name not in ORDERLESS or not all(isinstance(tree, dict) for tree in trees):
            return trees
        key = next((key for key in ORDERLESS[name] if trees and key in trees[0]), "")
        if not key and name in ORDERED_WITHOUT_KEY:
            return trees
        keyed = {str(tree.get(key)): tree for tree in trees}
        return keyed if len(keyed) == len(trees) else sorted(trees, key=lambda tree: (str(tree.get(key)), str(tree)))

    def _masked(self, name: str, value: Any) -> Tree:
        if name in ORDINAL:
            return self._ordinal(value)
        if name in SIGN:
            return value if value < 0 or (name == "session_id" and value == 0) else "<set>"
        if name in TEXT:
            return "<text>" if value else value
        if name in DROPPED:
            return DROPPED[name]
        if isinstance(value, UUID):
            return "<id>" if value != NO_UUID else "<no id>"
        return value

    def _ordinal(self, value: Any) -> Tree:
        if not value or not isinstance(value, str):
            return value
        return self._members.setdefault(value, f"<member_id {len(self._members) + 1}>")


def batches(data: memoryview) -> list[dict[str, Tree]]:
    """What records hold, batch by batch; bytes behind the last whole batch are what Kafka may cut anywhere."""
    found, position = [], 0
    while len(data) - position >= HEADER_BYTES:
        header = read_header(data, position)
        if position + header.size > len(data):
            break
        found.append(
            {
                "base_offset": header.base_offset,
                "last_offset_delta": header.last_offset_delta,
                "attributes": header.attributes,
                "base_timestamp": header.base_timestamp,
                "max_timestamp": header.max_timestamp,
                "producer_id": "<set>" if header.producer_id >= 0 else -1,
                "producer_epoch": header.producer_epoch,
                "base_sequence": header.base_sequence,
                "records_count": header.records_count,
                "body": bytes(data[position + HEADER_BYTES : position + header.size]).hex(),
            }
        )
        position += header.size
    return found


class Difference(NamedTuple):
    """One place where two trees differ; `path` as in `.topics.name.partitions.0.error_code`."""

    path: str
    ours: Tree
    kafka: Tree


def differences(ours: Tree, kafka: Tree, path: str = "") -> list[Difference]:
    """Every place where two trees differ, the deepest that can be named."""
    if ours and kafka and isinstance(ours, dict) and isinstance(kafka, dict):
        names = {**ours, **kafka}
        below = ((f"{path}.{name}", ours.get(name, ABSENT), kafka.get(name, ABSENT)) for name in names)
    elif isinstance(ours, list) and isinstance(kafka, list) and len(ours) == len(kafka):
        below = ((f"{path}.{index}", *pair) for index, pair in enumerate(zip(ours, kafka, strict=True)))
    else:
        return [] if ours == kafka else [Difference(path, ours, kafka)]
    return [found for name, mine, theirs in below for found in differences(mine, theirs, name)]
