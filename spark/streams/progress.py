"""PURE: summarise a query's progress reports since the last poll as the fields of one log line."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

Report = dict[str, Any]  # one StreamingQueryProgress as Spark writes it in JSON
Fields = dict[str, Any]
Tell = Callable[[int, Fields], None]  # adds fields to the report of a batch, by its id


def new_reports(reports: Sequence[Report], after_batch_id: int) -> list[Report]:
    """Return the reports of batches that ran after a given one; an idle report has the id of the next batch."""
    return [each for each in reports if each["batchId"] > after_batch_id and "addBatch" in each["durationMs"]]


def summary(reports: Sequence[Report], told: Sequence[Fields], span_s: float) -> Fields:
    """Sum up the batches of `span_s` seconds and their added fields; `reports` is not empty."""
    rows = sum(report["numInputRows"] for report in reports)
    last = reports[-1]
    fields: Fields = {
        "batches": len(reports),
        "last_batch": last["batchId"],
        "input_records": rows,
        "input_records_per_s": round(rows / max(span_s, 0.001), 1),
        "batch_ms_max": max(report["batchDuration"] for report in reports),
        "behind_records": behind_records(last),
    }
    if told:
        fields |= told[-1] | {"late_records": sum(each["late_records"] for each in told)}
    return fields


def behind_records(report: Report) -> int:
    """Return the lag in records after the batch, of the partition with the largest lag."""
    metrics = [source.get("metrics") or {} for source in report["sources"]]
    return sum(int(each.get("maxOffsetsBehindLatest", 0)) for each in metrics)


def list_words(words: Sequence[str], more: bool) -> str:
    """List words; mark a list that omits some."""
    return ", ".join([*words, "…"] if more else words)


def place_ranges(places: Sequence[tuple[int, int]], most: int) -> str:
    """List sorted (partition, offset) pairs as `partition:first-last`, the first `most` pairs of them."""
    ranges = []
    for (partition, _), run in groupby(enumerate(places[:most]), key=lambda each: (each[1][0], each[1][1] - each[0])):
        offsets = [offset for _, (_, offset) in run]
        ranges.append(f"{partition}:{offsets[0]}" + (f"-{offsets[-1]}" if len(offsets) > 1 else ""))
    return list_words(ranges, len(places) > most)


def utc(time_ms: int) -> str:
    """Write epoch milliseconds, not negative, as ISO 8601 in UTC."""
    return datetime.fromtimestamp(max(time_ms, 0) / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
