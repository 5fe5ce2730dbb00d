"""A replica whose log is damaged: it leaves it to others, and has all anew before it is named again."""

from __future__ import annotations

from edge_broker.cluster.effects import (
    AdvanceHighWatermark,
    BeginEpoch,
    CutDamage,
    Enter,
    LeadershipResigned,
    LostRange,
    OwnUp,
    PassOver,
)
from edge_broker.cluster.inter_broker_messages import EpochEnd, ReplicaFetch, ReplicaFetched
from edge_broker.cluster.partition.partition import Partition, Role
from edge_broker.cluster.state.cluster_state import NO_LEADER, PartitionState
from edge_broker.errors import ErrorCode
from tests.simulation.cluster_disk import Record, SimLog
from tests.support.partition_repair import settles, written
from tests.support.partition_replica import ME, PARTITION, B, C, MembersAround, following, replica_of


def leading(*epochs: int, in_sync: tuple[object, ...] = (ME, B, C)) -> tuple[Partition, SimLog, MembersAround]:
    made, log, around = replica_of(*epochs)
    made.take_in(PartitionState(1, 4, in_sync), 1)  # type: ignore[arg-type]
    made.epoch_begun(4)
    around.took()
    return made, log, around


def test_a_follower_leaves_the_set_and_another_epoch_of_the_same_leader_begins() -> None:
    made, log, around = following(4, 4, 4, 4)
    log.rot(1)
    made.tick()
    assert written(around) == PartitionState(2, 5, (B, C))


def test_a_leader_leaves_it_to_the_others_at_once() -> None:
    made, log, around = leading(4, 4)
    log.rot(0)
    made.tick()
    assert made.role is not Role.LEADING
    assert LeadershipResigned(PARTITION) in around.took()
    assert written(around) == PartitionState(NO_LEADER, 5, (B, C))


def test_what_nobody_else_has_is_written_down_and_the_lead_stays() -> None:
    made, log, around = leading(4, 4, in_sync=(ME,))
    log.rot(0)
    made.tick()
    made.tick()
    assert around.took() == [OwnUp(PARTITION)], "once"
    assert (made.role, around.written) == (Role.LEADING, [])
    log.own_up()
    made.owned_up()
    made.tick()
    assert around.took() == []


def test_who_is_elected_alone_writes_it_down_before_its_epoch_begins() -> None:
    made, log, around = replica_of(4, 4)
    log.rot(1)
    made.take_in(PartitionState(1, 5, (ME,)), 2)
    assert around.took() == [OwnUp(PARTITION)]
    log.own_up()
    made.owned_up()
    assert around.took() == [BeginEpoch(PARTITION, 5)]


def test_who_lacks_something_claims_no_lead_while_others_are_named() -> None:
    made, log, around = replica_of(4, 4)
    log.rot(1)
    del around.registrations[2], around.registrations[3]
    made.take_in(PartitionState(2, 4, (ME, B, C)), 1)
    assert written(around) == PartitionState(2, 5, (B, C))
    settles(made, around, 2)
    around.now_ms += 60_000.0
    made.tick()
    assert len(around.written) == 1
    assert around.took() == [], "it keeps all until somebody leads"


def test_a_log_that_may_have_been_counted_since_is_cut_in_a_later_epoch_alone() -> None:
    made, log, around = following(4, 4, 4, 4)
    made.take_in(PartitionState(2, 4, (B, C)), 2)
    log.rot(1)
    made.fetch_answered(ReplicaFetched(PARTITION, 4, 4, 4, high_watermark=4))
    assert [each for each in around.took() if isinstance(each, Enter)] == [], "its last fetch may be on its way"
    made.tick()
    assert written(around) == PartitionState(2, 5, (B, C))


def test_it_is_cut_once_the_leader_is_known_to_have_all_and_what_that_may_lose_is_written_down() -> None:
    made, log, around = following(4, 4, 4, 4)
    log.rot(1)
    made.tick()
    settles(made, around, 2)
    (fetch,) = [each for each in around.fetches() if each.leader_epoch == 5]
    assert (fetch.keeps_out, fetch.synced_end) == (True, 0), "what it has will be cut in this very epoch"
    made.fetch_answered(ReplicaFetched(PARTITION, 5, 4, 4, high_watermark=3, records=(Record(4, 4),)))
    (enter,) = around.took()[-1:]
    assert enter == Enter(made.cutting.token if made.cutting else -1, PARTITION, "truncated", (LostRange(4, 3, 4),))
    made.losses_recorded(enter.token)
    assert around.took() == [CutDamage(PARTITION)]
    log.cut_damage()
    made.log_truncated()
    (fetch,) = around.fetches()
    assert (fetch.fetch_offset, fetch.synced_end, fetch.keeps_out) == (1, 1, False)
    assert made.high_watermark <= 1


def test_a_leader_tells_where_what_nobody_has_ends_and_of_which_epoch_it_is() -> None:
    made, log, _ = leading(2, 2, 3, 4, in_sync=(ME,))
    for offset in (1, 2):
        log.rot(offset)
    log.own_up()
    made.owned_up()
    fetch = ReplicaFetch(PARTITION, B, 4, 1, 2, 1)
    answer = made.fetch_from(fetch)
    assert (answer.lost, answer.wants_records, answer.error) == (EpochEnd(3, 3), False, ErrorCode.NONE)
    before, behind = made.fetch_from(fetch._replace(fetch_offset=0)), made.fetch_from(fetch._replace(fetch_offset=3))
    assert [(each.lost, each.wants_records) for each in (before, behind)] == [(None, True), (None, False)]


def test_a_follower_goes_on_behind_what_nobody_has_and_enters_nothing() -> None:
    made, log, around = following(4, 4)
    made.fetch_answered(ReplicaFetched(PARTITION, 4, 2, 4, high_watermark=9, lost=EpochEnd(4, 5)))
    made.tick()
    made.fetch_answered(ReplicaFetched(PARTITION, 4, 2, 4, high_watermark=9, lost=EpochEnd(4, 5)))
    assert [each for each in around.took() if not isinstance(each, AdvanceHighWatermark)] == [
        PassOver(PARTITION, 5, 4)
    ], "once"
    log.pass_over(5, 4)
    made.log_truncated()
    (fetch,) = around.fetches()
    assert (fetch.fetch_offset, fetch.last_fetched_epoch, fetch.synced_end) == (5, 4, 5)


def test_who_is_elected_while_it_passes_over_begins_its_epoch_behind_that() -> None:
    made, log, around = following(4, 4)
    made.fetch_answered(ReplicaFetched(PARTITION, 4, 2, 4, lost=EpochEnd(4, 5)))
    made.take_in(PartitionState(1, 5, (ME, B, C)), 2)
    assert [each for each in around.took() if isinstance(each, BeginEpoch)] == []
    log.pass_over(5, 4)
    made.log_truncated()
    assert around.took() == [BeginEpoch(PARTITION, 5)]
    assert made.leading is not None
    assert made.leading.epoch_start == 5


def test_who_keeps_out_passes_over_nothing() -> None:
    made, log, around = following(4, 4)
    log.full = True
    made.fetch_answered(ReplicaFetched(PARTITION, 4, 2, 4, lost=EpochEnd(4, 5)))
    assert [each for each in around.took() if isinstance(each, PassOver)] == []
