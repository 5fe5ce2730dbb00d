"""Keeps this disk's copy of the cluster's topics in step with the image, for a rebuild without ZooKeeper's data.

| event | next |
|---|---|
| the image has settled: everything was read, and no answer is open | compare it with the copy |
| a topic is new or changed | it is met: if the image lacks it when it has settled, it counts as one of the copy |
| a topic of the image that has settled | it is in the next copy |
| a topic of it has fewer partitions than in the copy | ZooKeeper's data is older: the copy's entry stays |
| a topic of the copy is not in the image | Exists of its deletion |
| Stat | it is a deletion in the next copy |
| NO_NODE | it is absent: ZooKeeper's data may be an older copy, so it stays in the file |
| no answer | it is absent, and asked for again once everything was read again |
| the next copy differs from the written one | KeepCopy: at most one a second, after a failure one each 10 s |

The copy has an entry for each topic and none for a record, so its size does not depend on what is written.

Contains: that comparison. Does not contain: the file (storage/metadata/cluster_copy.py), the rebuild.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from edge_broker.cluster.effects import Effect, KeepCopy
from edge_broker.cluster.znodes.metadata_image import Image
from edge_broker.cluster.znodes.partition_state_write import AskThen
from edge_broker.cluster.znodes.znode_codec import deleted_path
from edge_broker.cluster.znodes.zookeeper import Answer, Exists, Failure, Stat
from edge_broker.storage.metadata.cluster_copy import (
    DELETIONS_KEPT,
    ClusterCopy,
    CopiedDeletion,
    CopiedTopic,
    newest_of,
)

KEEP_MS = 1000.0  # between two writes of a copy
RETRY_MS = 10_000.0  # after a write that failed


class CopyKeeper:
    """The copy of one disk; `written` is what the disk has."""

    def __init__(self, ask: AskThen, image: Image, emit: Callable[[Effect], None], written: ClusterCopy) -> None:
        self._ask, self._image, self._emit = ask, image, emit
        self.written = self.copy = written
        self._asking: set[str] = set()  # topic ids, whose deletions are asked for
        self._not_deleted: set[str] = set()  # topic ids, as far as ZooKeeper says
        self._met: dict[str, CopiedTopic] = {}  # by topic id: read since then, maybe deleted before it was compared
        self._compared = -1  # the image's changes then
        self._writing: ClusterCopy | None = None
        self._due_ms = 0.0

    def read_again(self) -> None:
        """Everything was read again: compare all of it, and ask again for what is absent."""
        self._not_deleted.clear()
        self._compared = -1

    def topic_changed(self, name: str) -> None:
        """A topic was read, or is gone: one that lives for a moment was here as well, and another disk may have it."""
        if name in self._image.topics:
            topic = self._copy_topic(name)
            self._met[topic.topic_id] = newest_of(topic, self._met.get(topic.topic_id))

    def tick(self, own_epoch: int, now_ms: float) -> None:
        """Time has passed; `own_epoch` is that of this broker's registration, under which the image was read."""
        if self._image.is_settled and self._image.changes != self._compared:
            self._compare(own_epoch)
        if self._writing is None and not self._asking and self.copy != self.written and now_ms >= self._due_ms:
            self._writing, self._due_ms = self.copy, now_ms + KEEP_MS
            self._emit(KeepCopy(self.copy))

    def copy_written(self, now_ms: float, *, done: bool) -> None:
        """The copy was written, synced; not `done`: the disk refused it."""
        if done and self._writing is not None:
            self.written = self._writing
        if not done:
            self._due_ms = now_ms + RETRY_MS
        self._writing = None

    def _compare(self, own_epoch: int) -> None:
        image, copy = self._image, self.copy
        self._compared = image.changes
        known = dict[str, CopiedTopic]()
        for each in (*self._met.values(), *copy.topics, *copy.absent):
            known[each.topic_id] = newest_of(known.get(each.topic_id), each)
        read = map(self._copy_topic, sorted(image.topics))
        topics = tuple(newest_of(topic, known.get(topic.topic_id)) for topic in read)
        there = {topic.topic_id for topic in topics}
        gone = [each for each in known.values() if each.topic_id not in there | self._kept_deletions()]
        self._met.clear()
        as_of = max(copy.as_of, own_epoch, *(topic.epoch for topic in topics))
        self.copy = copy._replace(as_of=as_of, topics=topics, absent=tuple(sorted(gone, key=_place)))
        for topic in gone:
            if topic.topic_id not in self._asking | self._not_deleted:
                self._asking.add(topic.topic_id)
                self._ask(Exists(deleted_path(topic.topic_id)), partial(self._topic_checked, topic))

    def _copy_topic(self, name: str) -> CopiedTopic:
        topic = self._image.topics[name]
        return CopiedTopic(name, topic.topic_id, self._image.topic_epochs[name], topic.replicas, dict(topic.config))

    def _kept_deletions(self) -> set[str]:
        return {each.topic_id for each in self.copy.deletions}

    def _topic_checked(self, topic: CopiedTopic, answer: Answer) -> None:
        self._asking.discard(topic.topic_id)
        if isinstance(answer, Stat):
            self._delete(topic, self._image.epoch_base + answer.czxid)
        elif answer is Failure.NO_NODE:
            self._not_deleted.add(topic.topic_id)

    def _delete(self, topic: CopiedTopic, epoch: int) -> None:
        copy = self.copy
        others = [each for each in copy.deletions if each.topic_id != topic.topic_id]
        others.append(CopiedDeletion(topic.name, topic.topic_id, epoch))
        newest = sorted(others, key=lambda each: each.epoch)[-DELETIONS_KEPT:]
        absent = tuple(each for each in copy.absent if each.topic_id != topic.topic_id)
        self.copy = copy._replace(as_of=max(copy.as_of, epoch), absent=absent, deletions=tuple(newest))


def _place(topic: CopiedTopic) -> tuple[str, str]:
    return topic.name, topic.topic_id
