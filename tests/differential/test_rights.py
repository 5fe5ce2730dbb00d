"""Rights, held against Apache Kafka's StandardAuthorizer: each API with its rights, without one, and with a denial.

Ann is User:CN=ann by her certificate. ACLs are changed over the wire by a super user, alike in both. Answers are
compared whole, but for sentences.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from edge_broker.errors import ErrorCode
from edge_broker.protocol import api
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from edge_broker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from edge_broker.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from edge_broker.protocol.messages.describe_acls import DescribeAclsRequest
from edge_broker.protocol.messages.describe_cluster import DescribeClusterRequest
from edge_broker.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from edge_broker.protocol.messages.list_groups import ListGroupsRequest
from edge_broker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from edge_broker.security.acls import CLUSTER_NAME, AclBinding, Operation, PatternType, Permission, ResourceType
from tests.differential.known import KNOWN_RIGHTS
from tests.differential.secured import SHOWN, Broker, Secured
from tests.differential.session import Session
from tests.differential.trees import Masks, differences
from tests.differential.wire import Connection
from tests.support.rights import ASKED, CLUSTER, GROUP, TOPIC, Asked, Names, Right, denials

ANN = "User:CN=ann"
ANY = 1


class Subject(NamedTuple):
    """One of the two: what the set-up asks by, and Ann's own connection."""

    broker: Broker
    admin: Session
    ann: Connection
    names: Names


class Both(NamedTuple):
    """The edge broker and Apache Kafka."""

    edge: Subject
    kafka: Subject

    def use(self, *acls: AclBinding) -> None:
        """Have these ACLs and no others, in both."""
        for subject in self:
            subject.broker.use(acls)

    def compare(self, key: int, version: int, requests: Iterable[Message], *, known: Iterable[str] = ()) -> Any:
        """Ask both as Ann and hold the answers against each other, but for `known` paths; ours."""
        answers = []
        for subject, request in zip(self, requests, strict=True):
            subject.ann.send(key, request, version)
            answers.append(subject.ann.receive())
        mine, theirs = (without_sentences(Masks().tree(answer, version)) for answer in answers)
        assert [found for found in differences(mine, theirs) if found.path not in known] == []
        return answers[0]


def without_sentences(tree: Any) -> Any:
    """A tree without the error messages, which are our own, and without our name for the group's place."""
    if isinstance(tree, dict):
        return {name: without_sentences(value) for name, value in tree.items() if name != "error_message"}
    return [without_sentences(value) for value in tree] if isinstance(tree, list) else tree


def acl(right: Right, permission: Permission = Permission.ALLOW, **parts: Any) -> AclBinding:
    made = AclBinding(right.resource_type, right.name, PatternType.LITERAL, ANN, "*", right.operation, permission)
    return made._replace(**parts)


def allow(kind: ResourceType, name: str, *operations: Operation) -> list[AclBinding]:
    return [acl(Right(kind, name, operation)) for operation in operations]


@pytest.fixture(scope="module")
def both(secured: Secured) -> Iterator[Both]:
    with ExitStack() as stack:
        context = secured.contexts[SHOWN]
        yield Both(*(begin(stack, broker, context) for broker in secured.brokers))


def begin(stack: ExitStack, broker: Broker, context: ssl.SSLContext) -> Subject:
    """Make two topics and two groups, of which Ann may see none."""
    admin = broker.set_up("rights")
    stack.callback(admin.close)
    topics = [admin.topic(suffix) for suffix in ("t", "kept")]
    names = Names(topics[0], admin.wait_for(topics[0], 1).topic_id, "rights-none", "rights-g", "rights-no-g")
    commit = next(asked for asked in ASKED if asked.title == "commit offsets")
    for group in (names.group, "rights-of-others"):
        admin.coordinator(group)
        answer = admin.quietly(commit.key, commit.request(names._replace(topic=topics[1], group=group)), 8)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    return Subject(broker, admin, stack.enter_context(Connection(broker.addresses["MUTUAL"], context=context)), names)


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked.title)
def test_an_api_with_and_without_its_rights(both: Both, asked: Asked) -> None:
    """Without any, with each set of rights that is enough, without one of them, and with a denial of one."""

    def compare() -> set[ErrorCode]:
        requests = [asked.request(broker.names) for broker in both]
        return denials(both.compare(asked.key, asked.version, requests, known=KNOWN_RIGHTS.get(asked.title, ())))

    names = both.edge.names
    first = [acl(choices[0].of(names)) for choices in asked.needs]
    both.use()
    assert compare() == {asked.denied[0]}
    for number, choices in enumerate(asked.needs):
        others = first[:number] + first[number + 1 :]
        if others:
            both.use(*others)
            assert compare() == {asked.denied[number]}
        for choice in choices:
            right = acl(choice.of(names))
            both.use(*others, right)
            assert compare() == set()
            both.use(*others, right, acl(choice.of(names), Permission.DENY, principal="User:*"))
            compare()


