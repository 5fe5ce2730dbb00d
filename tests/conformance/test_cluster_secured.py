"""Three boards that nobody gets into without a log-in, themselves included: users and rights are the cluster's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from tests.support.conformance.secured_cluster import ANN, BROKER, OPS, WAIT_S, SecuredCluster, password
from tests.support.processes import start_together
from tests.support.waiting import CALL_S, wait_until
from tests.support.zookeeper import ZooKeeperEnsemble

HOLDS_S = 10


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("ensemble")) as ensemble:
        yield ensemble


def test_users_and_rights_are_the_cluster_s(ensemble: ZooKeeperEnsemble, tmp_path: Path) -> None:
    with SecuredCluster(tmp_path, ensemble, "SASL_SSL") as cluster:
        wait_until(lambda: len(cluster.admin(OPS, 3).list_topics(timeout=CALL_S).brokers) == 3, WAIT_S, "three boards")
        cluster.make_topic("readings")  # so boards replicate, each logged in as a user that one was told of

        # made on one board, they act on all
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        wanted = UserScramCredentialUpsertion(ANN, info, password(ANN).encode())
        at_2, at_1 = cluster.admin(OPS, 2), cluster.admin(OPS, 1)
        for made in at_2.alter_user_scram_credentials([wanted]).values():
            made.result(CALL_S)
        write = AclBinding(
            *(ResourceType.TOPIC, "readings", ResourcePatternType.LITERAL, f"User:{ANN}", "*"),
            *(AclOperation.WRITE, AclPermissionType.ALLOW),
        )
        for given in at_1.create_acls([write]).values():
            given.result(CALL_S)
        for board in (1, 2, 3):
            wait_until(lambda at=board: cluster.gets_in(ANN, at) == {"readings"}, HOLDS_S, f"board {board} knows ann")
        assert cluster.produced(ANN, "readings") is None

        # nobody else reads or writes them in ZooKeeper
        stranger = KazooClient(ensemble.connect)
        stranger.start(CALL_S)
        try:
            for path in ("/security", "/security/state"):
                with pytest.raises(NoAuthError):
                    stranger.get(path)
                with pytest.raises(NoAuthError):
                    stranger.set(path, b"{}")
            with pytest.raises(NoAuthError):
                stranger.delete("/security/state")
        finally:
            stranger.stop()
            stranger.close()

        # they survive restarts of all
        for board in cluster.boards:
            board.kill()
        start_together(cluster.boards)
        wait_until(lambda: cluster.in_sync("readings") == 3, WAIT_S, "all have the topic again")
        assert cluster.produced(ANN, "readings") is None

        # by a command beside one board
        told: list[KafkaError] = []
        open_at_3 = AdminClient({**cluster.settings(ANN, 3), "error_cb": told.append})
        assert open_at_3.list_topics(timeout=CALL_S).topics
        assert cluster.user(1, "remove", ANN) == f"removed: {ANN}\n"
        for board in (1, 2, 3):
            wait_until(lambda at=board: cluster.gets_in(ANN, at) is None, HOLDS_S, f"board {board} lets ann out")
        with pytest.raises(KafkaException):
            open_at_3.list_topics(timeout=2)

        # a follower without the right is told so
        assert f"removed: ALLOW CLUSTER_ACTION by User:{BROKER}" in cluster.acl(
            2, "remove", "--principal", f"User:{BROKER}"
        )
        sentence = f"as User:{BROKER} has no right to CLUSTER_ACTION: name it in super.users there, or give it"
        for one in cluster.boards:
            one.spawn() if not one.running else None
        cluster.boards[2].stop()
        cluster.boards[2].start()
        wait_until(lambda: sentence in cluster.boards[2].log_tail(200), WAIT_S, "the follower says what it lacks")


def test_boards_know_each_other_by_certificate(ensemble: ZooKeeperEnsemble, tmp_path: Path) -> None:
    root = KazooClient(ensemble.connect, auth_data=[("digest", "boards:what only the boards know")])
    root.start(CALL_S)
    try:
        for name in root.get_children("/"):
            if name != "zookeeper":
                root.delete(f"/{name}", recursive=True)
    finally:
        root.stop()
        root.close()
    with SecuredCluster(tmp_path, ensemble, "SSL") as cluster:
        wait_until(lambda: len(cluster.admin(OPS, 3).list_topics(timeout=CALL_S).brokers) == 3, WAIT_S, "three boards")
        cluster.make_topic("readings")
        assert cluster.produced(OPS, "readings") is None
        for server in ensemble.servers[1:]:  # which is the majority
            server.kill()
        wait_until(lambda: "what=Suspended" in cluster.boards[0].log_tail(200), WAIT_S, "ZooKeeper is away")
        assert cluster.gets_in(OPS, 1) is not None
        assert cluster.gets_in(ANN, 1) is None
        for board in cluster.boards:
            board.kill()  # to stop, each would wait for others to lead, which nobody can now
