"""The closing report of the demo: one table per question, the verdict, and how to look further. Text only."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.e2e import report
from tests.e2e.accounting import TopicAccount
from tests.e2e.parts import Road
from tests.e2e.verify import Findings
from tests.e2e.watch import Watch
from tests.support.processes import EdgeBroker

SHOWN = 5
PROMISE = (
    "mosquitto answers devices from memory: its column says what it took, not what is on disk. The promise (acked\n"
    "means on disk) starts at the gateway, which answers mosquitto only after the edge broker's acks=all."
)
TOPIC_HEADS = (
    "topic",
    "produced",
    "acked by mosquitto",
    "acked by broker",
    "on the edge",
    "mirrored",
    "pending",
    "lost",
    "duplicated",
    "out of order",
    "p50 ms",
    "p99 ms",
)


def closing_report(road: Road, watch: Watch, found: Findings, faults: Sequence[str], slow: Sequence[str]) -> str:
    """Everything that is worth saying at the end."""
    parts = ["", f"after {watch.elapsed_s():.0f} s:", "", topics(found.accounts), "", notes(found.accounts, found)]
    parts += ["", results(found), "", costs(watch), "", f"everything is kept in {road.root}", verdict(faults, slow)]
    return "\n".join(parts)


def topics(accounts: Sequence[TopicAccount]) -> str:
    """The table per topic."""
    return report.table(TOPIC_HEADS, [_topic_row(row) for row in accounts])


def _topic_row(row: TopicAccount) -> list[object]:
    return [
        row.topic,
        row.produced,
        row.acked,
        row.acked_by_broker,
        row.on_edge,
        row.mirrored,
        row.pending,
        row.lost,
        row.duplicated,
        row.order_violations,
        row.latency_p50_ms,
        row.latency_p99_ms,
    ]


def notes(accounts: Sequence[TopicAccount], found: Findings) -> str:
    """What the table's columns do not say."""
    edge, mirror = sum(row.duplicated_on_edge for row in accounts), sum(row.duplicated_by_mirror for row in accounts)
    return "\n".join(
        [
            "produced, on the edge and mirrored count distinct records; copies are in duplicated "
            f"({edge} made before or on the edge, {mirror} by the mirror).",
            "acked by broker is the gateway's own count, copies included, just before it was stopped.",
            "Latency is from the device's sending to readable by a consumer at central; the time of the cut is in it.",
            f"Loss ledger: {len(found.ledger)} records." + "".join(f"\n  {entry}" for entry in found.ledger[:SHOWN]),
            PROMISE,
        ]
    )


def clock(time_ms: int) -> str:
    """The time of day of a moment, UTC."""
    return datetime.fromtimestamp(time_ms / 1_000, UTC).strftime("%H:%M:%S")


def results(found: Findings) -> str:
    """What Spark made of it."""
    newest = sorted(found.windows.values(), key=lambda window: (window["window_start_ms"], window["device"]))[-SHOWN:]
    window_rows = [
        [w["device"], clock(w["window_start_ms"]), w["count"], f"{w['min']:.2f}", f"{w['mean']:.2f}", f"{w['max']:.2f}"]
        for w in newest
    ]
    alarm_rows = [
        [a["device"], clock(a["time_ms"]), f"{a['value']:.2f}", f"{a['mean']:.2f}", f"{a['score']:.1f}"]
        for a in sorted(found.alarms, key=lambda alarm: int(alarm["time_ms"]))[-SHOWN:]
    ]
    return "\n".join(
        [
            f"Spark: {len(found.windows)} windows in the compacted topic, {found.agreement.equal} of "
            f"{found.agreement.expected} equal to what the edge's log gives; {found.finished_windows} finished windows "
            f"in Parquet; {len(found.alarms)} alarms. The last of each:",
            report.table(("window of", "start (UTC)", "count", "min", "mean", "max"), window_rows),
            "",
            report.table(("alarm of", "time (UTC)", "value", "recent mean", "score"), alarm_rows),
        ]
    )


def costs(watch: Watch) -> str:
    """RSS and CPU seconds of every process."""
    rows = [
        [name, f"{used.rss_bytes / 1e6:.0f}", f"{used.rss_bytes_max / 1e6:.0f}", f"{used.cpu_s:.1f}"]
        for name, used in watch.usage.items()
    ]
    return report.table(("process", "RSS MB", "highest", "CPU s"), rows)


def verdict(faults: Sequence[str], slow: Sequence[str] = ()) -> str:
    """One line when all is well, else a line per fault; what was too slow is no loss, and is not called one."""
    waits = [f"  - {wait}" for wait in slow]
    if faults:
        return "\n".join(["FAILED:", *(f"  - {fault}" for fault in faults), *waits])
    if slow:
        head = "NOTHING LOST, BUT NOT ALL SHOWN: every acked record is there, in order; no part died. Slow, not lost:"
        return "\n".join([head, *waits, "exit status 3; a longer run (SECONDS=) or a quieter machine shows the rest"])
    return "OK: every acked record is there, in order; no part died."


def how_to_look(road: Road) -> str:
    """Commands to try while everything runs: our own tools first, then those that any Kafka knows."""
    edge, central = road.edge.bootstrap, road.central_bootstrap
    ours = isinstance(road.edge, EdgeBroker)
    lines = [
        "",
        "Everything runs, with fresh load. To look into it, in another terminal:",
        f"  export PATH={Path(sys.executable).parent}:$PATH",
        f"  edge-broker topics --bootstrap {edge}",
        f"  edge-broker tail readings --follow --bootstrap {edge}",
        f"  edge-broker tail {road.at_central('readings_windows')} --bootstrap {central}    (in the datacenter)",
        f"  edge-broker groups --bootstrap {edge}",
        *([f"  edge-broker ledger --data-dir {road.edge_data}"] if ours else []),
        f"  edge-mirror status --source {edge} --site {road.site}",
        *(
            [f"  curl {road.edge.metrics_url.replace('/metrics', '/health')}    (edge broker; also /metrics)"]
            if isinstance(road.edge, EdgeBroker)
            else []
        ),
        f"  curl http://127.0.0.1:{road.gateway_metrics_port}/health    (gateway; also /metrics)",
        f"  curl http://127.0.0.1:{road.mirror_metrics_port}/health    (mirror; also /metrics)",
        f"  kcat -C -b {edge} -t readings -o end",
        f"  mosquitto_sub -p {road.mosquitto.port} -t 'sites/#'",
    ]
    if road.link is not None:
        lines.append(f"  kill -USR1 {road.link.pid} cuts the link, kill -USR2 {road.link.pid} restores it")
    return "\n".join(
        [*lines, f"  {road.root}: logs, configuration, data, Spark's Parquet files", "Ctrl-C ends it all."]
    )
