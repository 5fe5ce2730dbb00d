"""What a rebuild plans of disks: who leads, what may be lost, what a person has to decide."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from edge_broker.cluster.rebuild.disks import RUNNING, Disk, DiskEpoch, DiskLog, DiskTopic
from edge_broker.cluster.rebuild.rebuild_plan import (
    ELECTION_ZXIDS,
    ELECTIONS_AHEAD,
    EPOCHS_AHEAD,
    LEADER_EPOCH_MAX,
    Decisions,
    Plan,
    PlannedPartition,
    plan_rebuild,
)
from edge_broker.cluster.state.cluster_state import NO_LEADER, InSyncReplica, PartitionId, Topic
from edge_broker.storage.metadata.cluster_copy import ClusterCopy, CopiedDeletion
from tests.support.rebuild_disks import T, disk, log

P = PartitionId("t", 0)
NONE = Decisions()


def planned(disks: Sequence[Disk], decisions: Decisions = NONE) -> PlannedPartition:
    plan = plan_rebuild(disks, decisions)
    assert not plan.refusals, plan.refusals
    return plan.topics[0].partitions[0]


def refusals(disks: Sequence[Disk], decisions: Decisions = NONE) -> str:
    return "\n".join(plan_rebuild(disks, decisions).refusals)


def in_sync(found: PlannedPartition) -> list[int]:
    return [entry.broker for entry in found.state.in_sync]


# who leads


@pytest.mark.parametrize(
    ("logs", "leader", "named"),
    [
        ((log(10), log(10), log(10)), 1, [1, 2, 3]),
        ((log(10), log(12), log(11)), 2, [2]),
        ((log(10, (3, 0)), log(9, (3, 0), (4, 8)), log(9, (3, 0), (4, 8))), 2, [2, 3]),
        ((log(200, (3, 0)), log(101, (3, 0), (6, 100)), log(90, (3, 0))), 2, [2]),
        ((log(10, damaged=True), log(10), log(10)), 2, [2, 3]),
        ((log(0), log(0), log(0)), 1, [1, 2, 3]),
        ((log(50, (3, 20), start=20), log(50, (3, 0)), log(15, (3, 0))), 1, [1, 2]),
    ],
)
def test_the_newest_epoch_leads_then_the_longest_log(logs: tuple[DiskLog, ...], leader: int, named: list[int]) -> None:
    found = planned([disk(number, each) for number, each in enumerate(logs, 1)])
    assert (found.leader, in_sync(found)) == (leader, named)
    assert not found.may_lose
    assert found.state.leader == NO_LEADER, "it is elected as any leader that came back"
    assert found.state.in_sync[0] == InSyncReplica(named[0], f"dir-{named[0]}", 90 + named[0])


def test_the_unconfirmed_end_of_a_leader_that_was_replaced_is_said_and_no_refusal() -> None:
    found = planned([disk(1, log(105)), disk(2, log(120, (3, 0), (4, 100))), disk(3, log(120, (3, 0), (4, 100)))])
    assert found.leader == 2
    assert "brokers 1 have records that it lacks" in found.note


PARTED = {
    "one epoch from two offsets": (log(120, (3, 0), (6, 100)), log(110, (3, 0), (6, 90))),
    "each with an epoch of its own": (log(120, (3, 0), (7, 100)), log(150, (3, 0), (6, 90))),
    "one epoch with two first batches": (log(120, (3, 0), (6, 100, 11)), log(110, (3, 0), (6, 100, 12))),
}


@pytest.mark.parametrize("logs", PARTED.values(), ids=PARTED)
def test_where_logs_part_a_person_decides(logs: tuple[DiskLog, DiskLog]) -> None:
    disks = [disk(1, logs[0]), disk(2, logs[1]), disk(3, log(90))]
    text = refusals(disks)
    assert "t-0: the logs of brokers 1, 2 part" in text
    assert "--prefer t-0=BROKER" in text
    for broker in (1, 2):
        found = planned(disks, Decisions(prefer={P: broker}))
        assert (found.leader, in_sync(found)) == (broker, [broker])


def test_records_of_an_older_epoch_on_as_many_disks_as_confirm_are_no_unconfirmed_end() -> None:
    """Nothing but their number tells of an older copy of ZooKeeper's data, by which a third board leads."""
    disks = [disk(1, log(200)), disk(2, log(200)), disk(3, log(110, (3, 0), (4, 100)))]
    assert "the logs of brokers 3, 1, 2 part" in refusals(disks)
    assert planned(disks, Decisions(prefer={P: 2})).leader == 2


