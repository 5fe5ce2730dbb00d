"""Apache Kafka's own tools against three boards of one cluster: each asked by turns, as each is to tell the same."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from tests.support import runtimes
from tests.support.java_tools import QUICK_START, QUIET
from tests.support.processes import EdgeBroker
from tests.support.waiting import CALL_S, wait_until
from tests.support.zookeeper import ZooKeeperEnsemble

SESSION_MS = 2_000
TOPICS, CONFIGS = "org.apache.kafka.tools.TopicCommand", "kafka.admin.ConfigCommand"
ELECTIONS, OFFSETS = "org.apache.kafka.tools.LeaderElectionCommand", "org.apache.kafka.tools.GetOffsetShell"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
REASSIGNMENTS = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
_PARTITION = re.compile(r"Partition: (\d+)\tLeader: (\S+)\tReplicas: (\S+)\tIsr: (\S*)")


class Told(NamedTuple):
    """What --describe says of a partition."""

    leader: str
    replicas: str
    in_sync: str


def tool(name: str, board: EdgeBroker, *options: str, status: int = 0) -> str:
    command = [*runtimes.kafka_java(*QUICK_START, QUIET), name, "--bootstrap-server", board.bootstrap, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_S, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def described(board: EdgeBroker, topic: str) -> dict[int, Told]:
    text = tool(TOPICS, board, "--describe", "--topic", topic)
    return {int(number): Told(*rest) for number, *rest in _PARTITION.findall(text)}


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[EdgeBroker]]:
    directory: Path = tmp_path_factory.mktemp("boards")
    with ZooKeeperEnsemble(directory) as ensemble, ExitStack() as running:
        common: dict[str, str | int] = {
            "zookeeper.connect": ensemble.connect,
            "zookeeper.session.timeout.ms": SESSION_MS,
        }
        found = [
            EdgeBroker(directory, name=f"board-{number}", settings={"broker.id": number, **common})
            for number in (1, 2, 3)
        ]
        for board in found:
            running.enter_context(board)
        wait_until(lambda: all(len(brokers(board)) == 3 for board in found), CALL_S, "each board knows all")
        yield found


def brokers(board: EdgeBroker) -> set[int]:
    return set(AdminClient({"bootstrap.servers": board.bootstrap}).list_topics(timeout=CALL_S).brokers)


def test_what_one_board_was_asked_for_the_others_tell(boards: list[EdgeBroker]) -> None:
    one, two, three = boards
    tool(TOPICS, one, "--create", "--topic", "told", "--partitions", "3", "--replication-factor", "3")
    assert len({each.leader for each in described(one, "told").values()}) > 1
    assert all(each.leader == each.replicas[0] for each in described(three, "told").values())
    topic = ("--entity-type", "topics", "--entity-name", "told")
    tool(CONFIGS, two, "--alter", *topic, "--add-config", "retention.ms=123456789")
    told = tool(CONFIGS, two, "--describe", *topic)
    assert "retention.ms=123456789" in told
    assert "min.insync.replicas=2" in told
    wait_until(lambda: "123456789" in tool(CONFIGS, three, "--describe", *topic), CALL_S, "another board tells it")
    tool(TOPICS, three, "--alter", "--topic", "told", "--partitions", "4")
    assert described(three, "told").keys() == {0, 1, 2, 3}
    offsets = tool(OFFSETS, two, "--topic", "told").split()
    assert offsets == [f"told:{number}:0" for number in range(4)]
    tool(TOPICS, two, "--delete", "--topic", "told")
    assert "told" not in tool(TOPICS, two, "--list").split()
    for board in boards:
        wait_until(lambda board=board: not list(board.data_dir.glob("told-*")), CALL_S, "its logs are gone")


def test_what_cannot_be_is_refused_as_kafka_refuses_it(boards: list[EdgeBroker]) -> None:
    board = boards[0]
    tool(TOPICS, board, "--create", "--topic", "there", "--replica-assignment", "3:1,2:3")
    assert [each.replicas for each in described(board, "there").values()] == ["3,1", "2,3"]
    more = tool(TOPICS, board, "--create", "--topic", "more", "--replication-factor", "4", status=1)
    assert "replication factor 4 with 3 brokers" in more
    assert "already exists" in tool(TOPICS, board, "--create", "--topic", "there", status=1)
    nobody = tool(TOPICS, board, "--create", "--topic", "nobody", "--replica-assignment", "1:7", status=1)
    assert "those that are there: [1, 2, 3]" in nobody


def test_the_preferred_replica_leads_again_when_that_is_asked_for(boards: list[EdgeBroker]) -> None:
    one, two, three = boards
    tool(TOPICS, two, "--create", "--topic", "led", "--replica-assignment", "1:2:3")
    one.kill()
    wait_until(lambda: brokers(two) == {2, 3}, CALL_S, "its session has ended")
    wait_until(lambda: described(two, "led")[0].leader in ("2", "3"), CALL_S, "another board leads")
    assert described(two, "led")[0].in_sync == "2,3"
    one.start()
    wait_until(lambda: described(two, "led")[0].in_sync == "1,2,3", CALL_S, "it is in sync again")
    elect = ("--election-type", "preferred", "--topic", "led", "--partition", "0")
    assert "Successfully completed" in tool(ELECTIONS, three, *elect)
    assert described(three, "led")[0].leader == "1"
    assert "already elected" in tool(ELECTIONS, three, *elect)


def test_where_partitions_lie_is_told_and_that_they_stay_there(boards: list[EdgeBroker], tmp_path: Path) -> None:
    """Each of these ended with a trace of Java, as nobody answered what it asks first."""
    one, two, three = boards
    tool(TOPICS, one, "--create", "--topic", "stays", "--replica-assignment", "1:2")
    dirs = json.loads(tool(LOG_DIRS, three, "--describe", "--topic-list", "stays").splitlines()[-1])["brokers"]
    found = {each["broker"]: (each["logDirs"][0]["logDir"], each["logDirs"][0]["partitions"]) for each in dirs}
    empty = [{"partition": "stays-0", "size": 0, "offsetLag": 0, "isFuture": False}]
    assert found == {
        1: (str(one.data_dir), empty),
        2: (str(two.data_dir), empty),
        3: (str(three.data_dir), []),
    }
    assert "No partition reassignments found" in tool(REASSIGNMENTS, two, "--list")
    wanted = tmp_path / "wanted.json"
    wanted.write_text('{"version":1,"partitions":[{"topic":"stays","partition":0,"replicas":[3,1]}]}')
    file = ("--reassignment-json-file", str(wanted))
    assert "stays-0: its replicas stay [1, 2]" in tool(REASSIGNMENTS, two, "--execute", *file, status=1)
    verified = tool(REASSIGNMENTS, three, "--verify", *file)
    assert "replica set is 1,2 rather than 3,1" in verified
    assert "Clearing broker-level throttles on brokers 1,2,3" in verified
