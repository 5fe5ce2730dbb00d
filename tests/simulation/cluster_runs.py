"""Schedules of a whole cluster in virtual time: a seed decides all of one, and replays it.

Each begins boards, makes a topic, lets clients produce and consume, and takes some of the acts below in any order, at
any time, in the middle of each other. Then nothing fails any more, every board comes back, and all must be led, in sync
and audited (cluster_checks.py). Must never come in: how boards behave.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import NamedTuple

from edge_broker.cluster.controller import place_topic
from edge_broker.cluster.inter_broker_messages import HandOver
from edge_broker.cluster.member import MembershipState
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.cluster.znodes.znode_codec import decode_topic, encode_topic, state_path, topic_path
from edge_broker.cluster.znodes.zookeeper import Multi, Node, Request, SetData
from edge_broker.errors import ErrorCode
from edge_broker.testing.zookeeper import NodeDeleted, Put
from tests.simulation.cluster_cards import SmallCards
from tests.simulation.cluster_cards_changes import ChangingLeaders
from tests.simulation.cluster_checks import Violation
from tests.simulation.cluster_disk import Disk, Record
from tests.simulation.cluster_internal import InternalTopics
from tests.simulation.cluster_older_ensemble import OlderEnsemble
from tests.simulation.cluster_storage import RealDisk
from tests.simulation.cluster_world import FETCH_RECORDS, SESSION_MS, TOPIC, Board, Process, World

ENDS_MS = 60_000.0  # within which everybody is in sync once nothing fails
LEAVES_MS = 800.0  # less than it takes to count as slow; another leader waits as long
STEP_MS = 25.0
OFFLINE_FOR_LONG_MS = 300_000.0
ALL_FAIL_MS = 4000.0
AWAY_MS = 3000.0
UNSYNCED_OF_5 = 3  # seeds whose topic is left to the kernel
DELETES_OF_4 = 3  # seeds whose topic is deleted and made again
INTERNAL_OF_4 = 1  # seeds that end with an internal topic beside the other one
LARGER_OF_13 = (4, 7, 9, 10, 12)  # seeds whose batches have more than one record, or not
LARGER = [1, 2, 3, 7, 12]
LOSE_FILES_OF_10 = (5, 7)  # seeds in which records and directories are lost, and failed cards come back by themselves
MADE_AGAIN_MS = 100.0
YOUNG = 3


class Result(NamedTuple):
    """What came of one seed; `failure` is empty when everything held."""

    seed: int
    failure: str
    trace: Sequence[str]
    acts: int = 0
    taken: int = 0
    acked: int = 0
    virtual_ms: float = 0.0

    @property
    def counts(self) -> dict[str, float]:
        """What it did, by the words for it."""
        hours = self.virtual_ms / 3.6e6
        return {
            "acts": self.acts,
            "records taken": self.taken,
            "acked by all": self.acked,
            "h of virtual time": hours,
        }


class Shape(NamedTuple):
    """What a cluster of a seed is like."""

    boards: int
    factor: int
    needed: int
    unclean: bool


SHAPES = [Shape(3, 3, 2, False)] * 6 + [Shape(4, 3, 2, False)] * 2 + [Shape(3, 3, 1, False), Shape(3, 3, 1, True)]


class Schedule:
    """One seed's."""

    def __init__(self, seed: int, *, real: bool = False) -> None:
        self.seed = seed
        self.dice = Random(f"schedule {seed}")
        self.shape = self.dice.choice(SHAPES)
        if self.shape.unclean and seed % 2:
            self.shape = self.shape._replace(needed=2)  # two are named then, also where both can serve nothing
        self.world = World(seed, self.shape.boards, real=real)
        self.world.checks.unclean = self.shape.unclean
        self.world.loss = self.dice.choice([0.0, 0.0, 0.02, 0.15])
        self.world.late = self.dice.choice([0.0, 0.0, 0.003, 0.03])
        self.world.slow_ms = self.dice.choice([1.0, 4.0, 25.0])
        self.pace_ms = self.dice.choice([60.0, 300.0, 900.0])
        self.produce_ms = self.dice.choice([12.0, 50.0])
        self.luck = self.dice.choice([0.0, 0.0, 0.15, 0.5])
        self.world.bad_luck = self.bad_luck
        self.world.synced = seed % 5 != UNSYNCED_OF_5
        self.world.deletes = seed % 4 == DELETES_OF_4
        if self.world.deletes:
            self.world.before_asking, self.world.before_opening = self.stall, self.lose_while_opening
        self.sizes = Random(f"sizes {seed}")
        self.batches = LARGER if seed % 13 in LARGER_OF_13 else [1]
        self.acts_done = self.partitions = 0  # partitions of the topic; 0: as the dice say
        self.lost_for_good = 0
        self.ending = self.calm = False
        self.acts = [act for act in ACTS if self.dice.random() < 0.45] or [ACTS[0]]
        self.cards = Random(f"cards {seed}")
        self.loses_files = seed % 10 in LOSE_FILES_OF_10 and self.batches is not LARGER
        if self.loses_files:
            self.acts += ACTS_OF_FILES
        if self.world.deletes:
            self.acts += ACTS_OF_TOPICS
        if self.batches is LARGER:
            self.acts += [remove_while_away]

    def run(self) -> None:
        world, dice = self.world, self.dice
        for board in world.boards:
            board.start()
        config = {
            "min.insync.replicas": str(self.shape.needed),
            "unclean.leader.election.enable": "true" if self.shape.unclean else "false",
        }
        partitions = dice.randint(1, 2)
        world.make_topic(self.partitions or partitions, self.shape.factor, config)
        world.disturbed = world.synced
        self._produce_on()
        self._consume_on()
        for _ in range(dice.randint(5, 40)):
            self.pass_time(dice.expovariate(1 / self.pace_ms))
            act = dice.choice(self.acts)
            world.note(f"- {act.__name__}")
            self.acts_done += 1
            act(self)
        if self.shape.unclean:
            heal(self)
            self.pass_time(ALL_FAIL_MS)
            all_but_one_fail(self)
            self.pass_time(ALL_FAIL_MS)
        self.end()

    def pass_time(self, ms: float) -> None:
        """Let everything go on; look whether the in-sync set has recovered."""
        left = ms
        while left > 0:
            self._advance(min(left, STEP_MS))
            left -= STEP_MS
            if self.lost_for_good and self.recovered():
                self.lost_for_good = 0

    def _advance(self, ms: float) -> None:
        self.world.advance(ms)
        if not self.world.forgotten:
            self.world.checks.topic_is(self.world.topic[0])

    # clients

    def _produce_on(self) -> None:
        if self.calm:
            return
        self.world.later(self.dice.random() * self.produce_ms * 2, self._produce_on)
        partition = self.dice.choice(self.world.partitions)
        self.produce(partition, all_in_sync=self.dice.random() < 0.7)

    def produce(self, partition: PartitionId, *, all_in_sync: bool, done: Callable[[], None] = lambda: None) -> None:
        """A batch, to somebody who believes that it leads."""
        leaders = self.world.leaders(partition)
        if not leaders:
            return
        process = self.dice.choice(leaders)
        values = [self.world.number() for _ in range(self.sizes.choice(self.batches))]

        def reply(error: ErrorCode, epoch: int, offset: int) -> None:
            if error is ErrorCode.NONE and all_in_sync:
                for at, value in enumerate(values, offset):
                    self.world.checks.acknowledged(Record(epoch, value), at)
                done()

        def arrive() -> None:
            process.run(lambda: process.produce(partition, values, all_in_sync=all_in_sync, reply=reply))

        self.world.later(self.world.delay_ms(), arrive)

    def _consume_on(self) -> None:
        self.world.later(60.0, self._consume_on)
        for partition in self.world.partitions:
            for process in self.world.leaders(partition):
                process.run(lambda process=process, partition=partition: process.consume(partition))  # type: ignore[misc]

    # the topic, by any broker

    def _asked(self, knows: bool) -> Process | None:
        """Some broker that serves, and knows a topic of the name, or none."""
        found = [
            process
            for process in self.world.processes
            if process.member.standing is MembershipState.SERVING and not process.paused
            if (TOPIC in process.member.image.topics) is knows
        ]
        return self.dice.choice(found) if found else None

    def delete(self, then: Callable[[], None] = lambda: None) -> None:
        """Delete what some broker takes for the topic."""
        process = self._asked(knows=True)
        if process is None or self.ending:
            return
        member = process.member
        topic = member.image.topics[TOPIC]

        def told(error: ErrorCode) -> None:
            self.world.note(f"the deletion of {topic.topic_id} is answered {error.name}")
            then()

        self.world.note(f"board {process.board.number} is asked to delete {topic.topic_id}")
        self.world.checks.deletion_asked(topic.topic_id)
        process.run(lambda: member.controller.delete_topic(TOPIC, topic, told))

    def make_again(self, times: int = 1) -> None:
        """Make a topic of the name by some broker that knows none; look for one so often."""
        process = self._asked(knows=False) if not self.world.forgotten else None
        if process is None:
            if times > 1:
                self.world.later(MADE_AGAIN_MS * self.dice.random(), lambda: self.make_again(times - 1))
            return
        member, world, topic_id = process.member, self.world, self.world.new_topic_id()
        wanted = (self.dice.randint(1, max(1, len(world.partitions))), self.shape.factor, world.config)
        try:
            topic = place_topic(topic_id, *wanted, member.registrations, member.image.topics)
        except ValueError:  # there are too few
            return

        def told(error: ErrorCode) -> None:
            world.note(f"the making of {topic_id} is answered {error.name}")

        process.run(lambda: member.controller.make_topic(TOPIC, topic, member.registrations, told))

    def _has_topic(self) -> bool:
        """Whether there is one; asks for it, now and then."""
        if self.world.topic[0]:
            return True
        if self.dice.random() < STEP_MS / SESSION_MS:
            self.make_again()
        return False

    # what is most dangerous while a state is being written

    def bad_luck(self, process: Process) -> None:
        """The outcome is unknown, servers lag, a follower is cut off, the writer loses power soon; often all of it."""
        if self.calm or self.dice.random() > self.luck:
            return
        world, board, storm = self.world, process.board, self.dice.random() < 0.5
        connection = world.client_of(process).connection
        if storm and connection is not None and self.dice.random() < 0.4:
            number = connection.server.number  # the write is not done, and nobody says so
            world.ensemble.cut(number)
            world.later(self.dice.random() * 2 * SESSION_MS, lambda: world.ensemble.mend(number))
        elif storm or self.dice.random() < 0.5:
            self.later(self.dice.random() * 8, lambda: process.run(world.client_of(process).connection_lost))
            for server in world.ensemble.servers:
                server.lag_ms = self.dice.random() * 2500
        if storm or self.dice.random() < 0.4:
            other = self.dice.choice(joining(process) or [each.number for each in world.boards if each is not board])
            links = {(board.number, other), (other, board.number)}
            self.later(self.dice.random() * 10, lambda: world.blocked.update(links))
            world.later(2 * SESSION_MS, lambda: world.blocked.difference_update(links))
        if storm or self.dice.random() < 0.2:
            self.later(100 + self.dice.random() * 1400, lambda: self.strike(board))

    # what is most dangerous where another topic of the name may be there by now

    def stall(self, process: Process, request: Request) -> None:
        """A change is on its way for long, and the topic is another one when it arrives."""
        if not isinstance(request, Multi) or self.ending:
            return
        write = request.operations[-1]
        is_young = isinstance(write, SetData) and write.version <= YOUNG  # as the next one soon is, too
        if self.dice.random() < (0.4 if is_young else 0.05):
            process.board.links.stall_ms = self.dice.random() * SESSION_MS / 2
            self.later(self.dice.random() * SESSION_MS / 10, lambda: make_topic_anew(self))

    def lose_while_opening(self, process: Process) -> None:
        """A log is being opened, and what the state is stays unknown for a while."""
        if self.dice.random() < 0.2 and not self.ending:
            self.later(self.dice.random() * 8, lambda: process.run(self.world.client_of(process).connection_lost))

    def strike(self, board: Board) -> None:
        """A board loses power; where that may take what was answered, only if others surely have it."""
        if self.world.synced:
            board.cut_power()
        elif self.may_lose():
            self.lost_for_good += 1
            board.cut_power()
        else:
            board.kill()
        self.start_later(board)

    # the end

    def end(self) -> None:
        """Nothing fails any more."""
        world, self.ending = self.world, True
        world.note("- the end of all faults")
        heal(self)
        world.loss, self.luck, world.disturbed = 0.0, 0.0, False
        world.fetch_records = FETCH_RECORDS * self.batches[-1]  # with few, who was away may never catch up
        for server in world.ensemble.servers:
            server.lag_ms = 5.0
            world.ensemble.mend(server.number)
        for board in world.boards:
            board.slow = 1.0
            board.disk.calm()
            process = board.process
            if process is not None:
                process.go_on()
                if process.member.leaving:
                    board.kill()
            board.start()
        if world.deletes:
            self.pass_time(SESSION_MS)  # what was asked for may still come, and later, too
            self.wait("there is a topic", self._has_topic)
        self._end_of_offline_logs()
        self.wait("everybody is in sync", lambda: self._has_topic() and self.recovered())
        self.calm = True
        self.wait("nothing is under way", self.quiet)
        answered: set[PartitionId] = set()
        self.wait("a last record is acked everywhere", lambda: self.all_answer(answered))
        self._fill_one()
        self.wait("nothing is under way", self.quiet)
        if not self.shape.unclean:
            SmallCards(self, self.shape.needed).run()
            self.wait("nothing is under way", self.quiet)
            ChangingLeaders(self, self.shape.needed).run()
            self.wait("nothing is under way", self.quiet)
            if self.seed % 4 == INTERNAL_OF_4:
                InternalTopics(self, self.shape.needed).run()
                self.wait("nothing is under way", self.quiet)
        if self._is_set_back:
            OlderEnsemble(self, self.shape.needed, [kill, cut_power, hand_over, controlled_restart], _dark).run()
            self.wait("nothing is under way", self.quiet)
        self.wait("no disk has a log of a deleted topic", lambda: not any(self._leftovers()))
        world.checks.audit()

    @property
    def _is_set_back(self) -> bool:
        """Whether an older copy of the ensemble's data is put back in the end: what was acked is certain to be kept."""
        return (
            self.shape == Shape(3, 3, 2, False)
            and self.world.synced
            and not self.world.deletes
            and len(self._partitions) == 1
        )

    def _end_of_offline_logs(self) -> None:
        """Boards with a card that has failed for good start again, once the others do what can be done without."""
        failed = [each for each in self.world.processes if has_offline_log(each)]
        failed = [each for each in failed if not self.world.synced or refuses(each)]
        if failed:
            self.wait("who may lead leads, though logs are offline", self._led_as_far_as_may_be)
        for process in failed:
            process.board.kill()
            process.board.start()

    def _led_as_far_as_may_be(self) -> bool:
        return all(self.world.leaders(each) or not self._may_be_led(each) for each in self._partitions)

    def _may_be_led(self, partition: PartitionId) -> bool:
        """Whether a replica that can be read is named with its disk; where unclean elections are on, any will do."""
        state = self.world.state(partition)
        assert state is not None
        for process, found in self.world.replicas_of(partition):
            entry = state.entry(process.board.number)
            named = entry is not None and found.state == state and found._is_mine(entry)
            if process.log(partition).online and (named or self.shape.unclean):
                return True
        return False

    def _leftovers(self) -> list[list[str]]:
        topic_ids = [self.world.topic[0], *([self.world.internal_id] if self.world.internal_id else [])]
        return [board.disk.leftovers(*topic_ids) for board in self.world.boards]

    @property
    def _partitions(self) -> list[PartitionId]:
        return [where.partition for where in self.world.current]

    def all_answer(self, answered: set[PartitionId], but: Board | None = None) -> bool:
        """Produce to everybody who has not answered yet, now and then; what one board leads, if any, need not."""
        for partition in sorted(set(self._partitions) - answered):
            if self.dice.random() < 0.1:
                self.produce(partition, all_in_sync=True, done=lambda partition=partition: answered.add(partition))  # type: ignore[misc]
        left = set(self._partitions) - answered
        return all(but is not None and self._leads(but, each) for each in left)

    def _fill_one(self) -> None:
        """A full board leaves every in-sync set, others go on, and it comes back."""
        board = self.board
        self.world.note(f"- board {board.number} is full")
        board.disk.fill(full=True)
        self.wait("a full replica has left", partial(self._has_left, board, {}))
        answered: set[PartitionId] = set()
        self.wait("a record is acked beside a full replica", lambda: self.all_answer(answered, board))
        board.disk.fill(full=False)
        self.wait("who was full is in sync again", self.recovered)

    def _has_left(self, board: Board, named: dict[tuple[PartitionId, int], float]) -> bool:
        """Whether no set names it any more; `named`: since when it was seen so, by leader epoch."""
        following = [each for each in self._partitions if self._follows(board, each)]
        for each in following:
            state, now_ms = self.world.state(each), self.world.now_ms
            assert state is not None
            if len(state.in_sync) <= self.shape.needed:
                continue  # it leaves once another one is back that has just been lost
            if not self._has_session(state.leader):
                named.pop((each, state.leader_epoch), None)
                continue  # nobody can write the state until it has a session again, or another one leads
            if now_ms > named.setdefault((each, state.leader_epoch), now_ms) + LEAVES_MS:
                raise Violation(f"{each} named a full replica for longer than {LEAVES_MS:.0f} ms; {self._picture()}")
        return not following

    def _has_session(self, broker: int) -> bool:
        """Return whether a broker runs and is connected to ZooKeeper."""
        return any(each.board.number == broker and each.member.connected for each in self.world.processes)

    def _leads(self, board: Board, partition: PartitionId) -> bool:
        state = self.world.state(partition)
        return state is not None and state.leader == board.number

    def _follows(self, board: Board, partition: PartitionId) -> bool:
        """Whether it is named, and does not lead."""
        state = self.world.state(partition)
        return state is not None and state.entry(board.number) is not None and not self._leads(board, partition)

    def wait(self, what: str, condition: Callable[[], bool], within_ms: float = ENDS_MS) -> None:
        """Let time pass until this holds, or it is a violation."""
        until = self.world.now_ms + within_ms
        while not condition():
            if self.world.now_ms > until:
                raise Violation(f"not within {within_ms / 1000:.1f} s: {what}; {self._picture()}")
            self._advance(STEP_MS)

    def _picture(self) -> str:
        states = [f"{where.topic_id} {self.world.state(where.partition)}" for where in self.world.current]
        roles = [
            f"board {process.board.number} {process.member.standing.name} "
            + ", ".join(
                f"{found.partition.partition}:{found.role.name} {log.acknowledged_offset}/{log.log_end_offset}"
                for found in process.member.partitions.values()
                for log in [found.log]
            )
            for process in self.world.processes
        ]
        return "; ".join([*states, *roles, *(f"board {board.number} has {left}" for board, left in self._left_on())])

    def _left_on(self) -> list[tuple[Board, list[str]]]:
        return [(board, left) for board, left in zip(self.world.boards, self._leftovers(), strict=True) if left]

    def recovered(self) -> bool:
        """Whether every replica of every partition is in sync."""
        partitions = self._partitions
        return bool(partitions) and all(self._in_sync(partition) for partition in partitions)

    def _in_sync(self, partition: PartitionId) -> bool:
        """Every replica is named with the disk that it has, and somebody leads."""
        state, world = self.world.state(partition), self.world
        if state is None or len(state.in_sync) < self.shape.factor:
            return False
        for entry in state.in_sync:
            process = world.board(entry.broker).process
            if process is None or process.paused or process.member.standing is not MembershipState.SERVING:
                return False
            if entry != process.member.identity.replica or partition not in process.member.partitions:
                return False
            if process.log(partition).has_missing or not process.log(partition).online:
                return False
        leaders = world.leaders(partition)
        return [each.board.number for each in leaders] == [state.leader]

    def quiet(self) -> bool:
        """Whether all is replicated, and nothing is being written."""
        for partition in self._partitions:
            leaders = self.world.leaders(partition)
            if len(leaders) != 1:
                return False
            end = leaders[0].log(partition).log_end_offset
            found = leaders[0].member.partitions[partition]
            if found.high_watermark != end:
                return False
            start = leaders[0].log(partition).log_start_offset
            for process, replica in self.world.replicas_of(partition):
                log = process.log(partition)
                if replica._write.busy:  # its outcome may be known late, as from a server that lagged
                    return False
                if log.acknowledged_offset != end or log.log_start_offset < start:
                    return False
        return True

    # what acts choose from

    @property
    def board(self) -> Board:
        return self.dice.choice(self.world.boards)

    def may_lose(self) -> bool:
        """Whether another board may be lost for good now."""
        return self.lost_for_good + 1 < self.shape.needed or self.shape.unclean

    def later(self, ms: float, call: Callable[[], object]) -> None:
        """Later, unless the end came first."""

        def do() -> None:
            if not self.calm:
                call()

        self.world.later(ms, do)

    def start_later(self, board: Board) -> None:
        """Even behind the end: who was struck a moment before it is not to stay off."""
        self.world.later(self.dice.choice([10.0, 300.0, 3000.0]) * self.dice.random(), board.start)


