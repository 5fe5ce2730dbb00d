"""What one replica does where something else is under way, or its log is not what the in-sync set speaks of."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edge_broker.cluster.effects import (
    AdvanceHighWatermark,
    Append,
    BeginEpoch,
    Enter,
    LeadershipResigned,
    LostRange,
    RemoveFront,
    Send,
    StartAnew,
)
from edge_broker.cluster.inter_broker_messages import AskEnd, EpochEnd, ReplicaFetch, ReplicaFetched, TellEnd
from edge_broker.cluster.partition.partition import Partition, Role
from edge_broker.cluster.state.cluster_state import (
    NO_LEADER,
    InSyncReplica,
    OfflineLog,
    PartitionState,
    Registration,
)
from edge_broker.cluster.znodes.znode_codec import encode_state
from edge_broker.cluster.znodes.zookeeper import (
    Answer,
    Done,
    Exists,
    Failure,
    Get,
    Multi,
    MultiFailed,
    Node,
    Stat,
    Sync,
)
from edge_broker.errors import ErrorCode
from tests.simulation.cluster_disk import Record, SimLog
from tests.support.partition_replica import (
    ME,
    PARTITION,
    TOPIC,
    B,
    C,
    MembersAround,
    following,
    records_written,
    replica_of,
)


def test_an_epoch_begins_behind_what_is_being_written() -> None:
    made, log, around = following(4, 4)
    under_way = log.begin_append((Record(4, 2),))
    made.take_in(PartitionState(1, 5, (ME, B, C)), 2)
    made.tick()
    assert around.took() == []
    log.end_append(under_way)
    made.log_moved()
    assert around.took() == [BeginEpoch(PARTITION, 5)]
    assert made.leading is not None
    assert (made.role, made.leading.epoch_start) == (Role.BEGINNING, 3)


def test_who_is_writing_fetches_nothing_and_takes_no_answer() -> None:
    made, log, around = following(4, 4)
    answer = ReplicaFetched(PARTITION, 4, 2, 4, records=(Record(4, 2),))
    made.fetch_answered(answer)
    assert around.took() == [Append(PARTITION, 2, answer.records)]
    under_way = log.begin_append((Record(4, 2),))
    made.fetch_answered(answer)
    around.now_ms += 60_000
    made.tick()
    assert around.took() == []
    log.end_append(under_way)
    made.log_moved()
    assert [each.fetch_offset for each in around.fetches()] == [3]


def test_what_came_amid_a_roll_is_asked_for_again_behind_it() -> None:
    """All that is synced was told before: nothing else would ask again before the time of an answer is over."""
    made, log, around = following(4, 4)
    log.busy = True
    made.fetch_answered(ReplicaFetched(PARTITION, 4, 2, 4, records=(Record(4, 2),)))
    made.tick()
    assert around.took() == []
    log.busy = False
    made.log_moved()
    assert [each.fetch_offset for each in around.fetches()] == [2]


def test_nobody_is_handed_the_lead_before_the_last_write_is_there() -> None:
    made, log, around = replica_of(4, 4)
    made.take_in(PartitionState(1, 5, (ME, B)), 1)
    made.epoch_begun(5)
    under_way = log.begin_append((Record(5, 2),))
    assert made.hand_over(2)
    made.fetch_from(ReplicaFetch(PARTITION, B, 5, 2, 4, 2))
    made.tick()
    assert around.written == []
    log.end_append(under_way)
    made.tick()
    assert around.written == []
    made.fetch_from(ReplicaFetch(PARTITION, B, 5, 3, 5, 3))
    made.tick()
    assert [b'"leader":2' in each.data.replace(b" ", b"") for each in around.written] == [True]


def test_nobody_acknowledges_for_the_leader() -> None:
    made, log, _ = replica_of(4, 4)
    made.take_in(PartitionState(1, 5, (ME,)), 1)
    made.epoch_begun(5)
    log.append((Record(5, 2),))
    answer = made.fetch_from(ReplicaFetch(PARTITION, ME, 5, 3, 5, 3))
    assert (answer.error, made.high_watermark) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)


def behind_a_cut(*in_sync: InSyncReplica, synced: bool = False) -> tuple[Partition, MembersAround]:
    """A replica whose power was cut since its registration 4; nobody leads."""
    made, log, around = replica_of(4, 4, synced=synced)
    log.cut_epoch = 4
    made.take_in(PartitionState(NO_LEADER, 4, in_sync), 1)
    return made, around


@pytest.mark.parametrize(
    "lie",
    [B._replace(epoch=1 << 40), B._replace(directory="another"), B._replace(epoch=5), InSyncReplica(3, "three", 8)],
    ids=["a later life", "another disk", "an earlier life", "a later life of another"],
)
def test_a_fetch_under_no_registration_that_is_known_counts_for_nothing(lie: InSyncReplica) -> None:
    """Heard once, a later registration than the true one kept the true follower out for the whole epoch."""
    made, _, around = replica_of(4, 4)
    made.take_in(PartitionState(1, 5, (ME, B, C)), 1)
    made.epoch_begun(5)
    answer = made.fetch_from(ReplicaFetch(PARTITION, lie, 5, 2, 4, 2))
    assert answer.error is ErrorCode.STALE_BROKER_EPOCH
    assert made.high_watermark == 0
    around.took()
    for each in (B, C):
        made.fetch_from(ReplicaFetch(PARTITION, each, 5, 2, 4, 2))
    assert AdvanceHighWatermark(PARTITION, 2) in around.took()
    later = Registration(2, 9, "two")
    around.registrations[2] = later
    assert made.fetch_from(ReplicaFetch(PARTITION, later.replica, 5, 2, 4, 2)).error is ErrorCode.NONE


def test_who_may_lack_what_no_sync_has_kept_leaves_the_set_before_it_may_lead() -> None:
    _, around = behind_a_cut(ME._replace(epoch=4), B)
    assert records_written(around) == [PartitionState(NO_LEADER, 4, (B,))]


def test_who_was_caught_up_since_the_cut_may_lead() -> None:
    _, around = behind_a_cut(ME, B)
    assert records_written(around) == [PartitionState(1, 5, (ME, B))]


def test_what_is_synced_is_there_behind_a_cut() -> None:
    again = B._replace(epoch=5)
    _, around = behind_a_cut(ME._replace(epoch=4), again, synced=True)
    assert records_written(around) == [PartitionState(1, 5, (ME, again))]


def test_the_last_one_that_is_named_leads_with_what_it_has() -> None:
    _, around = behind_a_cut(ME._replace(epoch=4))
    assert records_written(around) == [PartitionState(1, 5, (ME,))]


def test_what_is_written_counts_where_answers_wait_for_no_sync() -> None:
    for synced in (False, True):
        made, log, around = replica_of(4, 4, synced=synced)
        log.append((Record(4, 2),))
        made.take_in(PartitionState(2, 4, (ME, B, C)), 1)
        assert [(each.fetch_offset, each.synced_end) for each in around.fetches()] == [(3, 2 if synced else 3)]
        made.take_in(PartitionState(1, 5, (ME,)), 2)
        made.epoch_begun(5)
        assert made.high_watermark == (2 if synced else 3)


def test_a_follower_begins_where_its_leaders_log_starts_as_far_as_it_knows_that_to_be_replicated() -> None:
    made, log, around = following(4, 4, 4, 4)
    nothing_new = ReplicaFetched(PARTITION, 4, 4, 4, high_watermark=2, log_start_offset=3)
    made.fetch_answered(nothing_new)
    assert around.took() == [AdvanceHighWatermark(PARTITION, 2), RemoveFront(PARTITION, 2)]
    log.follow_start(2)
    made.fetch_answered(nothing_new._replace(high_watermark=4))
    assert around.took() == [AdvanceHighWatermark(PARTITION, 4)], "not again at once"
    around.now_ms += 1000.0
    made.tick()
    assert [each for each in around.took() if isinstance(each, RemoveFront)] == [RemoveFront(PARTITION, 3)]
    log.follow_start(3)
    around.now_ms += 1000.0
    made.tick()
    made.fetch_answered(nothing_new._replace(high_watermark=4, log_start_offset=1))
    assert [each for each in around.took() if isinstance(each, RemoveFront)] == []


def away(*epochs: int) -> tuple[Partition, SimLog, MembersAround, ReplicaFetched]:
    """A follower that knows two records to be replicated, and is told that its leader's log starts at 9."""
    made, log, around = following(*epochs)
    made.fetch_answered(ReplicaFetched(PARTITION, 4, len(epochs), epochs[-1], high_watermark=2, records=()))
    around.took()
    out = ReplicaFetched(PARTITION, 4, len(epochs), epochs[-1], ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=9)
    return made, log, around, out


