"""DescribeClientQuotas (key 48): none are set, as no client has any; Kafka's tools ask for them with users.

Source: DescribeClientQuotas 0 and 1, KIP-546; Kafka's ClientQuotasImage.
"""

from __future__ import annotations

from collections.abc import Sequence

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.outcomes import Outcome, Reply
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.protocol.api import DESCRIBE_CLIENT_QUOTAS
from edge_broker.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from edge_broker.security.acls import Operation

ENTITY_TYPES = ("ip", "user", "client-id")
MATCHES = ("EXACT", "DEFAULT", "SPECIFIED")


@ServedApi(
    DESCRIBE_CLIENT_QUOTAS,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    {0: "the quotas that are set (KIP-546)", 1: "compact lengths, tags (KIP-482)"},
    left_out="quotas themselves: none can be set (AlterClientQuotas), so that there is none to describe",
)
def describe_client_quotas(broker: Broker, context: RequestContext, request: DescribeClientQuotasRequest) -> Outcome:
    """Say that there are none, or what is wrong with the question."""
    code = broker.rights.cluster(context, Operation.DESCRIBE_CONFIGS)
    if code:
        return _refusal_reply(code, f"{context.session.principal} has no right to DESCRIBE_CONFIGS of the cluster")
    try:
        _check(request.components)
    except Refusal as refusal:
        return _refusal_reply(refusal.code, refusal.message)
    return Reply(DescribeClientQuotasResponse())


def _refusal_reply(code: ErrorCode, message: str) -> Reply:
    return Reply(DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None))


def _check(components: Sequence[ComponentData]) -> None:
    """Refuse what Kafka refuses, in its order; no more than one component of each type is looked at."""
    seen: set[str] = set()
    for component in components:
        name = component.entity_type
        if not name:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if name in seen:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Entity type {name} cannot appear more than once in the filter.")
        if name not in ENTITY_TYPES:
            raise Refusal(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {name}")
        _check_match(component)
        seen.add(name)
    if "ip" in seen and len(seen) > 1:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component.",
        )


def _check_match(component: ComponentData) -> None:
    if not 0 <= component.match_type < len(MATCHES):
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
    kind = MATCHES[component.match_type]
    if kind == "EXACT" and component.match is None:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if kind != "EXACT" and component.match is not None:
        raise Refusal(
            ErrorCode.INVALID_REQUEST, f"Request specified MATCH_TYPE_{kind}, but also specified a match string."
        )
