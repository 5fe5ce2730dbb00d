"""ApiVersions (18): which APIs and versions the broker serves.

Declarations only. Source: Kafka's schemas, KIP-511, KIP-584.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array
from edge_broker.protocol.scalars import boolean, int16, int32, int64, string


class ApiVersionsRequest(Message, flexible_from=3):
    """What may I ask? Versions 0-4."""

    client_software_name: str = string("3+")
    client_software_version: str = string("3+")


class ApiVersion(Message):
    """The versions served of one API."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Message):
    """A feature and the levels the broker can do."""

    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


class FinalizedFeatureKey(Message):
    """A feature and the levels the cluster has agreed on."""

    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


class ApiVersionsResponse(Message, flexible_from=3):
    """The table of APIs; always sent after response header version 0."""

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+")
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2)
    zk_migration_ready: bool = boolean("3+", tag=3)