def test_who_was_away_for_too_long_begins_anew_where_the_leader_starts() -> None:
    made, log, around, out = away(3, 3, 3)
    made.fetch_answered(out)
    (enter,) = around.took()
    assert enter == Enter(0, PARTITION, "truncated", ()), "the leader had it all"
    made.fetch_answered(out)
    assert around.took() == []
    made.losses_recorded(0)
    assert around.took() == [StartAnew(PARTITION, 9)]
    log.start_anew(9)
    made.log_truncated()
    (fetch,) = around.fetches()
    assert (fetch.fetch_offset, fetch.last_fetched_epoch, fetch.synced_end) == (9, -1, 9)
    assert made.high_watermark == 9


def test_what_the_leader_may_never_have_had_is_written_down_first() -> None:
    made, _, around, out = away(2, 2, 2, 3)
    made.fetch_answered(out._replace(diverging=EpochEnd(-1, 9)))
    assert around.took() == [Enter(0, PARTITION, "truncated", (LostRange(2, 2, 3), LostRange(3, 3, 4)))]


def test_who_is_elected_before_it_is_written_down_keeps_its_log() -> None:
    made, _, around, out = away(3, 3, 3)
    made.fetch_answered(out)
    around.took()
    made.take_in(PartitionState(1, 5, (ME, B, C)), 2)
    assert around.took() == [BeginEpoch(PARTITION, 5)]
    made.losses_recorded(0)
    assert around.took() == []


