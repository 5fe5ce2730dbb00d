"""Committed offsets: what each group committed for each partition, as far as it is synced.

Contains: who may commit, and the table. Does not contain: sessions and rebalances, when an offset is too old.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from edge_broker.coordinator.group import Group, GroupState
from edge_broker.coordinator.group_requests import (
    Commit,
    CommitPartition,
    CommitResult,
    CommittedPartition,
    GroupEffects,
)
from edge_broker.coordinator.offset_records import CommittedOffset, OffsetKey, offset_key, offset_value, storable
from edge_broker.coordinator.storage_errors import commit_error
from edge_broker.errors import ErrorCode

OFFSET_BYTES = 400  # an entry and its share of the tables

Fetched = tuple[str, Iterable[tuple[int, CommittedOffset | None]]]
"""A topic and its partitions; None where nothing is committed (offset -1, leader epoch -1, metadata "" on the wire)."""


class CommittedOffsets:
    """The offsets that OffsetFetch shows; a commit enters after its record is synced."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self.held = 0
        """Bytes of memory, about."""
        self._unsure: dict[OffsetKey, Commit] = {}  # the last one whose record no sync has told to be kept

    def groups(self) -> Iterable[str]:
        """Every group that has an offset."""
        return self._by_group.keys()

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return the group's committed offset of this partition."""
        return self._by_group.get(group_id, {}).get(topic, {}).get(partition)

    def put(self, key: OffsetKey, committed: CommittedOffset | None) -> None:
        """Keep an offset, or drop it for None (a tombstone)."""
        before = self.get(key.group_id, key.topic, key.partition)
        self.held += _held_bytes(committed) - _held_bytes(before)
        if committed is not None:
            self._by_group.setdefault(key.group_id, {}).setdefault(key.topic, {})[key.partition] = committed
            return
        topics = self._by_group.get(key.group_id, {})
        topics.get(key.topic, {}).pop(key.partition, None)
        if not topics.get(key.topic, True):
            del topics[key.topic]
        if not topics:
            self._by_group.pop(key.group_id, None)

    def commit(self, commit: Commit, metadata_max: int, effects: GroupEffects, *, full: bool = False) -> None:
        """Store an allowed commit; its offsets enter, and it is answered, after the sync.

        When memory is `full` a partition that has an offset may have another, with no more metadata than before.
        """
        refused = {
            (one.topic, one.partition): ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            for one in commit.partitions
            if full and self._grows(commit.group_id, one)
        }
        entries = [
            (
                OffsetKey(commit.group_id, one.topic, one.partition),
                CommittedOffset(one.offset, one.leader_epoch, one.metadata or "", effects.wall_ms, effects.age_ms),
            )
            for one in commit.partitions
            if len(one.metadata or "") <= metadata_max and storable(one.metadata or "")
            if (one.topic, one.partition) not in refused
        ]

        def after(error: ErrorCode, later: GroupEffects) -> None:
            if error is ErrorCode.NONE:
                for key, committed in entries:
                    self.put(key, committed)
                    self._is_sure(key, commit)
            kept = {(key.topic, key.partition): commit_error(error) for key, _ in entries}
            later.answer(commit.token, commit_result(commit, refused | kept, ErrorCode.OFFSET_METADATA_TOO_LARGE))

        if entries:
            self._unsure.update((key, commit) for key, _ in entries)
            effects.store([(offset_key(key), offset_value(committed)) for key, committed in entries], after)
        else:
            after(ErrorCode.NONE, effects)

    def _grows(self, group_id: str, one: CommitPartition) -> bool:
        known = self.get(group_id, one.topic, one.partition)
        return known is None or len(one.metadata or "") > len(known.metadata)

    def forget_topics(self, topics: Collection[str], effects: GroupEffects) -> None:
        """Drop what any group committed for topics that are deleted, or may have: once that is synced, else nothing."""
        self.drop(self._of_topics(topics), effects)

    def forget_at_once(self, topics: Collection[str], effects: GroupEffects) -> list[OffsetKey]:
        """Drop what any group committed for topics that are gone, now; what the log has to be told, if it is not
        kept: `bury` tells it once more.
        """
        keys = self._of_topics(topics)
        going = {key: self._unsure.get(key) for key in keys}
        for key in keys:
            self.put(key, None)
        self._bury(going, effects)
        return keys

    def bury(self, keys: Iterable[OffsetKey], effects: GroupEffects) -> None:
        """Have the log told that these are gone, but for those that were committed again."""
        gone = [key for key in keys if key not in self._unsure]
        self._bury({key: None for key in gone if self.get(key.group_id, key.topic, key.partition) is None}, effects)

    def _of_topics(self, topics: Collection[str]) -> list[OffsetKey]:
        keys = {key: None for key in self._unsure if key.topic in topics}
        for group_id, known in self._by_group.items():
            for topic in topics:
                keys.update((OffsetKey(group_id, topic, partition), None) for partition in known.get(topic, ()))
        return list(keys)

    def keys_of(self, group_id: str) -> list[OffsetKey]:
        """Everything that the group committed, or may have."""
        keys = {key: None for key in self._unsure if key.group_id == group_id}
        for topic, partitions in self._by_group.get(group_id, {}).items():
            keys.update((OffsetKey(group_id, topic, partition), None) for partition in partitions)
        return list(keys)

    def topics_of(self, group_id: str) -> list[str]:
        """The topics that the group has offsets of."""
        return list(self._by_group.get(group_id, ()))

    def old(self, group_id: str, topic: str, is_old: Callable[[int], bool]) -> list[OffsetKey]:
        """Return the group's old offsets of a topic that no commit in progress replaces."""
        found = self._by_group.get(group_id, {}).get(topic, {})
        keys = [OffsetKey(group_id, topic, partition) for partition, one in found.items() if is_old(one.age_ms)]
        return [key for key in keys if key not in self._unsure]

    def drop(self, keys: Collection[OffsetKey], effects: GroupEffects) -> None:
        """Drop these offsets, those that are there, once that is synced, else none of them."""
        there = {
            key: self._unsure.get(key)
            for key in keys
            if key in self._unsure or self.get(key.group_id, key.topic, key.partition) is not None
        }
        self._bury(there, effects)

    def _bury(self, going: Mapping[OffsetKey, Commit | None], effects: GroupEffects) -> None:
        """Drop these once that is synced; with each, the commit that no sync has told to be kept."""

        def drop(error: ErrorCode, _later: GroupEffects) -> None:
            if error is ErrorCode.NONE:
                for key, commit in going.items():
                    self.put(key, None)
                    self._is_sure(key, commit)

        if going:
            effects.store([(offset_key(key), None) for key in going], drop)

    def _is_sure(self, key: OffsetKey, commit: Commit | None) -> None:
        if self._unsure.get(key) is commit:  # else a later one is in progress
            self._unsure.pop(key, None)

    def fetch(self, group_id: str, topics: Sequence[tuple[str, Sequence[int]]] | None) -> list[Fetched]:
        """Return a group's offsets for OffsetFetch: the named partitions, looked up as requested, or with None all
        that it committed.
        """
        known = self._by_group.get(group_id, {})
        if topics is None:
            return [(topic, list(partitions.items())) for topic, partitions in known.items()]
        return [(topic, _looked_up(known.get(topic, {}), partitions)) for topic, partitions in topics]


