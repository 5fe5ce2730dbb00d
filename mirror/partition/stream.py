"""Holds one partition between source and target: source batches, batches in flight, and whether it may be read on.

Does not contain: clients, decisions.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from edge_broker.protocol.record_batch import CODEC_NONE
from kafka_wire.cluster import Leader, Topic
from kafka_wire.partitions import TopicPartition
from kafka_wire.records.batches import PackedBatch, Piece
from mirror.link.link_model import InFlightRequest
from mirror.partition.leader_epochs import LeaderEpochs, differ
from mirror.partition.provenance import Origin, Writers
from mirror.partition.send_state import SendProgress
from mirror.partition.source_offsets import Commit, PartitionOffsets
from mirror.partition.target_state import PartitionState, SentBatch


class Memory:
    """The bytes of source batches held, over all streams; `room` is set whenever some were released."""

    def __init__(self) -> None:
        self.bytes = 0
        self.room = asyncio.Event()

    def release(self, size: int) -> None:
        """Note that so many bytes were released."""
        self.bytes -= size
        self.room.set()


class Producer(NamedTuple):
    """The writer of batches at the target: producer id and epoch, as the target gave them."""

    id: int
    epoch: int


class Batch:
    """One batch to the target, its bytes final: its source batches, and its outcome.

    | mark | outcome | it |
    |------|---------|----|
    | None | None    | is to be sent, the same bytes as before if it was sent |
    | set  | None    | is in flight |
    | None | a code  | has this response, or LOST: no response |

    `lost` counts the times that it was sent without a response; `posted_s` is the first time sent, since boot.
    """

    __slots__ = (
        "end_offset",
        "lost",
        "mark",
        "outcome",
        "packed",
        "pieces",
        "posted_s",
        "said",
        "sent",
        "stream",
        "took_s",
    )

    def __init__(
        self, stream: PartitionStream, pieces: list[Piece], packed: PackedBatch, sent: SentBatch | None
    ) -> None:
        self.stream, self.pieces, self.packed = stream, pieces, packed
        self.sent = sent  # its sequences; None if it has no records
        self.end_offset = pieces[-1].end_offset
        self.mark: InFlightRequest | None = None
        self.outcome: int | None = None
        self.said = ""  # the target's error message of a refusal
        self.lost, self.posted_s = 0, 0.0
        self.took_s = 0.0  # from its last sending to its refusal

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self.packed.batch)


class PartitionStream(SendProgress):
    """One partition between source and target: batches read and not yet acknowledged, and its offsets.

    | leader_epoch | go_back_to | the partition                                                                    |
    |--------------|------------|----------------------------------------------------------------------------------|
    | None         | None       | is not read: its position is to be checked                                       |
    | None         | an offset  | is not read: read batches are still sent, then it is read again from the offset  |
    | an epoch     | None       | is read under this epoch, -1 if the source has none                              |

    `send_state` says whether its batches are sent (send_state.py).
    """

    __slots__ = (
        "_when_drained",
        "answered_below",
        "assigned",
        "at_target",
        "backlog_until",
        "batch_bytes_max",
        "blocked",
        "boundary",
        "buffer",
        "buffer_bytes",
        "codec",
        "commit",
        "compacted_below",
        "connection",
        "contradicts",
        "crossed_to",
        "flight",
        "flight_max",
        "go_back_epoch",
        "go_back_to",
        "growth",
        "held_bytes",
        "is_alone",
        "lag_shown",
        "leader",
        "leader_epoch",
        "leaves",
        "lingers",
        "memory",
        "offsets",
        "origin",
        "packing",
        "partition",
        "partitions",
        "plain_left",
        "read_offset",
        "reading",
        "remembered_ms",
        "resend_from",
        "rest_until",
        "settings",
        "settings_at",
        "shrinkage",
        "source_end",
        "starts_anew",
        "state",
        "stored_at",
        "suspicion",
        "target_topic",
        "tasks",
        "topic_id",
        "uncommitted",
        "urgent",
        "waits_since",
        "writers",
    )

    def __init__(
        self, partition: TopicPartition, target_topic: str, settings: Mapping[str, str], memory: Memory | None = None
    ) -> None:
        super().__init__()
        self.partition = partition
        self.memory = memory or Memory()
        self.held_bytes = 0  # of source batches, in the buffer and in flight
        self.target_topic = target_topic
        self.at_target = TopicPartition(target_topic, partition.partition)
        self.settings = settings  # configs to create the target's topic with; cleanup.policy is always among them
        self.settings_at = time.monotonic()  # when the source returned them
        self.compacted_below = 0  # the cleaner has removed records below there, before the topic ceased to compact
        self.partitions = 1
        self.codec = CODEC_NONE  # of merged batches
        self.urgent = False  # it goes before streams that are not
        self.topic_id: str | None = None
        self.leader = Leader(-1, -1)
        self.leader_epoch: int | None = None
        self.source_end: int | None = None  # the high watermark, as of the last fetch
        self.lag_shown: int | None = None
        self.rest_until = 0.0  # before which it is not read, for a problem of its own
        self.go_back_to: int | None = None
        self.go_back_epoch = -1  # the greatest leader epoch that the source has below there, -1 if unknown
        self._when_drained: asyncio.Future[None] | None = None
        self.stored_at = time.monotonic()  # when its position was last committed to the source's group
        self.state: PartitionState | None = None  # since its first session in this process has started
        self.commit: Commit | None = None  # the group's, when the partition was discovered
        self.starts_anew = False  # its next session begins at the start of the source's log
        self.resend_from: tuple[int, int] | None = None  # a refused batch, if a later one was accepted
        self.answered_below = False  # the target returned an offset below its last one: it has lost its end
        self.contradicts = False  # a sequence would mean another record than it may have meant: no session goes on
        self.packing = False  # source batches are out of the buffer and not yet in flight
        self.suspicion: Any = None  # of batches that have their connection closed (producer/failures/suspects.py)
        self.is_alone = False  # its batches go one at a time, by a connection of their own
        self.blocked = False  # it waits for its next attempt (producer/failures/blocked_partitions.py)
        self.lingers = False  # a timer will consider it
        self.leaves = False  # another connection is to carry it, once nothing of it is in flight
        self.connection: Any = None  # the target connection that carries it
        self.assigned = (0, 0)  # the range of connections from which that one was chosen
        self.backlog_until = 0.0  # until then it counts as a stream with a backlog
        self.boundary: int | None = None  # an offset that no batch may cross, as a larger one was refused
        self.batch_bytes_max = 0
        self.growth = 1.0  # records' bytes, unpacked, per byte of a source batch
        self.plain_left = 0  # so many source batches are forwarded before packing them is tried again
        self.shrinkage = 1.0  # bytes of a batch that is sent, per byte of its source batches
        self.flight: list[Batch] = []  # sent and not acknowledged, in order
        self.flight_max = 1  # batches at a time
        self.remembered_ms = -1  # the timestamp by which the target ages the producer's state, -1 if unknown
        self.uncommitted: list[Batch] = []  # before those: acknowledged, in a transaction that has not ended
        self.origin: Origin | None = None  # of the records sent, as far as the source's mirrors tell
        self.writers = Writers()
        self.tasks: set[asyncio.Task[None]] = set()
        self.start(PartitionOffsets(0))

    def start(self, offsets: PartitionOffsets) -> None:
        """Begin from these offsets with nothing read; nothing may be in flight."""
        assert not self.flight
        self.offsets = offsets
        self.read_from(offsets.position)
        self.crossed_to = 0  # below there every gap is explained, or in the ledger
        self.buffer: deque[Piece] = deque()  # read and not packed
        self.buffer_bytes = 0
        self.waits_since = 0.0  # when the first in the buffer was read

    def read_from(self, offset: int) -> None:
        """Read on from this offset; `reading` is another object from now on, for callers that await meanwhile."""
        self.read_offset, self.reading = offset, object()

    def release_buffer(self) -> None:
        """Forget source batches that are not packed; they are read again."""
        ahead = self.next_offset
        self.clear()
        self.read_from(ahead)

    def begin_at(self, offset: int) -> None:
        """Begin from this offset of the source, with the epochs of the state; its position is to be checked."""
        assert self.state is not None
        before, starts = self.offsets, self.state.epoch_starts
        self.clear()
        offsets = PartitionOffsets(offset, target_end=before.target_end)
        is_other = differ(before.topic_id, self.topic_id)  # nothing known before is of this log
        offsets.topic_id = self.topic_id if self.state.map.steps or is_other else before.topic_id
        offsets.epochs = LeaderEpochs(starts) if starts or is_other else before.epochs
        offsets.epochs.cut(offset)
        if offsets.epochs.below(offset) is None and before.topic_id == self.topic_id:
            offsets.epochs = LeaderEpochs(before.epochs.starts)  # no step has the skipped records
            offsets.epochs.cut(offset)
        offsets.committed = before.committed
        self.start(offsets)
        self.leader_epoch = self.go_back_to = None

    def skip(self, to_offset: int) -> None:
        """Note that nothing is to be sent below there, except batches in flight."""
        self.offsets.skip(to_offset)
        if self.state is not None:
            self.state.pass_over(to_offset, self.offsets.epochs.below(to_offset))

    def may_go(self, batch: Batch) -> bool:
        """Return whether the target has stored what the batch's sequences mean."""
        assert self.state is not None
        assert batch.sent is not None
        return self.state.may_go(batch.sent)

    def take_settings(self, settings: Mapping[str, str], log_end: int) -> None:
        """Note the topic's present configs, while its log ends at `log_end`."""
        if self.may_be_compacted and "compact" not in settings["cleanup.policy"]:
            self.compacted_below = max(self.compacted_below, log_end)
        self.settings, self.settings_at = settings, time.monotonic()

    def metadata_received(self, topic: Topic) -> None:
        """Note the source's metadata; if the leader epoch rose, the position must be checked again.

        A lower epoch is a broker's stale metadata: if it is true, the leader refuses the next fetch.
        """
        self.partitions, self.topic_id = len(topic.leaders), topic.topic_id
        self.leader = topic.leaders[self.partition.partition]
        if self.leader_epoch is not None and self.leader.epoch > self.leader_epoch:
            self.leader_epoch = None

    def put(self, piece: Piece, now: float) -> None:
        """Append a source batch to the buffer."""
        if not self.buffer:
            self.waits_since = now
        self.buffer.append(piece)
        self.buffer_bytes += len(piece.batch)
        self.count_held(len(piece.batch))
        self.read_offset = piece.end_offset

    def take(self) -> Piece:
        """Take the first source batch out of the buffer, to be packed."""
        piece = self.buffer.popleft()
        self.buffer_bytes -= len(piece.batch)
        return piece

    def cut(self, end_offset: int) -> None:
        """Split the first source batch in the buffer at an offset within it."""
        first = self.buffer.popleft()
        self.buffer.appendleft(first._replace(first_offset=end_offset))
        self.buffer.appendleft(first._replace(end_offset=end_offset))
        self.buffer_bytes += len(first.batch)
        self.count_held(len(first.batch))

    def return_to_buffer(self, pieces: list[Piece]) -> None:
        """Put source batches back that are not in flight."""
        self.buffer.extendleft(reversed(pieces))
        self.buffer_bytes += sum(len(piece.batch) for piece in pieces)

    def release(self, pieces: Iterable[Piece]) -> None:
        """Forget source batches that are safe, or recorded."""
        size = sum(len(piece.batch) for piece in pieces)
        self.held_bytes -= size
        self.memory.release(size)
        if self._when_drained is not None and self.is_drained:
            self._when_drained.set_result(None)
            self._when_drained = None

    def clear(self) -> None:
        """Forget all source batches that are not in flight."""
        pieces, self.buffer, self.buffer_bytes = self.buffer, deque(), 0
        self.release(pieces)

    def count_held(self, size: int) -> None:
        """Note that the held source batches count for so many bytes more."""
        self.held_bytes += size
        self.memory.bytes += size

    @property
    def is_drained(self) -> bool:
        """Whether all that was read is acknowledged."""
        return not (self.buffer or self.uncommitted or self.flight or self.packing)

    @property
    def is_quiet(self) -> bool:
        """Whether no request has a batch of it, and the worker packs none."""
        return not self.packing and all(batch.mark is None for batch in self.flight)

    async def wait_drained(self) -> None:
        """Wait until `is_drained`."""
        if not self.is_drained:
            if self._when_drained is None:
                self._when_drained = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._when_drained)

    @property
    def next_offset(self) -> int:
        """The source's offset of the next record to pack."""
        return self.buffer[0].first_offset if self.buffer else self.read_offset

    @property
    def name(self) -> str:
        """The partition's name for people."""
        return f"{self.partition.topic}-{self.partition.partition}"

    @property
    def is_read(self) -> bool:
        """Whether the position stands, so that it may be read on."""
        return self.leader_epoch is not None

    @property
    def may_go_back(self) -> bool:
        """Whether it must go back to an offset, and all that was read is safe at the target."""
        return self.go_back_to is not None and self.is_drained

    @property
    def set_by_hand(self) -> int | None:
        """The position that another client has committed to the group."""
        return self.commit.offset if self.commit is not None and self.commit.by_hand else None

    @property
    def is_of_another_log(self) -> bool:
        """Whether the group's position is of another topic that had this name."""
        return self.commit is not None and differ(self.commit.topic_id, self.topic_id)

    @property
    def is_compacted_there(self) -> bool:
        """Whether the target's cleaner may remove records."""
        return "compact" in self.settings["cleanup.policy"]

    @property
    def has_epoch(self) -> bool:
        """Whether the leader epoch of the last record that was read is known."""
        return self.offsets.epochs.below(self.read_offset) is not None

    @property
    def may_be_compacted(self) -> bool:
        """Whether the source's cleaner may have removed records that are read next."""
        return "compact" in self.settings["cleanup.policy"] or self.read_offset < self.compacted_below

    def fields(self) -> dict[str, object]:
        """Return the fields of a log line about this stream."""
        return {"topic": self.partition.topic, "partition": self.partition.partition}
