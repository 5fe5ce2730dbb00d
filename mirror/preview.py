"""What `run` would do, told beforehand and changing nothing: `edge-mirror plan`.

| column | of a topic, over its partitions |
|---|---|
| TARGET NAME | what it is called there, or why it cannot be |
| THERE | how many partitions it has there; - when it is to be made |
| TO SEND | records behind the positions, or behind the log's start without one |
| AGAIN | of those at most so many may be there already: what a former life may have sent and not committed |
| SETTINGS | what the file sets for it alone, where it differs from the defaults |
| GONE | offsets behind the positions that the source has deleted; `run` writes them into the ledger |

Lives here: the arithmetic, and what both clusters are asked for it. Must never come in: the table (app.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafka_wire.cluster import Topic
from kafka_wire.partitions import TopicPartition
from mirror.config import Config
from mirror.offsets import Commit
from mirror.source import Source
from mirror.target import Target
from mirror.topics import TopicNameError, target_name


@dataclass(frozen=True, slots=True)
class Planned:
    """One topic that would be mirrored; `target_name` None: it cannot be, and `trouble` says why."""

    topic: str
    target_name: str | None
    partitions: int
    partitions_there: int | None
    to_send: int
    again: int
    gone: int
    trouble: str = ""
    settings: str = ""


async def planned(source: Source, target: Target, config: Config) -> tuple[list[Planned], str | None]:
    """Return each topic that would be mirrored, and, where none of its own would, what the pattern may have meant.

    Raises SourceError, TargetError.
    """
    known = await source.topics()
    chosen = {name: known[name] for name in config.selection.of(known)}
    partitions = [TopicPartition(name, number) for name, topic in chosen.items() for number in topic.leaders]
    starts, ends = await source.bounds(partitions)
    commits = await source.commits(partitions)
    there = {name: len(topic.leaders) for name, topic in (await target.topics()).items()}
    found = [_planned(name, topic, config, (starts, ends, commits), there) for name, topic in chosen.items()]
    return found, config.selection.near_miss(known)


Bounds = tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int], Mapping[TopicPartition, Commit]]


def _planned(name: str, topic: Topic, config: Config, bounds: Bounds, there: Mapping[str, int]) -> Planned:
    counted = [counts(*one) for one in _each(name, topic.leaders, bounds)]
    to_send, again, gone = (sum(column) for column in zip(*counted, strict=True)) if counted else (0, 0, 0)
    size, own = len(topic.leaders), config.of_topic(name).text()
    try:
        called = target_name(name, config.name_policy, config.site or None)
    except TopicNameError as error:
        return Planned(name, None, size, None, to_send, again, gone, str(error), own)
    return Planned(name, called, size, there.get(called), to_send, again, gone, settings=own)


def _each(name: str, numbers: Iterable[int], bounds: Bounds) -> Iterable[tuple[int, int, Commit | None]]:
    starts, ends, commits = bounds
    for number in numbers:
        partition = TopicPartition(name, number)
        yield starts[partition], ends[partition], commits.get(partition)


def counts(start: int, end: int, commit: Commit | None) -> tuple[int, int, int]:
    """Return how many offsets of a partition in [start, end) are to be sent, again of them, and gone before `start`."""
    position = start if commit is None else commit.offset
    first = min(max(position, start), end)
    again = 0 if commit is None else max(0, min(commit.sent_up_to, end) - first)
    return end - first, again, max(0, start - position)
