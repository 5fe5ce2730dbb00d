"""A cluster whose ZooKeeper data is gone: the znodes are made anew from the disks, and all that was acked is there."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from edge_broker.cluster.rebuild.disks import Disk
from edge_broker.cluster.rebuild.rebuild import RebuildRefused, rebuild
from edge_broker.cluster.rebuild.rebuild_plan import EPOCHS_AHEAD, Decisions, Plan, plan_rebuild
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.cluster.znodes.znode_codec import FORMAT, LOST, decode_format, topic_path
from edge_broker.cluster.znodes.zookeeper import Answer, Connected, Event, Node, Stat
from edge_broker.doctor.directory import DataDirectory
from edge_broker.doctor.disk import describe
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import DELETE_TOPICS, INIT_PRODUCER_ID, PRODUCE
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from edge_broker.protocol.messages.init_producer_id import InitProducerIdRequest
from edge_broker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from edge_broker.protocol.record_batch import records_of
from edge_broker.storage.log.log_reader import whole_batches
from edge_broker.storage.replica.replica_log import Replica
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.zookeeper import Ensemble, GoodLinks
from tests.support.in_cluster import InCluster
from tests.support.storage import batch
from tests.unit.broker.test_cluster_ledger import LEDGER, entries
from tests.unit.broker.test_cluster_topics import NONE, create, new

P = PartitionId("t", 0)
SESSION_MS = 6000
SETTINGS = {"default.replication.factor": 3, "min.insync.replicas": 2}


class Rebuilding:
    """A session that does what a rebuild wants, until `kill_at` requests were answered."""

    def __init__(self, ensemble: Ensemble, plan: Plan, *, replaces: bool = False, kill_at: int = -1) -> None:
        self.steps, self.kill_at, self.requests = rebuild(plan, replaces=replaces), kill_at, 0
        self.ended, self.refusal = False, ""
        self._ensemble = ensemble
        self.session = ensemble.client(self, SESSION_MS, GoodLinks(random.Random(3)))
        for _ in range(20_000):
            if self.ended:
                break
            ensemble.loop.advance(1)
        self.session.close()

    def event_received(self, event: Event) -> None:
        if isinstance(event, Connected):
            self._go_on(None)

    def answer_received(self, token: int, answer: Answer) -> None:
        self._go_on(answer)

    def _go_on(self, answer: Answer | None) -> None:
        if self.requests == self.kill_at:
            self.ended = True
            return
        try:
            request = next(self.steps) if answer is None else self.steps.send(answer)
        except StopIteration:
            self.ended = True
        except RebuildRefused as refused:
            self.ended, self.refusal = True, str(refused)
        else:
            self.requests += 1
            self.session.ask(self.requests, request)


def produce(cluster: InCluster, board: int, *values: bytes, topic: str = "t") -> ErrorCode:
    data = PartitionProduceData(index=0, records=batch(*values))
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])
    return ErrorCode(cluster.ask(board, PRODUCE, request, 9).responses[0].partition_responses[0].error_code)


def leader_of(cluster: InCluster, partition: PartitionId = P) -> int:
    state = cluster.alive[0].member.state(partition)
    assert state is not None
    return state.leader


def write(cluster: InCluster, *values: bytes, topic: str = "t") -> None:
    assert produce(cluster, leader_of(cluster, PartitionId(topic, 0)), *values, topic=topic) is NONE


def stopped(cluster: InCluster) -> dict[int, SimulatedDisk]:
    """All boards are killed; their disks."""
    for board in cluster.alive:
        board.stop()
    cluster.work()
    disks = {number: board.site.disk for number, board in cluster.boards.items()}
    for disk in disks.values():
        disk.kill()
    return disks


def described(disks: Mapping[int, SimulatedDisk]) -> list[Disk]:
    return [describe(DataDirectory(disk, "/data", None), number) for number, disk in sorted(disks.items())]


def planned(disks: Mapping[int, SimulatedDisk], decisions: Decisions = Decisions()) -> Plan:  # noqa: B008
    plan = plan_rebuild(described(disks), decisions)
    assert not plan.refusals, plan.refusals
    return plan


def written(plan: Plan) -> Callable[[Ensemble], None]:
    def prepare(ensemble: Ensemble) -> None:
        run = Rebuilding(ensemble, plan)
        assert run.ended
        assert not run.refusal

    return prepare


@pytest.fixture
def site() -> InCluster:
    """Three boards with a topic of ten acked records, and one that was deleted."""
    cluster = InCluster(3, SETTINGS)
    for name in ("t", "gone"):
        assert create(cluster, 1, new(name, config={"min.insync.replicas": "2"})) == [NONE]
    cluster.settle()
    for number in range(10):
        write(cluster, b"v%d" % number)
    write(cluster, b"x", topic="gone")
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=5000)
    assert cluster.ask(1, DELETE_TOPICS, request).responses[0].error_code == NONE
    cluster.pass_for(3000)
    return cluster


VALUES = [b"v%d" % number for number in range(10)]


def has(cluster: InCluster, board: int) -> list[bytes]:
    log = cluster.boards[board].log(P)
    data = cluster.boards[board].work(lambda: Replica(log).read(0, 1 << 20, blocking=True), "reader")
    batches = whole_batches(memoryview(data or b""))
    return [record.value or b"" for batch_ in batches for record in records_of(batch_)]


def producer_id(cluster: InCluster) -> int:
    return int(cluster.ask(1, INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None)).producer_id)


def test_after_the_loss_of_all_znodes_the_boards_go_on_with_what_was_acked(site: InCluster) -> None:
    before, topic_id = producer_id(site), site.boards[1].facade.view.topics["t"].topic_id
    identities = {number: board.member.identity for number, board in site.boards.items()}
    epoch = max(state.leader_epoch for board in site.boards.values() if (state := board.member.state(P)))
    disks = stopped(site)
    plan = planned(disks)
    assert [each.name for each in plan.topics] == ["__edge_ledger", "t"]
    assert list(plan.deletions.values()) == ["gone"]
    again = InCluster(3, SETTINGS, disks=disks, prepare=written(plan))
    assert [has(again, number) for number in (1, 2, 3)] == [VALUES] * 3
    write(again, b"new")
    again.settle()
    assert [has(again, number) for number in (1, 2, 3)] == [[*VALUES, b"new"]] * 3
    assert "gone" not in again.boards[1].facade.view.topics
    assert again.boards[1].facade.view.topics["t"].topic_id == topic_id
    state = again.boards[1].member.state(P)
    assert state is not None
    assert state.leader_epoch > epoch + EPOCHS_AHEAD // 2
    for number, board in again.boards.items():
        now = board.member.identity
        assert (now.cluster, now.directory) == (identities[number].cluster, identities[number].directory)
        assert now.epochs[-1] > max(identities[number].epochs) + (1 << 32), "though zxids began again"
    assert producer_id(again) > before + 1000
    assert [entry for entry in entries(again.boards[1]) if entry["topic"] == "t"] == [], "nothing was lost"


def test_a_board_that_was_written_off_comes_back_and_follows(site: InCluster) -> None:
    disks = stopped(site)
    old = disks.pop(3)
    plan = planned(disks, Decisions(frozenset({3})))
    again = InCluster(2, SETTINGS, disks=disks, prepare=written(plan))
    write(again, b"new")
    back = again.add(3, old)
    again.pass_until(lambda: back.facade.view.serves)
    again.settle()
    assert has(again, 3) == [*VALUES, b"new"]
    state = again.boards[1].member.state(P)
    assert state is not None
    assert {entry.broker for entry in state.in_sync} == {1, 2, 3}


def test_what_only_boards_had_that_were_written_off_is_in_the_ledger_before_anyone_leads(site: InCluster) -> None:
    site.boards[3].stop()
    site.settle()
    write(site, b"on two disks")
    disks = stopped(site)
    plan = planned({3: disks[3]}, Decisions(frozenset({1, 2})))
    assert plan.topics[1].partitions[0].may_lose
    states: list[Any] = []

    def prepare(ensemble: Ensemble) -> None:
        written(plan)(ensemble)
        states.append({path for path in ensemble.tree.nodes if path.startswith(LOST)})

    fresh = {number: SimulatedDisk(number + 50) for number in (1, 2)}
    again = InCluster(3, SETTINGS, disks={**fresh, 3: disks[3]}, prepare=prepare)
    assert states == [{LOST, f"{LOST}/t-0", f"{LOST}/__edge_ledger-0"}]
    again.pass_until(lambda: leader_of(again) == 3)
    again.pass_until(lambda: any(entry["topic"] == "t" for entry in entries(again.boards[3])))
    (entry,) = [entry for entry in entries(again.boards[3]) if entry["topic"] == "t"]
    assert (entry["cause"], entry["first_offset"], entry["last_offset"]) == ("unclean_election", 10, None)
    assert {path for path in again.ensemble.tree.nodes if path.startswith(LOST)} == {LOST}
    write(again, b"new")
    assert has(again, 3) == [*VALUES, b"new"]


def test_a_rebuild_that_is_killed_anywhere_goes_on(site: InCluster) -> None:
    disks = stopped(site)
    plan = planned(disks)
    whole = Rebuilding(fresh_ensemble(), plan).requests
    assert whole > 10
    for at in range(whole):
        ensemble = fresh_ensemble()
        killed = Rebuilding(ensemble, plan, kill_at=at)
        node = ensemble.tree.nodes.get(FORMAT)
        if node is not None:
            assert decode_format(Node(node.data, node.stat)).rebuilding or at == whole, at
        assert not killed.refusal
        went_on = Rebuilding(ensemble, plan)
        assert (went_on.ended, went_on.refusal) == (True, ""), at
        assert tree_of(ensemble) == tree_of(rebuilt(plan)), at


def fresh_ensemble() -> Ensemble:
    return InCluster(0, SETTINGS).ensemble


def rebuilt(plan: Plan) -> Ensemble:
    ensemble = fresh_ensemble()
    assert not Rebuilding(ensemble, plan).refusal
    return ensemble


def tree_of(ensemble: Ensemble) -> dict[str, bytes]:
    return {path: node.data for path, node in ensemble.tree.nodes.items()}


def test_a_cluster_that_is_alive_is_refused_and_nothing_is_touched(site: InCluster) -> None:
    disks = {number: board.site.disk for number, board in site.boards.items()}
    plan = planned(disks)
    before = tree_of(site.ensemble)
    for replaces in (False, True):
        refusal = Rebuilding(site.ensemble, plan, replaces=replaces).refusal
        assert "brokers 1, 2, 3 of cluster" in refusal
        assert "are registered, so the cluster is alive" in refusal
    assert tree_of(site.ensemble) == before


def test_znodes_of_an_older_copy_are_replaced_only_where_that_is_said(site: InCluster) -> None:
    write(site, b"newer")
    disks = stopped(site)
    site.pass_for(2 * SESSION_MS)
    plan = planned(disks)
    refusal = Rebuilding(site.ensemble, plan).refusal
    assert "give --replace where these znodes are an older copy" in refusal
    assert not Rebuilding(site.ensemble, plan, replaces=True).refusal
    found, wanted = tree_of(site.ensemble), tree_of(rebuilt(plan))
    assert {path: data for path, data in found.items() if path in wanted} == wanted
    topic = site.ensemble.tree.nodes[topic_path("t")].stat
    states = [node.stat for path, node in site.ensemble.tree.nodes.items() if path.startswith("/topics/t/")]
    assert all(stat.czxid <= topic.mzxid for stat in states), "else they were none of the topic's"


def test_another_cluster_s_ensemble_is_refused(site: InCluster) -> None:
    plan = planned(stopped(site))
    other = plan._replace(format=plan.format._replace(cluster="other"))
    assert "the disks belong to other; correct zookeeper.connect" in Rebuilding(site.ensemble, other).refusal


@pytest.mark.parametrize("answer", [Stat(0, 1, 1, 0)])
def test_two_boards_whose_logs_part_wait_for_a_person(site: InCluster, answer: Answer) -> None:
    """As an older copy of the ensemble's data leaves them: both led in one epoch."""
    disks = stopped(site)
    disk_of = {each.broker: each for each in described(disks)}
    log = next(each for each in disk_of[2].logs if each.topic == "t")
    other = log._replace(
        epochs=tuple(each._replace(offset=each.offset + 1 if each.offset else 0, crc=9) for each in log.epochs)
    )
    two = disk_of[2]._replace(logs=tuple(other if each is log else each for each in disk_of[2].logs))
    plan = plan_rebuild([disk_of[1], two, disk_of[3]], Decisions())
    assert any("part, so that each has records" in refusal for refusal in plan.refusals)
    with pytest.raises(AssertionError):
        next(rebuild(plan, replaces=False))


def test_the_ledger_itself_comes_back(site: InCluster) -> None:
    disks = stopped(site)
    again = InCluster(3, SETTINGS, disks=disks, prepare=written(planned(disks)))
    assert leader_of(again, LEDGER) in (1, 2, 3)
