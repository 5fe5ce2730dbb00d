"""DeleteAcls (key 31): the ACLs that filters mean are removed, answered when that is synced and holds.

Source: Kafka protocol, DeleteAcls 1 to 3; KIP-140, KIP-290.
"""

from __future__ import annotations

from collections.abc import Mapping

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations.acl_changes import check_acl_rights, filter_of, refusal_of
from edge_broker.broker.outcomes import Outcome, Reply, Steps, Taken, changes_in_steps
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.protocol.api import DELETE_ACLS
from edge_broker.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from edge_broker.security.acls import AclBinding, AclFilter, Operation
from edge_broker.security.state import SecurityState

FILTERS_MAX = 100  # in one request: each looks at every ACL


@ServedApi(
    DELETE_ACLS,
    DeleteAclsRequest,
    DeleteAclsResponse,
    {1: "pattern types (KIP-290)", 2: "compact lengths, tags (KIP-482)", 3: "users as resources (KIP-373)"},
)
@changes_in_steps
def delete_acls(broker: Broker, context: RequestContext, request: DeleteAclsRequest) -> Taken:
    """Remove what each filter means; an ACL that two filters mean is in both results."""
    count = len(request.filters)
    try:
        check_acl_rights(broker, context, Operation.ALTER)
        if count > FILTERS_MAX:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{count} filters are more than {FILTERS_MAX}; ask several times")
    except Refusal as refusal:
        return Steps(_answer(count, {}, dict.fromkeys(range(count), refusal.without_frames())))
    wanted: dict[int, AclFilter] = {}
    refused: dict[int, Refusal] = {}
    for number, asked in enumerate(request.filters):
        yield None
        try:
            wanted[number] = filter_of(asked)
        except Refusal as refusal:
            refused[number] = refusal.without_frames()
    if not wanted:
        return Steps(_answer(count, {}, refused))
    found: dict[int, list[AclBinding]] = {}
    removed: set[AclBinding] = set()

    def edit(state: SecurityState) -> SecurityState:
        found.update({number: sorted(filter(meant.matches, state.acls)) for number, meant in wanted.items()})
        removed.clear()  # in a cluster it may be asked again, of what another broker has changed meanwhile
        removed.update(*found.values())
        return state.with_acls(state.acls - removed)

    def then() -> Outcome:
        return Steps(_answer(count, found, refused))

    def change_failed(error: Exception) -> Outcome:
        return Steps(_answer(count, {}, refused | dict.fromkeys(wanted, refusal_of(error))))

    return broker.security.change(edit, then, change_failed, context.token, context.session.author)


def _answer(count: int, found: Mapping[int, list[AclBinding]], refused: Mapping[int, Refusal]) -> Taken:
    results: list[DeleteAclsFilterResult] = []
    for number in range(count):
        result = DeleteAclsFilterResult(error_message=None, matching_acls=[])
        results.append(result)
        if number in refused:
            result.error_code, result.error_message = refused[number].code, refused[number].message
        yield result
        for acl in found.get(number, ()):
            result.matching_acls.append(_matching(acl))
            yield result.matching_acls[-1]
    return Reply(DeleteAclsResponse(filter_results=results))


def _matching(acl: AclBinding) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