def has_offline_log(process: Process) -> bool:
    """Whether a card has failed, as far as one of its partitions goes."""
    return any(not process.log(each).online for each in process.member.partitions)


def refuses(process: Process) -> bool:
    """Whether a card that has failed stays so until the next start."""
    return any(process.log(each).refuses for each in process.member.partitions)


def joining(process: Process) -> list[int]:
    """Brokers that a change under way adds to an in-sync set."""
    found = []
    for each in process.member.partitions.values():
        pending = each._write.pending
        if pending is not None and each.state is not None:
            found += [entry.broker for entry in pending.in_sync if each.state.entry(entry.broker) is None]
    return found


Act = Callable[[Schedule], None]


def kill(schedule: Schedule) -> None:
    board = schedule.board
    board.kill()
    schedule.start_later(board)


def cut_power(schedule: Schedule) -> None:
    schedule.strike(schedule.board)


def cut_power_of_a_leader(schedule: Schedule) -> None:
    leaders = schedule.world.leaders(schedule.dice.choice(schedule.world.partitions))
    if leaders:
        schedule.strike(leaders[0].board)


def cut_power_of_the_site(schedule: Schedule) -> None:
    for board in schedule.world.boards:
        schedule.strike(board)


def stop_and_continue(schedule: Schedule) -> None:
    """SIGSTOP, for less or more than a session lasts."""
    process = schedule.board.process
    if process is not None:
        process.paused = True
        schedule.world.later(schedule.dice.random() * 3 * SESSION_MS, process.go_on)


