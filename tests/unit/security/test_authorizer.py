"""The authorizer: every row of its table, and what it remembers."""

from __future__ import annotations

import pytest

from edge_broker.security import authorizer as module
from edge_broker.security.acls import AclBinding, Acls, Operation, PatternType, Permission, ResourceType
from edge_broker.security.authorizer import OPERATIONS, Authorizer, is_this_machine

TOPIC = ResourceType.TOPIC
ANN, HOST = "User:ann", "10.0.0.1"
ALLOW = AclBinding(TOPIC, "readings", PatternType.LITERAL, ANN, "*", Operation.READ, Permission.ALLOW)
DENY = ALLOW._replace(permission=Permission.DENY)


def of(*acls: AclBinding, allow_everyone: bool = False, closed: bool = False) -> Authorizer:
    made = Authorizer(["User:admin"], allow_everyone=allow_everyone)
    made.use(Acls(acls), closed=closed)
    return made


def may(authorizer: Authorizer, operation: Operation, name: str = "readings", who: str = ANN, host: str = HOST) -> bool:
    return authorizer.allows(who, host, operation, TOPIC, name)


def test_nobody_but_a_super_user_may_what_no_acl_allows() -> None:
    """As without `allow.everyone.if.no.acl.found`."""
    assert not may(of(), Operation.READ)
    assert may(of(DENY._replace(principal="User:*")), Operation.READ, who="User:admin")
    assert may(of(allow_everyone=True), Operation.READ)
    assert not may(of(ALLOW._replace(principal="User:bob"), allow_everyone=True), Operation.READ), "there is an ACL"


def test_a_deny_is_over_every_allow() -> None:
    """However much narrower the allow is."""
    assert may(of(ALLOW), Operation.READ)
    for deny in (
        DENY,
        DENY._replace(name="*"),
        DENY._replace(name="read", pattern_type=PatternType.PREFIXED),
        DENY._replace(principal="User:*"),
        DENY._replace(host=HOST),
        DENY._replace(operation=Operation.ALL),
    ):
        assert not may(of(ALLOW, deny), Operation.READ)


