"""A cluster as it is run: three brokers, three servers of ZooKeeper; each board has a network and a disk of its own.

```
 board 1, 2, 3: namespace, edge-broker, a disk that forgets what was not synced ──┐
 ensemble: one namespace, three addresses ────────────────────────────────────────┴── router: clients
```

| fault | what it does, for a while |
|---|---|
| kill | SIGKILL of a broker, then its start |
| stop | SIGTERM, then its start: it hands over |
| pause | SIGSTOP, for longer than a session lasts |
| power | the disk freezes at one of its next changes, and what was not synced is gone |
| cut | nothing goes between two boards |
| alone | nothing goes between a board and the two others |
| session | nothing goes between a board and the ensemble |
| server | SIGKILL of a server of the ensemble |

Faults overlap; of one board's process, and of the ensemble's, there is one at a time. A round ends when all is mended
and every replica is in sync; then all that boards hold is read from their files.

Must never come in: what must hold (tests/support/cluster_history.py), clients (cluster_clients.py).
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Self

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.fault.cluster_clients import PARTITIONS, ClusterWorker, Noted, clients_of
from tests.fault.disk import FuseDisk
from tests.support.cluster_history import History, LedgeredLoss, Sent, Stored, violations
from tests.support.processes import EdgeBroker
from tests.support.routed_hosts import RoutedHosts
from tests.support.runtimes import console_script
from tests.support.waiting import CALL_S, wait_until
from tests.support.zookeeper import ZooKeeperEnsemble

NUMBERS = (1, 2, 3)
BOARDS = {number: f"198.51.100.{number}" for number in NUMBERS}
ENSEMBLE = ("198.51.100.11", "198.51.100.12", "198.51.100.13")
PORT = 9092
SESSION_MS = 2000
OFFSETS_TOPIC = "__consumer_offsets"
SETTINGS = {
    "edge.network.trusted": "true",
    "zookeeper.session.timeout.ms": SESSION_MS,
    "default.replication.factor": 3,
    "offsets.topic.num.partitions": 2,
    "auto.create.topics.enable": "false",
    "replica.lag.time.max.ms": 3000,
    "leader.imbalance.check.interval.seconds": 2,
    "log.flush.offset.checkpoint.interval.ms": 200,
    "group.initial.rebalance.delay.ms": 0,
}
SMALL_SEGMENTS = {"segment.bytes": "16384"}
RECOVERY_S = 60


class Fault(NamedTuple):
    """One of the head's table: whom it strikes, when it begins and ends, in seconds of the round."""

    kind: str
    whom: tuple[int, ...]
    begins_s: float
    ends_s: float

    def __str__(self) -> str:
        return f"{self.kind}{list(self.whom)} {self.begins_s:.1f}-{self.ends_s:.1f}"


KINDS = {"kill": 4, "stop": 2, "pause": 3, "power": 4, "cut": 3, "alone": 3, "session": 3, "server": 2}
LASTS_S = {"pause": (2.5, 5.0), "session": (0.5, 6.0), "alone": (0.5, 6.0), "cut": (0.5, 6.0)}
BRIEF_S = (0.1, 4.0)
OF_A_PROCESS = ("kill", "stop", "pause", "power")


def draw(chance: Random, count: int) -> list[Fault]:
    """So many faults of one round, by their beginning."""
    faults: list[Fault] = []
    begins_s = 0.0
    while len(faults) < count:
        begins_s += chance.uniform(0.0, 2.5)
        kind = chance.choices(list(KINDS), weights=list(KINDS.values()))[0]
        whom = tuple(sorted(chance.sample(NUMBERS, 2))) if kind == "cut" else (chance.choice(NUMBERS),)
        fault = Fault(kind, whom, begins_s, begins_s + chance.uniform(*LASTS_S.get(kind, BRIEF_S)))
        if not any(_clash(fault, before) for before in faults):
            faults.append(fault)
    return faults


