"""What is wanted of logs and cannot be done: nothing stays held, or in another's way, and nothing is hurried."""

from __future__ import annotations

from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from edge_broker.cluster.effects import (
    Append,
    Configure,
    CutDamage,
    Enter,
    LostRange,
    OpenLog,
    OwnUp,
    PassOver,
    RemoveFront,
    Reopen,
    StartAnew,
)
from edge_broker.cluster.state.cluster_state import PartitionId, Topic
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.network.cluster.jobs import follower_jobs, replica_space, topic_jobs, truncation_jobs
from edge_broker.network.cluster.jobs.replica_jobs import ReplicaJobs
from edge_broker.network.cluster.jobs.replica_logs import RETRY_S
from edge_broker.network.cluster.jobs.replica_space import INTERNAL_ROOM_BYTES
from edge_broker.protocol.record_batch import build_batch, read_header
from edge_broker.storage.files import write_throttle
from edge_broker.storage.log.log_writer import Writing
from edge_broker.storage.loss.quarantine import quarantine
from edge_broker.storage.maintenance.disk_watch import DiskStatus
from edge_broker.storage.metadata.topic_record import id_text
from edge_broker.storage.replica.replica_log import Replica
from edge_broker.storage.replica.replica_truncation import hold, release_log
from edge_broker.storage.retention.eviction_plan import Marks
from edge_broker.storage.segment.segment import DamageFound
from edge_broker.testing.site import Site, make_topic
from tests.support.storage import ListLedger, failing, ledgered
from tests.unit.storage.test_replica import of_leader

P = PartitionId("t", 0)
TOPIC_ID = id_text(UUID(int=5))
TOPIC = Topic(TOPIC_ID, ((1, 2), (1, 2)), {})
EVENTS = ("partition_offline", "partition_still_offline", "partition_online")
FULL = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "no space")


def refuse_once(monkeypatch: pytest.MonkeyPatch, module: ModuleType, what: str) -> None:
    """The first time that this is done to a log there is no space."""
    done, tries = getattr(module, what), []

    def does(*arguments: Any) -> Any:
        tries.append(arguments)
        if len(tries) == 1:
            raise FULL
        return done(*arguments)

    monkeypatch.setattr(module, what, does)


class Member:
    """What a member is told."""

    def __init__(self) -> None:
        self.image = SimpleNamespace(topics={"t": TOPIC})
        self.partitions: dict[PartitionId, Any] = {}
        self.told: list[str] = []
        self.hurried: list[PartitionId] = []
        self.busy: list[bool] = []

    def log_opened(self, partition: PartitionId, topic_id: str, replica: Replica, _now_ms: float) -> None:
        self.told.append(f"opened {partition.partition}")
        self.partitions[partition] = SimpleNamespace(leading=None, cutting=None, log=replica)

    def log_obstructed(self, partition: PartitionId, topic_id: str, _now_ms: float) -> None:
        assert topic_id == TOPIC_ID
        self.told.append(f"obstructed {partition.partition}")

    def log_truncated(self, _partition: PartitionId, _now_ms: float) -> None:
        self.told.append("truncated")

    def log_reopened(self, _partition: PartitionId, _now_ms: float) -> None:
        self.told.append("reopened")

    def owned_up(self, _partition: PartitionId, _now_ms: float) -> None:
        self.told.append("owned up")

    def log_moved(self, partition: PartitionId, _now_ms: float) -> None:
        self.told.append("moved")
        self.busy.append(self.partitions[partition].log.busy)

    def tick_until_calm(self, partition: PartitionId) -> None:
        self.hurried.append(partition)

    def losses_recorded(self, _partition: PartitionId, token: int, _now_ms: float) -> None:
        self.told.append(f"entered {token}")


class Board(Site):
    """A board whose member is a test."""

    def __init__(self) -> None:
        super().__init__(in_cluster=True)
        self.member = Member()
        where: Any = self.dispatcher, self.loop, self.member
        self.replicas = ReplicaJobs(self.broker, *where, lambda call: call(0.0))

    def after(self, seconds: float) -> None:
        self.dispatcher.apply()
        self.run_until_idle()
        for _ in range(50):
            self.loop.advance(seconds * 20)
            self.run_until_idle()

    def following(self) -> Replica:
        """A follower with two records."""
        self.replicas.topics.open(OpenLog(P, TOPIC_ID))
        self.after(0)
        self.replicas.follower.append(Append(P, 0, memoryview(of_leader(0, 3, b"a", b"b"))))
        self.after(0)
        replica = self.replicas.logs.replica(P)
        assert replica is not None
        assert (replica.log_end_offset, replica.busy) == (2, False)
        self.member.told.clear()
        self.member.busy.clear()
        return replica

    def cuts(self, token: int = 7) -> None:
        """The member wants the second record to go."""
        self.member.partitions[P].cutting = SimpleNamespace(token=token, lost_from=0, anew=False)
        self.replicas.truncation.enter(Enter(token, P, "truncated", (LostRange(3, 0, 2),)))


