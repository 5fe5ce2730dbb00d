"""Shared by the handlers of ACLs: permission to see and change them, ACLs and filters of messages, changes of the set.

Does not contain: where ACLs are kept (security_store.py), what they mean (security).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol, TypeVar

from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.security.acls import AclFilter, Operation, PatternType, Permission, ResourceType

E = TypeVar("E", bound=IntEnum)


def check_acl_rights(broker: Broker, context: RequestContext, operation: Operation) -> None:
    """Refuse where there is no authorizer, and for whom may not do this to the cluster."""
    code = broker.rights.cluster(context, operation)
    if code:
        raise Refusal(
            code, f"{context.session.principal} has no right to {operation.name} the cluster, and so its ACLs"
        )
    if broker.rights.authorizer is None:
        raise Refusal(
            ErrorCode.SECURITY_DISABLED, "there is no authorizer, so ACLs have no effect; set authorizer.class.name"
        )


def kind(of: type[E], number: int) -> E:
    """Return the meaning of a number of the protocol; UNKNOWN for an unknown one."""
    try:
        return of(number)
    except ValueError:
        return of(0)


class AsksForAcls(Protocol):
    """The fields that DescribeAcls and DeleteAcls ask by."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def filter_of(asked: AsksForAcls) -> AclFilter:
    """The filter of a message; Refusal if a part of it is unknown."""
    meant = AclFilter(
        kind(ResourceType, asked.resource_type_filter),
        asked.resource_name_filter,
        kind(PatternType, asked.pattern_type_filter),
        asked.principal_filter,
        asked.host_filter,
        kind(Operation, asked.operation),
        kind(Permission, asked.permission_type),
    )
    if meant.is_unknown:
        raise Refusal(ErrorCode.INVALID_REQUEST, "the filter names a kind that is not known; use ANY (1) for all")
    return meant


def refusal_of(error: Exception) -> Refusal:
    """Why a change was not made."""
    if isinstance(error, Refusal):
        return error.without_frames()
    assert isinstance(error, StorageFault), error
    return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"users and ACLs were not changed: {error}")
