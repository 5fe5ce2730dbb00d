"""Which topics the members of a consumer group say they read.

| bytes of a member's metadata | |
|---|---|
| 0-1 | version, int16 |
| 2-5 | topics, int32 |
| each topic | length int16, UTF-8 |
| the rest | user data, owned partitions, …: not read |

Contains: reading that. Does not contain: what follows from it. Source: Kafka's ConsumerProtocolSubscription.
"""

from __future__ import annotations

from collections.abc import Container
from struct import Struct, error

from edge_broker.coordinator.group import Group

CONSUMER = "consumer"
BYTES_MAX = 1 << 18
_HEAD = Struct(">hi")
_LENGTH = Struct(">h")


class _Everything:
    def __contains__(self, topic: object) -> bool:
        return True


def subscribed_topics(group: Group) -> Container[str]:
    """The topics that its members read; every topic, where one of them cannot be understood, as Kafka takes it.

    Also where they say more than BYTES_MAX that differs: reading that would hold the loop.
    """
    said = {protocol.metadata for member in group.members.values() for protocol in member.protocols}
    if sum(map(len, said)) > BYTES_MAX:
        return _Everything()
    found: set[str] = set()
    for metadata in said:
        topics = _topics(metadata)
        if topics is None:
            return _Everything()
        found |= topics
    return found


def _topics(metadata: bytes) -> set[str] | None:
    found = set()
    try:
        _, count = _HEAD.unpack_from(metadata)
        position = _HEAD.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size + length
            if length < 0 or position > len(metadata):
                return None
            found.add(str(metadata[position - length : position], "utf-8"))
    except (error, UnicodeDecodeError):
        return None
    return found
