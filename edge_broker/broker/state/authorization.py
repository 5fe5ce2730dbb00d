"""Check the permissions of sessions; a denial is an error without further facts, and a line in the log.

| without an authorizer | everybody may do everything |
|---|---|
| with one | it is asked about each topic, group and the cluster that a request names |

Resources that a request does not name, and authorized operations, are left out without a denial.

Contains: asking the authorizer for a session. Does not contain: how it decides (security/authorizer.py), what
belongs to the broker itself (topic_registry.py). Source: Kafka's AuthHelper.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from edge_broker.broker.effects import AuditLine
from edge_broker.errors import ErrorCode
from edge_broker.protocol.messages.metadata import NO_AUTHORIZED_OPERATIONS
from edge_broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from edge_broker.security.authorizer import OPERATIONS, Authorizer

if TYPE_CHECKING:
    from edge_broker.broker.context import RequestContext, Session
    from edge_broker.broker.effects import Effects
    from edge_broker.configuration.config import BrokerConfig

NOTED_MAX = 10  # of one request
FAILED = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_ALL = {kind: sum(1 << operation for operation in operations) for kind, operations in OPERATIONS.items()}
"""All operations of each, a bit for an operation's number: the answer for a session without an authorizer."""


def configured_authorizer(config: BrokerConfig) -> Authorizer | None:
    """The authorizer that a configuration names; it knows no ACLs yet, and so denies until it gets some."""
    if not config.text("authorizer.class.name"):
        return None
    return Authorizer(config.super_users, allow_everyone=config.boolean("allow.everyone.if.no.acl.found"))


class Rights:
    """Whom the authorizer lets do what; None lets everybody do everything. `denials` counts by listener."""

    def __init__(self, authorizer: Authorizer | None, effects: Effects) -> None:
        self.authorizer = authorizer
        self.denials: Counter[str] = Counter()
        self._effects = effects
        self._noted = (0, 0)  # the request that was denied something last, by its token, and how often
        self._tally = [0]  # of that request: the denials that have no line

    def may(
        self,
        context: RequestContext,
        operation: Operation,
        resource_type: ResourceType,
        name: str = CLUSTER_NAME,
        *,
        noted: bool = True,
    ) -> bool:
        """Whether a session may do this; a denial is noted, unless it is only asked what to show."""
        authorizer = self.authorizer
        if authorizer is None:
            return True
        session = context.session
        if authorizer.allows(session.principal, session.host, operation, resource_type, name):
            return True
        if noted:
            self.note_denial(context, operation, resource_type, name)
        return False

    def is_named(self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether a session's principal is a super user, or has an ALLOW for this very resource in its own name."""
        authorizer, session = self.authorizer, context.session
        return authorizer is not None and authorizer.names(
            session.principal, session.host, operation, resource_type, name
        )

    def may_any(self, context: RequestContext, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether a session may do this to at least one resource of a type."""
        authorizer, session = self.authorizer, context.session
        return authorizer is None or authorizer.allows_any(session.principal, session.host, operation, resource_type)

    def group(self, context: RequestContext, group_id: str, operation: Operation) -> ErrorCode:
        """Why a session may not do this to a group, or NONE."""
        if self.authorizer is None or self.may(context, operation, ResourceType.GROUP, group_id):
            return ErrorCode.NONE
        return ErrorCode.GROUP_AUTHORIZATION_FAILED

    def cluster(self, context: RequestContext, operation: Operation) -> ErrorCode:
        """Why a session may not do this to the cluster, or NONE."""
        allowed = self.may(context, operation, ResourceType.CLUSTER)
        return ErrorCode.NONE if allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    def operations(self, context: RequestContext, resource_type: ResourceType, name: str) -> int:
        """Return a session's permissions on a resource, a bit for an operation's number."""
        authorizer, session = self.authorizer, context.session
        if authorizer is None:
            return _ALL[resource_type]
        return authorizer.operations(session.principal, session.host, resource_type, name)

    def cluster_operations(self, context: RequestContext, *, told: bool) -> int:
        """Return the cluster's authorized operations for a response; `told`: whether they are requested."""
        if not told:
            return NO_AUTHORIZED_OPERATIONS
        if not self.may(context, Operation.DESCRIBE, ResourceType.CLUSTER):
            return 0
        return self.operations(context, ResourceType.CLUSTER, CLUSTER_NAME)

    def note_denial(
        self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str
    ) -> None:
        """Count a denial, and note it, NOTED_MAX times of one request.

        The others are summed: to write, or leave out, a line for each of the 50,000 names that fit into one request
        would hold the loop for 0.3 s.
        """
        session = context.session
        self.denials[session.listener] += 1
        token, noted = self._noted
        noted = noted + 1 if token == context.token else 1
        self._noted = context.token, noted
        if noted > NOTED_MAX:
            if noted == NOTED_MAX + 1:
                self._tally = [0]
                who = {"principal": session.principal, "host": session.host}
                self._effects.add_audit_line(AuditLine("denied", who, _source(session, resource_type), self._tally))
            self._tally[0] += 1
            return
        fields = {
            "principal": session.principal,
            "host": session.host,
            "client": context.client_id[:256],
            "operation": operation.name,
            "resource": f"{resource_type.name}:{name[:256]}",
        }
        self._effects.add_audit_line(AuditLine("denied", fields, _source(session, resource_type)))


def _source(session: Session, resource_type: ResourceType) -> str:
    """Return whose denials are counted together: those about topics hide none about the cluster, and so its rights."""
    who = session.principal if session.is_authenticated else session.host
    return f"{who} on the cluster" if resource_type == ResourceType.CLUSTER else who