def cut_one_way(schedule: Schedule) -> None:
    one, other = schedule.dice.sample(schedule.world.boards, 2)
    schedule.world.blocked.add((one.number, other.number))
    schedule.world.tell_closed(one, other)  # by a firewall, though it lives


def isolate(schedule: Schedule) -> None:
    """From the other boards, and from ZooKeeper or not."""
    board = schedule.board
    for other in schedule.world.boards:
        schedule.world.blocked |= {(board.number, other.number), (other.number, board.number)}
    if schedule.dice.random() < 0.5:
        board.links.cut_up = set(range(3))


def cut_from_zookeeper(schedule: Schedule) -> None:
    """One way or the other, from some servers or all."""
    board = schedule.board
    servers = set(schedule.dice.sample(range(3), schedule.dice.randint(1, 3)))
    if schedule.dice.random() < 0.6:
        board.links.cut_up |= servers
    if schedule.dice.random() < 0.6:
        board.links.cut_down |= servers


def blink(schedule: Schedule) -> None:
    """A short loss of what ZooKeeper answers: outcomes are unknown."""
    links = schedule.board.links
    links.cut_down = set(range(3))
    schedule.world.later(schedule.dice.random() * SESSION_MS, links.cut_down.clear)


def drop_connection(schedule: Schedule) -> None:
    """What is under way to ZooKeeper is lost or done, nobody knows."""
    process = schedule.board.process
    if process is not None:
        process.run(schedule.world.client_of(process).connection_lost)