def test_a_preferred_board_has_a_log() -> None:
    disks = [disk(1, log(10)), disk(2, log(10)), disk(3, log(10, problem="damaged"))]
    assert "t-0 has no readable log on broker 3" in refusals(disks, Decisions(prefer={P: 3}))
    assert "no partition t-1; correct --prefer" in refusals(disks, Decisions(prefer={PartitionId("t", 1): 1}))


def followed(dice: random.Random, leads: list[int], follows: list[int]) -> list[int]:
    """A follower's log: what differs is cut, and some more is fetched."""
    pairs = enumerate(zip(leads, follows, strict=False))
    same = next((at for at, pair in pairs if len(set(pair)) > 1), min(len(leads), len(follows)))
    return leads[: max(same, dice.randrange(len(leads) + 1))]


@pytest.mark.parametrize("seed", range(200))
def test_what_two_disks_confirmed_is_kept_whichever_board_is_written_off(seed: int) -> None:
    """Histories as elections make them: each leader has what two disks have; no plan loses it, and none is refused."""
    dice = random.Random(seed)
    boards: dict[int, list[int]] = {1: [], 2: [], 3: []}  # the epoch of each record
    confirmed: list[int] = []
    for epoch in range(1, 7):
        able = [number for number, records in boards.items() if records[: len(confirmed)] == confirmed]
        leader = dice.choice(able)
        boards[leader] += [epoch] * dice.randrange(4)
        for follower in dice.sample([1, 2, 3], dice.randrange(1, 4)):
            boards[follower] = followed(dice, boards[leader], boards[follower])
        twice = sorted((len(each) for each in boards.values() if each == boards[leader][: len(each)]), reverse=True)[
            1:2
        ]
        if twice and boards[leader][twice[0] - 1 : twice[0]] == [epoch]:
            confirmed = boards[leader][: twice[0]]
    disks = []
    for number, records in boards.items():
        starts = [(epoch, at) for at, epoch in enumerate(records) if not at or records[at - 1] != epoch]
        disks.append(disk(number, log(len(records))._replace(epochs=tuple(DiskEpoch(*each) for each in starts))))
    for off in (None, 1, 2, 3):
        asked = [each for each in disks if each.broker != off]
        plan = plan_rebuild(asked, Decisions(frozenset() if off is None else frozenset({off})))
        found = plan.topics[0].partitions[0]
        assert boards[found.leader][: len(confirmed)] == confirmed
        assert not found.may_lose


# what may be lost


@pytest.mark.parametrize(
    ("asked", "needed", "may_lose"),
    [([1, 2, 3], 2, False), ([1, 2], 2, False), ([1], 2, True), ([1, 2], 1, True), ([1], 3, False), ([1, 2], 5, False)],
)
def test_what_only_missing_replicas_may_have_is_a_loss(asked: list[int], needed: int, may_lose: bool) -> None:
    topic = T._replace(config={"min.insync.replicas": str(needed)})
    copy = ClusterCopy(100, (topic,))
    off = frozenset({1, 2, 3} - set(asked))
    found = planned([disk(number, log(10), copy=copy) for number in asked], Decisions(off))
    assert (found.may_lose, set(found.missing)) == (may_lose, off)


def test_a_log_that_cannot_be_read_and_a_disk_that_cannot_be_named_are_missing() -> None:
    found = planned([disk(1, log(10)), disk(2, log(10, problem="x")), disk(3, log(90), epoch=-1)])
    assert (found.leader, found.missing, found.may_lose) == (1, (2, 3), True)
    assert planned([disk(1, log(10)), disk(2), disk(3)]).missing == (2, 3)


def test_what_no_disk_has_is_led_by_nobody_and_said() -> None:
    found = planned([disk(3)], Decisions(frozenset({1, 2})))
    assert (found.leader, found.state.in_sync, found.may_lose) == (NO_LEADER, (), False)
    assert "nobody leads it until unclean.leader.election.enable" in found.note


# which boards


