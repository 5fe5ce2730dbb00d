"""One ledger for a cluster: what boards lose comes from their journals into the log of one leader, each entry once."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.broker.known_entries import JOURNALS_MAX, REMEMBERED, KnownEntries
from edge_broker.cluster.inter_broker_messages import EntriesTaken, ForwardEntries, Message
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.configuration.config import STANDARD_AUTHORIZER
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import PRODUCE
from edge_broker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from edge_broker.protocol.record_batch import build_batch, records_of
from edge_broker.storage.log.log_reader import whole_batches
from edge_broker.storage.loss.ledger_journal import EntryId, waiting
from edge_broker.storage.metadata.loss_records import Loss
from edge_broker.storage.replica.replica_log import Replica
from edge_broker.testing.clock import NOW_MS
from edge_broker.testing.disk import SimulatedDisk
from tests.support.in_cluster import Board, InCluster
from tests.support.storage import open_store

LEDGER = PartitionId(LEDGER_TOPIC, 0)
THREE = {"default.replication.factor": 3}


def lose(board: Board, *offsets: int, topic: str = "t") -> None:
    """Losses of this board, in its journal, synced."""
    board.work(
        lambda: board.site.store.ledger.write([Loss("evicted", topic, "id" * 11, 0, o, o + 1, 1, 70) for o in offsets])
    )


def entries(board: Board) -> list[dict[str, Any]]:
    """What the board's replica of the ledger has."""
    log = board.log(LEDGER)
    data = board.work(lambda: Replica(log).read(log.log_start_offset, 1 << 20, blocking=True), "reader")
    batches = whole_batches(memoryview(data or b""))
    return [json.loads(record.value or b"") for batch in batches for record in records_of(batch)]


def first_offsets(board: Board) -> list[int]:
    return [entry["first_offset"] for entry in entries(board)]


def is_an_answer(message: Message) -> bool:
    return isinstance(message, EntriesTaken)


def is_about_entries(message: Message) -> bool:
    return isinstance(message, EntriesTaken | ForwardEntries)


def is_forwarded(*boards: Board) -> bool:
    return all(waiting(board.site.store.ledger_log) == 0 for board in boards)


def leader_of(cluster: InCluster) -> Board:
    leader = cluster.alive[0].member.ledger_leader
    assert leader is not None
    return cluster.boards[leader]


@pytest.fixture
def three() -> InCluster:
    return InCluster(3, THREE)


def test_the_controller_makes_the_ledger_once_as_many_brokers_are_there_as_it_has_replicas() -> None:
    cluster = InCluster(2, THREE)
    assert not any(board.facade.view.topics for board in cluster.boards.values())
    cluster.add(3)
    cluster.pass_until(lambda: LEDGER_TOPIC in cluster.boards[1].facade.view.topics)
    topic = cluster.boards[1].facade.view.topics[LEDGER_TOPIC]
    assert [sorted(replicas) for replicas in topic.replicas] == [[1, 2, 3]]
    assert topic.config["min.insync.replicas"] == "2"
    assert (topic.config["cleanup.policy"], topic.config["retention.ms"]) == ("delete", "-1")


def test_what_every_board_loses_is_in_the_one_ledger_on_every_replica_and_leaves_the_journals(three: InCluster) -> None:
    for number, board in three.boards.items():
        lose(board, number * 10, number * 10 + 1)
    three.pass_until(lambda: is_forwarded(*three.boards.values()))
    three.settle()
    for board in three.boards.values():
        assert sorted(first_offsets(board)) == [10, 11, 20, 21, 30, 31]
    by_directory = Counter(entry["directory"] for entry in entries(three.boards[1]))
    assert by_directory == {board.member.identity.directory: 2 for board in three.boards.values()}


def test_the_same_offsets_lost_on_two_boards_are_two_entries(three: InCluster) -> None:
    for board in (three.boards[1], three.boards[2]):
        lose(board, 7)
    three.pass_until(lambda: is_forwarded(*three.boards.values()))
    assert len({entry["id"] for entry in entries(leader_of(three))}) == 2


