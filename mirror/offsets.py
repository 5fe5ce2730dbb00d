"""PURE. What is known of one partition: what was sent, what is safe at the target, what is committed at the source.

No client, no clock and no chance may come in here. Several batches may be under way per partition; they are safe in
the order in which they were sent, or none behind the first that is not.

    acked <= position <= reserved          all offsets of the source, exclusive ends
    | safe at the target | under way | may be sent | must wait for the next commit

| event            | acked              | position       | committed                              |
|------------------|--------------------|----------------|----------------------------------------|
| begin, resume    | the commit's offset| = acked        | the commit (none: nothing may be sent)  |
| stored(commit)   |                    |                | commit; reserved = commit.sent_up_to   |
| send(end)        |                    | end            | asserted: end <= reserved              |
| ack              | the first's end    |                |                                        |
| take_back        |                    | = acked        | what was under way is not at the target |
| restart          |                    | = acked        | what was under way may be there         |
| skip(to)         | to, or with the last that is under way | to |                               |
| gone_back(to)    | to                 | = acked        | none: nothing may be sent              |

A commit promises before the act how far sending may go (`sent_up_to`, in OffsetCommit's metadata). After a restart the
records in [acked, sent_up_to) are the only ones that can be at the target already, `sent_times` times at most. How many
really are is read from the target's own offsets: `target_end` is the offset after the last record we know to be there;
whatever lies between it and our next batch was written by our former self, or by another writer. So the count is never
too low, exact for one restart where the mirror is the topic's only writer, and capped by what may have been sent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

from mirror.epochs import EpochStart, LeaderEpochs

METADATA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Commit:
    """A position in the source group; its metadata says how far sending may go, where the target ended, of which log.

    `topic_id` is Kafka's text for it; without it and `epoch` the commit is an older version's, or somebody else's.
    """

    offset: int
    sent_up_to: int
    target_end: int | None = None
    sent_times: int = 1
    topic_id: str | None = None
    epoch: EpochStart | None = None

    def metadata(self) -> str:
        """Return the text for OffsetCommit's metadata field, under 250 bytes."""
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
        return json.dumps(fields, separators=(",", ":"))


def read_commit(offset: int, metadata: str) -> Commit:
    """Return the commit found in the group; metadata that is not ours (an operator reset the offset) counts as none."""
    try:
        fields = json.loads(metadata)
    except ValueError:
        return Commit(offset, offset)
    if not isinstance(fields, dict) or fields.get("version") != METADATA_VERSION:
        return Commit(offset, offset)
    sent_up_to, target_end, sent_times = (_integer(fields, key) for key in ("sent_up_to", "target_end", "sent_times"))
    if sent_up_to is None or sent_up_to < offset:
        return Commit(offset, offset)
    topic_id = fields.get("topic_id")
    return Commit(
        offset,
        sent_up_to,
        target_end,
        1 if sent_times is None else sent_times,
        topic_id if isinstance(topic_id, str) else None,
        _epoch(fields, offset),
    )


def _epoch(fields: dict[str, object], offset: int) -> EpochStart | None:
    leader_epoch, start = _integer(fields, "leader_epoch"), _integer(fields, "epoch_start")
    if leader_epoch is None or offset == 0:
        return None
    return EpochStart(offset - 1 if start is None else min(start, offset - 1), leader_epoch)


def _integer(fields: dict[str, object], key: str) -> int | None:
    value = fields.get(key)
    return value if isinstance(value, int) else None


class Acked(NamedTuple):
    """What an acknowledgement told: records now twice at the target, and records the target has lost."""

    duplicates: int
    target_lost: int