@pytest.mark.parametrize(
    ("last_epoch", "offset", "told"),
    [
        (3, 5, None),  # within
        (3, 4, None),
        (3, 3, (4, None)),
        (-1, 0, (4, None)),  # an empty one
        (-1, 5, None),
        (2, 3, (4, EpochEnd(-1, 4))),  # of an epoch that nobody here remembers
        (2, 4, (4, EpochEnd(-1, 4))),
    ],
)
def test_a_leader_tells_where_its_log_starts(
    last_epoch: int, offset: int, told: tuple[int, EpochEnd | None] | None
) -> None:
    made, log, _ = replica_of()
    log.start_anew(4)
    log.append((Record(3, 4), Record(4, 5)))
    made.take_in(PartitionState(1, 5, (ME, B)), 1)
    made.epoch_begun(5)
    assert made.leading is not None
    answer = made.fetch_from(ReplicaFetch(PARTITION, B, 5, offset, last_epoch, offset))
    if told is None:
        assert (answer.error, answer.diverging, answer.log_start_offset) == (ErrorCode.NONE, None, 4)
        assert made.leading.ends(0)[B] == offset
        return
    assert answer.error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert (answer.log_start_offset, answer.diverging) == told
    assert B not in made.leading.ends(0)


def test_an_empty_log_that_no_set_names_and_that_begins_behind_the_leaders_start_begins_anew() -> None:
    made, log, around = replica_of()
    log.start_anew(9)
    made.take_in(PartitionState(2, 4, (B, C)), 1)
    around.took()
    made.fetch_answered(ReplicaFetched(PARTITION, 4, 9, -1, diverging=EpochEnd(-1, 3)))
    (enter,) = around.took()
    assert isinstance(enter, Enter)
    assert enter.losses == ()
    made.losses_recorded(enter.token)
    assert around.took() == [StartAnew(PARTITION, 0)]
    log.start_anew(0)
    made.log_truncated()
    assert [each.fetch_offset for each in around.fetches()] == [0]
    assert made.high_watermark == 0


