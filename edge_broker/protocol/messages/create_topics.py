"""CreateTopics (19): make topics.

Declarations only. Source: Kafka's schemas, KIP-464 for -1 as "the broker's default", KIP-525 for the configs returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_broker.protocol.message import Message, array, nullable_array
from edge_broker.protocol.scalars import boolean, int8, int16, int32, nullable_string, string, uuid_

if TYPE_CHECKING:
    from uuid import UUID


class CreatableReplicaAssignment(Message):
    """Which brokers hold one partition."""

    partition_index: int = int32()
    broker_ids: list[int] = array(int32)


class CreatableTopicConfig(Message):
    """One configuration key to set."""

    name: str = string()
    value: str | None = nullable_string()


class CreatableTopic(Message):
    """A topic to make; -1 partitions or replicas ask for the broker's default (version 4)."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Message, flexible_from=5):
    """Make these, or with `validate_only` say whether it would work. Versions 0-7."""

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean("1+")


class CreatableTopicConfigs(Message):
    """One configuration key of a topic that was made."""

    name: str = string("5+")
    value: str | None = nullable_string("5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1)
    is_sensitive: bool = boolean("5+")


class CreatableTopicResult(Message):
    """The topic as made, or why it was not."""

    name: str = string()
    topic_id: UUID = uuid_("7+")
    error_code: int = int16()
    error_message: str | None = nullable_string("1+")
    topic_config_error_code: int = int16("5+", tag=0)
    num_partitions: int = int32("5+", default=-1)
    replication_factor: int = int16("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = nullable_array(CreatableTopicConfigs, "5+")


class CreateTopicsResponse(Message, flexible_from=5):
    """One answer per topic asked for."""

    throttle_time_ms: int = int32("2+")
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
