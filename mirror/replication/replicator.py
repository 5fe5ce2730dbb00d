"""The replicator: reads the source into lanes, commits what is safe, and writes down what is missing.

No Kafka client may be used here but through source_client.py and target_client.py; how batches go out is
sender.py's, what to do
about offsets is decided in gap_rules.py and source_offsets.py, and which topics and batches came from the target in
admission.py.

| task   | does                                                                                            |
|--------|-------------------------------------------------------------------------------------------------|
| read   | finds topics, reads batches into the lanes, settles every gap before it reads on; a lane is not  |
|        | read before its session has started (producer_sessions.py) and position_check.py has its verdict |
| commit | stores positions in the source's group, every commit interval (offset_commits.py)                   |
| follow | keeps the settings of topics at the target in step (topic_config_sync.py)                                |
| watch  | lag, health, log lines when a side falls silent or comes back                                   |

Every task works for ever and backs off by itself; an exception that leaves one is a bug and ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping

from drupelet.backoff import Backoff
from drupelet.observe.log_tree import Log
from drupelet.printable import label_text
from edge_broker.errors import ErrorCode, ProtocolViolation, Refusal, error_name
from kafka_wire.cluster import Topic
from kafka_wire.connection.errors import WireError
from kafka_wire.partitions import TopicPartition
from kafka_wire.records.batches import BadBatch, Piece, Skipped, pieces_of
from kafka_wire.records.codecs import codec_number
from mirror.client.fetcher import WAIT_ALL_S, Answer, Place
from mirror.config import Config
from mirror.errors import (
    NotOurTurnError,
    OriginsChangedError,
    OvertakenError,
    PositionsError,
    SourceError,
    TargetError,
    UntoldError,
)
from mirror.ledger.dead_letter import Refused, letter
from mirror.link.link_model import Link
from mirror.origins.admission import Admission
from mirror.origins.screening import screen_of
from mirror.partition.leader_epochs import epoch_starts
from mirror.partition.provenance import is_sent, same_cluster
from mirror.partition.resume_rules import Resumed
from mirror.partition.source_offsets import PartitionOffsets
from mirror.partition.state_records import topic_name
from mirror.partition.stream import Batch, Memory, PartitionStream
from mirror.producer.sender import Sender, Settings
from mirror.producer.transactional_sender import TransactionalSender
from mirror.replication import gap_rules
from mirror.replication.clients import Connect
from mirror.replication.initial_position import mirrored_up_to
from mirror.replication.loss_writer import LossWriter
from mirror.replication.offset_commits import OffsetCommitter
from mirror.replication.position_check import Positions
from mirror.replication.topic_config_sync import Following
from mirror.session.producer_sessions import ProducerSessions
from mirror.session.transactional_sessions import TROUBLE, TransactionalSessions
from mirror.status import running_report
from mirror.status.lag_watch import Lags, Watched
from mirror.status.metrics import Metrics
from mirror.status.problems import NOT_YET, Troubles
from mirror.status.rates import Progress
from mirror.status.report import Report

_log = Log("mirror")

BACKOFF_FIRST_S = 0.1
POLL_S = 1.0
LANE_SHARE = 4  # of the memory, that one lane may fill
BULK_SHARE = 0.75  # of the memory, beyond which only lanes are read that have less than their share of it
URGENT_SHARE = 8  # of the memory, that is kept for urgent lanes where there can be some
UNDER_WAY_SHARE = 4
FENCED = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)
"""The partition is led by another, or under another epoch, than its position was judged under; or is of a new topic."""
STEADY_S = 30.0  # of reading without trouble, after which the back-off starts again from its shortest
SILENT_S = 5.0  # without an answer, after which a side counts as away
SOURCE_SILENT_REOPEN_S = 60.0
WATCH_S = 1.0
TOO_LARGE = ("MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE")
LINES_MAX = 40  # about partitions that begin at once


class Replicator:
    """Mirrors until it is told to stop; `trouble()` says what is wrong, `metrics` counts."""

    def __init__(self, config: Config, metrics: Metrics, connect: Connect) -> None:
        self.config = config
        self.metrics = metrics
        self._memory = Memory()
        clients = connect(self._memory.room.set)
        self.source, self.target, self._ledger, self.standby, node = clients
        self._losses = LossWriter(self._ledger, config, metrics, node, self._set_trouble)
        self._lanes: dict[TopicPartition, PartitionStream] = {}
        self._progress = Progress()
        self._hurried = asyncio.Event()
        self._following = Following(self.source, self.target)
        self._started_at = time.monotonic()
        self._link = Link(config.buffer_bytes_max // UNDER_WAY_SHARE, is_metered=config.metered)
        self._overtaken_by = ""
        self.refusal = ""
        """Why `run` has ended by itself: nothing may be mirrored between these two ends."""
        self._refused = asyncio.Event()
        self._lives: ProducerSessions
        self._sender: Sender
        self._reign: list[
            asyncio.Task[None]
        ] = []  # of the sender and the lives, while this mirror is the one that writes
        self._committer = OffsetCommitter(self.source, self.standby, self._lanes.values, config, self._set_trouble)
        self._rests: dict[TopicPartition, Backoff] = {}  # of partitions in trouble of their own
        self._turn = 0
        self._nothing_selected = False
        self._waiting: set[TopicPartition] = set()  # that cannot begin, as the source does not tell of them
        self._lost_state: list[str] = []
        self._have_begun = False  # lives of lanes, whose positions are to be judged
        self._troubles = Troubles()
        self._admission = Admission(screen_of(self, config), self._lanes, self._drop, self._set_trouble)
        watched = Watched(self._lanes, self._progress, self._link, self._memory, self._troubles, metrics)
        self._lags = Lags(watched, config.stall_timeout_ms / 1000, config.buffer_bytes_max)
        for side in ("source", "target"):
            self._troubles.start(side)

    def _settings(self) -> Settings:
        config = self.config
        return Settings(
            config.batch_bytes_max,
            config.request_timeout_ms / 1000,
            config.delivery_timeout_ms / 1000,
            BACKOFF_FIRST_S,
            config.backoff_max_ms / 1000,
            config.buffer_bytes_max,
        )

    # -- life ------------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Mirror until `stop` is set; then wait for the acknowledgements under way, commit, and close."""
        async with asyncio.TaskGroup() as tasks:
            following = self._following.run(self._lanes.values, self.config.refresh_interval_ms / 1000)
            loops = self._read(tasks), self._committer.run(), self._watch(), following, self.standby.run()
            reading, *others = [tasks.create_task(loop) for loop in (*loops, self._lags.ask(self.source))]
            await self._until_set(stop, self._refused)
            await self._wind_up(reading)
            for task in others:
                task.cancel()
        await self._last_commit()
        await self._close()

    @staticmethod
    async def _until_set(*events: asyncio.Event) -> None:
        """Wait for the first of these."""
        waiters = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waiters:
                waiter.cancel()

    def _begin_reign(self, tasks: asyncio.TaskGroup) -> None:
        config = self.config
        backoff = BACKOFF_FIRST_S, config.backoff_max_ms / 1000
        name = topic_name(config.group_id)
        if config.transactions:
            lives = TransactionalSessions(
                self.target, name, config.target_replication_factor, self, backoff, config.transaction_timeout_ms
            )
            self._lives = lives
            self._sender = TransactionalSender(
                self.target, lives, self._link, self._settings(), self, config.buffer_bytes_max
            )
        else:
            self._lives = ProducerSessions(self.target, name, config.target_replication_factor, self, backoff)
            self._sender = Sender(self.target, self._lives, self._link, self._settings(), self)
        self._reign = [tasks.create_task(self._sender.run()), tasks.create_task(self._lives.run())]

    async def _end_reign(self) -> None:
        for task in self._reign:
            task.cancel()
        await self._sender.close()
        self._reign = []
        for name in ["state topic", TROUBLE, *(one for one in self._troubles if one.startswith("target broker "))]:
            self._set_trouble(name, "")

    async def _wind_up(self, reading: asyncio.Task[None]) -> None:
        reading.cancel()
        if not self._reign:
            return
        if not self._overtaken_by:  # else nothing of it is answered any more
            try:
                async with asyncio.timeout(self.config.stop_timeout_ms / 1000):
                    await self._sender.finish()
            except TimeoutError:
                _log.warning("stop_without_ack", bytes=self._link.under_way_bytes)
        await self._end_reign()

    async def _last_commit(self) -> None:
        try:
            await self._committer.commit_all()
            async with asyncio.timeout(self.config.stop_timeout_ms / 1000):
                if self._lanes:
                    await self._lives.stop(self._lanes.values())
                await self.standby.leave()
        except (SourceError, TargetError, WireError, TimeoutError) as error:
            _log.warning("last_commit_failed", error=error)

    async def _close(self) -> None:
        await asyncio.gather(self.source.close(), self.target.close(), self._ledger.close())
        _log.info("stopped")

    @property
    def is_unfenced(self) -> bool:
        """Whether the target does not refuse what an older mirror still sends."""
        return bool(self._reign) and self._lives.is_unfenced

    def trouble(self) -> str:
        """Return what is wrong in one line, or empty text."""
        return "; ".join(self._troubles.sentences())

    def notes(self) -> list[str]:
        """Return a sentence on each kind of topics of which something is passed over, and on lost state topics."""
        return [*self._admission.screen.notes(), *self._lost_state]

    def hurry(self) -> None:
        """Try at once what waits for its next attempt: the network has changed."""
        self._hurried.set()
        for end in (self.source, self.target, self._ledger):
            end.hurry()

    def report(self) -> Report:
        """Return how all of it stands."""
        now = time.monotonic()
        running = running_report.Running(
            config=self.config,
            lanes=self._lanes.values(),
            progress=self._progress,
            link=self._link,
            ends=(self.source, self.target),
            troubles=self._troubles,
            silent_s=self._sender.oldest_s(asyncio.get_running_loop().time()) if self._reign else 0.0,
            buffered_bytes=self._memory.bytes,
            started_at=self._started_at,
            now=now,
        )
        return running_report.report(running)

    def _set_trouble(self, name: str, text: str) -> None:
        self._troubles.note(name, text, time.monotonic())

    def _backoff(self) -> Backoff:
        return Backoff(BACKOFF_FIRST_S, self.config.backoff_max_ms / 1000)

    # -- read: topics ----------------------------------------------------------------------------------------------

    async def _read(self, tasks: asyncio.TaskGroup) -> None:
        backoff = self._backoff()
        while True:
            await self.standby.until_writes()
            self._begin_reign(tasks)
            try:
                await self._read_again_and_again()
            except OvertakenError as error:
                _log.error("overtaken", by="another mirror of this site", error=error)
                self._set_trouble("target", f"another mirror has taken over: {error}")
            except NotOurTurnError as error:
                self._set_trouble("source", "")
                self._set_trouble("target", "")
                _log.warning("let_go", because=error)
            except OriginsChangedError as error:
                _log.info("origins_changed", topic=error, action="none: new epochs tell of it")
            for lane in list(self._lanes.values()):
                self._drop(lane, "")
            await self._end_reign()
            self._overtaken_by = ""
            await asyncio.sleep(backoff.next_s())

    async def _read_again_and_again(self) -> None:
        backoff = self._backoff()
        while True:
            opened_at = time.monotonic()
            try:
                self._judge_anew(self._lanes)
                await self._read_on()
            except NotOurTurnError:
                raise
            except SourceError as error:
                self._set_trouble("source", str(error))
            if time.monotonic() - opened_at > STEADY_S:
                backoff.reset()
            self.metrics.restarts.labels("source").inc()
            await self.source.close()
            self._hurried.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff.next_s()):
                    await self._hurried.wait()

    async def _read_on(self) -> None:
        refresh_at, backoff = 0.0, self._backoff()
        while True:
            if self._overtaken_by:
                raise OvertakenError(self._overtaken_by)
            if not self.standby.writes:
                raise NotOurTurnError("the group has given the word to another mirror")
            if self._have_begun:
                await self._settle()
            if time.monotonic() >= refresh_at or any(lane.may_go_back for lane in self._lanes.values()):
                all_read = await self._discover()
                self._set_trouble("source", "")
                if all_read:
                    backoff.reset()
                refresh_s = self.config.refresh_interval_ms / 1000
                refresh_at = time.monotonic() + (refresh_s if all_read else min(refresh_s, backoff.next_s()))
            if await self._read_some():
                refresh_at = min(refresh_at, time.monotonic() + backoff.next_s())

    def _judge_anew(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if partition in self._lanes:
                self._lanes[partition].leader_epoch = None

    async def _discover(self) -> bool:
        """Bring the lanes in line with the source's topics, read those that stand; return whether all of them do."""
        found = await self.source.topics()
        if self.source.cluster_id is not None and self.source.cluster_id == self.target.cluster_id:
            self.refuse(same_cluster(self.source.cluster_id))  # its servers are of more clusters than one
            raise SourceError(self.refusal)
        names = self.config.selection.of(found)
        self._note_near_miss(self.config.selection.near_miss(found))
        # By plain tuples, as in client/fetcher.py: they equal a TopicPartition, and most are known already.
        wanted = {(name, number): found[name] for name in names for number in found[name].leaders}
        self._admission.keep_only({name for name, _ in wanted})
        for partition, lane in list(self._lanes.items()):
            if partition not in wanted:
                self._drop(lane, "topic_gone")
            elif lane.topic_id not in (None, wanted[partition].topic_id):
                self._drop(lane, "topic_made_anew")
            else:
                lane.found(wanted[partition])
        new = {TopicPartition(*one): topic for one, topic in wanted.items() if one not in self._lanes}
        all_there = await self._add(new, found)
        await self._settle()
        return all_there and all(lane.is_read or not lane.has_session for lane in self._lanes.values())

    async def _settle(self) -> None:
        self._have_begun = False
        self._admission.refuse_blind()
        positions = Positions(
            self.source, self.target, self._losses.write_loss, self._sender.begin_anew, self._set_trouble
        )
        await positions.settle(list(self._lanes.values()))

    def _note_near_miss(self, near: str | None) -> None:
        """Say once that no topic is selected: the pattern may be misspelt, or the topics are yet to come."""
        if near is not None and not self._nothing_selected:
            meant = {"did_you_mean": near} if near else {}
            _log.warning("no_topic_matches", topics=self.config.topics, **meant, then="it begins when there is one")
        self._nothing_selected = near is not None

    async def _add(self, new: dict[TopicPartition, Topic], found: Mapping[str, Topic]) -> bool:
        """Make lanes for new partitions; return False when their positions cannot be told yet."""
        new, ends = await self._admission.candidates(found, new)
        if self._troubles.get("target") == NOT_YET and self._admission.screen.has_asked_target:
            self._set_trouble("target", "")  # no lane may ever do so, where all came from there
        if not new:
            self._set_trouble("positions", "")
            self._note_waiting({})
            return True
        try:
            commits = await self.source.commits(list(new))
        except PositionsError as error:  # what is read already is not held up
            self._set_trouble("positions", str(error))
            return False
        self._set_trouble("positions", "")
        new = self._admission.known_before(new, commits)
        has_claims = bool(self._admission.screen.claims)  # a topic may be refused for what has expired since
        starts, _, untold = await self.source.known_bounds([tp for tp in new if has_claims or tp not in commits])
        new = {tp: topic for tp, topic in new.items() if tp not in untold}
        positions = {tp: max(commits[tp].offset if tp in commits else 0, starts.get(tp, 0)) for tp in new}
        positions = await self._admission.past_known(new, positions, commits)
        verdicts = self._admission.judged({tp.topic: topic for tp, topic in new.items()}, positions)
        new = {tp: topic for tp, topic in new.items() if is_sent(verdicts[tp.topic])}
        described = await self.source.known_settings(sorted({partition.topic for partition in new}))
        for partition, topic in new.items():
            settings = described[partition.topic]
            if isinstance(settings, str):
                untold[partition] = settings
                continue
            lane = self._new_lane(partition, settings)
            if lane is None:
                continue
            lane.found(topic)
            commit = commits.get(partition)
            lane.origin = self._admission.origin_of(verdicts[partition.topic], is_known=commit is not None)
            lane.writers.checked_below = ends.get(partition, 0)
            lane.commit = commit
            if commit is not None and commit.topic_id == topic.topic_id:
                lane.writers.passed_over = commit.passed_over
            lane.start(PartitionOffsets.resume(commit) if commit else PartitionOffsets(starts[partition]))
            if commit is None:
                lane.offsets.topic_id = topic.topic_id
            self._lanes[partition] = lane
            self._sender.start(lane)
            if len(new) <= LINES_MAX:
                how = "resume" if commit else "begin"
                _log.info(how, **lane.fields(), offset=lane.read_offset, to=lane.target_topic)
        if len(new) > LINES_MAX:
            names = {partition.topic for partition in new}
            _log.info("begin_many", topics=len(names), partitions=len(new), resumed=len(commits.keys() & new.keys()))
        self._note_waiting(untold)
        return not untold

    def _note_waiting(self, untold: Mapping[TopicPartition, str]) -> None:
        """Name the partitions that cannot begin yet: the others do."""
        for partition in self._waiting - untold.keys():
            self._set_trouble(f"{partition.topic}-{partition.partition} source", "")
        for partition, why in untold.items():
            self._set_trouble(f"{partition.topic}-{partition.partition} source", why)
        self._waiting = set(untold)

    def _new_lane(self, partition: TopicPartition, settings: Mapping[str, str]) -> PartitionStream | None:
        config = self.config
        name = self._admission.target_name(partition.topic, config.name_policy, config.site or None)
        if name is None:
            return None
        lane, own = PartitionStream(partition, name, settings, self._memory), self.config.of_topic(partition.topic)
        lane.urgent, lane.codec = own.urgent, codec_number(own.compression or self.config.compression)
        return lane

    def _drop(self, lane: PartitionStream, event: str) -> None:
        partition = lane.partition
        del self._lanes[partition]
        if event:
            _log.warning(event, **lane.fields(), acked=lane.offsets.acked)
        self._sender.drop(lane)
        self._rests.pop(partition, None)
        self._progress.forget(partition)
        self._lags.forget(lane)
        self._following.forget(partition.topic)
        for trouble in (lane.name, f"{lane.name} position", f"{lane.name} source"):
            self._set_trouble(trouble, "")
        with contextlib.suppress(KeyError):
            self.metrics.lag.remove(partition.topic, str(partition.partition))

    # -- read: batches ---------------------------------------------------------------------------------------------

    async def _read_some(self) -> bool:
        """Read from where there is room; return whether a partition is led otherwise than it was thought."""
        wanted = self._wanted()
        memory = self._memory
        memory.room.clear()
        room = self.config.buffer_bytes_max - memory.bytes
        answers = await self.source.reader.poll(wanted, room, POLL_S, memory.room)
        self._admission.screen.batches_read()
        moved, out_of_range = False, []
        for answer in answers:
            lane = self._lanes.get(answer.partition)
            if lane is None or not lane.is_read or answer.place != self._place(lane):
                continue  # it was judged anew, or went on elsewhere
            if answer.failed:
                self._set_trouble("source", answer.failed)
                lane.leader_epoch, moved = None, True
                continue
            if answer.error_code in FENCED:
                lane.leader_epoch, moved = None, True
            elif answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                out_of_range.append(answer.partition)
            elif answer.error_code:
                self._rest(lane, error_name(answer.error_code))
            else:
                await self._accept(lane, answer)
        if out_of_range:
            await self._settle_out_of_range(out_of_range)
        if self.source.reader.silent_s > SOURCE_SILENT_REOPEN_S:
            raise SourceError(f"no answer for {SOURCE_SILENT_REOPEN_S:.0f} s")
        return moved

    def _wanted(self) -> dict[TopicPartition, Place]:
        """Where to read on, every partition being the first in its turn, as an answer has room for some only.

        Most are asked for already where little happens: they are passed over first.
        """
        now, busy = time.monotonic(), self.source.reader.busy
        free = [lane for lane in self._lanes.values() if lane.partition not in busy and lane.rest_until <= now]
        holding = [lane for lane in self._lanes.values() if lane.held_bytes] if free else []
        urgent_bytes = sum(lane.held_bytes for lane in holding if lane.urgent)
        ready = [lane for lane in free if self._has_room(lane, urgent_bytes, len(holding))]
        ready = self._sender.refusals.held.readable(ready, busy)
        if not ready:
            return {}
        self._turn = (self._turn + 1) % len(ready)
        turns = sorted(ready[self._turn :] + ready[: self._turn], key=lambda lane: not lane.urgent)
        return {lane.partition: self._place(lane) for lane in turns}

    @staticmethod
    def _place(lane: PartitionStream) -> Place:
        epoch = -1 if lane.leader_epoch is None else lane.leader_epoch
        return Place(lane.leader.node, epoch, lane.read_offset, lane.urgent, lane.topic_id)

    def _has_room(self, lane: PartitionStream, urgent_bytes: int, holding: int) -> bool:
        """Whether a lane may hold more; what is urgent has a share of the memory that no backlog fills.

        `holding` is how many lanes hold something. Once they hold much, only those that have less than their share are
        read: what one connection sends slowly would else leave nothing to read for another.
        """
        if not lane.is_read or lane.leader.node < 0:
            return False
        if not lane.has_session:  # what has nowhere to go would fill the memory of the others
            return False
        bytes_max = self.config.buffer_bytes_max
        if any(rule.values.get("urgent") for rule in self.config.rules):
            kept = bytes_max // URGENT_SHARE
            if lane.urgent and urgent_bytes < kept:
                return True
            bytes_max -= kept
        held_bytes = self._memory.bytes - self._sender.refusals.held.excess_bytes
        if held_bytes >= bytes_max * BULK_SHARE:
            return lane.held_bytes * holding < bytes_max * BULK_SHARE and held_bytes < bytes_max
        return lane.held_bytes < bytes_max // LANE_SHARE

    def _rest(self, lane: PartitionStream, why: str) -> None:
        """Have one partition wait, longer each time; the others are read on."""
        backoff = self._rests.setdefault(lane.partition, self._backoff())
        lane.rest_until = time.monotonic() + backoff.next_s()
        self._set_trouble(f"{lane.name} source", why)

    async def _accept(self, lane: PartitionStream, answer: Answer) -> None:
        """Take batches into the lane, after every jump in their offsets was explained or written down.

        While that is done, a life of the lane may begin elsewhere: then the rest of them is not what is read next.
        """
        reading = lane.reading
        lane.source_end = answer.log_end
        for start in epoch_starts(answer.batches, lane.read_offset):
            lane.offsets.epochs.note(*start)
        try:
            for found in pieces_of(answer.batches, lane.read_offset, answer.aborted):
                if found.first_offset > lane.read_offset:
                    await self._cross(lane, found.first_offset)
                if lane.reading is not reading:
                    break
                if isinstance(found, Piece):
                    header, writers = found.header, lane.writers
                    is_same = header.producer_id == writers.producer_id and header.producer_epoch == writers.epoch
                    if not is_same and not await self._admission.turn_to_writer(lane, found, answer.log_end):
                        break
                self._take(lane, found)
        except (BadBatch, UntoldError) as error:
            self._rest(lane, str(error))
        else:
            if self._rests.pop(lane.partition, None) is not None:
                self._set_trouble(f"{lane.name} source", "")
        self._sender.consider(lane)

    def _take(self, lane: PartitionStream, found: Piece | Skipped) -> None:
        if isinstance(found, Piece) and not lane.writers.passes_over:
            lane.put(found, asyncio.get_running_loop().time())
            return
        if isinstance(found, Piece):
            labels = label_text(lane.partition.topic), str(lane.partition.partition)
            self.metrics.passed_over.labels(*labels).inc(found.end_offset - found.first_offset)
        lane.read_offset = found.end_offset

    async def _cross(self, lane: PartitionStream, seen: int) -> None:
        """Settle the offsets that no batch of the log covers, by the rule in gap_rules.py."""
        reading = lane.reading
        await self._renew_settings(lane, seen)
        if seen > lane.crossed_to and gap_rules.judge_jump(compacted=lane.compacted) == "missing":
            await self._losses.write_loss(lane, "source_offset_jump", lane.read_offset, seen)
        if lane.reading is reading:
            lane.read_offset, lane.crossed_to = seen, max(seen, lane.crossed_to)

    async def _renew_settings(self, lane: PartitionStream, seen: int) -> None:
        """Judge a gap by a cleanup.policy that is a refresh interval old at most: somebody may have altered it."""
        if time.monotonic() - lane.settings_at < self.config.refresh_interval_ms / 1000:
            return
        topic = lane.partition.topic
        settings = (await self.source.settings([topic]))[topic]
        lane.take_settings(settings, max(seen, lane.source_end or 0))

    # -- read: gaps ------------------------------------------------------------------------------------------------

    async def _settle_out_of_range(self, positions: Iterable[TopicPartition]) -> None:
        wanted = [partition for partition in positions if partition in self._lanes]
        starts, ends, untold = await self.source.known_bounds(wanted)
        for partition, why in untold.items():
            self._rest(self._lanes[partition], why)
        wanted = [partition for partition in wanted if partition not in untold]
        read = {tp: self._lanes[tp].read_offset for tp in wanted}
        above = [tp for tp in wanted if self._lanes[tp].read_offset > ends[tp] and self._lanes[tp].has_epoch]
        if above:
            self._judge_anew(above)
            await self._discover()
        for partition in wanted:
            lane = self._lanes.get(partition)
            if lane is None or not lane.is_read or lane.read_offset != read[partition]:
                continue  # its epochs told
            verdict = gap_rules.judge_out_of_range(lane.read_offset, starts[partition], ends[partition])
            if verdict.first_offset < verdict.end_offset:
                reading = lane.reading
                await self._losses.write_loss(
                    lane, "source_offset_out_of_range", verdict.first_offset, verdict.end_offset
                )
                if lane.reading is not reading:
                    continue  # a life has begun elsewhere meanwhile
            if verdict.resume_offset < lane.read_offset:
                self._rewind(lane, starts[partition], ends[partition])
            else:
                lane.read_offset = verdict.resume_offset
            self._sender.consider(lane)

    def _rewind(self, lane: PartitionStream, log_start: int, log_end: int) -> None:
        """Have the lane start again from the log's start, once what was read before is safe at the target."""
        _log.error("source_went_back", **lane.fields(), position=lane.read_offset, log_start=log_start, log_end=log_end)
        self.doubled(lane, log_end - log_start)  # at most: what is there now may be other records
        lane.go_back_to, lane.leader_epoch, lane.starts_anew = log_start, None, True

    # -- what the sender tells -------------------------------------------------------------------------------------

    def acked(self, lane: PartitionStream, batch: Batch) -> None:
        """Count a batch that is safe at the target."""
        labels = (label_text(lane.partition.topic), str(lane.partition.partition))
        self.metrics.records.labels(*labels).inc(batch.packed.records)
        self.metrics.bytes.labels(*labels).inc(batch.packed.payload_bytes)
        self._progress.acked(lane, batch.packed.records, batch.packed.payload_bytes)
        self.metrics.sent.inc(len(batch.packed.batch))

    @property
    def others_s(self) -> float:
        """For so long another mirror of the site may still write."""
        return self.standby.others_s

    async def place(self, lane: PartitionStream, resumed: Resumed, end_offset: int) -> int:
        """Return where a lane begins that has no state: by the group's position, or with the source's log."""
        if lane.state is None and lane.set_by_hand is not None:
            return lane.set_by_hand
        if resumed.verdict == "source_anew" and not lane.starts_anew:
            _log.warning("topic_made_anew", **lane.fields(), acked=lane.offsets.acked, topic_id=lane.topic_id)
            if lane.offsets.topic_id is not None and lane.offsets.topic_id == lane.topic_id:
                return lane.offsets.acked  # of this very log: where it begins now may be higher, which is then a gap
            told = (await self.source.commits([lane.partition])).get(lane.partition)
            if told is not None and told.topic_id is not None and told.topic_id == lane.topic_id:
                return told.offset  # another mirror has begun it meanwhile
        if resumed.verdict != "position":
            starts, _ = await self.source.bounds([lane.partition])
            is_known = lane.state is not None or lane.commit is not None
            start, mirrored = starts[lane.partition], lane.offsets.acked if is_known else resumed.source_offset
            if resumed.verdict == "target_anew" and mirrored < start:
                await self._losses.write_loss(lane, "source_offset_out_of_range", mirrored, start)
            return start
        if lane.commit is None:
            return lane.offsets.acked
        return await mirrored_up_to(self.source, self.target, lane, lane.commit, end_offset)

    def begun(self, lane: PartitionStream, lost: int) -> None:
        """Have the position judged where a life of the lane has begun."""
        self.metrics.target_lost.inc(lost)
        if lost:
            _log.error("target_lost", **lane.fields(), to=lane.target_topic, records=lost)
        self._have_begun = True
        self._memory.room.set()

    def doubled(self, lane: PartitionStream, records: int) -> None:
        """Count records that are at the target and are sent again."""
        self.metrics.duplicates.inc(records)
        _log.warning("duplicates", **lane.fields(), records=records)

    def stored(self, lane: PartitionStream) -> None:
        """Have a lane send what waited for the state topic."""
        if not lane.is_gone:
            self._sender.consider(lane)

    def state_topic_lost(self, name: str) -> None:
        """Name the state topic that was deleted while this mirror ran."""
        then = "is written again, and offsets from before are translated no more"
        self._lost_state = [f"{name} was deleted at the target while this mirror ran: it {then}"]
        _log.warning("state_topic_deleted", topic=name, action=f"none: it {then}")

    def transaction_ended(self, outcome: str) -> None:
        """Count a transaction."""
        self.metrics.transactions.labels(outcome).inc()

    def overtaken(self, text: str) -> None:
        """Have this mirror stand by."""
        self._overtaken_by = self._overtaken_by or text
        self._memory.room.set()

    async def refused_record(self, lane: PartitionStream, refused: Refused) -> bool:
        """Do with a record that the target refuses what is set for its topic; tell whether the lane goes on."""
        if refused.reason in TOO_LARGE and await self._following.has_raised(lane):
            return False
        said = f"the target refuses the record at offset {refused.offset}, of {refused.size} bytes: "
        said += f"{refused.reason}{': ' if refused.said else ''}{refused.said}"
        if self.config.of_topic(lane.partition.topic).on_refused == "stop":
            remedy = 'have the target take it, or set on_refused = "dead_letter" for its topic'
            self._set_trouble(lane.name, f"{said}; it waits: {remedy}")
            return False
        try:
            batch = letter(lane.partition.topic, lane.partition.partition, refused)
        except (ValueError, Refusal, ProtocolViolation) as error:
            self._set_trouble(lane.name, f"{said}; it cannot be put aside, and waits: {error}")
            return False
        await self._losses.write_letter(batch)
        _log.warning("dead_letter", **lane.fields(), offset=refused.offset, bytes=refused.size, error=refused.reason)
        await self._losses.write_loss(lane, "record_refused", refused.offset, refused.offset + 1, refused.size)
        return True

    def refuse(self, text: str) -> None:
        """Have `run` end: the two ends are one cluster."""
        if not self.refusal:
            _log.error("same_cluster", error=text)
        self.refusal = text
        self._set_trouble("target", text)
        self._refused.set()

    def tell(self, name: str, text: str) -> None:
        """Note what is wrong with a partition or the target."""
        self._set_trouble(name, text)

    def made(self, lane: PartitionStream, settings: Mapping[str, str]) -> None:
        """Tell of a topic that was made: under another name than at the source, it is the mirror's alone."""
        self._lives.topic_made(lane.target_topic)
        for each in self._lanes.values():
            is_alone = each.target_topic == lane.target_topic != each.partition.topic
            if is_alone and each.origin is not None:
                each.origin = each.origin._replace(is_alone=True)
        self._following.made(lane, settings)
        fields = {"topic": lane.target_topic, "partitions": lane.partitions, "settings": _text(settings)}
        left_out = {key: value for key, value in lane.settings.items() if key not in settings}
        if left_out:
            _log.warning("topic_created", **fields, not_taken=_text(left_out))
        else:
            _log.info("topic_created", **fields)

    def connection_lost(self) -> None:
        """Count a connection to the target that ended."""
        self.metrics.restarts.labels("target").inc()

    def changed(self, lane: PartitionStream) -> None:
        """Have a lane's position committed."""
        self._committer.position_changed(lane)

    # -- watch -----------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            self._set_trouble("source group", self.standby.trouble)
            self._lags.tick(time.monotonic())
            self._troubles.tick(time.monotonic())
            if not self._reign:
                continue
            self.metrics.held.set(self._sender.refusals.held.bytes)
            self.metrics.fenced.set(not self._lives.is_unfenced)
            self.metrics.under_way.set(self._link.under_way_bytes)
            self.metrics.buffered.set(self._memory.bytes)
            self._sender.tick()
            self._tell_silence("source fetch", "no answer", self.source.reader.silent_s - WAIT_ALL_S)
            self._tell_silence("target ack", "none", self._sender.oldest_s(asyncio.get_running_loop().time()))

    def _tell_silence(self, name: str, what: str, seconds: float) -> None:
        self._set_trouble(name, f"{what} for {seconds:.0f} s" if seconds > SILENT_S else "")


def _text(settings: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in settings.items())
