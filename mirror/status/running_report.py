"""Reports the state of a running mirror: its streams, its link and its problems.

Does not contain: decisions, requests, the form of a report (report.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mirror.client.log_queries import Asking
from mirror.config import Config
from mirror.link.link_model import Link
from mirror.partition.stream import PartitionStream
from mirror.status.problems import NOT_YET, Troubles
from mirror.status.rates import Pace, Progress
from mirror.status.report import TOLD_BY_MIRROR, LinkStatus, PartitionStatus, Report, SideStatus, State, topics_of


class Running(NamedTuple):
    """The parts to report; `ends` are the source and the target, `started_at` and `now` are the loop's time."""

    config: Config
    streams: Iterable[PartitionStream]
    progress: Progress
    link: Link
    ends: tuple[Asking, Asking]
    troubles: Troubles
    silent_s: float
    buffered_bytes: int
    started_at: float
    now: float


def report(running: Running) -> Report:
    """Return the present report."""
    config, link, troubles = running.config, running.link, running.troubles
    streams = sorted(running.streams, key=lambda lane: lane.partition)
    time_ms = int(time.time() * 1000)
    partitions = [_partition(lane, running, time_ms) for lane in streams]
    source, target = (
        SideStatus(servers, _state(side, troubles), *end.traffic.total())
        for side, servers, end in zip(("source", "target"), (config.source, config.target), running.ends, strict=True)
    )
    return Report(
        told_by=TOLD_BY_MIRROR,
        time_ms=time_ms,
        group=config.group_id,
        source=source,
        target=target,
        link=LinkStatus(
            None if link.rate is None else int(link.rate),
            None if link.round_trip_s is None else round(link.round_trip_s * 1000, 1),
            link.is_lossy,
            link.under_way_bytes,
            link.limit_bytes,
            round(running.silent_s, 1),
        ),
        up_s=round(running.now - running.started_at, 1),
        buffered_bytes=running.buffered_bytes,
        troubles=troubles.sentences(),
        topics=topics_of(partitions, {lane.partition.topic: lane.target_topic for lane in streams}),
        partitions=partitions,
        transactions=config.transactions,
    )


def _state(side: str, troubles: Mapping[str, str]) -> State:
    said = [text for name, text in troubles.items() if name == side or name.startswith(f"{side} ")]
    return "not reached yet" if NOT_YET in said else "in trouble" if said else "up"


def _partition(stream: PartitionStream, running: Running, time_ms: int) -> PartitionStatus:
    pace = running.progress.of(stream.partition)
    end, position = stream.source_end, stream.offsets.acked
    lag = None if end is None else max(0, end - position)
    not_read = 0 if end is None else max(0, end - stream.read_offset)
    troubles = running.troubles
    names = [stream.name, *(f"{stream.name} {what}" for what in ("source", "position", "stalled"))]
    said = [troubles[name] for name in names if name in troubles]
    return PartitionStatus(
        stream.partition.topic,
        stream.partition.partition,
        end,
        position,
        lag,
        None if lag is None else int(stream.held_bytes + not_read * pace.bytes_per_offset) if lag else 0,
        bool(not_read),
        None if lag is None else _age_s(stream, pace, running.now, time_ms) if lag else 0.0,
        round(pace.records_s, 2),
        round(pace.bytes_s, 1),
        round(pace.shrinks_s, 2),
        "; ".join(said),
    )


def _age_s(stream: PartitionStream, pace: Pace, now: float, time_ms: int) -> float:
    """Return the age of the oldest record that is not safe: by its timestamp if plausible, else since it was seen."""
    seen_s = 0.0 if pace.behind_since is None else now - pace.behind_since
    under_way = [*stream.uncommitted[:1], *stream.flight[:1]]
    oldest = under_way[0].pieces[0] if under_way else stream.buffer[0] if stream.buffer else None
    written_ms = -1 if oldest is None else oldest.header.first_timestamp
    return round((time_ms - written_ms) / 1000 if 0 < written_ms <= time_ms else seen_s, 1)
