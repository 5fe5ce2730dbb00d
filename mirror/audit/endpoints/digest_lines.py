"""PURE. Writes and parses the digests of one end as lines of JSON, all that crosses a link: `audit --digests-of`.

| line | says |
|---|---|
| `{"digests":1,"of":"target","at_ms":…,"asked":""}` | the first: version, end, time, the selection; cluster id |
| `{"partition":["readings",0],…}` | its lines follow; the keys of Facts. The source's names, ascending |
| `{"r":"DIGEST","runs":[[700,512]],…}` | one range, the keys below |
| `{"unread":"…","holes":[[0,0,"unread"]]}` | it was read no further, and why; older releases refuse the hole |
| `{"parts":[1700000000000,"…","…","…"]}` | Parts of the one record that was requested |
| `{"all":4}` | the last: the number of partitions |

A partition that an end cannot read now has `start` and `end` null and the reason in `unknown`. A release that does not
know this key refuses such a line, and so does not take the partition for an empty one.

| key of a range | |
|---|---|
| r | its digest; absent if it has no records |
| runs | offsets of its records: the first, and the number of consecutive ones |
| n | control, aborted and compacted offsets since the range before, and those from the target if any; absent for none |
| rest | it ends with the log |
| holes | other offsets without records: first, end, kind |
| each, keys | digests of its records, and of their keys |

Digests are base64 without padding. A file of another version is refused. So is a file that was cut off, since it would
prove less than it seems to. Does not contain: files, clocks, what the digests are made of (audit/digest/digests.py).
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast, get_args

from mirror.audit.compare.matching import Side
from mirror.audit.digest.digests import DIGEST_BYTES, KEY_BYTES, Hole, Kind, Parts, Range
from mirror.audit.digest.partition_facts import Entry, Facts
from mirror.partition.offset_map import End, Step
from mirror.partition.state_records import Head, StoredState, Topics

VERSION = 1
LINE_BYTES_MAX = 64 * 1024 * 1024  # the steps of a map are one line

_KINDS = get_args(Kind)


class BadLine(Exception):
    """The line is none of this format: half a sentence of why."""


class Begin(NamedTuple):
    """The first line; `asked` is the selection, empty: all. `cluster_id` is empty if the cluster has none."""

    side: Side
    at_ms: int
    asked: str
    cluster_id: str = ""


class Unread(NamedTuple):
    """The line of a partition that was read no further."""

    why: str


class All(NamedTuple):
    """The last line."""

    partitions: int


def begin_line(begin: Begin) -> str:
    """Return the first line."""
    cluster = {"cluster": begin.cluster_id} if begin.cluster_id else {}
    return _json({"digests": VERSION, "of": begin.side, "at_ms": begin.at_ms, "asked": begin.asked, **cluster})


def all_line(partitions: int) -> str:
    """Return the last line."""
    return _json({"all": partitions})


def facts_line(facts: Facts) -> str:
    """Return the line before a partition's ranges."""
    fields: dict[str, Any] = {
        "partition": [facts.topic, facts.partition],
        "name": facts.name,
        "start": None if facts.unknown else facts.start,
        "end": None if facts.unknown else facts.end,
        "compacted": facts.is_compacted,
        "topic_id": facts.topic_id,
    }
    if facts.position is not None:
        fields["position"] = facts.position
    if facts.reason:
        fields["reason"] = facts.reason
    if facts.unknown:
        fields["unknown"] = facts.unknown
    if facts.ledger:
        fields["ledger"] = [list(entry) for entry in facts.ledger]
    if facts.state is not None:
        head, held, steps = facts.state
        fields["head"] = [list(head.topics), *head[1:7], list(head.end)]
        fields["steps"] = [held, [list(step) for step in steps]]
    return _json(fields)


def range_line(one: Range, *, each: bool) -> str:
    """Return the line of a range, with the digests of its records or without."""
    fields: dict[str, Any] = {}
    if one.records:
        fields["r"] = _text(one.digest)
        fields["runs"] = [list(run) for run in one.runs]
    if any(one.counts):
        fields["n"] = list(one.counts if one.counts[-1] else one.counts[:-1])
    if not one.is_cut:
        fields["rest"] = True
    if one.holes:
        fields["holes"] = [list(hole) for hole in one.holes]
    if each and one.digests is not None and one.records:
        fields["each"] = _text(one.digests)
        if one.keys is not None:
            fields["keys"] = _text(one.keys)
    return _json(fields)


