"""The door with an authorizer: each API with its rights, without one of them, and with a denial; what is not told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from drupelet.errors import ConfigurationError
from drupelet.ledger import LEDGER_TOPIC
from edge_broker.broker.context import RequestContext, Session
from edge_broker.broker.effects import Effect
from edge_broker.broker.state.authorization import NOTED_MAX
from edge_broker.configuration.config import STANDARD_AUTHORIZER, BrokerConfig
from edge_broker.configuration.security_keys import PLAINTEXT
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.handlers import APIS, HANDLERS
from edge_broker.network.background.metrics import metrics_text
from edge_broker.protocol import api
from edge_broker.protocol.codec import encode
from edge_broker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from edge_broker.protocol.messages.describe_cluster import DescribeClusterRequest
from edge_broker.protocol.messages.describe_groups import DescribeGroupsRequest
from edge_broker.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from edge_broker.protocol.messages.list_groups import ListGroupsRequest
from edge_broker.protocol.messages.metadata import NO_AUTHORIZED_OPERATIONS, MetadataRequest, MetadataRequestTopic
from edge_broker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from edge_broker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from edge_broker.security.acls import CLUSTER_NAME, AclBinding, Acls, Operation, PatternType, Permission, ResourceType
from edge_broker.security.state import SecurityState
from edge_broker.testing.client import Client
from edge_broker.testing.site import Site
from tests.abuse.frames import framed
from tests.support.rights import ASKED, CLUSTER, GROUP, TOPIC, Asked, Names, Right, denials
from tests.support.storage import batch, ledger_record
from tests.unit.broker.test_ledger_access import ledger_batch
from tests.unit.broker.test_produce import code, produce

ANN, ADMIN, HOST = "User:ann", "User:admin", "10.0.0.5"
SETTINGS: dict[str, str | bool] = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": ADMIN}


def guarded(*acls: AclBinding, partitions: int = 1, **settings: str | bool) -> Site:
    """A broker with an authorizer that knows these ACLs, a topic t and a group g, which has read another."""
    site = Site({**SETTINGS, **settings})
    site.topic("t", partitions)
    use(site)
    site.topic("kept")
    admin = client(site, ADMIN)
    admin.ask(api.FIND_COORDINATOR, _asked("find coordinator").request(names(site)), 4)
    admin.ask(api.OFFSET_COMMIT, _asked("commit offsets").request(names(site)._replace(topic="kept")), 8)
    use(site, *acls)
    return site


def use(site: Site, *acls: AclBinding) -> None:
    authorizer = site.broker.rights.authorizer
    assert authorizer is not None
    authorizer.use(Acls(acls))


def client(site: Site, principal: str = ANN, host: str = HOST) -> Client:
    made = site.client()
    made.connection.session = Session(f"{host}:4711", principal=principal)
    return made


def names(site: Site) -> Names:
    return Names("t", site.store.topics["t"].topic_id, "absent", "g", "no-g")


def _asked(title: str) -> Asked:
    return next(asked for asked in ASKED if asked.title == title)


def acl(right: Right, permission: Permission = Permission.ALLOW, **parts: Any) -> AclBinding:
    made = AclBinding(right.resource_type, right.name, PatternType.LITERAL, ANN, "*", right.operation, permission)
    return made._replace(**parts)


def allow(kind: ResourceType, name: str, *operations: Operation) -> list[AclBinding]:
    return [acl(Right(kind, name, operation)) for operation in operations]


def denied(site: Site, asked: Asked, principal: str = ANN) -> set[ErrorCode]:
    return denials(client(site, principal).ask(asked.key, asked.request(names(site)), asked.version))


def audited(site: Site, capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if " denied " in line]


@pytest.fixture(scope="module")
def site() -> Site:
    return guarded()


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked.title)
def test_an_api_wants_its_rights_and_no_others(site: Site, asked: Asked) -> None:
    """Without one of them it says so, with all it does not, and a denial of one is over all that is allowed."""
    there = names(site)
    first = [acl(choices[0].of(there)) for choices in asked.needs]
    use(site)
    assert denied(site, asked) == {asked.denied[0]}
    assert denied(site, asked, ADMIN) == set()
    use(site, *first)
    assert denied(site, asked) == set()
    for number, choices in enumerate(asked.needs):
        others = first[:number] + first[number + 1 :]
        use(site, *others)
        assert denied(site, asked) == {asked.denied[number]}, "without one"
        for choice in choices:
            use(site, *others, acl(choice.of(there)))
            assert denied(site, asked) == set(), f"with {choice}"
            use(site, *others, acl(choice.of(there)), acl(choice.of(there), Permission.DENY, name="*"))
            if choice.resource_type != CLUSTER:
                assert denied(site, asked) == {asked.denied[number]}, f"with a denial of {choice}"
        wrong = [
            acl(Right(choice.resource_type, choice.of(there).name, operation))
            for choice in choices
            for operation in Operation
            if operation > Operation.ALL and not _enough(operation, choices)
        ]
        use(site, *others, *wrong)
        assert denied(site, asked) == {asked.denied[number]}, "with all other operations"


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked.title)
def test_a_request_with_its_rights_is_no_denial_in_log_or_count(
    asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Kafka, which asks what else to show with logIfDenied = false."""
    site = guarded()
    use(site, *(acl(choices[0].of(names(site))) for choices in asked.needs))
    capsys.readouterr()
    assert denied(site, asked) == set()
    assert audited(site, capsys) == []
    assert site.broker.rights.denials.total() == 0