@pytest.mark.parametrize("named", [False, True])
def test_a_leader_counts_an_empty_follower_that_starts_behind_it_if_the_set_names_it(named: bool) -> None:
    made, _, around = replica_of(4, 4, 4)
    made.take_in(PartitionState(1, 5, (ME, B) if named else (ME,)), 1)
    made.epoch_begun(5)
    around.took()
    answer = made.fetch_from(ReplicaFetch(PARTITION, B, 5, 3, -1, 3))
    assert made.leading is not None
    assert answer.diverging == (None if named else EpochEnd(-1, 0))
    assert (B in made.leading.ends(0)) == named


def test_an_empty_log_that_begins_behind_the_leaders_end_waits_for_it() -> None:
    made, log, around = replica_of()
    log.start_anew(9)
    made.take_in(PartitionState(2, 4, (ME, B, C)), 1)
    around.took()
    made.fetch_answered(ReplicaFetched(PARTITION, 4, 9, -1, diverging=EpochEnd(-1, 0)))
    assert made.cutting is None
    assert around.took() == []
    around.now_ms += 600.0
    made.tick()
    assert [each.fetch_offset for each in around.fetches()] == [9]


def test_a_follower_shows_what_its_leader_tells_as_far_as_it_has_it() -> None:
    made, _, around = following(4, 4)
    told = ReplicaFetched(PARTITION, 4, 2, 4, records=())
    for mark in (1, 1, 0, 7):
        made.fetch_answered(told._replace(high_watermark=mark))
    assert [each for each in around.took() if isinstance(each, AdvanceHighWatermark)] == [
        AdvanceHighWatermark(PARTITION, 1),
        AdvanceHighWatermark(PARTITION, 2),
    ]


def test_a_leader_whose_log_goes_offline_resigns_when_it_is_told_so() -> None:
    made, log, around = replica_of()
    made.take_in(PartitionState(1, 5, (ME, B, C)), 1)
    made.epoch_begun(5)
    assert made.role is Role.LEADING
    log.online = False
    made.log_moved()
    assert made.role is Role.IDLE
    assert any(isinstance(each, LeadershipResigned) for each in around.took())


def test_where_the_disk_is_full_nothing_is_taken_until_there_is_room() -> None:
    made, log, around = following(4, 4)
    log.full = True
    made.tick()
    (fetch,) = around.fetches()
    assert (fetch.keeps_out, fetch.synced_end) == (True, 2)
    assert not fetch.answer().wants_records
    made.fetch_answered(ReplicaFetched(PARTITION, 4, 2, 4, records=(Record(4, 2),)))
    assert around.took() == [], "what was ordered before"
    around.now_ms += 1000.0
    made.tick()
    assert [each.keeps_out for each in around.fetches()] == [True]
    log.full = False
    made.log_moved()
    assert [each.keeps_out for each in around.fetches()] == [False]


def test_a_follower_that_stops_leaves_the_in_sync_set_and_fetches_on_until_that_is_certain() -> None:
    made, log, around = following(4, 4)
    assert made.may_leave
    made.leave()
    assert records_written(around) == [PartitionState(2, 4, (B, C))]
    log.append((Record(4, 2),))
    log.end_sync(log.begin_sync())
    made.log_moved()
    assert [each.synced_end for each in around.fetches()] == [3], "the leader waits for it until then"
    made.take_in(PartitionState(2, 4, (B, C)), 2)
    around.now_ms += 60_000
    made.tick()
    assert (around.fetches(), made.may_leave) == ([], False), "a fetch would have it join again"
    made.take_in(PartitionState(2, 4, (B, C, ME)), 3)
    assert (len(around.fetches()), made.may_leave) == (1, True), "one that was on its way has done so"


def test_whoever_is_needed_in_the_in_sync_set_stays_when_it_stops() -> None:
    made, _, around = following(4, 4)
    made.configure(TOPIC._replace(config={"min.insync.replicas": "3"}))
    made.leave()
    assert (made.may_leave, around.written) == (False, [])


def of_topic(config: dict[str, str], *epochs: int) -> tuple[Partition, SimLog, MembersAround]:
    made, log, around = replica_of(*epochs)
    made.configure(TOPIC._replace(config=config))
    return made, log, around


NEEDS_TWO, UNCLEAN = {"min.insync.replicas": "2"}, {"unclean.leader.election.enable": "true"}


