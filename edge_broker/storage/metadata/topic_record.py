"""Topics on disk: names that are safe as file names, and the file that says what a topic is.

| field of `topics/<topic>.json` | meaning |
|---|---|
| version | 1 |
| topic_id | UUID, 36 characters |
| partitions | how many |
| config | explicitly set topic-level keys, texts |
| compacted | true where its policy was to compact before; else left out |
| name | the topic's name, as the file's |
| crc32c | of the other fields as JSON with sorted keys, 8 hex digits |

Contains: pure checks and the two texts. Does not contain: files. Source: Kafka's Topic.validate and
PartitionMetadataFile; KIP-516.
"""

import binascii
import json
import re
import uuid
from collections.abc import Mapping
from typing import NamedTuple

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.protocol.crc import crc32c

NAME_CHARACTERS_MAX = 249  # a partition's directory adds up to 6 characters to the name; file systems allow 255
TOPIC_VERSION = 1
OFFSETS_TOPIC = "__consumer_offsets"
JOURNAL_TOPIC = "__edge_ledger@journal"  # in a cluster a board's own losses, under a name that no topic can have
LEDGERS = (JOURNAL_TOPIC, LEDGER_TOPIC)
TOPIC_SUFFIX = ".json"
_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_PARTITION_DIRECTORY = re.compile(rf"({JOURNAL_TOPIC}|[a-zA-Z0-9._-]+)-(\d{{1,9}})")


class TopicRecord(NamedTuple):
    """The contents of a topic's file."""

    name: str
    topic_id: uuid.UUID
    partitions: int
    config: dict[str, str]
    compacted: bool = False


def is_topic_name(name: str) -> bool:
    """Whether a topic may have this name, in Kafka too."""
    return 0 < len(name) <= NAME_CHARACTERS_MAX and name not in (".", "..") and _NAME.fullmatch(name) is not None


def check_topic_name(name: str) -> None:
    """Refuse a name that Kafka refuses, with INVALID_TOPIC_EXCEPTION."""
    if not is_topic_name(name):
        raise Refusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic name {name[:NAME_CHARACTERS_MAX]!r} is not allowed; use 1 to {NAME_CHARACTERS_MAX} of a-z, A-Z, "
            "0-9, '.', '_' and '-', "
            "but neither '.' nor '..'",
        )


def split_partition_directory(name: str) -> tuple[str, int] | None:
    """Topic and partition of a directory name; None when it is none."""
    match = _PARTITION_DIRECTORY.fullmatch(name)
    return (match[1], int(match[2])) if match else None


def encode_topic(topic: TopicRecord) -> bytes:
    """The text of a topic's file."""
    record = {
        "version": TOPIC_VERSION,
        "name": topic.name,
        "topic_id": str(topic.topic_id),
        "partitions": topic.partitions,
        "config": dict(topic.config),
    }
    if topic.compacted:
        record["compacted"] = True
    record["crc32c"] = _crc_text(record)
    return json.dumps(record, indent=1).encode() + b"\n"


def _crc_text(record: Mapping[str, object]) -> str:
    return f"{crc32c(json.dumps(record, sort_keys=True).encode()):08x}"


def decode_topic(path: str, data: bytes) -> TopicRecord:
    """Decode a topic's file; StorageFault if it is invalid."""
    try:
        record = json.loads(data)
        version = int(record["version"])
        if version > TOPIC_VERSION:
            raise StorageFault(path, 0, f"format version {version} is newer than {TOPIC_VERSION}; use the newer broker")
        if record.pop("crc32c") != _crc_text(record):
            raise ValueError("the CRC does not match the content")
        config = {str(key): str(value) for key, value in record["config"].items()}
        found = TopicRecord(
            str(record["name"]),
            uuid.UUID(record["topic_id"]),
            int(record["partitions"]),
            config,
            bool(record.get("compacted", False)),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageFault(path, 0, f"this is no topic file ({error}); restore it from a copy") from None
    if found.partitions < 1:
        raise StorageFault(path, 0, f"{found.partitions} partitions is no topic; restore the file from a copy")
    return found


def id_text(topic_id: uuid.UUID) -> str:
    """A UUID as Kafka prints it: 22 characters of URL-safe base64."""
    return (
        binascii.b2a_base64(topic_id.bytes, newline=False)
        .rstrip(b"=")
        .translate(bytes.maketrans(b"+/", b"-_"))
        .decode()
    )


def id_of(text: str) -> uuid.UUID:
    """The UUID that Kafka prints so: what `id_text` made; ValueError."""
    return uuid.UUID(bytes=binascii.a2b_base64(text.encode().translate(bytes.maketrans(b"-_", b"+/")) + b"=="))


def encode_partition_metadata(topic_id: uuid.UUID) -> bytes:
    """The text of `partition.metadata`, as Kafka writes it."""
    return f"version: 0\ntopic_id: {id_text(topic_id)}\n".encode()


def decode_partition_metadata(data: bytes) -> uuid.UUID | None:
    """The topic id in a `partition.metadata` file; None when it cannot be read."""
    for line in data.splitlines():
        key, _, value = line.partition(b": ")
        if key == b"topic_id":
            try:
                return id_of(value.decode())
            except ValueError:
                return None
    return None
