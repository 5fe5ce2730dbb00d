"""Small cards at the end of a schedule, when nothing else fails: who leads then, who evicts, and how much.

| act | must follow |
|---|---|
| a leader's card is full, others have room | others lead, nothing is evicted; it gets no lead back on request |
| a leader dies, and the next in line is full | a replica with room claims |
| the followers' cards are full, the leader has room | it evicts in small steps, until one of them is in sync again |
| cards of the leader and of one follower are full | the leader evicts for itself |

A card holds so many records (`limits`); each board looks as `storage/maintenance/disk_watch.py` does. An eviction while
`min.insync.replicas` boards have had room for HEARD_MS is a violation.

Does not contain: the schedule's other faults (cluster_runs.py), bytes and marks (tests/unit/storage).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, Protocol

from edge_broker.broker.cluster.replication import Replication
from edge_broker.cluster.inter_broker_messages import HandOver
from edge_broker.cluster.member import MembershipState
from edge_broker.cluster.partition.partition import LEADS
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.storage.shared_log_parts import WRITTEN_ON
from tests.simulation.cluster_checks import Violation
from tests.simulation.cluster_world import SESSION_MS, SETTINGS, Board, Process, World

LOOK_MS = 80.0
STEP_FOR_OTHERS_MS = 600.0
HEARD_MS = 800.0  # until leaders know who has room
WAY_MS = 4000.0  # within which a full board leads nothing
LEAD_BACK_MS = 3000.0
RECORDS = 32  # at least, in each log
NEEDED = 2


class Ending(Protocol):
    """What the end of a schedule offers."""

    seed: int
    world: World

    def wait(self, what: str, condition: Callable[[], bool], within_ms: float = ...) -> None:
        """Let time pass until this holds, or it is a violation."""

    def pass_time(self, ms: float) -> None:
        """Let everything go on."""

    def recovered(self) -> bool:
        """Whether every replica of every partition is in sync."""

    def quiet(self) -> bool:
        """Whether all is replicated, and nothing is being written."""

    def all_answer(self, answered: set[PartitionId]) -> bool:
        """Produce to everybody who has not answered yet, now and then; whether all have."""

    def produce(self, partition: PartitionId, *, all_in_sync: bool, done: Callable[[], None] = ...) -> None:
        """A batch, to somebody who believes that it leads."""


class SmallCards:
    """The end of one schedule, with small cards; `needed` is min.insync.replicas."""

    def __init__(self, schedule: Ending, needed: int) -> None:
        self._schedule, self._world, self._needed = schedule, schedule.world, needed
        self._dice = Random(f"small cards {schedule.seed}")
        self._limits: dict[Board, int] = {}
        self._room_since: dict[Board, float] = {}
        self._stepped_ms: dict[Board, float] = {}
        self._watch: Callable[[], None] = lambda: None
        self._looking = True
        self.evicted = 0

    def run(self) -> None:
        """Do one of the acts of the table, as the seed decides."""
        self._fill_logs()
        act = self._dice.choice(self._acts)
        self._world.note(f"- small cards: {act.__name__}")
        self._look()
        act()
        self._looking = False
        for board in self._world.boards:
            board.disk.fill(full=False)
        self._schedule.wait("boards with room again are in sync", self._schedule.recovered)

    # acts

    @property
    def _acts(self) -> list[Callable[[], None]]:
        acts = [self._leader_is_full]
        if self._needed == NEEDED:
            acts += [self._next_in_line_is_full, self._followers_are_full, self._leader_and_follower_are_full]
        return acts

    def _leader_is_full(self) -> None:
        _, leader = self._a_leader()
        self._limits[leader] = self._used(leader) * 7 // 8
        self._schedule.wait("a full board leads nothing", lambda: not self._leads_any(leader), WAY_MS)
        self._schedule.wait("a full board is in no in-sync set", lambda: not self._is_named(leader), WAY_MS)
        self._acked("with a full board")
        del self._limits[leader]
        self._schedule.wait("the board with room again is in sync", self._schedule.recovered)
        self._watch = lambda: self._gets_no_lead_back(leader)
        for each in self._partitions:
            self._request_lead(each, leader)
        self._schedule.pass_time(LEAD_BACK_MS)
        self._watch = lambda: None

    def _next_in_line_is_full(self) -> None:
        partition, leader = self._a_leader()
        state = self._world.state(partition)
        assert state is not None
        others = [each for each in self._replicas(partition) if each is not leader]
        full, epoch = others[0], state.leader_epoch
        self._limits[full] = self._used(full) // 2
        full.disk.fill(full=True)
        leader.kill()

        def claimed() -> None:
            now = self._world.state(partition)
            if now is not None and now.leader_epoch == epoch + 1 and now.leader == full.number:
                raise Violation(f"board {full.number} on a full card claims {partition} before others with room")

        self._watch = claimed
        self._schedule.wait("another board leads", lambda: self._epoch(partition) > epoch, 10 * SESSION_MS)
        self._watch = lambda: None
        del self._limits[full]
        leader.start()

    def _followers_are_full(self) -> None:
        partition, leader = self._a_leader()
        followers = [each for each in self._replicas(partition) if each is not leader]
        before = self.evicted
        for each in followers:
            self._limits[each] = self._used(each) * 3 // 4
        self._schedule.pass_time(3 * LOOK_MS)
        self._schedule.wait("a full follower has room again", lambda: any(not each.disk.is_full for each in followers))
        self._acked("beside full followers")
        held = sum(self._used(each) for each in (leader, *followers))
        if self.evicted - before > held // 2:
            raise Violation(f"{self.evicted - before} records were evicted for followers, and {held} are left")

    def _leader_and_follower_are_full(self) -> None:
        partition, leader = self._a_leader()
        follower = next(each for each in self._replicas(partition) if each is not leader)
        for each in (leader, follower):
            self._limits[each] = self._used(each) * 3 // 4

        def has_room() -> bool:
            return not (leader.disk.is_full and self._leads_any(leader))

        self._schedule.wait("a full leader has room, or leads nothing", has_room, 2 * WAY_MS)
        self._acked("beside two full boards")

    # what boards do

    def _look(self) -> None:
        if not self._looking:
            return
        self._world.later(LOOK_MS, self._look)
        for board in self._world.boards:
            process = board.process
            if process is not None and not process.paused:
                process.run(lambda process=process: self._look_at(process))  # type: ignore[misc]
        for board in self._world.boards:
            if board.disk.is_full or not serves(board):
                self._room_since.pop(board, None)
            else:
                self._room_since.setdefault(board, self._world.now_ms)
        self._watch()

    def _look_at(self, process: Process) -> None:
        """As DiskWatch: what this board leads is evicted for itself where it spares nothing, then for others."""
        board, member = process.board, process.member
        member.now_ms = process.now_ms
        led = [each for each, found in member.partitions.items() if found.role in LEADS]
        led = [each for each in led if each.topic not in WRITTEN_ON]
        shell: Any = SimpleNamespace(
            _member=member,
            _now_ms=lambda: process.now_ms,
            _replicas=SimpleNamespace(replica=lambda partition: SimpleNamespace(log=partition)),
        )
        excess = self._used(board) - self._limits.get(board, 1 << 60)
        if excess > 0 and not Replication.has_spare_replicas(shell):
            for each in led:
                if excess > 0:
                    self._evict(process, each, process.log(each).log_start_offset + excess, but=board)
                    excess = self._used(board) - self._limits[board]
        board.disk.fill(full=excess > 0)
        if self._world.now_ms < self._stepped_ms.get(board, 0.0) + STEP_FOR_OTHERS_MS:
            return
        wanted: Any = Replication.eviction_offsets(shell)
        for each, offset in wanted.items():
            self._stepped_ms[board] = self._world.now_ms
            self._evict(process, each, offset)

    def _evict(self, process: Process, partition: PartitionId, offset: int, but: Board | None = None) -> None:
        """Evict for others, or for one board `but` for whose room it is."""
        self._check_room(process, partition, but)
        log, before = process.log(partition), process.log(partition).log_start_offset
        values = [record.value for record in log.records[before:offset]]
        removed = self._world.checks.expired & set(values)  # by an earlier leader's retention, which was followed
        process.remove_below(partition, offset)
        self.evicted += sum(value not in removed for value in values[: log.log_start_offset - before])

    def _check_room(self, process: Process, partition: PartitionId, but: Board | None) -> None:
        heard = self._world.now_ms - HEARD_MS
        others = [each for each in self._replicas(partition) if each is not but]
        room = [each for each in others if self._room_since.get(each, heard + 1) <= heard]
        if len(room) >= self._needed:
            numbers = [each.number for each in room]
            raise Violation(f"board {process.board.number} evicts {partition}, though boards {numbers} have room")

    def _gets_no_lead_back(self, board: Board) -> None:
        for each in self._partitions:
            state = self._world.state(each)
            if state is not None and state.leader == board.number:
                raise Violation(f"board {board.number} leads {each} again on request, and was full a moment ago")

    # what there is

    @property
    def _partitions(self) -> list[PartitionId]:
        return [where.partition for where in self._world.current]

    def _replicas(self, partition: PartitionId) -> list[Board]:
        _, found = next(self._world.replicas_of(partition))
        return [self._world.board(number) for number in found.replicas]

    def _a_leader(self) -> tuple[PartitionId, Board]:
        partition = self._dice.choice(self._partitions)
        return partition, self._world.leaders(partition)[0].board

    def _used(self, board: Board) -> int:
        process = board.process
        logs = [process.log(each) for each in process.member.partitions] if process is not None else []
        return sum(log.log_end_offset - log.log_start_offset for log in logs)

    def _epoch(self, partition: PartitionId) -> int:
        state = self._world.state(partition)
        return state.leader_epoch if state is not None else -1

    def _leads_any(self, board: Board) -> bool:
        return any(board is each.board for one in self._partitions for each in self._world.leaders(one))

    def _is_named(self, board: Board) -> bool:
        """In a set that is large enough without it."""
        for each in self._partitions:
            state = self._world.state(each)
            if state is not None and state.entry(board.number) and len(state.in_sync) > self._needed:
                return True
        return False

    def _request_lead(self, partition: PartitionId, to: Board) -> None:
        for process in self._world.leaders(partition):
            message = HandOver(partition, to.number)
            process.run(lambda process=process, sent=message: process.member.message_received(sent, process.now_ms))  # type: ignore[misc]

    def _acked(self, when: str) -> None:
        answered: set[PartitionId] = set()
        self._schedule.wait(f"a record is acked everywhere {when}", lambda: self._schedule.all_answer(answered))

    def _fill_logs(self) -> None:
        """Let each log hold some records."""
        self._schedule.wait("logs have records", self._have_records)
        self._schedule.wait("nothing is under way", self._schedule.quiet)

    def _have_records(self) -> bool:
        few = [each for each in self._partitions if not self._has_records(each)]
        for each in few:
            self._schedule.produce(each, all_in_sync=True)
        return not few

    def _has_records(self, partition: PartitionId) -> bool:
        leaders = self._world.leaders(partition)
        if not leaders:
            return False
        log = leaders[0].log(partition)
        return log.log_end_offset - log.log_start_offset >= RECORDS


def serves(board: Board) -> bool:
    """Return whether its process is registered, so that leaders may know of its room."""
    return board.process is not None and board.process.member.standing is MembershipState.SERVING


assert SETTINGS.lag_ms_max > HEARD_MS
