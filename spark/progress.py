"""What a query did since the last look, as the fields of one log line. Pure: progress reports in, fields out."""

from collections.abc import Sequence
from typing import Any

Report = dict[str, Any]  # one StreamingQueryProgress as Spark writes it in JSON


def new_reports(reports: Sequence[Report], after_batch_id: int) -> list[Report]:
    """Keep the reports of batches that ran after a given one; an idle report bears the id of a batch yet to run."""
    return [each for each in reports if each["batchId"] > after_batch_id and "addBatch" in each["durationMs"]]


def summary(reports: Sequence[Report], span_s: float) -> dict[str, object]:
    """Sum up the batches of `span_s` seconds; `reports` is not empty."""
    rows = sum(report["numInputRows"] for report in reports)
    last = reports[-1]
    fields: dict[str, object] = {
        "batches": len(reports),
        "last_batch": last["batchId"],
        "input_records": rows,
        "input_records_per_s": round(rows / max(span_s, 0.001), 1),
        "batch_ms_max": max(report["batchDuration"] for report in reports),
        "behind_records": behind_records(last),
    }
    if "watermark" in last.get("eventTime", {}):
        fields["watermark"] = last["eventTime"]["watermark"]
        fields["late_records"] = sum(late_records(report) for report in reports)
    return fields


def late_records(report: Report) -> int:
    """Count the rows that came after the watermark and changed nothing any more."""
    return sum(operator["numRowsDroppedByWatermark"] for operator in report["stateOperators"])


def behind_records(report: Report) -> int:
    """Count the records at the broker that the batch did not take, in the partition that is furthest behind."""
    metrics = [source.get("metrics") or {} for source in report["sources"]]
    return sum(int(each.get("maxOffsetsBehindLatest", 0)) for each in metrics)
