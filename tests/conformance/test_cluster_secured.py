"""Three boards that nobody gets into without a log-in, themselves included: users and rights are the cluster's."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from edge_broker.configuration.config import STANDARD_AUTHORIZER
from tests.support import runtimes
from tests.support.board_cluster import LAG_MS, SESSION_MS
from tests.support.certificates import Authority
from tests.support.entries import Entry, write_properties
from tests.support.listeners import listener_settings
from tests.support.ports import free_port
from tests.support.processes import EdgeBroker, start_together
from tests.support.secured_edge import users
from tests.support.waiting import CALL_S, wait_until
from tests.support.zookeeper import ZooKeeperEnsemble

NAMES = "DNS:localhost,IP:127.0.0.1"
SCRAM = "SCRAM-SHA-512"
OPS, BROKER, ANN = "ops", "broker", "ann"
HOLDS_S = 10
WAIT_S = 60


def password(user: str) -> str:
    return f"the password of {user}"


class SecuredCluster:
    """Three boards with listeners CLIENT and BROKERS; a context manager. Only the first one is told users."""

    def __init__(self, directory: Path, ensemble: ZooKeeperEnsemble, brokers_protocol: str) -> None:
        self._stack = ExitStack()
        self.authority = Authority(directory / "ca")
        digest = directory / "zookeeper.digest"
        digest.touch(0o600)
        digest.write_text("boards:what only the boards know\n")
        self.boards = []
        for number in (1, 2, 3):
            ports = {"CLIENT": free_port(), "BROKERS": free_port()}
            store = self.authority.store(f"board-{number}", NAMES)
            mutual = brokers_protocol == "SSL"
            shown = Entry(
                brokers_protocol,
                "" if mutual else SCRAM,
                BROKER,
                password(BROKER),
                self.authority.certificate,
                store if mutual else None,
            )
            settings: dict[str, str | int] = {
                **listener_settings({"CLIENT": "SASL_SSL", "BROKERS": brokers_protocol}, ports),
                "broker.id": number,
                "zookeeper.connect": ensemble.connect,
                "zookeeper.session.timeout.ms": SESSION_MS,
                "default.replication.factor": 3,
                "replica.lag.time.max.ms": LAG_MS,
                "edge.zookeeper.digest.file": str(digest),
                "inter.broker.listener.name": "BROKERS",
                "edge.inter.broker.config.file": str(
                    write_properties(directory / f"board-{number}.properties", shown.java())
                ),
                "ssl.keystore.location": str(store),
                "ssl.truststore.location": str(self.authority.certificate),
                "listener.name.brokers.ssl.client.auth": "required" if mutual else "none",
                "authorizer.class.name": STANDARD_AUTHORIZER,
                "super.users": f"User:{OPS}" + (";User:CN=board-1;User:CN=board-2;User:CN=board-3" if mutual else ""),
            }
            self.boards.append(
                EdgeBroker(
                    directory, name=f"board-{number}", port=ports["CLIENT"], protocol="CLIENT", settings=settings
                )
            )
        self.user(1, "add", OPS)
        if brokers_protocol == "SASL_SSL":
            self.user(1, "add", BROKER)
            self.acl(1, "add", "--allow", f"User:{BROKER}", "--operation", "cluster_action", "--cluster")

    def __enter__(self) -> SecuredCluster:
        try:
            for board in self.boards:
                self._stack.push(board)
            start_together(self.boards)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def user(self, board: int, *arguments: str) -> str:
        data_dir = self.boards[board - 1].data_dir
        return users(runtimes.console_script("edge-broker"), data_dir, *arguments, password=password(arguments[1]))

    def acl(self, board: int, *arguments: str) -> str:
        command = [runtimes.console_script("edge-broker"), "acl", *arguments]
        command += ["--data-dir", self.boards[board - 1].data_dir]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=CALL_S)
        return done.stdout

    def settings(self, user: str, *boards: int) -> dict[str, Any]:
        """What a client is told that comes by these boards, or by all."""
        there = [self.boards[number - 1].bootstrap for number in boards or (1, 2, 3)]
        entry = Entry("SASL_SSL", SCRAM, user, password(user), self.authority.certificate)
        return {"bootstrap.servers": ",".join(there), "log_level": 0, **entry.librdkafka()}

    def admin(self, user: str, *boards: int) -> AdminClient:
        return AdminClient(self.settings(user, *boards))

    def gets_in(self, user: str, board: int) -> set[str] | None:
        """The topics that a board shows a user; None: it refuses his log-in."""
        errors: list[KafkaError] = []
        admin = AdminClient({**self.settings(user, board), "error_cb": errors.append})
        found: list[set[str] | None] = []

        def answered() -> bool:
            try:
                found.append(set(admin.list_topics(timeout=1).topics))
            except KafkaException:
                admin.poll(0)
                if any(error.code() == KafkaError._AUTHENTICATION for error in errors):
                    found.append(None)
            return bool(found)

        wait_until(answered, CALL_S, f"board {board} lets {user} in, or not")
        return found[0]

    def make_topic(self, name: str) -> None:
        admin = self.admin(OPS)
        for made in admin.create_topics([NewTopic(name, 3, 3)]).values():
            made.result(CALL_S)
        wait_until(lambda: self.in_sync(name) == 3, WAIT_S, f"all have {name}")

    def in_sync(self, name: str) -> int:
        partitions = self.admin(OPS).list_topics(name, timeout=CALL_S).topics[name].partitions.values()
        return min((len(one.isrs) for one in partitions), default=0)

    def produced(self, user: str, topic: str) -> KafkaError | None:
        told: list[KafkaError | None] = []
        producer = Producer({**self.settings(user), "acks": "all", "message.timeout.ms": 20_000})
        for partition in range(3):
            producer.produce(topic, b"value", partition=partition, on_delivery=lambda error, _: told.append(error))
        assert producer.flush(CALL_S) == 0
        return next((error for error in told if error is not None), None)


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
