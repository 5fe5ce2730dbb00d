"""A mirror of the simulation: the real rules (admission.py, screening.py, provenance.py) between clusters in memory.

| of a real mirror | here |
|---|---|
| replicator.py: topics found, partition streams made, batches read | `discover`, `read`: the same order, no links |
| producer_sessions.py: fence, head before the first batch | `_begin`: a marker, and `origin_of_writing` in a head |
| a mirror of the last release | reads all that it selects, and its heads have no origin |

No batch is lost, sent twice or reordered: that is mirror_runs.py's. No assertion may live here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kafka_wire.cluster import Topic
from kafka_wire.partitions import TopicPartition
from kafka_wire.records.batches import Piece
from mirror.errors import OriginsChangedError, SourceError
from mirror.origins.admission import Admission
from mirror.origins.screening import Screen
from mirror.partition import provenance
from mirror.partition.offset_map import End
from mirror.partition.provenance import Writing, is_sent
from mirror.partition.send_state import GONE, SENDING
from mirror.partition.source_offsets import Commit
from mirror.partition.state_records import Head, Reading, Topics, head_record, topic_name
from mirror.partition.stream import PartitionStream
from mirror.topics.selection import Policy, Selection
from tests.simulation.loops_clusters import Copy, MemoryCluster, SourceView, TargetView, heads

NOTHING = End(0, 0, 0)
UNTOLD, OF_OLD = "!", "~"
"""Behind the name of a hop: nothing at the source told who had written the batch; the mirror is of the last release."""


class Way(NamedTuple):
    """What a mirror is configured with."""

    name: str
    source: str
    target: str
    policy: Policy
    selection: Selection


class MemoryMirror:
    """One mirror; `is_running` between `start` and `stop`. What it keeps at the two clusters outlasts that.

    `is_told(writer, lane, heads)` returns whether the state topic of a writer tells of a partition, and has done so
    since the source held so many heads.
    """

    def __init__(
        self,
        way: Way,
        source: MemoryCluster,
        target: MemoryCluster,
        is_told: Callable[[str, PartitionStream, int], bool],
        *,
        is_old: bool = False,
    ) -> None:
        self.way, self.is_old, self.is_running = way, is_old, False
        self.source, self.target, self._is_told = source, target, is_told
        self.state_topic = topic_name(f"edge-mirror-{way.name}")
        self.producer_id, self.epoch = target.new_producer(), -1
        self.positions: dict[TopicPartition, Commit] = {}  # in the source's group
        self.troubles: dict[str, str] = {}
        self.lanes: dict[TopicPartition, PartitionStream] = {}
        self.sent: list[Copy] = []
        self._heads: dict[tuple[str, int], Head] = {}
        self._known_state: str | None = None  # the state topic's id
        self._made_ids: dict[str, str] = {}  # of topics at the target
        self._has_lost_state, self._told_since = False, 0
        self._admitted: dict[TopicPartition, int] = {}  # so many heads were at the source then

    # -- life

    def start(self) -> None:
        """Start a process: it knows what is kept at the clusters."""
        self.is_running = True
        self.lanes, self.troubles, self._made_ids = {}, {}, {}
        self.sides = _Sides(SourceView(self.source), TargetView(self.target))
        ends: Any = self.sides
        self.admission = Admission(Screen(ends, 1.0), self.lanes, self._drop, self._tell)
        reading = Reading()
        for key, value in heads(self.target.states.get(self.state_topic)):
            reading.take(key, value)
        self._heads = {partition: stored.head for partition, stored in reading.partitions().items()}
        self._known_state = self.target.ids.get(self.state_topic)
        self._has_lost_state = bool(self.positions) and self._known_state is None

    def stop(self) -> None:
        """End the process."""
        self.is_running = False
        self.lanes.clear()

    def look_after(self) -> None:
        """Make the state topic again where it was deleted, and write all that is known."""
        if self.is_running and self._known_state not in (None, self.target.ids.get(self.state_topic)):
            self._known_state = None
            for partition in self._heads:
                self._store(partition)

    def take_new_producer(self) -> None:
        """Write under another producer id from now on, as where a coordinator has forgotten the transactional id."""
        self.producer_id, self.epoch = self.target.new_producer(), -1
        self._drop_all()

    def tells_of(self, topic: str, partition: int, heads_then: int) -> bool:
        """Return whether its state topic has a head of a partition of its target, and was not lost since then."""
        reading = Reading()
        for key, value in heads(self.target.states.get(self.state_topic)):
            reading.take(key, value)
        places = {(stored.head.topics.target, at[1]) for at, stored in reading.partitions().items()}
        return (topic, partition) in places and self._told_since <= heads_then

    def _tell(self, name: str, text: str) -> None:
        self.troubles.pop(name, None)
        if text:
            self.troubles[name] = text

    def _drop(self, lane: PartitionStream, _event: str) -> None:
        del self.lanes[lane.partition]
        lane.enter(GONE)

    def _drop_all(self) -> None:
        for lane in list(self.lanes.values()):
            self._drop(lane, "")

    # -- topics

    async def discover(self) -> None:
        """Find topics, and make partition streams for new ones; what cannot be told now waits for the next time."""
        found = await self.sides.source.topics()
        names = self.way.selection.of(found)
        wanted = {TopicPartition(name, number): found[name] for name in names for number in found[name].leaders}
        self.admission.keep_only(names)
        for partition, lane in list(self.lanes.items()):
            if partition not in wanted or lane.topic_id != wanted[partition].topic_id:
                self._drop(lane, "")
        new = {tp: topic for tp, topic in wanted.items() if tp not in self.lanes}
        try:
            await self._add(new, found)
        except OriginsChangedError:
            self._drop_all()
        except SourceError as error:
            self._tell("source", str(error))

    async def _add(self, new: dict[TopicPartition, Topic], found: dict[str, Topic]) -> None:
        if self.is_old:
            for partition, topic in new.items():
                self._start(partition, topic)
            return
        new, ends = await self.admission.candidates(found, new)
        commits = {tp: self.positions[tp] for tp in new if tp in self.positions}
        positions = {tp: commits[tp].offset if tp in commits else 0 for tp in new}
        positions = await self.admission.past_known(new, positions, commits)
        verdicts = self.admission.verdicts_on({tp.topic: topic for tp, topic in new.items()}, positions)
        for partition, topic in new.items():
            if is_sent(verdicts[partition.topic]):
                lane = self._start(partition, topic)
                lane.origin = self.admission.origin_of(verdicts[partition.topic], is_known=partition in commits)
                lane.writers.checked_below = ends.get(partition, 0)

    def _start(self, partition: TopicPartition, topic: Topic) -> PartitionStream:
        name = partition.topic if self.way.policy == "identity" else f"{self.way.source}.{partition.topic}"
        lane = self.lanes[partition] = PartitionStream(partition, name, {"cleanup.policy": "delete"})
        lane.metadata_received(topic)
        self._admitted[partition] = self.source.heads
        commit = self.positions.get(partition)
        if commit is not None and commit.topic_id == topic.topic_id:
            lane.writers.passed_over = commit.passed_over
        lane.read_from(0 if commit is None or commit.topic_id != topic.topic_id else commit.offset)
        return lane

    # -- batches

    async def read(self, partition: TopicPartition, batches: int) -> int:
        """Read some batches of a partition, and send what is sent; return how many were read."""
        lane = self.lanes.get(partition)
        if lane is None or self.source.ids.get(partition.topic) != lane.topic_id:
            return 0
        self._begin(lane)
        log, taken = self.source.logs[partition.topic][partition.partition], 0
        self.admission.screen.batches_read()
        for one in log.from_offset(lane.read_offset)[:batches]:
            if isinstance(one.piece, Piece):
                if not await self._turn_to_writer(lane, one.piece, log.end):
                    break
                if not lane.writers.passes_over:
                    self._send(lane, one.writer, one.copies)
            lane.read_offset = one.piece.end_offset
            self.positions[partition] = Commit(
                lane.read_offset, lane.read_offset, topic_id=lane.topic_id, passed_over=lane.writers.passed_over
            )
            taken += 1
        return taken

    async def _turn_to_writer(self, lane: PartitionStream, piece: Piece, log_end: int) -> bool:
        if self.is_old:
            return True
        try:
            return await self.admission.turn_to_writer(lane, piece, log_end) and not lane.is_gone
        except OriginsChangedError:
            self._drop_all()
        except SourceError as error:
            self._tell("source", str(error))
        return False

    def _begin(self, lane: PartitionStream) -> None:
        """Fence the partition at the target, and store a head before its first batch; again where the topic is new."""
        topic, (name, number) = lane.target_topic, lane.partition
        if topic not in self.target.logs:
            self.target.make(topic, len(self.source.logs[name]), self.way.name)
            self._made_ids[topic] = self.target.ids[topic]
            for each in self.lanes.values():
                if each.target_topic == topic != each.partition.topic and each.origin is not None:
                    each.origin = each.origin._replace(is_alone=True)
        elif lane.has_session:
            return
        log, head = self.target.log(topic, number), self._heads.get(lane.partition)
        topics = Topics(topic, lane.topic_id, self.target.ids[topic])
        is_new_log = head is not None and head.topics.target_id != topics.target_id
        if is_new_log:
            lane.read_from(0)
        self.epoch += 1
        log.mark(self.way.name)
        origin = head.origin if head is not None else None
        if lane.origin is not None:
            former_id = -1 if head is None else head.producer_id
            writing = Writing(self.producer_id, log.end, former_id, is_new_log)
            is_alone = lane.origin.is_alone and self._made_ids.get(topic) == topics.target_id
            found = lane.origin._replace(is_alone=is_alone)
            origin = provenance.origin_of_writing(origin, found, writing)
        self._heads[lane.partition] = Head(topics, self.producer_id, self.epoch, 0, 0, 0, 0, NOTHING, origin=origin)
        self._store(lane.partition)
        lane.send_state = SENDING

    def _store(self, partition: tuple[str, int]) -> None:
        self.look_after()
        if self.state_topic not in self.target.states:
            self.target.make_state(self.state_topic)
        self._known_state = self.target.ids[self.state_topic]
        self.target.heads += 1
        if self._has_lost_state:
            self._has_lost_state, self._told_since = False, self.target.heads
        self.target.states[self.state_topic].append(head_record(partition, self._heads[partition]))

    def _send(self, lane: PartitionStream, writer: str, copies: tuple[Copy, ...]) -> None:
        here = self.target.name
        is_told = not writer or self._is_told(writer, lane, self._admitted[lane.partition])
        hop = self.way.name + ("" if is_told else UNTOLD) + (OF_OLD if self.is_old else "")
        sent = [Copy(one.number, (*one.path, here), (*one.hops, hop)) for one in copies]
        log = self.target.log(lane.target_topic, lane.partition.partition)
        head = self._heads[lane.partition]
        log.append(sent, self.way.name, head.producer_id, head.producer_epoch)
        self.sent += sent


class _Sides:
    def __init__(self, source: SourceView, target: TargetView) -> None:
        self.source, self.target = source, target
