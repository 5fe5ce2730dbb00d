"""Plans what `run` would do, and changes nothing: `edge-mirror plan`.

| column | of a topic, over its partitions |
|---|---|
| TARGET NAME | its name at the target, or why it can have none |
| THERE | how many partitions it has there; - if it is to be created |
| TO SEND | records after the positions, or after the log's start without one |
| AGAIN | of those at most so many may be there already: a previous session may have sent and not committed them |
| SETTINGS | settings for this topic alone in the file, that differ from the defaults |
| FROM TARGET | "all": the topic is passed over, as it came from there; "some": of its records those are passed over |
| GONE | offsets after the positions that the source has deleted; `run` writes them into the ledger |

Contains: the arithmetic, and the queries of both clusters. Does not contain: the table (app.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kafka_wire.cluster import Topic
from kafka_wire.partitions import TopicPartition
from mirror.client.source_client import Source
from mirror.client.target_client import Target
from mirror.config import Config
from mirror.errors import SourceError
from mirror.origins.screening import Screen, screen_of
from mirror.partition.provenance import BLIND, UNSEEN, TopicVerdict
from mirror.partition.source_offsets import Commit
from mirror.topics.selection import TopicNameError, target_name


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """One topic that would be mirrored; `target_name` None: it is not, and `trouble` or `reason` says why.

    `trouble` needs a person's action; `reason` says why some of its records, or all, are passed over.
    """

    topic: str
    target_name: str | None
    partitions: int
    partitions_there: int | None
    to_send: int
    again: int
    gone: int
    trouble: str = ""
    settings: str = ""
    from_target: str = ""
    reason: str = ""


async def make_plan(source: Source, target: Target, config: Config) -> tuple[list[PlannedTopic], str | None]:
    """Return each topic that would be mirrored, and, if the pattern matches none, the topic that it may have meant.

    Raises SourceError, TargetError.
    """
    known = await source.topics()
    chosen = {name: known[name] for name in config.selection.of(known)}
    partitions = [TopicPartition(name, number) for name, topic in chosen.items() for number in topic.leaders]
    starts, ends, untold = await source.known_bounds(partitions)
    commits = await source.commits(partitions)
    there = {name: len(topic.leaders) for name, topic in (await target.topics()).items()}
    positions = {tp: commits[tp].offset if tp in commits else starts[tp] for tp in partitions if tp not in untold}
    screen = screen_of(_Sides(source, target), config)
    verdicts = await _verdicts(screen, known, chosen, positions, commits)
    found = [
        _with_verdict(_plan_topic(name, topic, config, (starts, ends, commits), there), verdicts.get(name))
        for name, topic in chosen.items()
    ]
    if screen.is_blind:
        mirrored = {partition.topic for partition in commits}
        found = [
            _without_claims(one, is_refused=one.topic not in mirrored and screen.is_unseen(one.topic)) for one in found
        ]
    found = [_without_offsets(one, {tp: why for tp, why in untold.items() if tp.topic == one.topic}) for one in found]
    return found, config.selection.near_miss(known)


class _Sides:
    def __init__(self, source: Source, target: Target) -> None:
        self.source, self.target = source, target


def _without_offsets(one: PlannedTopic, untold: Mapping[TopicPartition, str]) -> PlannedTopic:
    """Return the plan of a topic without those partitions whose offsets the source does not return."""
    if not untold or one.target_name is None:
        return one
    first, why = min(untold.items())
    more = f" and of {len(untold) - 1} more of its partitions" if len(untold) > 1 else ""
    trouble = f"the source does not return the offsets of {first.topic}-{first.partition}{more}: {why}"
    return replace(one, trouble=trouble)


def _without_claims(one: PlannedTopic, *, is_refused: bool) -> PlannedTopic:
    """Return the plan of a topic while state topics may not be seen: `run` refuses topics that it never mirrored."""
    if one.trouble or not is_refused:
        return replace(one, from_target="?", reason=f"{one.topic}: {UNSEEN}")
    left_out = replace(one, target_name=None, partitions_there=None, to_send=0, again=0, gone=0, from_target="?")
    return replace(left_out, trouble=f"{one.topic} {BLIND}")


async def from_target(source: Source, target: Target, config: Config) -> dict[str, TopicVerdict]:
    """Return the verdict on each selected topic with records from the target.

    Positions do not count in it. Raises SourceError, TargetError; SourceError if state topics may not be seen.
    """
    known = await source.topics()
    chosen = {name: known[name] for name in config.selection.of(known)}
    await target.topics([])
    screen = screen_of(_Sides(source, target), config)
    verdicts = await _verdicts(screen, known, chosen)
    if any(map(screen.is_unseen, chosen)):
        raise SourceError(UNSEEN)
    return {name: verdict for name, verdict in verdicts.items() if verdict is not None and verdict.reason}


async def _verdicts(
    screen: Screen,
    known: Mapping[str, Topic],
    chosen: Mapping[str, Topic],
    positions: Mapping[TopicPartition, int] | None = None,
    commits: Mapping[TopicPartition, Commit] | None = None,
) -> dict[str, TopicVerdict | None]:
    await screen.check_visible()
    await screen.note_mirrormaker(known)
    await screen.refresh()
    screen.check_readable()
    read_from: dict[str, dict[int, int]] = {name: {} for name in chosen}
    for partition, offset in (positions or {}).items():
        topic_id, commit = chosen[partition.topic].topic_id, (commits or {}).get(partition)
        passed_over = commit.passed_over if commit is not None and commit.topic_id == topic_id else ()
        known_from = await screen.pass_known(partition, topic_id, offset, passed_over)
        read_from[partition.topic][partition.partition] = known_from
    return {name: screen.verdict_on(name, topic.topic_id, read_from[name]) for name, topic in chosen.items()}


def _with_verdict(one: PlannedTopic, verdict: TopicVerdict | None) -> PlannedTopic:
    """Return the plan of a topic of which some records, or all, may have come from the target."""
    if verdict is None or not verdict.reason:
        return one
    if verdict.kind == "sent":
        return replace(one, from_target="some", reason=f"{one.topic} {verdict.reason}")
    reason = f"{one.topic} {verdict.reason}"
    left_out = replace(one, target_name=None, partitions_there=None, to_send=0, again=0, gone=0, from_target="all")
    if verdict.kind == "passed_over":
        return replace(left_out, reason=reason, trouble="")
    return replace(left_out, from_target="?", trouble=reason)


Bounds = tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int], Mapping[TopicPartition, Commit]]


def _plan_topic(name: str, topic: Topic, config: Config, bounds: Bounds, there: Mapping[str, int]) -> PlannedTopic:
    counted = [counts(*one) for one in _each(name, topic.leaders, bounds)]
    to_send, again, gone = (sum(column) for column in zip(*counted, strict=True)) if counted else (0, 0, 0)
    size, own = len(topic.leaders), config.of_topic(name).text()
    try:
        called = target_name(name, config.name_policy, config.site or None)
    except TopicNameError as error:
        return PlannedTopic(name, None, size, None, to_send, again, gone, str(error), own)
    return PlannedTopic(name, called, size, there.get(called), to_send, again, gone, settings=own)


def _each(name: str, numbers: Iterable[int], bounds: Bounds) -> Iterable[tuple[int, int, Commit | None]]:
    starts, ends, commits = bounds
    for number in numbers:
        partition = TopicPartition(name, number)
        if partition in starts:
            yield starts[partition], ends[partition], commits.get(partition)


def counts(start: int, end: int, commit: Commit | None) -> tuple[int, int, int]:
    """Return how many offsets of a partition in [start, end) are to be sent, of them again, and lost before `start`."""
    position = start if commit is None else commit.offset
    first = min(max(position, start), end)
    again = 0 if commit is None else max(0, min(commit.sent_up_to, end) - first)
    return end - first, again, max(0, start - position)
