"""An ACL, and a set of them by resource.

| an ACL is about | pattern | name |
|---|---|---|
| one resource | LITERAL | its name |
| all resources of a type | LITERAL | `*` |
| all whose names begin so | PREFIXED | the beginning |

Contains: Kafka's numbers, an ACL, what finds some of them. Does not contain: who is asked about (authorizer.py),
where ACLs are kept. Source: Kafka's ResourceType, PatternType, AclOperation, AclPermissionType; KIP-11, KIP-290.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

ANYTHING = "*"
CLUSTER_NAME = "kafka-cluster"
ANYBODY = "User:*"
ACLS_MAX = 10_000


class ResourceType(IntEnum):
    """The types of resources."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a name is meant; ANY and MATCH in filters alone."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """The operations."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether an ACL gives or takes."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclBinding(NamedTuple):
    """One ACL: `principal` may (not) do `operation` from `host` to the resources that type, name and pattern mean.

    `principal` is TYPE:NAME or `User:*`, `host` an address or `*`.
    """

    resource_type: ResourceType
    name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        """As one line for people."""
        return (
            f"{self.permission.name} {self.operation.name} by {self.principal} from {self.host} on "
            f"{self.resource_type.name} {self.pattern_type.name} {self.name}"
        )


def fault_of_acl(acl: AclBinding) -> str:
    """Why this can be no ACL; empty when it can."""
    if acl.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        return f"an ACL is about one type of resource, and {acl.resource_type.name} is none"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"an ACL's pattern is LITERAL or PREFIXED, and {acl.pattern_type.name} is neither"
    if acl.operation in (Operation.UNKNOWN, Operation.ANY):
        return f"an ACL is about one operation or ALL, and {acl.operation.name} is neither"
    if acl.permission not in (Permission.DENY, Permission.ALLOW):
        return f"an ACL is ALLOW or DENY, and {acl.permission.name} is neither"
    if not acl.name:
        return "the name of the resource is empty"
    if acl.resource_type == ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        return f"the only name of a CLUSTER resource is {CLUSTER_NAME}"
    if not is_principal(acl.principal):
        return f"a principal is TYPE:NAME, as in User:alice, and {acl.principal!r} is not"
    if not acl.host:
        return "the host is empty; * means any"
    return ""


def is_principal(text: str) -> bool:
    """Whether a text is TYPE:NAME."""
    kind, _, name = text.partition(":")
    return bool(kind and name)


class AclFilter(NamedTuple):
    """Which ACLs are meant: None and ANY mean all; MATCH means those whose pattern holds for `name`."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    @property
    def is_unknown(self) -> bool:
        """Whether a part of it is of an unknown kind."""
        return 0 in (self.resource_type, self.pattern_type, self.operation, self.permission)

    def matches(self, acl: AclBinding) -> bool:
        """Whether this ACL is one of those meant."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._names(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _names(self, acl: AclBinding) -> bool:
        if self.pattern_type == PatternType.MATCH and self.name is not None:
            if acl.pattern_type == PatternType.PREFIXED:
                return self.name.startswith(acl.name)
            return acl.name in (self.name, ANYTHING)
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        return self.name in (None, acl.name)


class Acls:
    """A set of ACLs, found by the resource that they hold for; `in_order` has them as they are, sorted.

    To make one of ACLS_MAX takes some 50 ms: a worker does it.
    """

    def __init__(self, acls: Iterable[AclBinding] = ()) -> None:
        self._literal: dict[tuple[int, str], list[AclBinding]] = {}
        self._prefixed: dict[tuple[int, str], list[AclBinding]] = {}
        self._of_type: dict[int, list[AclBinding]] = {}
        self._lengths: dict[int, list[int]] = {}
        self.in_order = tuple(sorted(acls))
        for acl in self.in_order:
            kept = acl._replace(host=canonical_host(acl.host))
            by_name = self._literal if acl.pattern_type == PatternType.LITERAL else self._prefixed
            by_name.setdefault((int(acl.resource_type), acl.name), []).append(kept)
            self._of_type.setdefault(acl.resource_type, []).append(kept)
        for kind in self._of_type:
            self._lengths[kind] = sorted({len(name) for of, name in self._prefixed if of == kind})

    def of(self, resource_type: ResourceType, name: str) -> Iterator[AclBinding]:
        """The ACLs that hold for a resource, for whom ever."""
        yield from self._literal.get((resource_type, name), ())
        if name != ANYTHING:
            yield from self._literal.get((resource_type, ANYTHING), ())
        for length in self._lengths.get(resource_type, ()):
            if length > len(name):
                break
            yield from self._prefixed.get((resource_type, name[:length]), ())

    def of_type(self, resource_type: ResourceType) -> Iterable[AclBinding]:
        """The ACLs about resources of a type."""
        return self._of_type.get(resource_type, ())


def canonical_host(host: str) -> str:
    """An address in its one form, an IPv4 one that comes as IPv6 as IPv4, without a zone; else the text itself."""
    import ipaddress  # noqa: PLC0415 - 0.25 MB, which most boards do without

    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return str(getattr(address, "ipv4_mapped", None) or address)