def _enough(operation: Operation, choices: Iterable[Right]) -> bool:
    describing = {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    wanted = {choice.operation for choice in choices}
    return (
        operation in wanted
        or (Operation.DESCRIBE in wanted and operation in describing)
        or (Operation.DESCRIBE_CONFIGS in wanted and operation == Operation.ALTER_CONFIGS)
    )


def test_every_api_but_those_without_rights_is_asked() -> None:
    """Whoever adds an API says what right it wants."""
    told = {asked.key for asked in ASKED}
    filtered = {api.LIST_GROUPS, api.DESCRIBE_CLUSTER}
    log_ins = {api.API_VERSIONS, api.SASL_HANDSHAKE, api.SASL_AUTHENTICATE}
    assert set(HANDLERS) == told | filtered | log_ins | {api.DESCRIBE_ACLS, api.CREATE_ACLS, api.DELETE_ACLS}


def test_without_an_authorizer_everybody_may_everything_by_the_short_way() -> None:
    """Nothing is asked, and nothing costs more."""
    site = Site()
    site.topic("t")
    for asked in ASKED:
        assert denied(site, asked) == set()
    assert site.broker.topics._open is site.store.topics


def test_a_topic_that_may_not_be_seen_is_not_told_to_be_there() -> None:
    """Its name is answered alike whether or not it is there, its id without the name."""
    site = guarded()
    answers = {}
    for name in ("t", "absent"):
        (topic,) = client(site).ask(api.METADATA, MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12).topics
        answers[name] = topic.error_code, topic.topic_id.int, topic.partitions, topic.topic_authorized_operations
        deleted = client(site).ask(api.DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]), 6)
        answers[name] += (deleted.responses[0].error_code, deleted.responses[0].topic_id.int)
        described = client(site).ask(
            api.DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)])
        )
        (topic,) = described.topics
        answers[name] += (topic.error_code, topic.topic_id.int, topic.topic_authorized_operations)
    failed = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (
        answers["t"]
        == answers["absent"]
        == (failed, 0, [], NO_AUTHORIZED_OPERATIONS, failed, 0, failed, 0, NO_AUTHORIZED_OPERATIONS)
    )
    assert "absent" not in site.store.topics
    topic_id = names(site).topic_id
    by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)])
    assert client(site).ask(api.METADATA, by_id, 12).topics[0].name is None
    asked = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)])
    (answer,) = client(site).ask(api.DELETE_TOPICS, asked, 6).responses
    assert (answer.name, answer.error_code) == (None, failed)
    assert "'t'" not in answer.error_message, "nor does the sentence tell its name"
    use(site, *allow(TOPIC, "t", Operation.DESCRIBE))
    (answer,) = client(site).ask(api.DELETE_TOPICS, asked, 6).responses
    assert (answer.name, answer.error_code) == ("t", failed)