def heal(schedule: Schedule) -> None:
    schedule.world.blocked.clear()
    for board in schedule.world.boards:
        board.links.cut_up.clear()
        board.links.cut_down.clear()


def server_lags(schedule: Schedule) -> None:
    schedule.dice.choice(schedule.world.ensemble.servers).lag_ms = schedule.dice.choice([5.0, 200.0, 2000.0])


def server_loses_its_leader(schedule: Schedule) -> None:
    ensemble, number = schedule.world.ensemble, schedule.dice.randrange(3)
    ensemble.cut(number)
    schedule.world.later(schedule.dice.random() * 4 * SESSION_MS, lambda: ensemble.mend(number))


def expire(schedule: Schedule) -> None:
    process = schedule.board.process
    if process is not None:
        schedule.world.ended.add(schedule.world.client_of(process).session_id)
        schedule.world.ensemble.expire(schedule.world.client_of(process).session_id)


def expire_a_leader(schedule: Schedule) -> None:
    """Its process lives, and is elected again, or not."""
    for process in schedule.world.leaders(schedule.dice.choice(schedule.world.partitions)):
        schedule.world.ended.add(schedule.world.client_of(process).session_id)
        schedule.world.ensemble.expire(schedule.world.client_of(process).session_id)


def slow_card(schedule: Schedule) -> None:
    board = schedule.board
    board.slow = schedule.dice.choice([1.0, 20.0, 60.0])
    schedule.later(3000.0, lambda: setattr(board, "slow", 1.0))