def test_losses_wait_while_there_are_too_few_replicas_and_go_when_they_are_back(three: InCluster) -> None:
    leader = leader_of(three)
    others = [board for board in three.boards.values() if board is not leader]
    for board in others:
        board.stop()
    lose(leader, 5)
    three.pass_for(20_000)
    assert waiting(leader.site.store.ledger_log) == 1
    assert leader.member.forwarding.refused
    three.restart(others[0].number)
    three.pass_until(lambda: is_forwarded(leader))
    assert first_offsets(leader) == [5]


def test_losses_wait_while_nobody_leads() -> None:
    cluster = InCluster(3, THREE)
    follower = next(board for board in cluster.boards.values() if board is not leader_of(cluster))
    for board in cluster.boards.values():
        if board is not follower:
            board.stop()
    lose(follower, 3)
    cluster.pass_for(1_000)
    assert waiting(follower.site.store.ledger_log) == 1


@pytest.mark.parametrize("lost_answers", [1, 3])
def test_entries_whose_answer_was_lost_are_in_the_log_once(three: InCluster, lost_answers: int) -> None:
    leader = leader_of(three)
    board = next(each for each in three.boards.values() if each is not leader)
    three.drop(is_an_answer, lost_answers)
    lose(board, 1, 2, 3)
    three.pass_until(lambda: is_forwarded(board), 300_000)
    assert first_offsets(leader) == [1, 2, 3]
    assert not three.dropping


def test_entries_whose_answer_was_lost_with_the_leader_are_in_the_log_once(three: InCluster) -> None:
    leader = leader_of(three)
    board = next(each for each in three.boards.values() if each is not leader)
    three.drop(is_an_answer, 1)
    lose(board, 1, 2)
    three.pass_until(lambda: not three.dropping)
    leader.stop()
    lose(board, 3)
    three.pass_until(lambda: is_forwarded(board), 300_000)
    assert first_offsets(leader_of(three)) == [1, 2, 3]


def test_entries_whose_answer_was_lost_before_a_restart_are_in_the_log_once(three: InCluster) -> None:
    leader = leader_of(three)
    board = next(each for each in three.boards.values() if each is not leader)
    three.drop(is_an_answer, 1)
    lose(board, 1, 2)
    three.pass_until(lambda: not three.dropping)
    board = three.restart(board.number)
    lose(board, 3)
    three.pass_until(lambda: is_forwarded(board), 300_000)
    assert first_offsets(leader_of(three)) == [1, 2, 3]


def test_a_card_that_was_set_back_gives_numbers_again_and_none_of_its_losses_is_taken_for_another(
    three: InCluster,
) -> None:
    """The directory and the numbers are those of entries that the ledger has, and what is lost is something else."""
    leader = leader_of(three)
    board = next(each for each in three.boards.values() if each is not leader)
    copy = board.site.disk.fork(5)
    lose(board, 1, 2)
    three.pass_until(lambda: is_forwarded(board))
    board = three.restart(board.number, copy)
    lose(board, 8, 2, 1)
    three.pass_until(lambda: is_forwarded(board), 300_000)
    found = entries(leader_of(three))
    assert [(entry["sequence"], entry["first_offset"]) for entry in found] == [(0, 1), (1, 2), (0, 8), (2, 1)]
    assert len({entry["id"] for entry in found}) == 3  # what comes twice is one loss for its readers


def test_a_wiped_card_begins_a_journal_of_its_own(three: InCluster) -> None:
    leader = leader_of(three)
    board = next(each for each in three.boards.values() if each is not leader)
    lose(board, 1)
    three.pass_until(lambda: is_forwarded(board))
    board = three.restart(board.number, SimulatedDisk(99))
    lose(board, 1)
    three.pass_until(lambda: is_forwarded(board), 300_000)
    assert len({entry["id"] for entry in entries(leader_of(three))}) == 2


