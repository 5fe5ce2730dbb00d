"""`edge-mirror check --connect` names the transactional ids that Apache Kafka 4.3.1 and 3.9.2 deny; it changes nothing.

An ACL denies Write or Describe on one id; all else is open. Invariant: the epochs of the ids stay as they are, so a
mirror that runs meanwhile is not overtaken.
"""

from __future__ import annotations

import subprocess

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from drupelet.kafka.client import ClientSettings
from kafka_wire.cluster import SIDE, Cluster
from kafka_wire.transactions.granting import denied_operations
from kafka_wire.transactions.transactions import Transactions
from tests.support import runtimes
from tests.support.processes import ApacheKafka, EdgeBroker, wait_until
from tests.support.waiting import CALL_S

OWN = "__edge-mirror-lab-state"
SPARE = f"{OWN}~3"
SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module", params=["4.3.1", pytest.param("3.9.2", marks=pytest.mark.night)])
def target(request, tmp_path_factory):
    jars = runtimes.old_kafka_jars() if request.param == "3.9.2" else None
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), settings=SECURED, jars=jars) as kafka:
        yield kafka


@pytest.fixture
def admin(target):
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    yield admin
    every = AclBindingFilter(
        ResourceType.TRANSACTIONAL_ID,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    for done in admin.delete_acls([every]).values():
        done.result(CALL_S)


def deny(admin, name, operation):
    def acl(one, permission):
        literal = ResourcePatternType.LITERAL
        return AclBinding(ResourceType.TRANSACTIONAL_ID, name, literal, "User:ANONYMOUS", "*", one, permission)

    rules = [acl(AclOperation.ALL, AclPermissionType.ALLOW), acl(operation, AclPermissionType.DENY)]
    for done in admin.create_acls(rules).values():
        done.result(CALL_S)


def check(tmp_path, source, target):
    config = tmp_path / "mirror.toml"
    config.write_text("transactions = true\n")
    ends = ["--source", source, "--target", target, "--topics", "readings", "--site", "lab", "--config", config]
    command = [runtimes.console_script("edge-mirror"), "check", "--connect", *ends]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * CALL_S)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "operation", "status", "text"),
    [
        (SPARE, AclOperation.WRITE, 0, f"WARNING: target: no Write on {SPARE}: "),
        (SPARE, AclOperation.DESCRIBE, 0, f"WARNING: target: no Describe on {SPARE}: "),
        (OWN, AclOperation.WRITE, 1, f"target: no Write on the transactional id {OWN}. "),
        (OWN, AclOperation.DESCRIBE, 1, f"target: no Describe on the transactional id {OWN}. "),
    ],
)
def test_a_denied_operation_is_named(tmp_path, target, admin, name, operation, status, text):
    with EdgeBroker(tmp_path) as source:
        assert check(tmp_path, source.bootstrap, target.bootstrap)[0] == 0
        deny(admin, name, operation)
        found = []

        def is_denied():
            found[:] = check(tmp_path, source.bootstrap, target.bootstrap)
            return text in found[1]

        wait_until(is_denied, CALL_S, "the ACL holds", poll_s=0.2)
        assert found[0] == status, found[1]


async def test_the_question_changes_no_epoch(target):
    cluster = Cluster(ClientSettings(target.bootstrap, "rights-test", int(CALL_S * 1000)))
    ids = [Transactions(cluster, name, timeout_s=CALL_S) for name in (OWN, SPARE)]
    for one in ids:
        await one.begin([])
    before = [await one.describe() for one in ids]
    for node in cluster.nodes:
        assert await denied_operations(await cluster.connection(node, SIDE), [OWN, SPARE], timeout_s=CALL_S) == {}
    assert [await one.describe() for one in ids] == before
    cluster.close()
