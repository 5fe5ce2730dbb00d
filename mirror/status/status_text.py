"""PURE. Formats a report for a person: its origin, the two ends and the link, problems, a line per topic.

Does not contain: terminals, clocks, clients.
"""

from __future__ import annotations

from collections.abc import Iterator

from drupelet.printable import printable
from mirror.status.report import LinkStatus, Report, SideStatus, TopicStatus
from mirror.text_tables import bytes_text, count_text, duration_text, table

TROUBLES_MAX = 5
NOTICED_S = 10.0  # of lag, from which on a lag that does not shrink is shown
GROWS = 1.0  # records per second
TRANSACTIONS = "transactions: readers of the target need isolation.level=read_committed"
_HEAD = ("TOPIC", "PARTITIONS", "LAG", "BYTES", "OLDEST", "RECORDS/S", "BYTES/S", "DONE IN")


def text(report: Report, rows_max: int | None = None) -> str:
    """Return the whole report; of more topics than `rows_max`, those with the greatest lag, and how many are left."""
    lines = [*_ends(report), *_troubles(report)]
    topics = list(report.topics)
    left_out = 0
    if rows_max is not None and len(topics) > (rows_max := max(1, rows_max - len(lines) - 3)):
        left_out = len(topics) - rows_max
        topics = sorted(sorted(topics, key=_urgency, reverse=True)[:rows_max])
    lines += ["", _table(topics)] if topics else ["", "No topic is mirrored yet."]
    if left_out:
        lines.append(f"and {left_out} more topics with less lag")
    return "\n".join(lines)


def _urgency(topic: TopicStatus) -> tuple[int, float, float]:
    return topic.troubled, topic.lag_s or 0.0, topic.lag_records or 0


def _ends(report: Report) -> Iterator[str]:
    since = "" if report.up_s is None else f", runs for {duration_text(report.up_s)}"
    yield f"{report.group}{since}"
    for side, end in (("source", report.source), ("target", report.target)):
        if end.servers:
            yield f"{side}  {', '.join([end.servers, *_end(end)])}"
    if report.link is not None:
        yield f"link    {', '.join(_link(report.link, report.buffered_bytes or 0))}"
    if report.transactions:
        yield f"mode    {TRANSACTIONS}"


def _end(end: SideStatus) -> Iterator[str]:
    if end.state is not None:
        yield end.state
    if end.wire_out_bytes is not None:
        yield f"{bytes_text(end.wire_out_bytes)} sent to it and {bytes_text(end.wire_in_bytes)} received"


def _link(link: LinkStatus, buffered_bytes: int) -> Iterator[str]:
    if link.rate_bytes_s is None or link.round_trip_ms is None:
        yield "nothing measured yet"
    else:
        yield f"carries {bytes_text(link.rate_bytes_s)}/s"
        yield f"round trip {link.round_trip_ms:g} ms"
    if link.loses_segments:
        yield "loses segments"
    if link.silent_s >= 1:
        yield f"no acknowledgement for {duration_text(link.silent_s)}"
    yield f"{bytes_text(link.under_way_bytes)} of at most {bytes_text(link.under_way_bytes_max)} under way"
    yield f"{bytes_text(buffered_bytes)} read and not yet acknowledged"


def _troubles(report: Report) -> Iterator[str]:
    for one in report.troubles[:TROUBLES_MAX]:
        yield f"TROUBLE {printable(one)}"
    if len(report.troubles) > TROUBLES_MAX:
        yield f"        and {len(report.troubles) - TROUBLES_MAX} more"


def _table(topics: list[TopicStatus]) -> str:
    troubled = any(one.troubled for one in topics)
    head = (*_HEAD, "IN TROUBLE") if troubled else _HEAD
    return table(head, [_row(one)[: len(head)] for one in topics], texts=(0,))


def _row(topic: TopicStatus) -> tuple[str | int | None, ...]:
    size = bytes_text(topic.lag_bytes)
    return (
        topic.topic,
        topic.partitions,
        count_text(topic.lag_records),
        f"~{size}" if topic.lag_bytes and topic.lag_bytes_estimated else size,
        duration_text(topic.lag_s) if topic.lag_records else "-",
        count_text(topic.records_s),
        bytes_text(topic.bytes_s),
        _drain(topic),
        f"{topic.troubled} of {topic.partitions}" if topic.troubled else None,
    )


def _drain(topic: TopicStatus) -> str:
    if not topic.lag_records or topic.records_s is None:
        return "-"
    if topic.drain_s is not None:
        return duration_text(topic.drain_s)
    if (topic.lag_s or 0) < NOTICED_S:
        return "-"
    return "it grows" if (topic.shrinks_s or 0) <= -GROWS else "-" if topic.records_s else "it stands"
