"""PURE. Encodes and parses the records of the state topic at the target, which is compacted and has one partition.

| key | value, JSON |
|---|---|
| `head:TOPIC:PARTITION` | the keys below |
| `steps:TOPIC:PARTITION:N` | `version`, and `steps`: at most 128, numbered from N * 128 on |

A step is [records, source offset, source epoch, target offset] (offset_map.py). The first of a record is absolute. Each
later one has the number of records between, and by how much more than these the others grew: a lost offset at the
source is [12,1,0,0].

| head | meaning |
|---|---|
| version | 1; 2 of a session with transactions. Newer ones are refused, with a sentence; unknown keys are skipped |
| target | the topic's name at the target |
| source_id, target_id | the ids of both topics, in Kafka's text form; null if there are none |
| producer_id, producer_epoch | the writer |
| life | the start: sequence 0 of that epoch is the record before which so many were mirrored |
| chunks | the first and the last N that count; other records are old |
| steps | how many steps of the last one count |
| records, source_offset, target_end | the safe records when this was written, all exclusive ends |
| transactional | true: committed with the records below those ends; records after them do not count |
| source_epoch | [offset, leader epoch] of the last skipped records below source_offset; left out if unknown |
| former_ids | producer ids that wrote before, the last FORMER_MAX; left out if there are none |
| origin | the records' origin (provenance.py); versions before leave it out, also on rewriting |

A head of the state topic itself announces a spare transactional id (transactional_ids.py); its partition is the number
of the id: `version` 3, `spare`, and `producer_id` and `producer_epoch` of the mirror that took it. No version before
reads beyond.

| origin | meaning |
|---|---|
| passed | ids of the clusters that each record has passed, the source among them |
| perhaps | ids of further clusters that some records may have passed |
| alone | true: the mirror created the topic under another name, and is its only writer |
| since | the target's offset from which on `producers` names all of the mirror's |
| producers | [producer id, the log's end at its first use], oldest first, 32 at most |

All records of a partition that are written at one time are in one batch, so a reader never finds half of them.
Does not contain: clients, clocks, chance; client/state_topic.py reads and writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from mirror.partition.leader_epochs import EpochStart
from mirror.partition.offset_map import End, Step
from mirror.partition.provenance import Claim, Origin
from mirror.topics.selection import TOPIC_NAME_LENGTH_MAX

VERSION, TRANSACTIONAL_VERSION, SPARE_VERSION = 1, 2, 3
CHUNK_STEPS = 128

Partition = tuple[str, int]
Record = tuple[bytes, bytes | None]  # key and value; None removes the key's record


class StateError(Exception):
    """The state topic's records cannot be used; one sentence for a person."""


class StepsMissing(StateError):
    """The steps in memory are not enough; earlier ones are: read them all."""


class Topics(NamedTuple):
    """The topic's name at the target, and the ids of both topics."""

    target: str
    source_id: str | None
    target_id: str | None


class Head(NamedTuple):
    """A partition's head, by the table above."""

    topics: Topics
    producer_id: int
    producer_epoch: int
    life: int
    first_chunk: int
    last_chunk: int
    last_steps: int
    end: End
    is_transactional: bool = False
    passed: EpochStart | None = None
    origin: Origin | None = None
    former_ids: tuple[int, ...] = ()


class StoredState(NamedTuple):
    """The stored state of a partition: its head, and its steps from chunk `held_chunk` on."""

    head: Head
    held_chunk: int
    steps: list[Step]


def topic_name(group_id: str) -> str:
    """Return a mirror's state topic, by its group at the source; `__` keeps it out of every mirror's selection."""
    return f"__{re.sub(r'[^a-zA-Z0-9._-]', '_', group_id)}-state"[:TOPIC_NAME_LENGTH_MAX]


def is_state_topic(name: str) -> bool:
    """Return whether a name may be of a mirror's state topic; other records in such a topic make no claim."""
    return name.startswith("__edge-mirror-") and (name.endswith("-state") or len(name) == TOPIC_NAME_LENGTH_MAX)


def head_record(partition: Partition, head: Head) -> Record:
    """Return the record of a head."""
    fields: dict[str, Any] = {
        "version": TRANSACTIONAL_VERSION if head.is_transactional else VERSION,
        "target": head.topics.target,
        "source_id": head.topics.source_id,
        "target_id": head.topics.target_id,
        "producer_id": head.producer_id,
        "producer_epoch": head.producer_epoch,
        "life": head.life,
        "chunks": [head.first_chunk, head.last_chunk],
        "steps": head.last_steps,
        "records": head.end.records,
        "source_offset": head.end.source_offset,
        "target_end": head.end.target_offset,
    }
    if head.is_transactional:
        fields["transactional"] = True
    if head.passed is not None:
        fields["source_epoch"] = list(head.passed)
    if head.former_ids:
        fields["former_ids"] = list(head.former_ids)
    if head.origin is not None:
        fields["origin"] = _origin_fields(head.origin)
    return _key("head", partition), _json(fields)