def test_what_a_board_had_as_one_that_stood_alone_comes_along() -> None:
    cluster = InCluster(2, {"default.replication.factor": 2})
    disk = SimulatedDisk(7)
    alone = open_store(disk)
    alone.ledger.write([Loss("evicted", "old", "id" * 11, 0, 4, 5, 1, 70)])
    alone.close()
    cluster.add(3, disk)
    cluster.pass_until(lambda: cluster.boards[3].facade.view.serves)
    cluster.pass_until(lambda: is_forwarded(cluster.boards[3]))
    (entry,) = entries(leader_of(cluster))
    assert (entry["topic"], entry["directory"]) == ("old", cluster.boards[3].member.identity.directory)


# the wire


def forwarded(*values: dict[str, Any], forwarder: int = 2, acks: int = -1, topic: str = LEDGER_TOPIC) -> ProduceRequest:
    records = [(value["id"].encode(), json.dumps(value).encode()) for value in values]
    data = PartitionProduceData(index=0, records=memoryview(bytearray(build_batch(records, timestamp_ms=NOW_MS))))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=topics, forwarder=forwarder)


def entry(sequence: int, first_offset: int = 0, directory: str = "disk-2", **more: object) -> dict[str, Any]:
    fields = {"version": 1, "id": f"evicted:t:0:{first_offset}:disk {directory}", "cause": "evicted", "topic": "t"}
    fields |= {"partition": 0, "first_offset": first_offset, "last_offset": None, "records": None, "bytes": None}
    return {**fields, "time_ms": 1, "node": "2", "directory": directory, "sequence": sequence, **more}


def answered(cluster: InCluster, request: ProduceRequest) -> ErrorCode:
    answer = cluster.ask(leader_of(cluster).number, PRODUCE, request)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def test_nobody_forwards_but_brokers(three: InCluster) -> None:
    """The client is on this machine, from where anybody may write ledger records, and no broker is registered there."""
    assert answered(three, forwarded(entry(0))) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert entries(leader_of(three)) == []


def test_brokers_forward_on_the_listener_for_brokers_alone(three: InCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = leader_of(three)
    monkeypatch.setattr(leader.facade.view, "is_member", lambda host: True)
    monkeypatch.setattr(leader.facade.view, "listener", "REPLICATION")
    assert answered(three, forwarded(entry(0))) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    monkeypatch.setattr(leader.facade.view, "listener", "PLAINTEXT")
    assert answered(three, forwarded(entry(0))) == ErrorCode.NONE


def test_with_an_authorizer_the_right_of_followers_is_asked_for() -> None:
    keys = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}
    cluster = InCluster(1, keys)
    assert answered(cluster, forwarded(entry(0))) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def trusted(three: InCluster, monkeypatch: pytest.MonkeyPatch) -> InCluster:
    for board in three.boards.values():
        monkeypatch.setattr(board.facade.view, "is_member", lambda host: True)
    return three


def test_entries_that_the_log_has_are_left_out_and_the_others_are_taken(trusted: InCluster) -> None:
    assert answered(trusted, forwarded(entry(0, 5), entry(1, 6))) == ErrorCode.NONE
    assert answered(trusted, forwarded(entry(0, 5), entry(1, 6), entry(2, 7), entry(2, 7))) == ErrorCode.NONE
    assert answered(trusted, forwarded(entry(1, 6), entry(2, 7))) == ErrorCode.NONE
    assert answered(trusted, forwarded(entry(0, 5, "another"))) == ErrorCode.NONE
    assert first_offsets(leader_of(trusted)) == [5, 6, 7, 5]


