"""PURE. Declares a mirror's state as values and as JSON, the same from the mirror itself or from its source's group.

Does not contain: clients, loops, clocks, text for a person (status_text.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from drupelet.quantities import quantity_text

VERSION = 1

TOLD_BY_MIRROR, TOLD_BY_SOURCE = "mirror", "source"
State = Literal["up", "in trouble", "not reached yet"]


class PartitionStatus(NamedTuple):
    """One partition. None: not known.

    `position` is the offset below which all is safe at the target. `lag` is the number of offsets from it to
    `source_end`; `lag_bytes` the same in bytes at the source, an estimate if `estimated`; `lag_s` the age of its oldest
    record. `shrinks_s`: by how many offsets a second the lag shrinks.
    """

    topic: str
    partition: int
    source_end: int | None
    position: int | None
    lag: int | None
    lag_bytes: int | None = None
    estimated: bool = False
    lag_s: float | None = None
    records_s: float | None = None
    bytes_s: float | None = None
    shrinks_s: float | None = None
    trouble: str = ""


class TopicStatus(NamedTuple):
    """One topic: sums over its partitions, `lag_s` the greatest, `drain_s` None if no end is foreseeable.

    `troubled` counts the partitions that have a problem of their own.
    """

    topic: str
    target_name: str | None
    partitions: int
    lag_records: int | None
    lag_bytes: int | None
    lag_bytes_estimated: bool
    lag_s: float | None
    records_s: float | None
    bytes_s: float | None
    shrinks_s: float | None
    drain_s: float | None
    troubled: int


class SideStatus(NamedTuple):
    """One end: its servers, and the bytes on the wire of its connections since the start; None: not known."""

    servers: str
    state: State | None = None
    wire_out_bytes: int | None = None
    wire_in_bytes: int | None = None


class LinkStatus(NamedTuple):
    """The link to the target by its acknowledgements; None: nothing was measured yet."""

    rate_bytes_s: int | None
    round_trip_ms: float | None
    loses_segments: bool
    under_way_bytes: int
    under_way_bytes_max: int
    silent_s: float


class Report(NamedTuple):
    """The whole state. If the mirror itself was not queried, `link` and `up_s` are None, and `troubles` the source's.

    `transactions`: whether it runs them; None if it was not queried, or is of a version without them.
    """

    told_by: str
    time_ms: int
    group: str
    source: SideStatus
    target: SideStatus
    link: LinkStatus | None
    up_s: float | None
    buffered_bytes: int | None
    troubles: Sequence[str]
    topics: Sequence[TopicStatus]
    partitions: Sequence[PartitionStatus]
    transactions: bool | None = None

    def as_json(self, **more: object) -> str:
        """Return one JSON object; `more` comes first."""
        fields = {"version": VERSION, **more, **self._asdict()}
        fields["source"], fields["target"] = self.source._asdict(), self.target._asdict()
        fields["link"] = None if self.link is None else self.link._asdict()
        fields["topics"] = [one._asdict() for one in self.topics]
        fields["partitions"] = [one._asdict() for one in self.partitions]
        return json.dumps(fields, separators=(",", ":"))


def read(text: str | bytes) -> Report:
    """Parse the report of a mirror; raises ValueError if it is none. Unknown keys are skipped."""
    try:
        fields = json.loads(text)
        if fields["version"] != VERSION:
            raise ValueError(f"it is of version {fields['version']!r}, and this command reads {VERSION}")
        report: Report = _make(Report, fields)
        return report._replace(
            source=_make(SideStatus, fields["source"]),
            target=_make(SideStatus, fields["target"]),
            link=None if report.link is None else _make(LinkStatus, fields["link"]),
            topics=[_make(TopicStatus, one) for one in fields["topics"]],
            partitions=[_make(PartitionStatus, one) for one in fields["partitions"]],
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"it is no report of a mirror: {error}") from error


def _make(kind: Any, fields: Mapping[str, Any]) -> Any:
    return kind(**{name: fields[name] for name in kind._fields if name in fields or name not in kind._field_defaults})


def topics_of(partitions: Iterable[PartitionStatus], names: Mapping[str, str | None]) -> list[TopicStatus]:
    """Return the topics of these partitions, by name; `names` are those at the target."""
    by_topic: dict[str, list[PartitionStatus]] = {}
    for one in partitions:
        by_topic.setdefault(one.topic, []).append(one)
    return [_topic(name, names.get(name), of) for name, of in sorted(by_topic.items())]


def _topic(name: str, target_name: str | None, of: Sequence[PartitionStatus]) -> TopicStatus:
    lag, shrinks_s = _sum(one.lag for one in of), _sum(one.shrinks_s for one in of)
    size = _sum(one.lag_bytes for one in of)
    return TopicStatus(
        name,
        target_name,
        len(of),
        None if lag is None else int(lag),
        None if size is None else int(size),
        any(one.estimated or (one.lag and one.lag_bytes is None) for one in of),
        max((one.lag_s for one in of if one.lag_s is not None), default=None),
        _sum(one.records_s for one in of),
        _sum(one.bytes_s for one in of),
        shrinks_s,
        0.0 if lag == 0 else lag / shrinks_s if lag and shrinks_s and shrinks_s > 0 else None,
        sum(bool(one.trouble) for one in of),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values; None if none is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def beyond(report: Report, lag_max: int | None, lag_s_max: float | None) -> list[str]:
    """Return one sentence per topic whose lag exceeds a limit."""
    said = []
    for one in report.topics:
        if lag_max is not None and (one.lag_records or 0) > lag_max:
            said.append(f"{one.topic} lags by {quantity_text(one.lag_records or 0, 'record')}, more than {lag_max}")
        if lag_s_max is not None and (one.lag_s or 0) > lag_s_max:
            said.append(f"{one.topic} lags by {one.lag_s:.0f} s, more than {lag_s_max:g} s")
    return said
