"""Small cards while the leader changes: what one leader knew of full disks, the next one must know, too.

| act | must follow |
|---|---|
| a card was full until a moment ago, and another leader begins | its board gets no lead on request, whoever leads |
| the same, and the board restarts under a leader that has heard of it | the same |
| the followers' cards are full, and the leader restarts | one with room leads again; few records are evicted |
| the leader's card is full, and the next leader dies at once | another one leads; few records are evicted |

A request is repeated every ASK_MS, so that one arrives before, amid and after the first fetches of an epoch.

Does not contain: one leader beside small cards (cluster_cards.py), claims: one that was full claims in its turn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from edge_broker.cluster.state.cluster_state import PartitionId
from tests.simulation.cluster_cards import HEARD_MS, LEAD_BACK_MS, LOOK_MS, NEEDED, WAY_MS, Ending, SmallCards
from tests.simulation.cluster_checks import Violation
from tests.simulation.cluster_world import SESSION_MS, Board

ASK_MS = 20.0


class ChangingLeaders(SmallCards):
    """A second end of a schedule, after SmallCards; `needed` is min.insync.replicas."""

    def __init__(self, schedule: Ending, needed: int) -> None:
        super().__init__(schedule, needed)
        self._dice = Random(f"changing leaders {schedule.seed}")
        self._asks = False

    @property
    def _acts(self) -> list[Callable[[], None]]:
        acts = [self._leader_changes_behind_a_full_board, self._full_board_restarts]
        if self._needed == NEEDED:
            acts += [self._leader_restarts_beside_full_followers, self._next_leader_dies]
        return acts

    # acts

    def _leader_changes_behind_a_full_board(self) -> None:
        was_full = self._gets_room_again()
        others = [each for each in self._world.boards if each is not was_full]
        self._ask_for_lead(was_full)
        for _ in range(3):
            for each in self._partitions:
                self._request_lead(each, self._dice.choice(others))
            self._schedule.pass_time(self._dice.random() * LEAD_BACK_MS / 3)
        self._schedule.pass_time(LEAD_BACK_MS)
        self._end_of_asking()

    def _full_board_restarts(self) -> None:
        was_full = self._gets_room_again()
        self._ask_for_lead(was_full)
        self._schedule.wait("leaders have heard of its full card", lambda: self._is_known(was_full))
        was_full.kill()
        self._schedule.pass_time(self._dice.random() * SESSION_MS)
        was_full.start()
        self._schedule.wait("a board that was full and restarted is in sync", self._schedule.recovered)
        self._schedule.pass_time(LEAD_BACK_MS)
        self._end_of_asking()

    def _leader_restarts_beside_full_followers(self) -> None:
        partition, leader = self._a_leader()
        followers = [each for each in self._replicas(partition) if each is not leader]
        before = self.evicted
        for each in followers:
            self._limits[each] = self._used(each) * 3 // 4
        self._schedule.pass_time(self._dice.random() * 6 * LOOK_MS)
        leader.kill()
        self._schedule.pass_time(self._dice.random() * 3 * SESSION_MS)
        leader.start()
        self._schedule.wait("a full follower has room again", lambda: any(not each.disk.is_full for each in followers))
        self._acked("where the leader restarted beside full followers")
        held = sum(self._used(each) for each in (leader, *followers))
        if self.evicted - before > held:
            raise Violation(f"{self.evicted - before} records were evicted for followers, and {held} are left")

    def _next_leader_dies(self) -> None:
        partition, leader = self._a_leader()
        before = self.evicted
        self._limits[leader] = self._used(leader) * 7 // 8
        self._schedule.wait("a full board leads nothing", lambda: not self._leads_any(leader), WAY_MS)
        self._schedule.wait("another board leads", lambda: bool(self._world.leaders(partition)))
        heir = self._world.leaders(partition)[0].board
        third = next(each for each in self._replicas(partition) if each not in (leader, heir))
        self._schedule.wait("the third board is in sync", lambda: self._is_in_sync(partition, third))
        heir.kill()
        self._schedule.wait("one of two boards leads", lambda: self._is_led_without(partition, heir), 10 * SESSION_MS)
        heir.start()
        self._acked("where the next leader died")
        held = sum(self._used(each) for each in self._replicas(partition))
        if self.evicted - before > held:
            raise Violation(f"{self.evicted - before} records were evicted for a full board, and {held} are left")

    # what they share

    def _is_in_sync(self, partition: PartitionId, board: Board) -> bool:
        state = self._world.state(partition)
        return state is not None and state.entry(board.number) is not None

    def _is_led_without(self, partition: PartitionId, board: Board) -> bool:
        return any(each.board is not board for each in self._world.leaders(partition))

    def _gets_room_again(self) -> Board:
        """Let a leader's card be full until others lead, and then have room."""
        _, leader = self._a_leader()
        self._limits[leader] = self._used(leader) * 7 // 8
        self._schedule.wait("a full board leads nothing", lambda: not self._leads_any(leader), WAY_MS)
        self._schedule.pass_time(self._dice.choice([0.0, LOOK_MS, HEARD_MS]))
        del self._limits[leader]
        self._schedule.wait("its card has room", lambda: not leader.disk.is_full)
        return leader

    def _is_known(self, board: Board) -> bool:
        """Whether each leader has had a fetch of this epoch that speaks of a full disk, now or a moment ago."""
        return all(self._is_known_to_leader(board, each) for each in self._partitions if board in self._replicas(each))

    def _is_known_to_leader(self, board: Board, partition: PartitionId) -> bool:
        leaders = self._world.leaders(partition)
        leading = leaders[0].member.partitions[partition].leading if leaders else None
        follower = leading.followers.get(board.number) if leading is not None else None
        return follower is not None and (follower.was_full or follower.kept_out_ms > 0)

    def _ask_for_lead(self, board: Board) -> None:
        self._watch = partial(self._gets_no_lead_back, board)

        def ask() -> None:
            if self._asks:
                for each in self._partitions:
                    self._request_lead(each, board)
                self._world.later(ASK_MS, ask)

        self._asks = True
        ask()

    def _end_of_asking(self) -> None:
        self._asks, self._watch = False, lambda: None