@pytest.fixture
def board() -> Board:
    return Board()


def test_what_is_refused_is_fetched_again_a_while_later_and_not_before(board: Board) -> None:
    replica = board.following()
    board.replicas.follower.append(Append(P, 2, memoryview(b"no batch")))
    board.after(RETRY_S * 0.9)
    assert (board.member.told, replica.busy) == ([], True), "nothing is fetched while it is busy"
    board.after(RETRY_S * 0.2)
    assert (board.member.told, board.member.busy) == (["moved"], [False])


def test_a_bug_amid_a_write_takes_the_log_offline_and_leaves_nothing_under_way(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = board.following()
    board.broker.throttle.slow = True

    def fails(_: Writing) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Writing, "run", fails)
    board.replicas.follower.append(Append(P, 2, memoryview(of_leader(2, 3, b"c"))))
    board.after(0)
    assert (replica.online, replica.busy, replica.log_end_offset) == (False, False, 2)
    assert board.member.told == ["moved"]


def test_a_follower_leaves_writes_to_the_worker_where_the_disk_makes_writers_wait_and_takes_them_back(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that leads nothing, too: nobody else measures its disk."""
    replica, throttle = board.following(), board.broker.throttle
    monkeypatch.setattr(board.clock, "seconds", count(0, 0.05).__next__)
    board.replicas.follower.append(Append(P, 2, memoryview(of_leader(2, 3, b"c"))))
    assert throttle.slow
    monkeypatch.setattr(board.clock, "seconds", count(0, 0.0).__next__)
    monkeypatch.setattr(write_throttle, "QUICK_BYTES", 1)
    board.replicas.follower.append(Append(P, 3, memoryview(of_leader(3, 3, b"d"))))
    assert replica.busy
    board.after(0)
    assert (replica.log_end_offset, replica.busy, throttle.slow) == (4, False, False)


@pytest.mark.parametrize("error", [FULL, RuntimeError("a bug"), StorageFault("/data/t-0", 0, "no")])
def test_a_topic_that_cannot_be_made_is_no_topic_in_the_way(
    board: Board, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic, tries = board.store.topic_files.make_topic, []

    def makes(*arguments: Any) -> Any:
        tries.append(arguments)
        if len(tries) < 3:
            raise error
        return make_topic(*arguments)

    monkeypatch.setattr(board.store.topic_files, "make_topic", makes)
    board.replicas.topics.open(OpenLog(P, TOPIC_ID))
    board.after(RETRY_S * 1.5)
    assert (len(tries), board.replicas.topics._works) == (2, {})
    board.after(RETRY_S * 1.5)
    assert (len(tries), board.member.told) == (3, ["opened 0"])
    assert board.replicas.topics._works == {}


def test_a_topic_that_is_deleted_is_not_made_again(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def makes(*arguments: Any) -> Any:
        tries.append(arguments)
        raise FULL

    monkeypatch.setattr(board.store.topic_files, "make_topic", makes)
    board.replicas.topics.open(OpenLog(P, TOPIC_ID))
    board.after(0)
    board.member.image.topics.clear()
    board.after(RETRY_S * 10)
    assert (len(tries), board.replicas.topics._works) == (1, {})


def test_a_configuration_that_was_refused_comes_again_as_it_is_then(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.following()
    write_config, seen = board.store.topic_files.write_config, []

    def writes(topic: Any, config: dict[str, str]) -> Any:
        seen.append(config)
        if len(seen) == 1:
            raise FULL
        return write_config(topic, config)

    monkeypatch.setattr(board.store.topic_files, "write_config", writes)
    old, new = ({"retention.ms": each} for each in ("1000", "2000"))
    board.replicas.topics.configure(Configure("t", old, 2))
    board.member.image.topics["t"] = TOPIC._replace(config=new)
    board.replicas.topics.configure(Configure("t", new, 2))
    board.after(RETRY_S * 3)
    assert seen == [old, new]
    assert board.store.topics["t"].config == new


def test_a_ledger_that_takes_nothing_holds_nothing(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replica may be elected meanwhile, and must lead then."""
    replica = board.following()
    refuse_once(monkeypatch, truncation_jobs, "enter")
    board.cuts()
    board.after(0)
    assert (replica.busy, replica.online, board.member.told) == (False, True, ["moved"])
    board.after(RETRY_S * 2)
    assert board.member.told == ["moved", "entered 7"]


def test_what_is_not_synced_when_a_log_is_held_is_synced_once_it_goes_on(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be elected meanwhile, and nobody may ever append to it."""
    replica = board.following()
    board.replicas.follower.append(Append(P, 2, memoryview(of_leader(2, 3, b"c"))))
    refuse_once(monkeypatch, truncation_jobs, "enter")
    board.cuts()
    monkeypatch.setattr(board.replicas.logs, "call_later", lambda *_: None)  # it is wanted no more
    board.after(0)
    assert (replica.busy, replica.log_end_offset, replica.acknowledged_offset) == (False, 3, 3)


@pytest.mark.parametrize("bug", [False, True])
def test_a_log_that_nobody_can_truncate_is_offline_and_held_no_more(
    board: Board, bug: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = board.following()

    def enters(*_: Any) -> Any:
        raise RuntimeError("a bug") if bug else DamageFound(replica.log.segments[0], 0, "read differently each time")

    monkeypatch.setattr(truncation_jobs, "enter", enters)
    board.cuts()
    board.after(RETRY_S * 10)
    assert (replica.online, replica.busy) == (False, False)
    assert "entered 7" not in board.member.told


def test_what_is_damaged_goes_as_damaged(board: Board) -> None:
    replica = board.following()
    board.after(2)
    assert replica.synced_offset == 2
    segment = replica.log.segments[0]
    segment.file.write(b"\xff" * 9, 8)
    board.cuts()
    board.after(RETRY_S * 3)
    assert (replica.online, board.member.told[-1:]) == (True, ["entered 7"])
    assert segment.corrupt_ranges


def test_a_log_that_was_made_anew_is_not_emptied_in_place_of_the_former(board: Board) -> None:
    replica = board.following()
    board.member.partitions[P] = SimpleNamespace(leading=None, cutting=None, log=object())
    board.replicas.truncation.start_anew(StartAnew(P, 9))
    board.after(0)
    assert (replica.log_start_offset, replica.log_end_offset, replica.busy) == (0, 2, False)


@pytest.mark.parametrize("held", [False, True])
def test_a_log_that_began_anew_amid_a_batch_of_its_leader_takes_it_and_what_follows(board: Board, held: bool) -> None:
    replica = board.following()
    board.replicas.truncation.start_anew(StartAnew(P, 6))
    board.after(0)
    assert (replica.log_start_offset, replica.log_end_offset) == (6, 6)
    board.member.told.clear()
    fetched = of_leader(5, 3, b"c", b"d", b"e") + of_leader(8, 4, b"f")
    if held:
        assert hold(replica.log)
    board.replicas.follower.append(Append(P, 6, memoryview(fetched)))
    if held:
        assert replica.log_end_offset == 6
        release_log(replica.log)
    board.after(1)
    assert (replica.log_start_offset, replica.log_end_offset, replica.synced_offset) == (6, 9, 9)
    assert (replica.busy, replica.epochs.starts) == (False, ((3, 5), (4, 8)))
    assert "moved" in board.member.told
    replica.show(9)
    assert replica.log.reader.read(6, 1 << 16, blocking=True) == fetched


def test_without_space_for_such_a_batch_it_is_fetched_again_a_while_later(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = board.following()
    board.replicas.truncation.start_anew(StartAnew(P, 6))
    board.after(0)
    refuse_once(monkeypatch, follower_jobs, "begin_amid")
    for end in (6, 8):
        board.replicas.follower.append(Append(P, 6, memoryview(of_leader(5, 3, b"c", b"d", b"e"))))
        board.after(RETRY_S * 2)
        assert (replica.online, replica.busy, replica.log_end_offset) == (True, False, end)


def test_a_bug_amid_such_a_batch_takes_the_log_offline(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = board.following()
    board.replicas.truncation.start_anew(StartAnew(P, 6))
    board.after(0)

    def begins(*_: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(follower_jobs, "begin_amid", begins)
    board.replicas.follower.append(Append(P, 6, memoryview(of_leader(5, 3, b"c", b"d", b"e"))))
    board.after(0)
    assert (replica.online, replica.busy, replica.log_end_offset) == (False, False, 6)


def test_what_the_leader_has_removed_goes_as_far_as_it_is_shown(board: Board) -> None:
    replica = board.following()
    board.after(2)
    replica.log.state.show_nothing()
    board.replicas.follower.remove_front(RemoveFront(P, 2))
    board.after(0)
    assert replica.log_start_offset == 0
    replica.show(2)
    board.replicas.follower.remove_front(RemoveFront(P, 2))
    board.after(0)
    assert (replica.log_start_offset, replica.online) == (2, True)
    assert board.broker.led_logs() == frozenset([board.store.ledger_log])


def test_a_full_disk_keeps_replicas_out_until_there_is_room(board: Board) -> None:
    replica = board.following()
    assert not replica.full
    board.broker.space.refusing, board.broker.space.room_bytes = True, -1
    board.replicas.space.look_at_room()
    assert (replica.full, board.replicas.space.kept_out, board.member.hurried) == (True, 1, [P])
    board.replicas.follower.append(Append(P, 2, memoryview(of_leader(2, 3, b"c"))))
    board.after(0)
    assert (replica.log_end_offset, board.member.told, replica.busy) == (2, ["moved"], False)
    board.broker.space.refusing, board.broker.space.room_bytes = False, 1 << 20
    board.replicas.space.look_at_room()
    board.replicas.follower.append(Append(P, 2, memoryview(of_leader(2, 3, b"c"))))
    board.after(0)
    assert (replica.full, replica.log_end_offset) == (False, 3)
    assert board.broker.space.room_bytes < 1 << 20, "a look comes when that is used up"


def test_a_replica_of_an_internal_topic_keeps_out_once_no_byte_is_left_and_follows_again_with_room(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = board.following()
    for module in (follower_jobs, replica_space, topic_jobs):
        monkeypatch.setattr(module, "ALWAYS_WRITTEN", frozenset({P.topic}))
    board.broker.space.refusing = True
    board.replicas.space.look_at_room()
    assert not replica.full, "there is a reserve for it"
    fill_up(board)
    board.replicas.follower.append(Append(P, 2, memoryview(of_leader(2, 3, b"c" * 8192))))
    board.after(0)
    board.member.hurried.clear()
    board.replicas.space.look_at_room()
    assert (replica.full, replica.log_end_offset, board.member.hurried) == (True, 2, [P])
    board.disk.capacity_bytes = None
    looked(board, INTERNAL_ROOM_BYTES - 1)
    board.replicas.space.look_at_room()
    assert replica.full
    looked(board, INTERNAL_ROOM_BYTES)
    board.replicas.space.look_at_room()
    assert not replica.full
    board.replicas.follower.append(Append(P, 2, memoryview(of_leader(2, 3, b"c"))))
    board.after(0)
    assert replica.log_end_offset == 3


def test_a_leader_of_an_internal_topic_has_a_full_disk_once_no_byte_is_left(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = board.following()
    for module in (follower_jobs, replica_space, topic_jobs):
        monkeypatch.setattr(module, "ALWAYS_WRITTEN", frozenset({P.topic}))
    fill_up(board)
    with pytest.raises(Refusal):
        append_as_leader(board, replica)
    board.broker.space.refusing = True
    board.replicas.space.look_at_room()
    assert replica.full
    board.broker.space.refusing = False
    board.replicas.space.look_at_room()
    assert not replica.full


def fill_up(board: Board) -> None:
    """Leave not a byte for what is written next, and have the disk looked at."""
    board.disk.fill(0)
    looked(board, 0)


def looked(board: Board, free: int) -> None:
    """Have a look at the disk find so many bytes free."""
    board.broker.space.status = DiskStatus(1 << 30, free, Marks(1, 1), 0, True, frozenset(), [], [])


def append_as_leader(board: Board, replica: Replica) -> None:
    batch = memoryview(bytearray(build_batch([(None, b"x" * 8192)], timestamp_ms=1)))
    replica.log.writer.append(batch, read_header(batch), board.broker.time.now())


def test_a_replica_takes_nothing_more_than_the_last_look_has_left(board: Board) -> None:
    replica = board.following()
    board.broker.space.room_bytes = -1
    board.replicas.follower.append(Append(P, 2, memoryview(of_leader(2, 3, b"c"))))
    assert (replica.log_end_offset, replica.pauses) == (2, True)
    board.after(0.0)
    assert board.broker.space.room_bytes > 0, "the disk is looked at, at once"


def damaged(board: Board) -> Replica:
    """A follower that has found its second batch to be damaged."""
    replica = board.following()
    board.replicas.follower.append(Append(P, 2, memoryview(of_leader(2, 3, b"c"))))
    board.after(2)
    segment = replica.log.segments[0]
    position = segment.locate(2, segment.size, blocking=True)
    segment.file.write(b"\xff" * 9, position + 65)
    with pytest.raises(StorageFault, match="another replica"):
        quarantine(replica.log, DamageFound(segment, position, "read"))
    board.member.told.clear()
    return replica


def test_a_damaged_log_is_cut_once_nothing_is_under_way(board: Board) -> None:
    replica = damaged(board)
    replica.log.writer.rolling = True
    board.replicas.truncation.cut_damage(CutDamage(P))
    board.after(0)
    assert (replica.log_end_offset, board.member.told) == (3, [])
    replica.log.writer.rolling = False
    board.after(RETRY_S)
    assert (replica.log_end_offset, replica.has_missing, replica.busy) == (2, False, False)
    assert board.member.told == ["truncated"]


def test_an_offline_log_is_back_once_its_disk_lets_it_and_a_second_fault_is_said_again(
    board: Board, capsys: pytest.CaptureFixture[str]
) -> None:
    replica = board.following()
    board.after(2)
    log = replica.log
    board.replicas.logs.fail(P, StorageFault("card", 0, "no answer"))
    board.after(0)
    board.disk.fault = failing("datasync", "/t-0")
    board.replicas.truncation.reopen(Reopen(P, may_recreate=False))
    board.after(0)
    assert (replica.online, board.member.told) == (False, ["reopened"])
    board.disk.fault = None
    board.replicas.truncation.reopen(Reopen(P, may_recreate=False))
    board.after(0)
    assert (replica.online, replica.log_end_offset, board.member.told) == (True, 2, ["reopened"] * 2)
    board.replicas.follower.append(Append(P, 2, memoryview(of_leader(2, 3, b"c"))))
    board.after(2)
    assert replica.synced_offset == 3
    assert board.replicas.logs.replica(P) is replica
    board.replicas.logs.fail(P, StorageFault("card", 0, "again no answer"))
    board.after(0)
    said = capsys.readouterr()
    assert [(said.out + said.err).count(event) for event in EVENTS] == [2, 1, 1]
    assert replica.log is log


def test_nothing_is_opened_of_a_topic_that_was_deleted_meanwhile(board: Board) -> None:
    replica = board.following()
    board.replicas.logs.fail(P, StorageFault("card", 0, "no answer"))
    board.replicas.truncation.reopen(Reopen(P, may_recreate=False))
    board.store.remove_topic("t")
    board.after(0)
    assert not replica.online
    assert board.member.told == ["reopened"]


def test_what_is_lost_is_passed_over_once_nothing_is_under_way(board: Board) -> None:
    replica = board.following()
    replica.log.writer.rolling = True
    board.replicas.truncation.pass_over(PassOver(P, 5, 4))
    board.after(0)
    assert (replica.log_end_offset, board.member.told) == (2, [])
    replica.log.writer.rolling = False
    board.after(RETRY_S)
    assert (replica.log_end_offset, replica.synced_offset, replica.busy) == (5, 5, False)
    assert (board.member.told, ledgered(board.store)) == (["truncated"], [])
    board.replicas.follower.append(Append(P, 5, memoryview(of_leader(5, 4, b"f"))))
    board.after(0)
    assert replica.log_end_offset == 6


def test_what_nobody_has_is_wanted_in_the_ledger_until_it_is_there(board: Board) -> None:
    replica = damaged(board)
    ledger, replica.log.ledger = replica.log.ledger, ListLedger()
    replica.log.ledger.fault = StorageFault("ledger", 0, "full")
    board.replicas.truncation.record_missing(OwnUp(P))
    board.after(RETRY_S * 2)
    assert (replica.has_missing, board.member.told) == (True, ["owned up"]), "the member asks again"
    replica.log.ledger = ledger
    board.replicas.truncation.record_missing(OwnUp(P))
    board.after(0)
    assert (replica.has_missing, replica.log_end_offset) == (False, 3)
    assert ledgered(board.store) == [("damaged", "t", 0, 2, 2)]


def test_a_topic_of_the_disk_that_stays_in_anothers_way_is_told_and_left_as_it_is(board: Board) -> None:
    """As where the ensemble was an old copy, and clients have made a topic anew that it did not know."""
    mine = make_topic(board.store, "t", 1)
    board.replicas.topics.open(OpenLog(P, TOPIC_ID))
    board.replicas.topics.configure(Configure("t", {"retention.ms": "1"}, 2))
    board.after(0)
    assert board.member.told == [], "it may be on its way out"
    board.replicas.topics.note_stray("t", id_text(mine.topic_id))
    board.after(RETRY_S)
    assert set(board.member.told) == {"obstructed 0"}
    (note,) = board.broker.notes["strays"]
    assert "move /data/topics/t.json away" in note
    assert (mine.config, len(mine.partitions)) == ({}, 1), "what is said of the other is not said of it"