def spare_record(state_topic: str, number: int, spare: str, producer: tuple[int, int]) -> Record:
    """Return the record that announces a spare transactional id."""
    fields = {"version": SPARE_VERSION, "spare": spare, "producer_id": producer[0], "producer_epoch": producer[1]}
    return _key("head", (state_topic, number)), _json(fields)


def no_spare_record(state_topic: str, number: int) -> Record:
    """Return the record that removes the announcement."""
    return _key("head", (state_topic, number)), None


def _origin_fields(origin: Origin) -> dict[str, Any]:
    return {
        "passed": sorted(origin.passed),
        "perhaps": sorted(origin.perhaps),
        "alone": origin.is_alone,
        "since": origin.since,
        "producers": [list(each) for each in origin.producers],
    }


def _origin(fields: Mapping[str, Any] | None) -> Origin | None:
    """Return the origin in a head; raises ValueError, KeyError or TypeError if it is malformed."""
    if fields is None:
        return None
    producers = tuple((producer_id, first) for producer_id, first in fields["producers"])
    numbers = (fields["since"], *(number for each in producers for number in each))
    clusters = [*fields["passed"], *fields["perhaps"]]
    if not all(type(number) is int for number in numbers) or not all(type(each) is str for each in clusters):
        raise TypeError("its origin has a number or a cluster id that is none")
    passed, perhaps = frozenset(fields["passed"]), frozenset(fields["perhaps"])
    return Origin(passed, perhaps, fields["alone"] is True, fields["since"], producers)


def claim_of(state_topic: str, key: bytes | None, value: bytes | None) -> tuple[Partition, Claim] | None:
    """Return the claim that a record of another mirror's state topic makes; None if it makes none.

    The version does not matter, as a newer mirror's records loop like any other's.
    """
    try:
        kind, partition, _ = _read_key(key)
        fields = json.loads(value) if kind == "head" and value is not None else None
        if not isinstance(fields, dict):
            return None
        producer_id, target = fields["producer_id"], fields["target"]
        if type(producer_id) is not int or type(target) is not str:
            return None
        ids = (fields.get("target_id"), fields.get("source_id"))
        topic_id, source_id = (each if isinstance(each, str) else None for each in ids)
        origin = _origin(fields.get("origin"))
    except (StateError, ValueError, KeyError, TypeError):
        return None
    return partition, Claim(state_topic, target, topic_id, partition[1], source_id, producer_id, origin)


def steps_record(partition: Partition, chunk: int, steps: Sequence[Step]) -> Record:
    """Return the record of a chunk."""
    return _key("steps", partition, chunk), _json({"version": VERSION, "steps": list(_rows(steps))})


def no_steps_record(partition: Partition, chunk: int) -> Record:
    """Return the record that removes a chunk."""
    return _key("steps", partition, chunk), None


def _json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _key(kind: str, partition: Partition, *number: int) -> bytes:
    topic, of = partition
    return ":".join([kind, topic, str(of), *map(str, number)]).encode()


def _rows(steps: Sequence[Step]) -> list[list[int]]:
    rows = [list(step) for step in steps[:1]]
    for before, step in pairwise(steps):
        records, sources, epochs, targets = (one - other for one, other in zip(step, before, strict=True))
        rows.append([records, sources - records, epochs, targets - records])
    return rows


def _steps(rows: Sequence[Sequence[int]]) -> list[Step]:
    steps: list[Step] = []
    for row in rows:
        records, source, epoch, target = row
        if not all(type(number) is int for number in row):
            raise TypeError(f"{row!r} has a number that is none")
        if steps:
            last = steps[-1]
            step = Step(
                last.records + records,
                last.source_offset + records + source,
                last.source_epoch + epoch,
                last.target_offset + records + target,
            )
        else:
            step = Step(records, source, epoch, target)
        steps.append(step)
    return steps


