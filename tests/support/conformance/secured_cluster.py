"""A cluster whose brokers and clients log in by TLS and SCRAM."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

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
        command = [str(runtimes.console_script("edge-broker")), "acl", *arguments]
        command += ["--data-dir", str(self.boards[board - 1].data_dir)]
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
        settings: dict[str, Any] = {**self.settings(user, board), "error_cb": errors.append}
        admin = AdminClient(settings)
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
