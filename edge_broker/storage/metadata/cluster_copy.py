"""The copy of what only ZooKeeper knows of the cluster's topics: the file `cluster-copy`.

| line | content |
|---|---|
| `as-of` | the epoch up to which the file has every topic that existed and every deletion |
| `topic` | topic id, epoch of its znode, name, replicas of each partition (`1,2,3;2,3,1`), configuration as JSON |
| `absent` | the same of a topic that ZooKeeper lacks although nothing says that it was deleted |
| `deleted` | topic id, epoch of the deletion, name; the newest 1000 |

An epoch is a zxid, as that of a registration: of two changes of a cluster the later one has the greater epoch. After
the loss of all ZooKeeper data, `edge-broker cluster rebuild` goes by these files. A topic that a newer file lacks was
deleted, also where the file has forgotten the deletion.

The broker goes by ZooKeeper alone and never by this file, so a damaged file does not stop the start.

Contains: the file. Does not contain: when it is written (copy_keeper.py), who rebuilds a cluster from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.errors import StorageFault
from edge_broker.storage.files.atomic_files import encode_state, fault_of, read_state, replace
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import FileSystem

KIND = "cluster-copy"
FILE = "cluster-copy"
NEVER = -1
DELETIONS_KEPT = 1000  # older ones follow from `as-of`


class CopiedTopic(NamedTuple):
    """A topic as its znode had it; `epoch` is that of the change that made the znode."""

    name: str
    topic_id: str
    epoch: int
    replicas: tuple[tuple[int, ...], ...]
    config: Mapping[str, str]


def newest_of(*found: CopiedTopic | None) -> CopiedTopic:
    """Return the newest of several entries of one topic, at least one of which is no None; of equal ones the first.

    A znode that was made again, as by a rebuild, has a greater epoch. Of one znode, the entry with more partitions is
    newer: they are only ever added, and an older copy of ZooKeeper's data may lack some. Its version does not tell, as
    it rises again from that of the older copy.
    """
    return max((each for each in found if each is not None), key=lambda topic: (topic.epoch, len(topic.replicas)))


class CopiedDeletion(NamedTuple):
    """A topic that was deleted, by a change of this epoch."""

    name: str
    topic_id: str
    epoch: int


class ClusterCopy(NamedTuple):
    """All of it; each tuple has its entries in the order of names, deletions the oldest first."""

    as_of: int = NEVER
    topics: tuple[CopiedTopic, ...] = ()
    absent: tuple[CopiedTopic, ...] = ()
    deletions: tuple[CopiedDeletion, ...] = ()


def read_cluster_copy(fs: FileSystem, data_dir: str) -> ClusterCopy:
    """Return the content of the file. FileNotFoundError, StorageFault when it is damaged."""
    path = f"{data_dir}/{FILE}"
    lines = read_state(fs, path, KIND)
    try:
        (first, as_of), *rest = lines
        topics = tuple(_topic(line) for line in rest if line[0] == "topic")
        absent = tuple(_topic(line) for line in rest if line[0] == "absent")
        deletions = tuple(CopiedDeletion(name, of, int(epoch)) for word, of, epoch, name in _of(rest, "deleted"))
        if first != "as-of" or len(topics) + len(absent) + len(deletions) != len(rest):
            raise ValueError("a line has another word")
        return ClusterCopy(int(as_of), topics, absent, deletions)
    except (ValueError, TypeError, AttributeError) as error:
        raise StorageFault(
            path, 0, f"is no {KIND} file ({error}); remove it: the broker writes it again once it is a member"
        ) from None


def _of(lines: list[list[str]], word: str) -> Iterator[list[str]]:
    return (line for line in lines if line[0] == word)


def _topic(line: list[str]) -> CopiedTopic:
    _, topic_id, epoch, name, replicas, *config = line
    brokers = tuple(tuple(int(broker) for broker in each.split(",")) for each in replicas.split(";"))
    settings = {str(key): str(value) for key, value in json.loads(" ".join(config)).items()}
    return CopiedTopic(name, topic_id, int(epoch), brokers, settings)


@runs_in("files")
def write_cluster_copy(fs: FileSystem, data_dir: str, copy: ClusterCopy) -> None:
    """Replace the file, synced when this returns. StorageFault leaves the former one."""
    lines = [f"as-of {copy.as_of}"]
    lines += [_line("topic", topic) for topic in copy.topics]
    lines += [_line("absent", topic) for topic in copy.absent]
    lines += [f"deleted {each.topic_id} {each.epoch} {each.name}" for each in copy.deletions]
    try:
        replace(fs, data_dir, FILE, encode_state(KIND, 1, lines))
    except OSError as error:
        raise fault_of(error, f"{data_dir}/{FILE}", 0) from error


def _line(word: str, topic: CopiedTopic) -> str:
    replicas = ";".join(",".join(map(str, brokers)) for brokers in topic.replicas)
    config = json.dumps(dict(topic.config), sort_keys=True, separators=(",", ":"))
    return f"{word} {topic.topic_id} {topic.epoch} {topic.name} {replicas} {config}"
