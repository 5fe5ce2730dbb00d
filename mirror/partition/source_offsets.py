"""PURE. Tracks one partition's offsets at the source: what was sent, what is safe at the target, what is committed.

Several batches may be in flight per partition. They become safe in the order in which they were sent, and none after
the first that is not.

    acked <= position          offsets of the source, exclusive ends
    | safe at the target | in flight

| event            | acked                                  | position | committed  |
|------------------|----------------------------------------|----------|------------|
| begin, resume    | the commit's offset                    | = acked  | the commit |
| commit_stored    |                                        |          | commit     |
| send(end)        |                                        | end      |            |
| ack              | the first's end                        |          |            |
| requeue(kept)    |                                        | = acked; or the last kept batch's end | |
| skip(to)         | to, or with the last that is in flight | to       |            |
| gone_back(to)    | to                                     | = acked  | none       |

The state topic at the target says what is safe (target_state.py). The commit at the source follows it: for retention
and ladder there, for people, and for a mirror that has lost its state. A commit's metadata names the log: topic id,
leader epoch, the target's end; and the producers whose batches were passed over, as the state topics that named them
may be deleted. One of a version before the state topic (up to 56f8dfa) also promises how far sending may have gone
(`sent_up_to`), `sent_times` times at most. Does not contain: clients, clocks, chance.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from mirror.partition.leader_epochs import EpochStart, LeaderEpochs

METADATA_VERSION = 1
PASSED_OVER_MAX = 16


@dataclass(frozen=True, slots=True)
class Commit:
    """A position in the source's group; its metadata has the bound of sending, the target's end, and the log.

    `topic_id` is in Kafka's text form; without it and `epoch` the commit is an older version's, or another client's.
    """

    offset: int
    sent_up_to: int
    target_end: int | None = None
    sent_times: int = 1
    topic_id: str | None = None
    epoch: EpochStart | None = None
    passed_over: tuple[int, ...] = ()
    """Producer ids of which batches were not sent, as they came from the target; the last PASSED_OVER_MAX."""
    by_hand: bool = field(default=False, compare=False)
    """Whether another client has set it."""

    def metadata(self) -> str:
        """Return the text for OffsetCommit's metadata field, under 600 bytes."""
        fields: dict[str, object] = {
            "version": METADATA_VERSION,
            "sent_up_to": self.sent_up_to,
            "target_end": self.target_end,
            "sent_times": self.sent_times,
        }
        if self.topic_id is not None:
            fields["topic_id"] = self.topic_id
        if self.epoch is not None:
            fields |= {"leader_epoch": self.epoch.leader_epoch, "epoch_start": self.epoch.offset}
        if self.passed_over:
            fields["passed_over"] = self.passed_over
        return json.dumps(fields, separators=(",", ":"))


def read_commit(offset: int, metadata: str) -> Commit:
    """Return the commit found in the group; metadata of another client (an operator's reset) counts as none."""
    try:
        fields = json.loads(metadata)
    except ValueError:
        return Commit(offset, offset, by_hand=True)
    if not isinstance(fields, dict) or _integer(fields, "version") != METADATA_VERSION:
        return Commit(offset, offset, by_hand=True)
    sent_up_to, target_end, sent_times = (_integer(fields, key) for key in ("sent_up_to", "target_end", "sent_times"))
    if sent_up_to is None or sent_up_to < offset:
        return Commit(offset, offset, by_hand=True)
    topic_id = fields.get("topic_id")
    return Commit(
        offset,
        sent_up_to,
        target_end,
        1 if sent_times is None else sent_times,
        topic_id if isinstance(topic_id, str) else None,
        _epoch(fields, offset),
        _passed_over(fields.get("passed_over")),
    )


def _epoch(fields: dict[str, object], offset: int) -> EpochStart | None:
    leader_epoch, start = _integer(fields, "leader_epoch"), _integer(fields, "epoch_start")
    if leader_epoch is None or offset == 0:
        return None
    return EpochStart(offset - 1 if start is None else min(start, offset - 1), leader_epoch)


def _passed_over(found: object) -> tuple[int, ...]:
    if not isinstance(found, list) or not all(type(each) is int for each in found):
        return ()
    return tuple(found[-PASSED_OVER_MAX:])


def _integer(fields: dict[str, object], key: str) -> int | None:
    value = fields.get(key)
    return value if type(value) is int else None  # JSON's true and false are no numbers


class PartitionOffsets:
    """The state of one partition; its methods are the events of the table above."""

    __slots__ = ("_under_way", "acked", "committed", "epochs", "position", "target_end", "topic_id")

    def __init__(self, offset: int, *, target_end: int | None = None) -> None:
        self.acked = offset
        self.position = offset
        self.committed: Commit | None = None
        self.target_end = target_end  # after the last record that is safe there
        self._under_way: list[int] = []  # of each batch in flight: its end at the source
        self.topic_id: str | None = None
        self.epochs = LeaderEpochs()

    @classmethod
    def resume(cls, commit: Commit) -> PartitionOffsets:
        """Return the state after a restart from a commit that the source group holds."""
        offsets = cls(commit.offset, target_end=commit.target_end)
        offsets.committed = commit
        offsets.topic_id = commit.topic_id
        offsets.epochs = LeaderEpochs(() if commit.epoch is None else (commit.epoch,))
        return offsets

    def gone_back(self, offset: int, leader_epoch: int = -1) -> PartitionOffsets:
        """Return the state after the source lost its records from `offset` on: new records there were never sent.

        `leader_epoch`: the source's records below `offset` are of this epoch at most; -1 if unknown.
        """
        offsets = PartitionOffsets(offset, target_end=self.target_end)
        offsets.topic_id = self.topic_id
        offsets.epochs = LeaderEpochs(self.epochs.starts)
        offsets.epochs.cut(offset)
        if offset > 0:  # else a commit's one epoch would be gone, and the next loss could not be queried
            offsets.epochs.note(offset - 1, leader_epoch)
        return offsets

    def send(self, end_offset: int) -> None:
        """Note that the records in [position, end_offset) are in flight, after all others."""
        assert self.position < end_offset
        self._under_way.append(end_offset)
        self.position = end_offset

    def ack(self, target_end: int) -> None:
        """Note that the first batch in flight is safe, and ends at `target_end` at the target."""
        self.acked, self.target_end = self._under_way.pop(0), target_end

    def requeue(self, kept: int = 0) -> None:
        """Note that all batches in flight but the first `kept` will be sent again."""
        del self._under_way[kept:]
        self.position = self._under_way[-1] if self._under_way else self.acked

    def skip(self, to_offset: int) -> None:
        """Note that [position, to_offset) has nothing to send: explained, or in the ledger."""
        assert to_offset >= self.position
        self.position = to_offset
        if self._under_way:
            self._under_way[-1] = to_offset
        else:
            self.acked = to_offset

    def next_commit(self, passed_over: tuple[int, ...] = (), *, repeat: bool = False) -> Commit | None:
        """Return the commit to make; None if it is made already, unless `repeat` is set, as offsets expire."""
        epoch = self.epochs.below(self.acked)
        commit = Commit(self.acked, self.acked, self.target_end, 1, self.topic_id, epoch, passed_over)
        return None if commit == self.committed and not repeat else commit

    def commit_stored(self, commit: Commit) -> None:
        """Note that the source group holds this commit, durably."""
        self.committed = commit