def _clash(fault: Fault, before: Fault) -> bool:
    if fault.begins_s > before.ends_s + 0.1:
        return False
    if fault.kind in OF_A_PROCESS:
        return before.kind in OF_A_PROCESS and fault.whom == before.whom
    return fault.kind == before.kind and (fault.kind == "server" or fault.whom == before.whom)


class Board:
    """A broker, its host and its disk."""

    def __init__(self, number: int, directory: Path, hosts: RoutedHosts, connect: str, seed: int) -> None:
        self.number = number
        self.address = BOARDS[number]
        self.disk = FuseDisk(directory / f"board-{number}", seed=seed)
        self.broker = EdgeBroker(
            directory,
            name=f"broker-{number}",
            address=self.address,
            port=PORT,
            data_dir=self.disk.mountpoint / "data",
            settings={**SETTINGS, "broker.id": number, "zookeeper.connect": connect},
        )
        self.broker.command = [*hosts.hosts[f"board-{number}"].inside, *self.broker.command]

    @property
    def is_ready(self) -> bool:
        """Whether it has said so in this life."""
        return "edge-broker ready" in self.broker.output()

    def dump(self, topic: str) -> Iterator[dict[str, Any]]:
        """What the broker's own tool reads in its files."""
        command = [console_script("edge-broker"), "log", "dump", "--data-dir", self.broker.data_dir]
        done = subprocess.run(
            [*command, "--json", "--records", topic], capture_output=True, text=True, check=False, timeout=CALL_S
        )
        assert done.returncode == 0, done.stdout + done.stderr
        yield from map(json.loads, done.stdout.splitlines())

    def logs(self, topic: str) -> dict[int, dict[int, Stored]]:
        """Records by partition and offset."""
        found: dict[int, dict[int, Stored]] = {}
        batch: dict[str, Any] = {}
        for row in self.dump(topic):
            log = found.setdefault(int(row["partition"].rpartition("-")[2]), {})
            if row["kind"] == "batch":
                assert row["crc"] == "ok", row
                batch = row
            elif row["kind"] == "record":
                assert row["offset"] not in log, f"broker {self.number} has two records at one offset: {row}"
                sent = _sent(batch, row["offset"])
                log[row["offset"]] = Stored(row["value"], batch["leader_epoch"], row["key"], sent)
            else:
                raise AssertionError(f"broker {self.number}: {row}")
        return found

    def ledger(self) -> list[LedgeredLoss]:
        """What its disk says that boards lost: its journal, and its replica of the cluster's ledger."""
        command = [console_script("edge-broker"), "ledger", "--data-dir", self.broker.data_dir, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=CALL_S)
        assert done.returncode in (0, 1), done.stdout + done.stderr  # 1: others have some of it
        rows = [row for row in map(json.loads, done.stdout.splitlines()) if "id" in row]
        return [
            LedgeredLoss(
                int(row["node"]),
                row["cause"],
                (row["topic"], row["partition"]),
                row["first_offset"],
                row["last_offset"],
                row.get("leader_epoch"),
            )
            for row in rows
        ]