def test_patterns_hosts_and_all(both: Both) -> None:
    """Prefixes, wildcards, ALL, and addresses."""
    fetch = next(asked for asked in ASKED if asked.title == "fetch by id")
    reads = acl(Right(TOPIC, "rights-", Operation.READ), pattern_type=PatternType.PREFIXED)
    anything = reads._replace(name="*", pattern_type=PatternType.LITERAL)
    for allowed, acls in (
        (True, [reads]),
        (False, [reads._replace(name="rights-t2")]),
        (True, [anything]),
        (False, [anything._replace(pattern_type=PatternType.PREFIXED)]),
        (True, [anything._replace(operation=Operation.ALL)]),
        (True, [reads._replace(host="127.0.0.1")]),
        (False, [reads._replace(host="127.0.0.2")]),
        (True, [reads._replace(principal="User:*")]),
        (False, [reads._replace(principal="Group:CN=ann")]),
        (False, [anything, reads._replace(permission=Permission.DENY)]),
        (True, [anything, reads._replace(permission=Permission.DENY, operation=Operation.DESCRIBE)]),
        (False, [reads, anything._replace(permission=Permission.DENY, operation=Operation.ALL)]),
    ):
        both.use(*acls)
        requests = [fetch.request(broker.names) for broker in both]
        assert (denials(both.compare(fetch.key, fetch.version, requests)) == set()) is allowed, acls


@pytest.mark.parametrize(
    ("needs", "acls"),
    [
        ("none", []),
        ("a literal", allow(TOPIC, "t", Operation.WRITE)),
        (
            "a literal, denied",
            [*allow(TOPIC, "t", Operation.WRITE), acl(Right(TOPIC, "t", Operation.WRITE), Permission.DENY)],
        ),
        ("all", allow(TOPIC, "*", Operation.ALL)),
        ("read alone", allow(TOPIC, "*", Operation.READ)),
        (
            "a prefix, denied by a shorter one",
            [
                acl(Right(TOPIC, "ab", Operation.WRITE), pattern_type=PatternType.PREFIXED),
                acl(Right(TOPIC, "a", Operation.WRITE), Permission.DENY, pattern_type=PatternType.PREFIXED),
            ],
        ),
        (
            "a prefix, denied by a longer one",
            [
                acl(Right(TOPIC, "a", Operation.WRITE), pattern_type=PatternType.PREFIXED),
                acl(Right(TOPIC, "ab", Operation.WRITE), Permission.DENY, pattern_type=PatternType.PREFIXED),
            ],
        ),
        (
            "all but all are denied",
            [*allow(TOPIC, "t", Operation.WRITE), acl(Right(TOPIC, "*", Operation.ALL), Permission.DENY)],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_producer_id_by_a_right_to_any_topic(both: Both, needs: str, acls: list[AclBinding]) -> None:
    """KIP-679: whoever may write to some topic may be idempotent."""
    asked = next(asked for asked in ASKED if asked.title == "a producer id")
    both.use(*acls)
    both.compare(asked.key, asked.version, [asked.request(broker.names) for broker in both])


def test_what_is_shown_and_told(both: Both) -> None:
    """All topics and groups as far as Ann may see them, and what she may do with each."""
    sees = [
        *allow(TOPIC, "rights-t", Operation.READ, Operation.ALTER_CONFIGS),
        *allow(GROUP, "rights-g", Operation.DESCRIBE),
    ]
    describe_groups = next(asked for asked in ASKED if asked.title == "describe groups")
    for acls in (
        [],
        sees,
        [*sees, *allow(CLUSTER, CLUSTER_NAME, Operation.DESCRIBE, Operation.CREATE)],
        [*sees, *allow(CLUSTER, CLUSTER_NAME, Operation.ALTER)],
    ):
        both.use(*acls)
        for key, version, request in (
            (
                api.METADATA,
                8,
                MetadataRequest(
                    topics=None,
                    include_topic_authorized_operations=True,
                    include_cluster_authorized_operations=True,
                ),
            ),
            (api.METADATA, 12, MetadataRequest(topics=None, include_topic_authorized_operations=True)),
            (api.LIST_GROUPS, 5, ListGroupsRequest()),
            (api.DESCRIBE_CLUSTER, 1, DescribeClusterRequest(include_cluster_authorized_operations=True)),
            (api.DESCRIBE_TOPIC_PARTITIONS, 0, DescribeTopicPartitionsRequest(topics=[])),
            (
                api.DESCRIBE_TOPIC_PARTITIONS,
                0,
                DescribeTopicPartitionsRequest(
                    topics=[TopicRequest(name=name) for name in ("rights-kept", "rights-none", "rights-t")]
                ),
            ),
        ):
            if key == api.DESCRIBE_CLUSTER or acls[2:] == []:
                both.compare(key, version, [request, request])
        both.compare(describe_groups.key, 5, [describe_groups.request(broker.names) for broker in both])


def test_topics_are_made_and_deleted_by_who_may(both: Both) -> None:
    """With and without a look at their configuration; by name and by id; by Metadata."""
    name = "rights-made"
    makes = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=2, replication_factor=1)])
    deletes = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000)
    create = allow(TOPIC, name, Operation.CREATE)
    both.use(*create)
    made = both.compare(api.CREATE_TOPICS, 7, [makes, makes]).topics[0]
    assert made.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for broker in both:
        broker.admin.wait_for(name, 2)
    both.compare(api.DELETE_TOPICS, 6, [deletes, deletes])
    for acls in (
        [],
        allow(TOPIC, name, Operation.DESCRIBE),
        allow(TOPIC, name, Operation.DELETE),
    ):
        both.use(*acls)
        by_id = [
            DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=broker.admin.wait_for(name, 2).topic_id)])
            for broker in both
        ]
        for request in by_id:
            request.timeout_ms = 30_000
        answer = both.compare(api.DELETE_TOPICS, 6, by_id)
    assert answer.responses[0].error_code == ErrorCode.NONE
    both.compare(api.DELETE_TOPICS, 6, [deletes, deletes])
    both.use(*allow(CLUSTER, CLUSTER_NAME, Operation.DELETE))
    both.compare(api.DELETE_TOPICS, 6, [deletes, deletes])


