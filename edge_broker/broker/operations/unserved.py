"""Finds records on this disk that the cluster does not serve here, as where ZooKeeper has an older copy of its data.

| found on the disk, with records | reason |
|---|---|
| a topic that ZooKeeper does not know, and of which no deletion is known | ZooKeeper has no such topic, or another one of its name |
| a partition above the topic's number of partitions | ZooKeeper's topic has fewer partitions |
| a partition of which ZooKeeper names other brokers | ZooKeeper has it elsewhere |

Nothing of it is ever deleted here; it is served again once ZooKeeper has it again. Empty logs are not counted: a topic
has one on each board for each of its partitions.

Contains: the question and its text. Does not contain: how replicas are stopped (cluster/member.py).
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from edge_broker.broker.cluster_port import ClusterReads
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.metadata.topic_record import id_text
from edge_broker.storage.topic import Topic

NAMED_MAX = 10
REMEDY = "nothing of it is deleted; put a newer copy of the ensemble's data back, then it is served again"


class UnservedPartition(NamedTuple):
    """A partition with records on this disk, and why it is not served here."""

    partition: PartitionId
    reason: str


def find_unserved(view: ClusterReads, store: LogStore) -> list[UnservedPartition]:
    """Return what this disk has and the cluster does not serve here; nothing while the cluster is not known whole."""
    if not (view.serves and view.member.image.is_complete):
        return []
    found = list[UnservedPartition]()
    for topic in list(store.topics.values()):
        if store.directory.is_replicated(topic.name):
            found += _of_topic(view, topic)
    return found


def unserved_problem(found: Sequence[UnservedPartition]) -> str | None:
    """Return one sentence for /health and `cluster status` with their names, NAMED_MAX at most; None: there is none."""
    if not found:
        return None
    one = len(found) == 1
    count = "1 partition" if one else f"{len(found)} partitions"
    names = ", ".join(f"{name}-{number}" for (name, number), _ in found[:NAMED_MAX])
    if len(found) > NAMED_MAX:
        names += f" and {len(found) - NAMED_MAX} more"
    reasons = ", ".join(dict.fromkeys(reason for _, reason in found[:NAMED_MAX]))
    return f"{count} with records on this disk {'is' if one else 'are'} not served: {names}: {reasons}; {REMEDY}"


def _of_topic(view: ClusterReads, topic: Topic) -> Iterator[UnservedPartition]:
    broker, topic_id = view.member.identity.broker, id_text(topic.topic_id)
    known = view.topics.get(topic.name)
    for log in topic.partitions:
        number = log.partition
        if not log.size:
            continue
        if known is None or known.topic_id != topic_id:
            if (topic.name, topic_id) in view.strays:  # else it may have been deleted
                what = "no topic" if known is None else "another topic of the name"
                yield UnservedPartition(PartitionId(topic.name, number), f"ZooKeeper has {what} {topic.name}")
        elif number >= len(known.replicas):
            count = len(known.replicas)
            reason = f"ZooKeeper's topic {topic.name} has {count} partition{'' if count == 1 else 's'}"
            yield UnservedPartition(PartitionId(topic.name, number), reason)
        elif not known.gives(number, broker):
            others = ", ".join(map(str, known.replicas[number]))
            reason = f"ZooKeeper's topic {topic.name} has it on brokers {others}, and not on this one"
            yield UnservedPartition(PartitionId(topic.name, number), reason)