def parts_line(parts: Parts) -> str:
    """Return the line of one record's parts."""
    return _json({"parts": list(parts)})


def unread_line(why: str) -> str:
    """Return the line of a partition that was read no further."""
    return _json({"unread": why, "holes": [[0, 0, "unread"]]})


Line = Begin | Facts | Range | Parts | Unread | All


def read_line(line: str) -> Line:
    """Parse a line. Raises BadLine."""
    try:
        fields = json.loads(line)
        if not isinstance(fields, dict):
            raise BadLine("it is no JSON object")
        if "digests" in fields:
            return _begin(fields)
        if "partition" in fields:
            return _facts(fields)
        if "parts" in fields:
            timestamp, *digests = fields["parts"]
            return Parts(_number(timestamp), *map(str, digests))
        if "unread" in fields:
            return Unread(str(fields["unread"]))
        if "all" in fields:
            return All(_number(fields["all"]))
        return _range(fields)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise BadLine(f"it cannot be read ({error!r})") from error


def _begin(fields: Mapping[str, Any]) -> Begin:
    version, side = fields["digests"], fields["of"]
    if version != VERSION:
        raise BadLine(f"it is of version {version!r}, and this edge-mirror reads {VERSION}: use the same at both ends")
    if side not in get_args(Side):
        raise BadLine(f"it is of {side!r}, neither source nor target")
    return Begin(cast(Side, side), _number(fields["at_ms"]), str(fields["asked"]), str(fields.get("cluster", "")))


def _facts(fields: Mapping[str, Any]) -> Facts:
    topic, partition = fields["partition"]
    compacted, topic_id = fields["compacted"], fields["topic_id"]
    unknown = str(fields.get("unknown", ""))
    return Facts(
        str(topic),
        _number(partition),
        str(fields["name"]),
        0 if unknown else _number(fields["start"]),
        0 if unknown else _number(fields["end"]),
        None if compacted is None else bool(compacted),
        None if topic_id is None else str(topic_id),
        _number(fields["position"]) if "position" in fields else None,
        tuple(Entry(str(cause), _number(first), _number(end)) for cause, first, end in fields.get("ledger", ())),
        _parse_stored(fields) if "head" in fields else None,
        str(fields.get("reason", "")),
        unknown,
    )


def _parse_stored(fields: Mapping[str, Any]) -> StoredState:
    topics, *numbers, end = fields["head"]
    held, steps = fields["steps"]
    producer_id, epoch, life, first, last, count = map(_number, numbers)
    head = Head(Topics(*topics), producer_id, epoch, life, first, last, count, End(*map(_number, end)))
    return StoredState(head, _number(held), [Step(*map(_number, step)) for step in steps])


def _range(fields: Mapping[str, Any]) -> Range:
    runs = tuple((_number(first), _number(count)) for first, count in fields.get("runs", ()))
    records = sum(count for _, count in runs)
    if not all(count > 0 for _, count in runs):
        raise BadLine("a run of it has no records")
    digest = _bytes(fields["r"], DIGEST_BYTES) if runs else b""
    control, aborted, compacted, *more = fields.get("n", (0, 0, 0))
    (from_target,) = more or (0,)
    return Range(
        records,
        digest,
        runs,
        (_number(control), _number(aborted), _number(compacted), _number(from_target)),
        tuple(_hole(*hole) for hole in fields.get("holes", ())),
        _bytes(fields["each"], DIGEST_BYTES * records) if "each" in fields else None,
        _bytes(fields["keys"], KEY_BYTES * records) if "keys" in fields else None,
        "rest" not in fields,
    )


def _hole(first: Any, end: Any, kind: Any) -> Hole:
    if kind not in _KINDS:
        raise BadLine(f"there are no offsets of the kind {kind!r}")
    return Hole(_number(first), _number(end), cast(Kind, kind))


def _number(value: Any) -> int:
    if type(value) is not int:
        raise BadLine(f"{value!r} is no whole number")
    return value


def _text(digests: bytes) -> str:
    return b64encode(digests).rstrip(b"=").decode()


def _bytes(text: Any, size: int) -> bytes:
    found = b64decode(str(text) + "=" * (-len(str(text)) % 4), validate=True)
    if len(found) != size:
        raise BadLine(f"its digests have {len(found)} bytes instead of {size}")
    return found


def _json(fields: Mapping[str, Any] | Sequence[Any]) -> str:
    return json.dumps(fields, separators=(",", ":"))