class PartitionOffsets:
    """The state of one partition; its methods are the events of the table above."""

    __slots__ = (
        "_resend_end",
        "_sent_times",
        "_strangers",
        "_under_way",
        "acked",
        "committed",
        "epochs",
        "position",
        "target_end",
        "topic_id",
    )

    def __init__(self, offset: int, *, resend_end: int | None = None, target_end: int | None = None) -> None:
        self.acked = offset
        self.position = offset
        self.committed: Commit | None = None
        self.target_end = target_end
        self._resend_end = offset if resend_end is None else resend_end  # below it, a record may be there already
        self._sent_times = 1 if self._resend_end > offset else 0  # how often what is below it was sent before
        self._strangers = 0  # records at the target that are not from this life, not yet matched with one sent again
        self._under_way: list[tuple[int, int]] = []  # of each batch: where it ends at the source, its records
        self.topic_id: str | None = None
        self.epochs = LeaderEpochs()

    @classmethod
    def resume(cls, commit: Commit) -> PartitionOffsets:
        """Return the state after a restart from a commit that the source group holds."""
        offsets = cls(commit.offset, resend_end=commit.sent_up_to, target_end=commit.target_end)
        offsets.committed = commit
        offsets._sent_times = commit.sent_times
        offsets.topic_id = commit.topic_id
        offsets.epochs = LeaderEpochs(() if commit.epoch is None else (commit.epoch,))
        return offsets

    @classmethod
    def rewind(cls, log_start: int, log_end: int, target_end: int | None) -> PartitionOffsets:
        """Return the state after the source lost its tail: read anew from `log_start`, all below `log_end` twice."""
        offsets = cls(log_start, resend_end=log_end, target_end=target_end)
        offsets._strangers = log_end - log_start
        return offsets

    def gone_back(self, offset: int, leader_epoch: int = -1) -> PartitionOffsets:
        """Return the state after the source lost what it had from `offset` on: what comes there now was never sent.

        `leader_epoch`: what the source has below `offset` is of this epoch at most; -1 when it did not say.
        """
        offsets = PartitionOffsets(offset, target_end=self.target_end)
        offsets.topic_id = self.topic_id
        offsets.epochs = LeaderEpochs(self.epochs.starts)
        offsets.epochs.cut(offset)
        if offset > 0:  # else a commit's one epoch would be gone, and the next loss could not be asked about
            offsets.epochs.note(offset - 1, leader_epoch)
        return offsets

    @property
    def reserved(self) -> int:
        """The offset before which records may be sent; equal to or below `position` when a commit must come first."""
        return (
            self.committed.sent_up_to if self.committed is not None and self._is_told(self.committed) else self.position
        )

    def _is_told(self, commit: Commit) -> bool:
        """Tell whether the next life would know from the commit all that it needs to count what we send now."""
        return commit.sent_times > self._sent_times and (commit.target_end is not None or self.target_end is None)

    def know_target_end(self, offset: int) -> None:
        """Note where the target's partition ends, asked while nothing is under way and nothing else was known.

        What lies below it and may be ours from a former life is counted when it is sent again.
        """
        assert not self._under_way
        self._strangers = max(0, self._resend_end - self.acked) * self._sent_times
        self.target_end = offset

    def send(self, end_offset: int, records: int) -> None:
        """Note that `records` records in [position, end_offset) are on their way, behind all that are."""
        assert self.position < end_offset <= self.reserved, "sent beyond what the commit allows"
        assert 0 < records <= end_offset - self.position
        self._under_way.append((end_offset, records))
        self.position = end_offset

    def ack(self, base_offset: int | None) -> Acked:
        """Note that the first batch under way is safe, from `base_offset` at the target on (None: it did not say)."""
        end_offset, records = self._under_way.pop(0)
        unsure = max(0, self._resend_end - self.acked)
        again = min(records, unsure)
        self.acked = end_offset
        if base_offset is None:
            self.target_end = None
            return Acked(again * self._sent_times, 0)
        lost = 0 if self.target_end is None else max(0, self.target_end - base_offset)
        self._strangers += (
            unsure * self._sent_times if self.target_end is None else max(0, base_offset - self.target_end)
        )
        self.target_end = base_offset + records
        duplicates = min(again * self._sent_times, self._strangers)
        self._strangers -= duplicates
        if self._resend_end <= self.acked:
            self._strangers = self._sent_times = 0
        return Acked(duplicates, lost)

    def take_back(self) -> None:
        """Note that nothing of what is under way is at the target, or ever will be."""
        self._under_way.clear()
        self.position = self.acked

    def restart(self) -> None:
        """Note that the fate of what is under way is unknown, and that it will be sent again by a new producer."""
        self._resend_end = max(self._resend_end, self.position)
        self._sent_times += 1
        self.take_back()

    def skip(self, to_offset: int) -> None:
        """Note that there is nothing to send in [position, to_offset): explained, or in the ledger."""
        assert to_offset >= self.position
        self.position = to_offset
        if self._under_way:
            self._under_way[-1] = (to_offset, self._under_way[-1][1])
        else:
            self.acked = to_offset

    def next_commit(self, window_records: int, *, again: bool = False) -> Commit | None:
        """Return what to commit now so that `window_records` more may be sent.

        None when it would change nothing, unless it is to be said `again`, as the group's offsets expire.
        """
        commit = self._new_commit(max(self.acked + window_records, self._may_be_there()))
        return self.committed if commit is None and again else commit

    def last_commit(self) -> Commit | None:
        """Return what to commit before a clean exit: no more is promised than was sent."""
        return self._new_commit(self._may_be_there())

    def _new_commit(self, sent_up_to: int) -> Commit | None:
        epoch = self.epochs.below(self.acked)
        # What a former life wrote and this one has not met yet is the next one's to count, too
        target_end = None if self.target_end is None else max(0, self.target_end - self._strangers)
        commit = Commit(self.acked, sent_up_to, target_end, self._sent_times + 1, self.topic_id, epoch)
        return None if commit == self.committed else commit

    def _may_be_there(self) -> int:
        return max(self.position, self._resend_end)

    def stored(self, commit: Commit) -> None:
        """Note that the source group holds this commit, durably."""
        self.committed = commit

    def wants_commit(self, window_records: int) -> bool:
        """Tell whether sending will soon stop for want of a commit, and a commit now would help."""
        return self.committed is None or (
            self.reserved - self.position <= window_records // 2 and self.reserved < self.acked + window_records
        )