@pytest.mark.parametrize(
    ("config", "in_sync", "left"),
    [
        (NEEDS_TWO, (ME, B, C), PartitionState(NO_LEADER, 5, (B, C))),
        (NEEDS_TWO, (ME, B), PartitionState(NO_LEADER, 5, (ME, B), (OfflineLog(1, 5),))),
        (UNCLEAN, (ME,), PartitionState(NO_LEADER, 5, (ME,), (OfflineLog(1, 5),))),
    ],
)
def test_whose_log_goes_offline_leaves_the_set_or_says_so_there(
    config: dict[str, str], in_sync: tuple[InSyncReplica, ...], left: PartitionState
) -> None:
    made, log, around = of_topic(config)
    made.take_in(PartitionState(1, 5, in_sync), 1)
    made.epoch_begun(5)
    log.online = False
    made.log_moved()
    assert records_written(around) == [left]
    made._write.stop()
    made.take_in(left, 2)
    made.tick()
    assert len(around.written) == 1, "once is enough"


def test_whose_log_is_back_takes_back_what_it_has_said() -> None:
    made, log, around = of_topic(UNCLEAN)
    log.online = False
    made.take_in(PartitionState(NO_LEADER, 5, (ME,), (OfflineLog(1, 5),)), 1)
    made.tick()
    assert around.written == []
    log.online = True
    made.log_moved()
    assert records_written(around) == [PartitionState(NO_LEADER, 5, (ME,))]


@pytest.mark.parametrize("config", [{}, NEEDS_TWO])
def test_nobody_is_elected_uncleanly_while_that_is_off(config: dict[str, str]) -> None:
    made, _, around = of_topic(config, 4)
    made.take_in(PartitionState(NO_LEADER, 5, (B,), (OfflineLog(2, 6),)), 1)
    for _ in range(100):
        around.now_ms += 1000
        made.tick()
    assert (made.role, around.took(), around.written) == (Role.IDLE, [], [])


def test_whose_log_is_offline_holds_up_no_unclean_election() -> None:
    """Broker 2 is the only member of the set, and serves nothing; broker 3 has most, and its log is offline, too."""
    made, _, around = of_topic(UNCLEAN, 4)
    made.take_in(PartitionState(NO_LEADER, 5, (B,), (OfflineLog(2, 6),)), 1)
    assert around.took() == [Send(3, AskEnd(PARTITION, 1, 1))]
    made.end_told(TellEnd(PARTITION, 1, 3, 4, 99, online=False))
    (enter,) = around.took()
    assert enter == Enter(0, PARTITION, "unclean_election", (LostRange(5, 1, None),))
    made.losses_recorded(0)
    assert records_written(around) == [PartitionState(1, 6, (ME,))]


def test_who_may_still_serve_is_waited_for_where_an_unclean_election_is_allowed() -> None:
    made, _, around = of_topic(UNCLEAN, 4)
    said = PartitionState(NO_LEADER, 5, (B,), (OfflineLog(2, 6),))
    around.registrations[2] = Registration(2, 8, "two")  # it has started again since it said so
    made.take_in(said, 1)
    around.now_ms += 60_000
    made.tick()
    assert (around.took(), around.written) == ([], [])


def test_an_unclean_election_fails_where_a_log_came_back_meanwhile() -> None:
    made, _, around = of_topic(UNCLEAN, 4)
    del around.registrations[3]
    made.take_in(PartitionState(NO_LEADER, 5, (B,), (OfflineLog(2, 6),)), 1)
    (enter,) = around.took()
    assert isinstance(enter, Enter)
    made.take_in(PartitionState(NO_LEADER, 5, (B,)), 2)
    made.losses_recorded(enter.token)
    assert around.written == []


def test_a_log_that_is_offline_tells_no_end() -> None:
    made, log, around = of_topic(UNCLEAN, 4)
    log.online = False
    made.tell_end(AskEnd(PARTITION, 7, 3))
    assert around.took() == [Send(3, TellEnd(PARTITION, 7, 1, 4, 1, online=False))]


def test_nothing_is_handed_to_whose_log_is_offline() -> None:
    made, _, _ = of_topic(NEEDS_TWO)
    made.take_in(PartitionState(1, 5, (ME, B), (OfflineLog(2, 6),)), 1)
    made.epoch_begun(5)
    assert (made.possible_leaders({}), made.hand_over(2)) == ((), False)
    assert made.append_error(all_in_sync=True) is ErrorCode.NOT_ENOUGH_REPLICAS


