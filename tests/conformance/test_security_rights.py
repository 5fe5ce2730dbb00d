"""Real clients with rights, without, and with some: kafka-acls gives them, and clients say what is missing as ever.

With `--broker kafka` the same settings and the same clients are held against Apache Kafka.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from edge_broker.configuration.config import STANDARD_AUTHORIZER
from tests.support import runtimes
from tests.support.certificates import Authority
from tests.support.conformance.limits import COMMON
from tests.support.conformance.tls_site import NAMES, TlsSite, run
from tests.support.java_tools import QUICK_START, QUIET
from tests.support.processes import wait_until
from tests.support.waiting import CALL_S

ACLS = "org.apache.kafka.tools.AclCommand"
WHO = ("admin", "ann", "bob", "cid", "dan")


@pytest.fixture(scope="module")
def site(broker_class: type, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsSite]:
    """A broker with an authorizer; everybody is who his certificate says."""
    directory = tmp_path_factory.mktemp("rights")
    authority = Authority(directory / "ca")
    for name in WHO:
        authority.store(name, NAMES)
    settings = {
        **COMMON,
        "auto.create.topics.enable": "false",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:CN=admin;User:CN=broker;User:ANONYMOUS",  # Apache Kafka asks itself as the last two
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.store("broker", NAMES)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "ssl.client.auth": "required",
    }
    with broker_class(directory, settings=settings, protocol="SSL") as process:
        yield TlsSite(process, process.bootstrap, authority, authority)


@pytest.fixture
def admin(site: TlsSite) -> AdminClient:
    """A client of one test, as it opens connections also long after its start."""
    return AdminClient(site.librdkafka("admin"))


def made(admin: AdminClient, *topics: str) -> None:
    for future in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        future.result(CALL_S)


def binding(kind: ResourceType, name: str, who: str, operation: AclOperation) -> AclBinding:
    pattern, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return AclBinding(kind, name, pattern, f"User:CN={who}", "*", operation, allow)


def give(admin: AdminClient, *acls: AclBinding) -> None:
    for future in admin.create_acls(list(acls)).values():
        future.result(CALL_S)


def produced(site: TlsSite, who: str, topic: str) -> KafkaError | None:
    """What a producer is told of one record: an error, or None when it was taken."""
    told: list[KafkaError | None] = []
    producer = Producer({**site.librdkafka(who), "acks": "all", "message.timeout.ms": 20_000, "log_level": 0})
    producer.produce(topic, b"value", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(CALL_S) == 0
    return told[0]


def consumed(site: TlsSite, who: str, topic: str, group: str) -> bytes | int:
    """What a consumer of a group gets first: a value, or the code of an error."""
    settings = {**site.librdkafka(who), "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer(settings)
    try:
        consumer.subscribe([topic])
        found: list[bytes | int] = []

        def answered() -> bool:
            message = consumer.poll(1.0)
            if message is not None:
                error = message.error()
                found.append(message.value() if error is None else error.code())
            return bool(found)

        wait_until(answered, 60, "a record or an error")
        return found[0]
    finally:
        consumer.close()


def test_a_client_gets_what_it_has_a_right_to(site: TlsSite, admin: AdminClient) -> None:
    made(admin, "readings", "hidden")
    assert produced(site, "ann", "readings").code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    give(admin, binding(ResourceType.TOPIC, "readings", "ann", AclOperation.WRITE))
    wait_until(lambda: produced(site, "ann", "readings") is None, 30, "the right to write")
    assert consumed(site, "ann", "readings", "g") == KafkaError.GROUP_AUTHORIZATION_FAILED
    give(admin, binding(ResourceType.GROUP, "g", "ann", AclOperation.READ))
    wait_until(
        lambda: consumed(site, "ann", "readings", "g") == KafkaError.TOPIC_AUTHORIZATION_FAILED, 60, "the group's right"
    )
    give(admin, binding(ResourceType.TOPIC, "readings", "ann", AclOperation.READ))
    wait_until(lambda: consumed(site, "ann", "readings", "g") == b"value", 60, "the right to read")
    ann = AdminClient(site.librdkafka("ann"))
    assert set(ann.list_topics(timeout=CALL_S).topics) == {"readings"}
    assert produced(site, "ann", "hidden").code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        made(ann, "another")


def test_acls_by_librdkafka(site: TlsSite, admin: AdminClient) -> None:
    wanted = [binding(ResourceType.TOPIC, f"of-bob-{number}", "bob", AclOperation.ALL) for number in range(3)]
    give(admin, *wanted)
    anything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, "User:CN=bob", None, AclOperation.ANY, AclPermissionType.ANY
    )
    wait_until(lambda: set(admin.describe_acls(anything).result(CALL_S)) == set(wanted), 30, "three ACLs")
    bob = AdminClient(site.librdkafka("bob"))
    assert not bob.describe_acls(anything).result(CALL_S)  # librdkafka keeps the error to itself
    with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        give(bob, *wanted)
    (future,) = admin.delete_acls([anything]).values()
    assert set(future.result(CALL_S)) == set(wanted)
    wait_until(lambda: not admin.describe_acls(anything).result(CALL_S), 30, "no ACL")


async def test_aiokafka_says_what_is_missing(site: TlsSite, admin: AdminClient) -> None:
    made(admin, "of-cid")
    context = site.context(name="cid")
    told = {"bootstrap_servers": site.bootstrap, "security_protocol": "SSL", "ssl_context": context}
    async with asyncio.timeout(CALL_S), AIOKafkaProducer(**told) as producer:
        with pytest.raises(TopicAuthorizationFailedError):
            await producer.send_and_wait("of-cid", b"value")
    give(admin, binding(ResourceType.TOPIC, "of-cid", "cid", AclOperation.ALL))
    async with asyncio.timeout(CALL_S), AIOKafkaProducer(**told, enable_idempotence=True) as producer:
        await producer.send_and_wait("of-cid", b"value")
    consumer = AIOKafkaConsumer("of-cid", **told, group_id="nobodys")
    with pytest.raises(GroupAuthorizationFailedError):
        async with asyncio.timeout(CALL_S):
            await consumer.start()
    await consumer.stop()


def test_kafka_acls(site: TlsSite, admin: AdminClient, tmp_path: Path) -> None:
    properties = tmp_path / "admin.properties"
    properties.write_text(
        "security.protocol=SSL\nssl.keystore.type=PEM\nssl.truststore.type=PEM\n"
        f"ssl.keystore.location={site.authority.directory / 'admin.store'}\n"
        f"ssl.truststore.location={site.authority.certificate}\n"
    )
    command = [*runtimes.kafka_java(*QUICK_START, QUIET), ACLS, "--bootstrap-server", site.bootstrap]
    command += ["--command-config", properties]
    made(admin, "java-a")
    starred = ["--allow-principal", "User:CN=d*", "--operation", "Write", "--topic", "java-a"]
    run([*command, "--add", *starred])  # taken, and the right of nobody but CN=d*
    assert produced(site, "dan", "java-a") is not None
    run([*command, "--remove", "--force", *starred])
    whom = ["--allow-principal", "User:CN=dan", "--topic", "java-", "--resource-pattern-type", "prefixed"]
    run([*command, "--add", "--producer", *whom])
    everybody = ["--deny-principal", "User:*", "--deny-host", "10.9.9.9", "--operation", "All", "--topic", "*"]
    run([*command, "--add", *everybody])
    shown = run([*command, "--list", "--topic", "java-a", "--resource-pattern-type", "match"])
    for part in ("name=java-, patternType=PREFIXED", "principal=User:CN=dan", "operation=WRITE", "host=10.9.9.9"):
        assert part in shown, shown
    assert produced(site, "dan", "java-a") is None
    run([*command, "--remove", "--force", "--producer", *whom])
    wait_until(lambda: produced(site, "dan", "java-a") is not None, 30, "the right to be gone")
    assert "CN=dan" not in run([*command, "--list"])
    run([*command, "--remove", "--force", *everybody])


def test_rights_are_given_beside_a_running_broker(site: TlsSite, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--broker") == "kafka":
        return
    command: list[str] = [runtimes.console_script("edge-broker"), "acl"]
    where = ["--data-dir", str(site.broker.data_dir)]  # type: ignore[attr-defined]
    whom = ["--topic", "beside", "--prefixed"]
    ann = AdminClient(site.librdkafka("ann"))
    acl([*command, "add", *where, *whom, "--allow", "User:CN=ann", "--operation", "create"])

    def may_make() -> bool:
        try:
            made(ann, "beside-1")
        except KafkaException:
            return False
        return True

    wait_until(may_make, 30, "the right to make a topic")
    assert "beside" in acl([*command, "list", *where])
    assert "CREATE" in acl([*command, "remove", *where, *whom])
    with_none = AdminClient(site.librdkafka("ann"))
    wait_until(lambda: _refused(with_none), 30, "the right to be gone")


def _refused(admin: AdminClient) -> bool:
    (future,) = admin.create_topics([NewTopic("beside-2", 1, 1)], validate_only=True).values()
    return isinstance(future.exception(CALL_S), KafkaException)


def acl(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