def card_fails(schedule: Schedule) -> None:
    """A log goes offline; a restart finds it readable again, late where others may go on without it."""
    board = schedule.board
    if board.process is not None and board.process.member.partitions:
        _fail(schedule, board, board.process, schedule.dice.choice(list(board.process.member.partitions)))


def all_but_one_fail(schedule: Schedule) -> None:
    """The one that is left lacks something, and all others are there, with logs that nobody can read."""
    partition, boards = schedule.dice.choice(schedule.world.partitions), schedule.world.boards
    leaders = [each.board for each in schedule.world.leaders(partition)]
    left = schedule.dice.choice([each for each in boards if each not in leaders] or boards)
    others = [each for each in boards if each is not left]
    for other in others:
        schedule.world.blocked |= {(left.number, other.number), (other.number, left.number)}

    def fail(board: Board) -> None:
        process = board.process
        if not schedule.ending and process is not None and partition in process.member.partitions:
            _fail(schedule, board, process, partition)

    for count, other in enumerate(others):
        schedule.later(2000.0 + 600.0 * (count + schedule.dice.random()), partial(fail, other))


def _fail(schedule: Schedule, board: Board, process: Process, partition: PartitionId) -> None:
    log = process.log(partition)
    log.refuses = not schedule.loses_files or schedule.shape.unclean or schedule.cards.random() < 0.3
    log.online = False
    process.run(lambda: process.member.log_moved(partition, process.now_ms))

    def restart() -> None:
        if board.process is process and (log.refuses or schedule.cards.random() < 0.5):
            board.kill()
            schedule.start_later(board)

    schedule.later(schedule.dice.random() * (OFFLINE_FOR_LONG_MS if schedule.shape.unclean else 3000), restart)