class Reading:
    """Collects the topic's records as they are read in order; of each partition it holds the last chunks alone.

    `chunks_max` None holds all, as translating needs. Raises StateError for records of a newer version, and for
    malformed ones.
    """

    def __init__(self, chunks_max: int | None = 2) -> None:
        self._chunks_max = chunks_max
        self._spares: dict[Partition, str] = {}
        self._heads: dict[Partition, Head] = {}
        self._chunks: dict[Partition, dict[int, list[list[int]]]] = {}

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Add one record."""
        kind, partition, chunk = _read_key(key)
        if value is None:
            if kind == "steps":
                self._chunks.get(partition, {}).pop(chunk, None)
            elif self._spares.pop(partition, None) is None:
                self._heads.pop(partition, None)
            return
        try:
            fields = json.loads(value)
            _check_version(fields["version"], key)
            if kind == "head" and fields["version"] == SPARE_VERSION:
                self._spares[partition] = _text(fields["spare"])
            elif kind == "steps":
                self._chunks.setdefault(partition, {})[chunk] = fields["steps"]
            else:
                self._heads[partition] = head = _head(fields)
                self._drop(partition, head)
        except (ValueError, KeyError, TypeError) as error:
            raise StateError(f"The state topic's record {key!r} cannot be read: {error!r}.") from error

    def _drop(self, partition: Partition, head: Head) -> None:
        held = self._chunks.get(partition, {})
        for chunk in [chunk for chunk in held if chunk < self._oldest(head)]:
            del held[chunk]

    def _oldest(self, head: Head) -> int:
        if self._chunks_max is None:
            return head.first_chunk
        return max(head.first_chunk, head.last_chunk - self._chunks_max + 1)

    @property
    def spares(self) -> dict[int, str]:
        """The spare transactional ids that are announced, by their numbers."""
        return {number: name for (_, number), name in self._spares.items()}

    def partitions(self) -> dict[Partition, StoredState]:
        """Return the stored state of each partition."""
        return {partition: self._stored_state(partition, head) for partition, head in self._heads.items()}

    def _stored_state(self, partition: Partition, head: Head) -> StoredState:
        held, chunk = self._chunks.get(partition, {}), head.last_chunk
        steps = self._steps(partition, chunk, head.last_steps) if head.last_steps else []
        while chunk > self._oldest(head) and (chunk - 1 in held or self._chunks_max is None):
            chunk -= 1
            steps = self._steps(partition, chunk, CHUNK_STEPS) + steps
        return StoredState(head, chunk, steps)

    def _steps(self, partition: Partition, chunk: int, count: int) -> list[Step]:
        rows = self._chunks.get(partition, {}).get(chunk, [])
        name = f"{partition[0]}-{partition[1]}"
        if len(rows) < count:
            raise StateError(f"The state of {name} lacks steps of number {chunk}: was the state topic changed by hand?")
        try:
            return _steps(rows[:count])
        except (TypeError, ValueError) as error:
            raise StateError(f"The steps of number {chunk} of {name} cannot be read: {error}.") from error


def _check_version(version: int, key: bytes | None) -> None:
    if version > SPARE_VERSION:
        raise StateError(
            f"The state topic's record {key!r} is of version {version}, and this mirror knows {SPARE_VERSION}: "
            "install the version that wrote it, or a newer one."
        )


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError("a transactional id is no text")
    return value


def _head(fields: Mapping[str, Any]) -> Head:
    first, last = fields["chunks"]
    numbers = first, last, *(fields[name] for name in ("producer_id", "producer_epoch", "life", "steps"))
    numbers += fields["records"], fields["source_offset"], fields["target_end"]
    passed = tuple(fields.get("source_epoch", ()))
    former_ids = tuple(fields.get("former_ids", ()))
    numbers += passed + former_ids
    if not all(type(number) is int for number in numbers):
        raise TypeError("a number of it is none")
    return Head(
        Topics(fields["target"], fields["source_id"], fields["target_id"]),
        fields["producer_id"],
        fields["producer_epoch"],
        fields["life"],
        first,
        last,
        fields["steps"],
        End(fields["records"], fields["source_offset"], fields["target_end"]),
        fields.get("transactional") is True,
        EpochStart(*passed) if passed else None,
        _origin(fields.get("origin")),
        former_ids,
    )


def _read_key(key: bytes | None) -> tuple[str, Partition, int]:
    match (key or b"").decode("utf-8", "replace").split(":"):
        case ["head", topic, number] if number.isdecimal():
            return "head", (topic, int(number)), 0
        case ["steps", topic, number, chunk] if number.isdecimal() and chunk.isdecimal():
            return "steps", (topic, int(number)), int(chunk)
    raise StateError(f"The state topic has a record with key {key!r}, which no mirror of this version writes.")
