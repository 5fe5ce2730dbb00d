"""DescribeClientQuotas (48): what users, client ids and addresses are held to.

Declarations only. Source: Kafka's schemas, KIP-546.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array, nullable_array
from edge_broker.protocol.scalars import boolean, float64, int8, int16, int32, nullable_string, string


class ComponentData(Message):
    """A kind of entity, and which of them: 0 the one of this name, 1 the default, 2 any that has a name."""

    entity_type: str = string()
    match_type: int = int8()
    match: str | None = nullable_string()


class DescribeClientQuotasRequest(Message, flexible_from=1):
    """Describe the quotas of these entities. Versions 0 and 1."""

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


class EntityData(Message):
    """A part of what a quota is for; null stands for the default."""

    entity_type: str = string()
    entity_name: str | None = nullable_string()


class ValueData(Message):
    """A quota."""

    key: str = string()
    value: float = float64()


class EntryData(Message):
    """The quotas of one entity."""

    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


class DescribeClientQuotasResponse(Message, flexible_from=1):
    """The quotas that are set; null where there is an error."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    entries: list[EntryData] | None = nullable_array(EntryData)