@pytest.mark.parametrize(
    "bad",
    [
        [{**entry(0), "version": 2}],
        [{name: value for name, value in entry(0).items() if name != "sequence"}],
        [{**entry(0), "directory": 7}],
        [entry(0), entry(1, directory="another")],
    ],
)
def test_what_is_no_entry_of_a_journal_is_refused_whole(trusted: InCluster, bad: list[dict[str, Any]]) -> None:
    assert answered(trusted, forwarded(*bad)) == ErrorCode.INVALID_RECORD
    assert entries(leader_of(trusted)) == []


@pytest.mark.parametrize("request_", [forwarded(entry(0), acks=1), forwarded(entry(0), topic="t")])
def test_a_request_that_no_broker_sends_ends_its_connection(trusted: InCluster, request_: ProduceRequest) -> None:
    client = leader_of(trusted).client
    client.send(PRODUCE, request_)
    trusted.pass_until(lambda: client.transport.closed)


def test_who_does_not_lead_takes_nothing(trusted: InCluster) -> None:
    other = next(board for board in trusted.boards.values() if board is not leader_of(trusted))
    answer = trusted.ask(other.number, PRODUCE, forwarded(entry(0)))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_what_a_leader_remembers_is_bounded() -> None:
    known = KnownEntries()
    for number in range(JOURNALS_MAX + 10):
        known.add(EntryId(f"disk-{number}", 0, b"id"))
    for sequence in range(10_000):
        known.add(EntryId("one", sequence, b"id"))
    assert sum(map(len, known._journals.values())) <= JOURNALS_MAX + REMEMBERED
    assert EntryId("one", 9_999, b"id") in known
    assert EntryId("one", 9_999, b"another") not in known


def play(seed: int) -> tuple[set[tuple[str, int]], Counter[tuple[str, int]]]:
    """Boards die, come back and lose things, answers are lost: what was lost, and what the ledger has in the end."""
    dice = random.Random(seed)
    cluster, number = InCluster(3, THREE), 0
    made: set[tuple[str, int]] = set()
    for _ in range(12):
        act = dice.choice(["lose", "lose", "lose", "drop", "stop", "restart", "wait"])
        board = dice.choice(cluster.alive)
        if act == "lose":
            for _ in range(dice.randrange(1, 5)):
                number += 1
                lose(board, number)
                made.add((board.member.identity.directory, number))
        elif act == "drop":
            cluster.drop(is_an_answer if dice.random() < 0.7 else is_about_entries, dice.randrange(1, 4))
        elif act == "stop" and len(cluster.alive) > 1:
            board.stop()
        elif act == "restart":
            cluster.restart(dice.randrange(1, 4))
        cluster.pass_for(dice.choice([5, 50, 500, 8_000]))
    cluster.drop(is_an_answer, 0)
    for each in range(1, 4):
        if not cluster.boards[each].alive:
            cluster.restart(each)
    cluster.pass_until(lambda: is_forwarded(*cluster.boards.values()), 600_000)
    cluster.pass_until(lambda: cluster.alive[0].member.ledger_leader is not None)
    return made, Counter((one["directory"], one["first_offset"]) for one in entries(leader_of(cluster)))


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 19, 56])
def test_whatever_happens_to_boards_and_answers_each_loss_is_there_once(seed: int) -> None:
    made, found = play(seed)
    assert set(found) == made
    assert set(found.values()) <= {1}


@pytest.mark.parametrize(
    ("rule", "broken", "seed"),
    [
        ("a leader knows what it has taken", {"__contains__": lambda self, entry: False}, 4),
        ("a new leader reads what the log has", {"copy": lambda self: KnownEntries()}, 4),
    ],
)
def test_a_rule_that_is_broken_on_purpose_is_found(
    monkeypatch: pytest.MonkeyPatch, rule: str, broken: dict[str, Any], seed: int
) -> None:
    for name, function in broken.items():
        monkeypatch.setattr(KnownEntries, name, function)
    made, found = play(seed)
    assert set(found) == made
    assert 2 in found.values(), f"{rule}: nobody noticed"