def _looked_up(
    known: Mapping[int, CommittedOffset], partitions: Iterable[int]
) -> Iterator[tuple[int, CommittedOffset | None]]:
    for partition in partitions:
        yield partition, known.get(partition)


def _held_bytes(committed: CommittedOffset | None) -> int:
    return 0 if committed is None else OFFSET_BYTES + len(committed.metadata)


def check_commit(commit: Commit, group: Group | None) -> ErrorCode:
    """Whether this member may commit, or anybody outside the group: NONE or why not."""
    if not storable(commit.group_id):
        return ErrorCode.INVALID_GROUP_ID
    outside = commit.generation_id < 0
    if group is None:
        missing = ErrorCode.GROUP_ID_NOT_FOUND if commit.knows_missing_group else ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE if outside else missing
    if group.state is GroupState.EMPTY and outside:
        return ErrorCode.NONE
    error = group.check_member(commit.member_id, commit.instance_id)
    if error is not None:
        return error
    if commit.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    completing = group.state is GroupState.COMPLETING_REBALANCE
    return ErrorCode.REBALANCE_IN_PROGRESS if completing else ErrorCode.NONE


def commit_result(commit: Commit, kept: dict[tuple[str, int], ErrorCode], otherwise: ErrorCode) -> CommitResult:
    """An answer in the order of the request; partitions that are not in `kept` get `otherwise`."""
    return CommitResult(
        tuple(
            CommittedPartition(one.topic, one.partition, kept.get((one.topic, one.partition), otherwise))
            for one in commit.partitions
        )
    )