def test_each_board_with_a_replica_is_asked_or_written_off() -> None:
    disks = [disk(1, log(10)), disk(2, log(10))]
    assert "broker 3 has replicas of 1 partition; give --disk with its file, or --written-off 3" in refusals(disks)
    assert not refusals(disks, Decisions(frozenset({3})))
    assert "broker 9 is written off and has no replica" in refusals(disks, Decisions(frozenset({3, 9})))
    assert "broker 2 is written off and has a disk here" in refusals(disks, Decisions(frozenset({2, 3})))


@pytest.mark.parametrize(
    ("disks", "sentence"),
    [
        ([], "no disk is given"),
        ([disk(1, log(1), cluster="")], "no disk belongs to a cluster"),
        ([disk(1, log(1)), disk(2, log(1), cluster="other")], "several clusters (other, site)"),
        ([disk(1, log(1)), disk(1, log(1))], "broker 1 has two disks here"),
        ([disk(-1, log(1))], "does not tell its broker.id; describe it again with --broker-id"),
        ([disk(1, log(1), state=RUNNING)], "broker 1 ran when its disk was described"),
    ],
)
def test_disks_that_say_too_little_are_refused(disks: list[Disk], sentence: str) -> None:
    assert sentence in refusals(disks)


# which topics


def boards(*copies: ClusterCopy) -> list[Disk]:
    return [disk(number, log(10), copy=copy) for number, copy in enumerate(copies, 1)]


WITH, EMPTY = ClusterCopy(100, (T,)), ClusterCopy(100)
GONE = ClusterCopy(100, deletions=(CopiedDeletion("t", "id-t", 99),))


def test_a_deleted_topic_does_not_come_back_though_a_board_was_off_then() -> None:
    plan = plan_rebuild(boards(WITH, GONE, WITH), NONE)
    assert (plan.refusals, plan.topics) == ((), ())
    assert plan.deletions == {"id-t": "t"}
    assert [each.reason for each in plan.left_out] == ["it was deleted"]
    assert not plan_rebuild(boards(WITH, GONE, WITH), Decisions(keep=frozenset({"*"}))).topics, "each by its id"
    kept = plan_rebuild(boards(WITH, GONE, WITH), Decisions(keep=frozenset({"id-t"})))
    assert [each.name for each in kept.topics] == ["t"]
    assert kept.deletions == {}


def test_a_topic_that_a_newer_copy_lacks_is_decided_by_a_person() -> None:
    disks = boards(WITH, EMPTY, WITH)
    assert "topic t (id-t) may have been deleted: newer copies of ZooKeeper's topics (brokers 2) lack it" in refusals(
        disks
    )
    assert [each.name for each in plan_rebuild(disks, Decisions(keep=frozenset({"t"}))).topics] == ["t"]
    dropped = plan_rebuild(disks, Decisions(drop=frozenset({"id-t"})))
    assert (dropped.refusals, dropped.topics, dropped.deletions) == ((), (), {}), (
        "its logs stay, as no deletion is told"
    )
    assert "unserved" in dropped.left_out[0].reason


def test_a_copy_that_is_older_than_a_topic_says_nothing_of_it() -> None:
    assert planned(boards(WITH, ClusterCopy(T.epoch - 1), WITH)).leader == 1


def test_a_topic_that_an_older_ensemble_lacked_comes_back() -> None:
    assert planned(boards(ClusterCopy(100, absent=(T,)), ClusterCopy(100, absent=(T,)), WITH)).leader == 1


def test_a_topic_of_no_copy_is_decided_by_a_person_and_its_replicas_are_who_has_it() -> None:
    disks = boards(EMPTY, EMPTY)
    assert "topic t (id-t) may have been deleted: no copy has it" in refusals(disks)
    plan = plan_rebuild(disks, Decisions(keep=frozenset({"*"})))
    assert plan.topics[0].topic.replicas == ((1, 2),)


def test_partitions_that_were_added_a_moment_ago_come_back() -> None:
    more = log(4)._replace(partition=1)
    disks = [disk(1, log(10), more), disk(2, log(10), more), disk(3, log(10))]
    disks = [each._replace(topics=(DiskTopic("t", "id-t", 2, {}),)) for each in disks]
    plan = plan_rebuild(disks, NONE)
    assert not plan.refusals
    assert plan.topics[0].topic.replicas == ((1, 2, 3), (1, 2))