def test_who_asks_for_all_is_shown_what_he_may_see() -> None:
    """Topics, groups and offsets of others are left out without an error."""
    site = guarded(*allow(TOPIC, "t", Operation.READ))
    site.topic("hidden")
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")]
    topics = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name in ("t", "hidden")]
    for group in ("g", "of-others"):
        client(site, ADMIN).ask(api.OFFSET_COMMIT, OffsetCommitRequest(group_id=group, topics=topics), 8)
    ann = client(site)

    def shown(answer: Any) -> list[str]:
        return [topic.name for topic in answer.topics]

    assert shown(ann.ask(api.METADATA, MetadataRequest(topics=None), 12)) == ["t"]
    assert shown(ann.ask(api.DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest())) == ["t"]
    assert {"t", "hidden"} < set(shown(client(site, ADMIN).ask(api.METADATA, MetadataRequest(topics=None), 12)))
    assert ann.ask(api.LIST_GROUPS, ListGroupsRequest(), 5).groups == []
    use(site, *allow(TOPIC, "t", Operation.READ), *allow(GROUP, "g", Operation.DESCRIBE))
    assert [group.group_id for group in ann.ask(api.LIST_GROUPS, ListGroupsRequest(), 5).groups] == ["g"]
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    assert shown(ann.ask(api.OFFSET_FETCH, fetch, 8).groups[0]) == ["t"]
    use(site, *allow(CLUSTER, CLUSTER_NAME, Operation.DESCRIBE))
    assert {group.group_id for group in ann.ask(api.LIST_GROUPS, ListGroupsRequest(), 5).groups} == {"g", "of-others"}


def test_operations_are_told_as_they_are() -> None:
    """Of topics, groups and the cluster; 0 of a cluster that may not be described."""
    reads = 1 << Operation.READ | 1 << Operation.DESCRIBE
    site = guarded(*allow(TOPIC, "t", Operation.READ), *allow(GROUP, "g", Operation.READ))
    ann, admin = client(site), client(site, ADMIN)
    metadata = MetadataRequest(
        topics=[MetadataRequestTopic(name="t")],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    answer = ann.ask(api.METADATA, metadata, 8)
    assert (answer.topics[0].topic_authorized_operations, answer.cluster_authorized_operations) == (reads, 0)
    answer = admin.ask(api.METADATA, metadata, 8)
    assert (answer.topics[0].topic_authorized_operations, answer.cluster_authorized_operations) == (3576, 8096)
    groups = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    commit = _asked("commit offsets").request(names(site))
    admin.ask(api.OFFSET_COMMIT, commit, 8)
    assert ann.ask(api.DESCRIBE_GROUPS, groups, 5).groups[0].authorized_operations == reads
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert ann.ask(api.DESCRIBE_CLUSTER, cluster).cluster_authorized_operations == 0
    use(site, *allow(CLUSTER, CLUSTER_NAME, Operation.DESCRIBE))
    told = ann.ask(api.DESCRIBE_CLUSTER, cluster).cluster_authorized_operations
    assert told == 1 << Operation.DESCRIBE
    partitions = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])
    assert admin.ask(api.DESCRIBE_TOPIC_PARTITIONS, partitions).topics[0].topic_authorized_operations == 3576


def test_a_topic_is_made_for_who_may_make_it() -> None:
    """By Metadata too; to see it is not enough."""
    site = guarded(*allow(TOPIC, "absent", Operation.DESCRIBE))
    metadata = MetadataRequest(topics=[MetadataRequestTopic(name="absent")], allow_auto_topic_creation=True)
    assert client(site).ask(api.METADATA, metadata, 12).topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "absent" not in site.store.topics
    use(site, *allow(TOPIC, "absent", Operation.DESCRIBE, Operation.CREATE))
    assert client(site).ask(api.METADATA, metadata, 12).topics[0].error_code == ErrorCode.NONE
    assert "absent" in site.store.topics