def disk_full(schedule: Schedule) -> None:
    """A card takes nothing more for a while."""
    disk = schedule.board.disk
    disk.fill(full=True)
    schedule.later(schedule.dice.random() * 4000, lambda: disk.fill(full=False))


def rot(schedule: Schedule) -> None:
    """A record of a replica is lost, on the disk of one board: others have it."""
    process = schedule.board.process
    if schedule.shape.unclean or not schedule.may_lose() or process is None or process.paused:
        return
    held = [each for each in process.member.partitions if process.log(each).online]
    held = [each for each in held if process.log(each).log_start_offset < process.log(each).synced_offset]
    if held:
        partition = schedule.dice.choice(held)
        log = process.log(partition)
        schedule.lost_for_good += 1
        offset = schedule.dice.randrange(log.log_start_offset, log.synced_offset)
        process.run(lambda: process.rot(partition, offset))


def rot_everywhere(schedule: Schedule) -> None:
    """The same record of a partition is lost on the disks of all boards: nobody has it."""
    world, partition = schedule.world, schedule.dice.choice(schedule.world.partitions)
    found = [process for process, _ in world.replicas_of(partition) if process.log(partition).online]
    if schedule.shape.unclean or schedule.lost_for_good or len(found) < schedule.shape.factor:
        return
    if any(process.paused for process in found) or len({process.topic_id(partition) for process in found}) > 1:
        return
    first = max(process.log(partition).log_start_offset for process in found)
    end = min(process.log(partition).synced_offset for process in found)
    if first < end:
        offset = schedule.dice.choice([end - 1, schedule.dice.randrange(first, end)])
        schedule.lost_for_good = schedule.shape.needed  # one is left that has the rest, until others have it, too
        world.checks.rotten_everywhere(found[0], partition, offset)
        for process in found:
            process.run(lambda process=process: process.rot(partition, offset))  # type: ignore[misc]


