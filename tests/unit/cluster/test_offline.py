"""A replica whose log is offline: others go on, it is tried again now and then, and follows once it is back."""

from __future__ import annotations

import pytest

from edge_broker.cluster.effects import Effect, Reopen, Send
from edge_broker.cluster.inter_broker_messages import AskEnd, TellEnd
from edge_broker.cluster.partition.partition import Partition, Settings
from edge_broker.cluster.state.cluster_state import NO_LEADER, InSyncReplica, OfflineLog, PartitionState, Topic
from edge_broker.cluster.state.replica_log_view import NEWEST_EPOCH
from tests.simulation.cluster_disk import SimLog
from tests.support.partition_repair import settles, written
from tests.support.partition_replica import ME, PARTITION, B, C, MembersAround, following, replica_of

REOPEN_MS = Settings().reopen_ms
STRICT = Topic("id", ((1, 2, 3),), {"min.insync.replicas": "3"})


def tries(around: MembersAround) -> list[Effect]:
    return [each for each in around.took() if isinstance(each, Reopen)]


def passes(made: Partition, around: MembersAround, ms: float) -> list[Effect]:
    """Time goes by, with its ticks; what is to be opened."""
    found: list[Effect] = []
    for _ in range(10):
        around.now_ms += ms / 10
        made.tick()
        found += tries(around)
    return found


def test_an_offline_log_is_tried_again_at_a_limited_rate_one_try_at_a_time() -> None:
    made, log, around = following(4, 4)
    log.online = False
    made.log_moved()
    made.tick()
    assert passes(made, around, REOPEN_MS * 0.9) == []
    assert passes(made, around, REOPEN_MS * 0.2) == [Reopen(PARTITION, may_recreate=False)]
    assert passes(made, around, REOPEN_MS * 5) == [], "that one is under way"
    made.log_reopened()
    assert passes(made, around, REOPEN_MS * 0.9) == []
    assert passes(made, around, REOPEN_MS * 0.2) == [Reopen(PARTITION, may_recreate=False)]


def test_who_is_back_follows_from_the_end_that_its_disk_has() -> None:
    made, log, around = following(4, 4, 4)
    log.online = False
    made.log_moved()
    settles(made, around, 2)
    assert written(around) == PartitionState(2, 4, (B, C))
    passes(made, around, REOPEN_MS * 1.2)
    log.begin_truncation(2)
    log.online = True
    made.log_reopened()
    (fetch,) = around.fetches()
    assert (fetch.fetch_offset, fetch.synced_end, fetch.keeps_out) == (2, 2, False)
    assert made.high_watermark <= 2
    assert passes(made, around, REOPEN_MS * 2) == []


def test_who_must_stay_named_takes_back_that_its_log_is_offline() -> None:
    made, log, around = following(4, 4)
    made.configure(STRICT)
    log.online = False
    made.log_moved()
    assert written(around) == PartitionState(2, 4, (ME, B, C), (OfflineLog(1, 5),))
    settles(made, around, 2)
    passes(made, around, REOPEN_MS * 1.2)
    log.online = True
    made.log_reopened()
    assert written(around) == PartitionState(2, 4, (ME, B, C))


def test_a_cut_that_has_failed_is_not_waited_for_once_the_log_is_back() -> None:
    made, log, around = following(4, 4)
    made._cut(1)
    made.losses_recorded(made.cutting.token if made.cutting else -1)
    log.online = False
    made.log_moved()
    passes(made, around, REOPEN_MS * 1.2)
    log.online = True
    made.log_reopened()
    assert made.cutting is None
    assert len(around.fetches()) == 1


def test_a_missing_log_is_made_anew_once_the_set_does_not_name_it_be_it_smaller_than_is_needed() -> None:
    made, log, around = replica_of(4, 4)
    log.lose()
    made.configure(STRICT)
    made.take_in(PartitionState(1, 4, (ME, B, C)), 1)
    assert written(around) == PartitionState(NO_LEADER, 4, (B, C)), "its disk has nothing of what it was named for"
    assert passes(made, around, REOPEN_MS * 2) == []
    settles(made, around, 2)
    assert passes(made, around, 1000.0) == [Reopen(PARTITION, may_recreate=True)], "at once"