def test_who_was_given_fewest_is_the_next_heir_of_those_with_as_much() -> None:
    made, _, _ = replica_of(4, 4)
    made.take_in(PartitionState(1, 5, (ME, B, C)), 1)
    made.epoch_begun(5)
    assert (made.possible_leaders({}), made.possible_leaders({2: 1}), made.possible_leaders({2: 1, 3: 2})) == (
        (2, 3),
        (3, 2),
        (2, 3),
    )
    made.fetch_from(ReplicaFetch(PARTITION, B, 5, 2, 4, 2))
    assert made.possible_leaders({2: 9}) == (2, 3), "who has more is waited for least"


@pytest.mark.parametrize(("needed", "left"), [(1, (B, C)), (2, (B, C)), (3, (ME, B, C))])
def test_a_broker_that_stops_leaves_the_in_sync_set_as_it_hands_over_where_that_stays_large_enough(
    needed: int, left: tuple[InSyncReplica, ...]
) -> None:
    made, _, around = of_topic({"min.insync.replicas": str(needed)}, 4, 4)
    made.take_in(PartitionState(1, 5, (ME, B, C)), 1)
    made.epoch_begun(5)
    around.leaving = True
    assert made.hand_over(2)
    assert around.written == [], "it lacks something"
    made.fetch_from(ReplicaFetch(PARTITION, B, 5, 2, 4, 2))
    assert records_written(around) == [PartitionState(2, 6, left)], "by one write, with the very fetch"
    around.took()
    made.take_in(PartitionState(2, 6, left), 2)
    assert bool(around.fetches()) == (ME in left), "a fetch would have it join again"


def test_a_fetch_that_was_refused_is_in_a_hurry_until_the_next() -> None:
    """A leader that is about to begin its epoch refuses; the next one was half a second later."""
    made, _, around = following(4, 4)
    assert made.calm
    made.fetch_answered(ReplicaFetched(PARTITION, 4, 2, 4, ErrorCode.NOT_LEADER_OR_FOLLOWER, None, 0, None))
    around.now_ms += around.settings.retry_ms - 1.0
    made.tick()
    assert (around.fetches(), made.calm) == ([], False)
    around.now_ms += 1.0
    made.tick()
    assert (len(around.fetches()), made.calm) == (1, True)


def test_who_has_left_the_set_comes_back_by_a_fetch_alone() -> None:
    """What it had acknowledged before says nothing of now: its log may be offline, or its process hang."""
    made, _, around = replica_of(4, 4)
    made.take_in(PartitionState(1, 5, (ME, B)), 1)
    made.epoch_begun(5)
    made.fetch_from(ReplicaFetch(PARTITION, B, 5, 2, 4, 2))
    made.take_in(PartitionState(1, 5, (ME,)), 2)
    for _ in range(3):
        made.tick()
    assert around.written == []
    made.fetch_from(ReplicaFetch(PARTITION, B, 5, 2, 4, 2))
    assert records_written(around) == [PartitionState(1, 5, (ME, B))]


def test_what_zookeeper_refuses_is_asked_again_ever_later() -> None:
    made, _, around = replica_of(4, 4)
    state, asked = PartitionState(NO_LEADER, 5, (ME,)), list[object]()
    stat = Stat(1, 0, 0, 0)
    read = {Sync: Done(), Get: Node(encode_state(state), stat), Exists: stat}
    answers = {Multi: MultiFailed(1, Failure.NO_AUTH), **read}

    def ask(request: Multi | Sync | Get | Exists, then: Callable[[Answer], None]) -> None:
        asked.append((type(request).__name__, around.now_ms - 1000.0)) if isinstance(request, Multi) else None
        then(answers[type(request)])

    made._write._ask = ask  # type: ignore[assignment]
    made.take_in(state, 1)
    for _ in range(400):
        around.now_ms += 100.0
        made.tick()
    assert asked == [("Multi", at) for at in (0.0, 500.0, 1500.0, 3500.0, 7500.0, 15500.0, 31500.0)]