@pytest.mark.parametrize("word", ["topics", "absent"])
def test_the_longest_list_of_a_topic_counts_also_where_newer_copies_have_a_shorter_one(word: str) -> None:
    """Boards that are older than this release took an older ensemble's list over their own."""
    grown = T._replace(replicas=(*T.replicas, (3, 1), (2, 3)), config={"retention.ms": "9"})
    copies = (ClusterCopy(200, (T,)), ClusterCopy(200, (T,)), ClusterCopy(100)._replace(**{word: (grown,)}))
    plan = plan_rebuild(boards(*copies), NONE)
    assert not plan.refusals
    assert plan.topics[0].topic == Topic("id-t", grown.replicas, grown.config)


def test_a_list_of_a_rebuild_counts_before_a_longer_one_of_a_board_that_was_written_off() -> None:
    grown, again = T._replace(replicas=(*T.replicas, (3, 1))), T._replace(epoch=150)
    plan = plan_rebuild(
        boards(ClusterCopy(200, (again,)), ClusterCopy(200, (again,)), ClusterCopy(100, (grown,))), NONE
    )
    assert plan.topics[0].topic.replicas == T.replicas


def test_two_topics_of_one_name_are_decided_by_a_person() -> None:
    other = T._replace(topic_id="id-2", epoch=30)
    disks = boards(WITH, ClusterCopy(25, (T,), absent=()), ClusterCopy(35, (other,), absent=(T,)))
    disks = [each._replace(copy=(each.copy or EMPTY)._replace(as_of=25)) for each in disks[:2]] + disks[2:]
    assert "two topics are named t (id-2, id-t)" in refusals(disks)


@pytest.mark.parametrize("decisions", [Decisions(keep=frozenset({"typo"})), Decisions(drop=frozenset({"typo"}))])
def test_a_mistyped_topic_is_named(decisions: Decisions) -> None:
    assert "no disk knows a topic typo" in refusals(boards(WITH, WITH, WITH), decisions)


# numbers


def test_epochs_and_ids_go_on_far_above_all_seen() -> None:
    disks = [disk(number, log(9, (7, 0)), producer_ids=10**15) for number in (1, 2, 3)]
    disks[1] = disks[1]._replace(epoch=5 * ELECTION_ZXIDS + 77)
    plan = plan_rebuild(disks, NONE)
    assert plan.format.epoch_base == (6 + ELECTIONS_AHEAD) * ELECTION_ZXIDS
    assert plan.producer_ids >= 1000 * plan.format.epoch_base > 10**15
    assert plan.topics[0].partitions[0].state.leader_epoch == 7 + EPOCHS_AHEAD


def test_a_second_rebuild_goes_on_above_the_first_also_where_no_record_tells() -> None:
    empty = log(0, epochs=())
    first = plan_rebuild([disk(number, empty) for number in (1, 2, 3)], NONE)
    base = first.format.epoch_base
    disks = [disk(number, empty, epoch=base + number, producer_ids=first.producer_ids) for number in (1, 2, 3)]
    second = plan_rebuild(disks, NONE)
    assert second.format.epoch_base >= base + ELECTIONS_AHEAD * ELECTION_ZXIDS
    assert second.producer_ids > first.producer_ids
    epochs = [plan.topics[0].partitions[0].state.leader_epoch for plan in (first, second)]
    assert epochs[1] >= epochs[0] + EPOCHS_AHEAD


def test_numbers_that_end_are_said() -> None:
    assert "no leader epochs are left" in refusals([disk(n, log(9, (LEADER_EPOCH_MAX, 0))) for n in (1, 2, 3)])
    assert "no producer ids are left" in refusals([disk(n, log(9), producer_ids=(1 << 63) - 9999) for n in (1, 2, 3)])


def test_users_come_back_by_the_board_with_the_newest_copy() -> None:
    disks = [disk(1, log(9), security_generation=4), disk(2, log(9), security_generation=7), disk(3, log(9))]
    plan: Plan = plan_rebuild(disks, NONE)
    assert plan.security
    assert any("user restore --data-dir DIR` has run beside broker 2" in note for note in plan.notes)
    assert not plan_rebuild(boards(WITH, WITH, WITH), NONE).security