@pytest.mark.parametrize("operation", [Operation.ALTER, Operation.DESCRIBE])
def test_acls_are_seen_and_changed_by_who_may(both: Both, operation: Operation) -> None:
    """Also those that can be none; of a kind that no ACL has Kafka says UNKNOWN_SERVER_ERROR for the whole request."""
    describe = DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=ANN,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    match = DescribeAclsRequest(
        resource_type_filter=TOPIC,
        resource_name_filter="rights-x",
        pattern_type_filter=PatternType.MATCH,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    sound = {"principal": ANN, "host": "*", "permission_type": Permission.ALLOW}
    of_topic = {"resource_type": TOPIC, "resource_name": "rights-x", "operation": Operation.READ}
    wanted = [
        AclCreation(**of_topic, **sound),
        AclCreation(**{**of_topic, "resource_name": ""}, **sound),
        AclCreation(**{**of_topic, "resource_type": CLUSTER}, **sound),
    ]
    removed = DeleteAclsFilter(
        resource_type_filter=TOPIC,
        resource_name_filter="rights-x",
        pattern_type_filter=PatternType.LITERAL,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    none = DeleteAclsFilter(
        resource_type_filter=GROUP,
        resource_name_filter="rights-x",
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    both.use(*allow(CLUSTER, CLUSTER_NAME, operation), *allow(TOPIC, "rights-x", Operation.WRITE))
    for version in (1, 2, 3):
        for request in (describe, match):
            both.compare(api.DESCRIBE_ACLS, version, [request, request])
    create = CreateAclsRequest(creations=wanted)
    both.compare(api.CREATE_ACLS, 3, [create, create])
    delete = DeleteAclsRequest(filters=[none, none])
    both.compare(api.DELETE_ACLS, 3, [delete, delete])
    if operation == Operation.ALTER:
        keeps = [*allow(CLUSTER, CLUSTER_NAME, operation), *allow(TOPIC, "rights-x", Operation.READ)]
        both.use(*keeps)
        delete = DeleteAclsRequest(filters=[none, removed])
        assert len(both.compare(api.DELETE_ACLS, 3, [delete, delete]).filter_results[1].matching_acls) == 1


def test_metadata_makes_topics_for_who_may(both: Both) -> None:
    """Whoever may only see the name is told that a right is missing."""
    name = "rights-auto"
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    for acls in ([], allow(TOPIC, name, Operation.DESCRIBE), allow(TOPIC, name, Operation.CREATE)):
        both.use(*acls)
        answer = both.compare(api.METADATA, 12, [request, request])
        assert denials(answer) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