def hand_over(schedule: Schedule) -> None:
    partition, to = schedule.dice.choice(schedule.world.partitions), schedule.board.number
    for process in schedule.world.leaders(partition):
        process.run(lambda process=process: process.member.message_received(HandOver(partition, to), process.now_ms))  # type: ignore[misc]


def controlled_restart(schedule: Schedule) -> None:
    """Others lead first; then the session is closed."""
    board = schedule.board
    process = board.process
    if process is None or process.paused:
        return
    process.run(lambda: process.member.shut_down(process.now_ms))
    until = schedule.world.now_ms + 3000

    def stop() -> None:
        if board.process is not process:
            return
        if not process.left and schedule.world.now_ms < until:
            schedule.later(50.0, stop)
            return
        process.run(process.client.close)
        board.kill()
        schedule.start_later(board)

    schedule.later(50.0, stop)


def wipe(schedule: Schedule) -> None:
    """A card is lost for good; an empty one is put in."""
    _replace(schedule, lambda board: schedule.world.new_disk())


def lose_directory(schedule: Schedule) -> None:
    """All files of a partition are lost on a board that is off."""
    board = schedule.board
    if not schedule.may_lose() or not board.disk.logs:
        return
    board.cut_power() if schedule.world.synced else board.kill()
    where = schedule.dice.choice(list(board.disk.logs))
    if not board.disk.logs[where].missing:
        schedule.lost_for_good += 1
        schedule.world.checks.cut(board, board.disk.lose(*where))
    schedule.start_later(board)


def clone(schedule: Schedule) -> None:
    """Another board's card was copied onto this one."""
    _replace(schedule, lambda board: schedule.board.disk.copy())


def image(schedule: Schedule) -> None:
    """A copy of a card is made while the board is off."""
    board = schedule.board
    board.cut_power() if schedule.world.synced else board.kill()
    board.images.append(board.disk.copy())
    board.start()


def restore(schedule: Schedule) -> None:
    """A board gets the copy of its card that was made once."""
    having = [board for board in schedule.world.boards if board.images]
    if having:
        board = schedule.dice.choice(having)
        _replace(schedule, lambda _: board.images[-1].copy(), board)


def swap_while_dark(schedule: Schedule) -> None:
    """The whole site is off, and one board comes back with another card."""
    if not schedule.may_lose():
        return
    board, boards = schedule.board, schedule.world.boards
    cards = [schedule.world.new_disk(), schedule.board.disk, *board.images[-1:]]
    for each in boards:
        each.cut_power() if schedule.world.synced else each.kill()
    schedule.lost_for_good += 1
    board.replace_disk(schedule.dice.choice(cards).copy())
    for each in boards:
        schedule.start_later(each)


def _replace(schedule: Schedule, make: Callable[[Board], Disk | RealDisk], which: Board | None = None) -> None:
    if not schedule.may_lose():
        return
    board = which or schedule.board
    disk = make(board)
    if set(board.disk.epochs[-1:]) & set(disk.epochs):
        return  # a copy of the card as it is registered now, perhaps by way of another board: that is not told apart
    schedule.lost_for_good += 1
    board.cut_power()
    board.replace_disk(disk)
    schedule.start_later(board)


def retention(schedule: Schedule) -> None:
    """A leader removes a part of what was shown, or all: who is away may have to begin anew."""
    _remove_front(schedule, schedule.dice.choice(schedule.world.partitions), schedule.dice.choice([0.3, 1.0]))


def _remove_front(schedule: Schedule, partition: PartitionId, part: float) -> None:
    for process in schedule.world.leaders(partition):
        process.run(lambda process=process: process.remove_front(partition, part))  # type: ignore[misc]


def remove_while_away(schedule: Schedule) -> None:
    """Nearly all is removed, up to amid a batch, while a board is off: it may have to begin anew there."""
    board = schedule.board
    board.kill()
    schedule.pass_time(schedule.dice.random() * AWAY_MS)
    for partition in schedule.world.partitions:
        _remove_front(schedule, partition, 0.5 + schedule.dice.random() / 2)
    schedule.start_later(board)


