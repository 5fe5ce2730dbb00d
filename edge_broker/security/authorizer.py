"""Decide permissions: Kafka's StandardAuthorizer, as a function of ACLs.

| asked | answered, the first that holds |
|---|---|
| by a super user | allowed |
| while the store of ACLs is damaged | denied, super users from beyond this machine too |
| a DENY that holds for principal, host, operation and resource | denied |
| an ALLOW that does | allowed |
| some ACL about the resource, whatever it says | denied |
| none at all | `allow.everyone.if.no.acl.found` |

ALL is every operation. An ALLOW of READ, WRITE, DELETE or ALTER allows DESCRIBE too, one of ALTER_CONFIGS allows
DESCRIBE_CONFIGS; a DENY of them denies neither.

Contains: also the memory of decisions. Does not contain: what an API asks for (handlers), how a denial
is answered and noted (broker). Source: KIP-11, KIP-290, KIP-679; Kafka's Authorizer.authorizeByResourceType.
"""

from __future__ import annotations

from collections.abc import Iterable

from edge_broker.security.acls import (
    ANYBODY,
    ANYTHING,
    AclBinding,
    Acls,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    canonical_host,
)

CACHED_MAX = 8192
CACHED_NAME_MAX = 256  # characters; longer names than a topic's are computed each time
_MEANS = {
    Operation.DESCRIBE: frozenset(
        (Operation.ALL, Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
    ),
    Operation.DESCRIBE_CONFIGS: frozenset((Operation.ALL, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)),
}
"""The operations of an ALLOW that allow one; of each that is not here, itself and ALL."""

OPERATIONS = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
}
"""The operations on a resource of a type; AclEntry.supportedOperations of Apache Kafka."""


class Authorizer:
    """Decides by ACLs; `super_users` are principals, TYPE:NAME, that may do everything.

    Decisions are kept until the ACLs change, CACHED_MAX of it at most, so that a decision costs a look into a
    dictionary. It is used on the loop alone. Until it has ACLs it is `closed`.
    """

    def __init__(self, super_users: Iterable[str], *, allow_everyone: bool = False) -> None:
        self.super_users = frozenset(super_users)
        self.closed = True
        self._allow_everyone = allow_everyone
        self.acls = Acls()
        self._cached: list[list[dict[tuple[str, str, str], bool]]] = [[{} for _ in Operation] for _ in ResourceType]
        self._cached_any: dict[tuple[str, str, Operation, ResourceType], bool] = {}
        self._cached_count = 0

    def use(self, acls: Acls, *, closed: bool = False) -> None:
        """Decide by these from now on; `closed`: their store is damaged, so that they are unknown."""
        self.closed = closed
        self.acls = acls
        self._forget()

    def allows(self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether a principal may do this to a resource; `host` is an address."""
        known = self._cached[resource_type][operation]
        allowed = known.get((principal, host, name))
        if allowed is None:
            allowed = self._decide(principal, host, operation, resource_type, name)
            if len(name) <= CACHED_NAME_MAX:
                self._make_room()
                known[principal, host, name] = allowed
        return allowed

    def allows_any(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether a principal may do this to at least one resource of a type, even if there is none yet.

        As in Kafka an ALLOW counts here only for the operation itself and ALL. To work it out takes up to 13 ms with
        10,000 ACLs.
        """
        asked = principal, host, operation, resource_type
        allowed = self._cached_any.get(asked)
        if allowed is None:
            allowed = self._decide_any(*asked)
            self._make_room()
            self._cached_any[asked] = allowed
        return allowed

    def _decide_any(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        if self.allows(principal, host, operation, resource_type, "hardcode"):
            return True
        if self.closed:
            return False
        whose = (principal, ANYBODY), (canonical_host(host), ANYTHING)
        operations = (operation, Operation.ALL)
        allowed: list[AclBinding] = []
        denied: set[tuple[PatternType, str]] = set()
        for acl in self.acls.of_type(resource_type):
            if acl.principal in whose[0] and acl.host in whose[1] and acl.operation in operations:
                if acl.permission == Permission.ALLOW:
                    allowed.append(acl)
                else:
                    denied.add((acl.pattern_type, acl.name))
        if (PatternType.LITERAL, ANYTHING) in denied:
            return False
        return any(not _is_covered(acl, denied) for acl in allowed)

    def operations(self, principal: str, host: str, resource_type: ResourceType, name: str) -> int:
        """Return a principal's permissions on a resource, a bit for an operation's number (KIP-430)."""
        return sum(
            1 << operation
            for operation in OPERATIONS[resource_type]
            if self.allows(principal, host, operation, resource_type, name)
        )

    def names(self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether a principal is a super user or has an ALLOW for this very resource in its own name, and no DENY."""
        if principal == ANYBODY:  # a client of that name: an entry for all names no client
            return False
        if not self.allows(principal, host, operation, resource_type, name):
            return False
        return principal in self.super_users or any(
            acl.name == name
            and acl.principal == principal
            and acl.pattern_type == PatternType.LITERAL
            and acl.permission == Permission.ALLOW
            and _concerns(acl, (principal,), canonical_host(host), operation)
            for acl in self.acls.of(resource_type, name)
        )

    def _decide(self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        host = canonical_host(host)
        if principal in self.super_users:
            return not self.closed or is_this_machine(host)
        if self.closed:
            return False
        principals = (principal, ANYBODY)
        found = allowed = False
        for acl in self.acls.of(resource_type, name):
            found = True
            if _concerns(acl, principals, host, operation):
                if acl.permission == Permission.DENY:
                    return False
                allowed = True
        return allowed if found else self._allow_everyone

    def _make_room(self) -> None:
        """One more decision is about to be kept."""
        if self._cached_count >= CACHED_MAX:
            self._forget()
        self._cached_count += 1

    def _forget(self) -> None:
        self._cached_count = 0
        self._cached_any.clear()
        for of_type in self._cached:
            for known in of_type:
                known.clear()


def is_this_machine(host: str) -> bool:
    """Whether an address, in its one form, is of this machine; what is no address is not."""
    import ipaddress  # noqa: PLC0415 - 0.25 MB, which most boards do without

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _concerns(acl: AclBinding, principals: tuple[str, ...], host: str, operation: Operation) -> bool:
    if acl.principal not in principals or acl.host not in (ANYTHING, host):
        return False
    if acl.permission == Permission.ALLOW and operation in _MEANS:
        return acl.operation in _MEANS[operation]
    return acl.operation in (operation, Operation.ALL)


def _is_covered(acl: AclBinding, denied: set[tuple[PatternType, str]]) -> bool:
    """Whether denials leave nothing of what an ACL allows."""
    name = acl.name
    if acl.pattern_type == PatternType.LITERAL:
        if name == ANYTHING:
            return False
        if (PatternType.LITERAL, name) in denied:
            return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))