def test_the_last_one_that_is_named_makes_nothing_anew_and_says_that_it_is_offline() -> None:
    made, log, around = replica_of(4, 4)
    log.lose()
    made.take_in(PartitionState(1, 4, (ME,)), 1)
    assert written(around) == PartitionState(NO_LEADER, 4, (ME,), (OfflineLog(1, 5),))
    settles(made, around, 2)
    assert passes(made, around, REOPEN_MS * 2) == [], "its files may be put back"


def lost_the_lead(*, in_sync: tuple[InSyncReplica, ...] = (B, C)) -> tuple[Partition, SimLog, MembersAround]:
    """Offsets 2 and 3 were appended while it led epoch 4, and its disk refused to sync them; its try is due."""
    made, log, around = replica_of(3, 3)
    made.take_in(PartitionState(1, 4, (ME, B, C)), 1)
    log.begin_epoch(4)
    made.epoch_begun(4)
    log.lead(4, (7, 8))
    log.online = False
    made.log_moved()
    made._write.stop()
    made.take_in(PartitionState(in_sync[0].broker, 5, in_sync), 2)
    made.tick()
    around.took()
    return made, log, around


def asks(around: MembersAround) -> list[Effect]:
    return [each for each in around.took() if isinstance(each, Send) and isinstance(each.message, AskEnd)]


@pytest.mark.parametrize(
    ("epoch", "end", "kept"),
    [
        (4, 4, 4),  # the leader has all of it
        (4, 3, 3),  # one of the two
        (3, 2, 0),  # nothing that was written in that epoch
        (5, 9, 0),  # a release that knows no such question: its log's last epoch and end
    ],
)
def test_what_the_leader_has_of_an_epoch_that_was_led_here_is_asked_first(epoch: int, end: int, kept: int) -> None:
    made, _, around = lost_the_lead()
    question = AskEnd(PARTITION, 2, 1, 4)
    around.now_ms += REOPEN_MS * 1.01
    made.tick()
    made.tick()
    assert around.took() == [Send(2, question)], "once, and nothing is opened before the answer"
    for other in (TellEnd(PARTITION, 2, 3, epoch, end, epoch=4), TellEnd(PARTITION, 2, 2, epoch, end)):
        made.end_told(other)
    made.end_told(TellEnd(PARTITION, 2, 2, -1, -1, online=False, epoch=4))
    assert around.took() == [], "only the leader's answer to this question counts"
    made.end_told(TellEnd(PARTITION, 2, 2, epoch, end, epoch=4))
    assert around.took() == [Reopen(PARTITION, may_recreate=False, kept_until=kept)]
    made.log_reopened()
    around.now_ms += REOPEN_MS * 1.01
    made.tick()
    assert around.took() == [Reopen(PARTITION, may_recreate=False, kept_until=kept)], (
        "the disk still refused; the same entry"
    )


def test_it_is_asked_again_and_without_an_answer_all_of_it_counts_as_lost() -> None:
    made, _, around = lost_the_lead()
    found: list[Effect] = []
    for _ in range(100):
        around.now_ms += REOPEN_MS / 40
        made.tick()
        found += around.took()
    assert found[:-1] == [Send(2, AskEnd(PARTITION, 2, 1, 4))] * (len(found) - 1)
    assert len(found) > 10
    assert found[-1] == Reopen(PARTITION, may_recreate=False)


@pytest.mark.parametrize("leader_is_there", [True, False])
def test_who_has_nobody_to_ask_asks_nobody(*, leader_is_there: bool) -> None:
    made, log, around = lost_the_lead(in_sync=(B,) if leader_is_there else (ME,))
    if leader_is_there:
        log.end_sync(log.begin_sync())
    around.now_ms += REOPEN_MS * 1.01
    made.tick()
    assert [each for each in around.took() if isinstance(each, Reopen | Send)] == [
        Reopen(PARTITION, may_recreate=False)
    ]


def test_a_replica_says_where_an_epoch_ended_in_its_log() -> None:
    made, _, around = following(2, 2, 4)
    for epoch, end in ((4, (4, 3)), (3, (2, 2)), (2, (2, 2)), (NEWEST_EPOCH, (4, 3))):
        made.tell_end(AskEnd(PARTITION, 1, 3, epoch))
        assert around.took() == [Send(3, TellEnd(PARTITION, 1, 1, *end, epoch=epoch))]
