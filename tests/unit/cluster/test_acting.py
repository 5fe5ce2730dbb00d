"""A board acts by a state once its disk has kept it, and a leader counts only members that have kept the same."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from edge_broker.cluster.effects import (
    AdvanceHighWatermark,
    Ask,
    BeginEpoch,
    Effect,
    KeepStates,
    Objects,
    Record,
    RemoveLog,
    Send,
)
from edge_broker.cluster.inter_broker_messages import ReplicaFetch
from edge_broker.cluster.member import ClusterMember, MembershipState
from edge_broker.cluster.partition.partition import LEADS, NOT_KEPT, Role, Settings
from edge_broker.cluster.state.acting import Lines
from edge_broker.cluster.state.cluster_state import (
    LINES_SINCE,
    PROTOCOLS,
    Identity,
    InSyncReplica,
    Objection,
    PartitionId,
    PartitionState,
    Registration,
    Topic,
)
from edge_broker.cluster.state.lines import AT_LEAVING, RECENT, Departure, Line, Relation, next_epoch, relation
from edge_broker.cluster.state.state_keeper import NEVER_REGISTERED, StateKeeper
from edge_broker.cluster.znodes.znode_codec import (
    broker_path,
    decode_registration,
    decode_state,
    deleted_path,
    encode_format,
)
from edge_broker.cluster.znodes.zookeeper import Connected, Create, Exists, Get, Multi, Node, SetData, Stat
from edge_broker.storage.metadata.kept_states import KeptState, LogId
from tests.simulation.cluster_disk import Record as Taken
from tests.simulation.cluster_disk import SimLog

P = PartitionId("t", 0)
LOG = LogId("id", 0)
TOPIC = Topic("id", ((1, 2, 3),), {"min.insync.replicas": "2"})
ME, B, C = (InSyncReplica(number, f"disk {number}", 4 + number) for number in (1, 2, 3))
FIRST = Line("first", 1)


class Board:
    """Board 1 of three, with two records of epoch 4, whose disk keeps states when a test says so."""

    def __init__(self, kept: KeptState | None = None, protocols: tuple[int, int] = PROTOCOLS) -> None:
        numbers = count(1)
        self.member = ClusterMember(
            Identity(1, "disk 1", (5,), "site"),
            Settings(),
            kept={} if kept is None else {LOG: kept},
            new_state_id=lambda: f"of 1: {next(numbers)}",
        )
        self.now_ms = 1_000.0
        self.member.event_received(Connected(7, 6_000), self.now_ms)
        self.member.standing, self.member.image.is_complete = MembershipState.SERVING, True
        for each in (ME, B, C):
            self.member.image.registrations[each.broker] = Registration(
                each.broker, each.epoch, each.directory, protocols=protocols if each == C else PROTOCOLS
            )
        self.member.brokers_changed()
        self.member.image.topics["t"] = TOPIC
        self.member.topic_changed("t")
        self.member._lease.session_proved(self.now_ms)  # the ensemble's leader has answered
        self.log = SimLog(synced=True)
        self.log.append((Taken(4, 0), Taken(4, 1)))
        self.log.restart()
        self.member.log_opened(P, "id", self.log, self.now_ms)
        self.took()

    def took(self) -> list[Effect]:
        found, self.member.effects = self.member.effects, []
        return found

    def reads(self, state: PartitionState, version: int = 1) -> list[Effect]:
        self.member.state_read(P, state, version)
        return self.took()

    def keeps(self, *, done: bool = True) -> list[Effect]:
        self.member.states_kept(self.now_ms, done=done)
        return self.took()

    def leads(self, state: PartitionState, version: int = 1) -> None:
        self.reads(state, version)
        assert BeginEpoch(P, state.leader_epoch) in self.keeps()
        self.member.epoch_begun(P, state.leader_epoch, self.now_ms)
        self.took()

    def hears(self, follower: InSyncReplica, state_id: str, offset: int = 2, epoch: int = 4) -> list[Effect]:
        fetch = ReplicaFetch(P, follower, epoch, offset, 4, offset, state_id=state_id)
        self.member.fetch_from(fetch, self.now_ms)
        return self.took()

    @property
    def written(self) -> PartitionState:
        """The state that it has asked to be written."""
        (found,) = [each.request for each in self.took() if isinstance(each, Ask) and isinstance(each.request, Multi)]
        write = found.operations[-1]
        assert isinstance(write, SetData)
        return decode_state(P, Node(write.data, Stat(1, 1, 1, 0)))


LED = PartitionState(1, 4, (ME, B), line=FIRST)


def test_no_epoch_begins_before_the_disk_has_kept_its_state() -> None:
    board = Board()
    effects = board.reads(LED)
    assert [each.states for each in effects if isinstance(each, KeepStates)] == [{LOG: KeptState("first", 1, True)}]
    assert not [each for each in effects if isinstance(each, BeginEpoch)]
    assert BeginEpoch(P, 4) in board.keeps()


def test_a_follower_fetches_and_acknowledges_once_its_disk_has_kept_the_state() -> None:
    board = Board()
    state = LED._replace(leader=2)
    assert not [each for each in board.reads(state) if isinstance(each, Send)]
    (sent,) = [each.message for each in board.keeps() if isinstance(each, Send)]
    assert isinstance(sent, ReplicaFetch)
    assert sent.state_id == "first"


def test_a_leader_counts_no_member_that_has_kept_another_state() -> None:
    board = Board()
    board.leads(LED)
    assert AdvanceHighWatermark(P, 2) not in board.hears(B, "before")
    assert AdvanceHighWatermark(P, 2) not in board.hears(B, ""), "no broker of an older release is registered"
    assert AdvanceHighWatermark(P, 2) in board.hears(B, "first")


def test_after_a_change_a_leader_counts_nothing_before_its_own_disk_has_kept_it() -> None:
    board = Board()
    board.leads(LED)
    board.reads(LED._replace(in_sync=(ME, B, C), line=Line("second", 2, ("first",))), 2)
    assert AdvanceHighWatermark(P, 2) not in [*board.hears(B, "second"), *board.hears(C, "second")]
    assert AdvanceHighWatermark(P, 2) in board.keeps()


def test_who_has_kept_another_state_does_not_join() -> None:
    board = Board()
    board.leads(LED)
    board.hears(B, "first")
    for state_id in ("before", ""):
        assert not [each for each in board.hears(C, state_id) if isinstance(each, Ask)]
    board.member.fetch_from(ReplicaFetch(P, C, 4, 2, 4, 2, state_id="first"), board.now_ms)
    assert board.written.in_sync == (ME, B, C)


def test_beside_an_older_release_members_without_a_kept_state_count() -> None:
    board = Board(protocols=(1, LINES_SINCE - 1))
    state = PartitionState(1, 4, (ME, C))
    assert BeginEpoch(P, 4) in board.reads(state), "nothing is kept of a state without a line"
    board.member.epoch_begun(P, 4, board.now_ms)
    assert AdvanceHighWatermark(P, 2) in board.hears(C, "")
    board.member.fetch_from(ReplicaFetch(P, B, 4, 2, 4, 2), board.now_ms)
    assert not board.written.line.is_marked


@pytest.mark.parametrize("version", [1, 7])
def test_a_board_of_another_line_neither_leads_nor_truncates_and_says_so_once(version: int) -> None:
    board = Board(KeptState("newer", 9, named=True))
    board.reads(LED, version)
    partition = board.member.partitions[P]
    assert partition.role is Role.IDLE
    board.member.tick(board.now_ms)
    state = LED._replace(objections=(Objection(1, "newer"),), line=Line("of 1: 1", 2, ("first",)))
    effects = board.reads(state, version + 1)
    assert Objects(P, Relation.OLDER) in effects
    for _ in range(5):
        board.member.tick(board.now_ms)
    assert not [each for each in board.took() if isinstance(each, Objects | BeginEpoch | Send)]


def test_nobody_acts_while_another_board_objects() -> None:
    board = Board(KeptState("first", 1, named=True))
    objected = LED._replace(objections=(Objection(2, "newer"),))
    assert not [each for each in board.reads(objected) if isinstance(each, BeginEpoch | Objects)]
    assert board.member.partitions[P].role not in LEADS


def test_a_leader_steps_down_as_another_board_objects() -> None:
    board = Board()
    board.leads(LED)
    board.reads(LED._replace(objections=(Objection(2, "newer"),)), 2)
    assert board.member.partitions[P].role is Role.IDLE


def test_a_disk_that_refuses_a_state_is_asked_again_after_a_while() -> None:
    board = Board()
    board.reads(LED)
    assert not [each for each in board.keeps(done=False) if isinstance(each, BeginEpoch)]
    board.member.tick(board.now_ms + 10)
    assert not [each for each in board.took() if isinstance(each, KeepStates)]
    board.member.tick(board.now_ms + 2_000)
    assert [each for each in board.took() if isinstance(each, KeepStates)]
    assert BeginEpoch(P, 4) in board.keeps()


def test_a_leader_whose_disk_does_not_keep_a_change_lets_another_one_lead() -> None:
    board = Board()
    board.leads(LED)
    board.hears(B, "first")
    board.reads(LED._replace(in_sync=(ME, B, C), line=Line("second", 2, ("first",))), 2)
    board.hears(B, "second")
    board.member.tick(board.now_ms)
    board.took()
    assert board.member.partitions[P].role is Role.LEADING, "the write may succeed yet"
    board.keeps(done=False)
    board.member.tick(board.now_ms + 1)
    written = board.written
    assert (written.leader, written.leader_epoch) == (2, 7)


def test_a_follower_with_a_full_disk_hears_where_the_log_starts_before_its_state_is_kept() -> None:
    board = Board()
    board.log.full = True
    (sent,) = [each.message for each in board.reads(LED._replace(leader=2)) if isinstance(each, Send)]
    assert isinstance(sent, ReplicaFetch)
    assert (sent.keeps_out, sent.state_id) == (True, NOT_KEPT)


def test_a_session_with_the_epoch_of_the_one_before_is_recorded() -> None:
    """Zxids may repeat after an older copy was put back."""
    board = Board()
    board.member.standing = MembershipState.REGISTERING
    for _ in range(2):
        board.member._has_epoch(Stat(0, 77, 77, 0))
        board.keeps() if [each for each in board.took() if isinstance(each, KeepStates)] else None
        board.member.epoch_recorded(77, board.now_ms)
    assert board.member.identity.epochs[-2:] == (77, 77)


def test_a_registration_is_recorded_once_the_file_of_kept_states_names_it() -> None:
    board = Board()
    board.member.standing = MembershipState.REGISTERING
    board.member._has_epoch(Stat(0, 9, 9, 0))
    assert board.took() == [KeepStates({}, 9)]
    assert not [each for each in board.keeps(done=False) if isinstance(each, Record)]
    board.member.tick(board.now_ms + 2_000)
    assert KeepStates({}, 9) in board.took()
    assert Record(9, "site") in board.keeps()


def test_what_is_kept_of_a_log_goes_with_it() -> None:
    board = Board()
    board.leads(LED)
    del board.member.image.topics["t"]
    board.member.topic_changed("t")
    (asked,) = [each for each in board.took() if isinstance(each, Ask)]
    assert asked.request == Exists(deleted_path("id"))
    board.member.answer_received(asked.token, Stat(0, 1, 1, 0), board.now_ms)
    effects = board.took()
    assert RemoveLog(P, "id") in effects
    assert KeepStates({}, NEVER_REGISTERED) in effects


def test_new_partitions_begin_a_line_unless_an_older_release_is_there() -> None:
    def first(protocols: tuple[int, int]) -> bool:
        board = Board(protocols=protocols)
        board.member.controller.make_topic("u", TOPIC, board.member.registrations, lambda error: None)
        asked = next(each.request for each in board.took() if isinstance(each, Ask))
        assert isinstance(asked, Multi)
        create = asked.operations[-1]
        assert isinstance(create, Create)
        return decode_state(PartitionId("u", 0), Node(create.data, Stat(1, 1, 1, 0))).line.is_marked

    assert first(PROTOCOLS)
    assert not first((1, LINES_SINCE - 1))


@pytest.mark.parametrize("knows_lines", [True, False])
def test_a_broker_that_knows_no_lines_says_so(knows_lines: bool) -> None:
    new_id: Callable[[], str] | None = (lambda: "an id") if knows_lines else None
    member = ClusterMember(Identity(1, "disk 1", (5,), "site"), Settings(), new_state_id=new_id)
    member.event_received(Connected(7, 6_000), 1.0)
    (asked,) = [each for each in member.effects if isinstance(each, Ask) and isinstance(each.request, Get)]
    member.answer_received(asked.token, Node(encode_format("site"), Stat(1, 1, 1, 0)), 1.0)
    create = next(
        each.request
        for each in member.effects
        if isinstance(each, Ask) and isinstance(each.request, Create) and each.request.path == broker_path(1)
    )
    registered = decode_registration(1, Node(create.data, Stat(1, 1, 1, 0)))
    assert registered.protocols == (PROTOCOLS if knows_lines else (PROTOCOLS[0], LINES_SINCE - 1))


# boards that were off


@pytest.mark.parametrize("restarts", [1, AT_LEAVING + 1, RECENT * 3])
def test_a_board_that_was_off_and_could_not_leave_the_set_acts(restarts: int) -> None:
    """Board 2 starts again and again while the set cannot become smaller: it is no older copy for board 1."""
    lines = Lines(
        Identity(2, "disk 2"), StateKeeper({}, lambda states, epoch: None), map("state {}".format, count()).__next__
    )
    lines.older_release = False
    state = LED
    kept = KeptState("first", 1, named=True)
    for number in range(restarts):
        me = B._replace(epoch=100 + number)
        claim = state._replace(leader=2, leader_epoch=4 + number, in_sync=(ME, me))
        state = lines.following(state, claim, {2: Registration(2, me.epoch, me.directory)})
    assert relation(kept, state.line) is Relation.SUCCESSOR
    back = ME._replace(epoch=1_000)
    registered = {1: Registration(*back[::2], back.directory), 2: Registration(*me[::2], me.directory)}
    state = lines.following(state, state._replace(in_sync=(back, me)), registered)
    assert state.line.departures == (), "it is in sync again"


@pytest.mark.parametrize("is_away", [True, False])
def test_an_old_image_of_a_card_is_no_older_copy_of_zookeepers_data(is_away: bool) -> None:
    """Board 1 gets the image of a card that it had long ago; meanwhile it acted with a newer card."""
    kept, newer = KeptState("s3", 3, named=True), ME._replace(epoch=50)
    ids = tuple(f"s{number}" for number in range(100, 132))
    left = (Departure(1, ids[:AT_LEAVING], 115),) if is_away else ()
    state = PartitionState(2, 9, (B,) if is_away else (newer, B), line=Line("s132", 132, ids, left))
    lines = Lines(Identity(1, "disk 1", (5, 60)), StateKeeper({LOG: kept}, lambda states, epoch: None), str)
    lines.older_release = False
    assert lines.may_act(LOG, state)


@pytest.mark.parametrize("height", [100, 108, 140])
def test_a_copy_that_was_written_to_often_is_found_by_when_the_board_left(height: int) -> None:
    """Board 1 went on after the copy of height 99, by a state that the written copy does not have."""
    ids = tuple(f"t{number}" for number in range(200, 232))
    left = Departure(1, tuple(f"s{number}" for number in range(85, 101)), 100)
    state = PartitionState(2, 9, (B,), line=Line("t232", 232, ids, (left,)))
    kept = KeptState(f"of the lost line: {height}", height, named=True)
    lines = Lines(Identity(1, "disk 1", (5, 60)), StateKeeper({LOG: kept}, lambda states, epoch: None), str)
    lines.older_release = False
    assert not lines.may_act(LOG, state)


# epochs


def test_no_two_replicas_have_an_epoch_in_common() -> None:
    replicas = (7, 3, 5)
    for epoch in range(40):
        found = {leader: next_epoch(epoch, leader, replicas) for leader in replicas}
        assert len(set(found.values())) == len(replicas)
        assert set(found.values()) == {epoch + 1, epoch + 2, epoch + 3}
        assert all(each % 3 == replicas.index(leader) for leader, each in found.items())
        assert next_epoch(epoch, -1, replicas) == epoch + 1


def test_a_claim_is_of_an_epoch_that_its_log_does_not_know_yet() -> None:
    """As where the file of kept states was removed: the disk may have led in epochs that the state does not know."""
    board = Board()
    board.log.epochs.note(9, 2)
    del board.member.image.registrations[3]
    board.member.image._newest[3] = 7
    board.member.state_read(P, LED._replace(leader=3, in_sync=(ME, C)), 1)
    claimed = board.written
    assert (claimed.leader, claimed.leader_epoch) == (1, 12)


# beside a rebuild of the znodes

BASE = 1 << 44
REBUILT = PartitionState(-1, 1 << 20, (ME, B))
BEFORE = KeptState("of the lost ensemble", 900, named=True)


def rebuilt(kept: KeptState | None, base: int = BASE) -> Board:
    """Board 1, whose ensemble has this base of epochs."""
    board = Board(kept)
    assert board.member.lines is not None
    board.member.lines.epoch_base = base
    return board


@pytest.mark.parametrize("kept", [BEFORE, BEFORE._replace(named=False), BEFORE._replace(epoch_base=BASE - 1), None])
def test_after_a_rebuild_a_board_acts_by_the_new_znodes_whatever_it_had_kept(kept: KeptState | None) -> None:
    board = rebuilt(kept)
    board.member.state_read(P, REBUILT, 0)
    board.member.states_kept(board.now_ms, done=True) if kept is not None else None
    claimed = board.written
    assert (claimed.leader, claimed.objections) == (1, ())
    assert claimed.line == Line("of 1: 1", 1), "the new ensemble's line begins"


def test_after_a_rebuild_a_board_acts_by_what_another_one_has_made_of_the_new_znodes() -> None:
    board = rebuilt(BEFORE)
    state = REBUILT._replace(leader=2, leader_epoch=(1 << 20) + 1, line=Line("of 2: 1", 1))
    (kept,) = [each.states for each in board.reads(state) if isinstance(each, KeepStates)]
    assert kept == {LOG: KeptState("of 2: 1", 1, named=True, epoch_base=BASE)}
    assert [each for each in board.keeps() if isinstance(each, Send)], "it follows"


def test_a_state_that_waits_for_its_losses_to_be_in_the_ledger_is_not_touched() -> None:
    """Its version is the first one: by it the board that writes the losses down replaces it."""
    board = rebuilt(BEFORE)
    board.member.state_read(P, REBUILT._replace(in_sync=()), 0)
    asked = [each for each in board.took() if isinstance(each, Ask) and isinstance(each.request, Multi)]
    assert asked == []


@pytest.mark.parametrize("line", [Line(), Line("of the lost ensemble", 900), Line("other", 950, ("of 1",))])
def test_the_znodes_of_before_a_rebuild_are_an_older_copy(line: Line) -> None:
    board = rebuilt(BEFORE._replace(epoch_base=BASE), base=0)
    board.member.state_read(P, LED._replace(line=line), 7)
    assert board.written.objections == (Objection(1, "of the lost ensemble"),)


def test_an_older_copy_of_the_rebuilt_znodes_is_found() -> None:
    """Put back as they were before any board had changed them: they have no line yet."""
    board = rebuilt(KeptState("of 2: 1", 1, named=True, epoch_base=BASE))
    board.member.state_read(P, REBUILT, 0)
    assert board.written.objections == (Objection(1, "of 2: 1"),)