def delete_topic(schedule: Schedule) -> None:
    schedule.delete()


def make_topic(schedule: Schedule) -> None:
    schedule.make_again()


def make_topic_anew(schedule: Schedule) -> None:
    """Delete it, and make the next one as soon as some broker does not know it any more."""
    schedule.delete(lambda: schedule.make_again(10))


def forget_topic(schedule: Schedule) -> None:
    """The whole site is off, and meets an old copy of the ensemble's data; the right one comes back a while later."""
    world = schedule.world
    _dark(schedule)
    nodes = world.ensemble.tree.nodes
    paths = sorted(path for path in nodes if path == topic_path(TOPIC) or path.startswith(topic_path(TOPIC) + "/"))
    if not paths:
        return
    kept = [Put(path, nodes[path].data, nodes[path].stat, nodes[path].acl) for path in paths]
    world.forgotten = {world.topic[0]}
    world.ensemble.commit(tuple(NodeDeleted(path) for path in reversed(paths)))
    for board in world.boards:
        board.start()
    schedule.pass_time(schedule.dice.random() * 4 * SESSION_MS)
    _dark(schedule)
    world.ensemble.commit(tuple(kept))
    world.forgotten = set()
    for board in world.boards:
        schedule.start_later(board)


def forget_partition(schedule: Schedule) -> None:
    """The ensemble's data become an older copy, in which the topic lacks its last partition; the right one comes back.

    With every other act all boards are off both times; else they run on.
    """
    world, dark = schedule.world, schedule.acts_done % 2 == 0
    nodes, last = world.ensemble.tree.nodes, world.partitions[-1]
    paths = [state_path(last), topic_path(TOPIC)]
    if any(path not in nodes for path in paths):
        return
    if dark:
        _dark(schedule)
    kept = tuple(Put(path, nodes[path].data, nodes[path].stat) for path in reversed(paths))
    topic = decode_topic(TOPIC, Node(kept[0].data, kept[0].stat))
    fewer = encode_topic(topic._replace(replicas=topic.replicas[:-1]))
    world.ensemble.commit((NodeDeleted(paths[0]), Put(paths[1], fewer, kept[0].stat)))
    for board in world.boards if dark else ():
        board.start()
    schedule.pass_time(schedule.dice.random() * 4 * SESSION_MS)
    for process in world.processes:
        known = process.member.image.topics.get(TOPIC)
        assert known is None or len(known.replicas) > last.partition or last not in process.member.partitions
    if dark:
        _dark(schedule)
    there = world.ensemble.tree.nodes.get(paths[1])
    if there is not None and decode_topic(TOPIC, Node(there.data, there.stat)).topic_id == topic.topic_id:
        world.ensemble.commit(kept)  # else it was deleted meanwhile, and perhaps made anew
    for board in world.boards if dark else ():
        schedule.start_later(board)


def _dark(schedule: Schedule) -> None:
    """No board is on, and no session is left."""
    world = schedule.world
    for board in world.boards:
        board.cut_power() if world.synced else board.kill()
    for session_id in list(world.ensemble.sessions):
        world.ensemble.expire(session_id)


def rest(schedule: Schedule) -> None:
    """Time for everybody to catch up."""
    heal(schedule)
    schedule.pass_time(schedule.dice.random() * 4000)


ACTS: list[Act] = [
    kill,
    cut_power,
    cut_power_of_a_leader,
    cut_power_of_the_site,
    stop_and_continue,
    cut_one_way,
    isolate,
    cut_from_zookeeper,
    blink,
    drop_connection,
    heal,
    server_lags,
    server_loses_its_leader,
    expire,
    expire_a_leader,
    slow_card,
    card_fails,
    disk_full,
    rot,
    hand_over,
    controlled_restart,
    wipe,
    clone,
    image,
    restore,
    swap_while_dark,
    rest,
    retention,
]


ACTS_OF_FILES: list[Act] = [rot_everywhere, rot_everywhere, lose_directory, lose_directory, card_fails]
ACTS_OF_TOPICS: list[Act] = [delete_topic, make_topic, make_topic_anew, make_topic_anew, forget_topic]


def run_seed(seed: int, *, real: bool = False) -> Result:
    """Run one schedule; `real`: on the broker's own storage."""
    schedule = Schedule(seed, real=real)
    world, failure = schedule.world, ""
    try:
        schedule.run()
    except Violation as violation:
        failure = str(violation)
    except Exception:  # noqa: BLE001  a bug is a failure, with its place
        failure = traceback.format_exc()
    return Result(
        seed,
        failure,
        tuple(world.trace),
        schedule.acts_done,
        len(world.checks.taken),
        len(world.checks.acked),
        world.now_ms,
    )
