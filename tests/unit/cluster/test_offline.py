"""A replica whose log is offline: others go on, it is tried again now and then, and follows once it is back."""

from __future__ import annotations

from edge_broker.cluster.effects import Effect, Reopen
from edge_broker.cluster.partition import Partition, Settings
from edge_broker.cluster.state import NO_LEADER, OfflineLog, PartitionState, Topic
from tests.unit.cluster.test_partition import ME, PARTITION, Around, B, C, following, replica_of
from tests.unit.cluster.test_repair import settles, written

REOPEN_MS = Settings().reopen_ms
STRICT = Topic("id", ((1, 2, 3),), {"min.insync.replicas": "3"})


def tries(around: Around) -> list[Effect]:
    return [each for each in around.took() if isinstance(each, Reopen)]


def passes(made: Partition, around: Around, ms: float) -> list[Effect]:
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
    assert passes(made, around, REOPEN_MS * 0.2) == [Reopen(PARTITION, anew=False)]
    assert passes(made, around, REOPEN_MS * 5) == [], "that one is under way"
    made.reopened()
    assert passes(made, around, REOPEN_MS * 0.9) == []
    assert passes(made, around, REOPEN_MS * 0.2) == [Reopen(PARTITION, anew=False)]


def test_who_is_back_follows_from_the_end_that_its_disk_has() -> None:
    made, log, around = following(4, 4, 4)
    log.online = False
    made.log_moved()
    settles(made, around, 2)
    assert written(around) == PartitionState(2, 4, (B, C))
    passes(made, around, REOPEN_MS * 1.2)
    log.begin_truncation(2)
    log.online = True
    made.reopened()
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
    made.reopened()
    assert written(around) == PartitionState(2, 4, (ME, B, C))


def test_a_cut_that_has_failed_is_not_waited_for_once_the_log_is_back() -> None:
    made, log, around = following(4, 4)
    made._cut(1)
    made.entered(made.cutting.token if made.cutting else -1)
    log.online = False
    made.log_moved()
    passes(made, around, REOPEN_MS * 1.2)
    log.online = True
    made.reopened()
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
    assert passes(made, around, 1000.0) == [Reopen(PARTITION, anew=True)], "at once"


def test_the_last_one_that_is_named_makes_nothing_anew_and_says_that_it_is_offline() -> None:
    made, log, around = replica_of(4, 4)
    log.lose()
    made.take_in(PartitionState(1, 4, (ME,)), 1)
    assert written(around) == PartitionState(NO_LEADER, 4, (ME,), (OfflineLog(1, 5),))
    settles(made, around, 2)
    assert passes(made, around, REOPEN_MS * 2) == [], "its files may be put back"
