"""CreateAcls (key 30): ACLs are added, answered when they are synced and hold.

An ACL that is there already is no error. Source: Kafka protocol, CreateAcls 1 to 3; KIP-140, KIP-290.
"""

from __future__ import annotations

from collections.abc import Mapping

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations.acl_changes import check_acl_rights, kind, refusal_of
from edge_broker.broker.outcomes import Outcome, Reply, Steps, Taken, changes_in_steps
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.protocol.api import CREATE_ACLS
from edge_broker.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from edge_broker.security.acls import (
    ACLS_MAX,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    fault_of_acl,
)
from edge_broker.security.state import SecurityState


@ServedApi(
    CREATE_ACLS,
    CreateAclsRequest,
    CreateAclsResponse,
    {1: "pattern types (KIP-290)", 2: "compact lengths, tags (KIP-482)", 3: "users as resources (KIP-373)"},
)
@changes_in_steps
def create_acls(broker: Broker, context: RequestContext, request: CreateAclsRequest) -> Taken:
    """Add each that can be one; the others get an error of their own."""
    count = len(request.creations)
    try:
        check_acl_rights(broker, context, Operation.ALTER)
        if count > ACLS_MAX:
            raise Refusal(
                ErrorCode.INVALID_REQUEST, f"{count} ACLs are more than {ACLS_MAX}, which is all there may be"
            )
    except Refusal as refusal:
        return Steps(_answer(request, dict.fromkeys(range(count), refusal.without_frames())))
    wanted: dict[int, AclBinding] = {}
    refused: dict[int, Refusal] = {}
    for number, asked in enumerate(request.creations):
        yield None
        acl = _acl(asked)
        fault = fault_of_acl(acl)
        if fault:
            refused[number] = Refusal(ErrorCode.INVALID_REQUEST, fault)
        else:
            wanted[number] = acl
    if not wanted:
        return Steps(_answer(request, refused))

    def edit(state: SecurityState) -> SecurityState:
        return state.with_acls(state.acls | frozenset(wanted.values()))

    def then() -> Outcome:
        return Steps(_answer(request, refused))

    def change_failed(error: Exception) -> Outcome:
        return Steps(_answer(request, refused | dict.fromkeys(wanted, refusal_of(error))))

    return broker.security.change(edit, then, change_failed, context.token, context.session.author)


def _acl(asked: AclCreation) -> AclBinding:
    return AclBinding(
        kind(ResourceType, asked.resource_type),
        asked.resource_name,
        kind(PatternType, asked.resource_pattern_type),
        asked.principal,
        asked.host,
        kind(Operation, asked.operation),
        kind(Permission, asked.permission_type),
    )


def _answer(request: CreateAclsRequest, refused: Mapping[int, Refusal]) -> Taken:
    results: list[AclCreationResult] = []
    for number in range(len(request.creations)):
        why = refused.get(number)
        results.append(
            AclCreationResult() if why is None else AclCreationResult(error_code=why.code, error_message=why.message)
        )
        yield results[-1]
    return Reply(CreateAclsResponse(results=results))
