"""DescribeAcls, CreateAcls, DeleteAcls: what is kept, shown and removed, for whom, and when it holds."""

from __future__ import annotations

import random
from typing import Any

import pytest

from edge_broker.errors import ErrorCode
from edge_broker.handlers.delete_acls import FILTERS_MAX
from edge_broker.protocol import api
from edge_broker.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from edge_broker.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from edge_broker.protocol.messages.describe_acls import DescribeAclsRequest
from edge_broker.security import state as state_module
from edge_broker.security.acls import (
    ACLS_MAX,
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from edge_broker.security.state import SecurityState
from edge_broker.storage.metadata.security_store import NAME, SecurityStore
from edge_broker.testing.client import Client
from edge_broker.testing.site import Site
from tests.support.acls import ANY_AT_ALL, creation, described
from tests.support.storage import batch
from tests.unit.broker.test_produce import code, produce
from tests.unit.broker.test_rights import ADMIN, ANN, SETTINGS, client

WRITES = AclBinding(ResourceType.TOPIC, "t", PatternType.LITERAL, ANN, "*", Operation.WRITE, Permission.ALLOW)
PREFIX = WRITES._replace(name="te", pattern_type=PatternType.PREFIXED, operation=Operation.READ)
CLUSTER = WRITES._replace(resource_type=ResourceType.CLUSTER, name=CLUSTER_NAME, operation=Operation.ALTER)


def create(asking: Client, *acls: AclBinding) -> list[ErrorCode]:
    answer = asking.ask(api.CREATE_ACLS, CreateAclsRequest(creations=[creation(acl) for acl in acls]))
    return [ErrorCode(result.error_code) for result in answer.results]


def shown(asking: Client, **parts: Any) -> set[AclBinding]:
    answer = asking.ask(api.DESCRIBE_ACLS, DescribeAclsRequest(**{**ANY_AT_ALL, **parts}))
    assert answer.error_code == ErrorCode.NONE, answer
    return described(answer.resources)


def remove(asking: Client, *filters: dict[str, Any]) -> Any:
    wanted = [DeleteAclsFilter(**{**ANY_AT_ALL, **parts}) for parts in filters]
    return asking.ask(api.DELETE_ACLS, DeleteAclsRequest(filters=wanted)).filter_results


def guarded() -> Site:
    site = Site(SETTINGS)
    site.topic("t")
    return site


def test_an_acl_holds_once_it_is_synced() -> None:
    """Not before: what a power cut could take back allows nothing."""
    site = guarded()
    admin, ann = client(site, ADMIN), client(site)
    admin.send(api.CREATE_ACLS, CreateAclsRequest(creations=[creation(WRITES)]))
    assert admin.answers() == []
    assert shown(client(site, ADMIN)) == set()
    assert admin.answer().results[0].error_code == ErrorCode.NONE
    assert code(ann.ask(api.PRODUCE, produce(("t", 0, batch(b"a"))))) == ErrorCode.NONE
    assert shown(client(site, ADMIN)) == {WRITES}
    again = site.reopen("cut")
    assert shown(client(again, ADMIN)) == {WRITES}
    assert code(client(again).ask(api.PRODUCE, produce(("t", 0, batch(b"a"))))) == ErrorCode.NONE


def test_each_acl_has_an_answer_of_its_own() -> None:
    """One that can be none costs the others nothing; one that is there already is no error."""
    site = guarded()
    admin = client(site, ADMIN)
    wrong = WRITES._replace(principal="ann")
    asked = [WRITES, wrong, WRITES, PREFIX, CLUSTER._replace(name="x")]
    invalid = ErrorCode.INVALID_REQUEST
    assert create(admin, *asked) == [0, invalid, 0, 0, invalid]
    assert create(admin, WRITES) == [0]
    assert shown(admin) == {WRITES, PREFIX}
    unknown = CreateAclsRequest(creations=[AclCreation(resource_type=99, resource_name="t", principal=ANN, host="*")])
    assert admin.ask(api.CREATE_ACLS, unknown).results[0].error_code == invalid


def test_a_filter_shows_what_it_means() -> None:
    """By each of its parts, and by the name that a pattern holds for."""
    site = guarded()
    admin = client(site, ADMIN)
    everything = WRITES._replace(name="*", principal="User:bob", permission=Permission.DENY)
    create(admin, WRITES, PREFIX, CLUSTER, everything)
    assert shown(admin) == {WRITES, PREFIX, CLUSTER, everything}
    assert shown(admin, resource_type_filter=ResourceType.CLUSTER) == {CLUSTER}
    assert shown(admin, principal_filter="User:bob") == {everything}
    assert shown(admin, operation=Operation.READ) == {PREFIX}
    assert shown(admin, permission_type=Permission.DENY) == {everything}
    assert shown(admin, host_filter="10.0.0.1") == set()
    topic = {"resource_type_filter": ResourceType.TOPIC}
    assert shown(admin, **topic, resource_name_filter="test", pattern_type_filter=PatternType.MATCH) == {
        PREFIX,
        everything,
    }
    assert shown(admin, **topic, resource_name_filter="t", pattern_type_filter=PatternType.LITERAL) == {WRITES}
    answer = admin.ask(api.DESCRIBE_ACLS, DescribeAclsRequest(**{**ANY_AT_ALL, "operation": 77}))
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_what_filters_mean_is_removed() -> None:
    """Each tells what it meant; an unknown one removes nothing and costs the others nothing."""
    site = guarded()
    admin = client(site, ADMIN)
    create(admin, WRITES, PREFIX, CLUSTER)
    ours = {"principal_filter": ANN, "operation": Operation.WRITE}
    first, second, third = remove(admin, ours, {"operation": 77}, {"resource_name_filter": "none"})
    assert [acl.resource_name for acl in first.matching_acls] == ["t"]
    assert (second.error_code, second.matching_acls) == (ErrorCode.INVALID_REQUEST, [])
    assert (third.error_code, third.matching_acls) == (ErrorCode.NONE, [])
    assert shown(admin) == {PREFIX, CLUSTER}
    assert code(client(site).ask(api.PRODUCE, produce(("t", 0, batch(b"a"))))) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert shown(client(site.reopen("cut"), ADMIN)) == {PREFIX, CLUSTER}


def test_acls_are_seen_and_changed_by_who_may() -> None:
    """DESCRIBE and ALTER of the cluster; everybody else learns nothing."""
    site = guarded()
    admin, ann = client(site, ADMIN), client(site)
    failed = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    request = DescribeAclsRequest(**ANY_AT_ALL)
    assert create(ann, WRITES, WRITES) == [failed, failed]
    assert ann.ask(api.DESCRIBE_ACLS, request).error_code == failed
    assert [result.error_code for result in remove(ann, {}, {})] == [failed, failed]
    create(admin, CLUSTER._replace(operation=Operation.DESCRIBE))
    assert len(shown(ann)) == 1
    assert create(ann, WRITES) == [failed]
    create(admin, CLUSTER)
    assert create(ann, WRITES) == [0]
    assert len(remove(ann, {})[0].matching_acls) == 3


def test_without_an_authorizer_acls_are_refused() -> None:
    """As Kafka: they would have no effect, and whoever asks should know."""
    site = Site()
    anybody = client(site)
    disabled = ErrorCode.SECURITY_DISABLED
    assert create(anybody, WRITES) == [disabled]
    assert anybody.ask(api.DESCRIBE_ACLS, DescribeAclsRequest(**ANY_AT_ALL)).error_code == disabled
    assert remove(anybody, {})[0].error_code == disabled


def test_acls_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """More are refused; those that are there stay, and can be removed."""
    monkeypatch.setattr(state_module, "ACLS_MAX", 2)
    site = guarded()
    admin = client(site, ADMIN)
    many = [WRITES._replace(name=f"t{number}") for number in range(3)]
    assert create(admin, *many) == [ErrorCode.POLICY_VIOLATION] * 3
    assert create(admin, *many[:2]) == [0, 0]
    assert create(admin, many[2]) == [ErrorCode.POLICY_VIOLATION]
    assert shown(admin) == set(many[:2])


def test_what_cannot_be_kept_does_not_hold() -> None:
    """A damaged store is not written to; whoever asked is told."""
    site = guarded()
    site.disk.put(f"/data/{NAME}", b"nonsense")
    admin = client(site, ADMIN, "127.0.0.1")
    assert create(admin, WRITES) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert remove(admin, {})[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_changes_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    """Who has given and taken which right."""
    site = guarded()
    admin = client(site, ADMIN)
    create(admin, WRITES)
    remove(admin, {})
    lines = [line for line in capsys.readouterr().err.splitlines() if " acl-" in line]
    assert [("added" in line, "removed" in line) for line in lines] == [(True, False), (False, True)]
    assert all("principal=User:admin" in line and "ALLOW WRITE by User:ann" in line for line in lines)


def test_what_a_command_changes_beside_the_broker_holds_within_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    """And is noted; who it was nobody knows."""
    site = guarded()
    command = SecurityStore.open(site.disk, "/data", random.Random(1).randbytes)
    command.change(lambda state: state.with_acls(frozenset([WRITES])))
    site.dispatcher.start(site.broker.security.check_file)
    site.run_until_idle()
    assert code(client(site).ask(api.PRODUCE, produce(("t", 0, batch(b"a"))))) == ErrorCode.NONE
    said = capsys.readouterr().err
    assert "changed-by-command acls_added=1 acls_removed=0" in said
    assert f'acl-added by=command acl="{WRITES}"' in said


def test_a_state_without_acls_is_one() -> None:
    """`with_acls` changes nothing else."""
    state = SecurityState(secret=b"s").with_acls(frozenset([WRITES]))
    assert (state.acls, state.secret) == ({WRITES}, b"s")


def test_a_request_for_more_than_there_may_be_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is made of it; of a large one that is carried out each ACL is noted."""
    site = guarded()
    admin = client(site, ADMIN)
    many = [WRITES._replace(name=f"t{number}") for number in range(ACLS_MAX + 1)]
    assert set(create(admin, *many)) == {ErrorCode.INVALID_REQUEST}
    capsys.readouterr()
    assert set(create(admin, *many[:1000])) == {ErrorCode.NONE}
    lines = [line for line in capsys.readouterr().err.splitlines() if " acl-added " in line]
    assert len(lines) == 1000
    wanted = [DeleteAclsFilter(**ANY_AT_ALL)] * (FILTERS_MAX + 1)
    answers = admin.ask(api.DELETE_ACLS, DeleteAclsRequest(filters=wanted)).filter_results
    assert {answer.error_code for answer in answers} == {ErrorCode.INVALID_REQUEST}
    assert len(shown(admin)) == 1000
