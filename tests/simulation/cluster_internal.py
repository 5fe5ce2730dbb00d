"""An internal topic beside the ordinary one at the end of a schedule, on full cards: nothing of it goes, it goes on.

| act | must follow |
|---|---|
| its leader's card is full up to the broker's marks | its records are acked there; others lead the ordinary topic |
| the followers' cards are full up to the marks | the same; what the leader evicts for them is of the ordinary topic |
| not a byte is left on its leader's card | another board leads, and acks |
| the same, and the next leader dies | a board with room acks once that one is back |
| not a byte is left on the followers' cards | it acks again once one has room |

Whatever happens, no record of it goes from any log: it is compacted, and no budget takes from it. Keys differ, so that
compaction has nothing to take.

Does not contain: what a broker does on such a card (cluster_room.py), compaction (compacted.py).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.storage.metadata.topic_record import OFFSETS_TOPIC
from tests.simulation.cluster_cards import LOOK_MS, NEEDED, WAY_MS, Ending, SmallCards
from tests.simulation.cluster_checks import Violation
from tests.simulation.cluster_world import SESSION_MS, Board

COMMITS = PartitionId(OFFSETS_TOPIC, 0)
LATER_MS = 1500.0


class InternalTopics(SmallCards):
    """A third end of a schedule; `needed` is min.insync.replicas."""

    def __init__(self, schedule: Ending, needed: int) -> None:
        super().__init__(schedule, needed)
        self._dice = Random(f"internal topics {schedule.seed}")

    def run(self) -> None:
        """Make the topic, and do one of the acts of the table."""
        self._world.make_internal_topic(self._needed)
        self._schedule.wait("an internal topic is in sync", self._schedule.recovered)
        super().run()
        self._nothing_is_gone()

    @property
    def _acts(self) -> list[Callable[[], None]]:
        acts = [self._leader_is_full_to_the_marks, self._no_byte_is_left]
        if self._needed == NEEDED:
            acts += [self._followers_are_full_to_the_marks, self._no_byte_is_left_and_the_next_leader_dies]
            acts += [self._no_byte_is_left_to_followers]
        return acts

    # acts

    def _leader_is_full_to_the_marks(self) -> None:
        leader = self._leader()
        self._limits[leader] = self._used(leader) * 7 // 8
        self._schedule.wait("the card is full", lambda: leader.disk.is_full)
        self._commits_go_on("on a card that is full to the marks")
        if self._leader() is not leader:
            raise Violation(f"board {leader.number} is full to its marks, and leads {COMMITS} no more")

    def _followers_are_full_to_the_marks(self) -> None:
        for each in self._followers():
            self._limits[each] = self._used(each) * 3 // 4
        self._schedule.pass_time(3 * LOOK_MS)
        self._commits_go_on("beside cards that are full to the marks")
        self._acked("beside cards that are full to the marks")

    def _no_byte_is_left(self) -> None:
        leader = self._leader()
        leader.no_byte_left = True
        self._commits_go_on("where the leader has not a byte left", 2 * WAY_MS)
        if self._leader() is leader:
            raise Violation(f"board {leader.number} has not a byte left, and leads {COMMITS}")
        self._room_again()

    def _no_byte_is_left_and_the_next_leader_dies(self) -> None:
        leader = self._leader()
        leader.no_byte_left = True
        self._schedule.pass_time(self._dice.random() * LATER_MS)
        heir = next(each for each in self._followers() if each is not leader)
        heir.cut_power() if self._world.synced and self._dice.random() < 0.5 else heir.kill()
        self._schedule.pass_time(self._dice.random() * 3 * SESSION_MS)
        heir.start()
        self._commits_go_on("where the next leader was off for a while")
        self._room_again()

    def _no_byte_is_left_to_followers(self) -> None:
        followers = self._followers()
        for each in followers:
            each.no_byte_left = True
        for _ in range(4):
            self._schedule.produce(COMMITS, all_in_sync=self._dice.random() < 0.5)
            self._schedule.pass_time(self._dice.random() * LATER_MS / 2)
        self._dice.choice(followers).no_byte_left = False
        self._commits_go_on("where one of two followers has room again")
        self._room_again()

    # what they share

    def _commits_go_on(self, when: str, within_ms: float = 3 * WAY_MS) -> None:
        acked: list[bool] = []

        def is_acked() -> bool:
            if self._dice.random() < 0.1:
                self._schedule.produce(COMMITS, all_in_sync=True, done=lambda: acked.append(True))
            return bool(acked)

        self._schedule.wait(f"a commit is acked {when}", is_acked, within_ms)

    def _room_again(self) -> None:
        for board in self._world.boards:
            board.no_byte_left = False
        self._schedule.wait("who had not a byte left is in sync again", self._schedule.recovered)

    def _leader(self) -> Board:
        self._schedule.wait("an internal topic is led", lambda: bool(self._world.leaders(COMMITS)))
        return self._world.leaders(COMMITS)[0].board

    def _followers(self) -> list[Board]:
        return [each for each in self._replicas(COMMITS) if each is not self._leader()]

    def _nothing_is_gone(self) -> None:
        for process, _ in self._world.replicas_of(COMMITS):
            if start := process.log(COMMITS).log_start_offset:
                raise Violation(f"board {process.board.number} has nothing of {COMMITS} before offset {start}")