class RealCluster:
    """A context manager; all of it must be used by threads in the router's namespace (`RoutedHosts.router.call`)."""

    def __init__(self, directory: Path, hosts: RoutedHosts, chance: Random) -> None:
        self._hosts = hosts
        inside = hosts.hosts["ensemble"].inside
        self.ensemble = ZooKeeperEnsemble(directory, addresses=ENSEMBLE, inside=inside)
        connect = self.ensemble.connect
        self.boards = [Board(number, directory, hosts, connect, chance.randrange(1 << 32)) for number in NUMBERS]
        self.brokers = [board.broker.bootstrap for board in self.boards]
        self._chance = Random(chance.random())
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.ensemble)
            for board in self.boards:
                stack.enter_context(board.disk)
                stack.push(board.broker.__exit__)
                board.broker.spawn()
            for board in self.boards:
                board.broker.wait_ready()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    # faults

    def begin(self, fault: Fault) -> None:
        """Strike."""
        board = self.boards[fault.whom[0] - 1]
        if fault.kind == "kill" or (fault.kind == "stop" and not board.is_ready):
            board.broker.kill()
        elif fault.kind == "stop":
            board.broker.stop()
        elif fault.kind == "pause":
            board.broker.send_signal(signal.SIGSTOP)
        elif fault.kind == "power":
            board.disk.freeze(self._chance.randint(1, 60))
            board.disk.wait_frozen(1.0)
            board.disk.cut(board.broker)
        elif fault.kind == "server":
            self.ensemble.servers[fault.whom[0] - 1].kill()
        else:
            self._hosts.cut(*self._ends(fault))

    def end(self, fault: Fault) -> None:
        """Mend; a broker that is started is not waited for."""
        board = self.boards[fault.whom[0] - 1]
        if fault.kind == "pause":
            board.broker.send_signal(signal.SIGCONT)
        elif fault.kind in OF_A_PROCESS:
            board.broker.spawn()
        elif fault.kind == "server":
            self.ensemble.servers[fault.whom[0] - 1].spawn()
        else:
            self._hosts.mend(*self._ends(fault))

    @staticmethod
    def _ends(fault: Fault) -> tuple[list[str], list[str]]:
        one = [BOARDS[fault.whom[0]]]
        if fault.kind == "session":
            return one, list(ENSEMBLE)
        if fault.kind == "cut":
            return one, [BOARDS[fault.whom[1]]]
        return one, [address for number, address in BOARDS.items() if number != fault.whom[0]]

    def suffer(self, faults: list[Fault]) -> None:
        """All of them, at their times."""
        begins = [(fault.begins_s, 1, fault) for fault in faults]
        started = time.monotonic()
        for at_s, is_begin, fault in sorted([*begins, *((fault.ends_s, 0, fault) for fault in faults)]):
            time.sleep(max(0.0, started + at_s - time.monotonic()))
            (self.begin if is_begin else self.end)(fault)

    # rounds

    def make_topic(self, name: str) -> None:
        """A topic with a replica on each board."""
        admin = AdminClient({"bootstrap.servers": ",".join(self.brokers)})
        new = NewTopic(name, PARTITIONS, 3, config=SMALL_SEGMENTS)
        admin.create_topics([new], request_timeout=CALL_S)[name].result(CALL_S)
        wait_until(lambda: all(name in self._topics(at) for at in self.brokers), CALL_S, f"every broker knows {name}")

    @staticmethod
    def _topics(bootstrap: str) -> dict[str, Any]:
        """What one broker tells; a member that is told of no such topic asks again five minutes later."""
        topics: dict[str, Any] = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=CALL_S).topics
        return topics

    def delete_topic(self, name: str) -> None:
        """The same backwards; return when no board has files of it."""
        admin = AdminClient({"bootstrap.servers": ",".join(self.brokers)})
        admin.delete_topics([name], request_timeout=CALL_S)[name].result(CALL_S)
        wait_until(lambda: not self._files_of(name), 30, f"no board has files of {name}", poll_s=0.2)

    def _files_of(self, name: str) -> list[Path]:
        found: list[Path] = []
        for data in (board.broker.data_dir for board in self.boards):
            found += [*data.glob(f"topics/{name}.json"), *data.glob(f"{name}-*"), *data.glob("deleted/*")]
        return found

    def standing(self, topics: list[str]) -> dict[tuple[str, int], set[frozenset[int]]]:
        """The in-sync sets of all partitions, as each broker tells them; the empty set: nobody leads."""
        found: dict[tuple[str, int], set[frozenset[int]]] = {}
        for bootstrap in self.brokers:
            known = self._topics(bootstrap)
            for topic in topics:
                for number, partition in known[topic].partitions.items():
                    told = frozenset(partition.isrs) if partition.leader in partition.isrs else frozenset[int]()
                    found.setdefault((topic, number), set()).add(told)
        return found

    def groups_seen(self, group: str) -> dict[str, object]:
        """A group as its coordinator tells it, the in-sync sets of where groups lie, and how much is shown there."""
        admin = AdminClient({"bootstrap.servers": ",".join(self.brokers)})
        described = admin.describe_consumer_groups([group], request_timeout=CALL_S)[group]
        standing = self.standing([OFFSETS_TOPIC])
        latest = {TopicPartition(*where): OffsetSpec.latest() for where in standing}
        ends = {}
        for where, told in admin.list_offsets(latest, request_timeout=CALL_S).items():
            error = told.exception()
            ends[where.partition] = told.result().offset if error is None else str(error)
        error = described.exception()
        found = described.result() if error is None else None
        state = str(error) if found is None else (str(found.state), found.coordinator.id, len(found.members))
        return {"group": state, "in_sync": standing, "ends": ends}

    def recover(self, topics: list[str]) -> None:
        """Return when every replica is in sync, as everybody says."""
        for server in self.ensemble.servers:
            wait_until(server.serves, RECOVERY_S, f"{server.name} serves", seen=server.log_tail)
        for board in self.boards:
            board.broker.wait_ready()
        whole = {frozenset(NUMBERS)}
        wait_until(
            lambda: all(told == whole for told in self.standing(topics).values()),
            RECOVERY_S,
            "every replica is in sync",
            poll_s=0.2,
            seen=lambda: self.standing(topics),
        )

    def round(self, topic: str, faults: list[Fault], chance: Random) -> History:
        """Faults under load, then all that boards hold; the judgement is the caller's."""
        self.make_topic(topic)
        noted = Noted(topic)
        workers = clients_of(self.brokers, noted, chance)
        try:
            for worker in workers:
                worker.start()
            wait_until(
                lambda: all(_works(worker) for worker in workers),
                60,
                "every client works",
                poll_s=0.1,
                seen=lambda: ({w.name: w.last for w in workers if not w.count}, self.groups_seen(f"group-{topic}")),
            )
            self.suffer(faults)
            self.recover([topic, OFFSETS_TOPIC])
            before = {worker: worker.count for worker in workers}
            wait_until(
                lambda: all(_works(worker, before[worker]) for worker in workers),
                60,
                "every client works again",
                poll_s=0.1,
                seen=lambda: {worker.name: (worker.count - before[worker], worker.last) for worker in workers},
            )
        finally:
            for worker in workers:
                worker.stopping.set()
        for worker in workers:
            worker.finish()
        self._gather(topic, noted.history)
        return noted.history

    def _gather(self, topic: str, history: History) -> None:
        self.recover([topic, OFFSETS_TOPIC])
        history.compacted = {OFFSETS_TOPIC}
        for place, told in self.standing([topic, OFFSETS_TOPIC]).items():
            (history.in_sync[place],) = map(set, told)

        def even() -> bool:
            """Whether all have the same: what was appended last may be on its way to a follower."""
            logs = {board.number: board.logs(topic) for board in self.boards}
            for partition in range(PARTITIONS):
                history.logs[topic, partition] = {number: logs[number].get(partition, {}) for number in NUMBERS}
            return logs[1].keys() == logs[2].keys() == logs[3].keys() and all(
                log.keys() == logs[1][partition].keys() for each in logs.values() for partition, log in each.items()
            )

        wait_until(even, 15, "replicas have the same offsets", poll_s=0.3, seen=lambda: violations(history)[:5])
        offsets = {board.number: board.logs(OFFSETS_TOPIC) for board in self.boards}
        for place in list(history.in_sync):
            if place[0] == OFFSETS_TOPIC:
                history.logs[place] = {number: offsets[number].get(place[1], {}) for number in NUMBERS}
        history.ledger = [entry for board in self.boards for entry in board.ledger()]


def _sent(batch: dict[str, Any], offset: int) -> Sent | None:
    producer_id, sequence = batch["producer_id"], batch["base_sequence"] + offset - batch["base_offset"]
    return None if producer_id < 0 else Sent(producer_id, batch["producer_epoch"], sequence)


def _works(worker: ClusterWorker, beyond: int = 0) -> bool:
    worker.check()
    return worker.count > beyond