def test_who_makes_a_topic_is_told_its_configuration_if_he_may_see_it() -> None:
    """As Kafka, which hides the number of partitions too."""
    site = guarded(*allow(CLUSTER, CLUSTER_NAME, Operation.CREATE))
    asked = CreateTopicsRequest(topics=[CreatableTopic(name="made", num_partitions=2, replication_factor=1)])
    (made,) = client(site).ask(api.CREATE_TOPICS, asked, 7).topics
    assert (made.error_code, made.topic_config_error_code) == (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert (made.num_partitions, made.replication_factor, made.configs) == (-1, -1, [])
    assert made.topic_id == site.store.topics["made"].topic_id


def test_a_topic_is_deleted_by_who_may_delete_it() -> None:
    """Or may delete all, by a right to the cluster; to see it is not enough."""
    site = guarded(*allow(TOPIC, "t", Operation.ALTER))
    site.topic("u")

    def deleted(name: str) -> ErrorCode:
        asked = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
        return ErrorCode(client(site).ask(api.DELETE_TOPICS, asked, 6).responses[0].error_code)

    assert deleted("t") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    use(site, *allow(TOPIC, "t", Operation.DELETE))
    assert deleted("t") == ErrorCode.NONE
    use(site, *allow(CLUSTER, CLUSTER_NAME, Operation.DELETE))
    assert deleted("u") == ErrorCode.NONE
    assert deleted(LEDGER_TOPIC) == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_what_is_denied_costs_its_neighbours_nothing() -> None:
    """Each topic of a request has an answer of its own."""
    site = guarded(*allow(TOPIC, "t", Operation.WRITE))
    site.topic("other")
    answer = client(site).ask(api.PRODUCE, produce(("t", 0, batch(b"a")), ("other", 0, batch(b"b"))))
    assert [code(answer, 0), code(answer, 1)] == [ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert site.store.topics["other"].partitions[0].log_end_offset == 0


def test_a_right_that_is_taken_holds_for_the_next_request() -> None:
    """Also on a connection that had it."""
    site = guarded(*allow(TOPIC, "t", Operation.WRITE))
    ann = client(site)
    assert code(ann.ask(api.PRODUCE, produce(("t", 0, batch(b"a"))))) == ErrorCode.NONE
    use(site)
    assert code(ann.ask(api.PRODUCE, produce(("t", 0, batch(b"a"))))) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("principal", "host", "acls", "allowed"),
    [
        (ADMIN, HOST, [], True),
        (ANN, HOST, allow(TOPIC, LEDGER_TOPIC, Operation.WRITE), True),
        (ANN, HOST, allow(TOPIC, "*", Operation.WRITE), False),
        (ANN, HOST, [acl(Right(TOPIC, LEDGER_TOPIC, Operation.WRITE), principal="User:*")], False),
        ("User:*", HOST, [acl(Right(TOPIC, LEDGER_TOPIC, Operation.WRITE), principal="User:*")], False),
        (ANN, "127.0.0.1", allow(TOPIC, "*", Operation.WRITE), True),
        (ANN, "10.0.0.7", allow(TOPIC, "*", Operation.WRITE), True),
        (ANN, "127.0.0.1", [], False),
    ],
)
def test_the_ledger_is_written_by_who_is_named_for_it(
    principal: str, host: str, acls: list[AclBinding], allowed: bool
) -> None:
    """Else by the rule of addresses, if the authorizer lets him write at all."""
    site = guarded(*acls, **{"edge.ledger.writers": "10.0.0.7"})
    answer = client(site, principal, host).ask(api.PRODUCE, produce((LEDGER_TOPIC, 0, ledger_batch(ledger_record()))))
    assert code(answer) == (ErrorCode.NONE if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def test_what_belongs_to_the_broker_is_not_even_a_super_users() -> None:
    """The rules of the broker's own topics hold for everybody."""
    site = guarded()
    for name in (LEDGER_TOPIC, "__consumer_offsets"):
        answer = client(site, ADMIN).ask(api.DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]))
        assert answer.responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_denial_is_noted_and_what_is_left_out_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    """With who, from where, what and which; of many only some are written, and all are counted."""
    site = guarded(partitions=1)
    audited(site, capsys)
    client(site).ask(api.METADATA, MetadataRequest(topics=None), 12)
    assert audited(site, capsys) == []
    client(site).ask(api.PRODUCE, produce(("t", 0, batch(b"a"))))
    (line,) = audited(site, capsys)
    for part in ("principal=User:ann", f"host={HOST}", "operation=WRITE", "resource=TOPIC:t"):
        assert part in line
    for _ in range(100):
        client(site).ask(api.PRODUCE, produce(("t", 0, batch(b"a"))))
    assert len(audited(site, capsys)) < 30
    counted = metrics_text(site.broker, site.dispatcher, site.server, 0)
    assert f'authorization_denied_total{{listener="{PLAINTEXT}"}} 101\n' in counted
    assert not any(effect is Effect.AUDIT for effect, _ in site.broker.effects.left)


