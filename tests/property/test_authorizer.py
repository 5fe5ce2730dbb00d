"""The authorizer over random ACLs, beside a slow model that reads its table word by word."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge_broker.security.acls import AclBinding, AclFilter, Acls, Operation, PatternType, Permission, ResourceType
from edge_broker.security.authorizer import Authorizer

TYPES = [ResourceType.TOPIC, ResourceType.GROUP]
NAMES = ["*", "a", "ab", "abc", "b", "ba", "*a", "ü"]
WHO = ["User:ann", "User:bob", "User:*"]
HOSTS = ["*", "10.0.0.1", "10.0.0.2", "::1"]
DONE = [Operation(number) for number in range(3, 16)]
FRESH = "zz"

BINDINGS = st.builds(
    AclBinding,
    st.sampled_from(TYPES),
    st.sampled_from(NAMES),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(WHO),
    st.sampled_from(HOSTS),
    st.sampled_from([Operation.ALL, *DONE]),
    st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
)
ASKED = st.tuples(st.sampled_from(WHO[:2]), st.sampled_from(HOSTS[1:]), st.sampled_from(DONE), st.sampled_from(TYPES))


def holds(acl: AclBinding, kind: ResourceType, name: str) -> bool:
    if acl.resource_type != kind:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in ("*", name)


def concerns(acl: AclBinding, who: str, host: str) -> bool:
    return acl.principal in ("User:*", who) and acl.host in ("*", host)


def allowed_by(operation: Operation) -> set[Operation]:
    by = {operation, Operation.ALL}
    if operation == Operation.DESCRIBE:
        by |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    if operation == Operation.DESCRIBE_CONFIGS:
        by |= {Operation.ALTER_CONFIGS}
    return by


def model(
    acls: list[AclBinding], everyone: bool, who: str, host: str, operation: Operation, kind: ResourceType, name: str
) -> bool:
    about = [acl for acl in acls if holds(acl, kind, name)]
    mine = [acl for acl in about if concerns(acl, who, host)]
    if any(acl.permission == Permission.DENY and acl.operation in (operation, Operation.ALL) for acl in mine):
        return False
    if any(acl.permission == Permission.ALLOW and acl.operation in allowed_by(operation) for acl in mine):
        return True
    return everyone and not about


@given(st.lists(BINDINGS, max_size=12), st.booleans(), ASKED, st.lists(st.sampled_from([*NAMES, FRESH]), min_size=1))
def test_it_decides_as_the_model_does(
    acls: list[AclBinding],
    everyone: bool,
    asked: tuple[str, str, Operation, ResourceType],
    names: list[str],
) -> None:
    """Each name is asked for twice: the second time it is remembered."""
    authorizer = Authorizer([], allow_everyone=everyone)
    authorizer.use(Acls(acls))
    who, host, operation, kind = asked
    for name in names + names:
        assert authorizer.allows(who, host, operation, kind, name) == model(acls, everyone, *asked, name)


@given(st.lists(BINDINGS, max_size=12), ASKED)
def test_any_resource_is_one_that_there_is(
    acls: list[AclBinding], asked: tuple[str, str, Operation, ResourceType]
) -> None:
    """Where it says that something may be done to one, a name shows it, and the other way round.

    Operations that others allow are left out: there Kafka counts an ALLOW of the operation itself alone.
    """
    who, host, operation, kind = asked
    if len(allowed_by(operation)) > 2:
        return
    authorizer = Authorizer([])
    authorizer.use(Acls(acls))
    names = {FRESH} | {name + more for name in NAMES if name != "*" for more in ("", FRESH)} | {"*" + FRESH}
    shown = any(model(acls, False, who, host, operation, kind, name) for name in names)
    assert authorizer.allows_any(who, host, operation, kind) == shown


@given(st.lists(BINDINGS, max_size=12), st.sampled_from(TYPES), st.sampled_from([*NAMES, FRESH]))
def test_match_finds_the_acls_that_hold(acls: list[AclBinding], kind: ResourceType, name: str) -> None:
    """What `kafka-acls --resource-pattern-type match` shows is what decides."""
    meant = AclFilter(kind, name, PatternType.MATCH)
    assert [acl for acl in acls if meant.matches(acl)] == [acl for acl in acls if holds(acl, kind, name)]