@pytest.mark.parametrize(
    ("operation", "by"),
    [
        (Operation.DESCRIBE, {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
        (Operation.DESCRIBE_CONFIGS, {Operation.ALTER_CONFIGS}),
        (Operation.WRITE, set()),
        (Operation.CREATE, set()),
    ],
)
def test_some_operations_are_allowed_by_others(operation: Operation, by: set[Operation]) -> None:
    """And by itself and ALL; a denial of the others takes nothing from them."""
    allowing = {given for given in Operation if given > 1 and may(of(ALLOW._replace(operation=given)), operation)}
    assert allowing == by | {operation, Operation.ALL}
    denying = {
        given
        for given in Operation
        if given > 1 and not may(of(ALLOW._replace(operation=operation), DENY._replace(operation=given)), operation)
    }
    assert denying == {operation, Operation.ALL}


def test_a_host_is_compared_as_an_address() -> None:
    """Whatever form it is written in."""
    there = of(ALLOW._replace(host="0:0:0:0:0:0:0:1"), ALLOW._replace(host=HOST))
    assert may(there, Operation.READ, host="::1")
    assert may(there, Operation.READ, host=f"::ffff:{HOST}")
    assert not may(there, Operation.READ, host="10.0.0.2")
    assert not may(there, Operation.READ, host="")


def test_with_a_damaged_store_a_super_user_of_this_machine_gets_in_alone() -> None:
    """Also where everyone is allowed what no ACL is about."""
    closed = of(ALLOW, allow_everyone=True, closed=True)
    assert not may(closed, Operation.READ)
    assert not closed.allows_any(ANN, HOST, Operation.READ, TOPIC)
    assert not may(closed, Operation.READ, who="User:admin")
    assert not may(closed, Operation.READ, who="User:admin", host="")
    for host in ("127.0.0.1", "::1"):
        assert may(closed, Operation.READ, who="User:admin", host=host)
        assert not may(closed, Operation.READ, host=host)


def test_what_was_decided_is_forgotten_when_the_acls_change() -> None:
    """In both directions."""
    authorizer = of()
    assert not may(authorizer, Operation.READ)
    authorizer.use(Acls([ALLOW]))
    assert may(authorizer, Operation.READ)
    authorizer.use(Acls())
    assert not may(authorizer, Operation.READ)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names come from clients: neither many nor long ones fill the memory."""
    monkeypatch.setattr(module, "CACHED_MAX", 10)
    authorizer = of(ALLOW._replace(name="*"))
    for number in range(100):
        assert may(authorizer, Operation.READ, f"t{number}")
        assert may(authorizer, Operation.READ, "x" * 1000 + str(number))
        assert sum(len(known) for of_type in authorizer._cached for known in of_type) <= 10


def test_any_resource_needs_an_allow_that_denials_leave_something_of() -> None:
    """As Kafka's authorizeByResourceType."""

    def any_written(*acls: AclBinding) -> bool:
        return of(*acls).allows_any(ANN, HOST, Operation.WRITE, TOPIC)

    write, denied = (acl._replace(operation=Operation.WRITE) for acl in (ALLOW, DENY))
    prefix = PatternType.PREFIXED
    assert any_written(write)
    assert any_written(write._replace(operation=Operation.ALL))
    assert any_written(write._replace(name="*"), denied)
    assert any_written(write._replace(name="read", pattern_type=prefix), denied)
    assert not any_written()
    assert not any_written(ALLOW)
    assert not any_written(write._replace(host="10.0.0.9"))
    assert not any_written(write, denied)
    assert not any_written(write, denied._replace(name="read", pattern_type=prefix))
    assert not any_written(write, denied._replace(name="*"))
    assert of().allows_any("User:admin", HOST, Operation.WRITE, TOPIC)


def test_whether_any_resource_is_allowed_is_worked_out_once_until_the_acls_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As each producer asks, and all ACLs are looked at for it."""
    monkeypatch.setattr(module, "CACHED_MAX", 10)
    looked: list[ResourceType] = []
    of_type = Acls.of_type
    monkeypatch.setattr(Acls, "of_type", lambda acls, kind: looked.append(kind) or of_type(acls, kind))  # type: ignore[func-returns-value]
    authorizer = of(ALLOW)
    for _ in range(3):
        assert not authorizer.allows_any(ANN, HOST, Operation.WRITE, TOPIC)
        assert authorizer.allows_any(ANN, HOST, Operation.READ, TOPIC)
    assert len(looked) == 2
    authorizer.use(Acls([ALLOW._replace(operation=Operation.WRITE)]))
    assert authorizer.allows_any(ANN, HOST, Operation.WRITE, TOPIC)
    assert not authorizer.allows_any(ANN, HOST, Operation.READ, TOPIC)
    for number in range(100):
        authorizer.allows_any(f"User:{number}", HOST, Operation.WRITE, TOPIC)
        assert len(authorizer._cached_any) <= 10


def test_the_operations_are_bits() -> None:
    """A super user has all that Kafka tells of a resource that nobody checks."""
    authorizer = of(ALLOW)
    assert authorizer.operations(ANN, HOST, TOPIC, "readings") == 1 << Operation.READ | 1 << Operation.DESCRIBE
    all_of = [authorizer.operations("User:admin", HOST, kind, "x") for kind in OPERATIONS]
    assert all_of == [3576, 3400, 8096, 33040]


def test_named_is_who_has_an_allow_of_his_own() -> None:
    """Neither a wildcard nor a prefix names anybody."""

    def named(acl: AclBinding, *more: AclBinding, who: str = ANN) -> bool:
        return of(acl, *more).names(who, HOST, Operation.READ, TOPIC, "readings")

    assert named(ALLOW)
    assert named(ALLOW._replace(operation=Operation.ALL))
    assert named(ALLOW, who="User:admin")
    assert not named(ALLOW, DENY)
    assert not named(ALLOW._replace(name="*"))
    assert not named(ALLOW._replace(name="read", pattern_type=PatternType.PREFIXED))
    assert not named(ALLOW._replace(name="readings", pattern_type=PatternType.PREFIXED))
    assert not named(ALLOW._replace(principal="User:*"))
    assert not named(ALLOW._replace(operation=Operation.WRITE))


def test_this_machine_is_loopback() -> None:
    """Of both families."""
    assert not is_this_machine("")
    assert is_this_machine("127.0.0.9")
    assert is_this_machine("::1")
    assert not is_this_machine("10.0.0.1")
    assert not is_this_machine("localhost")