def test_a_denial_takes_little_of_the_log_whatever_the_client_calls_itself(capsys: pytest.CaptureFixture[str]) -> None:
    site = guarded()
    audited(site, capsys)
    body = b"".join(encode(MetadataRequest(topics=[MetadataRequestTopic(name="x" * 249)]), 4))
    client(site).feed(framed(APIS[api.METADATA], 4, body, client_id=b"c" * 32_000))
    site.run_until_idle()
    (line,) = audited(site, capsys)
    assert len(line) < 1000


def test_of_one_request_few_denials_are_noted_and_all_are_counted() -> None:
    """As each one noted is work for the loop, all in one piece."""
    site = guarded()
    asker = client(site)
    left: list[int] = []
    apply = site.dispatcher.apply

    def looked() -> None:
        left.append(len(site.broker.effects.left))
        apply()

    site.dispatcher.apply = looked  # type: ignore[method-assign]
    for denials_before in (0, 1000):
        assert site.broker.rights.denials[PLAINTEXT] == denials_before
        topics = [MetadataRequestTopic(name=f"x{number}") for number in range(1000)]
        asker.ask(api.METADATA, MetadataRequest(topics=topics), 12)
        assert max(left) == NOTED_MAX + 1, "one that counts the rest"
        left.clear()


def test_while_acls_cannot_be_read_a_super_user_of_this_machine_gets_in_alone() -> None:
    """Not even everyone who may do what no ACL is about."""
    site = Site({**SETTINGS, "allow.everyone.if.no.acl.found": True})
    site.topic("t")
    fetch = _asked("fetch by name")
    assert denied(site, fetch) == set()
    site.broker.security.apply(SecurityState(damage="a byte is wrong"))
    assert denied(site, fetch) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert denied(site, fetch, ADMIN) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    at_hand = client(site, ADMIN, "127.0.0.1")
    assert denials(at_hand.ask(fetch.key, fetch.request(names(site)), fetch.version)) == set()
    site.broker.security.apply(SecurityState(acls=frozenset(allow(TOPIC, "t", Operation.READ))))
    assert denied(site, fetch) == set()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"super.users": "admin"}, "User:admin"),
        ({"super.users": "User:a;User:"}, "User:"),
        ({"super.users": "User:a; User:*"}, "and not everybody"),
    ],
)
def test_a_super_user_that_is_no_principal_is_named(settings: dict[str, str], said: str) -> None:
    """Before anything starts."""
    with pytest.raises(ConfigurationError, match=said):
        BrokerConfig(settings)


def test_super_users_are_named_with_semicolons_between() -> None:
    """Names of certificates have commas."""
    config = BrokerConfig({"super.users": "User:CN=a,O=b ; User:c;"})
    assert config.super_users == {"User:CN=a,O=b", "User:c"}


def test_a_check_is_decided_once_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it costs is in `make bench-secured`."""
    site = guarded(*allow(TOPIC, "t", Operation.READ))
    context = RequestContext(1, 12, "c", Session(f"{HOST}:4711", principal=ANN))
    looked: list[str] = []
    of = Acls.of
    monkeypatch.setattr(Acls, "of", lambda acls, kind, name: looked.append(name) or of(acls, kind, name))
    for _ in range(3):
        site.broker.topics.authorize(context, "t", Operation.READ)
    assert looked == ["t"]
    with pytest.raises(Refusal):
        site.broker.topics.authorize(context, "t", Operation.WRITE)
